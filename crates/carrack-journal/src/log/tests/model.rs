//! Any sequence of records, cut or damaged at any byte, is a prefix of itself; and compaction is not visible.

use std::collections::BTreeMap;

use carrack_model::{ByteRange, RangeSet};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::log::journal::OpenedJournal;
use crate::{Blake3Subtree, subtree_ranges};

/// Bytes of each large file.
const LARGE_BYTES: u64 = 20_000;

const BOOT: u8 = 9;

/// One of the files of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TestRecordedFile {
    directory: u8,
    name: u8,
    version: u8,
}

#[derive(Clone, Debug)]
enum TestJournalOperation {
    Session {
        soft: bool,
        boot: u8,
    },
    Small(Vec<TestRecordedFile>),
    Begin(TestRecordedFile),
    /// A range of an unfinished file, in units of 1,024 bytes.
    Held(Index, u64, u64, bool),
    Done(Index),
    Dropped(Index),
}

impl TestRecordedFile {
    fn directory(self) -> RelPath {
        RelPath::new([&b""[..], b"d", b"d/e"][usize::from(self.directory)]).unwrap()
    }

    fn name(self) -> [u8; 1] {
        [b'a' + self.name]
    }

    /// Version 3 is a link, each other version differs in one value.
    fn key(self, name: &[u8; 1]) -> EntryKey<'_> {
        let mtime = Timestamp { nanoseconds: u32::from(self.version == 1), ..metadata().mtime };
        let is_link = self.version == 3;
        EntryKey {
            name,
            size: if is_link { 0 } else { LARGE_BYTES },
            mtime,
            identity: if self.version == 2 { 2 } else { 1 },
            target: is_link.then_some(b"target"),
        }
    }

    fn write(self, writer: &mut EntryTableEncoder<'_>) {
        let name = self.name();
        let key = self.key(&name);
        let metadata = Metadata { mtime: key.mtime, ..metadata() };
        match key.target {
            Some(target) => writer.add_symlink(key.name, target, &metadata, key.identity),
            None => writer.add_regular(key.name, key.size, &metadata, key.identity, None),
        }
    }

    fn all() -> impl Iterator<Item = TestRecordedFile> {
        let plays = (0..3).flat_map(|directory| (0..3).map(move |name| (directory, name)));
        plays.flat_map(|(directory, name)| {
            (0..4).map(move |version| TestRecordedFile { directory, name, version })
        })
    }
}

/// The visible state of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
struct TestJournalState {
    done: Vec<TestRecordedFile>,
    partials: BTreeMap<u64, (TestRecordedFile, RangeSet, Vec<ByteRange>)>,
}

/// A record in the model.
#[derive(Clone, Debug)]
enum ModelJournalRecord {
    Session { counts: bool },
    Small(Vec<TestRecordedFile>),
    Begin(u64, TestRecordedFile),
    Held(u64, ByteRange, bool),
    Done(u64),
    Dropped(u64),
}

/// The state that a reader in boot [`BOOT`] sees, by the rules alone.
fn model(told: &[ModelJournalRecord]) -> TestJournalState {
    let mut counts = true;
    let mut last_word = BTreeMap::new();
    let mut live: BTreeMap<u64, (TestRecordedFile, RangeSet, RangeSet)> = BTreeMap::new();
    let mut complete = |play: TestRecordedFile| {
        last_word.insert((play.directory, play.name), play);
    };
    for record in told {
        match record {
            ModelJournalRecord::Session { counts: now } => counts = *now,
            ModelJournalRecord::Small(plays) if counts => plays.iter().for_each(|&play| complete(play)),
            ModelJournalRecord::Begin(number, play) => {
                live.insert(*number, (*play, RangeSet::new(), RangeSet::new()));
            }
            ModelJournalRecord::Held(number, range, is_hashed) if counts => {
                let Some((_, held, hashed)) = live.get_mut(number) else { continue };
                held.cover(*range);
                if *is_hashed {
                    hashed.cover(*range);
                }
            }
            ModelJournalRecord::Done(number) if counts => {
                live.remove(number).into_iter().for_each(|(play, ..)| complete(play));
            }
            ModelJournalRecord::Dropped(number) => drop(live.remove(number)),
            _ => {}
        }
    }
    let partials = live
        .into_iter()
        .map(|(number, (play, held, hashed))| (number, (play, held, hashed.iter().collect())));
    TestJournalState { done: last_word.into_values().collect(), partials: partials.collect() }
}

/// The file of a partial one.
fn play_of(partial: &PartialFile) -> TestRecordedFile {
    let same = |play: &TestRecordedFile| {
        play.directory() == partial.directory && play.key(&play.name()) == partial.key()
    };
    TestRecordedFile::all().find(same).unwrap()
}

