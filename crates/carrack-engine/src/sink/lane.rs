//! One lane of the sink (N2): its slots, its connections, its threads, and the objects and files that come to it. Lanes share
//! what they look at, and nothing that they change on an object's way.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use carrack_machine::{Duty, LaneCrew, Monitor, Seated, SlotPool};
use carrack_model::limits::OPEN_FILES_MAX;
use carrack_model::{
    EntryFailure, Event, Extras, FailureKind, FileFlags, FileId, Notice, RelPath, TargetId, Timestamp, escape,
};
use carrack_storage::WriteIo;
use carrack_transport::{Incoming, ReceiveEndpoint};
use carrack_wire::message::{Control, Knobs};
use carrack_wire::{FrameKind, Ledger, TableReader, TableRecord};

use super::committer::Committer;
use super::inbox::Inbox;
use super::sink_file::SinkFile;
use super::{Sink, writer};
use crate::counters::Counters;
use crate::error::SessionError;
use crate::fault::{Fault, Stop};
use crate::gate::Gate;
use crate::mailbox::Mailbox;
use crate::report::deliver;
use crate::spill::Spill;

/// What other threads want of the comm thread.
pub(super) enum Letter {
    /// Queue this control message.
    Say(Vec<u8>),
    /// Wait for data on this endpoint.
    Park(Box<dyn ReceiveEndpoint>),
    /// A stream was closed: no object follows on it.
    Closed,
    /// Everything is in its place: say so and end.
    Finished,
}

/// Large files, and objects that came before their file was announced.
pub(super) struct Files {
    pub(super) ledger: Ledger<Arc<SinkFile>>,
    pub(super) early: HashMap<FileId, Vec<Incoming>>,
}

/// Answers that the comm thread has not sent yet.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) written: Vec<u64>,
    pub(super) corrupt: Vec<u64>,
    /// On flash: answered once more when they have come to their end.
    pub(super) set_aside: Vec<u64>,
}

impl Answers {
    pub(super) fn count(&self) -> usize {
        self.written.len() + self.corrupt.len() + self.set_aside.len()
    }
}

/// Answers that travel together: one message for sixteen objects costs little, and a source with as many credits
/// does not miss them meanwhile.
const ANSWERS_AT_ONCE: usize = 16;

