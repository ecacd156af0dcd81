//! The comparison of one file by pieces: its progress, and the differing ranges.

use std::mem;

use carrack_journal::{Blake3Subtree, FileDigestBuilder};
use carrack_model::{ByteRange, FailureSide, RelPath, text_without_errno};

use super::compared_name::VerifyNameState;
use super::finding::EntryDifference;
use crate::examine::{PIECE_BYTES_MAX, PIECE_BYTES_MIN, PIECES_MAX};

/// Bytes of one question about a large file: at 50 MB/s, five seconds.
pub(super) const RANGE_BYTES: u64 = PIECES_MAX * PIECE_BYTES_MAX as u64 / 4;

/// Ranges that are reported for one file.
const RANGES_MAX: usize = 1_000;

/// Pieces of 1 MiB that are compared in smaller pieces.
const NARROWED_MAX: u32 = 64;

/// A file at both ends, or at the sink and in a manifest.
pub(super) struct FileComparisonState {
    /// Its path at the source.
    pub(super) directory: RelPath,
    pub(super) item: VerifyNameState,
    /// The manifest's digest, and the digest of the pieces so far.
    wanted: Option<([u8; 32], FileDigestBuilder)>,
    /// True for a part of the file: bytes after its end are not compared.
    is_part: bool,
    next_offset: u64,
    open_count: u32,
    narrowed_count: u32,
    ranges: Vec<ByteRange>,
    is_cut: bool,
    problem: Option<(FailureSide, String)>,
}

impl FileComparisonState {
    /// Starts the comparison of a file, with the item's digest if it has one, and otherwise with another
    /// file.
    pub(super) fn new(directory: RelPath, item: VerifyNameState) -> FileComparisonState {
        let wanted = item.digest.map(|digest| (digest, FileDigestBuilder::new(item.size)));
        FileComparisonState {
            directory,
            item,
            wanted,
            is_part: false,
            next_offset: 0,
            open_count: 0,
            narrowed_count: 0,
            ranges: Vec::new(),
            is_cut: false,
            problem: None,
        }
    }

    /// Restricts the comparison to the part from `offset` to the item's size.
    pub(super) fn from(self, offset: u64) -> FileComparisonState {
        FileComparisonState { next_offset: offset, is_part: true, ..self }
    }

    /// Returns true if only a part of the file is compared.
    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Returns the next range to compare.
    pub(super) fn next_range(&mut self) -> Option<ByteRange> {
        if self.next_offset >= self.item.size || self.problem.is_some() {
            return None;
        }
        let range = ByteRange::new(self.next_offset, RANGE_BYTES.min(self.item.size - self.next_offset));
        self.next_offset += range.len;
        Some(range)
    }

    /// Counts a question.
    pub(super) fn count_question(&mut self) {
        self.open_count += 1;
    }

    /// Counts an answer.
    pub(super) fn count_answer(&mut self) {
        assert!(self.open_count > 0, "an answer follows its question");
        self.open_count -= 1;
    }

    /// Returns true if it is compared with a digest and not with a file.
    pub(super) fn has_digest(&self) -> bool {
        self.wanted.is_some()
    }

    /// Returns true if no question is left.
    pub(super) fn is_done(&self) -> bool {
        self.open_count == 0 && (self.next_offset >= self.item.size || self.problem.is_some())
    }

    /// Notes an end that can't read it.
    pub(super) fn fail(&mut self, side: FailureSide, detail: String) {
        self.problem.get_or_insert((side, detail));
    }

    /// Adds the chaining values of consecutive pieces, if the file is compared with a digest.
    pub(super) fn add_values(&mut self, pieces: impl Iterator<Item = (ByteRange, [u8; 32])>) {
        let Some((_, digest)) = &mut self.wanted else { return };
        for (range, value) in pieces {
            if let Err(error) = digest.add(Blake3Subtree { range, value }) {
                self.problem.get_or_insert((FailureSide::Sink, text_without_errno(&error)));
            }
        }
    }

