//! The heap: its size is counted, and at some allocations another thread may run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::scheduler::{self, InsideGuard, caller};
use crate::world::world;

struct CountingHeap;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
static GAP: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if caller().is_some() {
            count(layout.size());
        }
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if caller().is_some() {
            let _ = IN_USE.fetch_update(Relaxed, Relaxed, |bytes| Some(bytes.saturating_sub(layout.size())));
        }
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

fn count(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(in_use, Relaxed);
    let left = LEFT.load(Relaxed);
    if left > 0 {
        LEFT.store(left - 1, Relaxed);
        return;
    }
    let _inside = InsideGuard::enter();
    LEFT.store(next_gap(), Relaxed);
    scheduler::maybe_switch(true);
}

fn next_gap() -> u64 {
    match GAP.load(Relaxed) {
        0 => u64::MAX,
        gap => world().chance.below(2 * gap),
    }
}

/// Begins to count; another thread may run at one in `gap` allocations, or at none for 0.
pub fn begin(gap: u64) {
    IN_USE.store(0, Relaxed);
    PEAK.store(0, Relaxed);
    GAP.store(gap, Relaxed);
    LEFT.store(next_gap(), Relaxed);
}

/// Lets allocations alone.
pub fn end() {
    GAP.store(0, Relaxed);
    LEFT.store(u64::MAX, Relaxed);
}

/// The most memory in use since the begin.
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Allocations until another thread may run.
pub fn left() -> u64 {
    LEFT.load(Relaxed)
}
