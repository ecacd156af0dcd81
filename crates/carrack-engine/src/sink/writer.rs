//! An I/O thread of the sink: drives a stream, checks what comes while its cache holds it, and writes it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use carrack_journal::Subtree;
use carrack_model::{ByteRange, EntryFailure, Event, FailureKind, FileId, Notice, RangeSet, RelPath};
use carrack_plan::Service;
use carrack_storage::{GrowingFile, LinkWays, Restoring, Root, SinkError, WriteIo};
use carrack_transport::{Incoming, Patience, ReceiveEndpoint, Received};
use carrack_wire::message::{Control, FileLacks, FileRef, Mark};
use carrack_wire::{Arrival, FrameKind, ranges_from_message, ranges_to_message};

use super::committer::Committer;
use super::group::End;
use super::inbox::{Inbox, Task};
use super::lane::{Lane, Letter};
use super::sink_file::SinkFile;
use super::unpack;
use crate::check::{ObjectCheck, object_check};
use crate::counters::Stage;
use crate::error::SessionError;
use crate::placed;

/// Works until the session ends, while so many threads are to be at work that this one, with its number, is among them.
pub(super) fn run(lane: &Lane<'_>, number: usize) {
    let mut writer = Writer { lane, unpacker: unpack::Unpacker::default() };
    loop {
        lane.writers.pass(number);
        let taken = lane.counters.time(Stage::Idle, || lane.inbox.take_timed(|inbox| inbox.take()));
        let Ok(task) = taken else { return };
        let is_storing = !matches!(task, Task::Stream(_));
        let done = writer.work(task);
        if is_storing {
            lane.inbox.release(Inbox::done);
        }
        if let Err(error) = done {
            lane.fault.raise(error, lane);
            return;
        }
    }
}

/// Objects of a file that may be left to the thread that is writing to it. Of fewer the others wait while it receives nothing
/// either; more bring nothing (decision 4).
const LEFT_TO_WRITER: usize = 16;

/// An object that passed its check.
pub(super) struct Checked {
    pub(super) incoming: Incoming,
    /// Its place in its file. Behind the contents there may be the file's table.
    pub(super) range: ByteRange,
    pub(super) subtrees: Vec<Subtree>,
}

impl Checked {
    fn content(&self) -> &[u8] {
        &self.incoming.body()[..self.range.len as usize]
    }
}

struct Writer<'a> {
    lane: &'a Lane<'a>,
    unpacker: unpack::Unpacker,
}

