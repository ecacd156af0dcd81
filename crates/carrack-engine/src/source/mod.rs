//! The source: scan → queues → read → check → send.
//!
//! | room | what happens there | threads |
//! | --- | --- | --- |
//! | [`feeder`] | what the scan finds becomes bundles and large files in the target queues | scan |
//! | [`targets`] | the file systems and targets that the scan has come across | scan, I/O |
//! | [`queue`] | the target queues and what waits in them | all |
//! | [`flow`] | how many objects are on their way to each of the sink's targets | all |
//! | [`reader`] | takes work, leases a slot, reads, makes the check, posts the object | I/O |
//! | [`bundle_filling`] | reads many small files into one slot (M7) | I/O |
//! | [`large_file`] | one file that travels as objects of its own, from its opening to its end | I/O, comm |
//! | [`endings`] | what comes next for a file whose objects were answered | I/O, comm |
//! | [`outbox`] | objects that are ready, endpoints that are free, credits | I/O, comm |
//! | [`comm`] | the sink's answers; endpoints that nobody drives | comm |

mod bundle_filling;
mod comm;
mod endings;
mod feeder;
mod flow;
mod large_file;
mod outbox;
mod queue;
mod reader;
mod targets;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use carrack_machine::{Monitor, SlotPool};
use carrack_model::{EntryFailure, Event, FailureKind, FileId, ObjectId, TransferSpec};
use carrack_storage::{FileSystems, Identity, RootKind, ScanRoot};
use carrack_transport::{Link, SendEndpoint};

use crate::abort::Abort;
use crate::comm::Comm;
use crate::counters::{BothEnds, Counters};
use crate::error::SessionError;
use crate::fault::{Fault, Stop};
use crate::mailbox::Mailbox;
use crate::report::{Observer, deliver};
use crate::settings::Settings;
use flow::Flow;
use large_file::LargeFile;
use outbox::Outbox;
use queue::{Queue, Room, Sent};
use targets::RootStorage;

/// What a source needs to begin: the session stands, the roots are open.
pub(crate) struct SourceStart<'a> {
    pub(crate) link: Link,
    /// Data endpoints; none means that the objects travel on the link.
    pub(crate) endpoints: Vec<Box<dyn SendEndpoint>>,
    pub(crate) spec: TransferSpec,
    pub(crate) settings: &'a Settings,
    pub(crate) pool: SlotPool,
    pub(crate) roots: Vec<ScanRoot>,
    /// What went wrong with single sources before the start.
    pub(crate) failures: Vec<EntryFailure>,
    /// A directory that the scan must not enter, as the sink is writing there.
    pub(crate) destination: Option<Identity>,
    pub(crate) credits: u32,
    /// The sink writes to several targets and says where files lie.
    pub(crate) sink_has_targets: bool,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// Objects that are read ahead from memory: reading faster than the sink takes wins nothing there and costs the
/// caches (a pool of 256 MiB filled from tmpfs made the transfer a fifth slower). From disks as many as there are slots.
const READY_MAX_MEMORY: usize = 4;

/// Everything that the threads of a source share.
struct Source<'a> {
    spec: TransferSpec,
    settings: &'a Settings,
    roots: Vec<ScanRoot>,
    file_systems: FileSystems,
    /// I/O threads.
    io_threads: usize,
    /// Whether it matters where at the sink an object goes.
    counts_flow: bool,
    pool: SlotPool,
    queue: Monitor<Queue>,
    /// Room in the queues for what the scan finds; waited for apart from the queues, so that readers never stand
    /// behind the scan.
    room: Monitor<Room>,
    outbox: Outbox,
    /// Control messages for the comm thread to queue.
    mail: Mailbox<Vec<u8>>,
    /// Objects on their way, by id: what to do when the sink answers.
    sent: Mutex<HashMap<ObjectId, Sent>>,
    /// Large files between their announcement and their end.
    files: Mutex<HashMap<FileId, Arc<LargeFile>>>,
    /// Bundles and large files that were found and are not at their end.
    pending: AtomicUsize,
    next_object: AtomicU64,
    next_file: Mutex<FileId>,
    counters: Counters,
    observer: Option<&'a dyn Observer>,
    fault: Fault,
    is_stopped: AtomicBool,
}

