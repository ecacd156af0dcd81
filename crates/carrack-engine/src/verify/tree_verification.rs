//! The caller's part of a comparison: it chooses the next questions, and evaluates the answers.
//!
//! It runs on one thread. Questions are kept in their order; each end answers in that order, so that an
//! answer needs no number.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use carrack_model::{ByteRange, FailureSide, PartialCopyRange, PathProblem, RelPath, escape};
use carrack_storage::BrowsedKind;

use super::batch::{NameBatch, key, range_key};
use super::compared_name::VerifyNameState;
use super::end_examiner::VerifyEndExaminer;
use super::equal_pairs::EqualPairs;
use super::file_check::FileComparisonState;
use super::finding::{EntryDifference, VerifyFinding, VerifyTotals, path_of};
use super::metadata::{ComparedHardLinks, MetadataChecks};
use super::name_verdict::{
    NameComparisonVerdict, compare_entries, compare_listed, compare_part, differing, digest_of,
};
use crate::error::SessionError;
use crate::examine::{
    ExamineQuestion, ExaminedEntryFacts, ExaminedEntryKind, PIECE_BYTES_MAX, PIECE_BYTES_MIN,
    PieceDigestRequest, QUESTIONS_MAX, WHOLE_BYTES_MAX, WalkStep,
};

/// Steps of the walk that are requested ahead.
const WALKS_MAX: usize = 4;

/// Bytes of the small files that are read for one question.
const READ_BYTES_MAX: u64 = 64 << 20;

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The path beneath the destination.
    pub path: RelPath,
    /// The BLAKE3 digest of the contents.
    pub digest: [u8; 32],
}

/// Compares one destination with its sources or a manifest.
pub struct TreeVerification<'a> {
    sink: &'a mut VerifyEndExaminer,
    kept: &'a mut EqualPairs,
    checks: MetadataChecks,
    told: &'a mut dyn FnMut(VerifyFinding),
    verified: VerifyTotals,
    /// The same counts for other threads, updated after each answer.
    shared: Option<Arc<Mutex<VerifyTotals>>>,
    source_count: u64,
}

