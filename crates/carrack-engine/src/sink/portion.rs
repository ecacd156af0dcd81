//! The portion of a large file that comes in this session. The rest is there, is a hole, lies outside the part that is copied, or is
//! for other sessions to bring.
//!
//! A value: set when the file is announced, and read by any thread.

use carrack_journal::Partial;
use carrack_model::{ByteRange, PartialRange, RangeSet};
use carrack_wire::message::{Coming, OpenFile};
use carrack_wire::ranges_from_message;

use crate::error::SessionError;

/// The ranges of a file that come, and those that don't.
pub(super) struct Portion {
    size: u64,
    /// The remains of an earlier session.
    past: Option<Partial>,
    /// Ranges that were there when it was announced, or are for others to bring.
    there: RangeSet,
    /// The range that is copied, if it is a part: what stands there keeps its other bytes.
    part: Option<ByteRange>,
    /// Where it is to have holes, which don't come; of a part only its own.
    holes: RangeSet,
    /// True if others bring something of it.
    is_part: bool,
    /// It has holes, and nothing of it was brought before: it is made if need be, also if nothing comes.
    makes_file: bool,
}

impl Portion {
    /// Of a file of `size` bytes, from its open-file message; `part` is what is copied of it.
    pub(super) fn announced(
        message: &OpenFile,
        size: u64,
        part: Option<PartialRange>,
    ) -> Result<Portion, SessionError> {
        let holes = ranges_from_message(&message.holes, size)?;
        let part = part.map(|part| {
            let range = part.range_in(size).filter(|range| range.end() == Some(size));
            range.ok_or_else(|| SessionError::Protocol("a file that is not the part that is copied".into()))
        });
        Ok(Portion {
            size,
            past: None,
            there: RangeSet::new(),
            part: part.transpose()?,
            holes,
            is_part: false,
            makes_file: false,
        })
    }

    /// Goes on with what an earlier session left of it.
    pub(super) fn go_on(&mut self, past: Partial) {
        assert!(
            self.there.is_empty() && !self.is_part,
            "one session goes on with a file, or several share it"
        );
        assert!(past.size == self.size, "the journal means the file as it is now");
        self.past = Some(past);
    }

    /// Several sessions carry the transfer, and this is what comes of the file in this one.
    pub(super) fn share(&mut self, coming: &Coming) -> Result<(), SessionError> {
        assert!(self.past.is_none(), "one session goes on with a file, or several share it");
        self.there = ranges_from_message(&coming.ranges, self.size)?.missing_of(self.size);
        self.is_part = coming.is_part;
        self.makes_file = coming.makes_file;
        Ok(())
    }

    /// True if the whole file is copied, and no hole in it.
    pub(super) fn is_everything(&self) -> bool {
        self.part.is_none() && self.holes.is_empty()
    }

    /// Ranges that were there when it was announced, are holes, or are for others to bring.
    pub(super) fn held(&self) -> RangeSet {
        let mut held = self.past.as_ref().map_or_else(|| self.there.clone(), |past| past.held.clone());
        let before = self.part.map(|part| ByteRange::new(0, part.offset));
        for hole in self.holes.iter().chain(before) {
            held.cover(hole);
        }
        let end = held.iter().last().and_then(ByteRange::end);
        assert!(end.is_none_or(|end| end <= self.size), "what is held lies in the file");
        held
    }

    /// The remains of an earlier session.
    pub(super) fn past(&self) -> Option<&Partial> {
        self.past.as_ref()
    }

    /// Bytes that it has without their coming.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.holes.covered_bytes()
    }

    /// True if others bring something of it.
    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// True if it has to stand at the destination already: nothing of it comes, and it has no holes that make it.
    pub(super) fn is_there(&self) -> bool {
        self.there.is_whole(self.size) && !self.makes_file
    }

    /// Where the part begins that is copied, if it is a part.
    pub(super) fn part_offset(&self) -> Option<u64> {
        self.part.map(|part| part.offset)
    }

    /// True if this session has the end of it, and that is a hole, which nobody writes.
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

    fn with_holes(holes: &[(u64, u64)]) -> OpenFile {
        OpenFile { holes: ranges_to_message(&ranges(holes)), ..OpenFile::default() }
    }

    #[test]
    fn holes_are_held_and_everything_else_comes() {
        let whole = Portion::announced(&with_holes(&[]), 100, None).unwrap();
        assert!(whole.is_everything() && !whole.is_there() && !whole.ends_in_hole());
        let sparse = Portion::announced(&with_holes(&[(10, 20), (90, 10)]), 100, None).unwrap();
        assert!(!sparse.is_everything() && sparse.ends_in_hole());
        assert_eq!((sparse.held(), sparse.hole_bytes()), (ranges(&[(10, 20), (90, 10)]), 30));
    }

    #[test]
    fn what_others_bring_is_held_here() {
        let mut shared = Portion::announced(&with_holes(&[]), 100, None).unwrap();
        let ours = ranges_to_message(&ranges(&[(20, 30)]));
        shared.share(&Coming { ranges: ours, is_part: true, makes_file: false }).unwrap();
        assert!(shared.is_part() && !shared.is_there());
        assert_eq!(shared.held(), ranges(&[(0, 20), (50, 50)]));
        shared.share(&Coming::default()).unwrap();
        assert!(shared.is_there(), "nothing of it comes");
        shared.share(&Coming { makes_file: true, ..Coming::default() }).unwrap();
        assert!(!shared.is_there(), "its holes make it");
    }

    #[test]
    fn a_part_ends_where_its_file_does() {
        let part = PartialRange { offset: 40, length: None };
        let portion = Portion::announced(&with_holes(&[]), 100, Some(part)).unwrap();
        assert_eq!((portion.part_offset(), portion.held()), (Some(40), ranges(&[(0, 40)])));
        assert!(Portion::announced(&with_holes(&[]), 30, Some(part)).is_err());
    }
}
