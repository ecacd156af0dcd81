//! An I/O thread of the source: takes work, leases a slot, reads into it, makes the check, and posts the object.
//!
//! When nobody is ahead the same thread sends it too (see [`super::outbox`]), while its cache still holds the bytes.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use carrack_machine::Slot;
use carrack_model::limits::RANGES_MAX;
use carrack_model::{
    ByteRange, Checksum, Directory, Entry, EntryKind, FailureKind, FileId, RangeSet, Section, StripeChoice,
    TargetId, Verify,
};
use carrack_plan::{Bundle, FileCursor, Layout, ObjectExtent, Service, SingleTarget};
use carrack_storage::{FileLayout, SourceError, SourceFile};
use carrack_transport::{ExtentFile, Outgoing, Patience, Payload, SendState};
use carrack_wire::message::{Coming, Control, FileRef, OpenFile, Stripes};
use carrack_wire::{FrameHeader, FrameKind, TableWriter, ranges_to_message};

use super::Source;
use super::bundle_filling::{self, Filled};
use super::chunks::FilePart;
use super::lane::Lane;
use super::large_file::{Doom, LargeFile};
use super::outbox::{Departure, Home};
use super::queue::{Job, Opening, Parcel, Piece, Posted, Sent};
use crate::check::{bundle_check, object_check};
use crate::chunks::FILE_COSTS_BYTES;
use crate::counters::Stage;
use crate::error::SessionError;
use crate::sink::stripes_to_message;
use crate::spill::Spill;

/// Direct I/O wants lengths in multiples of this; slots are.
const DIRECT_ALIGN: usize = 4096;

/// Objects of a file that one thread reads in a row while others wait: 4 MiB on memory, 16 MiB on disks, as the
/// blocks of the fastest plain mover (WDT), which found smaller ones slower.
const RUN_OBJECTS: usize = 16;

/// Works until the session ends, while so many threads are to be at work that this one, with its number, is among them.
pub(super) fn run(lane: &Lane<'_>, number: usize) {
    let mut reader = Reader { lane, table: Vec::new(), home: Home::default(), serving: None };
    loop {
        lane.readers.pass(number);
        let taken = lane.counters.time(Stage::Idle, || lane.queue.take_timed(|queue| queue.take()));
        let Ok((target, job)) = taken else { return };
        // A cursor that was put back, or simply more work: the next waiter may go on.
        lane.queue.release(|_| ());
        match job.fresh_entries() {
            0 => {}
            entries => lane.make_room(entries),
        }
        reader.serving = target;
        // An error here is a closed monitor (the session ends) or a broken endpoint.
        if let Err(error) = reader.work(job) {
            lane.raise(error);
            return;
        }
        reader.storage_is_done(None);
    }
}

/// Sends what waited for credits and nobody else drives, until the session ends.
pub(super) fn send_the_rest(lane: &Lane<'_>) {
    while lane.outbox.await_leftover().is_ok() {
        if let Err(error) = drive(lane, lane.outbox.leftover()) {
            lane.raise(error);
            return;
        }
    }
}

/// Drives an endpoint as long as objects are ready for it. A peer that does not keep up is waited for: the socket's buffer
/// is read-ahead enough, and what other threads read meanwhile is sent from here too.
pub(super) fn drive(lane: &Lane<'_>, mut departure: Option<Departure>) -> Result<(), SessionError> {
    while let Some((mut endpoint, outgoing)) = departure {
        let is_in_file = matches!(outgoing.payload, Payload::Extent(_));
        let departing_bytes = lane.departing_bytes(outgoing.header.object);
        // An idle endpoint takes an object; that is what idle means.
        let refused = endpoint.endpoint.post(outgoing).is_err();
        debug_assert!(!refused);
        let mut send = || {
            while endpoint.endpoint.advance(Patience::Brief)? == SendState::Busy {
                if lane.is_stopped() {
                    return Ok(false);
                }
            }
            Ok::<bool, SessionError>(true)
        };
        // The kernel reads what it sends from a file: storage may be what it waits for.
        if !(if is_in_file { lane.counters.busy(send) } else { send() })? {
            return Ok(());
        }
        lane.departed(departing_bytes);
        departure = lane.outbox.next_for(endpoint);
    }
    Ok(())
}

struct Reader<'a> {
    lane: &'a Lane<'a>,
    /// The entry table of the bundle in the making.
    table: Vec<u8>,
    home: Home,
    /// The target that is being served, until the storage has done its part.
    serving: Option<TargetId>,
}