/// Everything that the threads of one lane share.
pub(super) struct Lane<'a> {
    /// What all lanes of the sink look at.
    pub(super) sink: &'a Sink<'a>,
    /// Whether it is the first lane, which ends last.
    pub(super) leads: bool,
    /// Those of its I/O threads that are at work.
    pub(super) writers: Gate,
    thread_count: usize,
    /// Streams of this lane.
    stream_count: usize,
    pub(super) pool: SlotPool,
    pub(super) crew: LaneCrew,
    pub(super) inbox: Arc<Monitor<Inbox>>,
    /// Where objects go that the storage does not take.
    pub(super) spills: Vec<Spill<TargetId>>,
    /// Bytes of objects that were put into the queues of their targets, and of those that were stored.
    pub(super) queued_bytes: AtomicU64,
    pub(super) stored_bytes: AtomicU64,
    files: Mutex<Files>,
    answers: Mutex<Answers>,
    /// Objects answered in all.
    pub(super) answered: AtomicU64,
    /// Answers that are sent at once rather than a moment later.
    pub(super) answers_at_once: usize,
    pub(super) mail: Mailbox<Letter>,
    pub(super) counters: Counters,
    pub(super) fault: Fault,
    is_stopped: AtomicBool,
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        sink: &'a Sink<'a>,
        leads: bool,
        stream_count: usize,
        pool: SlotPool,
        crew: LaneCrew,
        spills: Vec<Spill<TargetId>>,
    ) -> Result<Lane<'a>, SessionError> {
        let wanted = sink.io_threads.div_ceil(sink.lane_count);
        let used = sink.stream_count.used(stream_count * sink.lane_count).div_ceil(sink.lane_count);
        let most = sink.io_threads_most.div_ceil(sink.lane_count).max(wanted);
        let thread_count = sink.threads_for(stream_count, most);
        let writers = Gate::new(sink.threads_for(used, wanted));
        let limits = sink.limits.clone();
        let pass = sink.share.as_ref().map(|share| share.pass(wanted, limits.began));
        let mut inbox = Inbox::new(sink.scheduling, limits, wanted, sink.is_sorting, pass.clone());
        inbox.add_target(sink.storage.own().own_target());
        let inbox = Arc::new(Monitor::new(inbox));
        if let Some(pass) = pass {
            pass.join(&inbox);
        }
        Ok(Lane {
            sink,
            leads,
            writers,
            thread_count,
            stream_count,
            inbox,
            spills,
            queued_bytes: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            files: Mutex::new(Files {
                ledger: Ledger::new(OPEN_FILES_MAX / sink.lane_count),
                early: HashMap::new(),
            }),
            answers: Mutex::default(),
            answered: AtomicU64::new(0),
            answers_at_once: ANSWERS_AT_ONCE.min(pool.slot_count() / 8).max(1),
            mail: Mailbox::new().map_err(SessionError::local("making an eventfd"))?,
            counters: Counters::default(),
            fault: Fault::default(),
            is_stopped: AtomicBool::new(false),
            pool,
            crew,
        })
    }

    /// Starts its I/O threads.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for i in 0..self.thread_count {
            self.fault.spawn(scope, self, "carrack-write", move || {
                let _seat = self.crew.sit(Duty::Io(i));
                writer::run(self, i);
            });
        }
        for spill in &self.spills {
            self.fault.spawn(scope, self, "carrack-spill", move || {
                let _seat = self.sit_beside();
                spill.write_out(self);
            });
            self.fault.spawn(scope, self, "carrack-refill", move || {
                let _seat = self.sit_beside();
                spill.bring_back(self);
            });
        }
    }

    /// Whether the session ends: nothing that has not been begun is to be done.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// A seat for a thread that hardly computes: with the I/O threads.
    pub(super) fn sit_beside(&self) -> Seated {
        self.crew.sit(Duty::Io(self.thread_count))
    }

    /// The source will use so many streams of all lanes, and so many threads shall write.
    pub(super) fn turn(&self, knobs: Knobs) {
        let part = |count: u32| (count as usize).div_ceil(self.sink.lane_count);
        let streams = part(knobs.streams).min(self.stream_count);
        let threads = self.sink.threads_for(streams, part(knobs.writers));
        self.writers.set(threads.min(self.thread_count));
        self.inbox.release_many(threads, |inbox| inbox.set_writers(part(knobs.writers)));
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object is at its place, or its file is given up; its slot is free again.
    pub(super) fn written(&self, object: u64) {
        self.answered.fetch_add(1, Relaxed);
        self.answer(|answers| answers.written.push(object));
    }

    /// The object failed its check; its slot is free again.
    pub(super) fn corrupt(&self, object: u64) {
        self.answered.fetch_add(1, Relaxed);
        self.answer(|answers| answers.corrupt.push(object));
    }

    /// The first answer wakes the comm thread, which waits a moment for more; enough of them wake it again.
    pub(super) fn answer(&self, note: impl FnOnce(&mut Answers)) {
        let mut answers = self.answers();
        note(&mut answers);
        let count = answers.count();
        drop(answers);
        if count == 1 || count == self.answers_at_once {
            self.mail.wake();
        }
    }

    /// An entry failed. A full destination ends the session: what follows would fail too.
    pub(super) fn fail(&self, failure: EntryFailure) -> Result<(), SessionError> {
        self.counters.entries_failed.fetch_add(1, Relaxed);
        self.sink.failure_count.fetch_add(1, Relaxed);
        if failure.kind == FailureKind::NoSpace {
            return Err(SessionError::NoSpace { path: escape(&failure.path), detail: failure.detail });
        }
        self.report(Event::Failed(failure));
        Ok(())
    }

    /// A file is in its place: flags after which nothing can be done with it come at the end. Of several sessions the last one is told of
    /// them, as the others don't know whether the file is done with.
    pub(super) fn note_flags(
        &self,
        directory: &RelPath,
        name: &[u8],
        mtime: Timestamp,
        extras: Option<&Extras>,
    ) -> Result<(), SessionError> {
        let extras = extras.filter(|extras| extras.same_as.is_none() && self.sink.siblings.is_none());
        let flags = extras.and_then(|extras| self.sink.keeper.flags_of(extras));
        self.note_to_fasten(directory, name, mtime, flags)
    }

    /// Has a file get flags at the end, if it is the one that was told then.
    pub(super) fn note_to_fasten(
        &self,
        directory: &RelPath,
        name: &[u8],
        mtime: Timestamp,
        flags: Option<FileFlags>,
    ) -> Result<(), SessionError> {
        let Some(flags) = flags.filter(|flags| flags.fastening().set() != 0) else { return Ok(()) };
        let Ok(path) = directory.join(name) else { return Ok(()) };
        let mut directories = self.sink.directories();
        let noted = directories.as_mut().map_or(Ok(()), |spool| spool.note_file(&path, mtime, flags));
        drop(directories);
        noted.or_else(|error| {
            let path = self.path(directory, name);
            self.fail(EntryFailure { path, kind: error.kind(), detail: error.to_string() })
        })
    }

    /// The target whose queue an object waits in. What can't be told yet goes with the destination's own.
    pub(super) fn target_of(&self, incoming: &Incoming) -> TargetId {
        let header = incoming.header;
        let known = match header.kind {
            FrameKind::Bundle => self.target_of_bundle(incoming),
            FrameKind::Object | FrameKind::Control => {
                let file = self.files().ledger.get(header.file).cloned();
                file.and_then(|file| file.target_at(header.offset))
            }
        };
        known.unwrap_or(self.sink.storage.own().own_target().id)
    }

    /// Puts an object into the queue of its target.
    pub(super) fn queue(&self, target: TargetId, incoming: Incoming) {
        self.queued_bytes.fetch_add(incoming.header.body_len.into(), Relaxed);
        self.inbox.release(|inbox| inbox.push_object(target, incoming));
        self.spills.iter().for_each(Spill::something_waits);
    }

    /// An object that came from a queue has been stored, or will not be.
    pub(super) fn dequeued(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Relaxed);
        self.spills.iter().for_each(|spill| spill.went_on(1));
    }

    /// Whether an object waited in the queue of the destination's own target because its file had not been created, and that
    /// is known by now.
    pub(super) fn belongs_elsewhere(&self, target: TargetId, incoming: &Incoming) -> bool {
        self.sink.is_sorting
            && incoming.header.kind == FrameKind::Object
            && self.target_of(incoming) != target
    }

    /// Where the directory of a bundle's first files lies.
    pub(super) fn target_of_bundle(&self, incoming: &Incoming) -> Option<TargetId> {
        let table_len = incoming.header.table_len as usize;
        let (_, table) = incoming.body().split_at_checked(incoming.body().len().checked_sub(table_len)?)?;
        let Some(Ok(TableRecord::Section { path, .. })) = TableReader::new(table).next() else { return None };
        // Not made here: what the source may write is judged when the bundle is unpacked.
        let held = self.sink.root.as_ref()?.open_directory(&path).ok()?;
        let target = self.sink.storage.file_systems().of(held.as_fd()).ok()?.own_target().id;
        self.learn(&[target]);
        Some(target)
    }

    /// Makes targets known to the queues.
    pub(super) fn learn(&self, targets: &[TargetId]) {
        for &id in targets {
            if self.inbox.with(|inbox| inbox.knows(id)) {
                continue;
            }
            if let Some(target) = self.sink.storage.file_systems().target(id) {
                self.inbox.release(|inbox| inbox.add_target(&target));
            }
        }
    }

    /// A large file was created: tells how it is written and striped, if the user does not know.
    pub(super) fn tell_news(&self, io: WriteIo, refusal: Option<&str>) {
        let io_news = self.sink.storage.io_news(io).map(Notice::Text);
        let refusal_news = refusal.and_then(|why| self.sink.storage.refusal_news(why)).map(Notice::Warning);
        io_news.into_iter().chain(refusal_news).for_each(|notice| self.report(Event::Notice(notice)));
    }

    /// To the user, at whichever end that is. Not for the comm thread.
    pub(super) fn report(&self, event: Event) {
        deliver(event, self.sink.observer, |message| self.say(message));
    }

    /// Not for the comm thread. A session that is ending needs no more messages.
    pub(super) fn say(&self, message: Control) {
        let _ = self.mail.post(Letter::Say(message.to_body()));
    }
}

impl Stop for Lane<'_> {
    fn abandon(&self) {
        self.sink.committer.iter().for_each(Committer::abandon);
    }

    fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        // What is all lanes' is there until the last of them ends.
        if self.leads {
            self.sink.committer.iter().for_each(Committer::close);
            self.sink.stands.close();
        }
        self.writers.close();
        self.inbox.close();
        self.spills.iter().for_each(Spill::close);
        self.pool.close();
        self.mail.close();
    }
}
