//! Parser of `ceph.file.layout`, and the mapping from offsets to objects.
//!
//! Pure: bytes in, values out; no number in the text is trusted.

use std::num::NonZeroU64;

use thiserror::Error;

/// Bound of the blocks of a file that are queried: 256 GiB of objects of 4 MiB. Those behind them are
/// distributed over the same targets.
pub const BLOCKS_MAX: u64 = 65_536;

/// Largest size or count that can be set (`fl_stripe_unit` and the others have 32 bits).
const NUMBER_MAX: u64 = u32::MAX as u64;

/// The division of a file into objects (`Documentation/cephfs/file-layouts.rst`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CephLayout {
    /// Bytes on one object before the next one.
    pub stripe_unit: NonZeroU64,
    /// Objects of a round.
    pub stripe_count: NonZeroU64,
    /// Bytes of an object, a multiple of the stripe unit.
    pub object_bytes: NonZeroU64,
    /// The data pool, by name or number.
    pub pool: Option<String>,
}

/// The reason why a text is no layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CephLayoutError {
    /// A part is missing, or its value is no valid number.
    #[error("no usable {0}")]
    Missing(&'static str),
    /// Objects that don't hold whole stripe units.
    #[error("objects of {0} bytes don't hold stripe units of {1}")]
    Uneven(u64, u64),
}

/// Parses a value of `ceph.file.layout` (or `ceph.dir.layout`); its parts may have any order.
///
/// # Errors
/// [`CephLayoutError`]; unknown parts are ignored.
pub fn parse_ceph_layout(value: &[u8]) -> Result<CephLayout, CephLayoutError> {
    let layout = CephLayout {
        stripe_unit: number(value, "stripe_unit")?,
        stripe_count: number(value, "stripe_count")?,
        object_bytes: number(value, "object_size")?,
        pool: find_value(value, "pool").map(|name| String::from_utf8_lossy(name).into_owned()),
    };
    let (object, unit) = (layout.object_bytes.get(), layout.stripe_unit.get());
    if !object.is_multiple_of(unit) { Err(CephLayoutError::Uneven(object, unit)) } else { Ok(layout) }
}

/// The host in a location in the CRUSH map: type and name of each level, each followed by a zero byte.
pub(super) fn host_in_location(location: &[u8]) -> Option<String> {
    let words: Vec<&[u8]> = location.split(|byte| *byte == 0).collect();
    let (levels, _) = words.as_chunks::<2>();
    let host = levels.iter().find_map(|[kind, name]| (*kind == b"host").then_some(*name))?;
    (!host.is_empty()).then(|| String::from_utf8_lossy(host).into_owned())
}

fn number(value: &[u8], key: &'static str) -> Result<NonZeroU64, CephLayoutError> {
    let text = find_value(value, key).and_then(|word| std::str::from_utf8(word).ok());
    let number =
        text.and_then(|text| text.parse().ok()).filter(|number: &NonZeroU64| number.get() <= NUMBER_MAX);
    number.ok_or(CephLayoutError::Missing(key))
}

/// The value of the first `key=value`.
fn find_value<'a>(value: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let words = value.split(|byte| byte.is_ascii_whitespace() || *byte == 0);
    words
        .filter_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
        .find(|value| !value.is_empty())
}

impl CephLayout {
    /// The object that holds the byte at `offset`.
    pub fn object_of(&self, offset: u64) -> u64 {
        let block = offset / self.stripe_unit;
        let (stripe, position) = (block / self.stripe_count, block % self.stripe_count);
        // There are less than 2^64 stripe units, and the product is at most their number.
        stripe / self.units_per_object() * self.stripe_count.get() + position
    }

    /// The first byte of the file in an object; none beyond the largest file.
    pub fn first_byte_of(&self, object: u64) -> Option<u64> {
        let (set, position) = (object / self.stripe_count, object % self.stripe_count);
        let set_bytes = self.object_bytes.get().checked_mul(self.stripe_count.get())?;
        set.checked_mul(set_bytes)?.checked_add(position.checked_mul(self.stripe_unit.get())?)
    }

    /// Consecutive bytes on one object.
    pub fn block_bytes(&self) -> u64 {
        if self.stripe_count.get() == 1 { self.object_bytes.get() } else { self.stripe_unit.get() }
    }

