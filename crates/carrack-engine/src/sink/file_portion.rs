//! The portion of a large file that arrives in this session. The rest exists, is a hole, lies outside the
//! part that is copied, or belongs to other sessions.
//!
//! A value: set when the file is announced, and read by any thread.

use carrack_journal::PartialFile;
use carrack_model::{ByteRange, PartialCopyRange, RangeSet};
use carrack_wire::message::{OpenFileMessage, RangesToSend};
use carrack_wire::ranges_from_message;

use crate::error::SessionError;

/// The ranges of a file that arrive, and those that don't.
pub(super) struct RangesToReceive {
    size: u64,
    /// The record of an earlier session.
    past: Option<PartialFile>,
    /// Ranges that existed at the announcement, or belong to other sessions.
    there: RangeSet,
    /// The copied range of a partial transfer. The destination's file keeps its other bytes.
    part: Option<ByteRange>,
    /// Its holes, which are not sent. In a partial transfer only those of the part.
    holes: RangeSet,
    /// At the end of a file in parts: all its holes.
    file_holes: RangeSet,
    /// True if other sessions write a part of the file.
    is_part: bool,
    /// True for a file with holes of which no range arrived before: it is created even if no object arrives.
    makes_file: bool,
}

impl RangesToReceive {
    /// Creates the portion of a file of `size` bytes from its open-file message; `part` is the range of a
    /// partial transfer.
    pub(super) fn from_announcement(
        message: &OpenFileMessage,
        size: u64,
        part: Option<PartialCopyRange>,
    ) -> Result<RangesToReceive, SessionError> {
        let holes = ranges_from_message(&message.holes, size)?;
        let part = part.map(|part| {
            let range = part.range_in(size).filter(|range| range.end() == Some(size));
            range.ok_or_else(|| SessionError::Protocol("a file that is not the part that is copied".into()))
        });
        Ok(RangesToReceive {
            size,
            past: None,
            there: RangeSet::new(),
            part: part.transpose()?,
            holes,
            file_holes: RangeSet::new(),
            is_part: false,
            makes_file: false,
        })
    }

    /// Resumes the file with the record of an earlier session.
    pub(super) fn resume_from(&mut self, past: PartialFile) {
        assert!(
            self.there.is_empty() && !self.is_part,
            "one session goes on with a file, or several share it"
        );
        assert!(past.size == self.size, "the journal means the file as it is now");
        self.past = Some(past);
    }

    /// Sets the ranges that arrive in this session, as several sessions carry the transfer.
    pub(super) fn set_session_ranges(&mut self, coming: &RangesToSend) -> Result<(), SessionError> {
        assert!(self.past.is_none(), "one session goes on with a file, or several share it");
        self.there = ranges_from_message(&coming.ranges, self.size)?.missing_of(self.size);
        self.file_holes = ranges_from_message(&coming.file_holes, self.size)?;
        self.is_part = coming.is_part;
        self.makes_file = coming.makes_file;
        Ok(())
    }

    /// Returns true if the whole file is copied, and has no hole.
    pub(super) fn is_everything(&self) -> bool {
        self.part.is_none() && self.holes.is_empty()
    }

    /// Ranges that existed at the announcement, are holes, or belong to other sessions.
    pub(super) fn held_ranges(&self) -> RangeSet {
        let mut held = self.past.as_ref().map_or_else(|| self.there.clone(), |past| past.held.clone());
        let before = self.part.map(|part| ByteRange::new(0, part.offset));
        for hole in self.holes.iter().chain(before) {
            held.cover(hole);
        }
        let end = held.iter().last().and_then(ByteRange::end);
        assert!(end.is_none_or(|end| end <= self.size), "what is held lies in the file");
        held
    }

    /// The record of an earlier session.
    pub(super) fn earlier_record(&self) -> Option<&PartialFile> {
        self.past.as_ref()
    }

    /// The holes of a file of which all parts have arrived.
    pub(super) fn file_holes(&self) -> impl Iterator<Item = ByteRange> {
        self.file_holes.iter()
    }

    /// Returns true if this session ends a file of which all parts have arrived.
    pub(super) fn ends_parts(&self) -> bool {
        self.there.is_whole(self.size) && !self.is_part
    }

    /// Bytes of holes, which count as copied without being sent.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.holes.covered_bytes()
    }

    /// Returns true if other sessions write a part of the file.
    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Returns true if the file must already exist at the destination: no object of this session creates it,
    /// and it has no holes for which it is created.
    pub(super) fn must_exist(&self) -> bool {
        self.there.is_whole(self.size) && !self.makes_file
    }

    /// The first offset of the part in a partial transfer.
    pub(super) fn part_offset(&self) -> Option<u64> {
        self.part.map(|part| part.offset)
    }

    /// Returns true if this session has the file's end, and that is a hole, which no write reaches.
    pub(super) fn ends_in_hole(&self) -> bool {
        self.holes.iter().last().and_then(ByteRange::end) == Some(self.size)
    }
}

#[cfg(test)]
mod tests {
    use carrack_wire::ranges_to_message;

    use super::*;

    fn ranges(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for &(offset, len) in ranges {
            assert!(set.insert(ByteRange::new(offset, len)));
        }
        set
    }

    fn with_holes(holes: &[(u64, u64)]) -> OpenFileMessage {
        OpenFileMessage { holes: ranges_to_message(&ranges(holes)), ..OpenFileMessage::default() }
    }

    #[test]
    fn holes_are_held_and_everything_else_comes() {
        let whole = RangesToReceive::from_announcement(&with_holes(&[]), 100, None).unwrap();
        assert!(whole.is_everything() && !whole.must_exist() && !whole.ends_in_hole());
        let sparse =
            RangesToReceive::from_announcement(&with_holes(&[(10, 20), (90, 10)]), 100, None).unwrap();
        assert!(!sparse.is_everything() && sparse.ends_in_hole());
        assert_eq!((sparse.held_ranges(), sparse.hole_bytes()), (ranges(&[(10, 20), (90, 10)]), 30));
    }

    #[test]
    fn what_others_bring_is_held_here() {
        let mut shared = RangesToReceive::from_announcement(&with_holes(&[]), 100, None).unwrap();
        let ours = ranges_to_message(&ranges(&[(20, 30)]));
        shared
            .set_session_ranges(&RangesToSend { ranges: ours, is_part: true, ..RangesToSend::default() })
            .unwrap();
        assert!(shared.is_part() && !shared.must_exist());
        assert_eq!(shared.held_ranges(), ranges(&[(0, 20), (50, 50)]));
        shared.set_session_ranges(&RangesToSend::default()).unwrap();
        assert!(shared.must_exist(), "nothing of it comes");
        shared.set_session_ranges(&RangesToSend { makes_file: true, ..RangesToSend::default() }).unwrap();
        assert!(!shared.must_exist(), "its holes make it");
    }

    #[test]
    fn a_part_ends_where_its_file_does() {
        let part = PartialCopyRange { offset: 40, length: None };
        let portion = RangesToReceive::from_announcement(&with_holes(&[]), 100, Some(part)).unwrap();
        assert_eq!((portion.part_offset(), portion.held_ranges()), (Some(40), ranges(&[(0, 40)])));
        assert!(RangesToReceive::from_announcement(&with_holes(&[]), 30, Some(part)).is_err());
    }
}
