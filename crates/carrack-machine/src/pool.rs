//! The slot pool (L6, M4): payload memory, reserved once, locked, leased and returned.
//!
//! One mapping ([`MappedRegion`]), divided into slots of equal size. Pages are locked at their first touch
//! (`MLOCK_ONFAULT`), so that a short transfer pays only for the slots it uses; slots are leased last in
//! first out, so that recently used ones are still in a core's cache. Any thread may lease; a slot returns
//! when dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::fifo_monitor::{FifoConditionLock, FifoMonitorClosed};
use crate::id_set::NodeSet;
use crate::region::{MappedRegion, PoolBacking};

/// Reasons why a pool was not created.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The pool has no room for a slot, or the slot size is not a multiple of the page size.
    #[error("a pool of {0} bytes can't be cut into slots of {1} bytes")]
    BadSize(u64, usize),
    /// The kernel refused the memory.
    #[error("no memory for a buffer of {0} bytes: {1}")]
    NoMemory(u64, #[source] std::io::Error),
}

const PAGE_BYTES: usize = 4096;

/// Number of slots of a pool; `None` for invalid sizes.
fn count_slots(pool_bytes: u64, slot_bytes: usize) -> Option<u32> {
    if slot_bytes == 0 || !slot_bytes.is_multiple_of(PAGE_BYTES) {
        return None;
    }
    let count = usize::try_from(pool_bytes).ok()? / slot_bytes;
    u32::try_from(count).ok().filter(|&count| count > 0)
}

struct PoolState {
    region: MappedRegion,
    slot_bytes: usize,
    slot_count: usize,
    backing: Mutex<PoolBacking>,
    free: FifoConditionLock<Vec<u32>>,
}

/// A pool of slots. Clones share it.
#[derive(Clone)]
pub struct SlotPool {
    shared: Arc<PoolState>,
}

/// A weak reference to a pool.
#[derive(Clone)]
pub(crate) struct WeakPool(Weak<PoolState>);

impl WeakPool {
    pub(crate) fn upgrade(&self) -> Option<SlotPool> {
        self.0.upgrade().map(|shared| SlotPool { shared })
    }
}

impl SlotPool {
    /// Reserves `pool_bytes` in slots of `slot_bytes` (a multiple of 4,096), without a binding.
    pub fn new(pool_bytes: u64, slot_bytes: usize) -> Result<SlotPool, PoolError> {
        SlotPool::on_nodes(&NodeSet::new(), pool_bytes, slot_bytes)
    }

    /// Reserves memory on `nodes`, as far as the kernel allows ([`PoolBacking`] has the result).
    pub fn on_nodes(nodes: &NodeSet, pool_bytes: u64, slot_bytes: usize) -> Result<SlotPool, PoolError> {
        let indices =
            count_slots(pool_bytes, slot_bytes).ok_or(PoolError::BadSize(pool_bytes, slot_bytes))?;
        let slot_count = indices as usize;
        let (region, backing) = MappedRegion::map_on_nodes(nodes, slot_count * slot_bytes)
            .map_err(|error| PoolError::NoMemory(pool_bytes, error))?;
        let (backing, free) = (Mutex::new(backing), FifoConditionLock::new((0..indices).rev().collect()));
        Ok(SlotPool { shared: Arc::new(PoolState { region, slot_bytes, slot_count, backing, free }) })
    }

    /// Moves the memory to other nodes during its use, and returns the result. Pages with device I/O in
    /// progress don't move: [`SlotPool::pages_by_node`] counts them.
    pub fn rebind(&self, nodes: &NodeSet) -> PoolBacking {
        let mut backing = self.lock_backing();
        self.shared.region.rebind(nodes, &mut backing);
        backing.clone()
    }

    /// The memory's properties.
    pub fn backing(&self) -> PoolBacking {
        self.lock_backing().clone()
    }

    /// Number of pages of 4,096 bytes on each node, without untouched ones. Queries every page.
    pub fn pages_by_node(&self) -> io::Result<BTreeMap<u32, usize>> {
        let mut count = BTreeMap::new();
        for node in self.shared.region.node_of_pages()?.into_iter().flatten() {
            *count.entry(node).or_default() += 1;
        }
        Ok(count)
    }

    pub(crate) fn downgrade(&self) -> WeakPool {
        WeakPool(Arc::downgrade(&self.shared))
    }

    /// Fields of a backing are replaced independently: after a panic it is still valid.
    fn lock_backing(&self) -> MutexGuard<'_, PoolBacking> {
        self.shared.backing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot, in first-come-first-served order.
    pub fn lease(&self) -> Result<Slot, FifoMonitorClosed> {
        let index = self.shared.free.take(Vec::pop)?;
        Ok(Slot { shared: Arc::clone(&self.shared), index })
    }

