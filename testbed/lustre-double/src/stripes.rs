//! RAID 0 arithmetic: the object and the offset of each byte of a file.
//!
//! Pure. Offsets are the file's, also in a component that does not begin at 0: Lustre cuts the whole file as
//! if the component were everywhere, so that objects of later components begin with a hole.

/// The striping of a file, or of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of one stripe; at least 1.
    pub stripe_bytes: u64,
    /// Objects that take turns; at least 1.
    pub stripe_count: u64,
}

/// A run of bytes in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the object in the component.
    pub stripe: usize,
    /// Offset in the object.
    pub object_offset: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Number of bytes; at least 1.
    pub bytes: u64,
}

impl Cut {
    /// Returns the pieces of `start..end`, in the file's order.
    pub fn pieces(self, start: u64, end: u64) -> impl Iterator<Item = Piece> {
        let mut at = start;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let piece = self.piece_at(at, end);
                at += piece.bytes;
                piece
            })
        })
    }

    fn piece_at(self, at: u64, end: u64) -> Piece {
        let (block, within) = (at / self.stripe_bytes, at % self.stripe_bytes);
        // In a single object the stripes are contiguous.
        let room = if self.stripe_count == 1 { u64::MAX } else { self.stripe_bytes - within };
        Piece {
            stripe: (block % self.stripe_count) as usize,
            object_offset: block / self.stripe_count * self.stripe_bytes + within,
            file_offset: at,
            bytes: room.min(end - at),
        }
    }

    /// Returns the length of an object when the file ends at `file_bytes`.
    pub fn object_bytes(self, stripe: usize, file_bytes: u64) -> u64 {
        let round = self.stripe_bytes * self.stripe_count;
        let (whole_rounds, rest) = (file_bytes / round, file_bytes % round);
        let before = stripe as u64 * self.stripe_bytes;
        whole_rounds * self.stripe_bytes + rest.saturating_sub(before).min(self.stripe_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cuts() -> impl Strategy<Value = Cut> {
        (1..20u64, 1..7u64).prop_map(|(stripe_bytes, stripe_count)| Cut { stripe_bytes, stripe_count })
    }

    #[test]
    fn the_third_stripe_of_two_follows_the_first() {
        let cut = Cut { stripe_bytes: 10, stripe_count: 2 };
        let found: Vec<_> =
            cut.pieces(5, 25).map(|piece| (piece.stripe, piece.object_offset, piece.bytes)).collect();
        assert_eq!(found, [(0, 5, 5), (1, 0, 10), (0, 10, 5)]);
        assert_eq!((cut.object_bytes(0, 25), cut.object_bytes(1, 25)), (15, 10));
    }

    proptest! {
        #[test]
        fn pieces_are_the_range_and_end_where_objects_do(cut in cuts(), end in 0..500u64, length in 0..500u64) {
            let mut at = end.saturating_sub(length);
            let mut object_ends = vec![0; cut.stripe_count as usize];
            for piece in cut.pieces(at, end) {
                prop_assert_eq!(piece.file_offset, at);
                at += piece.bytes;
                object_ends[piece.stripe] = piece.object_offset + piece.bytes;
            }
            prop_assert_eq!(at, end);
            for (stripe, object_end) in object_ends.into_iter().enumerate() {
                prop_assert!(object_end == 0 || object_end == cut.object_bytes(stripe, end));
            }
        }

        #[test]
        fn objects_hold_the_whole_file(cut in cuts(), bytes in 0..10_000u64) {
            let sum: u64 = (0..cut.stripe_count).map(|stripe| cut.object_bytes(stripe as usize, bytes)).sum();
            prop_assert_eq!(sum, bytes);
        }

        #[test]
        fn no_two_bytes_share_a_place(cut in cuts(), bytes in 0..300u64) {
            let places: std::collections::HashSet<_> = (0..bytes)
                .map(|byte| cut.pieces(byte, byte + 1).next().map(|piece| (piece.stripe, piece.object_offset)))
                .collect();
            prop_assert_eq!(places.len() as u64, bytes);
        }
    }
}
