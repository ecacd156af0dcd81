//! The unpacking of bundles into small files, links and special files (M7). Each file gets its name when it
//! is complete.
//!
//! I/O threads use it, each with its own [`BundleUnpacker`].

use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use carrack_layout::StripeOutcome;
use carrack_model::{
    EntryFailure, ExtraMetadata, HardLinkTarget, Metadata, ObjectChecksumAlgorithm, RelPath, StripeChoice,
    escape, text_without_errno,
};
use carrack_storage::{
    CaseFoldingDirectory, RootDirectory, SinkError, SmallContent, narrow_directory, place_small,
    place_special, place_symlink,
};
use carrack_transport::IncomingObject;
use carrack_wire::message::StripingMessage;
use carrack_wire::{EntryTableDecoder, EntryTableEncoder, EntryTableItem, EntryTableRecord};

use super::ack_batch::ObjectOutcome;
use super::commit_group::UnsyncedSmallEntries;
use super::committer::GroupCommitter;
use super::entry_replacement::EntryReplacement;
use super::lane::SinkLane;
use super::top_level_confinement::check_asked_for;
use super::write_method::unkept_striping;
use crate::error::SessionError;
use crate::object_checksum::bundle_check;
use crate::wire_layout::stripes_of_message;

/// A bundle that takes longer is recorded in parts. Where a file takes milliseconds, a bundle of hundreds
/// takes seconds, and a program that is killed meanwhile keeps what was recorded.
const RECORD_EVERY: Duration = Duration::from_millis(250);

/// Unpacks bundles. It keeps the last entry's directory open: the next entry is mostly in it too.
#[derive(Default)]
pub(super) struct BundleUnpacker {
    held: Option<BundleDestinationDirectory>,
}

struct BundleDestinationDirectory {
    path: RelPath,
    /// The directory, or the reason why no entry can be placed in it.
    directory: Result<OwnedFd, SinkError>,
    /// The folding of its names, if it does not distinguish all of them.
    folding: Option<CaseFoldingDirectory>,
}

impl BundleUnpacker {
    /// Checks a bundle and writes its entries.
    pub(super) fn store(
        &mut self,
        lane: &SinkLane<'_>,
        root: &RootDirectory,
        incoming: IncomingObject,
    ) -> Result<(), SessionError> {
        let object = incoming.header.object.0;
        let is_good = self.unpack(lane, root, &incoming)?;
        drop(incoming);
        if is_good {
            lane.add_ack(object, ObjectOutcome::Written)
        } else {
            lane.add_ack(object, ObjectOutcome::Corrupt)
        }
        Ok(())
    }

    /// Returns false if the bundle failed its check; then none of its entries was written.
    fn unpack(
        &mut self,
        lane: &SinkLane<'_>,
        root: &RootDirectory,
        incoming: &IncomingObject,
    ) -> Result<bool, SessionError> {
        let body = incoming.body();
        let table_len = incoming.header.table_len as usize;
        if bundle_check(lane.sink.spec.checksum, body, table_len) != incoming.header.check {
            return Ok(false);
        }
        let (content, table) = body.split_at(body.len() - table_len);
        if !check_contents(lane.sink.spec.checksum, content, table)? {
            return Ok(false);
        }
        let mut done = BundleOutcome::default();
        let filled = self.place_entries(lane, root, (table, content), &mut done);
        if matches!(filled, Err(SessionError::NoSpace { .. })) {
            // The session does not retry it, so the entries that were placed count, though they are not
            // recorded.
            done.count(lane);
        }
        filled?;
        let is_good = done.report_and_record(lane, table)?;
        // A bundle with entries left out is not acked.
        if lane.is_stopped() { Err(SessionError::PeerGone) } else { Ok(is_good) }
    }

