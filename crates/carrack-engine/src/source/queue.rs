//! What waits at the source, and what is on its way: the target queues (L2) with the items that lie in them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;
use std::time::{Duration, Instant};

use carrack_machine::{Attempt, Monitor};
use carrack_model::{Directory, Entry, FileId, RangeSet, Scheduling, TargetId};
use carrack_plan::{Bundle, Feed, FileCursor, ObjectExtent, Service, TargetQueues, TargetState, policy};
use carrack_storage::StorageTarget;
use carrack_wire::message::Stand;

use super::chunks::{FilePart, InChunk};
use super::flow::{Flow, Place};
use super::lane::Lane;
use super::large_file::{LargeFile, Step};
use crate::chunks::FILE_COSTS_BYTES;
use crate::settings::{Limits, depth_of_queue};
use crate::sharing::{Member, Pass};

/// Something an I/O thread can do.
pub(super) enum Job {
    /// Read these small files and send them together.
    Bundle(Parcel),
    /// Open this large file, announce it, and queue its cursors.
    Open(Opening),
    /// Send these bytes of a file once more, which the sink's storage does not hold as they were written.
    Refill(Arc<LargeFile>, RangeSet),
    /// Read some of a file's objects, one after the other.
    Cursor(Arc<LargeFile>, FileCursor),
    /// Read this object (again).
    Object(Piece),
    /// Do what comes next for a file.
    Follow(Arc<LargeFile>, Step),
    /// Report that the sink's storage damages this file, and do what comes next.
    Damaged(Arc<LargeFile>, Step),
    /// Report that the sink could not get this object undamaged.
    GiveUp(Sent),
    /// Tell the sink which of these names are here.
    Stand(Stand),
}

/// A bundle and what belongs to it.
pub(super) struct Parcel {
    pub(super) bundle: Bundle,
    /// How often it was read before.
    pub(super) attempts: u32,
    /// Whether it is what was left of another one, which has had its room and was charged for it.
    pub(super) is_rest: bool,
    /// The chunk that it is of, if work comes so.
    pub(super) chunk: Option<InChunk>,
}

/// A large file that is to be opened.
pub(super) struct Opening {
    pub(super) directory: Arc<Directory>,
    pub(super) entry: Entry,
    /// How often it was tried before.
    pub(super) attempts: u32,
    /// What the sink holds of it, if it was asked.
    pub(super) held: Option<Arc<RangeSet>>,
    /// What of it is this session's; all if nothing is said.
    pub(super) part: Option<FilePart>,
    /// The chunk that it is of, if work comes so.
    pub(super) chunk: Option<InChunk>,
}

/// An object of a large file.
pub(super) struct Piece {
    pub(super) file: Arc<LargeFile>,
    pub(super) extent: ObjectExtent,
    /// How often it was read before.
    pub(super) attempts: u32,
    /// Where it goes, if that is counted.
    pub(super) place: Option<Place>,
}

/// An object on its way, by what has to be done if it arrives damaged.
pub(super) enum Sent {
    Bundle(TargetId, Parcel),
    Object(Piece),
}

fn bundle_work_bytes(bundle: &Bundle) -> u64 {
    bundle.content_bytes + FILE_COSTS_BYTES * bundle.entry_count as u64
}

impl Sent {
    /// Bytes of work that it was.
    pub(super) fn work_bytes(&self) -> u64 {
        match self {
            Sent::Bundle(_, parcel) => bundle_work_bytes(&parcel.bundle),
            Sent::Object(piece) => piece.extent.range.len,
        }
    }

    /// Where it goes, if that is counted.
    pub(super) fn place(&self) -> Option<Place> {
        match self {
            Sent::Bundle(target, ..) => Some(Place::Bundles(*target)),
            Sent::Object(piece) => piece.place,
        }
    }
}

/// An object that the sink has not answered.
pub(super) struct Posted {
    pub(super) sent: Sent,
    /// The sink has put it on flash: it is in no slot, and not on its way, whatever is answered.
    pub(super) is_set_aside: bool,
}

impl Posted {
    pub(super) fn new(sent: Sent) -> Posted {
        Posted { sent, is_set_aside: false }
    }

    /// Credits that come with its answer.
    pub(super) fn credits(&self) -> u64 {
        u64::from(!self.is_set_aside)
    }
}

/// What a thread took: the work, and the target that it is in service of.
pub(super) type Taken = (Option<TargetId>, Job);