impl Reader<'_> {
    fn work(&mut self, job: Job) -> Result<(), SessionError> {
        match (job, self.serving) {
            (Job::Bundle(parcel), Some(target)) => self.bundle(target, parcel),
            (Job::Open(opening), Some(target)) => self.open(target, opening),
            (Job::Refill(file, ranges), _) => {
                self.refill(&file, ranges);
                Ok(())
            }
            (Job::Object(piece), _) => self.object(piece),
            (Job::Cursor(file, cursor), Some(target)) => self.run_of_objects(target, &file, cursor),
            (Job::Damaged(file, step), _) => {
                let detail = "the sink's storage does not hold what is written to it";
                self.lane.lost(&file, true, FailureKind::Corrupt, detail, step);
                Ok(())
            }
            (Job::Follow(file, step), _) => {
                self.lane.follow(&file, step);
                Ok(())
            }
            (Job::Stand(question), _) => {
                self.lane.tell_what_stands(&question);
                Ok(())
            }
            (Job::GiveUp(sent), _) => {
                self.lane.give_up(sent);
                Ok(())
            }
            // What lies in a target's queue comes with its target.
            (Job::Bundle(_) | Job::Open(_) | Job::Cursor(..), None) => Err(SessionError::Internal),
        }
    }

    /// The target is free for others; the policy learns how long it took.
    fn storage_is_done(&mut self, service: Option<Service>) {
        if let Some(target) = self.serving.take() {
            self.lane.queue.release(|queue| queue.finished(target, service));
        }
    }

    /// Whether the file is still what the scan found.
    fn is_as_found(&self, file: &SourceFile, entry: &Entry) -> bool {
        let stamp = file.stamp();
        let size = self.lane.source.end_in(stamp.size);
        size == entry.size() && stamp.ino == entry.identity && file.metadata().mtime == entry.metadata.mtime
    }

    fn lease(&self) -> Result<Slot, SessionError> {
        let lane = self.lane;
        let wait = || {
            lane.spills.iter().for_each(Spill::ring);
            lane.pool.lease()
        };
        let lease = || lane.pool.try_lease().map_or_else(wait, Ok);
        let leased = lane.counters.time(Stage::Blocked, lease);
        leased.map_err(|_| SessionError::PeerGone)
    }

    /// Sends an object, or leaves it to whoever drives an endpoint next.
    fn post(&mut self, outgoing: Outgoing, sent: Sent) -> Result<(), SessionError> {
        self.lane.sent().insert(outgoing.header.object, Posted::new(sent));
        let lane = self.lane;
        lane.counters.bytes_read.fetch_add(outgoing.header.body_len.into(), Relaxed);
        let bring = || lane.outbox.bring(outgoing, &mut self.home, || lane.mail.wake());
        let brought = lane.counters.time(Stage::Blocked, bring);
        let departure = brought.map_err(|_| SessionError::PeerGone)?;
        lane.spills.iter().for_each(Spill::something_waits);
        lane.counters.time(Stage::Network, || drive(lane, departure))
    }

    // Bundles: many small files in one object (M7).

    fn bundle(&mut self, target: TargetId, mut parcel: Parcel) -> Result<(), SessionError> {
        let mut slot = self.lease()?;
        let lane = self.lane;
        let began = Instant::now();
        let Filled { content_len, table_len, cut_at } = lane.counters.time(Stage::Storage, || {
            bundle_filling::fill(lane, target, &parcel, slot.bytes_mut(), &mut self.table)
        });
        if let Some(cut_at) = cut_at {
            lane.put_back(target, parcel.split_off(cut_at));
        }
        let bytes = content_len as u64 + FILE_COSTS_BYTES * parcel.bundle.entry_count as u64;
        self.storage_is_done(Some(Service { time: began.elapsed(), bytes }));
        let body_len = content_len + table_len;
        let header = FrameHeader {
            kind: FrameKind::Bundle,
            body_len: body_len as u32,
            object: lane.next_object(),
            file: FileId(0),
            offset: 0,
            table_len: table_len as u32,
            lane: 0,
            check: bundle_check(lane.source.spec.checksum, &slot.bytes()[..body_len], table_len),
        };
        let payload = Payload::Slot(slot);
        self.post(Outgoing { header, payload }, Sent::Bundle(target, parcel))
    }

    // Large files.

    fn open(&mut self, target: TargetId, mut opening: Opening) -> Result<(), SessionError> {
        let lane = self.lane;
        if opening.part == Some(FilePart::Discard) {
            self.discard(&opening);
            return Ok(());
        }
        match lane.counters.time(Stage::Storage, || self.open_source(&opening.directory, &opening.entry)) {
            // What others have of it, and will bring, is of what was found.
            Ok(file) if opening.part.is_some() && !self.is_as_found(&file, &opening.entry) => {
                self.not_opened(&opening, FailureKind::Changed, "it changed since it was found");
            }
            Ok(file) if lane.source.lacks_part(file.stamp().size) => {
                self.not_opened(&opening, FailureKind::Changed, "it has no such part any more");
            }
            Ok(file) if file.stamp().size == 0 => self.open_as_bundle(target, opening),
            Ok(file) => {
                // What is held is of the file that was offered.
                opening.held.take_if(|_| !self.is_as_found(&file, &opening.entry));
                return self.begin(target, file, opening);
            }
            Err(error) => self.not_opened(&opening, error.kind(), error),
        }
        Ok(())
    }

    /// Has the sink take away what there is of a file as it was found; it may be another by now, or gone.
    fn discard(&self, opening: &Opening) {
        let lane = self.lane;
        let Opening { directory, entry, .. } = opening;
        let mut table = Vec::new();
        let mut writer = TableWriter::new(&mut table);
        writer.section(&directory.sink, None);
        writer.regular(&entry.name, entry.size(), &entry.metadata, entry.identity, None);
        let mut next_id = lane.next_file.lock().unwrap_or_else(PoisonError::into_inner);
        let id = next_id.0;
        *next_id = FileId(id + 1);
        let coming = Some(Coming::default());
        lane.say(Control::OpenFile(OpenFile { id, table, coming, ..OpenFile::default() }));
        lane.say(Control::AbandonFile(FileRef { id }));
        drop(next_id);
        lane.large_file_ended();
    }

    fn not_opened(&self, opening: &Opening, kind: FailureKind, detail: impl ToString) {
        let lane = self.lane;
        lane.fail_path(lane.source.path(&opening.directory, &opening.entry), kind, detail);
        lane.large_file_ended();
    }

    fn open_source(&self, directory: &Directory, entry: &Entry) -> Result<SourceFile, SourceError> {
        let held = self.lane.source.open_directory(directory)?;
        let source = self.lane.source;
        let located = source.locate(directory, held.as_fd(), entry)?;
        let file =
            SourceFile::open(located.as_fd(), located.name(), located.follow, source.settings.source_io)?;
        match source.has_to_be_found(directory) && file.stamp().ino != entry.identity {
            true => Err(SourceError::Replaced),
            false => Ok(file),
        }
    }

    /// The file is empty by now: no object would carry it, but a bundle does.
    fn open_as_bundle(&self, target: TargetId, opening: Opening) {
        let Opening { directory, mut entry, chunk, .. } = opening;
        entry.kind = EntryKind::Regular { size: 0 };
        let section = Section { directory, metadata: None, extras: None, entries: vec![entry] };
        let table_bytes = carrack_plan::section_table_bytes(&section.directory)
            + section.entries.iter().map(carrack_plan::entry_table_bytes).sum::<usize>();
        let bundle = Bundle { sections: vec![section], content_bytes: 0, table_bytes, entry_count: 1 };
        self.lane.return_permit();
        let parcel = Parcel { bundle, attempts: 1, is_rest: false, chunk };
        self.lane.queue.release(|queue| queue.push(target, Job::Bundle(parcel)));
    }

    /// Announces the file, or lets it announce itself.
    fn begin(&mut self, target: TargetId, file: SourceFile, opening: Opening) -> Result<(), SessionError> {
        let opened = self.look_at(file, opening);
        if self.may_go_by_itself(&opened) {
            return self.go_by_itself(target, opened);
        }
        self.announce(target, opened);
        Ok(())
    }

    /// What the sink is to know of a file, which may have changed since it was found.
    fn look_at(&self, file: SourceFile, mut opening: Opening) -> Opened {
        let source = self.lane.source;
        let size = source.end_in(file.stamp().size);
        let entry = &mut opening.entry;
        entry.kind = EntryKind::Regular { size };
        entry.metadata = file.metadata();
        entry.identity = file.stamp().ino;
        let mut table = Vec::new();
        TableWriter::new(&mut table).section(&opening.directory.sink, None);
        let mut writer = TableWriter::new(&mut table).with(entry.extras.as_deref());
        writer.regular(&entry.name, size, &entry.metadata, entry.identity, None);
        let found = self.layout_of(&file, size);
        let keeps_stripes = source.spec.stripe == StripeChoice::Preserve;
        let stripes = found.geometry.as_ref().filter(|_| keeps_stripes).and_then(stripes_to_message);
        let own = source.own_range(opening.part, size);
        let holes = match source.leaves_holes {
            true => file.holes_within(own.unwrap_or(ByteRange::new(0, size))),
            false => RangeSet::new(),
        };
        let object_bytes = source.object_bytes(&*found.layout);
        Opened { file, opening, size, table, layout: found.layout, object_bytes, stripes, holes }
    }

    /// Whether one thread may read all of a file in one go, for a sink that needs no message about it: nothing of it is there, there is nothing
    /// to choose, and nothing goes before what was read earlier.
    fn may_go_by_itself(&self, opened: &Opened) -> bool {
        let (lane, source) = (self.lane, self.lane.source);
        let Opened { file, opening, size, table, object_bytes, stripes, holes, .. } = opened;
        *size <= (RUN_OBJECTS as u64 - 1) * object_bytes
            && object_bytes + table.len() as u64 <= source.spec.slot_bytes.into()
            && holes.is_empty()
            && stripes.is_none()
            && !file.is_direct()
            && opening.attempts == 0
            && opening.held.is_none()
            && opening.part.is_none()
            && source.spec.part.is_none()
            && source.chunks.is_none()
            && source.spec.checksum != Checksum::Blake3
            && source.settings.verify != Verify::Readback
            && lane.spills.is_empty()
            && !self.sends_from_files()
            && !lane.queue.with(|queue| queue.chooses())
    }

    fn go_by_itself(&mut self, target: TargetId, opened: Opened) -> Result<(), SessionError> {
        let Opened { file, opening, size, table, layout, object_bytes, .. } = opened;
        let id = self.lane.next_by_itself();
        let large = Arc::new(LargeFile::new(id, file, target, opening, size).announced_by_object(table));
        self.lane.files().insert(id, Arc::clone(&large));
        self.run_of_objects(target, &large, FileCursor::new(id, size, layout, object_bytes))
    }

    fn announce(&self, target: TargetId, opened: Opened) {
        let lane = self.lane;
        let Opened { file, opening, size, table, layout, object_bytes, stripes, holes } = opened;
        // Ids reach the sink in rising order: taken and said under one lock, which the comm thread never takes.
        let mut next_id = lane.next_file.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next_id;
        *next_id = FileId(id.0 + 1);
        let is_shared = lane.source.chunks.is_some();
        let own = lane.source.own_range(opening.part, size);
        let missing = without(missing_of(opening.held.as_deref(), own, size), &holes, size);
        let goes_on = opening.held.is_some() && !is_shared;
        let coming = missing.as_ref().filter(|_| is_shared).map(|missing| Coming {
            ranges: ranges_to_message(missing),
            is_part: matches!(opening.part, Some(FilePart::Range(_))),
            makes_file: !holes.is_empty() && !holds(&opening, own.unwrap_or(ByteRange::new(0, size))),
        });
        let wanted_bytes = missing.as_ref().map_or(size, RangeSet::covered_bytes);
        let large = Arc::new(LargeFile::new(id, file, target, opening, wanted_bytes));
        lane.files().insert(id, Arc::clone(&large));
        let holes = ranges_to_message(&holes);
        lane.say(Control::OpenFile(OpenFile { id: id.0, table, stripes, goes_on, coming, holes }));
        drop(next_id);
        let cursor = FileCursor::new(id, size, layout, object_bytes);
        let cursor = missing.into_iter().fold(cursor, FileCursor::over);
        self.queue_cursors(&large, cursor);
    }

    fn queue_cursors(&self, large: &Arc<LargeFile>, cursor: FileCursor) {
        let cursors = cursor.for_each_target();
        large.expect_cursors(cursors.len());
        self.lane.queue.release_many(cursors.len(), |queue| {
            for cursor in cursors {
                let first = cursor.peek_target().unwrap_or(large.target);
                queue.push_begun(first, Job::Cursor(Arc::clone(large), cursor));
            }
        });
    }

    /// Sends once more what the sink's storage does not hold as it was written.
    fn refill(&self, file: &Arc<LargeFile>, ranges: RangeSet) {
        let size = file.entry.size();
        let layout = self.layout_of(&file.source, size).layout;
        let object_bytes = self.lane.source.object_bytes(&*layout);
        self.queue_cursors(file, FileCursor::new(file.id, size, layout, object_bytes).over(ranges));
    }

    /// Where the file lies; all of it with its own directory if that can't be found out.
    fn layout_of(&self, file: &SourceFile, size: u64) -> FileLayout {
        let lane = self.lane;
        let found =
            lane.source.file_systems.of(file.descriptor()).map(|own| own.layout_of(file.descriptor(), size));
        match found {
            Ok(found) => {
                lane.learn(found.layout.targets());
                found
            }
            // It could be opened, and its file system can't be asked: nothing that would stop the reading.
            Err(_) => FileLayout {
                layout: Arc::new(SingleTarget { target: self.serving.unwrap_or(TargetId(0)) }),
                geometry: None,
                is_released: false,
                problem: None,
            },
        }
    }

    /// Reads and sends neighbouring objects, then lets others have the file. It comes before the files that wait to be opened: behind
    /// these nobody would get to it once as many files are open as may be.
    fn run_of_objects(
        &mut self,
        target: TargetId,
        file: &Arc<LargeFile>,
        mut cursor: FileCursor,
    ) -> Result<(), SessionError> {
        for _ in 0..RUN_OBJECTS {
            let Some(extent) = file.cut(&mut cursor) else {
                let step = file.cursor_ended();
                self.lane.follow(file, step);
                return Ok(());
            };
            self.lane.queue.with(|queue| queue.charge(target, extent.range.len));
            self.object(Piece { file: Arc::clone(file), extent, attempts: 0, place: None })?;
        }
        let job = Job::Cursor(Arc::clone(file), cursor);
        self.lane.queue.release(|queue| queue.push_begun(target, job));
        Ok(())
    }

    fn object(&mut self, piece: Piece) -> Result<(), SessionError> {
        let (file, extent) = (Arc::clone(&piece.file), piece.extent);
        let prepared = if piece.attempts == 0 && self.leaves_from_file(&file) {
            self.storage_is_done(None);
            Ok((Payload::Extent(Arc::clone(&file) as Arc<dyn ExtentFile>), 0, [0; 32]))
        } else {
            let mut slot = self.lease()?;
            let read = self.lane.counters.time(Stage::Storage, || self.read(&file, extent, &mut slot));
            read.map(|(table_len, check)| (Payload::Slot(slot), table_len, check))
        };
        let (payload, table_len, check) =
            match prepared.and_then(|read| self.may_leave(&piece).map(|()| read)) {
                Ok(read) => read,
                Err(problem) => {
                    self.lane.arrived(piece.place);
                    self.lost(&file, problem);
                    return Ok(());
                }
            };
        file.announced();
        let header = FrameHeader {
            kind: FrameKind::Object,
            body_len: extent.range.len as u32 + table_len,
            object: self.lane.next_object(),
            file: file.id,
            offset: extent.range.offset,
            table_len,
            lane: 0,
            check,
        };
        self.post(Outgoing { header, payload }, Sent::Object(piece))
    }

    fn sends_from_files(&self) -> bool {
        self.lane.outbox.sends_extents && self.lane.source.spec.checksum == Checksum::None
    }

    /// With its last object, or one that is read again, a file by itself gets its name: not if it is another one by now.
    fn may_leave(&self, piece: &Piece) -> Result<(), ReadProblem> {
        let file = &piece.file;
        let may_be_last = piece.attempts > 0 || piece.extent.range.end() == Some(file.entry.size());
        if !file.is_by_itself() || !may_be_last {
            return Ok(());
        }
        match file.source.is_unchanged() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReadProblem::Changed),
            Err(error) => Err(ReadProblem::Failed(SourceError::ReadError(error).to_string())),
        }
    }

    /// Whether the transport may send the file's objects straight from the page cache: nobody has to look at the bytes
    /// here. A file that is tried again is read, and one that nobody looks at once more when all of it has left.
    fn leaves_from_file(&self, file: &LargeFile) -> bool {
        self.sends_from_files() && file.attempts == 0 && !file.is_by_itself() && !file.source.is_direct()
    }

    fn lost(&self, file: &Arc<LargeFile>, problem: ReadProblem) {
        match problem {
            ReadProblem::Changed => {
                let (_, step) = file.lost_one(Doom::Changed);
                self.lane.follow(file, step);
            }
            ReadProblem::Failed(detail) => {
                let (is_first, step) = file.lost_one(Doom::Reported);
                self.lane.lost(file, is_first, FailureKind::ReadError, detail, step);
            }
        }
    }

    /// Reads an object into the slot, its file's table behind it if it has to carry that, and makes its check; returns the
    /// table's length, too.
    fn read(
        &mut self,
        file: &LargeFile,
        extent: ObjectExtent,
        slot: &mut Slot,
    ) -> Result<(u32, [u8; 32]), ReadProblem> {
        let len = extent.range.len as usize;
        let wanted = if file.source.is_direct() { len.next_multiple_of(DIRECT_ALIGN) } else { len };
        let began = Instant::now();
        let got = file.source.read_at(&mut slot.bytes_mut()[..wanted], extent.range.offset);
        self.storage_is_done(Some(Service { time: began.elapsed(), bytes: extent.range.len }));
        if got.map_err(|error| ReadProblem::Failed(error.to_string()))? < len {
            return Err(ReadProblem::Changed);
        }
        let checksum = self.lane.source.spec.checksum;
        if let Some(table) = file.table_to_send() {
            let body_len = len + table.len();
            slot.bytes_mut()[len..body_len].copy_from_slice(table);
            return Ok((table.len() as u32, bundle_check(checksum, &slot.bytes()[..body_len], table.len())));
        }
        let digested_size = self.lane.source.spec.part.is_none().then(|| file.entry.size());
        object_check(checksum, extent.range, &slot.bytes()[..len], digested_size)
            .map(|check| (0, check.value))
            .map_err(|error| ReadProblem::Failed(error.to_string()))
    }
}

