//! Offers of the source, and the choice of the wanted entries: after an earlier session left a journal (L12),
//! or in a sync.
//!
//! An entry is kept if the journal has it, as the source has it now (size, time, inode number), and if it is
//! still at the destination. Of a large file that was begun, the reply has the recorded ranges, which the
//! source leaves out. I/O threads use it, each with another offer.

use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use carrack_journal::{EntryKey, PartialFile};
use carrack_model::{
    Entry, EntryFailure, EntryKind, FailureKind, Metadata, RelPath, Timestamp, text_without_errno,
};
use carrack_storage::{CaseFoldingDirectory, can_resume, file_times, read_existing_entry};
use carrack_wire::message::{ControlMessage, HeldRanges, OfferedEntriesMessage, WantedMessage};
use carrack_wire::{
    EntryTableDecoder, EntryTableItem, EntryTableRecord, ranges_from_message, ranges_to_message,
};

use super::backup;
use super::context::SinkContext;
use super::entry_replacement::EntryReplacement;
use super::lane::SinkLane;
use super::past_sessions::PastSessions;
use super::recorded_state::is_in_place;
use super::shared_file_names::SharedFileName;
use super::sibling_sessions::SiblingRecords;
use super::sync::{SyncComparer, SyncVerdict};
use super::top_level_confinement::check_asked_for;
use crate::error::SessionError;

/// Difference allowed between the clocks of the sink's host and of its file server: files created that long
/// before a session count as created in it.
const CLOCK_DIFFERENCE_S: i64 = 60;

/// The reply to an offer while it is built.
struct WantedEntriesAnswer {
    wanted: WantedMessage,
    entry_count: usize,
    section_count: usize,
}

impl WantedEntriesAnswer {
    /// Adds the next section.
    fn add_section(&mut self, is_left: bool) {
        let index = self.section_count;
        self.section_count += 1;
        if is_left {
            assert!(self.wanted.sections_left.len() <= index / 8 + 1, "sections follow one another");
            self.wanted.sections_left.resize(index / 8 + 1, 0);
            self.wanted.sections_left[index / 8] |= 1 << (index % 8);
        }
    }

    fn add_verdict(&mut self, verdict: OfferVerdict) {
        let index = self.entry_count;
        self.entry_count += 1;
        if index.is_multiple_of(8) {
            self.wanted.entries.push(0);
        }
        assert!(self.wanted.entries.len() == index / 8 + 1, "each entry has a bit");
        if let OfferVerdict::Kept = verdict {
            return;
        }
        self.wanted.entries[index / 8] |= 1 << (index % 8);
        if let OfferVerdict::Held(ranges) = verdict {
            assert!(!ranges.is_empty(), "what is held is told");
            self.wanted.held.push(HeldRanges { entry: index as u32, ranges });
        }
    }
}

fn key_of(entry: &Entry) -> EntryKey<'_> {
    EntryKey {
        name: &entry.name,
        size: entry.size(),
        mtime: entry.metadata.mtime,
        identity: entry.identity,
        target: match &entry.kind {
            EntryKind::Symlink { target } => Some(target),
            EntryKind::Regular { .. } | EntryKind::Special(_) => None,
        },
    }
}

/// The records by which offers are judged.
enum OfferJudgingRecords<'a> {
    /// The transfer's journal.
    Own(&'a PastSessions),
    /// Those of all sessions that carry it.
    Shared(SiblingRecords<'a>),
    /// There was no earlier session, or its records can't be used.
    None,
}

impl OfferJudgingRecords<'_> {
    /// Returns true if a session has recorded the entry in its present version.
    fn is_done(&self, path: &RelPath, entry: &Entry) -> Result<bool, SessionError> {
        match self {
            OfferJudgingRecords::Own(past) => past.is_done(path, &key_of(entry)),
            OfferJudgingRecords::Shared(recorded) => recorded.is_done(path, &key_of(entry)),
            OfferJudgingRecords::None => Ok(false),
        }
    }

    /// The start of the transfer's first session, if that was an earlier one. Of several sessions each has a
    /// journal, and they do not tell which session was first.
    fn first_session_start(&self) -> Option<Timestamp> {
        match self {
            OfferJudgingRecords::Own(past) => Some(past.first_session_start()),
            OfferJudgingRecords::Shared(_) | OfferJudgingRecords::None => None,
        }
    }
}

/// The verdict on an entry.
enum OfferVerdict {
    Kept,
    Wanted,
    Held(Vec<u64>),
}

