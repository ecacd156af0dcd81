//! An index of complete files, for any number of them in bounded memory.
//!
//! Owns sorted fingerprints of 16 bytes: hashes of the name and of the values that identify the file's state.
//! The last record of a name counts. Up to [`RUN_ENTRIES`] of them stay in memory; more are written as sorted
//! runs to a file without a name and merged there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::JournalError;
use super::scratch_file::unnamed_file;

/// Fingerprints that are sorted in memory: 16 MiB, and half of that during the sort. A million files stay
/// there.
const RUN_ENTRIES: usize = 1 << 20;

/// Runs of one merge, with [`MERGE_READ_BYTES`] of each: together 8 MiB.
const RUNS_MERGED_MAX: usize = 64;

const MERGE_READ_BYTES: usize = 128 << 10;

const ENTRY_BYTES: usize = 16;

/// Fingerprints of one read from the file: a page.
const PAGE_ENTRIES: u64 = 4_096 / ENTRY_BYTES as u64;

/// A complete file. Two with the same name have different values of `state` unless they are the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileFingerprint {
    pub name: u64,
    pub state: u64,
}

impl FileFingerprint {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        (u128::from(self.name) | u128::from(self.state) << 64).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; ENTRY_BYTES]) -> FileFingerprint {
        let number = u128::from_le_bytes(bytes);
        FileFingerprint { name: number as u64, state: (number >> 64) as u64 }
    }
}

/// Collects fingerprints in the order of the journal.
pub(super) struct JournalIndexBuilder {
    directory: OwnedFd,
    run_entries: usize,
    run: Vec<FileFingerprint>,
    spilled: Option<SortedRuns>,
}

/// Sorted runs in a file without a name.
struct SortedRuns {
    file: File,
    len: u64,
    runs: Vec<Range<u64>>,
}

/// Looks up fingerprints by name.
#[derive(Debug)]
pub(super) enum FileFingerprintIndex {
    Memory(Vec<FileFingerprint>),
    File {
        file: File,
        /// Bytes of the file, a multiple of 16.
        bytes: Range<u64>,
    },
}

impl JournalIndexBuilder {
    /// A builder that spills to a file in `directory`.
    pub fn new(directory: OwnedFd) -> JournalIndexBuilder {
        JournalIndexBuilder::with_run(directory, RUN_ENTRIES)
    }

    fn with_run(directory: OwnedFd, run_entries: usize) -> JournalIndexBuilder {
        JournalIndexBuilder { directory, run_entries, run: Vec::new(), spilled: None }
    }

    /// Adds a fingerprint, which replaces an earlier one of the same name.
    pub fn add(&mut self, fingerprint: FileFingerprint) -> Result<(), JournalError> {
        if self.run.len() == self.run_entries {
            self.spill()?;
        }
        self.run.push(fingerprint);
        Ok(())
    }

    /// Builds the index.
    pub fn finish(mut self) -> Result<FileFingerprintIndex, JournalError> {
        if self.spilled.is_none() {
            sort_and_dedup(&mut self.run);
            return Ok(FileFingerprintIndex::Memory(self.run));
        }
        self.spill()?;
        drop(self.run);
        let Some(mut spilled) = self.spilled else { return Ok(FileFingerprintIndex::Memory(Vec::new())) };
        let bytes = spilled.merge_all().map_err(JournalError::doing("sorting the journal's index"))?;
        Ok(FileFingerprintIndex::File { file: spilled.file, bytes })
    }

    fn spill(&mut self) -> Result<(), JournalError> {
        sort_and_dedup(&mut self.run);
        let doing = "writing the journal's index beside it";
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => {
                let file = unnamed_file(&self.directory).map_err(JournalError::doing(doing))?;
                none.insert(SortedRuns { file, len: 0, runs: Vec::new() })
            }
        };
        spilled.write_run(self.run.drain(..).map(Ok)).map_err(JournalError::doing(doing))
    }
}

/// Sorts by name; the last of several with one name stays.
fn sort_and_dedup(run: &mut Vec<FileFingerprint>) {
    // Stable: equal names keep their order.
    run.sort_by_key(|fingerprint| fingerprint.name);
    run.dedup_by(|later, kept| {
        let is_same = later.name == kept.name;
        if is_same {
            *kept = *later;
        }
        is_same
    });
}

