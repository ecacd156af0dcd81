//! One large file at the sink: announced by the comm thread, created by the I/O thread that brings its first object,
//! written by many, renamed when whole.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use carrack_journal::{DigestError, FileDigest, Partial, Subtree};
use carrack_model::{ByteRange, Entry, FileId, PartialRange, RangeSet, RelPath, TargetId};
use carrack_plan::Layout;
use carrack_storage::{GrowingFile, GrowingSpec, Root, SinkError, StripeOutcome};
use carrack_wire::message::{Coming, OpenFile, Stripes};
use carrack_wire::{decode_section, ranges_from_message};

use super::lane::Lane;
use super::line::Line;
use super::siblings::version_of;
use super::storage::stripe_for;
use super::writer::Checked;
use crate::error::SessionError;

/// What the journal has to know of a large file, which may be closed by then.
pub(super) struct FileRecord {
    /// Its entry table, as it was announced.
    pub(super) table: Vec<u8>,
    pub(super) directory: RelPath,
    /// Whether the journal knows it.
    is_begun: AtomicBool,
}

impl FileRecord {
    /// Whether the journal knows it.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Relaxed)
    }
}

/// A file between its announcement and its end. Dropping it takes the temporary name away, unless something of it is recorded.
pub(super) struct SinkFile {
    pub(super) id: u64,
    /// By which the journal knows it.
    pub(super) number: u64,
    pub(super) record: Arc<FileRecord>,
    pub(super) entry: Entry,
    growing: OnceLock<Result<GrowingFile, SinkError>>,
    digest: Mutex<FileDigest>,
    /// How it is striped at the source.
    stripes: Option<Stripes>,
    layout: OnceLock<Arc<dyn Layout>>,
    /// Objects for which another thread is writing.
    pub(super) line: Line<Checked>,
    /// What an earlier session left of it.
    past: Option<Partial>,
    /// What of it was there when it was announced, or is for others to bring.
    there: RangeSet,
    /// What comes of it, if a part of a file is copied: what stands there keeps its other bytes.
    part: Option<ByteRange>,
    /// Where it is to have holes, which don't come; of a part only its own.
    holes: RangeSet,
    /// Whether others bring something of it.
    is_part: bool,
    /// It has holes, and nothing of it was brought before: it is made if need be, also if nothing comes.
    makes_file: bool,
    /// Bytes that were not what was written when they were read again, since they were last asked for.
    damage: Mutex<RangeSet>,
    /// Whether there ever were any.
    was_damaged: AtomicBool,
    /// Bytes that were written, of a file by itself.
    written_bytes: AtomicU64,
    /// Bytes of it that were counted as copied; nothing once it is given up.
    counted_bytes: Mutex<Option<u64>>,
}

impl SinkFile {
    /// From the table of an open-file message; `part` is what is copied of it. Touches no storage.
    pub(super) fn announced(
        message: &OpenFile,
        number: u64,
        part: Option<PartialRange>,
    ) -> Result<SinkFile, SessionError> {
        let mut section = decode_section(&message.table)?;
        let (Some(entry), true) = (section.entries.pop(), section.entries.is_empty()) else {
            return Err(SessionError::Protocol("an open-file message is about one file".into()));
        };
        if entry.size() == 0 || entry.extras.as_ref().is_some_and(|extras| extras.same_as.is_some()) {
            return Err(SessionError::Protocol("an empty file or a link announced as a large file".into()));
        }
        let directory = section.directory.sink.clone();
        let digest = Mutex::new(FileDigest::new(entry.size()));
        let holes = ranges_from_message(&message.holes, entry.size())?;
        let is_plain = message.coming.is_none() && !message.goes_on && holes.is_empty();
        let part = part.map(|part| {
            let range = part.range_in(entry.size()).filter(|range| range.end() == Some(entry.size()));
            range.ok_or_else(|| SessionError::Protocol("a file that is not the part that is copied".into()))
        });
        let part = part.transpose()?;
        if FileId(message.id).is_by_itself() && (!is_plain || part.is_some()) {
            return Err(SessionError::Protocol("a file by itself of which not all comes".into()));
        }
        Ok(SinkFile {
            id: message.id,
            number,
            record: Arc::new(FileRecord {
                table: message.table.clone(),
                directory,
                is_begun: AtomicBool::new(false),
            }),
            entry,
            growing: OnceLock::new(),
            digest,
            stripes: message.stripes.clone(),
            layout: OnceLock::new(),
            line: Line::default(),
            past: None,
            there: RangeSet::new(),
            part,
            holes,
            is_part: false,
            makes_file: false,
            damage: Mutex::default(),
            was_damaged: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
            counted_bytes: Mutex::new(Some(0)),
        })
    }