impl<'a> TreeVerification<'a> {
    /// Creates a comparison; `told` gets the findings, one after the other.
    pub fn new(
        sink: &'a mut VerifyEndExaminer,
        kept: &'a mut EqualPairs,
        told: &'a mut dyn FnMut(VerifyFinding),
    ) -> TreeVerification<'a> {
        let checks = MetadataChecks::default();
        let verified = VerifyTotals::default();
        TreeVerification { sink, kept, checks, told, verified, shared: None, source_count: 0 }
    }

    /// Keeps the counts up to date in `totals` too, for another thread.
    pub fn sharing_totals(self, totals: Arc<Mutex<VerifyTotals>>) -> TreeVerification<'a> {
        TreeVerification { shared: Some(totals), ..self }
    }

    /// Compares these metadata of trees too.
    pub fn checking(self, checks: MetadataChecks) -> TreeVerification<'a> {
        TreeVerification { checks, ..self }
    }

    fn publish_totals(&self) {
        if let Some(shared) = &self.shared {
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = self.verified;
        }
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> VerifyTotals {
        self.verified
    }

    /// Returns the place in the destination of the source `name`, which was copied under this name or
    /// another. A directory is searched by its name, and is otherwise the destination itself; another entry
    /// is searched by its name if the destination is a directory.
    ///
    /// # Errors
    /// Fails if an end is gone, or `name` is not a valid name.
    pub fn locate_in_destination(
        &mut self,
        source: &mut VerifyEndExaminer,
        name: &[u8],
    ) -> Result<RelPath, SessionError> {
        let in_it = RelPath::root().join(name).map_err(bad_name)?;
        let itself = look_question(RelPath::root(), vec![[][..].into()]);
        source.send_question(itself)?;
        self.sink.send_question(look_question(RelPath::root(), vec![[][..].into(), name.into()]))?;
        let (source, sink) = (source.receive_entry_facts()?, self.sink.receive_entry_facts()?);
        let has_name = sink.get(1).is_some_and(|sight| sight.standing != ExaminedEntryKind::Nothing);
        let goes_in = if is_directory(source.first()) { has_name } else { is_directory(sink.first()) };
        Ok(if goes_in { in_it } else { RelPath::root() })
    }

    /// Compares the tree of `source` with `place` in the destination; with `extra` also the other way round.
    ///
    /// # Errors
    /// Fails if an end is gone, and by a signal. Earlier findings were reported.
    pub fn compare_tree(
        &mut self,
        source: &mut VerifyEndExaminer,
        place: &RelPath,
        extra: bool,
    ) -> Result<(), SessionError> {
        self.source_count += 1;
        self.run(
            Some(source),
            place,
            VerifyNameSource::Walk { of: FailureSide::Source, asked: 0, is_over: false },
        )?;
        if extra && self.is_directory(place)? {
            self.run(
                Some(source),
                place,
                VerifyNameSource::Walk { of: FailureSide::Sink, asked: 0, is_over: false },
            )?;
        }
        Ok(())
    }

    /// Compares the bytes of `part` of a file with the same range of the file at `place` in the destination;
    /// `shown` is the source's path for messages.
    ///
    /// # Errors
    /// As [`TreeVerification::compare_tree`]; also if the source is no regular file, or ends before the part.
    pub fn compare_part(
        &mut self,
        source: &mut VerifyEndExaminer,
        place: &RelPath,
        part: PartialCopyRange,
        shown: &[u8],
    ) -> Result<(), SessionError> {
        self.source_count += 1;
        source.send_question(look_question(RelPath::root(), vec![[][..].into()]))?;
        self.sink.send_question(look_question(place.clone(), vec![[][..].into()]))?;
        let (here, there) = (source.receive_entry_facts()?, self.sink.receive_entry_facts()?);
        let (Some(here), Some(there)) = (here.first(), there.first()) else {
            return Err(SessionError::Internal);
        };
        let range = part_of(here, part, shown)?;
        self.verified.part = Some(range);
        let mut item = VerifyNameState::new([][..].into(), None);
        item.size = range.offset + range.len;
        match compare_part(here, there, item.size) {
            NameComparisonVerdict::Differs(what) => {
                self.verified.count(&what);
                (self.told)(VerifyFinding { path: place.as_bytes().into(), what });
                Ok(())
            }
            NameComparisonVerdict::Equal | NameComparisonVerdict::Read => {
                item.key = Some(key(self.source_count, &RelPath::root(), &item, Some(here), there));
                let file = FileComparisonState::new(RelPath::root(), item).from(range.offset);
                self.run(Some(source), place, VerifyNameSource::Part(Some(Box::new(file))))
            }
        }
    }

    fn is_directory(&mut self, place: &RelPath) -> Result<bool, SessionError> {
        self.sink.send_question(look_question(place.clone(), vec![[][..].into()]))?;
        Ok(is_directory(self.sink.receive_entry_facts()?.first()))
    }

    /// Compares the files of a manifest with those of the destination.
    ///
    /// # Errors
    /// As [`TreeVerification::compare_tree`]; also the first error of `entries`, which ends the comparison.
    pub fn compare_manifest(
        &mut self,
        entries: &mut dyn Iterator<Item = io::Result<ManifestEntry>>,
    ) -> Result<(), SessionError> {
        self.source_count += 1;
        self.run(None, &RelPath::root(), VerifyNameSource::Lines { entries, next: None })
    }

    fn run<'r>(
        &'r mut self,
        source: Option<&'r mut VerifyEndExaminer>,
        place: &'r RelPath,
        feed: VerifyNameSource<'r>,
    ) -> Result<(), SessionError> {
        let run = VerifyWalk {
            source,
            place,
            feed,
            index: self.source_count,
            links: ComparedHardLinks::default(),
            all: self,
            asked: VecDeque::new(),
            waiting: VecDeque::new(),
            files: HashMap::new(),
            next_file: 0,
        };
        run.run_to_end()
    }
}