    /// Places the entries, and notes their outcomes in `done`.
    fn place_entries(
        &mut self,
        lane: &SinkLane<'_>,
        root: &RootDirectory,
        (table, content): (&[u8], &[u8]),
        done: &mut BundleOutcome,
    ) -> Result<(), SessionError> {
        let mut rest = content;
        let mut recorded_at = Instant::now();
        for (index, record) in EntryTableDecoder::new(table).enumerate() {
            match record? {
                EntryTableRecord::Section { path, metadata, extras } => {
                    self.enter(lane, root, path, metadata, extras.as_deref())?;
                    self.note_directory(done);
                }
                EntryTableRecord::Entry(_) if lane.is_stopped() => done.unrecorded.push(index),
                EntryTableRecord::Entry(entry) => {
                    let (own, after) = rest.split_at(entry.size as usize);
                    rest = after;
                    let outcome = self.unpack_entry(lane, &entry, own)?;
                    done.add_outcome(index, self.held.as_ref(), &entry, outcome);
                    if recorded_at.elapsed() >= RECORD_EVERY {
                        done.record(lane, table, index + 1)?;
                        self.note_directory(done);
                        recorded_at = Instant::now();
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes the directory in which the next entries are placed.
    fn note_directory(&self, done: &mut BundleOutcome) {
        if let Some(BundleDestinationDirectory { path, directory: Ok(_), .. }) = &self.held {
            done.places.add_directory(path);
        }
    }

    /// Enters another directory, which is created if it is missing; its metadata is set at the end.
    fn enter(
        &mut self,
        lane: &SinkLane<'_>,
        root: &RootDirectory,
        path: RelPath,
        metadata: Option<Metadata>,
        extras: Option<&ExtraMetadata>,
    ) -> Result<(), SessionError> {
        let confinement = &lane.sink.destination.confinement;
        check_asked_for(confinement.allows_section(&path, metadata.as_ref()), || &path)?;
        if !self.held.as_ref().is_some_and(|held| held.path == path && held.directory.is_ok()) {
            self.held = None;
            let made = EntryReplacement::new(lane).make_directory(root, &path);
            let opened = made.and_then(|held| {
                Ok((lane.sink.destination.names.claim_directory_folding(held.as_fd(), &path)?, held))
            });
            let (folding, directory) = match opened {
                Ok((folding, held)) => (folding, Ok(held)),
                Err(error) => (None, Err(error)),
            };
            self.held = Some(BundleDestinationDirectory { path, directory, folding });
        }
        let striping = extras.and_then(|extras| extras.striping.as_deref());
        if let (Some(BundleDestinationDirectory { path, directory: Ok(directory), .. }), Some(striping)) =
            (&self.held, striping)
            && confinement.allows_section(path, Some(&Metadata::default()))
        {
            set_default_striping(lane, directory.as_fd(), striping, metadata.is_some());
        }
        let (Some(held), Some(metadata)) = (&self.held, metadata) else { return Ok(()) };
        let metadata = lane.sink.attributes.allowed_directory(metadata);
        // The others are set at the end.
        let others = extras.filter(|_| striping.is_some()).map(without_striping);
        let extras =
            if striping.is_some() { others.as_ref().filter(|extras| !extras.is_empty()) } else { extras };
        if let (Ok(directory), true) = (&held.directory, lane.sink.attributes.keeper.policy().perms) {
            narrow_directory(directory.as_fd(), metadata.mode);
        }
        let loose = extras.filter(|_| lane.sink.history.is_shared() && held.path.is_root());
        let loose = loose.and_then(|extras| lane.sink.attributes.keeper.without_blocking_flags(extras));
        let extras = loose.as_ref().or(extras);
        let noted = match &held.directory {
            Err(error) => Err(failure(lane, &held.path, b"", error)),
            Ok(_) => lane
                .sink
                .spools
                .note_directory(&held.path, &metadata, extras)
                .map_err(|error| failure(lane, &held.path, b"", &error)),
        };
        noted.or_else(|failure| lane.fail(failure))
    }

    fn unpack_entry(
        &self,
        lane: &SinkLane<'_>,
        entry: &EntryTableItem<'_>,
        content: &[u8],
    ) -> Result<EntryOutcome, SessionError> {
        // The table reader returns no entry before a section.
        let Some(held) = &self.held else { return Ok(EntryOutcome::Failed) };
        let is_allowed = lane.sink.destination.confinement.allows_entry(&held.path, entry.name);
        check_asked_for(is_allowed, || escape(entry.name))?;
        if let Some(special) =
            entry.special.filter(|special| !lane.sink.attributes.kept.keeps_special(special))
        {
            return Err(SessionError::Protocol(format!("a {}, which was not asked for", special.noun())));
        }
        if let Ok(directory) = &held.directory {
            let folding = held.folding.as_ref();
            let claimed =
                lane.sink.destination.names.claim(folding, directory.as_fd(), &held.path, entry.name);
            if let Err(error) = claimed {
                return fail(lane, &held.path, entry, &error);
            }
        }
        if let Some(same_as) = entry.extras.as_deref().and_then(|extras| extras.same_as.as_ref()) {
            if held.path.join(entry.name).is_ok_and(|own| own == same_as.path) {
                let flags =
                    entry.extras.as_deref().and_then(|extras| lane.sink.attributes.keeper.flags_of(extras));
                lane.defer_immutability_flags(&held.path, entry.name, entry.metadata.mtime, flags)?;
                return Ok(EntryOutcome::Noted);
            }
            return match note_link(lane, &held.path, entry, same_as)? {
                Ok(()) => Ok(EntryOutcome::Noted),
                Err(error) => fail(lane, &held.path, entry, &error),
            };
        }
        let directory = match &held.directory {
            Ok(directory) => directory.as_fd(),
            Err(error) => return fail(lane, &held.path, entry, error),
        };
        let placed = EntryReplacement::new(lane).place_over(directory, (&held.path, entry.name), || {
            lane.request(None, || place(lane, directory, entry, content))
        });
        match placed? {
            Ok(true) => {
                lane.note_flags(&held.path, entry.name, entry.metadata.mtime, entry.extras.as_deref())?;
                Ok(EntryOutcome::Placed)
            }
            Ok(false) => Ok(EntryOutcome::Lost),
            // The source sends the bundle once more.
            Err(SinkError::Damaged) => Ok(EntryOutcome::Damaged),
            Err(error) => fail(lane, &held.path, entry, &error),
        }
    }
}

fn without_striping(extras: &ExtraMetadata) -> ExtraMetadata {
    ExtraMetadata { striping: None, ..extras.clone() }
}

/// Gives the new files in a directory the striping that they have at the source, if this session preserves
/// that. Each part of a directory's section has it, as any of them may be the first; one of them counts.
fn set_default_striping(lane: &SinkLane<'_>, directory: BorrowedFd<'_>, striping: &[u8], counts: bool) {
    let Ok(message) = StripingMessage::from_bytes(striping) else { return };
    if lane.sink.spec.stripe != StripeChoice::Preserve {
        return;
    }
    let geometry = stripes_of_message(&message);
    let found = lane.sink.destination.storage.file_systems().file_system_of(directory);
    let outcome = match found {
        Ok(file_system) => file_system.set_default(directory, &geometry),
        Err(error) => StripeOutcome::Refused(text_without_errno(&error)),
    };
    if counts {
        lane.count_unkept_striping(unkept_striping(&geometry, &outcome, None));
    }
}

/// The outcome of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryOutcome {
    Placed,
    /// A hard link, which is made at the end: a record now would be too early.
    Noted,
    /// A kind that the destination does not support, which is reported with the other losses.
    Lost,
    Failed,
    Damaged,
}

/// The outcome of a bundle.
#[derive(Default)]
struct BundleOutcome {
    places: UnsyncedSmallEntries,
    /// Indices of entries without a record: those that were not placed, and special files, which a look at
    /// the destination verifies.
    unrecorded: Vec<usize>,
    /// Index of the first table record that was not passed to the committer.
    next_index: usize,
    is_damaged: bool,
    files: u64,
    symlinks: u64,
    specials: u64,
    bytes: u64,
    /// Of these bytes, those that were passed to the committer.
    recorded_bytes: u64,
}

impl BundleOutcome {
    fn add_outcome(
        &mut self,
        index: usize,
        held: Option<&BundleDestinationDirectory>,
        entry: &EntryTableItem<'_>,
        outcome: EntryOutcome,
    ) {
        if outcome != EntryOutcome::Placed {
            self.is_damaged |= outcome == EntryOutcome::Damaged;
            self.unrecorded.push(index);
            return;
        }
        if entry.special.is_some() {
            self.unrecorded.push(index);
            self.specials += 1;
            return;
        }
        if entry.symlink_target.is_some() {
            self.symlinks += 1;
            return;
        }
        self.files += 1;
        self.bytes += entry.size;
        assert!(held.is_some_and(|held| held.directory.is_ok()), "what is placed has a directory");
        if let (Some(held), 1..) = (held, entry.size) {
            self.places.add_file(&held.path, entry.name);
        }
    }

    fn count(&self, lane: &SinkLane<'_>) {
        lane.counters.files_done.fetch_add(self.files, Relaxed);
        lane.counters.symlinks_done.fetch_add(self.symlinks, Relaxed);
        lane.counters.specials_done.fetch_add(self.specials, Relaxed);
        lane.counters.bytes_done.fetch_add(self.bytes, Relaxed);
    }

    /// Records the entries that were placed since the last call, of those before `end`.
    fn record(&mut self, lane: &SinkLane<'_>, table: &[u8], end: usize) -> Result<(), SessionError> {
        assert!(self.next_index <= end, "entries are recorded in the order of their table");
        let (indices, places) = (self.next_index..end, mem::take(&mut self.places));
        let bytes = self.bytes - self.recorded_bytes;
        (self.next_index, self.recorded_bytes) = (end, self.bytes);
        let committer = lane.sink.committer()?;
        if indices == (0..usize::MAX) && self.unrecorded.is_empty() {
            committer.add_bundle(table, places, bytes)
        } else {
            // Failed entries must not be recorded as done.
            committer.add_bundle(&part_of_table(table, indices, &self.unrecorded)?, places, bytes)
        }
    }

    /// Counts, reports and records the bundle. Returns false if it must be sent once more; it is counted
    /// then.
    fn report_and_record(mut self, lane: &SinkLane<'_>, table: &[u8]) -> Result<bool, SessionError> {
        if self.is_damaged {
            return Ok(false);
        }
        self.count(lane);
        if lane.sink.spec.report_digests {
            report_digests(lane, table, &self.unrecorded)?;
        }
        self.record(lane, table, usize::MAX)?;
        Ok(true)
    }
}

/// Returns a table with the entries of these indices, without some of them.
fn part_of_table(table: &[u8], indices: Range<usize>, left_out: &[usize]) -> Result<Vec<u8>, SessionError> {
    assert!(left_out.is_sorted(), "entries are noted in the order of their table");
    let (mut part, mut section) = (Vec::new(), None);
    for (index, record) in
        EntryTableDecoder::new(table).enumerate().take_while(|(index, _)| *index < indices.end)
    {
        match record? {
            EntryTableRecord::Section { path, metadata, extras } => section = Some((path, metadata, extras)),
            EntryTableRecord::Entry(_) if index < indices.start || left_out.contains(&index) => {}
            EntryTableRecord::Entry(entry) => {
                if let Some((path, metadata, extras)) = section.take() {
                    let mut writer = EntryTableEncoder::new(&mut part).with_extras(extras.as_deref());
                    writer.begin_section(&path, metadata.as_ref());
                }
                EntryTableEncoder::new(&mut part).add_item(&entry);
            }
        }
    }
    Ok(part)
}

fn report_digests(lane: &SinkLane<'_>, table: &[u8], left_out: &[usize]) -> Result<(), SessionError> {
    let mut directory = RelPath::root();
    for (index, record) in EntryTableDecoder::new(table).enumerate() {
        match record? {
            EntryTableRecord::Section { path, .. } => directory = path,
            EntryTableRecord::Entry(EntryTableItem { name, size, digest: Some(digest), .. })
                if !left_out.contains(&index) =>
            {
                lane.report_digest(&directory, name, size, *digest);
            }
            EntryTableRecord::Entry(_) => {}
        }
    }
    Ok(())
}

/// Places an entry. Returns false if the destination does not support its kind.
fn place(
    lane: &SinkLane<'_>,
    held: BorrowedFd<'_>,
    entry: &EntryTableItem<'_>,
    content: &[u8],
) -> Result<bool, SinkError> {
    let (sink, extras) = (lane.sink, entry.extras.as_deref());
    if let Some(target) = entry.symlink_target {
        let dress = sink.attributes.metadata_to_set(&entry.metadata, extras);
        return place_symlink(held, entry.name, target, dress, &sink.destination.scratch).map(|()| true);
    }
    let metadata = sink.attributes.allowed(entry.metadata);
    let dress = sink.attributes.metadata_to_set(&metadata, extras);
    match &entry.special {
        Some(special) => place_special(
            held,
            entry.name,
            special,
            dress,
            &sink.attributes.keeper,
            &sink.destination.scratch,
        ),
        None => {
            let care = sink.committer.as_ref().map(GroupCommitter::care).unwrap_or_default();
            let content = SmallContent { bytes: content, holes: Some(&entry.holes) };
            place_small(held, entry.name, content, dress, care, &sink.destination.scratch).map(|()| true)
        }
    }
}

/// Notes a hard link. Its target must be an entry that the source may write itself.
fn note_link(
    lane: &SinkLane<'_>,
    directory: &RelPath,
    entry: &EntryTableItem<'_>,
    same_as: &HardLinkTarget,
) -> Result<Result<(), SinkError>, SessionError> {
    let confinement = &lane.sink.destination.confinement;
    let is_asked_for = same_as.path.split_last().is_some_and(|(parent, name)| {
        confinement.allows_section(&parent, None) && confinement.allows_entry(&parent, name)
    });
    if !is_asked_for || entry.size != 0 || !entry.is_regular() {
        return Err(SessionError::Protocol(format!("a name of '{}', which can't be given", same_as.path)));
    }
    let noted = lane.sink.spools.note_link(directory, entry.name, same_as, entry.metadata.mtime);
    noted.ok_or_else(|| SessionError::Protocol("a name after the end".into()))
}

/// Reports an entry that can't be placed.
fn fail(
    lane: &SinkLane<'_>,
    directory: &RelPath,
    entry: &EntryTableItem<'_>,
    error: &SinkError,
) -> Result<EntryOutcome, SessionError> {
    lane.count_storage_failure(None, error);
    lane.fail(failure(lane, directory, entry.name, error)).map(|()| EntryOutcome::Failed)
}

fn failure(lane: &SinkLane<'_>, directory: &RelPath, name: &[u8], error: &SinkError) -> EntryFailure {
    EntryFailure {
        path: lane.sink.destination.path(directory, name),
        kind: error.kind(),
        detail: text_without_errno(&error),
    }
}

/// Compares the table with the contents, which a hostile source may violate. With BLAKE3, returns true if
/// each file has the digest in the table.
fn check_contents(
    checksum: ObjectChecksumAlgorithm,
    content: &[u8],
    table: &[u8],
) -> Result<bool, SessionError> {
    let mut rest = content;
    let mut is_good = true;
    for record in EntryTableDecoder::new(table) {
        let EntryTableRecord::Entry(entry) = record? else { continue };
        let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
        let Some((own, after)) = rest.split_at_checked(size) else {
            return Err(SessionError::Protocol("a bundle's table promises more than its contents".into()));
        };
        rest = after;
        let is_file =
            entry.is_regular() && entry.extras.as_ref().is_none_or(|extras| extras.same_as.is_none());
        if checksum == ObjectChecksumAlgorithm::Blake3 && is_file {
            is_good &= entry.digest.is_some_and(|digest| blake3::hash(own) == *digest);
        }
    }
    if !rest.is_empty() {
        return Err(SessionError::Protocol("a bundle's contents are longer than its table says".into()));
    }
    Ok(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names in each directory of a table.
    fn names(table: &[u8]) -> Vec<String> {
        let mut directory = String::new();
        let mut names = Vec::new();
        for record in EntryTableDecoder::new(table) {
            match record.unwrap() {
                EntryTableRecord::Section { path, .. } => directory = path.to_string(),
                EntryTableRecord::Entry(entry) => names.push(format!("{directory}/{}", escape(entry.name))),
            }
        }
        names
    }

    #[test]
    fn the_parts_of_a_table_are_all_of_it() {
        let (mut table, metadata) = (Vec::new(), Metadata::default());
        for (directory, files) in [("a", &["1", "2"][..]), ("b", &[]), ("c", &["3", "4", "5"])] {
            let path = RelPath::new(directory.as_bytes()).unwrap();
            EntryTableEncoder::new(&mut table).begin_section(&path, Some(&metadata));
            for name in files {
                EntryTableEncoder::new(&mut table).add_regular(name.as_bytes(), 0, &metadata, 1, None);
            }
        }
        // The records are a, 1, 2, b, c, 3, 4, 5.
        for cut in 0..=8 {
            let parts =
                [0..cut, cut..usize::MAX].map(|indices| part_of_table(&table, indices, &[6]).unwrap());
            let found: Vec<String> = parts.iter().flat_map(|part| names(part)).collect();
            assert_eq!(found, ["a/1", "a/2", "c/3", "c/5"], "cut at {cut}");
        }
        assert!(part_of_table(&table, 3..5, &[]).unwrap().is_empty(), "sections alone are no entries");
    }
}
