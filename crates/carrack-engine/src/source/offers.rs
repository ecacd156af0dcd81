//! Scanned sections that wait for the sink's choice, if it has a journal of an earlier session (L12).
//!
//! The scan's threads offer sections, many in one message, and continue. The comm thread delivers the
//! replies, and the thread `carrack-offer` queues the wanted entries. Enough sections may wait that a far
//! sink does not hold up the scan.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_machine::FifoConditionLock;
use carrack_model::limits::{CONTROL_BODY_BYTES_MAX, OFFER_ENTRIES_MAX, OFFERS_MAX};
use carrack_model::{DirectorySection, Entry, EntryKind, ExtraMetadata, RangeSet};
use carrack_wire::message::{ControlMessage, OfferedEntriesMessage, WantedMessage};
use carrack_wire::{EntryTableEncoder, ranges_from_message};

use super::chunks::{FilePart, OfferedBytes, SourceChunkMembership};
use crate::error::SessionError;

/// The table size at which an offer is sent.
const TABLE_BYTES: usize = CONTROL_BODY_BYTES_MAX / 2;

/// The maximum table size, which a message holds. The longest path and the longest entry together are
/// shorter.
const TABLE_BYTES_MAX: usize = CONTROL_BODY_BYTES_MAX - 64;

/// An upper bound of a record's bytes except names, targets, owners and attributes: its head, a digest, an
/// inode number.
const RECORD_BYTES: usize = 128;

/// Offers of a session, shared by the scan, the comm thread of the first lane, and the thread
/// `carrack-offer`.
pub(super) struct SourceOfferTable {
    /// The offer that is being filled.
    open: Mutex<OfferedDirectorySections>,
    /// True if the sink compares: offers have owners and digests too.
    is_sync: bool,
    waiting: FifoConditionLock<UnansweredSourceOffers>,
    answered: FifoConditionLock<AnsweredOffers>,
}

/// The origin of a section.
#[derive(Clone)]
pub(super) struct OfferedSectionOrigin {
    /// The device of its directory.
    pub(super) device: u64,
    /// The chunk of the section, if the work comes in chunks.
    pub(super) chunk: Option<SourceChunkMembership>,
    /// The part of its files that this session handles, or `None` for whole files.
    pub(super) part: Option<FilePart>,
    /// The section's bytes in the count of work, until it is queued, or not wanted.
    pub(super) _asked: Option<Arc<OfferedBytes>>,
}

impl OfferedSectionOrigin {
    /// The origin of a section of the scan.
    pub(super) fn from_scan(device: u64) -> OfferedSectionOrigin {
        OfferedSectionOrigin { device, chunk: None, part: None, _asked: None }
    }
}

/// Sections with their origins, and their table.
#[derive(Default)]
struct OfferedDirectorySections {
    table: Vec<u8>,
    entry_count: usize,
    sections: Vec<(DirectorySection, OfferedSectionOrigin)>,
}

#[derive(Default)]
struct UnansweredSourceOffers {
    newest: u64,
    trays: HashMap<u64, Vec<(DirectorySection, OfferedSectionOrigin)>>,
}

#[derive(Default)]
struct AnsweredOffers {
    queue: VecDeque<AnsweredSection>,
    /// Offers without a reply.
    open: usize,
    /// True if no further offer follows.
    is_ended: bool,
}

/// The sink's choice in a section.
pub(super) struct AnsweredSection {
    /// Entries of which the sink holds no range.
    pub(super) section: DirectorySection,
    pub(super) origin: OfferedSectionOrigin,
    /// Large files of which it holds ranges.
    pub(super) begun: Vec<(Entry, RangeSet)>,
}

impl OfferedDirectorySections {
    fn is_full(&self) -> bool {
        self.table.len() >= TABLE_BYTES || self.entry_count >= OFFER_ENTRIES_MAX
    }

    /// Returns true if the entry fits. An empty tray has room for any.
    fn has_room(&self, entry: &Entry) -> bool {
        let is_first = self.sections.is_empty() && self.entry_count == 0;
        is_first || self.table.len() + bytes_of(entry) <= TABLE_BYTES_MAX
    }