    /// A free slot, if there is one and no thread waits.
    pub fn try_lease(&self) -> Option<Slot> {
        let index = self.shared.free.try_take(Vec::pop)?;
        Some(Slot { shared: Arc::clone(&self.shared), index })
    }

    /// Ends all waits for slots.
    pub fn close(&self) {
        self.shared.free.close();
    }

    /// The memory of all slots, for registration with a device. Only a slot's holder may access that slot's
    /// part.
    pub fn memory(&self) -> *mut [u8] {
        let shared = &self.shared;
        std::ptr::slice_from_raw_parts_mut(shared.region.base(), shared.slot_count * shared.slot_bytes)
    }

    /// Size of a slot in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.shared.slot_bytes
    }

    /// Number of slots.
    pub fn slot_count(&self) -> usize {
        self.shared.slot_count
    }

    /// Number of threads that wait for a slot.
    pub fn waiter_count(&self) -> usize {
        self.shared.free.waiter_count()
    }

    /// Number of free slots.
    pub fn free_count(&self) -> usize {
        self.shared.free.with(|free| free.len())
    }

    /// Returns true if the memory is locked; RLIMIT_MEMLOCK may forbid it.
    pub fn is_locked(&self) -> bool {
        self.lock_backing().locked
    }
}

/// One slot of a pool: memory that only its holder may access.
pub struct Slot {
    shared: Arc<PoolState>,
    index: u32,
}

impl Slot {
    fn start(&self) -> *mut u8 {
        let offset = self.index as usize * self.shared.slot_bytes;
        self.shared.region.base().wrapping_add(offset)
    }

    /// The slot's pool.
    pub fn pool(&self) -> SlotPool {
        SlotPool { shared: Arc::clone(&self.shared) }
    }

    /// The slot's bytes; they hold the previous user's data until they are written.
    #[allow(unsafe_code)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `index < slot_count`, so the range lies within the mapping, which is zeroed or written
        // memory; an index is in one `Slot` or in the free list, never in two, so no thread writes to it
        // while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.shared.slot_bytes) }
    }

    /// The slot's bytes, for writing.
    #[allow(unsafe_code)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.shared.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let index = self.index;
        self.shared.free.change_and_wake_one(|free| free.push(index));
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
    use crate::binding::node_of_pages;
    use crate::region::{MemoryBinding, MemoryPageKind};
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
    fn bound_memory_lies_on_its_node() {
        let node_0 = NodeSet::from_iter([0]);
        let pool = SlotPool::on_nodes(&node_0, 1 << 20, 64 << 10).unwrap();
        if pool.backing().bound != MemoryBinding::Bound {
            eprintln!("skipped: {:?}", pool.backing().notes);
            return;
        }
        assert_eq!(pool.backing().nodes, node_0);
        let mut slot = pool.lease().unwrap();
        slot.bytes_mut().fill(7);
        assert_eq!(node_of_pages(slot.bytes()).unwrap(), vec![Some(0); 16]);
        let pages = pool.pages_by_node().unwrap();
        assert!(pages[&0] >= 16 && pages.len() == 1, "{pages:?}");
    }

    #[test]
    fn huge_pages_set_aside_are_used() {
        let pool = SlotPool::on_nodes(&NodeSet::from_iter([0]), 2 << 20, 64 << 10).unwrap();
        let backing = pool.backing();
        if backing.pages != MemoryPageKind::Huge {
            eprintln!("skipped: {:?}", backing.notes);
            return;
        }
        assert!(
            backing.locked && backing.bound == MemoryBinding::Bound && backing.bytes == 2 << 20,
            "{backing}"
        );
        assert_eq!(pool.pages_by_node().unwrap(), BTreeMap::from([(0, 512)]), "all present at once");
        pool.lease().unwrap().bytes_mut().fill(1);
    }

    #[test]
    fn a_pool_that_moves_keeps_its_contents() {
        let pool = SlotPool::new(128 << 10, 64 << 10).unwrap();
        let mut slot = pool.lease().unwrap();
        slot.bytes_mut().fill(5);
        let backing = pool.rebind(&NodeSet::from_iter([0]));
        if backing.bound == MemoryBinding::Bound {
            assert_eq!(pool.pages_by_node().unwrap().into_keys().collect::<Vec<_>>(), [0]);
        }
        assert!(slot.bytes().iter().all(|&byte| byte == 5));
        assert_eq!(pool.rebind(&NodeSet::new()).bound, MemoryBinding::Unbound);
    }

    #[test]
    fn sizes_that_make_no_pool_are_refused() {
        for (pool_bytes, slot_bytes) in [(0, 4096), (4096, 8192), (4096, 0), (8192, 1000)] {
            assert!(matches!(SlotPool::new(pool_bytes, slot_bytes), Err(PoolError::BadSize(..))));
        }
    }
}
