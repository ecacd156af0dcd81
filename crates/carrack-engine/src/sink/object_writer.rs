//! Objects of large files: checked while they are in the cache, and written.
//!
//! I/O threads use it, each with another object. A thread that finds another thread writing to a local file
//! leaves its object to that thread.

use std::sync::Arc;
use std::time::Instant;

use carrack_model::{ByteRange, ObjectChecksumAlgorithm, text_without_errno};
use carrack_plan::StorageRequestTiming;
use carrack_storage::{RootDirectory, SinkError, UncommittedFile, WriteIoMethod};
use carrack_transport::IncomingObject;
use carrack_wire::FrameHeader;
use carrack_wire::message::OpenFileMessage;

use super::ack_batch::ObjectOutcome;
use super::context::SinkContext;
use super::file_announcement::register_file;
use super::file_table::ArrivedObject;
use super::lane::SinkLane;
use super::large_file_creation::get_or_create_file;
use super::large_files::SinkLargeFileHandler;
use super::sink_file::{CheckedObject, SinkFile};
use crate::error::SessionError;
use crate::object_checksum::{ObjectChecksumValue, bundle_check, object_check};
use crate::storage_retries::sink_error_may_pass;

/// Objects of a file that may be left to its writing thread. With fewer, the other threads wait and receive
/// nothing meanwhile; more bring nothing (decision 4).
const LEFT_TO_WRITER: usize = 16;

/// Direct writes are of whole blocks of this size; the rest of an object goes through the page cache.
const DIRECT_BLOCK: u64 = 4_096;

