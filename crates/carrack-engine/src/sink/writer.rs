//! An I/O thread of the sink: drives a stream, checks what comes while its cache holds it, and writes it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use carrack_model::{ByteRange, EntryFailure, Event, FailureKind, FileId};
use carrack_plan::Service;
use carrack_storage::{GrowingFile, Root, SinkError, WriteIo};
use carrack_transport::{Incoming, Patience, ReceiveEndpoint, Received};
use carrack_wire::message::{Control, FileRef};
use carrack_wire::{Arrival, FrameKind};

use super::inbox::Task;
use super::lane::{Lane, Letter};
use super::sink_file::SinkFile;
use super::unpack;
use crate::check::{ObjectCheck, object_check};
use crate::counters::Stage;
use crate::error::SessionError;
use crate::placed;

/// Works until the session ends.
pub(super) fn run(lane: &Lane<'_>) {
    let mut writer = Writer { lane, unpacker: unpack::Unpacker::default() };
    loop {
        let taken = lane.counters.time(Stage::Idle, || lane.inbox.take_timed(|inbox| inbox.take()));
        let Ok(task) = taken else { return };
        if let Err(error) = writer.work(task) {
            lane.fault.raise(error, lane);
            return;
        }
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
                let stored = self.store(incoming);
                let service =
                    self.lane.sink.is_sorting.then(|| stored.as_ref().ok().copied().flatten()).flatten();
                self.lane.inbox.release(|inbox| inbox.finished(target, service));
                stored.map(|_| ())
            }
            Task::Create(file) => self.lane.create(&file),
            Task::Commit(file) => self.lane.commit(&file),
            Task::Discard(file) => {
                drop(file);
                Ok(())
            }
            Task::Finish => self.finish(),
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
                    lane.inbox.release(|inbox| inbox.push_object(target, incoming));
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
        lane.counters.time(Stage::Storage, || match incoming.header.kind {
            FrameKind::Bundle => self.unpacker.store(lane, root, incoming).map(|()| None),
            FrameKind::Object | FrameKind::Control => lane.store_object(root, incoming),
        })
    }

    fn finish(&self) -> Result<(), SessionError> {
        let lane = self.lane;
        if lane.leads
            && let Some(spool) = lane.sink.directories().take()
        {
            let mut failures = Vec::new();
            let done = spool.finish(|failure| failures.push(failure));
            lane.counters.directories_done.fetch_add(done, Relaxed);
            failures.into_iter().try_for_each(|failure| lane.fail(failure))?;
        }
        let _ = lane.mail.post(Letter::Finished);
        Ok(())
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

    fn store_object(&self, root: &Root, incoming: Incoming) -> Result<Option<Service>, SessionError> {
        let header = incoming.header;
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
        let service = self.write_object(root, &file, range, &incoming)?;
        drop(incoming);
        if service.is_some() {
            self.written(object);
        } else {
            self.files().ledger.reject(header.file, range);
            self.corrupt(object);
        }
        Ok(service)
    }

    /// How long the storage took; nothing if the object failed its check.
    fn write_object(
        &self,
        root: &Root,
        file: &Arc<SinkFile>,
        range: ByteRange,
        incoming: &Incoming,
    ) -> Result<Option<Service>, SessionError> {
        let body = incoming.body();
        let check = object_check(self.sink.spec.checksum, range, body, file.entry.size());
        let ObjectCheck { value, subtrees } = check.map_err(|e| SessionError::Protocol(e.to_string()))?;
        if value != incoming.header.check {
            return Ok(None);
        }
        let growing = self.growing(root, file);
        let began = Instant::now();
        let written = match growing {
            Ok(growing) => file
                .write(
                    growing,
                    body,
                    range.offset,
                    self.sink.writes_in_turn && growing.io() == WriteIo::Cached,
                )
                .map_err(|error| (error.kind(), error.to_string())),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        let service = Service { time: began.elapsed(), bytes: range.len };
        match written {
            Ok(()) => {
                self.counters.bytes_done.fetch_add(range.len, Relaxed);
                file.add_subtrees(&subtrees).map_err(|e| SessionError::Protocol(e.to_string()))?;
            }
            Err((kind, detail)) => self.give_up(file, kind, detail)?,
        }
        Ok(Some(service))
    }

    /// The file can't be written: reported once, and the source is told before the object is answered.
    fn give_up(&self, file: &Arc<SinkFile>, kind: FailureKind, detail: String) -> Result<(), SessionError> {
        let is_first = self.files().ledger.give_up(FileId(file.id)).is_some();
        if is_first {
            self.say(Control::FileFailed(FileRef { id: file.id }));
            self.fail(EntryFailure { path: self.path(&file.directory, &file.entry.name), kind, detail })?;
        }
        Ok(())
    }

    fn commit(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        match self.counters.time(Stage::Storage, || file.commit()) {
            Ok(()) => self.committed(file),
            Err(error) => {
                let detail = error.to_string();
                self.say(Control::FileFailed(FileRef { id: file.id }));
                self.fail(EntryFailure {
                    path: self.path(&file.directory, &file.entry.name),
                    kind: SinkError::kind(&error),
                    detail,
                })
            }
        }
    }

    fn committed(&self, file: &Arc<SinkFile>) -> Result<(), SessionError> {
        self.counters.files_done.fetch_add(1, Relaxed);
        if self.sink.spec.report_digests {
            let digest = file.digest().map_err(|e| SessionError::Protocol(e.to_string()))?;
            self.report_digest(&file.directory, &file.entry.name, file.entry.size(), digest);
        }
        self.say(Control::FileDone(FileRef { id: file.id }));
        Ok(())
    }

    pub(super) fn report_digest(
        &self,
        directory: &carrack_model::RelPath,
        name: &[u8],
        size: u64,
        digest: [u8; 32],
    ) {
        if let Ok(path) = directory.join(name) {
            self.report(Event::FileDigest { path: path.as_bytes().into(), size, digest });
        }
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &carrack_model::RelPath, name: &[u8]) -> Box<[u8]> {
        match &self.sink.root {
            Some(root) => root.full_path(directory, name),
            None => name.into(),
        }
    }
}