impl SortedRuns {
    fn write_run(&mut self, run: impl Iterator<Item = io::Result<FileFingerprint>>) -> io::Result<()> {
        let mut out =
            BufWriter::with_capacity(MERGE_READ_BYTES, OffsetWriter { file: &self.file, offset: self.len });
        for fingerprint in run {
            out.write_all(&fingerprint?.to_bytes())?;
        }
        let start = self.len;
        self.len = out.into_inner().map_err(io::IntoInnerError::into_error)?.offset;
        self.runs.push(start..self.len);
        Ok(())
    }

    /// Merges until one run is left. Only adjacent runs are merged, so that the last record of a name stays
    /// last.
    fn merge_all(&mut self) -> io::Result<Range<u64>> {
        while self.runs.len() > 1 {
            let runs = std::mem::take(&mut self.runs);
            for group in runs.chunks(RUNS_MERGED_MAX) {
                let merged = SortedRunMerge::new(self.file.try_clone()?, group)?;
                self.write_run(merged)?;
            }
        }
        Ok(self.runs.pop().unwrap_or(0..0))
    }
}

/// Writes at an advancing offset.
struct OffsetWriter<'a> {
    file: &'a File,
    offset: u64,
}

impl Write for OffsetWriter<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads one run.
struct SortedRunReader {
    file: File,
    bytes: Range<u64>,
}

impl Read for SortedRunReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(usize::MAX);
        let room = left.min(buffer.len());
        let count = self.file.read_at(&mut buffer[..room], self.bytes.start)?;
        self.bytes.start += count as u64;
        Ok(count)
    }
}