/// Moves everything beneath the roots to the sink; returns both ends' counters.
pub(crate) fn run(start: SourceStart<'_>, abort: &Abort) -> (BothEnds, Result<(), SessionError>) {
    let mut both = BothEnds::default();
    let result = prepare(start).and_then(|(source, link, failures, destination)| {
        failures.into_iter().for_each(|failure| source.fail(failure));
        source.run_threads(link, destination, abort, &mut both)
    });
    (both, result)
}

type Prepared<'a> = (Source<'a>, Link, Vec<EntryFailure>, Option<Identity>);

fn prepare(start: SourceStart<'_>) -> Result<Prepared<'_>, SessionError> {
    let looking = || SessionError::local("looking at the source's storage");
    let file_systems = start.settings.file_systems()?;
    let storage = RootStorage::look(&file_systems, &start.roots).map_err(looking())?;
    let ready_max = if storage.is_memory { READY_MAX_MEMORY } else { start.pool.slot_count() };
    // At least one for each stream: whoever sends stays with its stream until the object is out.
    let io_threads = start.settings.io_thread_count(storage.depth).max(start.endpoints.len());
    let flow = Flow::new(start.sink_has_targets, start.credits);
    let queue = Queue::new(start.settings.scheduling, io_threads, flow);
    let source = Source {
        queue: Monitor::new(queue),
        file_systems,
        io_threads,
        counts_flow: start.sink_has_targets,
        room: Monitor::new(Room::default()),
        outbox: Outbox::new(start.endpoints, start.credits, ready_max),
        mail: Mailbox::new().map_err(SessionError::local("making an eventfd"))?,
        sent: Mutex::default(),
        files: Mutex::default(),
        pending: AtomicUsize::new(0),
        next_object: AtomicU64::new(1),
        next_file: Mutex::new(FileId(1)),
        counters: Counters::default(),
        fault: Fault::default(),
        is_stopped: AtomicBool::new(false),
        spec: start.spec,
        settings: start.settings,
        roots: start.roots,
        observer: start.observer,
        pool: start.pool,
    };
    Ok((source, start.link, start.failures, start.destination))
}

impl Source<'_> {
    fn run_threads(
        &self,
        link: Link,
        destination: Option<Identity>,
        abort: &Abort,
        both: &mut BothEnds,
    ) -> Result<(), SessionError> {
        let io_threads = if self.spec.dry_run { 0 } else { self.io_threads };
        thread::scope(|scope| {
            let _watch = self.fault.watch(self);
            self.fault.spawn(scope, self, "carrack-feed", move || feeder::run(self, destination));
            for _ in 0..io_threads {
                self.fault.spawn(scope, self, "carrack-read", || reader::run(self));
            }
            let mut comm = Comm { link, pool: &self.pool, abort, fault: &self.fault };
            let mut side = comm::SourceComm::new(self);
            let result = comm.run(&mut side);
            *both = side.both();
            self.stop();
            result
        })
    }

    fn sent(&self) -> MutexGuard<'_, HashMap<ObjectId, Sent>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileId, Arc<LargeFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_object(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Ordering::Relaxed))
    }

    /// Objects and bundles posted so far.
    fn objects_sent(&self) -> u64 {
        self.next_object.load(Ordering::Relaxed) - 1
    }

    /// Whether the link named on the command line is followed for entries of this root.
    fn follows(&self, root_index: u32) -> bool {
        matches!(self.roots[root_index as usize].what, RootKind::Name { follow: true, .. })
    }

    /// The session is over: whoever waits for the peer need not any more.
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn raise(&self, error: SessionError) {
        self.fault.raise(error, self);
    }

    /// One bundle or large file has come to its end, whatever that was.
    fn one_less_pending(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mail.wake();
        }
    }

    fn fail(&self, failure: EntryFailure) {
        self.counters.entries_failed.fetch_add(1, Ordering::Relaxed);
        self.report(Event::Failed(failure));
    }

    fn fail_path(&self, path: Box<[u8]>, kind: FailureKind, detail: impl ToString) {
        self.fail(EntryFailure { path, kind, detail: detail.to_string() });
    }

    /// To the user, at whichever end that is. Not for the comm thread.
    fn report(&self, event: Event) {
        deliver(event, self.observer, |message| self.say(message));
    }

    /// Not for the comm thread. A session that is ending needs no more messages.
    fn say(&self, message: carrack_wire::message::Control) {
        let _ = self.mail.post(message.to_body());
    }
}

impl Stop for Source<'_> {
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.queue.close();
        self.room.close();
        self.outbox.close();
        self.pool.close();
        self.mail.close();
    }
}
