//! The value of `lustre.lov` for a requested striping.
//!
//! Pure. Writes the head alone: no object IDs, and no first OST, which Lustre then chooses itself (a copied
//! offset once put all first stripes of a site on one OST, mpifileutils issue 324). Only where some OSTs are
//! to be avoided, it names the others ([`encode_osts`]).

use crate::layout_shape::StripeRequest;
use crate::{ComponentGeometry, STRIPE_COUNT_ALL, StripePattern};

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
const PATTERN_RAID0: u32 = 1;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED: u32 = PATTERN_RAID0 | 0x200;
const ANY_OFFSET: u16 = 0xFFFF;
const ALL_STRIPES: u16 = 0xFFFF;

const HEAD_BYTES: usize = 32;
const COMPONENT_BYTES: usize = 48;
const OBJECT_BYTES: usize = 24;

/// `LOV_MAX_STRIPE_COUNT`.
const STRIPES_MAX: u32 = 2_000;

/// `LOV_MIN_STRIPE_SIZE`: Lustre accepts multiples of this.
const STRIPE_UNIT: u64 = 64 << 10;

/// Longest name of a pool (`LOV_MAXPOOLNAME`).
const POOL_NAME_BYTES_MAX: usize = 15;

/// A value to set, and the part of the request that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PossibleStripingValue {
    pub(super) value: Vec<u8>,
    /// None if it satisfies the whole request.
    pub(super) given_up: Option<String>,
}

/// The values to try in turn: the whole request without the pools that are missing, then without any pool,
/// then without components.
pub(super) fn candidate_values(
    request: &StripeRequest<'_>,
    is_missing: impl Fn(&str) -> bool,
) -> Vec<PossibleStripingValue> {
    let missing = request.pools().find(|pool| is_missing(pool));
    let is_present = |pool: &str| !is_missing(pool);
    let without = missing.map(|pool| format!("striped, but not in the pool {pool}, which does not exist"));
    let mut attempts = Vec::new();
    if !request.components.is_empty() {
        let value = encode_composite(request.components, is_present);
        attempts.extend(PossibleStripingValue::new(value, without));
        if request.pools().any(is_present) {
            let value = encode_composite(request.components, |_| false);
            attempts.extend(PossibleStripingValue::new(value, Some("striped, but in no pool".to_owned())));
        }
        if request.count.is_some() {
            let given_up = Some("striped as its widest component".to_owned());
            attempts.extend(PossibleStripingValue::new(encode_plain(request, None), given_up));
        }
        return attempts;
    }
    let value = encode_plain(request, request.pool.filter(|pool| is_present(pool)));
    attempts.extend(PossibleStripingValue::new(value, without));
    if let Some(pool) = request.pool.filter(|pool| is_present(pool)) {
        let given_up = format!("striped, but not in the pool {pool}");
        attempts.extend(PossibleStripingValue::new(encode_plain(request, None), Some(given_up)));
    }
    attempts
}

/// The value for these OSTs, each with a stripe of the default size. None if there are none, or too many.
pub(super) fn encode_osts(osts: &[u32]) -> Option<Vec<u8>> {
    let count =
        u16::try_from(osts.len()).ok().filter(|count| (1..=STRIPES_MAX).contains(&u32::from(*count)))?;
    let mut value = encode_head(PATTERN_RAID0, None, Some(count.into()), Some(""))?;
    value[..4].copy_from_slice(&MAGIC_SPECIFIC.to_ne_bytes());
    for ost in osts {
        value.extend([0; OBJECT_BYTES - 4]); // the object's identity and generation, which Lustre gives
        value.extend(ost.to_ne_bytes());
    }
    Some(value)
}

impl PossibleStripingValue {
    fn new(value: Option<Vec<u8>>, given_up: Option<String>) -> Option<PossibleStripingValue> {
        value.map(|value| PossibleStripingValue { value, given_up })
    }
}

/// The head of a plain layout; none if the pool's name is invalid.
fn encode_plain(request: &StripeRequest<'_>, pool: Option<&str>) -> Option<Vec<u8>> {
    encode_head(PATTERN_RAID0, request.stripe_bytes, request.count, pool)
}

/// The head of a component: 32 bytes, or 48 with a pool.
fn encode_head(
    pattern: u32,
    stripe_bytes: Option<u64>,
    count: Option<u32>,
    pool: Option<&str>,
) -> Option<Vec<u8>> {
    let magic = if pool.is_some() { MAGIC_V3 } else { MAGIC_V1 };
    let mut head = Vec::with_capacity(48);
    head.extend(magic.to_ne_bytes());
    head.extend(pattern.to_ne_bytes());
    head.extend([0; 16]);
    head.extend(stripe_size(stripe_bytes).to_ne_bytes());
    head.extend(stripe_count(count).to_ne_bytes());
    head.extend(ANY_OFFSET.to_ne_bytes());
    if let Some(pool) = pool {
        if pool.len() > POOL_NAME_BYTES_MAX || pool.contains('\0') {
            return None;
        }
        head.extend(pool.as_bytes());
        head.resize(48, 0);
    }
    Some(head)
}