/// The origin of names.
enum VerifyNameSource<'f> {
    /// A walk through one end.
    Walk { of: FailureSide, asked: usize, is_over: bool },
    /// A part of one file.
    Part(Option<Box<FileComparisonState>>),
    Lines {
        entries: &'f mut (dyn Iterator<Item = io::Result<ManifestEntry>> + 'f),
        /// The first line of the next batch.
        next: Option<ManifestEntry>,
    },
}

/// A step of the comparison, with a question to one end or both.
enum VerifyStep {
    WalkOn,
    /// Examine these names.
    Look(NameBatch),
    /// Read these small files.
    Read(NameBatch),
    /// Compare the next range of a file.
    Ranges(u64),
    /// Compare a range of a file.
    Pieces(u64, PieceDigestRequest),
    /// Find the names of the sink that the source does not have.
    Extra(NameBatch),
}

struct VerifyWalk<'r, 'a> {
    all: &'r mut TreeVerification<'a>,
    source: Option<&'r mut VerifyEndExaminer>,
    place: &'r RelPath,
    feed: VerifyNameSource<'r>,
    index: u64,
    links: ComparedHardLinks,
    /// Steps with open questions, in their order.
    asked: VecDeque<VerifyStep>,
    /// Steps that come before new names.
    waiting: VecDeque<VerifyStep>,
    files: HashMap<u64, FileComparisonState>,
    next_file: u64,
}

impl VerifyWalk<'_, '_> {
    fn run_to_end(mut self) -> Result<(), SessionError> {
        loop {
            self.send_questions()?;
            match self.asked.pop_front() {
                Some(step) => {
                    self.handle_answer(step)?;
                    self.all.publish_totals();
                }
                None => return Ok(()),
            }
        }
    }

    fn send_questions(&mut self) -> Result<(), SessionError> {
        while self.asked.len() < QUESTIONS_MAX {
            let step = match self.waiting.pop_front() {
                Some(step) => Some(step),
                None => self.next_step()?,
            };
            match step {
                Some(step) => self.send_question(step)?,
                None => break,
            }
        }
        Ok(())
    }

    fn next_step(&mut self) -> Result<Option<VerifyStep>, SessionError> {
        match &mut self.feed {
            VerifyNameSource::Walk { asked, is_over, .. } if !*is_over && *asked < WALKS_MAX => {
                *asked += 1;
                Ok(Some(VerifyStep::WalkOn))
            }
            VerifyNameSource::Walk { .. } => Ok(None),
            VerifyNameSource::Part(file) => {
                let file = file.take();
                Ok(file.map(|file| {
                    self.files.insert(self.next_file, *file);
                    VerifyStep::Ranges(self.next_file)
                }))
            }
            VerifyNameSource::Lines { entries, next } => next_lines(entries, next),
        }
    }

    fn send_question(&mut self, step: VerifyStep) -> Result<(), SessionError> {
        match &step {
            VerifyStep::WalkOn => match self.feed {
                VerifyNameSource::Walk { of: FailureSide::Source, .. } => {
                    self.source()?.send_question(walk_question(RelPath::root()))?;
                }
                _ => self.all.sink.send_question(walk_question(self.place.clone()))?,
            },
            VerifyStep::Look(batch) => {
                let (directory, names) = batch.names();
                let metadata = self.source.as_ref().and_then(|_| self.all.checks.requested_metadata());
                self.ask_both_ends(directory, |directory| {
                    let names = names.clone();
                    ExamineQuestion::Look { directory, names, digests: false, metadata }
                })?;
            }
            VerifyStep::Read(batch) => {
                let (directory, names) = batch.names();
                self.ask_both_ends(directory, |directory| {
                    let names = names.clone();
                    ExamineQuestion::Look { directory, names, digests: true, metadata: None }
                })?;
            }
            VerifyStep::Extra(batch) => {
                let (directory, names) = batch.names();
                self.source()?.send_question(look_question(directory, names))?;
            }
            VerifyStep::Ranges(file) => return self.request_range(*file),
            VerifyStep::Pieces(_, of) => {
                let of = of.clone();
                self.ask_both_ends(of.directory.clone(), |directory| {
                    ExamineQuestion::Pieces(PieceDigestRequest { directory, ..of.clone() })
                })?;
            }
        }
        self.asked.push_back(step);
        Ok(())
    }

