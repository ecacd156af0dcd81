//! The slot pool (L6, M4): payload memory, reserved once, locked, handed out and taken back.
//!
//! One anonymous mapping, cut into slots of equal size. It is locked as pages are first touched (`MLOCK_ONFAULT`), so
//! that a short transfer pays only for the slots it uses; slots are handed out last in first out, so that the hot ones
//! are used again while a core's cache still holds them. Any thread may lease; a slot goes back when dropped.

use std::sync::Arc;

use rustix::mm::{self, MapFlags, MlockFlags, ProtFlags};

use crate::monitor::{Closed, Monitor};

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Fewer than one slot, or a slot that is not a multiple of a page.
    #[error("a pool of {0} bytes can't be cut into slots of {1} bytes")]
    BadSize(u64, usize),
    /// The kernel gives no memory.
    #[error("no memory for a buffer of {0} bytes: {1}")]
    NoMemory(u64, #[source] std::io::Error),
}

const PAGE_BYTES: usize = 4096;

struct Region {
    base: *mut u8,
    len: usize,
}

// SAFETY: the region is plain memory that stays mapped until `Region` is dropped; who may touch which part of it is
// decided by the slots, each of which exists once.
#[allow(unsafe_code)]
unsafe impl Send for Region {}
// SAFETY: see `Send`; a shared `Region` gives out no references by itself.
#[allow(unsafe_code)]
unsafe impl Sync for Region {}

impl Region {
    #[allow(unsafe_code)]
    fn map(len: usize) -> Result<Region, std::io::Error> {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Region { base: base.cast(), len })
    }

    /// Asks for huge pages: 512 times fewer page faults and TLB entries. Advice, its failure means nothing.
    #[allow(unsafe_code)]
    fn prefer_huge_pages(&self) {
        // SAFETY: the range is exactly this mapping; the advice does not change its contents.
        let _ = unsafe { mm::madvise(self.base.cast(), self.len, mm::Advice::LinuxHugepage) };
    }

    #[allow(unsafe_code)]
    fn lock(&self) -> bool {
        // SAFETY: the range is exactly this mapping.
        unsafe { mm::mlock_with(self.base.cast(), self.len, MlockFlags::ONFAULT) }.is_ok()
    }
}

impl Drop for Region {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: unmapped once, by the owner; every slot holds the pool alive, so no reference into it is left.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

struct Shared {
    region: Region,
    slot_bytes: usize,
    slot_count: usize,
    is_locked: bool,
    free: Monitor<Vec<u32>>,
}

/// A pool of slots. Clones share it.
#[derive(Clone)]
pub struct SlotPool {
    shared: Arc<Shared>,
}

impl SlotPool {
    /// Reserves `pool_bytes`, cut into slots of `slot_bytes` (a multiple of 4,096).
    pub fn new(pool_bytes: u64, slot_bytes: usize) -> Result<SlotPool, PoolError> {
        let bad = || PoolError::BadSize(pool_bytes, slot_bytes);
        if slot_bytes == 0 || !slot_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(bad());
        }
        let slot_count = usize::try_from(pool_bytes).map_err(|_| bad())? / slot_bytes;
        let indices = u32::try_from(slot_count).map_err(|_| bad())?;
        if indices == 0 {
            return Err(bad());
        }
        let region =
            Region::map(slot_count * slot_bytes).map_err(|error| PoolError::NoMemory(pool_bytes, error))?;
        region.prefer_huge_pages();
        let is_locked = region.lock();
        let free = Monitor::new((0..indices).rev().collect());
        Ok(SlotPool { shared: Arc::new(Shared { region, slot_bytes, slot_count, is_locked, free }) })
    }

    /// Waits, first come first served, for a free slot.
    pub fn lease(&self) -> Result<Slot, Closed> {
        let index = self.shared.free.take(Vec::pop)?;
        Ok(Slot { shared: Arc::clone(&self.shared), index })
    }

    /// A free slot, if there is one that nobody waits for.
    pub fn try_lease(&self) -> Option<Slot> {
        let index = self.shared.free.try_take(Vec::pop)?;
        Some(Slot { shared: Arc::clone(&self.shared), index })
    }

    /// Ends all waiting for slots.
    pub fn close(&self) {
        self.shared.free.close();
    }

    /// Bytes of each slot.
    pub fn slot_bytes(&self) -> usize {
        self.shared.slot_bytes
    }

    /// Slots in all.
    pub fn slot_count(&self) -> usize {
        self.shared.slot_count
    }

    /// Slots that nobody holds.
    pub fn free_count(&self) -> usize {
        self.shared.free.with(|free| free.len())
    }

    /// Whether the memory is locked; RLIMIT_MEMLOCK may forbid it.
    pub fn is_locked(&self) -> bool {
        self.shared.is_locked
    }
}

/// One slot of a pool: memory that its holder alone may touch.
pub struct Slot {
    shared: Arc<Shared>,
    index: u32,
}

impl Slot {
    fn start(&self) -> *mut u8 {
        let offset = self.index as usize * self.shared.slot_bytes;
        self.shared.region.base.wrapping_add(offset)
    }

    /// Its bytes: the last holder's until they are written.
    #[allow(unsafe_code)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `index < slot_count`, so the range lies within the mapping, which is zeroed or written memory; an
        // index is in one `Slot` or in the free list, never in two, so nobody writes to it while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.shared.slot_bytes) }
    }

    /// Its bytes, to be filled.
    #[allow(unsafe_code)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.shared.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let index = self.index;
        self.shared.free.release(|free| free.push(index));
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({})", self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn slots_are_disjoint_and_come_back_last_in_first_out() {
        let pool = SlotPool::new(64 << 10, 16 << 10).unwrap();
        assert_eq!((pool.slot_count(), pool.free_count()), (4, 4));
        let mut slots: Vec<Slot> = (0..4).map(|_| pool.lease().unwrap()).collect();
        for (i, slot) in slots.iter_mut().enumerate() {
            slot.bytes_mut().fill(i as u8 + 1);
        }
        for (i, slot) in slots.iter().enumerate() {
            assert!(slot.bytes().iter().all(|&b| b == i as u8 + 1));
        }
        assert!(pool.try_lease().is_none());
        drop(slots.remove(2));
        assert_eq!(pool.try_lease().unwrap().bytes()[0], 3);
    }

    #[test]
    fn a_thread_waits_for_a_slot() {
        let pool = SlotPool::new(4096, 4096).unwrap();
        let held = pool.lease().unwrap();
        let waiting = {
            let pool = pool.clone();
            thread::spawn(move || pool.lease().is_ok())
        };
        while pool.shared.free.waiter_count() == 0 {
            thread::yield_now();
        }
        drop(held);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_slot_outlives_its_pool() {
        let pool = SlotPool::new(8192, 4096).unwrap();
        let mut slot = pool.lease().unwrap();
        drop(pool);
        slot.bytes_mut().fill(9);
        assert_eq!(slot.bytes()[4095], 9);
    }

    #[test]
    fn sizes_that_make_no_pool_are_refused() {
        for (pool_bytes, slot_bytes) in [(0, 4096), (4096, 8192), (4096, 0), (8192, 1000)] {
            assert!(matches!(SlotPool::new(pool_bytes, slot_bytes), Err(PoolError::BadSize(..))));
        }
    }
}
