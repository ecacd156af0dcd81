//! Touched memory, kept until a run starts; `bench/harness/reserve.py` does the same for `bench/compare`.
//!
//! A virtual machine's idle memory goes back to its host within seconds, and the first touch after that is several
//! times dearer. So what a run is going to allocate on tmpfs is held and touched up to its start.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use crate::machine;

/// Never take the last of the memory: what remains is for the workers.
pub const KEEP_FREE_BYTES: u64 = 2 << 30;

/// What a run allocates beside file contents: socket buffers, page tables, the workers themselves.
pub const EXTRA_BYTES: u64 = 256 << 20;

/// What a file takes beside its contents: its inode and its name.
pub const EXTRA_PER_FILE_BYTES: u64 = 2048;

/// How long a reserve is kept at least: the kernel tells the host of freed memory two seconds after the first of it was
/// freed (`PAGE_REPORTING_DELAY`), a sixteenth of what is free at a time, and what the last run left has to be told by then.
const SETTLE: Duration = Duration::from_secs(5);

/// A smaller reserve is given back at once: what the host can take of it costs little.
const SETTLE_BYTES_MIN: usize = 1 << 30;

/// One block of touched memory.
pub struct Reserve {
    memory: Vec<u8>,
}

impl Reserve {
    /// Takes and touches memory; less than asked for when the machine hasn't that much.
    pub fn filled(size_bytes: u64) -> Reserve {
        let free_bytes = machine::available_memory_bytes().saturating_sub(KEEP_FREE_BYTES);
        let memory = vec![1; size_bytes.min(free_bytes) as usize];
        // Else the compiler may find that nobody reads it.
        Reserve { memory: black_box(memory) }
    }

    /// Gives it all back to the kernel, whose next allocations get these pages; after a while, for the host's sake.
    pub fn release(self) {
        if self.memory.len() >= SETTLE_BYTES_MIN {
            thread::sleep(SETTLE);
        }
        drop(self.memory);
    }
}
