//! A wished striping as a value of `lustre.lov`.
//!
//! Pure. Writes the head alone: no object ids, and no first OST, which Lustre then chooses itself (a copied offset once
//! put all first stripes of a site on one OST, mpifileutils issue 324).

use crate::layout::STRIPE_COUNT_ALL;
use crate::layout::geometry::Wish;

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const PATTERN_RAID0: u32 = 1;
const ANY_OFFSET: u16 = 0xFFFF;
const ALL_STRIPES: u16 = 0xFFFF;

/// `LOV_MAX_STRIPE_COUNT`.
const STRIPES_MAX: u32 = 2_000;

/// `LOV_MIN_STRIPE_SIZE`: Lustre takes multiples of it.
const STRIPE_UNIT: u64 = 64 << 10;

/// Longest name of a pool (`LOV_MAXPOOLNAME`).
const POOL_NAME_BYTES_MAX: usize = 15;

/// The head to set, 32 bytes or with a pool 48.
///
/// # Errors
/// Says what Lustre can't do.
pub(super) fn head(wish: &Wish<'_>) -> Result<Vec<u8>, String> {
    let magic = if wish.pool.is_some() { MAGIC_V3 } else { MAGIC_V1 };
    let mut head = Vec::with_capacity(48);
    head.extend(magic.to_ne_bytes());
    head.extend(PATTERN_RAID0.to_ne_bytes());
    head.extend([0; 16]);
    head.extend(stripe_size(wish.stripe_bytes).to_ne_bytes());
    head.extend(stripe_count(wish.count).to_ne_bytes());
    head.extend(ANY_OFFSET.to_ne_bytes());
    if let Some(pool) = wish.pool {
        if pool.len() > POOL_NAME_BYTES_MAX || pool.contains('\0') {
            return Err(format!("{pool:?} can't be the name of a pool"));
        }
        head.extend(pool.as_bytes());
        head.resize(48, 0);
    }
    Ok(head)
}

/// 0 for the default. Lustre itself takes fewer where there are fewer OSTs.
fn stripe_count(count: Option<u32>) -> u16 {
    match count {
        None => 0,
        Some(STRIPE_COUNT_ALL) => ALL_STRIPES,
        Some(count) => count.min(STRIPES_MAX) as u16,
    }
}

/// 0 for the default.
fn stripe_size(bytes: Option<u64>) -> u32 {
    let largest = u64::from(u32::MAX) / STRIPE_UNIT * STRIPE_UNIT;
    let bytes = bytes.unwrap_or(0).min(largest).next_multiple_of(STRIPE_UNIT);
    u32::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(count: Option<u32>, stripe_bytes: Option<u64>, pool: Option<&str>) -> Wish<'_> {
        Wish { count, stripe_bytes, pool, is_auto: false }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_examples_of_the_format_document() {
        let head_v1 = head(&wish(Some(4), Some(1 << 20), None)).unwrap();
        let expected =
            [[0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0], [0; 8], [0; 8], [0, 0, 0x10, 0, 4, 0, 0xff, 0xff]];
        assert_eq!(head_v1, expected.concat());
        let head_v3 = head(&wish(Some(STRIPE_COUNT_ALL), None, Some("flash"))).unwrap();
        let expected = [
            [0xd0, 0x0b, 0xd3, 0x0b, 1, 0, 0, 0],
            [0; 8],
            [0; 8],
            [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            *b"flash\0\0\0",
            [0; 8],
        ];
        assert_eq!(head_v3, expected.concat());
    }

    #[test]
    fn sizes_and_counts_are_made_to_fit() {
        for (bytes, size) in
            [(None, 0), (Some(1), 65_536), (Some(65_537), 131_072), (Some(u64::MAX), 0xFFFF_0000)]
        {
            assert_eq!(stripe_size(bytes), size);
        }
        assert_eq!((stripe_count(Some(5_000)), stripe_count(None)), (2_000, 0));
        assert!(head(&wish(None, None, Some("a-name-of-16-byte"))).is_err());
    }
}