/// The target queues of a source.
pub(super) struct Queue {
    /// What needs no storage, or hardly any: never behind a target.
    errands: VecDeque<Job>,
    items: TargetQueues<Job>,
    flow: Flow,
    /// With the requests at a time that each likes.
    known: HashMap<TargetId, u32>,
    /// Threads at work, and those at the start.
    readers: [usize; 2],
    /// How many more large files may be opened.
    permits: usize,
    scheduling: Scheduling,
    /// What it keeps to where targets are shared out.
    pass: Option<Pass>,
    /// Whether something waited for a rate, and for nothing else.
    was_held: bool,
    /// The session's start, from which the policy counts.
    began: Instant,
}

/// Places in the queues for the entries that the scan finds.
pub(super) struct Room {
    places: usize,
    free: usize,
    /// Places that were left and are not free again yet.
    left: usize,
    /// Places that are freed together: the scan is faster than the readers, and for each single place it would be woken up.
    step: usize,
}

impl Room {
    /// With so many places.
    pub(super) fn new(places: usize) -> Room {
        Room { places, free: places, left: 0, step: places / 4 }
    }

    /// Places that are taken, and all.
    pub(super) fn fill(&self) -> (usize, usize) {
        (self.places.saturating_sub(self.free + self.left), self.places)
    }

    /// Takes places, if so many are free.
    pub(super) fn take(&mut self, count: usize) -> Option<()> {
        self.free = self.free.checked_sub(count)?;
        Some(())
    }

    /// Something has left its places; true if it is time to free some. Three quarters of all places are taken otherwise,
    /// and will be left too: nobody waits in vain.
    fn leave(&mut self, count: usize) -> bool {
        self.left += count;
        self.left >= self.step
    }

    fn free(&mut self) {
        self.free += std::mem::take(&mut self.left);
    }
}

impl Lane<'_> {
    /// What is left of a bundle waits before the others: whoever is free goes on with it.
    pub(super) fn put_back(&self, target: TargetId, rest: Parcel) {
        self.pending.fetch_add(1, AcqRel);
        self.queue.release(|queue| queue.push_begun(target, Job::Bundle(rest)));
    }

    /// A job that came from the scan was taken out of the queues.
    pub(super) fn make_room(&self, entries: usize) {
        if self.room.with(|room| room.leave(entries)) {
            self.room.release_many(self.source.settings.scan_thread_count(), Room::free);
        }
    }
}

impl Parcel {
    /// What is behind so many entries, as a parcel of its own.
    pub(super) fn split_off(&mut self, at: usize) -> Parcel {
        Parcel {
            bundle: self.bundle.split_off(at),
            attempts: self.attempts,
            is_rest: true,
            chunk: self.chunk.clone(),
        }
    }
}

impl Member for Monitor<Queue> {
    fn states(&self) -> Vec<TargetState> {
        self.with(|queue| queue.items.states().to_vec())
    }

    fn wake(&self) {
        self.release_many(usize::MAX, |_| ());
    }
}

impl Opening {
    /// Bytes that are to be sent of it, but for those that the sink holds.
    fn bytes(&self) -> u64 {
        self.part.map_or(self.entry.size(), |part| part.range().len)
    }
}

impl Job {
    /// The entries for which it takes room, if it came from the scan and has not been touched yet.
    pub(super) fn fresh_entries(&self) -> usize {
        match self {
            Job::Bundle(Parcel { bundle, attempts: 0, is_rest: false, .. }) => bundle.entry_count,
            Job::Open(Opening { attempts: 0, .. }) => 1,
            _ => 0,
        }
    }

    /// Bytes of work that it is, opening and reading small files included.
    pub(super) fn work_bytes(&self) -> u64 {
        match self {
            Job::Bundle(parcel) => bundle_work_bytes(&parcel.bundle),
            job => job.bytes(),
        }
    }

    /// About how many bytes it stands for.
    fn bytes(&self) -> u64 {
        match self {
            Job::Bundle(parcel) => parcel.bundle.content_bytes,
            Job::Open(opening) => opening.bytes(),
            Job::Cursor(_, cursor) => cursor.remaining_bytes(),
            Job::Object(piece) => piece.extent.range.len,
            Job::Follow(..) | Job::GiveUp(_) | Job::Refill(..) | Job::Damaged(..) | Job::Stand(_) => 0,
        }
    }
}