    /// Adds the entries of a section that fit, written by `write`. Returns the remaining entries if the tray
    /// is full.
    fn put(
        &mut self,
        section: DirectorySection,
        origin: OfferedSectionOrigin,
        mut write: impl FnMut(EntryTableEncoder<'_>, &Entry),
    ) -> Option<DirectorySection> {
        let DirectorySection { directory, metadata, extras, entries } = section;
        let was_empty = self.sections.is_empty();
        EntryTableEncoder::new(&mut self.table).begin_section(&directory.sink, metadata.as_ref());
        let mut entries = entries.into_iter().peekable();
        let mut taken = Vec::new();
        while !self.is_full()
            && let Some(entry) = entries.next_if(|entry| self.has_room(entry))
        {
            write(EntryTableEncoder::new(&mut self.table), &entry);
            self.entry_count += 1;
            taken.push(entry);
        }
        let rest: Vec<Entry> = entries.collect();
        let rest = (!rest.is_empty()).then(|| DirectorySection {
            directory: directory.clone(),
            metadata: None,
            extras: None,
            entries: rest,
        });
        assert!(!was_empty || !taken.is_empty() || rest.is_none(), "an empty tray has room for any entry");
        assert!(self.table.len() <= TABLE_BYTES_MAX || self.entry_count <= 1, "a message holds each table");
        self.sections.push((DirectorySection { directory, metadata, extras, entries: taken }, origin));
        rest
    }
}

impl SourceOfferTable {
    pub(super) fn new(is_sync: bool) -> SourceOfferTable {
        SourceOfferTable {
            is_sync,
            open: Mutex::default(),
            waiting: FifoConditionLock::new(UnansweredSourceOffers::default()),
            answered: FifoConditionLock::new(AnsweredOffers::default()),
        }
    }

