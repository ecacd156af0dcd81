//! How bundles and large files come to their end: committed, tried again, given up.
//!
//! Runs on I/O threads, which may wait for the comm thread; [`Source::reread`] and [`Source::large_file_ended`] are
//! called by the comm thread too and only queue work.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use carrack_model::limits::{FILE_ATTEMPTS_MAX, OBJECT_ATTEMPTS_MAX};
use carrack_model::{Directory, Entry, FailureKind, ObjectId, TargetId};
use carrack_storage::SourceError;
use carrack_wire::message::{Control, FileRef};

use super::Source;
use super::large_file::{Doom, LargeFile, Step};
use super::queue::{Job, Sent, take_one};

impl Source<'_> {
    pub(super) fn open_directory(&self, directory: &Directory) -> Result<OwnedFd, SourceError> {
        let root = &self.roots[directory.root_index as usize].root;
        root.open_directory(&directory.source).map_err(SourceError::of_directory)
    }

    /// The path as the user knows it.
    pub(super) fn path(&self, directory: &Directory, entry: &Entry) -> Box<[u8]> {
        self.roots[directory.root_index as usize].root.full_path(&directory.source, entry.name_at_source())
    }

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
            self.fail_path(self.path(&file.directory, &file.entry), kind, detail);
        }
        self.follow(file, step);
    }

    /// Does what comes next for a file. Not for the comm thread.
    pub(super) fn follow(&self, file: &Arc<LargeFile>, step: Step) {
        match step {
            Step::Wait => {}
            Step::Settle => self.settle(file),
            Step::Abandon(doom) => self.abandon(file, doom),
        }
    }

    /// Everything is at the sink. If the file is still what was opened, the sink may rename it.
    fn settle(&self, file: &Arc<LargeFile>) {
        match file.source.is_unchanged() {
            Ok(true) => {
                file.commit();
                self.say(Control::CommitFile(FileRef { id: file.id.0 }));
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
        self.say(Control::AbandonFile(FileRef { id: file.id.0 }));
        let attempts = file.attempts + 1;
        match doom {
            Doom::Changed if attempts < FILE_ATTEMPTS_MAX => {
                let (directory, entry) = (Arc::clone(&file.directory), file.entry.clone());
                let job = Job::Open { directory, entry, attempts };
                self.queue.release(|queue| queue.push(file.target, job));
            }
            Doom::Changed => {
                let path = self.path(&file.directory, &file.entry);
                self.fail_path(path, FailureKind::Changed, "it changed while it was read, twice");
                self.large_file_ended();
            }
            Doom::Reported => self.large_file_ended(),
        }
    }

    /// A large file has come to its end, whatever that was.
    pub(super) fn large_file_ended(&self) {
        self.return_permit();
        self.one_less_pending();
    }

    /// A large file may be opened in place of one that is not open any more; those that wait here go first.
    pub(super) fn return_permit(&self) {
        let mut postponed = self.postponed();
        match postponed.pop_front() {
            Some((target, job)) => self.queue.release(|queue| queue.push(target, job)),
            None => self.permits.release(|permits| *permits += 1),
        }
    }

    /// Queues the opening of a file that turned out to be large, now or when another has come to its end. An I/O
    /// thread must not wait for that itself: it may be needed for the other's end.
    pub(super) fn open_when_permitted(&self, target: TargetId, job: Job) {
        let mut postponed = self.postponed();
        match self.permits.try_take(take_one) {
            Some(()) => self.queue.release(|queue| queue.push(target, job)),
            None => postponed.push_back((target, job)),
        }
    }

    /// The sink could not use an object as it arrived: it is read again, or given up.
    ///
    /// False if there was no such object.
    pub(super) fn reread(&self, object: ObjectId) -> bool {
        let Some(sent) = self.sent().remove(&object) else { return false };
        self.counters.objects_reread.fetch_add(1, Relaxed);
        match sent {
            Sent::Object(file, extent, attempts) if attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                let target = file.target;
                self.queue.release(|queue| queue.push(target, Job::Object(file, extent, attempts + 1)));
            }
            Sent::Bundle(target, bundle, attempts) if attempts + 1 < OBJECT_ATTEMPTS_MAX => {
                self.queue.release(|queue| queue.push(target, Job::Bundle(bundle, attempts + 1)));
            }
            // Reporting may wait for the comm thread, which calls this: left to an I/O thread.
            given_up => {
                let target = given_up.target();
                self.queue.release(|queue| queue.push(target, Job::GiveUp(given_up)));
            }
        }
        true
    }

    pub(super) fn give_up(&self, sent: Sent) {
        let detail = "the object arrived damaged every time";
        match sent {
            Sent::Object(file, ..) => {
                let (is_first, step) = file.lost_one(Doom::Reported);
                self.lost(&file, is_first, FailureKind::Corrupt, detail, step);
            }
            Sent::Bundle(_, bundle, _) => {
                for section in &bundle.sections {
                    for entry in &section.entries {
                        let path = self.path(&section.directory, entry);
                        self.fail_path(path, FailureKind::Corrupt, detail);
                    }
                }
                self.one_less_pending();
            }
        }
    }
}