    fn source(&mut self) -> Result<&mut VerifyEndExaminer, SessionError> {
        self.source.as_deref_mut().ok_or(SessionError::Internal)
    }

    /// Asks the source, if there is one, and the sink, each with its own path of the directory.
    fn ask_both_ends(
        &mut self,
        directory: RelPath,
        question: impl Fn(RelPath) -> ExamineQuestion,
    ) -> Result<(), SessionError> {
        let there = sink_path_of(self.place, &directory)?;
        if let Some(source) = &mut self.source {
            source.send_question(question(directory))?;
        }
        self.all.sink.send_question(question(there))
    }

    /// Compares the next range of a file that an earlier run did not find equal.
    fn request_range(&mut self, id: u64) -> Result<(), SessionError> {
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        while let Some(range) = file.next_range() {
            if range_key(file, range).is_some_and(|key| self.all.kept.has(key)) {
                continue;
            }
            let is_small = file.item.size <= WHOLE_BYTES_MAX && !file.is_part();
            let piece_bytes = if is_small { PIECE_BYTES_MIN } else { PIECE_BYTES_MAX };
            let of = pieces_of(file, range, piece_bytes);
            file.count_question();
            self.all.verified.bytes_read += range.len;
            self.waiting.push_front(VerifyStep::Ranges(id));
            return self.send_question(VerifyStep::Pieces(id, of));
        }
        self.finish_if_done(id);
        Ok(())
    }

    fn handle_answer(&mut self, step: VerifyStep) -> Result<(), SessionError> {
        match step {
            VerifyStep::WalkOn => self.handle_walk_answer(),
            VerifyStep::Look(batch) => self.handle_look_answer(batch),
            VerifyStep::Read(batch) => self.handle_read_answer(batch),
            VerifyStep::Extra(batch) => self.handle_extra_answer(batch),
            VerifyStep::Pieces(file, of) => self.handle_pieces_answer(file, &of),
            VerifyStep::Ranges(_) => Err(SessionError::Internal),
        }
    }

    fn handle_walk_answer(&mut self) -> Result<(), SessionError> {
        let VerifyNameSource::Walk { of, asked, is_over } = &mut self.feed else {
            return Err(SessionError::Internal);
        };
        let side = *of;
        assert!(*asked > 0, "an answer follows its question");
        *asked -= 1;
        let walked = match side {
            FailureSide::Source => self.source.as_mut().ok_or(SessionError::Internal)?.receive_walk_step()?,
            _ => self.all.sink.receive_walk_step()?,
        };
        match walked {
            WalkStep::Over => *is_over = true,
            WalkStep::Names { directory, names } if side == FailureSide::Source => {
                self.waiting.push_back(VerifyStep::Look(NameBatch::of(directory, names)));
            }
            WalkStep::Names { directory, names } => {
                let directory = source_path_of(self.place, &directory)?;
                self.waiting.push_back(VerifyStep::Extra(NameBatch::of(directory, names)));
            }
            WalkStep::Failed { path, detail } => {
                self.report_finding(path, EntryDifference::Unwalked { side, detail })
            }
            WalkStep::Skipped { path, what } if side == FailureSide::Source => {
                self.report_finding(path, EntryDifference::Skipped { what });
            }
            // An end of an older version does not compare them.
            WalkStep::Skipped { .. } => {}
        }
        Ok(())
    }