/// The state of the journal.
fn seen(recovered: &RecoveredJournal) -> TestJournalState {
    let is_done = |play: &TestRecordedFile| {
        let name = play.name();
        recovered.is_done(&play.directory(), &play.key(&name)).unwrap()
    };
    let partials = recovered.partials().iter().map(|partial| {
        let play = play_of(partial);
        assert_eq!(&*partial.temporary, temporary(partial.number).as_bytes());
        let mut hashed = RangeSet::new();
        for subtree in &partial.subtrees {
            assert!(hashed.insert(subtree.range), "subtrees overlap");
        }
        (partial.number, (play, partial.held.clone(), hashed.iter().collect()))
    });
    TestJournalState { done: TestRecordedFile::all().filter(is_done).collect(), partials: partials.collect() }
}

fn temporary(number: u64) -> String {
    format!(".x.carrack-{number:08x}")
}

/// A journal with all of its records.
struct RecordedTestJournal {
    ground: TestJournalDirectory,
    journal: Option<Journal>,
    told: Vec<ModelJournalRecord>,
    /// End of each record.
    ends: Vec<u64>,
    begun: Vec<u64>,
}

impl RecordedTestJournal {
    fn new() -> RecordedTestJournal {
        let ground = TestJournalDirectory::new();
        let journal = Some(ground.create(&session(BOOT, false)));
        let mut telling =
            RecordedTestJournal { ground, journal, told: Vec::new(), ends: Vec::new(), begun: Vec::new() };
        telling.tell(ModelJournalRecord::Session { counts: true });
        telling
    }

    fn tell(&mut self, told: ModelJournalRecord) {
        self.told.push(told);
        self.ends.push(self.ground.bytes().len() as u64);
    }

    fn append(&mut self, told: ModelJournalRecord, write: impl FnOnce(&mut RecordBatch)) {
        let mut batch = RecordBatch::new();
        write(&mut batch);
        self.journal.as_ref().unwrap().append(&batch, false).unwrap();
        self.tell(told);
    }

    fn number(&self, index: Index) -> Option<u64> {
        (!self.begun.is_empty()).then(|| *index.get(&self.begun))
    }

    fn op(&mut self, op: &TestJournalOperation) {
        match op {
            TestJournalOperation::Session { soft, boot } => {
                self.journal = None;
                // Opened as by a reader in the model's boot, independent of the session's own boot.
                self.journal = Some(self.ground.open(&session(*boot, *soft)).unwrap().0);
                self.tell(ModelJournalRecord::Session { counts: !soft || *boot == BOOT });
            }
            TestJournalOperation::Small(plays) => {
                self.append(ModelJournalRecord::Small(plays.clone()), |batch| {
                    let mut table = Vec::new();
                    for play in plays {
                        EntryTableEncoder::new(&mut table).begin_section(&play.directory(), None);
                        play.write(&mut EntryTableEncoder::new(&mut table));
                    }
                    batch.add_small(&table);
                })
            }
            TestJournalOperation::Begin(play) => {
                let number = self.journal.as_ref().unwrap().next_number();
                // Compaction forgets ended files and their numbers.
                assert!(!model(&self.told).partials.contains_key(&number));
                self.begun.push(number);
                let table = table(&play.directory().to_string().replace('.', ""), |w| play.write(w));
                self.append(ModelJournalRecord::Begin(number, *play), |batch| {
                    batch.add_begin(number, &table, temporary(number).as_bytes());
                });
            }
            &TestJournalOperation::Held(index, start, count, is_hashed) => {
                let Some(number) = self.number(index) else { return };
                let (start, end) = (start * 1_024, ((start + count) * 1_024).min(LARGE_BYTES));
                let range = ByteRange::new(start, end - start);
                let subtrees: Vec<Blake3Subtree> = subtree_ranges(range, LARGE_BYTES)
                    .unwrap()
                    .map(|range| Blake3Subtree { range, value: [5; 32] })
                    .collect();
                let subtrees = if is_hashed { &subtrees[..] } else { &[] };
                // Only ranges overlap: a subtree may be repeated, but parts of it are never sent.
                self.append(ModelJournalRecord::Held(number, range, false), |batch| {
                    batch.add_held_ranges(number, [range], &[])
                });
                if is_hashed && self.is_new(number, range) {
                    self.append(ModelJournalRecord::Held(number, range, true), |batch| {
                        batch.add_held_ranges(number, [range], subtrees)
                    });
                }
            }
            &TestJournalOperation::Done(index) => {
                let Some(number) = self.number(index) else { return };
                self.append(ModelJournalRecord::Done(number), |batch| batch.add_done(number));
            }
            &TestJournalOperation::Dropped(index) => {
                let Some(number) = self.number(index) else { return };
                self.append(ModelJournalRecord::Dropped(number), |batch| batch.add_dropped(number));
            }
        }
    }

