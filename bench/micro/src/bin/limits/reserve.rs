//! Touched memory, held until a run starts; `bench/harness/reserve.py` does the same for `bench/compare`.
//!
//! A virtual machine's idle memory goes back to its host within seconds, and the first touch after that is
//! several times slower. So the memory that a run will allocate on tmpfs is held and touched up to its start.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use crate::machine;

/// Memory that is never taken: it is for the workers.
pub const KEEP_FREE_BYTES: u64 = 2 << 30;

/// Memory of a run besides file contents: socket buffers, page tables, the workers.
pub const EXTRA_BYTES: u64 = 256 << 20;

/// Memory of a file besides its contents: its inode and its name.
pub const EXTRA_PER_FILE_BYTES: u64 = 2048;

/// The shortest time for which a reserve is held: the kernel reports freed memory to the host two seconds
/// after the first was freed (`PAGE_REPORTING_DELAY`), a sixteenth of the free memory at a time, and the
/// memory of the last run must be reported by then.
const SETTLE: Duration = Duration::from_secs(5);

/// A smaller reserve is released at once: losing it to the host costs little.
const SETTLE_BYTES_MIN: usize = 1 << 30;

/// One block of touched memory.
pub struct Reserve {
    memory: Vec<u8>,
}

impl Reserve {
    /// Takes and touches memory, or less if the machine hasn't that much.
    pub fn filled(size_bytes: u64) -> Reserve {
        let free_bytes = machine::available_memory_bytes().saturating_sub(KEEP_FREE_BYTES);
        let memory = vec![1; size_bytes.min(free_bytes) as usize];
        // Without this the compiler may find that the memory is never read.
        Reserve { memory: black_box(memory) }
    }

    /// Releases the memory to the kernel, whose next allocations get these pages; after a while, because of
    /// the host.
    pub fn release(self) {
        if self.memory.len() >= SETTLE_BYTES_MIN {
            thread::sleep(SETTLE);
        }
        drop(self.memory);
    }
}