/// Components without gaps, the last one up to the end of the file unless it is on the MDT, which has bounds:
/// room for growth belongs to the component before it. None if there are too many, or the first one does not
/// start at offset 0.
fn encode_composite(components: &[ComponentGeometry], has_pool: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    if components.first()?.start != 0 || !components.is_sorted_by(|a, b| a.start < b.start) {
        return None;
    }
    let heads = components.iter().map(|component| component_head(component, &has_pool));
    let heads = heads.collect::<Option<Vec<_>>>()?;
    let last_end = components.last().filter(|last| last.pattern == StripePattern::Metadata);
    let last_end = last_end.map_or(u64::MAX, |last| last.end);
    let ends = components[1..].iter().map(|next| next.start).chain([last_end]);
    let mut offset = HEAD_BYTES + COMPONENT_BYTES * heads.len();
    let size = offset + heads.iter().map(Vec::len).sum::<usize>();
    let mut value = Vec::with_capacity(size);
    value.extend(MAGIC_COMPOSITE.to_ne_bytes());
    value.extend(u32::try_from(size).ok()?.to_ne_bytes());
    value.extend([0; 6]); // generation and flags
    value.extend(u16::try_from(heads.len()).ok()?.to_ne_bytes());
    value.extend([0; 16]); // one mirror, no parity
    for ((component, end), head) in components.iter().zip(ends).zip(&heads) {
        value.extend([0; 8]); // id and flags, which Lustre gives
        value.extend(component.start.to_ne_bytes());
        value.extend(end.to_ne_bytes());
        value.extend(u32::try_from(offset).ok()?.to_ne_bytes());
        value.extend(u32::try_from(head.len()).ok()?.to_ne_bytes());
        value.extend([0; 16]);
        offset += head.len();
    }
    value.extend(heads.concat());
    Some(value)
}

fn component_head(component: &ComponentGeometry, has_pool: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    let pool = component.pool.as_deref().filter(|pool| has_pool(pool));
    let stripe_bytes = Some(component.stripe_bytes);
    match component.pattern {
        // Data on the MDT has a single stripe, the whole component.
        StripePattern::Metadata => encode_head(PATTERN_MDT, Some(component.end), None, None),
        StripePattern::Overstriped => {
            encode_head(PATTERN_OVERSTRIPED, stripe_bytes, Some(component.stripe_count), pool)
        }
        _ => encode_head(PATTERN_RAID0, stripe_bytes, Some(component.stripe_count), pool),
    }
}

/// The stripe count; 0 for the default. Lustre itself reduces it to the number of OSTs.
fn stripe_count(count: Option<u32>) -> u16 {
    match count {
        None => 0,
        Some(STRIPE_COUNT_ALL) => ALL_STRIPES,
        Some(count) => count.min(STRIPES_MAX) as u16,
    }
}