impl Queue {
    /// Without targets. `flow` counts what is on its way to a sink that has several; so many large files may be open.
    pub(super) fn new(
        scheduling: Scheduling,
        limits: Limits,
        io_threads: usize,
        flow: Flow,
        open_files_max: usize,
        pass: Option<Pass>,
    ) -> Queue {
        let chosen = policy(&scheduling.policy, io_threads, Feed::Queued);
        let mut items = TargetQueues::new(match &pass {
            Some(pass) => pass.guard(chosen),
            None => chosen,
        });
        items.keep_to(limits.rates);
        Queue {
            errands: VecDeque::new(),
            items,
            flow,
            known: HashMap::new(),
            readers: [io_threads; 2],
            permits: open_files_max,
            scheduling,
            pass,
            was_held: false,
            began: limits.began,
        }
    }

    pub(super) fn knows(&self, target: TargetId) -> bool {
        self.known.contains_key(&target)
    }

    pub(super) fn add_target(&mut self, target: &StorageTarget) {
        let depth = depth_of_queue(target, self.scheduling.in_flight_max);
        self.known.insert(target.id, depth);
        if let Some(pass) = &self.pass {
            pass.learn(target);
        }
        self.items.set_depth(target.id, self.depth_now(depth));
    }

    /// So many threads are at work from now on: of each target the same part more or less may be in service.
    pub(super) fn set_readers(&mut self, count: usize) {
        self.readers[0] = count;
        if let Some(pass) = &self.pass {
            pass.set_threads(count);
        }
        let depths: Vec<(TargetId, u32)> = self.known.iter().map(|(id, depth)| (*id, *depth)).collect();
        for (target, depth) in depths {
            self.items.set_depth(target, self.depth_now(depth));
        }
    }