/// Replies to an offer with the wanted entries.
pub(super) fn answer_offer(lane: &SinkLane<'_>, offer: &OfferedEntriesMessage) -> Result<(), SessionError> {
    let history = &lane.sink.history;
    if !history.takes_offers {
        return Err(SessionError::Protocol("an offer where nothing is to be resumed".into()));
    }
    let memory = match (&history.past, &history.siblings) {
        (_, Some(siblings)) => OfferJudgingRecords::Shared(siblings.read_records()?),
        (Some(past), None) => OfferJudgingRecords::Own(past),
        (None, None) => OfferJudgingRecords::None,
    };
    let wanted = OfferedEntryJudge { lane, sink: lane.sink, memory }.decide_offer(offer)?;
    lane.send_message(ControlMessage::Wanted(wanted));
    Ok(())
}

/// Judges the entries of an offer.
struct OfferedEntryJudge<'a> {
    lane: &'a SinkLane<'a>,
    sink: &'a SinkContext<'a>,
    memory: OfferJudgingRecords<'a>,
}

/// The directory of the next entries.
struct OfferSection {
    path: RelPath,
    /// `None` if it does not exist.
    held: Option<OwnedFd>,
    folding: Option<CaseFoldingDirectory>,
    /// True if it lies in a backup, once somebody asked.
    is_backup: OnceCell<bool>,
}

