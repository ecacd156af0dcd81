//! What of the source's entries is wanted, where an earlier session left a journal (L12), or in a sync.
//!
//! An entry is kept if the journal has it, as the source has it now (size, time, inode number), and if it is still there. Of a
//! large file that was begun, what the journal has of it is told: the source leaves that out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use carrack_journal::{EntryKey, Partial};
use carrack_model::{Entry, EntryFailure, EntryKind, Metadata, RelPath};
use carrack_storage::{FoldingDirectory, Present, can_resume, digest_of, dress_file, look_at};
use carrack_wire::message::{Control, HeldRanges, Offer, Wanted};
use carrack_wire::{TableEntry, TableReader, TableRecord, ranges_from_message, ranges_to_message};

use super::lane::Lane;
use super::past::Past;
use super::siblings::{Recorded, version_of};
use super::sync::Wish;
use crate::error::SessionError;

/// The answer to an offer in the making.
struct Answering {
    wanted: Wanted,
    entry_count: usize,
    section_count: usize,
}

impl Answering {
    /// Goes on with another section.
    fn section(&mut self, is_left: bool) {
        let index = self.section_count;
        self.section_count += 1;
        if is_left {
            self.wanted.sections_left.resize(index / 8 + 1, 0);
            self.wanted.sections_left[index / 8] |= 1 << (index % 8);
        }
    }

