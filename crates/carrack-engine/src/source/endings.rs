//! How bundles and large files come to their end: committed, tried again, given up.
//!
//! Runs on I/O threads, which may wait for the comm thread; [`Lane::reread`] and [`Lane::large_file_ended`] are
//! called by the comm thread too and only queue work.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::limits::{FILE_ATTEMPTS_MAX, OBJECT_ATTEMPTS_MAX, SPILLED_OBJECTS_MAX};
use carrack_model::{FailureKind, ObjectId};
use carrack_storage::SourceError;
use carrack_wire::message::{Control, FileRef, OpenFile};

use super::chunks::FilePart;
use super::flow::Place;
use super::lane::Lane;
use super::large_file::{Doom, LargeFile, Step};
use super::queue::{Job, Opening, Parcel, Piece, Posted, Sent};

/// An object that has to be read again.
pub(super) struct Reread {
    /// Credits that come with the answer.
    pub(super) credits: u64,
    /// The object was to announce its file, which takes a message now: other objects of it may wait for that in all of the sink's
    /// slots.
    pub(super) announcement: Option<OpenFile>,
}

impl Lane<'_> {
    /// An object, and with it its file, is lost; the first loss is reported.
    pub(super) fn lost(
        &self,
        file: &Arc<LargeFile>,
        is_first: bool,
        kind: FailureKind,
        detail: impl ToString,
        step: Step,
    ) {
        if is_first {
            self.fail_path(self.source.path(&file.directory, &file.entry), kind, detail);
        }
        self.follow(file, step);
    }

    /// Does what comes next for a file. Not for the comm thread.
    pub(super) fn follow(&self, file: &Arc<LargeFile>, step: Step) {
        match step {
            Step::Wait => {}
            Step::Settle if file.is_by_itself() => self.file_ended(file),
            Step::Settle => self.settle(file),
            Step::Abandon(doom) => self.abandon(file, doom),
        }
    }

    /// Everything is at the sink. If the file is still what was opened, the sink may rename it.
    fn settle(&self, file: &Arc<LargeFile>) {
        match file.source.is_unchanged() {
            Ok(true) => {
                file.commit();
                let file_ref = FileRef { id: file.id.0 };
                self.say(match file.part {
                    Some(FilePart::Range(_)) => Control::ShelveFile(file_ref),
                    Some(FilePart::Finish | FilePart::Discard) | None => Control::CommitFile(file_ref),
                });
            }
            Ok(false) => {
                let step = file.doom(Doom::Changed);
                self.follow(file, step);
            }
            Err(error) => {
                let error = SourceError::ReadError(error);
                let step = file.doom(Doom::Reported);
                self.lost(file, true, error.kind(), error, step);
            }
        }
    }

    /// Takes a doomed file back from the sink; one that changed is tried again.
    fn abandon(&self, file: &Arc<LargeFile>, doom: Doom) {
        if self.files().remove(&file.id).is_none() {
            return;
        }
        if file.is_announced() {
            self.say(Control::AbandonFile(FileRef { id: file.id.0 }));
        }
        let attempts = file.attempts + 1;
        match doom {
            // Of a file in parts the others are of what it was.
            Doom::Changed if attempts < FILE_ATTEMPTS_MAX && file.part.is_none() => {
                let job = Job::Open(Opening {
                    directory: Arc::clone(&file.directory),
                    entry: file.entry.clone(),
                    attempts,
                    held: None,
                    part: None,
                    chunk: file.chunk.clone(),
                });
                self.queue.release_many(2, |queue| {
                    queue.return_permit();
                    queue.push(file.target, job);
                });
            }
            Doom::Changed => {
                let path = self.source.path(&file.directory, &file.entry);
                self.fail_path(path, FailureKind::Changed, "it changed while it was read, twice");
                self.large_file_ended();
            }
            Doom::Reported => self.large_file_ended(),
        }
    }

    /// A large file has its name at the sink.
    pub(super) fn file_ended(&self, file: &Arc<LargeFile>) {
        if self.files().remove(&file.id).is_some() {
            self.slowest().note(self.source, file);
            self.large_file_ended();
        }
    }

    /// A large file has come to its end, whatever that was.
    pub(super) fn large_file_ended(&self) {
        self.return_permit();
        self.one_less_pending();
    }

    /// A large file may be opened in place of one that is not open any more.
    pub(super) fn return_permit(&self) {
        self.queue.release(|queue| queue.return_permit());
    }

    /// The sink could not use an object as it arrived: it is read again, or given up.
    ///
    /// Nothing if there was no such object.
    pub(super) fn reread(&self, object: ObjectId) -> Option<Reread> {
        let posted = self.take_posted(object)?;
        let (credits, sent) = (posted.credits(), posted.sent);
        let announcement = match &sent {
            Sent::Object(Piece { file, extent, attempts: 0, .. }) if extent.range.offset == 0 => {
                file.announcement()
            }
            _ => None,
        };
        self.counters.objects_reread.fetch_add(1, Relaxed);
        self.returned(sent.work_bytes());
        match sent {
            Sent::Object(piece) if piece.attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                let piece = Piece { attempts: piece.attempts + 1, ..piece };
                self.queue.release(|queue| queue.push(piece.extent.target, Job::Object(piece)));
            }
            Sent::Bundle(target, parcel) if parcel.attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                let parcel = Parcel { attempts: parcel.attempts + 1, ..parcel };
                self.queue.release(|queue| queue.push(target, Job::Bundle(parcel)));
            }
            // Reporting may wait for the comm thread, which calls this: left to an I/O thread.
            given_up => self.queue.release(|queue| queue.push_errand(Job::GiveUp(given_up))),
        }
        Some(Reread { credits, announcement })
    }

    /// An object that was sent has been answered, or will not be: what it was.
    pub(super) fn take_posted(&self, object: ObjectId) -> Option<Posted> {
        let posted = self.sent().remove(&object)?;
        if posted.is_set_aside {
            self.set_aside.fetch_sub(1, Relaxed);
        } else {
            self.arrived(posted.sent.place());
        }
        Some(posted)
    }

    /// The sink has put an object on flash; whether it may: it was sent, is in a slot there, and not too many are on flash.
    pub(super) fn set_aside_at_sink(&self, object: ObjectId) -> bool {
        let place = match self.sent().get_mut(&object) {
            Some(posted) if !posted.is_set_aside => {
                posted.is_set_aside = true;
                posted.sent.place()
            }
            _ => return false,
        };
        self.arrived(place);
        self.set_aside.fetch_add(1, Relaxed) < SPILLED_OBJECTS_MAX
    }

    /// An object has come to its end, or will not be sent: there is room for another where it went.
    pub(super) fn arrived(&self, place: Option<Place>) {
        if let Some(place) = place.filter(|_| self.source.counts_flow) {
            self.queue.release(|queue| queue.arrived(place));
        }
    }

    /// Where an object that was not answered yet goes, if that matters.
    pub(super) fn place_of(&self, object: ObjectId) -> Option<Place> {
        self.sent().get(&object).and_then(|posted| posted.sent.place()).filter(|_| self.source.counts_flow)
    }

    pub(super) fn give_up(&self, sent: Sent) {
        let detail = "the object arrived damaged every time";
        match sent {
            Sent::Object(Piece { file, .. }) => {
                let (is_first, step) = file.lost_one(Doom::Reported);
                self.lost(&file, is_first, FailureKind::Corrupt, detail, step);
            }
            Sent::Bundle(_, parcel) => {
                for section in &parcel.bundle.sections {
                    for entry in &section.entries {
                        let path = self.source.path(&section.directory, entry);
                        self.fail_path(path, FailureKind::Corrupt, detail);
                    }
                }
                self.one_less_pending();
            }
        }
    }
}