impl Writer<'_> {
    fn work(&mut self, task: Task) -> Result<(), SessionError> {
        match task {
            Task::Stream(endpoint) if self.lane.sink.is_sorting => self.sort(endpoint),
            Task::Stream(endpoint) => self.drive(endpoint),
            Task::Store(target, incoming) if self.lane.belongs_elsewhere(target, &incoming) => {
                let own = self.lane.target_of(&incoming);
                self.lane.inbox.release_many(2, |inbox| {
                    inbox.finished(target, None);
                    inbox.takes_back(target, &incoming);
                    inbox.push_object(own, incoming);
                });
                Ok(())
            }
            Task::Store(target, incoming) => {
                let bytes = incoming.header.body_len.into();
                let stored = self.store(incoming);
                let service =
                    self.lane.sink.is_sorting.then(|| stored.as_ref().ok().copied().flatten()).flatten();
                self.lane.inbox.release(|inbox| inbox.finished(target, service));
                self.lane.dequeued(bytes);
                stored.map(|_| ())
            }
            Task::Create(file) => self.lane.counters.busy(|| self.lane.create(&file)),
            Task::Commit(file) => self.lane.counters.busy(|| self.lane.commit(&file)),
            Task::Shelve(file) => self.lane.counters.busy(|| self.lane.shelve(&file)),
            Task::Settle(number) => self.lane.counters.busy(|| self.lane.settle(number)),
            Task::Discard(file) => self.lane.counters.busy(|| self.lane.discard(&file)),
            Task::Offer(offer) => self.lane.counters.busy(|| self.lane.answer_offer(&offer)),
            Task::Prune(prune) => self.lane.counters.busy(|| self.lane.prune(&prune)),
            Task::Finish { is_complete } => self.finish(is_complete),
        }
    }

    /// Receives and stores until the stream is quiet, then gives it to the comm thread.
    fn drive(&mut self, mut endpoint: Box<dyn ReceiveEndpoint>) -> Result<(), SessionError> {
        let lane = self.lane;
        loop {
            let received =
                lane.counters.time(Stage::Network, || endpoint.advance(Patience::Brief, &lane.pool))?;
            match received {
                Received::Object(incoming) => {
                    self.store(incoming)?;
                }
                Received::Pending => {
                    let _ = lane.mail.post(Letter::Park(endpoint));
                    return Ok(());
                }
                Received::Closed => {
                    let _ = lane.mail.post(Letter::Closed);
                    return Ok(());
                }
            }
            while let Some(task) = lane.inbox.try_take(|inbox| inbox.take_beside_streams()) {
                self.work(task)?;
            }
        }
    }

    /// Receives until the stream is quiet, and puts what comes into the queues of its targets (L8).
    fn sort(&mut self, mut endpoint: Box<dyn ReceiveEndpoint>) -> Result<(), SessionError> {
        let lane = self.lane;
        loop {
            let received =
                lane.counters.time(Stage::Network, || endpoint.advance(Patience::Brief, &lane.pool))?;
            match received {
                Received::Object(incoming) => {
                    let target = lane.target_of(&incoming);
                    lane.queue(target, incoming);
                }
                Received::Pending => {
                    let _ = lane.mail.post(Letter::Park(endpoint));
                    return Ok(());
                }
                Received::Closed => {
                    let _ = lane.mail.post(Letter::Closed);
                    return Ok(());
                }
            }
        }
    }

    /// Checks and writes an object; returns how long the storage took, if it was asked.
    fn store(&mut self, incoming: Incoming) -> Result<Option<Service>, SessionError> {
        let lane = self.lane;
        let Some(root) = &lane.sink.root else {
            return Err(SessionError::Protocol("an object in a dry run".into()));
        };
        let unpacker = &mut self.unpacker;
        let store = || match incoming.header.kind {
            FrameKind::Bundle if lane.sink.spec.part.is_some() => {
                Err(SessionError::Protocol("whole files where a part of one is copied".into()))
            }
            FrameKind::Bundle => unpacker.store(lane, root, incoming).map(|()| None),
            FrameKind::Object | FrameKind::Control => lane.store_object(root, incoming),
        };
        lane.counters.busy(|| lane.counters.time(Stage::Storage, store))
    }

    fn finish(&self, is_complete: bool) -> Result<(), SessionError> {
        let lane = self.lane;
        if let (true, Some(past), Some(root)) = (lane.leads && is_complete, &lane.sink.past, &lane.sink.root)
        {
            past.discard_rest(root);
        }
        let mut done = 0;
        if lane.leads
            && let Some(links) = lane.sink.links().take()
        {
            let (mut failures, mut ended) = (Vec::new(), Ok(()));
            let make_way = |held: BorrowedFd<'_>, directory: &RelPath, name: &[u8]| {
                let made = lane.make_way(held, directory, name);
                made.unwrap_or_else(|error| {
                    ended = Err(error);
                    false
                })
            };
            let ways = LinkWays {
                scratch: &lane.sink.scratch,
                times: &lane.sink.times,
                losses: lane.sink.keeper.losses(),
                grant: &|directory| lane.sink.grant(directory),
                syncs: lane.sink.committer.as_ref().is_some_and(Committer::syncs_before_naming),
                has_all: is_complete,
            };
            let counts = links.finish(&ways, make_way, |failure| failures.push(failure));
            done += counts.made;
            lane.counters.files_done.fetch_add(counts.made, Relaxed);
            lane.counters.entries_kept.fetch_add(counts.present, Relaxed);
            ended.and(failures.into_iter().try_for_each(|failure| lane.fail(failure)))?;
        }
        if lane.leads {
            // A mode that is to be another one is set after that.
            lane.restore_modes(Restoring::Open)?;
        }
        if lane.leads
            && let Some(spool) = lane.sink.directories().take()
        {
            let mut failures = Vec::new();
            let directories = spool.finish(&lane.sink.times, |failure| failures.push(failure));
            done += directories;
            lane.counters.directories_done.fetch_add(directories, Relaxed);
            failures.into_iter().try_for_each(|failure| lane.fail(failure))?;
        }
        if lane.leads {
            lane.restore_modes(Restoring::All)?;
            lane.tell_losses();
            self.tell_times();
        }
        if let Some(committer) = &lane.sink.committer {
            lane.counters.time(Stage::Storage, || committer.finish(done > 0))?;
        }
        let _ = lane.mail.post(Letter::Finished);
        Ok(())
    }

    /// How the destination stores times, where that is not as they are told.
    fn tell_times(&self) {
        let sink = self.lane.sink;
        let losses = sink.keeper.losses();
        if sink.times.has_refused() {
            let text = "the destination's file system sets no times: files that are later there and have the source's size were taken as equal; -c compares contents";
            self.lane.report(Event::Notice(Notice::Warning(text.to_owned())));
        }
        let looked = sink.root.as_ref().filter(|_| losses.cuts_times());
        let held = looked.and_then(|root| root.open_directory(&RelPath::root()).ok());
        if let Some(granularity) = held.and_then(|held| sink.times.coarse(held.as_fd())) {
            let text = format!("the destination's file system stores times to {granularity}");
            self.lane.report(Event::Notice(Notice::Text(text)));
        }
    }
}