    /// Returns true if none of its bytes was hashed before.
    fn is_new(&self, number: u64, range: ByteRange) -> bool {
        let mut hashed = RangeSet::new();
        for told in &self.told {
            if let ModelJournalRecord::Held(n, range, true) = told
                && *n == number
            {
                hashed.cover(*range);
            }
        }
        hashed.insert(range)
    }

    /// A journal of these bytes has the state of the first `count` records, and accepts further ones.
    fn check(&self, bytes: &[u8], count: usize) {
        let ground = TestJournalDirectory::with(bytes);
        let expected = model(&self.told[..count]);
        let (journal, recovered) = ground.open(&session(BOOT, false)).unwrap();
        assert_eq!(seen(&recovered), expected);
        let end = if count == 0 { self.header_bytes() } else { self.ends[count - 1] };
        let statistics = recovered.statistics();
        assert_eq!((statistics.records, statistics.journal_bytes), (count as u64, end));
        assert_eq!(statistics.cut_bytes, bytes.len() as u64 - end);
        let number = journal.next_number();
        let begun =
            |told: &ModelJournalRecord| matches!(told, ModelJournalRecord::Begin(n, _) if *n >= number);
        assert!(!self.told[..count].iter().any(begun));
        drop(journal);
        let (_, again) = ground.open(&session(BOOT, false)).unwrap();
        assert_eq!((seen(&again), again.statistics().cut_bytes), (expected, 0));
    }

    fn header_bytes(&self) -> u64 {
        let bytes = self.ground.bytes();
        u64::from(u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()))
    }
}

fn play() -> impl Strategy<Value = TestRecordedFile> {
    (0u8..3, 0u8..3, 0u8..4).prop_map(|(directory, name, version)| TestRecordedFile {
        directory,
        name,
        version,
    })
}

fn op() -> impl Strategy<Value = TestJournalOperation> {
    let large = (0u8..3, 0u8..3, 0u8..3).prop_map(|(directory, name, version)| TestRecordedFile {
        directory,
        name,
        version,
    });
    let boot = prop_oneof![Just(BOOT), Just(8)];
    prop_oneof![
        1 => (any::<bool>(), boot).prop_map(|(soft, boot)| TestJournalOperation::Session { soft, boot }),
        3 => prop::collection::vec(play(), 0..4).prop_map(TestJournalOperation::Small),
        3 => large.prop_map(TestJournalOperation::Begin),
        6 => (any::<Index>(), 0u64..19, 1u64..6, any::<bool>()).prop_map(|(i, s, c, h)| TestJournalOperation::Held(i, s, c, h)),
        2 => any::<Index>().prop_map(TestJournalOperation::Done),
        1 => any::<Index>().prop_map(TestJournalOperation::Dropped),
    ]
}