    /// The object of each block of a file of `size` bytes; at least one block and at most 65,536.
    pub fn objects(&self, size: u64) -> impl Iterator<Item = u64> {
        let block_bytes = self.block_bytes();
        let count = size.div_ceil(block_bytes).clamp(1, BLOCKS_MAX);
        (0..count).map(move |block| self.object_of(block * block_bytes))
    }

    fn units_per_object(&self) -> NonZeroU64 {
        NonZeroU64::new(self.object_bytes.get() / self.stripe_unit.get()).unwrap_or(NonZeroU64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(stripe_unit: u64, stripe_count: u64, object_bytes: u64) -> CephLayout {
        let text = format!(
            "stripe_unit={stripe_unit} stripe_count={stripe_count} object_size={object_bytes} pool=cdata"
        );
        parse_ceph_layout(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_osd_is_on_the_host_of_its_location() {
        for (location, host) in [
            (&b"host\0node1\0rack\0r1\0root\0default\0"[..], Some("node1")),
            (b"root\0default\0host\0node2", Some("node2")),
            (b"osd\0host\0root\0default\0", None),
            (b"host\0\0", None),
            (b"host", None),
            (b"", None),
        ] {
            assert_eq!(host_in_location(location).as_deref(), host);
        }
    }

    #[test]
    fn the_parts_come_in_any_order() {
        let expected = layout(4_194_304, 1, 4_194_304);
        for text in [
            "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cdata",
            "pool=cdata object_size=4194304 stripe_count=1 stripe_unit=4194304",
            "pool_namespace= stripe_count=1 stripe_unit=4194304\n object_size=4194304 later=5 pool=cdata\0",
        ] {
            assert_eq!(parse_ceph_layout(text.as_bytes()), Ok(expected.clone()), "{text}");
        }
        assert_eq!(expected.pool.as_deref(), Some("cdata"));
    }

    #[test]
    fn a_text_that_can_not_be_is_refused() {
        for (text, error) in [
            ("", CephLayoutError::Missing("stripe_unit")),
            ("stripe_unit=0 stripe_count=1 object_size=1", CephLayoutError::Missing("stripe_unit")),
            ("stripe_unit=1 stripe_count=-1 object_size=1", CephLayoutError::Missing("stripe_count")),
            ("stripe_unit=1 stripe_count=1 object_size=4294967296", CephLayoutError::Missing("object_size")),
            ("stripe_unit=3 stripe_count=1 object_size=4", CephLayoutError::Uneven(4, 3)),
        ] {
            assert_eq!(parse_ceph_layout(text.as_bytes()), Err(error), "{text}");
        }
    }

    #[test]
    fn units_go_round_the_objects_of_a_set() {
        let layout = layout(1, 3, 2);
        let objects: Vec<u64> = (0..14).map(|offset| layout.object_of(offset)).collect();
        assert_eq!(objects, [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]);
        let firsts: Vec<_> = (0..8).map(|object| layout.first_byte_of(object)).collect();
        assert_eq!(firsts, [0, 1, 2, 6, 7, 8, 12, 13].map(Some));
        assert_eq!(layout.objects(7).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 3]);
        assert_eq!((layout.objects(0).count(), layout.objects(u64::MAX).count()), (1, 65_536));
    }

    #[test]
    fn an_object_alone_is_one_block() {
        let layout = layout(65_536, 1, 4 << 20);
        assert_eq!(
            (layout.block_bytes(), layout.objects(9 << 20).collect::<Vec<_>>()),
            (4 << 20, vec![0, 1, 2])
        );
    }

    proptest! {
        #[test]
        fn the_first_byte_of_an_object_lies_in_it(
            unit in 1u64..=1 << 22,
            count in 1u64..=1 << 16,
            units in 1u64..=1 << 9,
            object in 0u64..=1 << 40,
        ) {
            let layout = layout(unit, count, unit * units);
            if let Some(first) = layout.first_byte_of(object) {
                prop_assert_eq!(layout.object_of(first), object);
                prop_assert!(first == 0 || layout.object_of(first - 1) != object);
            }
        }

        #[test]
        fn any_text_is_a_layout_or_refused(text in "(stripe_unit|stripe_count|object_size|pool|=|[0-9]{1,20}| ){0,24}", offset: u64) {
            if let Ok(layout) = parse_ceph_layout(text.as_bytes()) {
                let object = layout.object_of(offset);
                prop_assert!(layout.first_byte_of(object).is_none_or(|first| first <= offset));
            }
        }
    }
}
