//! Cuts one file into objects.
//!
//! Owns the position in a file up to which objects were handed out. Must not hold the objects: they are cut
//! when a thread is free to read one, so that a file of any size costs the same memory. One thread at a time.

use std::iter::FusedIterator;
use std::sync::Arc;

use carrack_model::{ByteRange, FileId, RangeSet, TargetId};

use crate::Layout;

/// An object to be read: a contiguous extent of one file on one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectExtent {
    /// The file.
    pub file: FileId,
    /// Storage target of the extent.
    pub target: TargetId,
    /// Bytes of the file; never empty.
    pub range: ByteRange,
}

/// Yields the objects of one file in the order of their offsets (L1).
///
/// No object crosses a stripe edge or is longer than `object_bytes`. Each starts a multiple of `object_bytes`
/// after its stripe's start. Where stripes are a multiple of `object_bytes`, so is its offset in the file,
/// and the object is one subtree of the file's BLAKE3 tree.
#[derive(Debug)]
pub struct FileCursor {
    file: FileId,
    size: u64,
    layout: Arc<dyn Layout>,
    object_bytes: u64,
    offset: u64,
    /// The only target whose objects are cut; `None` for all.
    only: Option<TargetId>,
    /// The only bytes that are cut; `None` for all.
    wanted: Option<Arc<RangeSet>>,
}

impl FileCursor {
    /// A cursor at the start of a file of `size` bytes. An empty file has no objects; it travels in a bundle.
    ///
    /// # Panics
    /// If `object_bytes` is not a power of two.
    pub fn new(file: FileId, size: u64, layout: Arc<dyn Layout>, object_bytes: u64) -> FileCursor {
        assert!(object_bytes.is_power_of_two(), "object_bytes must be a power of two, not {object_bytes}");
        FileCursor { file, size, layout, object_bytes, offset: 0, only: None, wanted: None }
    }

    /// Cuts only these bytes; the sink has the rest (L12). Objects end at multiples of `object_bytes`, so
    /// that they equal those of an earlier transfer that was cut alike.
    pub fn with_wanted_ranges(mut self, wanted: RangeSet) -> FileCursor {
        self.wanted = Some(Arc::new(wanted));
        self.offset = self.next_offset(self.offset);
        self
    }

    /// Returns the file that is cut.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Returns one cursor for each target that holds part of the file, so that no target waits for another's
    /// turn (L1).
    pub fn split_by_target(self) -> Vec<FileCursor> {
        let targets = self.layout.targets();
        if targets.len() < 2 {
            return vec![self];
        }
        let mut cursors = Vec::new();
        for only in targets {
            let (layout, wanted) = (Arc::clone(&self.layout), self.wanted.clone());
            let mut cursor = FileCursor { layout, wanted, only: Some(*only), ..self };
            cursor.offset = cursor.next_offset(self.offset);
            if cursor.offset < cursor.size {
                cursors.push(cursor);
            }
        }
        // An exhausted cursor shows its thread that the file is at its end.
        if cursors.is_empty() { vec![self] } else { cursors }
    }

    /// Returns about how many bytes are left to cut.
    pub fn remaining_bytes(&self) -> u64 {
        let left = self.size - self.offset;
        if self.only.is_some() { left / self.layout.targets().len() as u64 } else { left }
    }

    /// Returns the target of the next object; `None` after the last one.
    pub fn peek_target(&self) -> Option<TargetId> {
        (self.offset < self.size).then(|| self.layout.extent_at(self.offset).target)
    }

    /// Returns the first byte to cut at or behind `offset`; the file's size behind the last one.
    fn next_offset(&self, offset: u64) -> u64 {
        let mut at = offset;
        while at < self.size {
            let on_target = match self.only {
                Some(only) => self.layout.next_offset_on(only, at, self.size).unwrap_or(self.size),
                None => at,
            };
            let wanted = match &self.wanted {
                Some(wanted) => {
                    wanted.next_from(on_target).map_or(self.size, |run| run.offset.min(self.size))
                }
                None => on_target,
            };
            if wanted == on_target {
                return wanted;
            }
            at = wanted;
        }
        self.size
    }

    /// Returns the end of the object at the present offset without the bounds of the layout.
    fn end_max(&self) -> u64 {
        match self.wanted.as_ref().and_then(|wanted| wanted.next_from(self.offset)) {
            Some(run) => {
                let grid = self.offset - self.offset % self.object_bytes;
                let run_end = run.end().unwrap_or(u64::MAX);
                grid.saturating_add(self.object_bytes).min(run_end)
            }
            None => self.offset.saturating_add(self.object_bytes),
        }
    }

    /// Returns the offset of the next object.
    pub fn peek_offset(&self) -> u64 {
        self.offset
    }
}

impl Iterator for FileCursor {
    type Item = ObjectExtent;

    /// Cuts the next object.
    ///
    /// # Panics
    /// If the layout breaks its promise that an extent ends beyond the offset asked for.
    fn next(&mut self) -> Option<ObjectExtent> {
        if self.offset == self.size {
            return None;
        }
        let extent = self.layout.extent_at(self.offset);
        assert!(extent.end > self.offset, "{:?} has an empty extent at {}", self.layout, self.offset);
        let end = self.end_max().min(extent.end).min(self.size);
        let range = ByteRange::new(self.offset, end - self.offset);
        self.offset = self.next_offset(end);
        Some(ObjectExtent { file: self.file, target: extent.target, range })
    }
}

impl FusedIterator for FileCursor {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{SingleTarget, StripedLayout};

    fn striped(target_count: u64, stripe_bytes: u64) -> Arc<dyn Layout> {
        Arc::new(StripedLayout::new((0..target_count).map(TargetId).collect(), stripe_bytes).unwrap())
    }

