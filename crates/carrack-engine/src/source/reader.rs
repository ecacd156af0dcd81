//! An I/O thread of the source: takes work, leases a slot, reads into it, makes the check, and posts the object.
//!
//! When nobody is ahead the same thread sends it too (see [`super::outbox`]), while its cache still holds the bytes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use carrack_machine::Slot;
use carrack_model::limits::{FILE_ATTEMPTS_MAX, OBJECT_ATTEMPTS_MAX};
use carrack_model::{
    Checksum, Directory, Entry, EntryKind, FailureKind, FileId, ObjectId, Section, TargetId,
};
use carrack_plan::{Bundle, FileCursor, ObjectExtent, SingleTarget};
use carrack_storage::{Expected, SmallFile, SourceError, SourceFile, read_small};
use carrack_transport::{Outgoing, Patience, SendState};
use carrack_wire::message::{Control, FileRef, OpenFile};
use carrack_wire::{FrameHeader, FrameKind, TableWriter};

use super::large_file::{Doom, LargeFile, Step};
use super::outbox::Departure;
use super::queue::{Job, Sent};
use super::{Letter, Source};
use crate::check::{bundle_check, object_check};
use crate::counters::Stage;
use crate::error::SessionError;

/// Direct I/O wants lengths in multiples of this; slots are.
const DIRECT_ALIGN: usize = 4096;

/// Works until the session ends.
pub(super) fn run(source: &Source<'_>) {
    let mut reader = Reader { source, table: Vec::new() };
    loop {
        let taken = source.counters.time(Stage::Idle, || source.queue.take(|queue| queue.take()));
        let Ok((target, job)) = taken else { return };
        // A cursor that was put back, or simply more work: the next waiter may go on.
        source.queue.release(|_| ());
        if job.is_fresh() {
            source.room.release(|room| *room += 1);
        }
        // An error here is a closed monitor (the session ends) or a broken endpoint.
        if let Err(error) = reader.work(target, job) {
            source.raise(error);
            return;
        }
        source.queue.release(|queue| queue.finished(target));
    }
}

struct Reader<'a> {
    source: &'a Source<'a>,
    /// The entry table of the bundle in the making.
    table: Vec<u8>,
}