/// Writes objects for a lane.
#[derive(Clone, Copy)]
pub(super) struct ObjectWriter<'a> {
    lane: &'a SinkLane<'a>,
    sink: &'a SinkContext<'a>,
    files: SinkLargeFileHandler<'a>,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(lane: &'a SinkLane<'a>) -> ObjectWriter<'a> {
        ObjectWriter { lane, sink: lane.sink, files: SinkLargeFileHandler::new(lane) }
    }

    /// Checks and writes an object. Returns the service time, if there was a request to the storage.
    pub(super) fn store(
        &self,
        root: &RootDirectory,
        incoming: IncomingObject,
    ) -> Result<Option<StorageRequestTiming>, SessionError> {
        let header = incoming.header;
        if header.table_len > 0 {
            return self.store_inline_announced(root, incoming).map(|()| None);
        }
        let range = ByteRange::new(header.offset, header.body_len.into());
        let object = header.object.0;
        let (file, incoming) = match self.lane.files.arrive(range, incoming)? {
            ArrivedObject::Of(file, incoming) => (file, incoming),
            ArrivedObject::Early => return Ok(None),
            ArrivedObject::Unwanted(incoming) => {
                drop(incoming);
                self.lane.add_ack(object, ObjectOutcome::Written);
                return Ok(None);
            }
        };
        match self.check(&file, range, incoming)? {
            Some(checked) => self.write(root, &file, checked),
            None => {
                self.lane.files.reject(header.file, range);
                self.lane.add_ack(object, ObjectOutcome::Corrupt);
                Ok(None)
            }
        }
    }

    /// Returns `None` if the object failed its check; its slot is free again then.
    fn check(
        &self,
        file: &SinkFile,
        range: ByteRange,
        incoming: IncomingObject,
    ) -> Result<Option<CheckedObject>, SessionError> {
        let digested_size = self.sink.spec.part.is_none().then(|| file.entry.size());
        let check = object_check(self.sink.spec.checksum, range, incoming.body(), digested_size);
        let ObjectChecksumValue { value, subtrees } =
            check.map_err(|e| SessionError::Protocol(e.to_string()))?;
        Ok((value == incoming.header.check).then(|| CheckedObject::new(incoming, range, subtrees)))
    }

    /// Writes an object and acks it, or leaves it to another thread that writes to the file. Returns the
    /// service time of the last object that this thread wrote.
    fn write(
        &self,
        root: &RootDirectory,
        file: &Arc<SinkFile>,
        checked: CheckedObject,
    ) -> Result<Option<StorageRequestTiming>, SessionError> {
        let growing = get_or_create_file(self.lane, root, file);
        let is_in_turn = growing
            .is_ok_and(|growing| self.sink.sizing.writes_in_turn && growing.io() == WriteIoMethod::Cached);
        if !is_in_turn {
            return self.write_one(root, file, checked).map(Some);
        }
        // An object from a target's queue is written by the thread that took it: the queue counts it until
        // then.
        let room = if self.sink.sizing.is_sorting { 0 } else { LEFT_TO_WRITER };
        let mut service = None;
        file.line.write(checked, room, |checked| {
            service = Some(self.write_one(root, file, checked)?);
            Ok::<(), SessionError>(())
        })?;
        Ok(service)
    }

    /// Writes an object and acks it, unless the session ends.
    fn write_one(
        &self,
        root: &RootDirectory,
        file: &Arc<SinkFile>,
        checked: CheckedObject,
    ) -> Result<StorageRequestTiming, SessionError> {
        if self.lane.is_stopped() {
            return Err(SessionError::PeerGone);
        }
        let service = self.write_now(root, file, &checked)?;
        let object = checked.object_id();
        drop(checked);
        self.lane.add_ack(object, ObjectOutcome::Written);
        Ok(service)
    }

    /// Writes a checked object. An inline-announced file that is complete then gets its name.
    fn write_now(
        &self,
        root: &RootDirectory,
        file: &Arc<SinkFile>,
        checked: &CheckedObject,
    ) -> Result<StorageRequestTiming, SessionError> {
        let (range, subtrees, body) = (checked.range(), checked.subtrees(), checked.content());
        let end = range.end();
        assert!(end.is_some_and(|end| end <= file.entry.size()), "the ledger lets objects lie in their file");
        let growing = get_or_create_file(self.lane, root, file);
        let (began, target) = (Instant::now(), file.target_at(range.offset));
        // A repeated write has the same bytes.
        let written = match growing {
            Ok(growing) => {
                self.lane.request(target, || self.write_once(file, growing, (range, body))).map_err(|error| {
                    self.lane.count_storage_failure(target, &error);
                    (error.kind(), text_without_errno(&error))
                })
            }
            Err(error) => Err((error.kind(), text_without_errno(&error))),
        };
        let service = StorageRequestTiming { time: began.elapsed(), bytes: range.len };
        match written {
            Ok(()) => {
                self.keep_time_after_the_end(file);
                self.lane.count_bytes(file, range.len);
                file.integrity.add_subtrees(subtrees).map_err(|e| SessionError::Protocol(e.to_string()))?;
                self.sink.committer()?.add_object(file, range, subtrees, body)?;
                if file.is_inline_announced() && file.bytes.add_written(range.len) {
                    self.files.close(file)?;
                }
            }
            Err((kind, detail)) => self.files.give_up(file, kind, detail)?,
        }
        Ok(service)
    }

    /// Writes an object. An error of the page cache may be that of an earlier write to the file, and is
    /// reported once: all data that is not durable is lost then.
    fn write_once(
        &self,
        file: &SinkFile,
        growing: &UncommittedFile,
        (range, body): (ByteRange, &[u8]),
    ) -> Result<(), SinkError> {
        let written = growing.write_at(body, range.offset);
        let is_cached = growing.io() != WriteIoMethod::Direct || !range.len.is_multiple_of(DIRECT_BLOCK);
        if let (Err(error), true) = (&written, is_cached)
            && sink_error_may_pass(error)
        {
            file.integrity.lock_writes().mark_lost();
        }
        written
    }

    /// Sets the file's time again. A write that returns after its session's end may have been overtaken:
    /// other sessions write the same part, and have given the file its name and time.
    fn keep_time_after_the_end(&self, file: &SinkFile) {
        if file.portion.is_part()
            && self.lane.is_stopped()
            && self.sink.attributes.keeper.policy().times
            && let Some(growing) = file.uncommitted_file()
        {
            growing.set_mtime(file.entry.metadata.mtime);
        }
    }

    /// Stores an object that announces its file: contents, followed by the table that a message would have.
    fn store_inline_announced(
        &self,
        root: &RootDirectory,
        incoming: IncomingObject,
    ) -> Result<(), SessionError> {
        let FrameHeader { object, file: id, offset, table_len, check, .. } = incoming.header;
        let checksum = self.sink.spec.checksum;
        if checksum == ObjectChecksumAlgorithm::Blake3 {
            return Err(SessionError::Protocol("a file by itself where digests are made".into()));
        }
        let body = incoming.body();
        if bundle_check(checksum, body, table_len as usize) != check {
            drop(incoming);
            // The source announces it by a message now.
            self.lane.add_ack(object.0, ObjectOutcome::Corrupt);
            return Ok(());
        }
        let (content, table) = body.split_at(body.len() - table_len as usize);
        let range = ByteRange::new(offset, content.len() as u64);
        let message = OpenFileMessage { id: id.0, table: table.to_vec(), ..OpenFileMessage::default() };
        let (file, early) = register_file(self.lane, &message)?;
        self.lane.files.arrive_first(id, range)?;
        self.write(root, &file, CheckedObject::new(incoming, range, Vec::new()))?;
        early.into_iter().try_for_each(|incoming| self.store(root, incoming).map(|_| ()))
    }
}