    fn note(&mut self, verdict: Verdict) {
        let index = self.entry_count;
        self.entry_count += 1;
        if index.is_multiple_of(8) {
            self.wanted.entries.push(0);
        }
        if let Verdict::Kept = verdict {
            return;
        }
        self.wanted.entries[index / 8] |= 1 << (index % 8);
        if let Verdict::Held(ranges) = verdict {
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

/// What tells what is there.
enum Memory<'a> {
    /// The transfer's journal.
    Own(&'a Past),
    /// Those of all sessions that carry it.
    Shared(Recorded<'a>),
    /// There was no earlier session, or what it left can't be used.
    None,
}

/// What is known of an entry.
enum Verdict {
    Kept,
    Wanted,
    Held(Vec<u64>),
}

impl Lane<'_> {
    /// Says which entries are wanted.
    pub(super) fn answer_offer(&self, offer: &Offer) -> Result<(), SessionError> {
        if !self.sink.takes_offers {
            return Err(SessionError::Protocol("an offer where nothing is to be resumed".into()));
        }
        let memory = match (&self.sink.past, &self.sink.siblings) {
            (_, Some(siblings)) => Memory::Shared(siblings.recorded()?),
            (Some(past), None) => Memory::Own(past),
            (None, None) => Memory::None,
        };
        let wanted = Wanted { id: offer.id, ..Wanted::default() };
        let mut answering = Answering { wanted, entry_count: 0, section_count: 0 };
        let mut place: Option<(RelPath, Option<OwnedFd>, Option<FoldingDirectory>)> = None;
        for record in TableReader::new(&offer.table) {
            match (record?, &place) {
                (TableRecord::Section { path, metadata, .. }, _) => {
                    let is_allowed = self.sink.confinement.allows_section(&path, metadata.as_ref());
                    self.check_allowed(is_allowed, &path)?;
                    let held = self.sink.seen.as_ref().and_then(|root| root.enter_directory(&path).ok());
                    answering.section(self.leaves_directory(&path, metadata.is_some(), held.is_some()));
                    if let (Some(held), Memory::Own(past)) = (&held, &memory) {
                        past.clean(&path, metadata.is_some(), held.as_fd(), &self.sink.scratch);
                    }
                    let names = self.sink.names.as_ref().zip(held.as_ref());
                    let folding = names.and_then(|(names, held)| names.of(held.as_fd(), &path));
                    place = Some((path, held, folding));
                }
                (TableRecord::Entry(entry), Some((path, held, folding))) => {
                    self.check_allowed(self.sink.confinement.allows_entry(path, entry.name), path)?;
                    let verdict = self.weigh(&memory, path, held.as_ref(), &entry)?;
                    if let (Verdict::Kept, Some(held)) = (&verdict, held) {
                        self.claim_kept(folding.as_ref(), path, held.as_fd(), entry.name)?;
                    }
                    answering.note(verdict);
                }
                // The table reader gives no entry before a section.
                (TableRecord::Entry(_), None) => return Err(SessionError::Internal),
            }
        }
        self.say(Control::Wanted(answering.wanted));
        Ok(())
    }

    /// Whether an entry is wanted; `held` is its directory, if that is there.
    fn weigh(
        &self,
        memory: &Memory<'_>,
        path: &RelPath,
        held: Option<&OwnedFd>,
        entry: &TableEntry<'_>,
    ) -> Result<Verdict, SessionError> {
        let sync = self.sink.spec.sync.as_ref();
        let Some(held) = held else {
            let makes_none = sync.is_some_and(|sync| sync.existing);
            return Ok(if makes_none { Verdict::Kept } else { Verdict::Wanted });
        };
        let is_left = sync.is_some_and(|sync| self.compare(sync, held.as_fd(), entry) == Wish::Left);
        let verdict = match is_left {
            true => self.keep(&entry.to_entry()),
            false => self.judge(memory, path, held, &entry.to_entry())?,
        };
        match verdict {
            Verdict::Kept => self.fasten(path, entry)?,
            Verdict::Wanted | Verdict::Held(_) => self.tell_way(held.as_fd(), path, entry.name),
        }
        Ok(verdict)
    }

    /// What is kept has its name, and its directory has its own: no other entry gets them, and no other had them before.
    fn claim_kept(
        &self,
        folding: Option<&FoldingDirectory>,
        path: &RelPath,
        held: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), SessionError> {
        let Some((names, folding)) = self.sink.names.as_ref().zip(folding) else { return Ok(()) };
        let claimed = names.claim_directory(folding, path);
        claimed.and_then(|()| names.claim(folding, held, path, name)).or_else(|error| {
            let path = self.path(path, name);
            self.fail(EntryFailure { path, kind: error.kind(), detail: error.to_string() })
        })
    }

    /// What is kept gets flags that an earlier session had no time to set; what was to stay as it is gets none.
    fn fasten(&self, path: &RelPath, entry: &TableEntry<'_>) -> Result<(), SessionError> {
        if self.sink.spec.sync.as_ref().is_some_and(|sync| sync.ignore_existing) {
            return Ok(());
        }
        self.note_flags(path, entry.name, entry.metadata.mtime, entry.extras.as_deref())
    }

    /// Whether nothing is to be done for a directory itself. It is told of once where its metadata are.
    fn leaves_directory(&self, path: &RelPath, is_told: bool, is_there: bool) -> bool {
        if is_there {
            return self.sink.spec.dry_run;
        }
        let sync = self.sink.spec.sync.as_ref();
        if sync.is_some_and(|sync| sync.existing && sync.ignore_existing) {
            return true;
        }
        let is_taken = self.is_taken(path);
        if is_taken && is_told {
            self.tell_way_of_directory(path);
        }
        sync.is_some_and(|sync| sync.existing) && !is_taken
    }

    /// Whether something that is no directory has the name that one is to have.
    fn is_taken(&self, path: &RelPath) -> bool {
        let Some((parent, name)) = path.split_last() else { return false };
        let held = self.sink.seen.as_ref().and_then(|root| root.enter_directory(&parent).ok());
        held.is_some_and(|held| matches!(look_at(held.as_fd(), name), Ok(Some(_))))
    }

    fn keep(&self, entry: &Entry) -> Verdict {
        let counters = &self.counters;
        counters.entries_kept.fetch_add(1, Relaxed);
        let is_symlink = matches!(entry.kind, EntryKind::Symlink { .. });
        counters.symlinks_kept.fetch_add(is_symlink.into(), Relaxed);
        let is_special = matches!(entry.kind, EntryKind::Special(_));
        counters.specials_kept.fetch_add(is_special.into(), Relaxed);
        counters.bytes_kept.fetch_add(entry.size(), Relaxed);
        Verdict::Kept
    }

    pub(super) fn check_allowed(&self, is_allowed: bool, path: &RelPath) -> Result<(), SessionError> {
        match is_allowed {
            true => Ok(()),
            false => Err(SessionError::Protocol(format!("'{path}' was not asked for"))),
        }
    }

    fn judge(
        &self,
        memory: &Memory<'_>,
        path: &RelPath,
        held: &OwnedFd,
        entry: &Entry,
    ) -> Result<Verdict, SessionError> {
        // No journal has it. In a sync it was compared already.
        if let EntryKind::Special(_) = entry.kind {
            let is_kept = self.sink.spec.sync.is_none() && self.is_there(path, held.as_fd(), entry);
            return Ok(if is_kept { self.keep(entry) } else { Verdict::Wanted });
        }
        let is_done = match memory {
            Memory::Own(past) => past.is_done(path, &key_of(entry))?,
            Memory::Shared(recorded) => recorded.is_done(path, &key_of(entry))?,
            Memory::None => return Ok(Verdict::Wanted),
        };
        // A sync has looked at what is there already. Of a part nobody could tell whether it is still there.
        let is_done = is_done && self.sink.spec.sync.is_none() && self.sink.spec.part.is_none();
        if is_done && self.is_there(path, held.as_fd(), entry) {
            return Ok(self.keep(entry));
        }
        let ranges = match memory {
            Memory::Own(past) => {
                past.with_partial(path, entry, |partial| self.usable(held.as_fd(), partial)).flatten()
            }
            Memory::Shared(recorded) => self.usable_of_all(held.as_fd(), recorded, path, entry),
            Memory::None => None,
        };
        let Some(ranges) = ranges else { return Ok(Verdict::Wanted) };
        // Where several sessions carry the transfer, the source says what comes; of what is there each of them may be asked
        // again and again.
        if let Memory::Own(past) = memory {
            let told = ranges_from_message(&ranges, entry.size())?;
            self.counters.bytes_kept.fetch_add(told.covered_bytes(), Relaxed);
            past.told(path, entry, told);
        }
        Ok(Verdict::Held(ranges))
    }

    /// Whether what was recorded still stands there; if digests are asked for, reads and reports it.
    pub(super) fn is_there(&self, path: &RelPath, held: BorrowedFd<'_>, entry: &Entry) -> bool {
        let Ok(Some(present)) = look_at(held, &entry.name) else { return false };
        let is_same = match (&entry.kind, &present) {
            (EntryKind::Regular { size }, Present::File { size: found, metadata, .. }) => {
                size == found && self.has_all(held, entry, metadata)
            }
            (EntryKind::Symlink { target }, Present::Symlink { target: found, .. }) => target == found,
            (EntryKind::Special(special), Present::Special { special: found, metadata, .. }) => {
                special == found
                    && self.sink.has_mode(metadata, entry.metadata)
                    && self.sink.has_time(metadata, entry.metadata, held)
            }
            _ => false,
        };
        let reports = self.sink.spec.report_digests && matches!(entry.kind, EntryKind::Regular { .. });
        if !is_same || !reports {
            return is_same;
        }
        match digest_of(held, &entry.name, false) {
            Ok(digest) => {
                self.report_digest(path, &entry.name, entry.size(), digest);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether a file is the one that was recorded. A mode that the file system refused then is tried once more.
    fn has_all(&self, held: BorrowedFd<'_>, entry: &Entry, found: &Metadata) -> bool {
        let told = self.sink.allowed(entry.metadata);
        let dress = || dress_file(held, &entry.name, &self.sink.dress(&told, None));
        self.sink.has_time(found, entry.metadata, held)
            && (self.sink.has_mode(found, entry.metadata) || dress().is_ok())
    }

    /// What of a file to which several sessions write is there.
    fn usable_of_all(
        &self,
        held: BorrowedFd<'_>,
        recorded: &Recorded<'_>,
        path: &RelPath,
        entry: &Entry,
    ) -> Option<Vec<u64>> {
        let temporary = self.sink.scratch.shared_name(&entry.name, version_of(entry));
        let ranges = recorded.held(path, entry, &temporary);
        let end = ranges.iter().last()?.end()?;
        can_resume(held, &temporary, end, entry.size()).then(|| ranges_to_message(&ranges))
    }

    /// What of a file that was begun can be gone on with.
    fn usable(&self, held: BorrowedFd<'_>, partial: &Partial) -> Option<Vec<u64>> {
        let end = partial.held.iter().last()?.end()?;
        let hashed: u64 = partial.subtrees.iter().map(|subtree| subtree.range.len).sum();
        let lacks_digest = self.sink.spec.report_digests && hashed != partial.held.covered_bytes();
        let size_max = self.sink.spec.part.map_or(partial.size, |_| u64::MAX);
        let is_usable = !lacks_digest && can_resume(held, &partial.temporary, end, size_max);
        is_usable.then(|| ranges_to_message(&partial.held))
    }
}
