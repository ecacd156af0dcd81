//! The ends of bundles and large files: commit, retry, abort.
//!
//! Runs on I/O threads, which may wait for the comm thread. [`SourceLane::reread`] and
//! [`SourceLane::end_committed_file`] run on the comm thread too, and only queue work.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::limits::{FILE_ATTEMPTS_MAX, OBJECT_ATTEMPTS_MAX};
use carrack_model::{FailureKind, FileId, ObjectId};
use carrack_storage::SourceError;
use carrack_wire::message::{ControlMessage, FileReference, OpenFileMessage};

use super::chunks::FilePart;
use super::in_flight::SettledObject;
use super::lane::SourceLane;
use super::large_file::{FileAbortReason, LargeFileNextStep, OpenSourceLargeFile, UnopenedFile};
use super::work::{BundleReadWork, ObjectFlowControlKey, ObjectWork, ReadWork, SentObject};
use crate::storage_retries::may_pass;

/// An object to read again.
pub(super) struct RereadObject {
    /// Credits that its ack returns.
    pub(super) credits: u64,
    /// The file's announcement, if this object carried it. A message must announce the file now, as other
    /// objects of the file may wait for it in all of the sink's slots.
    pub(super) announcement: Option<OpenFileMessage>,
}

impl SourceLane<'_> {
    /// Gives up an object, and with it its file. The first loss is reported.
    pub(super) fn fail_object(
        &self,
        file: &Arc<OpenSourceLargeFile>,
        is_first: bool,
        kind: FailureKind,
        detail: impl ToString,
        step: LargeFileNextStep,
    ) {
        if is_first {
            self.fail_path(self.source.tree.path(&file.found.directory, &file.found.entry), kind, detail);
        }
        self.take_next_step(file, step);
    }

    /// Takes the next step for a file. Not for the comm thread.
    pub(super) fn take_next_step(&self, file: &Arc<OpenSourceLargeFile>, step: LargeFileNextStep) {
        match step {
            LargeFileNextStep::Wait => {}
            LargeFileNextStep::Commit if file.is_inline_announced() => self.end_committed_file(file.id),
            LargeFileNextStep::Commit => self.commit(file),
            LargeFileNextStep::Abort(reason) => self.abort(file, reason),
        }
    }

    /// Lets the sink commit a file that has arrived completely, unless it has changed since it was opened.
    fn commit(&self, file: &Arc<OpenSourceLargeFile>) {
        let parts = self.files.begin_check(file);
        if parts.is_empty() {
            return;
        }
        let checked = self.request(file.target, |_| file.source.is_unchanged(), may_pass);
        let checked = checked.map_err(SourceError::ReadError);
        if let Some(next) = self.files.end_check(file) {
            self.read_queue.push_errand(ReadWork::Follow(next, LargeFileNextStep::Commit));
        }
        for part in &parts {
            match &checked {
                Ok(true) => self.commit_unchanged(part),
                Ok(false) => self.take_next_step(part, part.abort(FileAbortReason::Changed)),
                Err(error) => {
                    let step = part.abort(FileAbortReason::Reported);
                    self.fail_object(part, true, error.kind(), error, step);
                }
            }
        }
    }

    fn commit_unchanged(&self, file: &OpenSourceLargeFile) {
        file.mark_committed();
        let file_ref = FileReference { id: file.id.0 };
        self.send_message(match file.found.part {
            Some(FilePart::Range(_)) => ControlMessage::ShelveFile(file_ref),
            Some(FilePart::Finish | FilePart::Discard) | None => ControlMessage::CommitFile(file_ref),
        });
    }

    /// Aborts a file at the sink. A file that changed is tried again.
    fn abort(&self, file: &Arc<OpenSourceLargeFile>, reason: FileAbortReason) {
        if self.files.remove(file.id).is_none() {
            return;
        }
        if file.is_announced() {
            self.send_message(ControlMessage::AbandonFile(FileReference { id: file.id.0 }));
        }
        let attempts = file.found.attempts + 1;
        match reason {
            // Other parts of a file belong to its old version.
            FileAbortReason::Changed if attempts < FILE_ATTEMPTS_MAX && file.found.part.is_none() => {
                let work = ReadWork::Open(UnopenedFile {
                    directory: Arc::clone(&file.found.directory),
                    entry: file.found.entry.clone(),
                    attempts,
                    held: None,
                    part: None,
                    chunk: file.found.chunk.clone(),
                });
                self.read_queue.open_again(file.target, work);
            }
            FileAbortReason::Changed => {
                let path = self.source.tree.path(&file.found.directory, &file.found.entry);
                self.fail_path(path, FailureKind::Changed, "it changed while it was read, twice");
                self.end_large_file();
            }
            FileAbortReason::Reported => self.end_large_file(),
        }
    }

    /// Ends a large file that has its name at the sink.
    pub(super) fn end_committed_file(&self, id: FileId) {
        let Some(file) = self.files.remove(id) else { return };
        self.files
            .note_complete(file.report(self.source.tree.path(&file.found.directory, &file.found.entry)));
        self.read_queue.close_file(file);
        self.end_item();
    }

    /// Queues an object that the sink could not use once more, or gives it up. Returns `None` if there was no
    /// such object.
    pub(super) fn reread(&self, object: ObjectId) -> Option<RereadObject> {
        let SettledObject { sent, credits, .. } = self.take_object(object)?;
        let announcement = match &sent {
            SentObject::Object(ObjectWork { file, extent, attempts: 0, .. }) if extent.range.offset == 0 => {
                file.announcement()
            }
            _ => None,
        };
        self.counters.objects_reread.fetch_add(1, Relaxed);
        self.count_returned(sent.work_bytes());
        match sent {
            SentObject::Object(piece) if piece.attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                let piece = ObjectWork { attempts: piece.attempts + 1, ..piece };
                self.read_queue.push(piece.extent.target, ReadWork::Object(piece));
            }
            SentObject::Bundle(target, parcel) if parcel.attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                let parcel = BundleReadWork { attempts: parcel.attempts + 1, ..parcel };
                self.read_queue.push(target, ReadWork::Bundle(parcel));
            }
            // Reporting may wait for the comm thread, which calls this: an I/O thread does it.
            given_up => self.read_queue.push_errand(ReadWork::GiveUp(given_up)),
        }
        Some(RereadObject { credits, announcement })
    }

    /// Takes an object that was acked, or that will not be sent.
    pub(super) fn take_object(&self, object: ObjectId) -> Option<SettledObject> {
        let taken = self.in_flight.take(object)?;
        self.read_queue.release_in_flight(taken.left);
        Some(taken)
    }

    /// Notes that the sink has put an object on flash. Returns false if the sink may not: the object was
    /// never sent, is on flash already, or flash holds its maximum.
    pub(super) fn set_aside_at_sink(&self, object: ObjectId) -> bool {
        let Some(place) = self.in_flight.set_aside(object) else { return false };
        self.read_queue.release_in_flight(place);
        true
    }

    /// Returns the place of an object without an answer, where places are counted.
    pub(super) fn flow_control_key(&self, object: ObjectId) -> Option<ObjectFlowControlKey> {
        self.read_queue.place_if_counted(self.in_flight.flow_control_key(object))
    }

    /// Withdraws an object that has not left: it is read again.
    pub(super) fn withdraw(&self, object: ObjectId) {
        self.in_flight.withdraw();
        self.reread(object);
    }

    pub(super) fn give_up(&self, sent: SentObject) {
        let detail = "the object arrived damaged every time";
        match sent {
            SentObject::Object(ObjectWork { file, .. }) => {
                let (is_first, step) = file.end_lost_object(FileAbortReason::Reported);
                self.fail_object(&file, is_first, FailureKind::Corrupt, detail, step);
            }
            SentObject::Bundle(_, parcel) => {
                for section in &parcel.bundle.sections {
                    // The bundle was to make the directory: nothing else may tell of an empty one.
                    if section.metadata.is_some() || section.entries.is_empty() {
                        let path = self.source.tree.directory_path(&section.directory);
                        self.fail_path(path, FailureKind::Corrupt, detail);
                    }
                    for entry in &section.entries {
                        let path = self.source.tree.path(&section.directory, entry);
                        self.fail_path(path, FailureKind::Corrupt, detail);
                    }
                }
                self.end_item();
            }
        }
    }
}