    /// More than a target likes where more threads have shown that it takes more; never more than the user allows.
    fn depth_now(&self, depth: u32) -> u32 {
        let [now, start] = self.readers;
        if now <= start || self.scheduling.in_flight_max > 0 {
            return depth;
        }
        let more = u64::from(depth) * now as u64 / start.max(1) as u64;
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// Puts work behind what waits. What comes from the scan has waited for room before; what comes from other work
    /// is bounded by what was taken and what is on its way.
    pub(super) fn push(&mut self, target: TargetId, job: Job) {
        self.items.push(target, job.bytes(), job);
    }

    /// Puts a file's cursor before what waits: a file that was begun is ended before others begin.
    pub(super) fn push_begun(&mut self, target: TargetId, job: Job) {
        self.items.push_front(target, job.bytes(), job);
    }

    /// Puts work that needs no storage, or hardly any, before everything else.
    pub(super) fn push_errand(&mut self, job: Job) {
        self.errands.push_back(job);
    }

    /// Objects are taken one by one where there is something to choose, or to hold back. Else a cursor goes to one thread
    /// for a while: neighbours in a file then follow each other on one stream, and no two threads of the sink write to
    /// one file. Only when nothing else waits do several threads share a file.
    fn takes_one_by_one(&self) -> bool {
        self.chooses() || self.items.is_empty()
    }

    /// Whether there is something to choose, or to hold back.
    pub(super) fn chooses(&self) -> bool {
        self.known.len() > 1
            || self.flow.is_on()
            || self.scheduling.holds_back()
            || self.items.follows()
            || self.pass.is_some()
    }

    /// The next thing to do.
    pub(super) fn take(&mut self) -> Attempt<Taken> {
        if let Some(job) = self.errands.pop_front() {
            return Attempt::Done((None, job));
        }
        let now = self.began.elapsed();
        while let Some((target, job)) = self.items.take(now) {
            if let Some(job) = self.begin(target, job, now) {
                return Attempt::Done((Some(target), job));
            }
            self.items.finished(target, None, now);
        }
        self.was_held |= self.items.is_held_by_rate(now);
        self.items.wake_at(now).map_or(Attempt::NotYet, |at| Attempt::Until(self.began + at))
    }

    /// Whether a limit or a grant has held something back since the last time: then what was moved says nothing of the threads.
    pub(super) fn take_hold(&mut self) -> bool {
        let is_short = self.pass.as_ref().is_some_and(Pass::take_shortage);
        std::mem::take(&mut self.was_held) || is_short
    }

    /// Whether something waits for a rate that the user set, and for nothing else.
    pub(super) fn is_held_by_rate(&self) -> bool {
        self.items.is_held_by_rate(self.began.elapsed())
    }

    /// What of the job can be done now; nothing if it has to wait for something.
    fn begin(&mut self, target: TargetId, job: Job, now: Duration) -> Option<Job> {
        match job {
            Job::Open(_) if self.permits == 0 => {
                self.push_begun(target, job);
                self.items.block(target);
                None
            }
            Job::Open(_) => {
                self.permits -= 1;
                Some(job)
            }
            Job::Bundle(..) => self.depart(target, Some(Place::Bundles(target)), job, now),
            Job::Object(piece) => {
                let place = self.flow.is_on().then(|| self.place_of(&piece.file, piece.extent.range.offset));
                self.depart(target, place, Job::Object(Piece { place, ..piece }), now)
            }
            Job::Cursor(file, cursor) if self.takes_one_by_one() => self.cut(target, file, cursor, now),
            job => Some(job),
        }
    }

    /// One object; the cursor stays here, before the files that wait.
    fn cut(
        &mut self,
        target: TargetId,
        file: Arc<LargeFile>,
        mut cursor: FileCursor,
        now: Duration,
    ) -> Option<Job> {
        let place = self.flow.is_on().then(|| self.place_of(&file, cursor.peek_offset()));
        if let Some(place) = place.filter(|place| !self.flow.has_room(*place)) {
            self.flow.park(place, target, Job::Cursor(file, cursor));
            return None;
        }
        // Whoever takes an exhausted cursor ends it.
        let Some(extent) = file.cut(&mut cursor) else { return Some(Job::Cursor(file, cursor)) };
        let rest = cursor.peek_target().unwrap_or(target);
        self.push_begun(rest, Job::Cursor(Arc::clone(&file), cursor));
        let job = Job::Object(Piece { file, extent, attempts: 0, place });
        self.depart(target, place, job, now)
    }

    /// Lets the job's object go there, or keeps it until there is room.
    fn depart(&mut self, target: TargetId, place: Option<Place>, job: Job, now: Duration) -> Option<Job> {
        if let Some(place) = place {
            if !self.flow.has_room(place) {
                self.flow.park(place, target, job);
                return None;
            }
            self.flow.depart(place);
        }
        let is_charged = matches!(job, Job::Bundle(Parcel { is_rest: true, .. }));
        self.items.charge(target, if is_charged { 0 } else { job.bytes() }, now);
        Some(job)
    }

    fn place_of(&self, file: &LargeFile, offset: u64) -> Place {
        match file.place_at_sink(offset) {
            Some(target) => Place::Target(target),
            None => Place::File(file.id),
        }
    }

    /// Whether something waits only because the sink has no room for it.
    pub(super) fn is_parking(&self) -> bool {
        self.flow.is_parking()
    }

    /// Whether what has no room at the sink is read all the same.
    pub(super) fn lift_flow(&mut self, is_lifted: bool) {
        for (target, job) in self.flow.lift(is_lifted) {
            self.push_begun(target, job);
        }
    }

    /// Whether one more object may go there.
    pub(super) fn has_room_at_sink(&self, place: Place) -> bool {
        self.flow.has_room_at_sink(place)
    }

    /// One that was set aside goes there.
    pub(super) fn departs(&mut self, place: Place) {
        self.flow.depart(place);
    }

    /// Objects of a run that a thread cuts by itself.
    pub(super) fn charge(&mut self, target: TargetId, bytes: u64) {
        self.items.charge(target, bytes, self.began.elapsed());
    }

    /// An object has come to its end: answered, or lost.
    pub(super) fn arrived(&mut self, place: Place) {
        for (target, job) in self.flow.arrive(place) {
            self.push_begun(target, job);
        }
    }

    /// The sink has said where the file lies.
    pub(super) fn placed(&mut self, file: FileId) {
        for (target, job) in self.flow.placed(file) {
            self.push_begun(target, job);
        }
    }

    /// A large file may be opened in place of one that is not open any more.
    pub(super) fn return_permit(&mut self) {
        self.permits += 1;
        self.items.unblock();
    }

    /// The storage is done with what was taken from `target`, after so long if it is known.
    pub(super) fn finished(&mut self, target: TargetId, service: Option<Service>) {
        self.items.finished(target, service, self.began.elapsed());
    }

    /// The queues, for reports.
    pub(super) fn targets(&self) -> (&TargetQueues<Job>, Duration) {
        (&self.items, self.began.elapsed())
    }
}