    /// Goes on with what an earlier session left of it.
    pub(super) fn going_on(mut self, past: Partial) -> Result<SinkFile, DigestError> {
        self.add_subtrees(&past.subtrees)?;
        self.number = past.number;
        self.record.is_begun.store(true, Relaxed);
        self.past = Some(past);
        Ok(self)
    }

    /// What of it was there when it was announced, is a hole, or is for others to bring.
    pub(super) fn held(&self) -> RangeSet {
        let mut held = self.past.as_ref().map_or_else(|| self.there.clone(), |past| past.held.clone());
        let before = self.part.map(|part| ByteRange::new(0, part.offset));
        for hole in self.holes.iter().chain(before) {
            held.cover(hole);
        }
        held
    }

    /// Bytes that it has without their coming.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.holes.covered_bytes()
    }

    /// Several sessions carry the transfer, and this is what comes of the file in this one.
    pub(super) fn sharing(mut self, coming: Option<&Coming>) -> Result<SinkFile, SessionError> {
        if let Some(Coming { ranges, is_part, makes_file }) = coming {
            let size = self.entry.size();
            self.there = ranges_from_message(ranges, size)?.missing_of(size);
            self.is_part = *is_part;
            self.makes_file = *makes_file;
        }
        Ok(self)
    }

    /// Notes bytes that count as copied; false if the file was given up.
    pub(super) fn count_bytes(&self, bytes: u64) -> bool {
        let mut counted = self.counted_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        counted.as_mut().map(|counted| *counted += bytes).is_some()
    }

    /// Takes back bytes that have to be copied once more; returns those that were counted.
    pub(super) fn uncount_bytes(&self, bytes: u64) -> u64 {
        let mut counted = self.counted_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(counted) = counted.as_mut() else { return 0 };
        let taken = bytes.min(*counted);
        *counted -= taken;
        taken
    }

    /// The file is given up: takes back all bytes that were counted, and counts none from now on.
    pub(super) fn uncount_all(&self) -> u64 {
        let counted = self.counted_bytes.lock().unwrap_or_else(PoisonError::into_inner).take();
        counted.unwrap_or(0)
    }

    /// Whether it gets its name as soon as it is whole, without another word.
    pub(super) fn is_by_itself(&self) -> bool {
        FileId(self.id).is_by_itself()
    }

    /// So many bytes of a file by itself were written; whether that was the last of it.
    pub(super) fn is_all_written(&self, bytes: u64) -> bool {
        self.written_bytes.fetch_add(bytes, AcqRel) + bytes == self.entry.size()
    }

    /// Whether others bring something of it.
    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Whether nothing of it comes.
    fn is_there(&self) -> bool {
        self.there.is_whole(self.entry.size())
    }

    /// The file under its temporary name; created by the first caller, who learns too why it is not striped as wished.
    pub(super) fn growing(
        &self,
        root: &Root,
        lane: &Lane<'_>,
        created: impl FnOnce(&GrowingFile, Option<&str>),
    ) -> Result<&GrowingFile, &SinkError> {
        let create = || {
            let (growing, outcome) = lane.with_access(self.directory(), || self.create(root, lane))?;
            match outcome {
                StripeOutcome::Refused(why) => created(&growing, Some(&why)),
                StripeOutcome::Default | StripeOutcome::Set => created(&growing, None),
            }
            Ok(growing)
        };
        self.growing.get_or_init(create).as_ref()
    }

    fn create(&self, root: &Root, lane: &Lane<'_>) -> Result<(GrowingFile, StripeOutcome), SinkError> {
        let held = lane.make_directory(root, self.directory())?;
        let folding = lane.sink.folding(held.as_fd(), self.directory())?;
        lane.sink.claim(folding.as_ref(), held.as_fd(), self.directory(), &self.entry.name)?;
        lane.check_way(held.as_fd(), &self.entry.name)?;
        let storage = &lane.sink.storage;
        let found = match storage.is_one_file_system() {
            true => None,
            false => storage.file_systems().of(held.as_fd()).ok(),
        };
        let file_system = found.as_deref().unwrap_or(storage.own());
        let size = self.entry.size();
        let stripe = stripe_for(&lane.sink.spec.stripe, self.stripes.as_ref(), size);
        let part_offset = self.part.map(|part| part.offset);
        let spec = GrowingSpec { part_offset, ..storage.growing(file_system, size, &stripe) };
        let created = match &self.past {
            None if lane.sink.siblings.is_some() => self.share(held, lane, spec)?,
            Some(past) => (self.resume(held, past, spec)?, StripeOutcome::Default),
            None => GrowingFile::create(held, &self.entry.name, spec, &lane.sink.scratch)?,
        };
        if storage.has_targets() {
            // Nobody else creates the file: the layout is set once.
            let _ = self.layout.set(file_system.layout_of(created.0.descriptor(), size).layout);
        }
        Ok(created)
    }

    /// What comes no more has to be there.
    fn share(
        &self,
        directory: OwnedFd,
        lane: &Lane<'_>,
        spec: GrowingSpec<'_>,
    ) -> Result<(GrowingFile, StripeOutcome), SinkError> {
        let name = &self.entry.name;
        let temporary = lane.sink.scratch.shared_name(name, version_of(&self.entry));
        if !self.is_there() || self.makes_file {
            return GrowingFile::share(directory, name, &temporary, spec);
        }
        let found = GrowingFile::resume(directory, name, &temporary, 0, spec)?;
        let growing = found.ok_or(SinkError::Vanished)?;
        growing.keep(true);
        Ok((growing, StripeOutcome::Default))
    }

    fn resume(
        &self,
        directory: OwnedFd,
        past: &Partial,
        spec: GrowingSpec<'_>,
    ) -> Result<GrowingFile, SinkError> {
        let end = past.held.iter().last().and_then(ByteRange::end).unwrap_or(0);
        let found = GrowingFile::resume(directory, &self.entry.name, &past.temporary, end, spec)?;
        let growing = found.ok_or(SinkError::Vanished)?;
        growing.keep(true);
        Ok(growing)
    }

    /// The file under its temporary name, if it was created.
    pub(super) fn grown(&self) -> Option<&GrowingFile> {
        self.growing.get().and_then(|growing| growing.as_ref().ok())
    }

    /// The directory that it goes to.
    pub(super) fn directory(&self) -> &RelPath {
        &self.record.directory
    }

    /// Whether the journal knows it.
    pub(super) fn is_begun(&self) -> bool {
        self.record.is_begun()
    }

    /// The journal knows it: it stays for a later session.
    pub(super) fn is_recorded(&self) {
        self.record.is_begun.store(true, Relaxed);
        if let Some(growing) = self.grown() {
            growing.keep(true);
        }
    }

    /// It is of no use to anybody.
    pub(super) fn forsake(&self) {
        if let Some(growing) = self.grown() {
            growing.keep(false);
        }
    }

    fn damage(&self) -> MutexGuard<'_, RangeSet> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Read again, these bytes were not what was written.
    pub(super) fn note_damage(&self, range: ByteRange) {
        self.was_damaged.store(true, Relaxed);
        self.damage().insert(range);
    }

    /// What has to be written once more.
    pub(super) fn take_damage(&self) -> RangeSet {
        std::mem::take(&mut *self.damage())
    }

    /// Where it lies, once it is created, if that matters.
    pub(super) fn layout(&self) -> Option<&Arc<dyn Layout>> {
        self.layout.get()
    }

    /// The target of the byte at `offset`, if that is known.
    pub(super) fn target_at(&self, offset: u64) -> Option<TargetId> {
        self.layout.get().map(|layout| layout.extent_at(offset).target)
    }

    /// An object's part of the digest.
    pub(super) fn add_subtrees(&self, subtrees: &[Subtree]) -> Result<(), DigestError> {
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        subtrees.iter().try_for_each(|subtree| match digest.add(*subtree) {
            // What is written once more was hashed before.
            Err(DigestError::Overlap(_)) if self.was_damaged.load(Relaxed) => Ok(()),
            added => added,
        })
    }

    /// Whether this session has the end of it, and that is a hole, which nobody writes.
    pub(super) fn ends_in_hole(&self) -> bool {
        self.holes.iter().last().and_then(ByteRange::end) == Some(self.entry.size())
    }

    /// Gives the file its metadata and its name, if `syncs` after its contents are durable.
    pub(super) fn commit(
        &self,
        growing: &GrowingFile,
        lane: &Lane<'_>,
        syncs: bool,
    ) -> Result<(), SinkError> {
        let dress = lane.sink.dress(&self.entry.metadata, self.entry.extras.as_deref());
        if self.part.is_some() {
            return growing.commit_part(dress, syncs, &|| !lane.is_stopped());
        }
        if self.ends_in_hole() {
            growing.extend()?;
        }
        growing.commit(dress, syncs)
    }

    pub(super) fn digest(&self) -> Result<[u8; 32], DigestError> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner).clone().finish()
    }
}