/// The stripe size; 0 for the default.
fn stripe_size(bytes: Option<u64>) -> u32 {
    let largest = u64::from(u32::MAX) / STRIPE_UNIT * STRIPE_UNIT;
    let bytes = bytes.unwrap_or(0).min(largest).next_multiple_of(STRIPE_UNIT);
    u32::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{LovFile, parse_lov};
    use crate::{RequestedLayout, StripeGeometry};

    fn first(count: Option<u32>, stripe_bytes: Option<u64>, pool: Option<&str>) -> Vec<u8> {
        let request = StripeRequest { count, stripe_bytes, pool, components: &[], auto: None };
        candidate_values(&request, |_| false).remove(0).value
    }

    fn component(
        start: u64,
        stripe_count: u32,
        pattern: StripePattern,
        pool: Option<&str>,
    ) -> ComponentGeometry {
        let (end, pool) = (start + (1 << 20), pool.map(str::to_owned));
        ComponentGeometry { start, end, stripe_bytes: 1 << 20, stripe_count, pool, pattern }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_examples_of_the_format_document() {
        let expected =
            [[0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0], [0; 8], [0; 8], [0, 0, 0x10, 0, 4, 0, 0xff, 0xff]];
        assert_eq!(first(Some(4), Some(1 << 20), None), expected.concat());
        let expected = [
            [0xd0, 0x0b, 0xd3, 0x0b, 1, 0, 0, 0],
            [0; 8],
            [0; 8],
            [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            *b"flash\0\0\0",
            [0; 8],
        ];
        assert_eq!(first(Some(STRIPE_COUNT_ALL), None, Some("flash")), expected.concat());
    }

    #[test]
    fn components_are_what_a_reader_finds() {
        let components = [
            component(0, 0, StripePattern::Metadata, None),
            component(1 << 20, 1, StripePattern::Striped, Some("flash")),
            component(1 << 26, STRIPE_COUNT_ALL, StripePattern::Overstriped, None),
        ];
        let geometry = StripeGeometry { components: components.to_vec(), mirrors: 1 };
        let like = RequestedLayout::Like(geometry);
        let attempts = candidate_values(&like.request().unwrap(), |_| false);
        fn read(attempt: &PossibleStripingValue) -> LovFile {
            parse_lov(&attempt.value).unwrap()
        }
        let LovFile::Composite(parts) = read(&attempts[0]) else { panic!("one component") };
        let ranges: Vec<_> = parts.iter().map(|part| (part.start, part.end)).collect();
        assert_eq!(ranges, [(0, 1 << 20), (1 << 20, 1 << 26), (1 << 26, u64::MAX)]);
        let stripes: Vec<_> = parts.into_iter().map(|part| part.stripes.unwrap()).collect();
        assert!(stripes[0].is_on_mdt() && stripes[0].stripe_bytes == 1 << 20 && stripes[0].stripe_count == 0);
        assert_eq!((stripes[1].pool.as_deref(), stripes[1].stripe_count), (Some("flash"), 1));
        assert!(stripes[2].is_overstriped() && stripes[2].stripe_count == 0xffff);
        let given_up: Vec<_> = attempts.iter().map(|attempt| attempt.given_up.is_some()).collect();
        assert_eq!(given_up, [false, true, true]);
        let LovFile::Composite(parts) = read(&attempts[1]) else { panic!("one component") };
        assert!(parts.iter().all(|part| part.stripes.as_ref().unwrap().pool.is_none()));
        assert!(matches!(read(&attempts[2]), LovFile::Plain(_)));
    }

    #[test]
    fn only_the_pools_that_are_missing_are_left_out() {
        let components = [
            component(0, 1, StripePattern::Striped, Some("flash")),
            component(1 << 20, 4, StripePattern::Striped, Some("gone")),
        ];
        let geometry = StripeGeometry { components: components.to_vec(), mirrors: 1 };
        let like = RequestedLayout::Like(geometry);
        let attempts = candidate_values(&like.request().unwrap(), |pool| pool == "gone");
        let pools = |attempt: &PossibleStripingValue| match parse_lov(&attempt.value).unwrap() {
            LovFile::Composite(parts) => parts.into_iter().map(|part| part.stripes.unwrap().pool).collect(),
            _ => Vec::new(),
        };
        assert_eq!(pools(&attempts[0]), [Some("flash".to_owned()), None]);
        assert_eq!(pools(&attempts[1]), [None, None]);
        assert!(attempts[0].given_up.as_ref().is_some_and(|why| why.contains("the pool gone")));
        let request = StripeRequest {
            count: Some(4),
            stripe_bytes: None,
            pool: Some("gone"),
            components: &[],
            auto: None,
        };
        let attempts = candidate_values(&request, |_| true);
        assert!(attempts.len() == 1 && attempts[0].given_up.is_some());
    }

    #[test]
    fn a_last_component_on_the_mdt_keeps_its_end() {
        let only = [component(0, 0, StripePattern::Metadata, None)];
        let LovFile::Composite(parts) = parse_lov(&encode_composite(&only, |_| true).unwrap()).unwrap()
        else {
            panic!("one component")
        };
        assert_eq!((parts[0].start, parts[0].end, parts.len()), (0, 1 << 20, 1));
    }

    #[test]
    fn named_osts_are_what_a_reader_finds() {
        let mut value = encode_osts(&[7, 0, 300]).unwrap();
        // A file has a size in place of the default.
        value[24..28].copy_from_slice(&65_536u32.to_ne_bytes());
        let LovFile::Plain(stripes) = parse_lov(&value).unwrap() else { panic!("no components") };
        assert_eq!((stripes.osts, stripes.stripe_count, stripes.pool), (vec![7, 0, 300], 3, None));
        assert_eq!((encode_osts(&[]), encode_osts(&[1; 2_001])), (None, None));
    }

    #[test]
    fn components_that_are_none_are_not_tried() {
        let late =
            [component(1, 1, StripePattern::Striped, None), component(2, 1, StripePattern::Striped, None)];
        assert_eq!(encode_composite(&late, |_| true), None);
        let twice =
            [component(0, 1, StripePattern::Striped, None), component(0, 1, StripePattern::Striped, None)];
        assert_eq!(encode_composite(&twice, |_| true), None);
    }

    #[test]
    fn sizes_and_counts_are_made_to_fit() {
        for (bytes, size) in
            [(None, 0), (Some(1), 65_536), (Some(65_537), 131_072), (Some(u64::MAX), 0xFFFF_0000)]
        {
            assert_eq!(stripe_size(bytes), size);
        }
        assert_eq!((stripe_count(Some(5_000)), stripe_count(None)), (2_000, 0));
        let long = Some("a-name-of-16-byte");
        let request =
            StripeRequest { count: Some(1), stripe_bytes: None, pool: long, components: &[], auto: None };
        let attempts = candidate_values(&request, |_| false);
        assert!(attempts.len() == 1 && attempts[0].given_up.is_some());
    }
}