    #[test]
    fn the_last_object_is_short() {
        let layout = Arc::new(SingleTarget { target: TargetId(3) });
        let mut cursor = FileCursor::new(FileId(1), 2_500, layout, 1_024);
        assert_eq!(cursor.peek_target(), Some(TargetId(3)));
        let lens: Vec<u64> = cursor.by_ref().map(|object| object.range.len).collect();
        assert_eq!(lens, [1_024, 1_024, 452]);
        assert_eq!((cursor.next(), cursor.peek_target(), cursor.remaining_bytes()), (None, None, 0));
    }

    #[test]
    fn an_empty_file_has_no_objects() {
        let mut cursor = FileCursor::new(FileId(1), 0, striped(2, 64), 1_024);
        assert_eq!((cursor.peek_target(), cursor.next()), (None, None));
    }

    #[test]
    fn the_largest_file_ends() {
        let layout = Arc::new(SingleTarget { target: TargetId(3) });
        let cursor = FileCursor::new(FileId(1), u64::MAX, layout, 1 << 63);
        assert_eq!(cursor.map(|object| object.range.len).sum::<u64>(), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "power of two")]
    fn refuses_odd_object_sizes() {
        FileCursor::new(FileId(1), 1, striped(2, 64), 1_000);
    }

    #[test]
    fn each_target_has_a_cursor() {
        let cursor = FileCursor::new(FileId(1), 250, striped(3, 100), 64);
        let cursors = cursor.split_by_target();
        let ranges = cursors.into_iter().map(|cursor| cursor.map(|object| object.range).collect::<Vec<_>>());
        let range = ByteRange::new;
        assert_eq!(
            ranges.collect::<Vec<_>>(),
            [vec![range(0, 64), range(64, 36)], vec![range(100, 64), range(164, 36)], vec![range(200, 50)]]
        );
        let short = FileCursor::new(FileId(1), 50, striped(3, 100), 64);
        assert_eq!(short.split_by_target().len(), 1, "the others hold no byte");
    }

    fn cursor(size: u64, layout: &Arc<dyn Layout>, object_bits: u32) -> FileCursor {
        FileCursor::new(FileId(9), size, Arc::clone(layout), 1 << object_bits)
    }
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn the_cursors_of_the_targets_cut_what_one_cursor_cuts(
            size in 0u64..300_000,
            target_count in 1u64..6,
            stripe_bytes in 1_000u64..100_000,
            object_bits in 10u32..17,
        ) {
            let layout = striped(target_count, stripe_bytes);
            let whole: Vec<ObjectExtent> = cursor(size, &layout, object_bits).collect();
            let cursors = cursor(size, &layout, object_bits).split_by_target();
            let mut parts: Vec<ObjectExtent> = cursors.into_iter().flatten().collect();
            parts.sort_by_key(|object| object.range.offset);
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn cuts_only_what_is_wanted(
            size in 1u64..300_000,
            target_count in 1u64..6,
            stripe_bytes in prop_oneof![1_000u64..100_000, (10u32..17).prop_map(|bits| 1u64 << bits)],
            object_bits in 10u32..17,
            held_bits in any::<u64>(),
        ) {
            let layout = striped(target_count, stripe_bytes);
            let mut held = RangeSet::new();
            for (i, object) in cursor(size, &layout, object_bits).enumerate() {
                if held_bits >> (i % 64) & 1 == 1 {
                    prop_assert!(held.insert(object.range));
                }
            }
            let missing = held.missing_of(size);
            let bytes = missing.covered_bytes();
            let mut cut = 0;
            for object in cursor(size, &layout, object_bits).with_wanted_ranges(missing).split_by_target().into_iter().flatten() {
                prop_assert!(object.range.len > 0 && object.range.len <= 1 << object_bits);
                prop_assert_eq!(layout.extent_at(object.range.offset).target, object.target);
                prop_assert!(held.insert(object.range), "{:?} is there", object.range);
                cut += object.range.len;
            }
            prop_assert_eq!(cut, bytes);
            prop_assert!(held.is_whole(size));
        }

        #[test]
        fn cuts_every_byte_once_on_stripe_edges(
            size in 0u64..300_000,
            target_count in 1u64..6,
            stripe_bytes in prop_oneof![1_000u64..100_000, (10u32..17).prop_map(|bits| 1u64 << bits)],
            object_bits in 10u32..17,
        ) {
            let object_bytes = 1u64 << object_bits;
            let layout = striped(target_count, stripe_bytes);
            let mut cursor = FileCursor::new(FileId(9), size, Arc::clone(&layout), object_bytes);
            let mut offset = 0;
            while let Some(target) = cursor.peek_target() {
                let object = cursor.next().unwrap();
                let ByteRange { offset: start, len } = object.range;
                prop_assert_eq!((object.file, object.target, start), (FileId(9), target, offset));
                prop_assert!(len > 0 && len <= object_bytes);
                prop_assert_eq!(layout.extent_at(start), layout.extent_at(start + len - 1));
                prop_assert_eq!(layout.extent_at(start).target, target);
                let stripe_start = if target_count == 1 { 0 } else { start - start % stripe_bytes };
                prop_assert_eq!((start - stripe_start) % object_bytes, 0);
                if stripe_bytes % object_bytes == 0 {
                    prop_assert_eq!(start % object_bytes, 0);
                }
                let is_full = len == object_bytes || start + len == size;
                prop_assert!(is_full || start + len == layout.extent_at(start).end, "cut without need");
                offset += len;
                prop_assert_eq!(cursor.remaining_bytes(), size - offset);
            }
            prop_assert_eq!(offset, size);
            prop_assert_eq!(cursor.next(), None);
        }
    }
}