    fn handle_look_answer(&mut self, batch: NameBatch) -> Result<(), SessionError> {
        let source = self.source.as_mut().map(|source| source.receive_entry_facts()).transpose()?;
        let sink = self.all.sink.receive_entry_facts()?;
        let directory = batch.directory();
        let mut small = NameBatch::of(directory.clone(), Vec::new());
        for (index, mut item) in batch.items.into_iter().enumerate() {
            let there = sink.get(index).ok_or(SessionError::Internal)?;
            let here =
                source.as_ref().map(|sights| sights.get(index).ok_or(SessionError::Internal)).transpose()?;
            item.size = there.size;
            item.is_told = here
                .is_some_and(|here| self.report_metadata_differences(&directory, &item.name, here, there));
            match here.map_or_else(|| compare_listed(there), |here| compare_entries(here, there)) {
                NameComparisonVerdict::Equal => self.count_equal(&item),
                NameComparisonVerdict::Differs(what) => self.report_difference(&directory, &item, what),
                NameComparisonVerdict::Read => {
                    item.key = Some(key(self.index, &directory, &item, here, there));
                    self.read_if_unknown(&directory, item, &mut small);
                }
            }
        }
        self.read_small(small);
        Ok(())
    }

    /// Reports differences of metadata. Returns true if there are any.
    fn report_metadata_differences(
        &mut self,
        directory: &RelPath,
        name: &[u8],
        here: &ExaminedEntryFacts,
        there: &ExaminedEntryFacts,
    ) -> bool {
        if here.standing != there.standing {
            return false;
        }
        let path = self.path_at_sink(directory, name);
        let found = self.all.checks.compare(&mut self.links, &path, here, there);
        let is_other = !found.is_empty();
        if is_other {
            self.report_finding(path, EntryDifference::Metadata(found));
        }
        is_other
    }

    /// Reads a file unless an earlier run found it equal. Small files are gathered.
    fn read_if_unknown(&mut self, directory: &RelPath, item: VerifyNameState, small: &mut NameBatch) {
        if item.key.is_some_and(|key| self.all.kept.has(key)) {
            self.all.verified.known += 1;
            return self.count_equal(&item);
        }
        if item.size > WHOLE_BYTES_MAX {
            return self.compare_pieces(directory, item);
        }
        small.items.push(item);
        if small.items.iter().map(|item| item.size).sum::<u64>() >= READ_BYTES_MAX {
            let full = std::mem::replace(small, NameBatch::of(directory.clone(), Vec::new()));
            self.read_small(full);
        }
    }

    fn read_small(&mut self, batch: NameBatch) {
        if !batch.items.is_empty() {
            self.waiting.push_back(VerifyStep::Read(batch));
        }
    }

    fn handle_read_answer(&mut self, batch: NameBatch) -> Result<(), SessionError> {
        let source = self.source.as_mut().map(|source| source.receive_entry_facts()).transpose()?;
        let sink = self.all.sink.receive_entry_facts()?;
        let directory = batch.directory();
        for (index, item) in batch.items.into_iter().enumerate() {
            self.all.verified.bytes_read += item.size;
            let there =
                digest_of(sink.get(index).ok_or(SessionError::Internal)?, item.size, FailureSide::Sink);
            let here = match (&source, item.digest) {
                (Some(sights), _) => digest_of(
                    sights.get(index).ok_or(SessionError::Internal)?,
                    item.size,
                    FailureSide::Source,
                ),
                (None, digest) => digest.ok_or(EntryDifference::Digest),
            };
            match (here, there) {
                (Err(what), _) | (_, Err(what)) => self.report_difference(&directory, &item, what),
                (Ok(here), Ok(there)) if here == there => {
                    self.keep_key(item.key);
                    self.count_equal(&item);
                }
                _ if source.is_none() => self.report_difference(&directory, &item, EntryDifference::Digest),
                _ => self.compare_pieces(&directory, item),
            }
        }
        Ok(())
    }

    fn handle_extra_answer(&mut self, batch: NameBatch) -> Result<(), SessionError> {
        let sights = self.source()?.receive_entry_facts()?;
        let directory = batch.directory();
        for (item, sight) in batch.items.iter().zip(sights) {
            if sight.standing == ExaminedEntryKind::Nothing {
                self.report_difference(&directory, item, EntryDifference::Extra);
            }
        }
        Ok(())
    }