    fn lock_open_offer(&self) -> MutexGuard<'_, OfferedDirectorySections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers the entries of a section to the sink by `say`, with the digests of its files where contents are
    /// compared. Runs on a thread of the scan, which waits while too many offers are open.
    pub(super) fn offer(
        &self,
        section: DirectorySection,
        digests: Vec<Option<[u8; 32]>>,
        origin: &OfferedSectionOrigin,
        say: &dyn Fn(ControlMessage),
    ) -> ControlFlow<()> {
        assert!(digests.is_empty() || digests.len() == section.entries.len(), "each entry has its digest");
        let mut digests = digests.into_iter();
        let mut rest = Some(section);
        while let Some(section) = rest {
            let mut tray = self.lock_open_offer();
            rest = if self.is_sync {
                tray.put(section, origin.clone(), |writer, entry| {
                    write_compared_entry(writer, entry, &mut digests)
                })
            } else {
                tray.put(section, origin.clone(), write_recorded_entry)
            };
            let is_full = tray.is_full() || rest.is_some();
            let full = is_full.then(|| std::mem::take(&mut *tray));
            drop(tray);
            if let Some(full) = full {
                self.send(full, say)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn send(&self, tray: OfferedDirectorySections, say: &dyn Fn(ControlMessage)) -> ControlFlow<()> {
        let OfferedDirectorySections { table, sections, .. } = tray;
        let Some(id) = self.wait_for_room(sections) else { return ControlFlow::Break(()) };
        say(ControlMessage::Offer(OfferedEntriesMessage { id, table }));
        ControlFlow::Continue(())
    }

    fn wait_for_room(&self, sections: Vec<(DirectorySection, OfferedSectionOrigin)>) -> Option<u64> {
        let mut sections = Some(sections);
        let id = self.waiting.take(|waiting| {
            let has_room = waiting.trays.len() < OFFERS_MAX;
            let sections = has_room.then(|| sections.take()).flatten()?;
            waiting.newest += 1;
            let before = waiting.trays.insert(waiting.newest, sections);
            assert!(before.is_none(), "each offer has an id of its own");
            Some(waiting.newest)
        });
        self.answered.with(|answers| answers.open += usize::from(id.is_ok()));
        id.ok()
    }

    /// Delivers the sink's reply. Runs on the comm thread.
    pub(super) fn answer(&self, wanted: &WantedMessage) -> Result<(), SessionError> {
        let found = self.waiting.change_and_wake_one(|waiting| waiting.trays.remove(&wanted.id));
        let Some(sections) = found else {
            return Err(SessionError::Protocol(format!("offer {} was never made", wanted.id)));
        };
        let answered = choose(sections, wanted)?;
        self.answered.change_and_wake_one(|answers| {
            answers.queue.extend(answered);
            assert!(answers.open > 0, "each offer is answered once");
            answers.open -= 1;
        });
        Ok(())
    }

    /// Returns the next reply, or `None` after the last one, and when the session ends.
    pub(super) fn next(&self) -> Option<AnsweredSection> {
        let next = self.answered.take(|answers| match answers.queue.pop_front() {
            Some(answered) => Some(Some(answered)),
            None => (answers.is_ended && answers.open == 0).then_some(None),
        });
        next.ok().flatten()
    }

    /// Sends the open offer, as no further section follows soon.
    pub(super) fn flush(&self, say: &dyn Fn(ControlMessage)) {
        let last = std::mem::take(&mut *self.lock_open_offer());
        if !last.sections.is_empty() {
            // Ends early only if the session ends.
            let _ = self.send(last, say);
        }
    }

    /// Sends the last offer at the end of the scan.
    pub(super) fn end(&self, say: &dyn Fn(ControlMessage)) {
        self.flush(say);
        self.answered.change_and_wake_one(|answers| {
            assert!(!answers.is_ended, "the scan ends once");
            answers.is_ended = true;
        });
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.waiting.close();
        self.answered.close();
    }
}

/// Returns an upper bound of an entry's bytes in a table.
fn bytes_of(entry: &Entry) -> usize {
    let target = match &entry.kind {
        EntryKind::Symlink { target } => target.len(),
        EntryKind::Regular { .. } | EntryKind::Special(_) => 0,
    };
    let extras = entry.extras.as_deref().map_or(0, |extras| extras.tag_bytes(size_of::<u32>()));
    RECORD_BYTES + entry.name.len() + target + extras
}

/// Writes an entry as journals have it, with flags that an earlier session may not have set yet.
fn write_recorded_entry(writer: EntryTableEncoder<'_>, entry: &Entry) {
    let flags = entry.extras.as_deref().and_then(|extras| extras.flags);
    let flags = flags.filter(|flags| flags.write_protecting().active() != 0);
    let extras = flags.map(|flags| ExtraMetadata { flags: Some(flags), ..ExtraMetadata::default() });
    writer.with_extras(extras.as_ref()).add_entry(entry);
}

/// Writes an entry for a sink that compares: all of its metadata, and its digest if contents are compared.
fn write_compared_entry(
    writer: EntryTableEncoder<'_>,
    entry: &Entry,
    digests: &mut impl Iterator<Item = Option<[u8; 32]>>,
) {
    let mut writer = writer.with_extras(entry.extras.as_deref());
    let digest = digests.next().flatten();
    match &entry.kind {
        EntryKind::Regular { size } => {
            writer.add_regular(&entry.name, *size, &entry.metadata, entry.identity, digest.as_ref());
        }
        EntryKind::Symlink { .. } | EntryKind::Special(_) => writer.add_entry(entry),
    }
}

/// Returns the wanted entries. Sections without entries and without directory metadata are left out.
fn choose(
    sections: Vec<(DirectorySection, OfferedSectionOrigin)>,
    wanted: &WantedMessage,
) -> Result<Vec<AnsweredSection>, SessionError> {
    let count: usize = sections.iter().map(|(section, _)| section.entries.len()).sum();
    if wanted.entries.len() != count.div_ceil(8) {
        return Err(SessionError::Protocol("an answer of another size than its offer".into()));
    }
    let mut held: HashMap<usize, Vec<u64>> =
        wanted.held.iter().map(|held| (held.entry as usize, held.ranges.clone())).collect();
    let mut answers = Vec::with_capacity(sections.len());
    let mut index = 0;
    for (place, (section, origin)) in sections.into_iter().enumerate() {
        let DirectorySection { directory, mut metadata, extras, entries } = section;
        if wanted.sections_left.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 1) {
            metadata = None;
        }
        let (mut rest, mut begun) = (Vec::new(), Vec::new());
        for entry in entries {
            let is_wanted = wanted.entries[index / 8] >> (index % 8) & 1 == 1;
            match (is_wanted, held.remove(&index)) {
                (true, Some(ranges)) => {
                    let ranges = ranges_from_message(&ranges, entry.size())?;
                    begun.push((entry, ranges));
                }
                (true, None) => rest.push(entry),
                (false, _) => {}
            }
            index += 1;
        }
        if metadata.is_some() || !rest.is_empty() || !begun.is_empty() {
            answers.push(AnsweredSection {
                section: DirectorySection { directory, metadata, extras, entries: rest },
                origin,
                begun,
            });
        }
    }
    assert!(index == count, "each entry has one bit of the answer");
    if !held.is_empty() {
        return Err(SessionError::Protocol("an answer about an entry that was not offered".into()));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_model::{
        ByteRange, CopiedDirectoryPaths, EntryKind, ExtendedAttribute, ExtraMetadata, Metadata, RelPath,
    };
    use carrack_wire::message::HeldRanges;

    fn section(count: usize) -> DirectorySection {
        let path = RelPath::root();
        let directory = Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path });
        DirectorySection {
            directory,
            metadata: Some(Metadata::default()),
            extras: None,
            entries: (0..count).map(entry).collect(),
        }
    }

    fn entry(index: usize) -> Entry {
        Entry {
            name: format!("f{index}").into_bytes().into(),
            source_name: None,
            kind: EntryKind::Regular { size: 100 },
            metadata: Metadata::default(),
            identity: index as u64,
            extras: None,
        }
    }

    fn whole(mut writer: EntryTableEncoder<'_>, entry: &Entry) {
        writer.add_entry(entry);
    }

    fn wanted(entries: &[u8], held: Vec<HeldRanges>) -> WantedMessage {
        WantedMessage { id: 1, entries: entries.into(), held, sections_left: Vec::new() }
    }

    #[test]
    fn what_is_wanted_is_told_from_what_is_begun() {
        let held = vec![HeldRanges { entry: 2, ranges: vec![0, 10, 50, 50] }];
        let answered =
            choose(vec![(section(9), OfferedSectionOrigin::from_scan(7))], &wanted(&[0b0000_0101, 1], held))
                .unwrap();
        let [answered] = &answered[..] else { panic!() };
        let names: Vec<_> = answered.section.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [b"f0", b"f8"]);
        assert!(answered.section.metadata.is_some() && answered.origin.device == 7);
        let [(entry, ranges)] = &answered.begun[..] else { panic!() };
        assert_eq!((&*entry.name, ranges.covered_bytes()), (&b"f2"[..], 60));
        assert_eq!(ranges.next_from(0), Some(ByteRange::new(0, 10)));
    }