impl Reader<'_> {
    fn work(&mut self, target: TargetId, job: Job) -> Result<(), SessionError> {
        match job {
            Job::Bundle(bundle, attempts) => self.bundle(target, bundle, attempts),
            Job::Open { directory, entry, attempts } => {
                self.open(target, directory, entry, attempts);
                Ok(())
            }
            Job::Object(file, extent, attempts) => self.object(file, extent, attempts),
            Job::Cursor(file, _) => {
                let step = file.cursor_ended();
                self.source.follow(&file, step);
                Ok(())
            }
            Job::Follow(file, step) => {
                self.source.follow(&file, step);
                Ok(())
            }
            Job::GiveUp(sent) => {
                self.source.give_up(sent);
                Ok(())
            }
        }
    }

    fn lease(&self) -> Result<Slot, SessionError> {
        let leased = self.source.counters.time(Stage::Blocked, || self.source.pool.lease());
        leased.map_err(|_| SessionError::PeerGone)
    }

    /// Sends an object, or leaves it to whoever drives an endpoint next.
    fn post(&self, header: FrameHeader, slot: Slot, sent: Sent) -> Result<(), SessionError> {
        self.source.sent().insert(header.object, sent);
        let departure = self.source.outbox.bring(Outgoing { header, slot });
        if self.source.outbox.uses_link {
            self.source.mail.wake();
        }
        self.source.counters.time(Stage::Network, || self.drive(departure))
    }

    /// Drives an endpoint as long as objects are ready for it; one whose peer does not keep up goes to comm.
    fn drive(&self, mut departure: Option<Departure>) -> Result<(), SessionError> {
        while let Some((mut endpoint, outgoing)) = departure {
            // An idle endpoint takes an object; that is what idle means.
            let refused = endpoint.post(outgoing).is_err();
            debug_assert!(!refused);
            if endpoint.advance(Patience::Brief)? == SendState::Busy {
                let _ = self.source.mail.post(Letter::Drive(endpoint));
                return Ok(());
            }
            departure = self.source.outbox.next_for(endpoint);
        }
        Ok(())
    }

    // Bundles: many small files in one object (M7).

    fn bundle(&mut self, target: TargetId, bundle: Bundle, attempts: u32) -> Result<(), SessionError> {
        let mut slot = self.lease()?;
        let source = self.source;
        let (content_len, table_len) =
            source.counters.time(Stage::Storage, || self.fill_bundle(target, &bundle, slot.bytes_mut()));
        let body_len = content_len + table_len;
        let header = FrameHeader {
            kind: FrameKind::Bundle,
            body_len: body_len as u32,
            object: source.next_object(),
            file: FileId(0),
            offset: 0,
            table_len: table_len as u32,
            check: bundle_check(source.spec.checksum, &slot.bytes()[..body_len], table_len),
        };
        self.post(header, slot, Sent::Bundle(target, bundle, attempts))
    }

    /// Reads the bundle's files into the slot, their table behind them; returns the bytes of both.
    fn fill_bundle(&mut self, target: TargetId, bundle: &Bundle, slot: &mut [u8]) -> (usize, usize) {
        self.table.clear();
        let mut filling =
            BundleFilling { source: self.source, target, slot, used: 0, table_room: bundle.table_bytes };
        for section in &bundle.sections {
            filling.section(section, &mut self.table);
        }
        let used = filling.used;
        let table_len = self.table.len();
        slot[used..used + table_len].copy_from_slice(&self.table);
        (used, table_len)
    }

    // Large files.

    fn open(&self, target: TargetId, directory: Arc<Directory>, entry: Entry, attempts: u32) {
        let source = self.source;
        match source.counters.time(Stage::Storage, || self.open_source(&directory, &entry)) {
            Ok(file) if file.stamp().size == 0 => self.open_as_bundle(target, directory, entry),
            Ok(file) => self.announce(target, directory, entry, file, attempts),
            Err(error) => {
                let path = source.path(&directory, &entry);
                source.fail_path(path, error.kind(), error);
                source.large_file_ended();
            }
        }
    }

    fn open_source(&self, directory: &Directory, entry: &Entry) -> Result<SourceFile, SourceError> {
        let held = self.source.open_directory(directory)?;
        let follow = self.source.follows(directory.root_index);
        SourceFile::open(held.as_fd(), entry.name_at_source(), follow, self.source.settings.source_io)
    }

    /// The file is empty by now: no object would carry it, but a bundle does.
    fn open_as_bundle(&self, target: TargetId, directory: Arc<Directory>, mut entry: Entry) {
        entry.kind = EntryKind::Regular { size: 0 };
        let section = Section { directory, metadata: None, entries: vec![entry] };
        let table_bytes = carrack_plan::section_table_bytes(&section.directory)
            + section.entries.iter().map(carrack_plan::entry_table_bytes).sum::<usize>();
        let bundle = Bundle { sections: vec![section], content_bytes: 0, table_bytes, entry_count: 1 };
        self.source.permits.release(|permits| *permits += 1);
        self.source.queue.release(|queue| queue.push(target, Job::Bundle(bundle, 1)));
    }

    fn announce(
        &self,
        target: TargetId,
        directory: Arc<Directory>,
        mut entry: Entry,
        file: SourceFile,
        attempts: u32,
    ) {
        let source = self.source;
        let size = file.stamp().size;
        entry.kind = EntryKind::Regular { size };
        entry.metadata = file.metadata();
        let mut table = Vec::new();
        let mut writer = TableWriter::new(&mut table);
        writer.section(&directory.sink, None);
        writer.regular(&entry.name, size, &entry.metadata, None);
        let object_bytes = source.targets.object_bytes(target, source.spec.slot_bytes);

        // Ids reach the sink in rising order: taken and said under one lock, which the comm thread never takes.
        let mut next_id = source.next_file.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next_id;
        *next_id = FileId(id.0 + 1);
        let large = Arc::new(LargeFile::new(id, directory, entry, file, target, attempts));
        source.files().insert(id, Arc::clone(&large));
        source.say(Control::OpenFile(OpenFile { id: id.0, table }));
        drop(next_id);
        let cursor = FileCursor::new(id, size, Arc::new(SingleTarget { target }), object_bytes);
        source.queue.release(|queue| queue.push(target, Job::Cursor(large, cursor)));
    }

    fn object(&self, file: Arc<LargeFile>, extent: ObjectExtent, attempts: u32) -> Result<(), SessionError> {
        let mut slot = self.lease()?;
        let source = self.source;
        let len = extent.range.len as usize;
        let read = source.counters.time(Stage::Storage, || {
            let wanted = if file.source.is_direct() { len.next_multiple_of(DIRECT_ALIGN) } else { len };
            let got = file.source.read_at(&mut slot.bytes_mut()[..wanted], extent.range.offset)?;
            let check = (got >= len).then(|| {
                object_check(source.spec.checksum, extent.range, &slot.bytes()[..len], file.entry.size())
            });
            Ok(check)
        });
        let check = match read {
            Ok(Some(Ok(check))) => check.value,
            Ok(Some(Err(error))) => {
                let (first, step) = file.lost_one(Doom::Reported);
                source.lost(&file, first, FailureKind::ReadError, error, step);
                return Ok(());
            }
            Ok(None) => {
                let (_, step) = file.lost_one(Doom::Changed);
                source.follow(&file, step);
                return Ok(());
            }
            Err(error) => {
                let error = SourceError::ReadError(error);
                let (first, step) = file.lost_one(Doom::Reported);
                source.lost(&file, first, error.kind(), error, step);
                return Ok(());
            }
        };
        let header = FrameHeader {
            kind: FrameKind::Object,
            body_len: len as u32,
            object: source.next_object(),
            file: file.id,
            offset: extent.range.offset,
            table_len: 0,
            check,
        };
        self.post(header, slot, Sent::Object(file, extent, attempts))
    }
}