    /// Compares a file in pieces to find the differing ranges.
    fn compare_pieces(&mut self, directory: &RelPath, item: VerifyNameState) {
        let before = self.files.insert(self.next_file, FileComparisonState::new(directory.clone(), item));
        assert!(before.is_none(), "each file has a number of its own");
        self.waiting.push_back(VerifyStep::Ranges(self.next_file));
        self.next_file += 1;
    }

    fn handle_pieces_answer(&mut self, id: u64, of: &PieceDigestRequest) -> Result<(), SessionError> {
        let source = self.source.as_mut().map(|source| source.receive_piece_digests()).transpose()?;
        let sink = self.all.sink.receive_piece_digests()?;
        let Some(file) = self.files.get_mut(&id) else { return Err(SessionError::Internal) };
        file.count_answer();
        let ranges = (0..of.piece_count()).map(|index| of.piece(index));
        match (source, sink) {
            (Some(Err(detail)), _) => file.fail(FailureSide::Source, detail),
            (_, Err(detail)) => file.fail(FailureSide::Sink, detail),
            (None, Ok(sink)) => file.add_values(ranges.zip(sink)),
            (Some(Ok(source)), Ok(sink)) => {
                let found = differing(ranges, &source, &sink);
                self.handle_differing_ranges(id, of, found);
            }
        }
        self.finish_if_done(id);
        Ok(())
    }

    fn handle_differing_ranges(&mut self, id: u64, of: &PieceDigestRequest, found: Vec<ByteRange>) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let is_second_look = of.piece_bytes == PIECE_BYTES_MIN;
        if found.is_empty() && is_second_look {
            // The first look found a difference, and an equal second look proves nothing.
            file.add_differing_range(of.range);
        }
        if found.is_empty()
            && !is_second_look
            && let Some(key) = range_key(file, of.range)
        {
            self.all.kept.add(key);
        }
        for range in found {
            if file.narrow_or_report(range, of.piece_bytes) {
                file.count_question();
                self.all.verified.bytes_read += range.len;
                self.waiting.push_front(VerifyStep::Pieces(id, pieces_of(file, range, PIECE_BYTES_MIN)));
            }
        }
    }

    fn finish_if_done(&mut self, id: u64) {
        if !self.files.get(&id).is_some_and(FileComparisonState::is_done) {
            return;
        }
        let Some(mut file) = self.files.remove(&id) else { return };
        match file.difference() {
            Some(what) => self.report_difference(&file.directory, &file.item, what),
            None => {
                self.keep_key(file.item.key);
                // Only the part counts.
                file.item.size = self.all.verified.part.map_or(file.item.size, |part| part.len);
                self.count_equal(&file.item);
            }
        }
    }

    /// Counts an item with equal contents, unless a difference of its metadata was reported.
    fn count_equal(&mut self, item: &VerifyNameState) {
        if !item.is_told {
            self.all.verified.equal += 1;
            self.all.verified.bytes_equal += item.size;
        }
    }

    fn keep_key(&mut self, key: Option<u128>) {
        if let Some(key) = key {
            self.all.kept.add(key);
        }
    }

    fn report_difference(&mut self, directory: &RelPath, item: &VerifyNameState, what: EntryDifference) {
        let path = self.path_at_sink(directory, &item.name);
        if item.is_told {
            // The difference of its metadata was counted.
            (self.all.told)(VerifyFinding { path, what });
        } else {
            self.report_finding(path, what);
        }
    }

    fn path_at_sink(&self, directory: &RelPath, name: &[u8]) -> Box<[u8]> {
        match sink_path_of(self.place, directory) {
            Ok(directory) => path_of(&directory, name),
            Err(_) => path_of(directory, name),
        }
    }

    fn report_finding(&mut self, path: Box<[u8]>, what: EntryDifference) {
        self.all.verified.count(&what);
        (self.all.told)(VerifyFinding { path, what });
    }
}

