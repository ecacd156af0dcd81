//! Room in a read queue for scanned entries. The scan waits for it, and is never far ahead of the transfer.

/// Places in the queues for the entries of the scan.
pub(super) struct ReadQueueRoom {
    places: usize,
    free: usize,
    /// Places that were left and are not free again yet.
    left: usize,
    /// The number of entries whose room is freed at a time. The scan is faster than the readers, and would be
    /// woken for each single entry.
    step: usize,
}

impl ReadQueueRoom {
    /// Makes room for this number of entries.
    pub(super) fn new(places: usize) -> ReadQueueRoom {
        assert!(places > 0, "the scan has room for an entry");
        ReadQueueRoom { places, free: places, left: 0, step: places / 4 }
    }

    /// Returns the places that are taken, and their total.
    pub(super) fn fill(&self) -> (usize, usize) {
        (self.places.saturating_sub(self.free + self.left), self.places)
    }

    /// Takes room for `count` entries, if it is free.
    pub(super) fn take(&mut self, count: usize) -> Option<()> {
        assert!(count <= self.places, "a wait for more room than there is never ends");
        self.free = self.free.checked_sub(count)?;
        Some(())
    }

    /// Leaves room. Returns true if it is time to free some. Three quarters of all room is taken otherwise
    /// and will be left too, so no thread waits in vain.
    pub(super) fn release(&mut self, count: usize) -> bool {
        self.left += count;
        assert!(self.free + self.left <= self.places, "what leaves had room before");
        self.left >= self.step
    }

    /// Frees the room that has been left.
    pub(super) fn free(&mut self) {
        self.free += std::mem::take(&mut self.left);
        assert!(self.free <= self.places, "no more room is free than there is");
    }
}
