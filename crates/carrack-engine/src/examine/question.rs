//! Questions about entries beneath a path, and their answers.

use carrack_model::{ByteRange, KeptMetadata, RelPath, SpecialFile};
use carrack_storage::BrowsedKind;

use super::metadata::ComparedEntryMetadata;

/// Files up to this size are read for [`ExamineQuestion::Look`]; larger ones are compared in pieces. One read
/// of one slot.
pub(crate) const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// Names of one question: a section of the scan, and its directory.
pub(crate) const NAMES_MAX: usize = carrack_model::limits::SCAN_BATCH_ENTRIES_MAX + 1;

/// Questions that may be open: enough to hide a round trip of 100 ms behind reads of 64 MiB each.
pub(crate) const QUESTIONS_MAX: usize = 16;

/// Pieces of one question: the answer takes 32 KiB.
pub(crate) const PIECES_MAX: u64 = 1_024;

/// The smallest piece, a chunk of BLAKE3.
pub(crate) const PIECE_BYTES_MIN: u32 = carrack_journal::CHUNK_BYTES as u32;

/// The largest piece: one read of a thread.
pub(crate) const PIECE_BYTES_MAX: u32 = WHOLE_BYTES_MAX as u32;

/// A question to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExamineQuestion {
    /// The next step of a walk through the tree of this directory; devices, pipes and sockets are included or
    /// skipped.
    WalkOn { beneath: RelPath, specials: bool },
    /// The entries with these names in a directory; an empty name means the directory's own path.
    Look { directory: RelPath, names: Vec<Box<[u8]>>, digests: bool, metadata: Option<KeptMetadata> },
    /// The digests of pieces of a file.
    Pieces(PieceDigestRequest),
}

/// A range of a file, cut into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PieceDigestRequest {
    pub(crate) directory: RelPath,
    pub(crate) name: Box<[u8]>,
    pub(crate) file_size: u64,
    pub(crate) range: ByteRange,
    pub(crate) piece_bytes: u32,
    /// True for a part of the file, which may be longer than `file_size`: each piece is hashed separately.
    pub(crate) by_itself: bool,
}

/// The answers to the questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonAnswer {
    Walked(WalkStep),
    Seen(Vec<ExaminedEntryFacts>),
    /// The pieces' chaining values or, of a part, their digests; or the reason why the file can't be read.
    Pieces(Result<Vec<[u8; 32]>, String>),
}

/// A step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep {
    /// Some names; an empty name comes first if the directory itself is included.
    Names { directory: RelPath, names: Vec<Box<[u8]>> },
    /// An entry that can't be examined; its path at that end.
    Failed { path: Box<[u8]>, detail: String },
    /// A pipe, socket or device.
    Skipped { path: Box<[u8]>, what: String },
    /// The end of the walk.
    Over,
}

/// The state of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExaminedEntryFacts {
    pub(crate) standing: ExaminedEntryKind,
    /// Bytes of a file.
    pub(crate) size: u64,
    /// A number that differs after every change that the file system records.
    pub(crate) stamp: u64,
    /// BLAKE3 of a file that was read, or of a link's target.
    pub(crate) digest: Option<[u8; 32]>,
    /// The kind and number of a device, pipe or socket; an older end does not send it.
    pub(crate) special: Option<SpecialFile>,
    /// If metadata was requested: that of the `stat`, and the kinds to keep of the metadata that needs
    /// further calls.
    pub(crate) metadata: Option<Box<ComparedEntryMetadata>>,
}

/// The existence and kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExaminedEntryKind {
    Nothing,
    Is(BrowsedKind),
    /// The reason why it can't be read.
    Unreadable(String),
}

impl ExaminedEntryFacts {
    pub(crate) fn without_facts(standing: ExaminedEntryKind) -> ExaminedEntryFacts {
        ExaminedEntryFacts { standing, size: 0, stamp: 0, digest: None, special: None, metadata: None }
    }
}

impl PieceDigestRequest {
    /// The number of its pieces.
    pub(crate) fn piece_count(&self) -> u64 {
        self.range.len.div_ceil(u64::from(self.piece_bytes))
    }

    /// Returns the range of a piece.
    pub(crate) fn piece(&self, index: u64) -> ByteRange {
        let start = index * u64::from(self.piece_bytes);
        assert!(start < self.range.len, "a piece lies in its range");
        let len = u64::from(self.piece_bytes).min(self.range.len - start);
        ByteRange::new(self.range.offset + start, len)
    }

    /// Returns true if the question is valid: each piece is a subtree of the file's tree, and there are not
    /// too many pieces.
    pub(crate) fn is_sound(&self) -> bool {
        let piece = u64::from(self.piece_bytes);
        let is_piece = self.piece_bytes.is_power_of_two()
            && (PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&self.piece_bytes);
        let end = self.range.end().filter(|&end| end <= self.file_size);
        let ends_well = end
            .is_some_and(|end| self.by_itself || end == self.file_size || end.is_multiple_of(piece.max(1)));
        let begins_well = self.by_itself || self.range.offset.is_multiple_of(WHOLE_BYTES_MAX);
        is_piece && ends_well && begins_well && self.range.len > 0 && self.piece_count() <= PIECES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(file_size: u64, offset: u64, len: u64, piece_bytes: u32) -> PieceDigestRequest {
        let (directory, name) = (RelPath::root(), b"f"[..].into());
        let range = ByteRange::new(offset, len);
        PieceDigestRequest { directory, name, file_size, range, piece_bytes, by_itself: false }
    }

    #[test]
    fn only_whole_subtrees_are_pieces() {
        const MIB: u64 = 1 << 20;
        for sound in [
            pieces(1, 0, 1, 1_024),
            pieces(3 * MIB + 1, 0, 3 * MIB + 1, 1 << 20),
            pieces(3 * MIB + 1, 2 * MIB, MIB, 1_024),
            pieces(1 << 40, 0, 1 << 30, 1 << 20),
        ] {
            assert!(sound.is_sound(), "{sound:?}");
            let last = sound.piece(sound.piece_count() - 1);
            assert_eq!(last.end(), sound.range.end());
        }
        for unsound in [
            pieces(0, 0, 0, 1_024),
            pieces(10, 0, 0, 1_024),
            pieces(10, 0, 11, 1_024),
            pieces(MIB, 0, MIB, 0),
            pieces(MIB, 0, MIB, 512),
            pieces(MIB, 0, MIB, 1_025),
            pieces(MIB, 0, MIB, 2 << 20),
            pieces(2 * MIB, 0, 1_000, 1_024),
            pieces(2 * MIB, 1_024, 1_024, 1_024),
            pieces(2 * MIB, 0, 2 * MIB, 1_024),
            pieces(u64::MAX, MIB, u64::MAX, 1_024),
            pieces(1 << 40, 0, (1 << 30) + MIB, 1 << 20),
        ] {
            assert!(!unsound.is_sound(), "{unsound:?}");
        }
        for sound in [pieces(2 * MIB, 7, 1_000, 1_024), pieces(2 * MIB, 1_025, MIB, 1_024)] {
            let of_part = PieceDigestRequest { by_itself: true, ..sound };
            assert!(of_part.is_sound(), "{of_part:?}");
        }
        for unsound in [
            pieces(2 * MIB, 7, 0, 1_024),
            pieces(MIB, 7, MIB, 1_024),
            pieces(2 * MIB, 7, MIB + 1, 1_024),
            pieces(u64::MAX, 7, u64::MAX, 1 << 20),
        ] {
            let of_part = PieceDigestRequest { by_itself: true, ..unsound };
            assert!(!of_part.is_sound(), "{of_part:?}");
        }
    }
}
