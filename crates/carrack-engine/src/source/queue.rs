//! What waits at the source, and what is on its way: the target queues (L2) with the items that lie in them.

use std::sync::Arc;

use carrack_model::limits::QUEUE_ITEMS_MAX;
use carrack_model::{Directory, Entry, TargetId};
use carrack_plan::{Bundle, FileCursor, ObjectExtent, TargetQueues};
use carrack_storage::{Medium, StorageTarget};

use super::Source;
use super::large_file::{LargeFile, Step};

/// Something an I/O thread can do.
pub(super) enum Job {
    /// Read these small files and send them together; the number of times they were read before.
    Bundle(Bundle, u32),
    /// Open this large file, announce it, and queue its cursor.
    Open { directory: Arc<Directory>, entry: Entry, attempts: u32 },
    /// Read some of a file's objects, one after the other.
    Cursor(Arc<LargeFile>, FileCursor),
    /// Read this object (again); the number of times it was read before.
    Object(Arc<LargeFile>, ObjectExtent, u32),
    /// Do what comes next for a file.
    Follow(Arc<LargeFile>, Step),
    /// Report that the sink could not get this object undamaged.
    GiveUp(Sent),
}

/// An object on its way, by what has to be done if it arrives damaged.
pub(super) enum Sent {
    Bundle(TargetId, Bundle, u32),
    Object(Arc<LargeFile>, ObjectExtent, u32),
}

impl Sent {
    /// The target that it was read from.
    pub(super) fn target(&self) -> TargetId {
        match self {
            Sent::Bundle(target, ..) => *target,
            Sent::Object(file, ..) => file.target,
        }
    }
}

/// The target queues of a source.
pub(super) struct Queue {
    items: TargetQueues<Job>,
}

/// Places in the queues for what the scan finds.
pub(super) struct Room {
    free: usize,
    /// Places that were left and are not free again yet.
    left: usize,
}

/// Places that are freed together: the scan is faster than the readers, and for each single place it would be woken up.
const ROOM_STEP: usize = QUEUE_ITEMS_MAX / 4;

impl Default for Room {
    fn default() -> Room {
        Room { free: QUEUE_ITEMS_MAX, left: 0 }
    }
}

impl Room {
    /// Takes a place, if one is free.
    pub(super) fn take(&mut self) -> Option<()> {
        take_one(&mut self.free)
    }

    /// Something has left its place; true if it is time to free some. Three quarters of all places are taken otherwise,
    /// and will be left too: nobody waits in vain.
    fn leave(&mut self) -> bool {
        self.left += 1;
        self.left >= ROOM_STEP
    }

    fn free(&mut self) {
        self.free += std::mem::take(&mut self.left);
    }
}

/// Takes one of `count`, if there is one.
pub(super) fn take_one(count: &mut usize) -> Option<()> {
    *count = count.checked_sub(1)?;
    Some(())
}

impl Source<'_> {
    /// A job that came from the scan was taken out of the queues.
    pub(super) fn make_room(&self) {
        if self.room.with(Room::leave) {
            self.room.release_many(ROOM_STEP, Room::free);
        }
    }
}

impl Job {
    /// Whether it came from the scan and has not been touched yet: taking it makes room for the next.
    pub(super) fn is_fresh(&self) -> bool {
        matches!(self, Job::Bundle(_, 0) | Job::Open { attempts: 0, .. })
    }
}

impl Queue {
    pub(super) fn new(targets: &[StorageTarget]) -> Queue {
        let items = TargetQueues::new(usize::MAX);
        let mut queue = Queue { items };
        targets.iter().for_each(|target| queue.add_target(target));
        queue
    }

    /// A target that the scan came across. Memory can't be flooded: there the number of threads is the only bound, as
    /// each of them may be sending for long.
    pub(super) fn add_target(&mut self, target: &StorageTarget) {
        let depth = if target.medium == Medium::Memory { u32::MAX } else { target.depth };
        self.items.set_depth(target.id, depth);
    }

    /// Puts work behind what waits. What comes from the scan has waited for room before; what comes from other work
    /// is bounded by what was taken and what is on its way.
    pub(super) fn push(&mut self, target: TargetId, job: Job) {
        self.items.put_back(target, job);
    }

    /// The next thing to do.
    ///
    /// A cursor goes to one thread for a while: neighbours in a file then follow each other on one stream, and no two
    /// threads of the sink write to one file. Only when nothing else waits do several threads share a file: one
    /// object is cut, and the cursor stays here.
    pub(super) fn take(&mut self) -> Option<(TargetId, Job)> {
        let (target, job) = self.items.take()?;
        let Job::Cursor(file, mut cursor) = job else { return Some((target, job)) };
        if !self.items.is_empty() {
            return Some((target, Job::Cursor(file, cursor)));
        }
        let Some(extent) = file.cut(&mut cursor) else { return Some((target, Job::Cursor(file, cursor))) };
        let rest = cursor.peek_target().unwrap_or(target);
        self.items.put_back(rest, Job::Cursor(Arc::clone(&file), cursor));
        Some((target, Job::Object(file, extent, 0)))
    }

    /// What was taken from `target` is done.
    pub(super) fn finished(&mut self, target: TargetId) {
        self.items.finished(target);
    }
}