/// Merges several runs into one.
struct SortedRunMerge {
    /// The readers, with their remaining entries.
    runs: Vec<(BufReader<SortedRunReader>, u64)>,
    /// The next entry of each run, by name and then by the run's position.
    heads: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

impl SortedRunMerge {
    fn new(file: File, runs: &[Range<u64>]) -> io::Result<SortedRunMerge> {
        let mut merge = SortedRunMerge { runs: Vec::with_capacity(runs.len()), heads: BinaryHeap::new() };
        for (place, bytes) in runs.iter().enumerate() {
            let entries = (bytes.end - bytes.start) / ENTRY_BYTES as u64;
            let reader = SortedRunReader { file: file.try_clone()?, bytes: bytes.clone() };
            merge.runs.push((BufReader::with_capacity(MERGE_READ_BYTES, reader), entries));
            merge.advance(place)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, place: usize) -> io::Result<()> {
        let (reader, entries) = &mut self.runs[place];
        if *entries == 0 {
            return Ok(());
        }
        *entries -= 1;
        let mut bytes = [0; ENTRY_BYTES];
        reader.read_exact(&mut bytes)?;
        let FileFingerprint { name, state } = FileFingerprint::from_bytes(bytes);
        self.heads.push(Reverse((name, place, state)));
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<FileFingerprint>> {
        let Some(Reverse((name, place, mut state))) = self.heads.pop() else { return Ok(None) };
        self.advance(place)?;
        while let Some(&Reverse((next, place, later))) = self.heads.peek()
            && next == name
        {
            state = later;
            self.heads.pop();
            self.advance(place)?;
        }
        Ok(Some(FileFingerprint { name, state }))
    }
}

impl Iterator for SortedRunMerge {
    type Item = io::Result<FileFingerprint>;

    fn next(&mut self) -> Option<io::Result<FileFingerprint>> {
        self.take().transpose()
    }
}

impl FileFingerprintIndex {
    /// Returns true if the last file of this name was the same.
    pub fn contains(&self, wanted: FileFingerprint) -> Result<bool, JournalError> {
        Ok(self.find(wanted.name)? == Some(wanted))
    }

    /// The last file of this name.
    pub fn find(&self, name: u64) -> Result<Option<FileFingerprint>, JournalError> {
        match self {
            FileFingerprintIndex::Memory(all) => Ok(find_in_memory(all, name)),
            FileFingerprintIndex::File { file, bytes } => {
                find_in_file(file, bytes, name).map_err(JournalError::doing("reading the journal's index"))
            }
        }
    }

    /// Number of names.
    pub fn len(&self) -> u64 {
        match self {
            FileFingerprintIndex::Memory(all) => all.len() as u64,
            FileFingerprintIndex::File { bytes, .. } => (bytes.end - bytes.start) / ENTRY_BYTES as u64,
        }
    }
}

/// Names are evenly distributed hashes: most lie within twice the root of their number from the expected
/// position, and a search there touches less memory.
fn find_in_memory(sorted: &[FileFingerprint], name: u64) -> Option<FileFingerprint> {
    let expected = ((u128::from(name) * sorted.len() as u128) >> 64) as usize;
    let around = 2 * sorted.len().isqrt();
    let near = &sorted[expected.saturating_sub(around)..(expected + around).min(sorted.len())];
    let is_near = near.first().is_some_and(|first| first.name <= name)
        && near.last().is_some_and(|last| last.name >= name);
    search(if is_near { near } else { sorted }, name)
}

fn search(sorted: &[FileFingerprint], name: u64) -> Option<FileFingerprint> {
    let at = sorted.partition_point(|fingerprint| fingerprint.name < name);
    sorted.get(at).copied().filter(|found| found.name == name)
}

/// Searches by interpolation, as names are evenly distributed hashes: it reads two or three pages, at any
/// size.
fn find_in_file(file: &File, bytes: &Range<u64>, name: u64) -> io::Result<Option<FileFingerprint>> {
    // The name can be in entries low..high; their names are between `least` and `most`.
    let (mut low, mut high) = (0, (bytes.end - bytes.start) / ENTRY_BYTES as u64);
    let (mut least, mut most) = (0, u64::MAX);
    let mut memory = [0; PAGE_ENTRIES as usize * ENTRY_BYTES];
    let mut page = Vec::with_capacity(PAGE_ENTRIES as usize);
    let mut attempts = 0;
    while low < high {
        attempts += 1;
        // An attacker may choose uneven names: then halving finds them.
        let guess = if attempts > 8 {
            low + (high - low) / 2
        } else {
            interpolated_position(low..high, least, most, name)
        };
        let first = guess.saturating_sub(PAGE_ENTRIES / 2).clamp(low, high - 1);
        let count = (high - first).min(PAGE_ENTRIES);
        let memory = &mut memory[..count as usize * ENTRY_BYTES];
        file.read_exact_at(memory, bytes.start + first * ENTRY_BYTES as u64)?;
        page.clear();
        page.extend(memory.as_chunks().0.iter().map(|&bytes| FileFingerprint::from_bytes(bytes)));
        let (start, end) = (page[0].name, page[page.len() - 1].name);
        if name < start {
            (high, most) = (first, start);
        } else if name > end {
            (low, least) = (first + count, end);
        } else {
            return Ok(search(&page, name));
        }
    }
    Ok(None)
}

/// The expected position of `name` among entries with even names between `least` and `most`.
fn interpolated_position(entries: Range<u64>, least: u64, most: u64, name: u64) -> u64 {
    let span = u128::from(most.saturating_sub(least)) + 1;
    let part = u128::from(name.saturating_sub(least));
    let count = u128::from(entries.end - entries.start);
    entries.start + (count * part / span).min(count - 1) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn directory() -> OwnedFd {
        File::open(std::env::temp_dir()).unwrap().into()
    }

    fn check(added: &[FileFingerprint], run_entries: usize) {
        let mut builder = JournalIndexBuilder::with_run(directory(), run_entries);
        added.iter().for_each(|&fingerprint| builder.add(fingerprint).unwrap());
        let index = builder.finish().unwrap();
        assert_eq!(matches!(index, FileFingerprintIndex::File { .. }), added.len() > run_entries);
        let model: HashMap<u64, u64> = added.iter().map(|f| (f.name, f.state)).collect();
        assert_eq!(index.len(), model.len() as u64);
        for &fingerprint in added {
            let is_last = model[&fingerprint.name] == fingerprint.state;
            assert_eq!(index.contains(fingerprint).unwrap(), is_last, "{fingerprint:?}");
            for other in
                [fingerprint.name.wrapping_add(1), fingerprint.name.wrapping_sub(1), !fingerprint.name]
            {
                let wanted = FileFingerprint { name: other, ..fingerprint };
                assert_eq!(index.contains(wanted).unwrap(), model.get(&other) == Some(&wanted.state));
            }
        }
    }

    #[test]
    fn more_runs_than_are_merged_at_once() {
        let mut added = Vec::new();
        for n in 0..20_000u64 {
            let name = (n % 15_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            added.push(FileFingerprint { name, state: n });
        }
        check(&added, 50);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_last_word_on_a_name_counts(
            names in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..20, Just(u64::MAX)], 0..1_200),
            run_entries in 1usize..400,
        ) {
            let added: Vec<FileFingerprint> =
                names.iter().zip(0..).map(|(&name, n)| FileFingerprint { name, state: n % 7 }).collect();
            check(&added, run_entries);
        }
    }
}