/// Compares a follower with the model; it has no subtrees.
fn assert_followed(follower: &JournalFollower, told: &[ModelJournalRecord]) {
    let expected = model(told);
    let is_done =
        |play: &TestRecordedFile| follower.is_done(&play.directory(), &play.key(&play.name())).unwrap();
    assert_eq!(TestRecordedFile::all().filter(is_done).collect::<Vec<_>>(), expected.done);
    let found = follower.partials().map(|partial| (partial.number, (play_of(partial), partial.held.clone())));
    let known = expected.partials.into_iter().map(|(number, (play, held, _))| (number, (play, held)));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), known.collect::<BTreeMap<_, _>>());
    for partial in follower.partials() {
        let found: Vec<_> =
            follower.partials_named(&partial.temporary).map(|partial| partial.number).collect();
        assert_eq!(found, [partial.number]);
    }
    assert_eq!(follower.partials_named(b".x.carrack-").count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn who_follows_a_journal_knows_what_is_in_it(
        ops in prop::collection::vec((op(), any::<bool>()), 0..60),
        recent in 1usize..4,
        torn in 0usize..20,
    ) {
        let mut telling = RecordedTestJournal::new();
        let mut follower = JournalFollower::new(ID, [BOOT; 16]).with_recent(recent);
        for (op, looks) in &ops {
            telling.op(op);
            if *looks {
                follower.catch_up(telling.ground.directory.as_fd()).unwrap();
                assert_followed(&follower, &telling.told);
                prop_assert_eq!(follower.bytes_read(), telling.ground.bytes().len() as u64);
            }
        }
        // The beginning of a record in progress.
        telling.journal = None;
        let whole = telling.ground.bytes();
        fs::write(telling.ground.file(), [&whole[..], &vec![7; torn]].concat()).unwrap();
        follower.catch_up(telling.ground.directory.as_fd()).unwrap();
        assert_followed(&follower, &telling.told);
        // Another journal in its place, as after a compaction.
        fs::remove_file(telling.ground.file()).unwrap();
        prop_assert!(matches!(follower.catch_up(telling.ground.directory.as_fd()), Err(JournalError::Missing)));
        let mut other = RecordedTestJournal { ground: telling.ground, ..RecordedTestJournal::new() };
        other.journal = Some(other.ground.create(&session(BOOT, false)));
        other.op(&TestJournalOperation::Small(vec![TestRecordedFile { directory: 0, name: 0, version: 0 }]));
        follower.catch_up(other.ground.directory.as_fd()).unwrap();
        assert_followed(&follower, &other.told);
    }

    #[test]
    fn what_is_cut_anywhere_is_a_prefix(
        ops in prop::collection::vec(op(), 0..40),
        cuts in prop::collection::vec(any::<Index>(), 6),
        flip in 1u8..=255,
    ) {
        let mut telling = RecordedTestJournal::new();
        ops.iter().for_each(|op| telling.op(op));
        telling.journal = None;
        let bytes = telling.ground.bytes();
        telling.check(&bytes, telling.told.len());
        for cut in cuts {
            let at = cut.index(bytes.len());
            let whole = telling.ends.iter().filter(|&&end| end <= at as u64).count();
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if (at as u64) < telling.header_bytes() {
                prop_assert!(TestJournalDirectory::with(&bytes[..at]).open(&session(BOOT, false)).is_err());
                prop_assert!(TestJournalDirectory::with(&damaged).open(&session(BOOT, false)).is_err());
            } else {
                telling.check(&bytes[..at], whole);
                telling.check(&damaged, whole);
            }
        }
    }

    #[test]
    fn a_compaction_cannot_be_seen(ops in prop::collection::vec(op(), 0..40), more in prop::collection::vec(op(), 0..10)) {
        let mut telling = RecordedTestJournal::new();
        let is_soft_here = |op: &TestJournalOperation| matches!(op, TestJournalOperation::Session { soft: true, boot: BOOT });
        ops.iter().filter(|op| !is_soft_here(op)).for_each(|op| telling.op(op));
        telling.journal = None;
        let before = telling.ground.bytes();
        let here = session(BOOT, false);
        let opening = OpenedJournal::new(telling.ground.directory.as_fd(), ID, here.boot).unwrap();
        let (journal, recovered) = opening.compact(&here).unwrap();
        let expected = model(&telling.told);
        prop_assert_eq!(seen(&recovered), expected.clone());
        prop_assert_eq!(telling.ground.names(), 1);
        let after = telling.ground.bytes();
        prop_assert!(after.len() <= before.len() + 16 + 52, "{} from {}", after.len(), before.len());
        prop_assert_ne!(&after[16..32], &before[16..32], "another key");
        drop(journal);
        let (journal, recovered) = telling.ground.open(&here).unwrap();
        prop_assert_eq!(seen(&recovered), expected);
        // The journal accepts records as before.
        telling.journal = Some(journal);
        telling.told.push(ModelJournalRecord::Session { counts: true });
        more.iter().for_each(|op| telling.op(op));
        telling.journal = None;
        let (_, recovered) = telling.ground.open(&here).unwrap();
        prop_assert_eq!(seen(&recovered), model(&telling.told));
    }
}

/// Many dropped files and joined ranges: opening compacts the journal without a visible change.
#[test]
fn a_journal_that_is_mostly_of_the_past_is_shortened_when_it_is_opened() {
    let ground = TestJournalDirectory::new();
    let journal = ground.create(&session(BOOT, false));
    let mut batch = RecordBatch::new();
    let play = TestRecordedFile { directory: 1, name: 0, version: 0 };
    let table = table("d", |w| play.write(w));
    batch.add_small(&table);
    let number = journal.next_number();
    batch.add_begin(number, &table, temporary(number).as_bytes());
    for n in 0..40_000 {
        batch.add_held_ranges(number, [ByteRange::new(n % LARGE_BYTES, 1)], &[]);
    }
    journal.append(&batch, true).unwrap();
    drop(journal);
    let before = ground.bytes().len();
    let (journal, recovered) = ground.open(&session(BOOT, false)).unwrap();
    let after = ground.bytes().len();
    assert!(before > 1_500_000 && after < 1_000, "{before} bytes became {after}");
    assert!(recovered.partials()[0].held.is_whole(LARGE_BYTES));
    assert_eq!(journal.next_number(), number + 1);
    drop(journal);
    let (_, again) = ground.open(&session(BOOT, false)).unwrap();
    assert_eq!(seen(&again), seen(&recovered));
    assert_eq!(ground.names(), 1);
}