    #[test]
    fn one_answer_is_about_several_sections() {
        let mut bare = section(3);
        bare.metadata = None;
        let sections = vec![
            (section(4), OfferedSectionOrigin::from_scan(1)),
            (bare.clone(), OfferedSectionOrigin::from_scan(2)),
            (bare, OfferedSectionOrigin::from_scan(3)),
        ];
        let held = vec![HeldRanges { entry: 9, ranges: vec![0, 10] }];
        let answered = choose(sections, &wanted(&[0b0000_1000, 0b0000_0010], held)).unwrap();
        let told: Vec<_> = answered
            .iter()
            .map(|one| (one.origin.device, one.section.entries.len(), one.begun.len()))
            .collect();
        assert_eq!(told, [(1, 1, 0), (3, 0, 1)], "the second has nothing to say");
    }

    #[test]
    fn a_tray_takes_what_fits() {
        let mut tray = OfferedDirectorySections::default();
        let mut rest = Some(section(OFFER_ENTRIES_MAX + 10));
        rest = tray.put(rest.take().unwrap(), OfferedSectionOrigin::from_scan(7), whole);
        assert!(tray.is_full());
        let rest = rest.unwrap();
        assert_eq!((rest.entries.len(), rest.metadata), (10, None));
        let mut next = OfferedDirectorySections::default();
        assert!(next.put(rest, OfferedSectionOrigin::from_scan(7), whole).is_none() && !next.is_full());
    }

    #[test]
    fn a_tray_never_has_more_than_a_message() {
        let value = vec![7; 60 << 10];
        let attributes = [b"user.a", b"user.b"]
            .map(|name| ExtendedAttribute { name: name[..].into(), value: value.clone().into() });
        let extras = ExtraMetadata { attributes: attributes.into(), ..ExtraMetadata::default() };
        let mut heavy = section(5);
        heavy.entries.iter_mut().for_each(|entry| entry.extras = Some(Box::new(extras.clone())));
        let mut rest = Some(heavy);
        let mut counts = Vec::new();
        while let Some(section) = rest {
            let mut tray = OfferedDirectorySections::default();
            rest = tray.put(section, OfferedSectionOrigin::from_scan(7), |writer, entry| {
                write_compared_entry(writer, entry, &mut std::iter::empty())
            });
            assert!(tray.table.len() <= TABLE_BYTES_MAX);
            counts.push(tray.entry_count);
        }
        assert_eq!(counts, [2, 2, 1]);
    }

    #[test]
    fn answers_that_fit_no_offer_are_refused() {
        for bad in [
            wanted(&[1], vec![]),
            wanted(&[1, 1, 1], vec![]),
            wanted(&[1, 1], vec![HeldRanges { entry: 9, ranges: vec![] }]),
            wanted(&[1, 1], vec![HeldRanges { entry: 0, ranges: vec![0, 101] }]),
        ] {
            assert!(
                choose(
                    vec![
                        (section(4), OfferedSectionOrigin::from_scan(7)),
                        (section(5), OfferedSectionOrigin::from_scan(7))
                    ],
                    &bad
                )
                .is_err(),
                "{bad:?}"
            );
        }
        let offers = SourceOfferTable::new(false);
        assert!(offers.answer(&wanted(&[1, 1], vec![])).is_err(), "never made");
    }

    #[test]
    fn the_end_comes_when_everything_is_answered() {
        let offers = SourceOfferTable::new(false);
        assert_eq!(offers.wait_for_room(vec![(section(9), OfferedSectionOrigin::from_scan(7))]), Some(1));
        offers.answered.change_and_wake_one(|answers| answers.is_ended = true);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| std::iter::from_fn(|| offers.next()).count());
            offers.answer(&wanted(&[1, 0], vec![])).unwrap();
            assert_eq!(taker.join().unwrap(), 1);
        });
    }
}