    /// Notes a piece that differs. Returns true if it should be compared in smaller pieces; otherwise it is
    /// reported as a whole.
    pub(super) fn narrow_or_report(&mut self, range: ByteRange, piece_bytes: u32) -> bool {
        if piece_bytes > PIECE_BYTES_MIN && self.narrowed_count < NARROWED_MAX {
            self.narrowed_count += 1;
            return true;
        }
        self.add_differing_range(range);
        false
    }

    /// Adds a range to the report.
    pub(super) fn add_differing_range(&mut self, range: ByteRange) {
        let is_full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut().filter(|last| last.end() == Some(range.offset)) {
            Some(last) => last.len += range.len,
            None if is_full => self.is_cut = true,
            None => self.ranges.push(range),
        }
    }

    /// Takes the difference that was found.
    pub(super) fn difference(&mut self) -> Option<EntryDifference> {
        if let Some((side, detail)) = self.problem.take() {
            return Some(EntryDifference::Unreadable { side, detail });
        }
        if let Some((wanted, digest)) = self.wanted.take() {
            return match digest.finish() {
                Ok(found) if found == wanted => None,
                Ok(_) => Some(EntryDifference::Digest),
                Err(error) => Some(EntryDifference::Unreadable {
                    side: FailureSide::Sink,
                    detail: text_without_errno(&error),
                }),
            };
        }
        let (ranges, is_cut) = (joined(mem::take(&mut self.ranges)), self.is_cut);
        (!ranges.is_empty()).then_some(EntryDifference::Content { ranges, is_cut })
    }
}

/// Returns the ranges in order, with neighbours joined.
fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut joined: Vec<ByteRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| last.end() == Some(range.offset)) {
            Some(last) => last.len += range.len,
            None => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(size: u64) -> FileComparisonState {
        FileComparisonState::new(
            RelPath::root(),
            VerifyNameState { size, ..VerifyNameState::new(b"f"[..].into(), None) },
        )
    }

    #[test]
    fn a_file_is_cut_into_ranges_to_its_end() {
        let mut file = check(2 * RANGE_BYTES + 5);
        let ranges: Vec<_> = std::iter::from_fn(|| file.next_range()).collect();
        let expected = [(0, RANGE_BYTES), (RANGE_BYTES, RANGE_BYTES), (2 * RANGE_BYTES, 5)];
        assert_eq!(ranges, expected.map(|(offset, len)| ByteRange::new(offset, len)));
        assert!(file.is_done());
        let mut unreadable = check(2 * RANGE_BYTES);
        unreadable.next_range();
        unreadable.count_question();
        unreadable.fail(FailureSide::Sink, "no".into());
        assert!(unreadable.next_range().is_none() && !unreadable.is_done());
        unreadable.count_answer();
        assert!(unreadable.is_done());
        assert!(matches!(unreadable.difference(), Some(EntryDifference::Unreadable { .. })));
    }

    #[test]
    fn neighbours_become_one_and_no_more_are_told_than_fit() {
        let mut file = check(1 << 40);
        for piece in [3, 4, 9, 2, 8] {
            file.add_differing_range(ByteRange::new(piece * 1_024, 1_024));
        }
        let ranges = vec![ByteRange::new(2_048, 3 * 1_024), ByteRange::new(8 * 1_024, 2_048)];
        assert_eq!(file.difference(), Some(EntryDifference::Content { ranges, is_cut: false }));
        let mut file = check(1 << 40);
        (0..2_000).for_each(|n| file.add_differing_range(ByteRange::new(n * 2_048, 1_024)));
        let Some(EntryDifference::Content { ranges, is_cut }) = file.difference() else { panic!() };
        assert_eq!((ranges.len(), is_cut), (RANGES_MAX, true));
        assert_eq!(check(5).difference(), None);
    }

    #[test]
    fn only_so_many_pieces_are_looked_into() {
        let mut file = check(1 << 40);
        let into =
            (0..100).filter(|n| file.narrow_or_report(ByteRange::new(n << 20, 1 << 20), 1 << 20)).count();
        assert_eq!(into, NARROWED_MAX as usize);
        assert!(!file.narrow_or_report(ByteRange::new(0, 1_024), 1_024));
    }
}
