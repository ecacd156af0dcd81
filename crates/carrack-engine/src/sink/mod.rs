//! The sink: receive → check → write → done.
//!
//! | room | what happens there | threads |
//! | --- | --- | --- |
//! | [`comm`] | the source's messages; endpoints that are quiet; answers, several in one message | comm |
//! | [`storage`] | whether there are several targets to choose from, and how files are written | all |
//! | [`inbox`] | what waits for an I/O thread: streams with data, objects, ends of files | all |
//! | [`writer`] | drives a stream, checks and writes what comes | I/O |
//! | [`unpack`] | a bundle becomes small files and links | I/O |
//! | [`sink_file`] | one large file, from its announcement to its name | I/O, comm |

mod comm;
mod inbox;
mod sink_file;
mod storage;
mod unpack;
mod writer;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use carrack_machine::{Monitor, SlotPool};
use carrack_model::limits::OPEN_FILES_MAX;
use carrack_model::{EntryFailure, Event, FailureKind, FileId, Notice, TargetId, TransferSpec, escape};
use carrack_storage::{DirectorySpool, Medium, Root, ScratchNames, WriteIo};
use carrack_transport::{Incoming, Link, ReceiveEndpoint};
use carrack_wire::message::Control;
use carrack_wire::{FrameKind, Ledger, TableReader, TableRecord};

use crate::abort::Abort;
use crate::comm::Comm;
use crate::counters::{BothEnds, Counters};
use crate::error::SessionError;
use crate::fault::{Fault, Stop};
use crate::mailbox::Mailbox;
use crate::report::{Observer, deliver};
use crate::session::Confinement;
use crate::settings::Settings;
use inbox::Inbox;
use sink_file::SinkFile;
pub(crate) use storage::{SinkStorage, stripes_to_message};

/// What a sink needs to begin: the session stands, the destination is open.
pub(crate) struct SinkStart<'a> {
    pub(crate) link: Link,
    /// Data endpoints; none means that the objects come over the link.
    pub(crate) endpoints: Vec<Box<dyn ReceiveEndpoint>>,
    pub(crate) spec: TransferSpec,
    pub(crate) settings: &'a Settings,
    /// Everything is written beneath it. Nothing in a dry run.
    pub(crate) root: Option<Arc<Root>>,
    /// What it lies on.
    pub(crate) storage: Arc<SinkStorage>,
    /// Names that the source may use there.
    pub(crate) confinement: Confinement,
    /// Its slots back the credits that the source was given.
    pub(crate) pool: SlotPool,
    /// The one who watches, if the user started this end.
    pub(crate) observer: Option<&'a dyn Observer>,
}

/// What other threads want of the comm thread.
enum Letter {
    /// Queue this control message.
    Say(Vec<u8>),
    /// Wait for data on this endpoint.
    Park(Box<dyn ReceiveEndpoint>),
    /// Everything is in its place: say so and end.
    Finished,
}

/// Large files, and objects that came before their file was announced.
struct Files {
    ledger: Ledger<Arc<SinkFile>>,
    early: HashMap<FileId, Vec<Incoming>>,
}

/// Answers that the comm thread has not sent yet.
#[derive(Default)]
struct Answers {
    written: Vec<u64>,
    corrupt: Vec<u64>,
}

/// Everything that the threads of a sink share.
struct Sink<'a> {
    spec: TransferSpec,
    root: Option<Arc<Root>>,
    confinement: Confinement,
    storage: Arc<SinkStorage>,
    /// Whether one thread at a time writes to a file. A local file system locks it for a buffered write, and a second
    /// writer would spin on that lock: 15 % of all CPU time with one large file and two streams on two cores.
    writes_in_turn: bool,
    /// Whether objects wait in the queues of their targets. Else they are written by whoever receives them.
    is_sorting: bool,
    scratch: ScratchNames,
    pool: SlotPool,
    inbox: Monitor<Inbox>,
    files: Mutex<Files>,
    answers: Mutex<Answers>,
    /// Objects answered in all.
    answered: AtomicU64,
    /// Answers that are sent at once rather than a moment later.
    answers_at_once: usize,
    directories: Mutex<Option<DirectorySpool>>,
    mail: Mailbox<Letter>,
    counters: Counters,
    observer: Option<&'a dyn Observer>,
    fault: Fault,
}

/// Answers that travel together: one message for sixteen objects costs little, and a source with as many credits
/// does not miss them meanwhile.
const ANSWERS_AT_ONCE: usize = 16;