impl OfferedEntryJudge<'_> {
    fn decide_offer(&self, offer: &OfferedEntriesMessage) -> Result<WantedMessage, SessionError> {
        let wanted = WantedMessage { id: offer.id, ..WantedMessage::default() };
        let mut answering = WantedEntriesAnswer { wanted, entry_count: 0, section_count: 0 };
        let mut section: Option<OfferSection> = None;
        for record in EntryTableDecoder::new(&offer.table) {
            match (record?, &section) {
                (EntryTableRecord::Section { path, metadata, .. }, _) => {
                    section = Some(self.enter(path, metadata.as_ref(), &mut answering)?);
                }
                (EntryTableRecord::Entry(entry), Some(section)) => {
                    answering.add_verdict(self.decide_entry(section, &entry)?);
                }
                // The table reader returns no entry before a section.
                (EntryTableRecord::Entry(_), None) => return Err(SessionError::Internal),
            }
        }
        let bits = 8 * answering.wanted.entries.len();
        assert!(bits >= answering.entry_count, "the reply is about each entry of the offer");
        Ok(answering.wanted)
    }

    /// Enters the next directory.
    fn enter(
        &self,
        path: RelPath,
        metadata: Option<&Metadata>,
        answering: &mut WantedEntriesAnswer,
    ) -> Result<OfferSection, SessionError> {
        let destination = &self.sink.destination;
        check_asked_for(destination.confinement.allows_section(&path, metadata), || &path)?;
        let held = destination.open_existing_directory(&path);
        answering.add_section(self.skips_directory(&path, metadata.is_some(), held.is_some()));
        if let (Some(held), OfferJudgingRecords::Own(past)) = (&held, &self.memory) {
            past.clean(&path, metadata.is_some(), held.as_fd(), &destination.scratch);
        }
        let folding = held.as_ref().and_then(|held| destination.names.folding(held.as_fd(), &path));
        Ok(OfferSection { path, held, folding, is_backup: OnceCell::new() })
    }

    fn decide_entry(
        &self,
        section: &OfferSection,
        entry: &EntryTableItem<'_>,
    ) -> Result<OfferVerdict, SessionError> {
        let OfferSection { path, held, folding, .. } = section;
        check_asked_for(self.sink.destination.confinement.allows_entry(path, entry.name), || path)?;
        let verdict = self.compare_entry(section, entry)?;
        if let (OfferVerdict::Kept, Some(held)) = (&verdict, held) {
            self.claim_kept(folding.as_ref(), path, held.as_fd(), entry.name)?;
        }
        Ok(verdict)
    }

    fn compare_entry(
        &self,
        section: &OfferSection,
        entry: &EntryTableItem<'_>,
    ) -> Result<OfferVerdict, SessionError> {
        let OfferSection { path, held, .. } = section;
        let sync = self.sink.spec.sync.as_ref();
        let Some(held) = held else {
            let makes_none = sync.is_some_and(|sync| sync.existing);
            return Ok(if makes_none { OfferVerdict::Kept } else { OfferVerdict::Wanted });
        };
        let is_left = sync.is_some_and(|sync| {
            SyncComparer::new(self.sink, sync).compare(held.as_fd(), entry) == SyncVerdict::Left
        });
        let entry_at_source = entry.to_entry();
        let verdict = if is_left && !self.may_be_torn(path, held.as_fd(), &entry_at_source)? {
            self.count_kept(&entry_at_source)
        } else {
            self.decide_by_records(path, held, &entry_at_source)?
        };
        match verdict {
            OfferVerdict::Kept => self.defer_missing_flags(path, entry)?,
            OfferVerdict::Wanted | OfferVerdict::Held(_)
                if self.would_replace_backup(section, held.as_fd(), entry.name) =>
            {
                self.report_backup_in_the_way(path, entry.name)?;
                return Ok(OfferVerdict::Kept);
            }
            OfferVerdict::Wanted | OfferVerdict::Held(_) => {
                EntryReplacement::new(self.lane).report_directory_deletion(held.as_fd(), path, entry.name)
            }
        }
        Ok(verdict)
    }

    /// Returns true if an entry of a backup has the name. The marker may be replaced by another one.
    fn would_replace_backup(&self, section: &OfferSection, held: BorrowedFd<'_>, name: &[u8]) -> bool {
        self.sink.spec.sync.is_some()
            && name != backup::MARKER
            && !matches!(read_existing_entry(held, name), Ok(None))
            && *section.is_backup.get_or_init(|| self.is_in_backup(&section.path))
    }

    /// Returns true for a directory with the marker of backups, and beneath one.
    fn is_in_backup(&self, path: &RelPath) -> bool {
        let mut above = RelPath::root();
        path.components().any(|name| {
            let Ok(inner) = above.join(name) else { return false };
            above = inner;
            let held = self.sink.destination.open_existing_directory(&above);
            held.is_some_and(|held| backup::is_marked(held.as_fd(), b"."))
        })
    }

    fn report_backup_in_the_way(&self, path: &RelPath, name: &[u8]) -> Result<(), SessionError> {
        let detail =
            "a backup of deleted entries has an entry of this name, and nothing in a backup is replaced: \
                      exclude its directory from the copy"
                .into();
        let path = self.sink.destination.path(path, name);
        self.lane.fail(EntryFailure { path, kind: FailureKind::InTheWay, detail })
    }

    /// Returns true for a file that an earlier session may have named without recording it: after a power cut
    /// it has the time and perhaps the size of the source's, and not its contents. Such a file was created
    /// since the start of the first session.
    fn may_be_torn(&self, path: &RelPath, held: BorrowedFd<'_>, entry: &Entry) -> Result<bool, SessionError> {
        let (EntryKind::Regular { .. }, Some(began)) = (&entry.kind, self.memory.first_session_start())
        else {
            return Ok(false);
        };
        let Ok(Some(found)) = file_times(held, &entry.name) else { return Ok(false) };
        let is_copy = self.sink.attributes.times.is_same(entry.metadata.mtime, found.mtime, held);
        let since = began.seconds.saturating_sub(CLOCK_DIFFERENCE_S);
        if !is_copy || found.created.seconds < since {
            return Ok(false);
        }
        Ok(!self.memory.is_done(path, entry)?)
    }

    /// Claims the names of a kept entry and of its directory: no other entry of the session may get them, or
    /// have had them before.
    fn claim_kept(
        &self,
        folding: Option<&CaseFoldingDirectory>,
        path: &RelPath,
        held: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), SessionError> {
        let names = &self.sink.destination.names;
        let claimed = names.claim_directory(folding, path);
        claimed.and_then(|()| names.claim(folding, held, path, name)).or_else(|error| {
            let path = self.sink.destination.path(path, name);
            self.lane.fail(EntryFailure { path, kind: error.kind(), detail: text_without_errno(&error) })
        })
    }

    /// Notes flags of a kept entry that an earlier session did not set before its end. With
    /// `--ignore-existing` it gets none.
    fn defer_missing_flags(&self, path: &RelPath, entry: &EntryTableItem<'_>) -> Result<(), SessionError> {
        if self.sink.spec.sync.as_ref().is_some_and(|sync| sync.ignore_existing) {
            return Ok(());
        }
        self.lane.note_flags(path, entry.name, entry.metadata.mtime, entry.extras.as_deref())
    }

    /// Returns true if nothing is to do for a directory itself. A replaced entry is reported once, with the
    /// directory's metadata.
    fn skips_directory(&self, path: &RelPath, is_told: bool, is_there: bool) -> bool {
        if is_there {
            return self.sink.spec.dry_run;
        }
        let sync = self.sink.spec.sync.as_ref();
        if sync.is_some_and(|sync| sync.existing && sync.ignore_existing) {
            return true;
        }
        let is_taken = self.is_taken(path);
        if is_taken && is_told {
            EntryReplacement::new(self.lane).report_deletion_for_directory(path);
        }
        sync.is_some_and(|sync| sync.existing) && !is_taken
    }

    /// Returns true if an entry other than a directory has the directory's name.
    fn is_taken(&self, path: &RelPath) -> bool {
        let Some((parent, name)) = path.split_last() else { return false };
        let held = self.sink.destination.open_existing_directory(&parent);
        held.is_some_and(|held| matches!(read_existing_entry(held.as_fd(), name), Ok(Some(_))))
    }

    fn count_kept(&self, entry: &Entry) -> OfferVerdict {
        let counters = &self.lane.counters;
        counters.entries_kept.fetch_add(1, Relaxed);
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        counters.symlinks_kept.fetch_add(is_symlink.into(), Relaxed);
        let is_special = matches!(entry.kind, EntryKind::Special(_));
        counters.specials_kept.fetch_add(is_special.into(), Relaxed);
        counters.bytes_kept.fetch_add(entry.size(), Relaxed);
        OfferVerdict::Kept
    }

    fn decide_by_records(
        &self,
        path: &RelPath,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Result<OfferVerdict, SessionError> {
        // The journal does not record it. A sync has compared it already.
        if let EntryKind::Special(_) = entry.kind {
            let is_kept = self.sink.spec.sync.is_none() && is_in_place(self.lane, path, held.as_fd(), entry);
            return Ok(if is_kept { self.count_kept(entry) } else { OfferVerdict::Wanted });
        }
        // A sync has compared the entries already. Of a partial transfer the recorded bytes can't be
        // verified.
        let can_be_done = self.sink.spec.sync.is_none() && self.sink.spec.part.is_none();
        if can_be_done
            && self.memory.is_done(path, entry)?
            && is_in_place(self.lane, path, held.as_fd(), entry)
        {
            return Ok(self.count_kept(entry));
        }
        let ranges = match &self.memory {
            OfferJudgingRecords::Own(past) => past
                .with_partial(path, entry, |partial| self.resumable_ranges(held.as_fd(), partial))
                .flatten(),
            OfferJudgingRecords::Shared(recorded) => {
                self.shared_resumable_ranges(held.as_fd(), recorded, path, entry)
            }
            OfferJudgingRecords::None => None,
        };
        let Some(ranges) = ranges else { return Ok(OfferVerdict::Wanted) };
        // If several sessions carry the transfer, the source chooses the ranges, and each session may be
        // asked again and again for the same ones.
        if let OfferJudgingRecords::Own(past) = &self.memory {
            let told = ranges_from_message(&ranges, entry.size())?;
            self.lane.counters.bytes_kept.fetch_add(told.covered_bytes(), Relaxed);
            past.set_reported_ranges(path, entry, told);
        }
        Ok(OfferVerdict::Held(ranges))
    }

    /// Returns the recorded ranges of a file to which several sessions write.
    fn shared_resumable_ranges(
        &self,
        held: BorrowedFd<'_>,
        recorded: &SiblingRecords<'_>,
        path: &RelPath,
        entry: &Entry,
    ) -> Option<Vec<u64>> {
        let scratch = &self.sink.destination.scratch;
        let shared = SharedFileName::find(scratch, held, (path, entry), || Some(*recorded)).ok()?;
        // If this session knows an earlier name, the file fails when it is opened.
        self.sink.history.shared_names.note(path, entry, &shared).ok()?;
        let ranges = recorded.held_ranges(path, entry, &shared.temporary);
        let end = ranges.iter().last()?.end()?;
        can_resume(held, &shared.temporary, end, entry.size()).then(|| ranges_to_message(&ranges))
    }

    /// Returns the ranges of a begun file that this session can resume.
    fn resumable_ranges(&self, held: BorrowedFd<'_>, partial: &PartialFile) -> Option<Vec<u64>> {
        let end = partial.held.iter().last()?.end()?;
        let hashed: u64 = partial.subtrees.iter().map(|subtree| subtree.range.len).sum();
        let lacks_digest = self.sink.spec.report_digests && hashed != partial.held.covered_bytes();
        let size_max = self.sink.spec.part.map_or(partial.size, |_| u64::MAX);
        let is_usable = !lacks_digest && can_resume(held, &partial.temporary, end, size_max);
        is_usable.then(|| ranges_to_message(&partial.held))
    }
}