/// Returns the next lines of the manifest in one directory.
fn next_lines(
    entries: &mut dyn Iterator<Item = io::Result<ManifestEntry>>,
    next: &mut Option<ManifestEntry>,
) -> Result<Option<VerifyStep>, SessionError> {
    let mut batch = NameBatch::default();
    while batch.items.len() < carrack_model::limits::SCAN_BATCH_ENTRIES_MAX {
        let entry = match next.take() {
            Some(entry) => entry,
            None => match entries.next() {
                Some(entry) => entry.map_err(SessionError::local("reading the manifest"))?,
                None => break,
            },
        };
        let (directory, name) = match entry.path.split_last() {
            Some((directory, name)) => (directory, name.into()),
            None => (RelPath::root(), Box::default()),
        };
        if batch.directory.as_ref().is_some_and(|other| *other != directory) {
            *next = Some(entry);
            break;
        }
        batch.directory = Some(directory);
        batch.items.push(VerifyNameState::new(name, Some(entry.digest)));
    }
    Ok((!batch.items.is_empty()).then_some(VerifyStep::Look(batch)))
}

fn is_directory(sight: Option<&ExaminedEntryFacts>) -> bool {
    sight.is_some_and(|sight| sight.standing == ExaminedEntryKind::Is(BrowsedKind::Directory))
}

/// Returns the range of a part in the source's file.
fn part_of(
    here: &ExaminedEntryFacts,
    part: PartialCopyRange,
    shown: &[u8],
) -> Result<ByteRange, SessionError> {
    let shown = escape(shown);
    let message = match &here.standing {
        ExaminedEntryKind::Is(BrowsedKind::File) => {
            if let Some(range) = part.range_in(here.size) {
                return Ok(range);
            }
            let (size, offset) = (here.size, part.offset);
            format!("{shown} has {size} bytes, and the part would begin at byte {offset}")
        }
        ExaminedEntryKind::Nothing => format!("{shown}: there is no such file"),
        ExaminedEntryKind::Unreadable(detail) => format!("{shown}: {detail}"),
        ExaminedEntryKind::Is(_) => format!("{shown} is no regular file, and a part is of one"),
    };
    let hint = "name one regular file that has that part, or leave --offset and --length out";
    Err(SessionError::refused(message, hint))
}

fn walk_question(beneath: RelPath) -> ExamineQuestion {
    ExamineQuestion::WalkOn { beneath, specials: true }
}

/// Returns the question about these names, without contents and metadata.
fn look_question(directory: RelPath, names: Vec<Box<[u8]>>) -> ExamineQuestion {
    ExamineQuestion::Look { directory, names, digests: false, metadata: None }
}

fn pieces_of(file: &FileComparisonState, range: ByteRange, piece_bytes: u32) -> PieceDigestRequest {
    let (directory, name) = (file.directory.clone(), file.item.name.clone());
    PieceDigestRequest {
        directory,
        name,
        file_size: file.item.size,
        range,
        piece_bytes,
        by_itself: file.is_part(),
    }
}

/// Returns the path at the sink of a path of the source.
fn sink_path_of(place: &RelPath, path: &RelPath) -> Result<RelPath, SessionError> {
    match (place.is_root(), path.is_root()) {
        (true, _) => Ok(path.clone()),
        (_, true) => Ok(place.clone()),
        _ => RelPath::new(&[place.as_bytes(), b"/", path.as_bytes()].concat()).map_err(bad_name),
    }
}

/// Returns the path of the source of a path at the sink.
fn source_path_of(place: &RelPath, path: &RelPath) -> Result<RelPath, SessionError> {
    let rest = path.as_bytes().strip_prefix(place.as_bytes()).ok_or(SessionError::Internal)?;
    RelPath::new(rest.strip_prefix(b"/").unwrap_or(rest)).map_err(bad_name)
}

fn bad_name(problem: PathProblem) -> SessionError {
    SessionError::refused(problem.to_string(), "name the source by another path")
}