/// Writes everything that the source sends; returns both ends' counters.
pub(crate) fn run(start: SinkStart<'_>, abort: &Abort) -> (BothEnds, Result<(), SessionError>) {
    let mut both = BothEnds::default();
    let stream_count = start.endpoints.len();
    let (settings, link, endpoints) = (start.settings, start.link, start.endpoints);
    let storage = start.storage;
    let is_sorting = storage.has_targets();
    // One thread more than streams: whoever drives a stream may be waiting for it when a file is to be ended. Where
    // objects wait for their targets, whoever drives a stream does nothing else.
    let wanted = settings.io_thread_count(storage.depth());
    let io_threads = if is_sorting { wanted + stream_count } else { wanted.max(stream_count + 1) };
    let prepared = (|| {
        let credits = start.pool.slot_count();
        let mut inbox = Inbox::new(settings.scheduling, wanted, is_sorting);
        inbox.add_target(storage.own().own_target());
        Ok(Sink {
            scratch: ScratchNames::new().map_err(SessionError::local("making a temporary name"))?,
            inbox: Monitor::new(inbox),
            files: Mutex::new(Files { ledger: Ledger::new(OPEN_FILES_MAX), early: HashMap::new() }),
            answers: Mutex::default(),
            answers_at_once: ANSWERS_AT_ONCE.min(credits / 8).max(1),
            directories: Mutex::new(start.root.clone().map(DirectorySpool::new)),
            mail: Mailbox::new().map_err(SessionError::local("making an eventfd"))?,
            counters: Counters::default(),
            fault: Fault::default(),
            spec: start.spec,
            root: start.root,
            confinement: start.confinement,
            answered: AtomicU64::new(0),
            pool: start.pool,
            observer: start.observer,
            writes_in_turn: storage.own().own_target().medium != Medium::Network,
            is_sorting,
            storage,
        })
    })();
    let result =
        prepared.and_then(|sink: Sink<'_>| sink.run_threads(link, endpoints, io_threads, abort, &mut both));
    (both, result)
}

impl Sink<'_> {
    fn run_threads(
        &self,
        link: Link,
        endpoints: Vec<Box<dyn ReceiveEndpoint>>,
        io_threads: usize,
        abort: &Abort,
        both: &mut BothEnds,
    ) -> Result<(), SessionError> {
        thread::scope(|scope| {
            let _watch = self.fault.watch(self);
            for _ in 0..io_threads {
                self.fault.spawn(scope, self, "carrack-write", || writer::run(self));
            }
            let mut comm = Comm { link, pool: &self.pool, abort, fault: &self.fault };
            let mut side = comm::SinkComm::new(self, endpoints);
            let result = comm.run(&mut side);
            *both = side.both();
            self.stop();
            result
        })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directories(&self) -> MutexGuard<'_, Option<DirectorySpool>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object is at its place, or its file is given up; its slot is free again.
    fn written(&self, object: u64) {
        self.answer(|answers| answers.written.push(object));
    }

    /// The object failed its check; its slot is free again.
    fn corrupt(&self, object: u64) {
        self.answer(|answers| answers.corrupt.push(object));
    }

    /// The first answer wakes the comm thread, which waits a moment for more; enough of them wake it again.
    fn answer(&self, note: impl FnOnce(&mut Answers)) {
        self.answered.fetch_add(1, Relaxed);
        let mut answers = self.answers();
        note(&mut answers);
        let count = answers.written.len() + answers.corrupt.len();
        drop(answers);
        if count == 1 || count == self.answers_at_once {
            self.mail.wake();
        }
    }

    /// An entry failed. A full destination ends the session: what follows would fail too.
    fn fail(&self, failure: EntryFailure) -> Result<(), SessionError> {
        self.counters.entries_failed.fetch_add(1, Relaxed);
        if failure.kind == FailureKind::NoSpace {
            return Err(SessionError::NoSpace { path: escape(&failure.path), detail: failure.detail });
        }
        self.report(Event::Failed(failure));
        Ok(())
    }

    /// The target whose queue an object waits in. What can't be told yet goes with the destination's own.
    fn target_of(&self, incoming: &Incoming) -> TargetId {
        let header = incoming.header;
        let known = match header.kind {
            FrameKind::Bundle => self.target_of_bundle(incoming),
            FrameKind::Object | FrameKind::Control => {
                let file = self.files().ledger.get(header.file).cloned();
                file.and_then(|file| file.target_at(header.offset))
            }
        };
        known.unwrap_or(self.storage.own().own_target().id)
    }

    /// Whether an object waited in the queue of the destination's own target because its file had not been created, and that
    /// is known by now.
    fn belongs_elsewhere(&self, target: TargetId, incoming: &Incoming) -> bool {
        self.is_sorting && incoming.header.kind == FrameKind::Object && self.target_of(incoming) != target
    }

    /// Where the directory of a bundle's first files lies.
    fn target_of_bundle(&self, incoming: &Incoming) -> Option<TargetId> {
        let table_len = incoming.header.table_len as usize;
        let (_, table) = incoming.body().split_at_checked(incoming.body().len().checked_sub(table_len)?)?;
        let Some(Ok(TableRecord::Section { path, .. })) = TableReader::new(table).next() else { return None };
        // Not made here: what the source may write is judged when the bundle is unpacked.
        let held = self.root.as_ref()?.open_directory(&path).ok()?;
        let target = self.storage.file_systems().of(held.as_fd()).ok()?.own_target().id;
        self.learn(&[target]);
        Some(target)
    }

    /// Makes targets known to the queues.
    fn learn(&self, targets: &[TargetId]) {
        for &id in targets {
            if self.inbox.with(|inbox| inbox.knows(id)) {
                continue;
            }
            if let Some(target) = self.storage.file_systems().target(id) {
                self.inbox.release(|inbox| inbox.add_target(&target));
            }
        }
    }

    /// A large file was created: tells how it is written and striped, if the user does not know.
    fn tell_news(&self, io: WriteIo, refusal: Option<&str>) {
        let io_news = self.storage.io_news(io).map(Notice::Text);
        let refusal_news = refusal.and_then(|why| self.storage.refusal_news(why)).map(Notice::Warning);
        io_news.into_iter().chain(refusal_news).for_each(|notice| self.report(Event::Notice(notice)));
    }

    /// To the user, at whichever end that is. Not for the comm thread.
    fn report(&self, event: Event) {
        deliver(event, self.observer, |message| self.say(message));
    }

    /// Not for the comm thread. A session that is ending needs no more messages.
    fn say(&self, message: Control) {
        let _ = self.mail.post(Letter::Say(message.to_body()));
    }
}

impl Stop for Sink<'_> {
    fn stop(&self) {
        self.inbox.close();
        self.pool.close();
        self.mail.close();
    }
}
