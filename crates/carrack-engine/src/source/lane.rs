//! One lane of the source (N2): its queues, its slots, its connections and its threads. Lanes share what they look at, and
//! nothing that they change on an object's way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use carrack_machine::{Duty, LaneCrew, Monitor, SlotPool};
use carrack_model::limits::QUEUE_ENTRIES_MAX;
use carrack_model::{EntryFailure, Event, FailureKind, FileId, ObjectId};
use carrack_transport::{Gauge, PathState, SendEndpoint};
use carrack_wire::message::Control;

use super::Source;
use super::detail::Slowest;
use super::flow::{Flow, Place};
use super::large_file::LargeFile;
use super::outbox::Outbox;
use super::queue::{Posted, Queue, Room};
use super::reader;
use crate::counters::Counters;
use crate::error::SessionError;
use crate::fault::{Fault, Stop};
use crate::gate::Gate;
use crate::mailbox::Mailbox;
use crate::report::deliver;
use crate::spill::Spill;

/// Objects that are read ahead from memory: reading faster than the sink takes wins nothing there and costs the
/// caches (a pool of 256 MiB filled from tmpfs made the transfer a fifth slower). From disks as many as there are slots.
const READY_MAX_MEMORY: usize = 4;

/// Everything that the threads of one lane share.
pub(super) struct Lane<'a> {
    /// What all lanes of the source look at.
    pub(super) source: &'a Source<'a>,
    /// I/O threads that it begins with.
    pub(super) io_threads: usize,
    /// Those that are at work, of [`thread_count`](Self::thread_count).
    pub(super) readers: Gate,
    /// I/O threads that could be.
    pub(super) thread_count: usize,
    pub(super) pool: SlotPool,
    pub(super) crew: LaneCrew,
    pub(super) queue: Arc<Monitor<Queue>>,
    /// Room in the queues for what the scan finds; waited for apart from the queues, so that readers never stand
    /// behind the scan.
    pub(super) room: Monitor<Room>,
    pub(super) outbox: Outbox,
    /// Where objects go that can't leave.
    pub(super) spills: Vec<Spill<Option<Place>>>,
    /// What the kernel knows of the connections.
    gauges: Vec<Gauge>,
    /// Control messages for the comm thread to queue.
    pub(super) mail: Mailbox<Vec<u8>>,
    /// Objects on their way, by id: what to do when the sink answers.
    sent: Mutex<HashMap<ObjectId, Posted>>,
    /// How many of them the sink has on flash.
    pub(super) set_aside: AtomicUsize,
    /// Large files between their announcement and their end.
    files: Mutex<HashMap<FileId, Arc<LargeFile>>>,
    /// Those that are complete and took longest.
    slowest: Mutex<Slowest>,
    /// Bundles and large files that were found and are not at their end.
    pub(super) pending: AtomicUsize,
    /// Bytes of work that the lane was given, that have left, and that the sink has answered.
    given: AtomicU64,
    departed: AtomicU64,
    answered: AtomicU64,
    /// Objects that the sink has answered.
    pub(super) objects_answered: AtomicU64,
    next_object: AtomicU64,
    /// Objects that have a number and will not be sent.
    withdrawn: AtomicU64,
    pub(super) next_file: Mutex<FileId>,
    next_by_itself: AtomicU64,
    pub(super) counters: Counters,
    pub(super) fault: Fault,
    is_stopped: AtomicBool,
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        source: &'a Source<'a>,
        endpoints: Vec<Box<dyn SendEndpoint>>,
        pool: SlotPool,
        crew: LaneCrew,
        spills: Vec<Spill<Option<Place>>>,
    ) -> Result<Lane<'a>, SessionError> {
        let spilt_max: usize = spills.iter().map(Spill::slot_count).sum();
        let ready_max = if source.is_memory { READY_MAX_MEMORY } else { pool.slot_count() + spilt_max };
        let streams =
            source.streams_at_start(endpoints.len() * source.lane_count).div_ceil(source.lane_count);
        // At least one for each stream: whoever sends stays with its stream until the object is out.
        let io_threads = source.io_threads.div_ceil(source.lane_count).max(streams);
        let most = source.settings.io_threads_most(source.io_threads).div_ceil(source.lane_count);
        let thread_count =
            if source.is_memory { io_threads } else { most }.max(io_threads).max(endpoints.len());
        let scheduling = source.settings.scheduling.of_lane(source.lane_count);
        let gauges = endpoints.iter().filter_map(|endpoint| endpoint.gauge()).collect();
        let flow = Flow::new(source.counts_flow, source.credits);
        let limits = source.limits.clone();
        let pass = source.share.as_ref().map(|share| share.pass(io_threads, limits.began));
        let open_files = (source.open_files / source.lane_count).max(1);
        let queue = Queue::new(scheduling, limits, io_threads, flow, open_files, pass.clone());
        let queue = Arc::new(Monitor::new(queue));
        if let Some(pass) = pass {
            pass.join(&queue);
        }
        Ok(Lane {
            source,
            io_threads,
            readers: Gate::new(io_threads),
            thread_count,
            pool,
            crew,
            queue,
            room: Monitor::new(Room::new(QUEUE_ENTRIES_MAX / source.lane_count)),
            outbox: Outbox::new(endpoints, streams, source.credits, ready_max),
            spills,
            gauges,
            mail: Mailbox::new().map_err(SessionError::local("making an eventfd"))?,
            sent: Mutex::default(),
            set_aside: AtomicUsize::new(0),
            files: Mutex::default(),
            slowest: Mutex::default(),
            pending: AtomicUsize::new(0),
            given: AtomicU64::new(0),
            departed: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            objects_answered: AtomicU64::new(0),
            next_object: AtomicU64::new(1),
            withdrawn: AtomicU64::new(0),
            next_file: Mutex::new(FileId(1)),
            next_by_itself: AtomicU64::new(FileId::FIRST_BY_ITSELF.0),
            counters: Counters::default(),
            fault: Fault::default(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Starts its I/O threads.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        // Where nothing is sent, questions of a sync are answered all the same.
        let thread_count = match (self.source.spec.dry_run, &self.source.spec.sync) {
            (true, None) => 0,
            _ => self.thread_count,
        };
        for i in 0..thread_count {
            self.fault.spawn(scope, self, "carrack-read", move || {
                let _seat = self.crew.sit(Duty::Io(i));
                reader::run(self, i);
            });
        }
        for spill in &self.spills {
            self.fault.spawn(scope, self, "carrack-spill", move || {
                let _seat = self.crew.sit(Duty::Io(0));
                spill.write_out(self);
            });
            self.fault.spawn(scope, self, "carrack-refill", move || {
                let _seat = self.crew.sit(Duty::Io(0));
                spill.bring_back(self);
            });
        }
        if self.outbox.seals {
            self.fault.spawn(scope, self, "carrack-send", move || {
                let _seat = self.crew.sit(Duty::Io(0));
                reader::send_the_rest(self);
            });
        }
    }

    pub(super) fn sent(&self) -> MutexGuard<'_, HashMap<ObjectId, Posted>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn files(&self) -> MutexGuard<'_, HashMap<FileId, Arc<LargeFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_object(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Ordering::Relaxed))
    }

    /// For a file that announces itself.
    pub(super) fn next_by_itself(&self) -> FileId {
        FileId(self.next_by_itself.fetch_add(1, Ordering::Relaxed))
    }

    /// Objects and bundles posted so far, but for those that were withdrawn.
    pub(super) fn objects_sent(&self) -> u64 {
        self.next_object.load(Ordering::Relaxed) - 1 - self.withdrawn.load(Ordering::Relaxed)
    }

    /// An object that has not left never will: what it was is read again.
    pub(super) fn withdraw(&self, object: ObjectId) {
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
        self.reread(object);
    }

    /// The slowest of its large files.
    pub(super) fn slowest(&self) -> MutexGuard<'_, Slowest> {
        self.slowest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session is over: whoever waits for the peer need not any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub(super) fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }

    /// The scan gives it one more bundle or large file, of so many bytes of work.
    pub(super) fn one_more_pending(&self, work_bytes: u64) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.given.fetch_add(work_bytes, Ordering::Relaxed);
    }

    /// One bundle or large file has come to its end, whatever that was.
    pub(super) fn one_less_pending(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mail.wake();
            self.progressed();
        }
    }

    /// Bytes of work that an object is; nothing where nobody waits until they have left.
    pub(super) fn departing_bytes(&self, object: ObjectId) -> u64 {
        match self.source.chunks {
            Some(_) => self.sent().get(&object).map_or(0, |posted| posted.sent.work_bytes()),
            None => 0,
        }
    }

    /// So many of its threads are at work from now on.
    pub(super) fn set_readers(&self, count: usize) {
        if self.readers.open_to() != count {
            self.readers.set(count);
            self.queue.release_many(count, |queue| queue.set_readers(count));
        }
    }

    /// Bytes of work that the sink has answered.
    pub(super) fn answered_bytes(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How the connections' paths do.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathState> {
        self.gauges.iter().filter_map(Gauge::path)
    }

    /// Bytes that the kernel has taken and not sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.gauges.iter().map(Gauge::unsent_bytes).sum()
    }

    /// So many bytes of work are with the kernel.
    pub(super) fn departed(&self, work_bytes: u64) {
        if work_bytes > 0 {
            self.departed.fetch_add(work_bytes, Ordering::Relaxed);
            self.progressed();
        }
    }

    /// So many bytes of work that have left have to leave again.
    pub(super) fn returned(&self, work_bytes: u64) {
        if self.source.chunks.is_some() {
            // It may be said before they are counted as departed: the sum is right a moment later.
            self.departed.fetch_sub(work_bytes, Ordering::Relaxed);
        }
    }

    /// The sink has answered so many bytes of work.
    pub(super) fn work_answered(&self, work_bytes: u64) {
        self.answered.fetch_add(work_bytes, Ordering::Relaxed);
        self.progressed();
    }

    /// Whoever waits until less is left to do looks again.
    fn progressed(&self) {
        if let Some(chunks) = &self.source.chunks {
            chunks.progressed();
        }
    }

    /// Bytes of work that wait or are on their way. What failed stays in the sum until nothing is pending.
    pub(super) fn backlog_bytes(&self) -> u64 {
        if self.pending.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.given.load(Ordering::Relaxed).saturating_sub(self.answered.load(Ordering::Relaxed))
    }

    /// Bytes of work that the kernel has not taken.
    pub(super) fn left_bytes(&self) -> u64 {
        let departed = self.departed.load(Ordering::Relaxed);
        self.backlog_bytes().min(self.given.load(Ordering::Relaxed).saturating_sub(departed))
    }

    /// Whether each of its threads has an object in its hands and another waiting: more work is better given to another
    /// lane (N7).
    pub(super) fn is_saturated(&self) -> bool {
        self.backlog_bytes() >= 2 * self.io_threads as u64 * u64::from(self.source.spec.slot_bytes)
    }

    pub(super) fn fail(&self, failure: EntryFailure) {
        self.counters.entries_failed.fetch_add(1, Ordering::Relaxed);
        self.report(Event::Failed(failure));
    }

    pub(super) fn fail_path(&self, path: Box<[u8]>, kind: FailureKind, detail: impl ToString) {
        self.fail(EntryFailure { path, kind, detail: detail.to_string() });
    }

    /// To the user, at whichever end that is. Not for the comm thread.
    pub(super) fn report(&self, event: Event) {
        deliver(event, self.source.observer, |message| self.say(message));
    }

    /// Not for the comm thread. A session that is ending needs no more messages.
    pub(super) fn say(&self, message: Control) {
        let _ = self.mail.post(message.to_body());
    }
}

impl Stop for Lane<'_> {
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(offers) = &self.source.offers {
            offers.close();
        }
        if let Some(chunks) = &self.source.chunks {
            chunks.close();
        }
        if let Some(clearing) = &self.source.clearing {
            clearing.close();
        }
        self.readers.close();
        self.queue.close();
        self.room.close();
        self.outbox.close();
        self.spills.iter().for_each(Spill::close);
        self.pool.close();
        self.mail.close();
    }
}