/// A large file, open, and what the sink is to know of it.
struct Opened {
    file: SourceFile,
    /// With the entry as the file was when it was opened.
    opening: Opening,
    size: u64,
    /// Its directory and the file, as an entry table.
    table: Vec<u8>,
    layout: Arc<dyn Layout>,
    object_bytes: u64,
    /// How the sink is to stripe it.
    stripes: Option<Stripes>,
    holes: RangeSet,
}

/// What of a file is to be sent; all of it if nothing is said. What is there in more pieces than a message can tell comes again.
fn missing_of(held: Option<&RangeSet>, own: Option<ByteRange>, size: u64) -> Option<RangeSet> {
    let held = held.filter(|held| held.run_count() < RANGES_MAX);
    match own {
        None => held.map(|held| held.missing_of(size)),
        Some(own) => {
            let gaps = held.cloned().unwrap_or_default().missing_of(size);
            let mut missing = RangeSet::new();
            gaps.iter().filter_map(|gap| gap.overlap(own)).for_each(|range| {
                missing.insert(range);
            });
            Some(missing)
        }
    }
}

impl Source<'_> {
    /// What of a file is copied, or what of it a chunk is about; nothing for all of it.
    fn own_range(&self, of_chunk: Option<FilePart>, size: u64) -> Option<ByteRange> {
        self.spec.part.map_or(of_chunk.map(FilePart::range), |part| part.range_in(size))
    }

    /// Whether a file of `size` bytes has nothing of the part that is to be copied.
    fn lacks_part(&self, size: u64) -> bool {
        self.spec.part.is_some_and(|part| part.range_in(size).is_none())
    }
}

/// Whether the sink has something of that.
fn holds(opening: &Opening, own: ByteRange) -> bool {
    opening.held.as_deref().is_some_and(|held| held.iter().any(|range| range.overlap(own).is_some()))
}

/// What is to be sent, all of it if nothing is said, without the holes.
fn without(missing: Option<RangeSet>, holes: &RangeSet, size: u64) -> Option<RangeSet> {
    if holes.is_empty() {
        return missing;
    }
    let mut there = missing.map(|missing| missing.missing_of(size)).unwrap_or_default();
    for hole in holes.iter() {
        there.cover(hole);
    }
    Some(there.missing_of(size))
}

/// Why an object could not be read.
enum ReadProblem {
    /// The file ends before it, or is not what was opened any more.
    Changed,
    /// In words.
    Failed(String),
}
