//! An I/O thread of the sink: drives a stream, checks what comes while its cache holds it, and writes it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::{ByteRange, EntryFailure, Event, FailureKind, FileId};
use carrack_storage::{Root, SinkError};
use carrack_transport::{Incoming, Patience, ReceiveEndpoint, Received};
use carrack_wire::message::{Control, FileRef};
use carrack_wire::{Arrival, FrameKind};

use super::inbox::Task;
use super::sink_file::SinkFile;
use super::{Letter, Sink, unpack};
use crate::check::{ObjectCheck, object_check};
use crate::counters::Stage;
use crate::error::SessionError;

/// Works until the session ends.
pub(super) fn run(sink: &Sink<'_>) {
    let mut writer = Writer { sink, unpacker: unpack::Unpacker::default() };
    loop {
        let taken = sink.counters.time(Stage::Idle, || sink.inbox.take(|inbox| inbox.take()));
        let Ok(task) = taken else { return };
        if let Err(error) = writer.work(task) {
            sink.fault.raise(error, sink);
            return;
        }
    }
}

struct Writer<'a> {
    sink: &'a Sink<'a>,
    unpacker: unpack::Unpacker,
}

impl Writer<'_> {
    fn work(&mut self, task: Task) -> Result<(), SessionError> {
        match task {
            Task::Stream(endpoint) => self.drive(endpoint),
            Task::Store(target, incoming) => {
                let stored = self.store(incoming);
                self.sink.inbox.release(|inbox| inbox.finished(target));
                stored
            }
            Task::Commit(file) => self.sink.commit(&file),
            Task::Discard(file) => {
                drop(file);
                Ok(())
            }
            Task::Finish => self.finish(),
        }
    }

    /// Receives and stores until the stream is quiet, then gives it to the comm thread.
    fn drive(&mut self, mut endpoint: Box<dyn ReceiveEndpoint>) -> Result<(), SessionError> {
        let sink = self.sink;
        loop {
            let received =
                sink.counters.time(Stage::Network, || endpoint.advance(Patience::Brief, &sink.pool))?;
            match received {
                Received::Object(incoming) => self.store(incoming)?,
                Received::Pending => {
                    let _ = sink.mail.post(Letter::Park(endpoint));
                    return Ok(());
                }
                Received::Closed => return Ok(()),
            }
            while let Some(task) = sink.inbox.try_take(|inbox| inbox.take_beside_streams()) {
                self.work(task)?;
            }
        }
    }

    fn store(&mut self, incoming: Incoming) -> Result<(), SessionError> {
        let sink = self.sink;
        let Some(root) = &sink.root else {
            return Err(SessionError::Protocol("an object in a dry run".into()));
        };
        sink.counters.time(Stage::Storage, || match incoming.header.kind {
            FrameKind::Bundle => self.unpacker.store(sink, root, incoming),
            FrameKind::Object | FrameKind::Control => sink.store_object(root, incoming),
        })
    }

    fn finish(&self) -> Result<(), SessionError> {
        let sink = self.sink;
        if let Some(spool) = sink.directories().take() {
            let mut failures = Vec::new();
            let done = spool.finish(|failure| failures.push(failure));
            sink.counters.directories_done.fetch_add(done, Relaxed);
            failures.into_iter().try_for_each(|failure| sink.fail(failure))?;
        }
        let _ = sink.mail.post(Letter::Finished);
        Ok(())
    }
}

impl Sink<'_> {
    fn store_object(&self, root: &Root, incoming: Incoming) -> Result<(), SessionError> {
        let header = incoming.header;
        let range = ByteRange::new(header.offset, header.body_len.into());
        let arrival = {
            let mut files = self.files();
            let arrival = files.ledger.arrive(header.file, range)?;
            if matches!(arrival, Arrival::Early) {
                files.early.entry(header.file).or_default().push(incoming);
                return Ok(());
            }
            arrival
        };
        let object = header.object.0;
        let Arrival::Write(file) = arrival else {
            drop(incoming);
            self.written(object);
            return Ok(());
        };
        let is_good = self.write_object(root, &file, range, &incoming)?;
        drop(incoming);
        if is_good {
            self.written(object);
        } else {
            self.files().ledger.reject(header.file, range);
            self.corrupt(object);
        }
        Ok(())
    }

    /// False if the object failed its check.
    fn write_object(
        &self,
        root: &Root,
        file: &Arc<SinkFile>,
        range: ByteRange,
        incoming: &Incoming,
    ) -> Result<bool, SessionError> {
        let body = incoming.body();
        let check = object_check(self.spec.checksum, range, body, file.entry.size());
        let ObjectCheck { value, subtrees } = check.map_err(|e| SessionError::Protocol(e.to_string()))?;
        if value != incoming.header.check {
            return Ok(false);
        }
        let written = match file.growing(root, &self.scratch) {
            Ok(growing) => file
                .write(growing, body, range.offset, self.writes_in_turn)
                .map_err(|error| (error.kind(), error.to_string())),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        match written {
            Ok(()) => {
                self.counters.bytes_done.fetch_add(range.len, Relaxed);
                file.add_subtrees(&subtrees).map_err(|e| SessionError::Protocol(e.to_string()))?;
            }
            Err((kind, detail)) => self.give_up(file, kind, detail)?,
        }
        Ok(true)
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
        if self.spec.report_digests {
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
        match &self.root {
            Some(root) => root.full_path(directory, name),
            None => name.into(),
        }
    }
}