/// A slot that is being filled with the files of a bundle.
struct BundleFilling<'a> {
    source: &'a Source<'a>,
    target: TargetId,
    slot: &'a mut [u8],
    /// Bytes of content so far.
    used: usize,
    /// Bytes at the slot's end that the table may need.
    table_room: usize,
}

impl BundleFilling<'_> {
    fn section(&mut self, section: &Section, table: &mut Vec<u8>) {
        let directory = &section.directory;
        TableWriter::new(table).section(&directory.sink, section.metadata.as_ref());
        let has_files = section.entries.iter().any(|entry| matches!(entry.kind, EntryKind::Regular { .. }));
        let held = if has_files { Some(self.source.open_directory(directory)) } else { None };
        for entry in &section.entries {
            match (&entry.kind, &held) {
                (EntryKind::Symlink { target }, _) => {
                    TableWriter::new(table).symlink(&entry.name, target, &entry.metadata);
                }
                (EntryKind::Regular { .. }, Some(Ok(held))) => self.file(directory, held, entry, table),
                (EntryKind::Regular { .. }, Some(Err(error))) => {
                    self.source.fail_path(self.source.path(directory, entry), error.kind(), error);
                }
                // `held` is there whenever the section has files.
                (EntryKind::Regular { .. }, None) => {}
            }
        }
    }

    fn file(&mut self, directory: &Arc<Directory>, held: &OwnedFd, entry: &Entry, table: &mut Vec<u8>) {
        match self.read(directory, held, entry) {
            Ok(Some(file)) => {
                let content = &self.slot[self.used..self.used + file.size];
                let digest = (self.source.spec.checksum == Checksum::Blake3).then(|| blake3::hash(content));
                let digest = digest.as_ref().map(blake3::Hash::as_bytes);
                TableWriter::new(table).regular(&entry.name, file.size as u64, &file.metadata, digest);
                self.used += file.size;
            }
            Ok(None) => self.postpone(directory, entry),
            Err(error) => self.source.fail_path(self.source.path(directory, entry), error.kind(), error),
        }
    }

    /// Reads one file behind the others, twice if it changed; nothing if it no longer fits.
    fn read(
        &mut self,
        directory: &Directory,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Result<Option<SmallFile>, SourceError> {
        let follow = self.source.follows(directory.root_index);
        let end = self.slot.len() - self.table_room;
        let room = &mut self.slot[self.used..end];
        let mut expected = Expected::from(entry);
        for _ in 1..FILE_ATTEMPTS_MAX {
            match read_small(held.as_fd(), entry.name_at_source(), follow, expected, room) {
                Err(SourceError::Changed { size, mtime }) => expected = Expected { size, mtime },
                answer => return answer.map(Some),
            }
            if expected.size >= room.len() as u64 {
                return Ok(None);
            }
        }
        read_small(held.as_fd(), entry.name_at_source(), follow, expected, room).map(Some)
    }

    /// The file has grown beyond what is left of the slot: it travels by itself.
    fn postpone(&self, directory: &Arc<Directory>, entry: &Entry) {
        let source = self.source;
        source.pending.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        // One permit more than planned: waiting for one here could wait for oneself.
        source.permits.with(|permits| *permits -= 1);
        let job = Job::Open { directory: Arc::clone(directory), entry: entry.clone(), attempts: 1 };
        source.queue.release(|queue| queue.push(self.target, job));
    }
}

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
    fn lost(
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
    fn follow(&self, file: &Arc<LargeFile>, step: Step) {
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
        self.permits.release(|permits| *permits += 1);
        self.one_less_pending();
    }

    /// The sink could not use an object as it arrived: it is read again, or given up.
    pub(super) fn reread(&self, object: ObjectId) {
        let Some(sent) = self.sent().remove(&object) else { return };
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
    }

    fn give_up(&self, sent: Sent) {
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