impl Lane<'_> {
    /// Creates a file that was announced, and says where it lies.
    fn create(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        let Some(root) = &self.sink.root else {
            return Err(SessionError::Protocol("a file in a dry run".into()));
        };
        // An error is told when its first object is written.
        if self.growing(root, file).is_ok()
            && let Some(layout) = file.layout()
        {
            self.learn(layout.targets());
            let message = placed::to_message(file.id, &**layout, file.entry.size());
            self.say(Control::FilePlaced(message));
        }
        Ok(())
    }

    /// The file under its temporary name, created by the first caller.
    fn growing<'a>(&self, root: &Root, file: &'a SinkFile) -> Result<&'a GrowingFile, &'a SinkError> {
        file.growing(root, self, |growing, refusal| self.tell_news(growing.io(), refusal))
    }

    pub(super) fn store_object(
        &self,
        root: &Root,
        incoming: Incoming,
    ) -> Result<Option<Service>, SessionError> {
        let header = incoming.header;
        if header.table_len > 0 {
            return self.store_first(root, incoming).map(|()| None);
        }
        let range = ByteRange::new(header.offset, header.body_len.into());
        let arrival = {
            let mut files = self.files();
            let arrival = files.ledger.arrive(header.file, range)?;
            if matches!(arrival, Arrival::Early) {
                files.early.entry(header.file).or_default().push(incoming);
                return Ok(None);
            }
            arrival
        };
        let object = header.object.0;
        let Arrival::Write(file) = arrival else {
            drop(incoming);
            self.written(object);
            return Ok(None);
        };
        match self.check(&file, range, incoming)? {
            Some(checked) => self.write(root, &file, checked),
            None => {
                self.files().ledger.reject(header.file, range);
                self.corrupt(object);
                Ok(None)
            }
        }
    }

    /// Nothing if the object failed its check; its slot is free again then.
    fn check(
        &self,
        file: &SinkFile,
        range: ByteRange,
        incoming: Incoming,
    ) -> Result<Option<Checked>, SessionError> {
        let digested_size = self.sink.spec.part.is_none().then(|| file.entry.size());
        let check = object_check(self.sink.spec.checksum, range, incoming.body(), digested_size);
        let ObjectCheck { value, subtrees } = check.map_err(|e| SessionError::Protocol(e.to_string()))?;
        Ok((value == incoming.header.check).then_some(Checked { incoming, range, subtrees }))
    }

    /// Writes an object and answers it, or leaves it to another thread that writes to the file. Returns how long the storage took
    /// for the one that it wrote last.
    pub(super) fn write(
        &self,
        root: &Root,
        file: &Arc<SinkFile>,
        checked: Checked,
    ) -> Result<Option<Service>, SessionError> {
        let mut service = None;
        let mut write = |checked: Checked| -> Result<(), SessionError> {
            if self.is_stopped() {
                return Err(SessionError::PeerGone);
            }
            service = Some(self.write_now(root, file, &checked)?);
            let object = checked.incoming.header.object.0;
            drop(checked);
            self.written(object);
            Ok(())
        };
        let growing = self.growing(root, file);
        match growing.is_ok_and(|growing| self.sink.writes_in_turn && growing.io() == WriteIo::Cached) {
            // What came from a target's queue is written by the thread that took it: the queue counts it until then.
            true => file.line.write(checked, if self.sink.is_sorting { 0 } else { LEFT_TO_WRITER }, write)?,
            false => write(checked)?,
        }
        Ok(service)
    }

    /// Writes what has passed its check; a file by itself that is whole then gets its name.
    fn write_now(
        &self,
        root: &Root,
        file: &Arc<SinkFile>,
        checked: &Checked,
    ) -> Result<Service, SessionError> {
        let Checked { range, subtrees, .. } = checked;
        let body = checked.content();
        let growing = self.growing(root, file);
        let began = Instant::now();
        let written = match growing {
            Ok(growing) => {
                growing.write_at(body, range.offset).map_err(|error| (error.kind(), error.to_string()))
            }
            Err(error) => Err((error.kind(), error.to_string())),
        };
        let service = Service { time: began.elapsed(), bytes: range.len };
        match written {
            Ok(()) => {
                self.keep_time_after_the_end(file);
                self.count_bytes(file, range.len);
                file.add_subtrees(subtrees).map_err(|e| SessionError::Protocol(e.to_string()))?;
                self.sink.committer()?.wrote(file, *range, subtrees, body)?;
                if file.is_by_itself() && file.is_all_written(range.len) {
                    self.close(file)?;
                }
            }
            Err((kind, detail)) => self.give_up(file, kind, detail)?,
        }
        Ok(service)
    }

    /// A write that returns when its session is over may have been overtaken: others have the file's part too, and have given the file its
    /// name and time. It gets its time once more.
    fn keep_time_after_the_end(&self, file: &SinkFile) {
        if file.is_part()
            && self.is_stopped()
            && self.sink.keeper.policy().times
            && let Some(growing) = file.grown()
        {
            growing.keep_time(file.entry.metadata.mtime);
        }
    }

    /// Everything of a file by itself is written. The source hears of it by the last object's answer, or before that answer
    /// that it failed.
    fn close(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        let id = FileId(file.id);
        match self.name(file)? {
            true => self.files().ledger.commit(id).map(|_| ())?,
            // The source abandons it.
            false => self.files().ledger.give_up(id).map_or((), drop),
        }
        Ok(())
    }

    /// The file can't be written: reported once, and the source is told before the object is answered.
    fn give_up(&self, file: &Arc<SinkFile>, kind: FailureKind, detail: String) -> Result<(), SessionError> {
        let is_first = self.files().ledger.give_up(FileId(file.id)).is_some();
        if is_first {
            self.fail_file(file, kind, detail)?;
        }
        Ok(())
    }

    /// Counts bytes of a file as copied, unless it was given up.
    pub(super) fn count_bytes(&self, file: &SinkFile, bytes: u64) {
        if file.count_bytes(bytes) {
            self.counters.bytes_done.fetch_add(bytes, Relaxed);
        }
    }

    /// Nothing of the file is of use any more, now or later. Of one in parts the rest may be.
    fn forsake(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        self.counters.bytes_done.fetch_sub(file.uncount_all(), Relaxed);
        if file.is_part() {
            return Ok(());
        }
        file.forsake();
        self.sink.committer()?.ended(file, End::Dropped)
    }

    /// The source gave the file up.
    fn discard(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if let (Some(root), true) = (&self.sink.root, self.sink.siblings.is_some() && !file.is_part()) {
            // Others wrote to it. What is not there need not be taken away.
            let _ = self.growing(root, file);
        }
        match file.grown().is_some() || file.is_begun() {
            true => self.forsake(file),
            false => {
                self.counters.bytes_done.fetch_sub(file.uncount_all(), Relaxed);
                Ok(())
            }
        }
    }

    /// What the destination can't keep and was not told of yet, each kind once.
    fn tell_losses(&self) {
        for loss in self.sink.keeper.losses().take() {
            self.report(Event::Notice(Notice::Loss(loss)));
        }
    }

    /// Everything of a chunk was answered: returns when it is durable and recorded. Whoever takes it for done knows then what of it
    /// was lost.
    fn settle(&self, number: u64) -> Result<(), SessionError> {
        self.counters.time(Stage::Storage, || self.sink.committer()?.settle())?;
        self.tell_losses();
        self.say(Control::Settled(Mark { number }));
        Ok(())
    }

    /// Whether what was written of a file has to come once more; the source is told.
    fn is_damaged(&self, file: &Arc<SinkFile>) -> Result<bool, SessionError> {
        let committer = self.sink.committer()?;
        if !committer.reads_back() {
            return Ok(false);
        }
        committer.settle()?;
        let damage = file.take_damage();
        if !damage.is_empty() {
            self.ask_again(file, &damage)?;
        }
        Ok(!damage.is_empty())
    }

    /// This session's part of a file is written; others bring the rest.
    fn shelve(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if !file.is_part() {
            return Err(SessionError::Protocol("a whole file that was treated as a part".into()));
        }
        if self.is_damaged(file)? {
            return Ok(());
        }
        match self.extend(file)? {
            Ok(()) => self.say(Control::FileDone(FileRef { id: file.id })),
            Err((kind, detail)) => self.fail_file(file, kind, detail)?,
        }
        Ok(())
    }

    /// Makes a part that ends in a hole as long as announced.
    fn extend(&self, file: &Arc<SinkFile>) -> Result<Result<(), (FailureKind, String)>, SessionError> {
        if !file.ends_in_hole() {
            return Ok(Ok(()));
        }
        let Some(root) = &self.sink.root else { return Err(SessionError::Internal) };
        let told = |error: &SinkError| (error.kind(), error.to_string());
        let extend = || match self.growing(root, file) {
            Ok(growing) => growing.extend().map_err(|error| told(&error)),
            Err(error) => Err(told(error)),
        };
        Ok(self.counters.time(Stage::Storage, extend))
    }

    fn commit(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        if file.is_part() {
            return Err(SessionError::Protocol("a part that was treated as a whole file".into()));
        }
        if self.is_damaged(file)? {
            return Ok(());
        }
        if self.name(file)? {
            self.say(Control::FileDone(FileRef { id: file.id }));
        }
        Ok(())
    }

    /// Gives a file that is whole its metadata and its name; false if it could not be done, as was told.
    fn name(&self, file: &Arc<SinkFile>) -> Result<bool, SessionError> {
        let committer = self.sink.committer()?;
        let Some(root) = &self.sink.root else { return Err(SessionError::Internal) };
        if let Some(growing) = file.grown() {
            self.make_way(growing.directory(), file.directory(), &file.entry.name)?;
        }
        let committed = self.counters.time(Stage::Storage, || match self.growing(root, file) {
            Ok(growing) => {
                let syncs = committer.syncs_before_naming();
                let commit = || file.commit(growing, self, syncs);
                self.with_access(file.directory(), commit).map_err(|e| (e.kind(), e.to_string()))
            }
            Err(error) => Err((error.kind(), error.to_string())),
        });
        match committed {
            Ok(()) => {}
            // It stays for a later session.
            Err(_) if self.sink.spec.part.is_some() && self.is_stopped() => {
                return Err(SessionError::PeerGone);
            }
            // Another session was faster: the same version of it has its name.
            Err(_) if self.sink.siblings.is_some() && self.is_in_place(root, file) => {}
            Err((kind, detail)) => {
                self.fail_file(file, kind, detail)?;
                return Ok(false);
            }
        }
        self.named(file).map(|()| true)
    }

    /// Counted and told of before the source is answered: what it takes for settled is known to have failed then.
    fn fail_file(&self, file: &Arc<SinkFile>, kind: FailureKind, detail: String) -> Result<(), SessionError> {
        self.forsake(file)?;
        self.fail(EntryFailure { path: self.path(file.directory(), &file.entry.name), kind, detail })?;
        self.say(Control::FileFailed(FileRef { id: file.id }));
        Ok(())
    }

    fn is_in_place(&self, root: &Root, file: &SinkFile) -> bool {
        let held = root.open_directory(file.directory());
        held.is_ok_and(|held| self.is_there(file.directory(), held.as_fd(), &file.entry))
    }

    /// Not all that was written is what the storage holds: it has to come once more.
    fn ask_again(&self, file: &Arc<SinkFile>, damage: &RangeSet) -> Result<(), SessionError> {
        let size = file.entry.size();
        let asked = ranges_to_message(damage);
        let told = ranges_from_message(&asked, size)?;
        self.counters.bytes_done.fetch_sub(file.uncount_bytes(told.covered_bytes()), Relaxed);
        self.files().ledger.reopen(FileId(file.id), size, Arc::clone(file), told.missing_of(size));
        self.say(Control::FileLacks(FileLacks { id: file.id, ranges: asked }));
        Ok(())
    }

    fn named(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        self.sink.committer()?.ended(file, End::Done)?;
        let entry = &file.entry;
        self.note_flags(file.directory(), &entry.name, entry.metadata.mtime, entry.extras.as_deref())?;
        self.counters.files_done.fetch_add(1, Relaxed);
        if self.sink.spec.report_digests {
            let digest = file.digest().map_err(|e| SessionError::Protocol(e.to_string()))?;
            self.report_digest(file.directory(), &file.entry.name, file.entry.size(), digest);
        }
        Ok(())
    }

    pub(super) fn report_digest(&self, directory: &RelPath, name: &[u8], size: u64, digest: [u8; 32]) {
        if let Ok(path) = directory.join(name) {
            self.report(Event::FileDigest { path: path.as_bytes().into(), size, digest });
        }
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &RelPath, name: &[u8]) -> Box<[u8]> {
        match &self.sink.root {
            Some(root) => root.full_path(directory, name),
            None => name.into(),
        }
    }
}
