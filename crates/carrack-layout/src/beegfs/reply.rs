//! Parsers of BeeGFS's replies.
//!
//! Pure: bytes in (in the host's byte order), values out. The structures are those of `beegfs_client.h`
//! (8.3).

use thiserror::Error;

/// Bytes of `BeegfsIoctl_GetStripeInfo_Arg`.
pub const STRIPE_INFO_BYTES: usize = 12;

/// Bytes of `BeegfsIoctl_GetStripeTarget_Arg`.
pub const STRIPE_TARGET_BYTES: usize = 262;

/// Bytes of `BeegfsIoctl_GetStripeTargetV2_Arg`.
pub const STRIPE_TARGET_V2_BYTES: usize = 536;

/// Bound of the targets of one file, beyond the largest files of BeeGFS.
const TARGETS_MAX: u16 = 2_000;

/// The striping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeeGfsStripes {
    /// 1 for RAID 0, 2 for RAID 10, 3 for buddy mirrors.
    pub pattern: u32,
    /// Bytes on one target before the next one.
    pub chunk_bytes: u32,
    /// Targets (or groups of buddies) of a round.
    pub target_count: u16,
}

/// The place of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeeGfsStripeTarget {
    /// The number of the target, of two buddies that of the primary.
    pub target: u32,
    /// The number of its node; none if the reply has none.
    pub node: Option<u32>,
}

/// The reason why a reply is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BeeGfsError {
    /// A value that BeeGFS does not use.
    #[error("{0} stripes of {1} bytes can't be")]
    BadStripes(u16, u32),
    /// The reply contains no target.
    #[error("a stripe without a target")]
    NoTarget,
}

/// Parses the reply of `BEEGFS_IOC_GET_STRIPEINFO`.
///
/// # Errors
/// [`BeeGfsError::BadStripes`] for no targets, or more than the bound.
pub fn parse_stripe_info(answer: &[u8; STRIPE_INFO_BYTES]) -> Result<BeeGfsStripes, BeeGfsError> {
    let [p0, p1, p2, p3, c0, c1, c2, c3, t0, t1, _, _] = *answer;
    let stripes = BeeGfsStripes {
        pattern: u32::from_ne_bytes([p0, p1, p2, p3]),
        chunk_bytes: u32::from_ne_bytes([c0, c1, c2, c3]),
        target_count: u16::from_ne_bytes([t0, t1]),
    };
    let is_sane = (1..=TARGETS_MAX).contains(&stripes.target_count) && stripes.chunk_bytes > 0;
    is_sane.then_some(stripes).ok_or(BeeGfsError::BadStripes(stripes.target_count, stripes.chunk_bytes))
}

/// The target of a stripe, from the answer of `BEEGFS_IOC_GET_STRIPETARGET`.
///
/// # Errors
/// [`BeeGfsError::NoTarget`] for number 0, which BeeGFS never assigns.
pub fn parse_stripe_target(answer: &[u8; STRIPE_TARGET_BYTES]) -> Result<BeeGfsStripeTarget, BeeGfsError> {
    let [_, _, t0, t1, n0, n1, ..] = *answer;
    let (target, node) = (u16::from_ne_bytes([t0, t1]), u16::from_ne_bytes([n0, n1]));
    BeeGfsStripeTarget::new(target.into(), node.into())
}

/// The (primary) target of a stripe, from the answer of `BEEGFS_IOC_GET_STRIPETARGET_V2`.
///
/// # Errors
/// [`BeeGfsError::NoTarget`] if neither the target nor its group has a number.
pub fn parse_stripe_target_v2(
    answer: &[u8; STRIPE_TARGET_V2_BYTES],
) -> Result<BeeGfsStripeTarget, BeeGfsError> {
    let (numbers, _) = answer.as_chunks::<4>();
    let [_, target, primary, _, node, ..] = *numbers else { return Err(BeeGfsError::NoTarget) };
    let [target, primary, node] = [target, primary, node].map(u32::from_ne_bytes);
    // Without buddies the first number is that of the target.
    BeeGfsStripeTarget::new(if primary != 0 { primary } else { target }, node)
}

impl BeeGfsStripeTarget {
    /// Neither targets nor nodes have number 0.
    fn new(target: u32, node: u32) -> Result<BeeGfsStripeTarget, BeeGfsError> {
        let node = Some(node).filter(|node| *node != 0);
        if target == 0 { Err(BeeGfsError::NoTarget) } else { Ok(BeeGfsStripeTarget { target, node }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(pattern: u32, chunk_bytes: u32, target_count: u16) -> [u8; STRIPE_INFO_BYTES] {
        let mut answer = [0xEE; STRIPE_INFO_BYTES];
        answer[..4].copy_from_slice(&pattern.to_ne_bytes());
        answer[4..8].copy_from_slice(&chunk_bytes.to_ne_bytes());
        answer[8..10].copy_from_slice(&target_count.to_ne_bytes());
        answer
    }

    #[test]
    fn stripes_are_read_and_lies_refused() {
        let expected = BeeGfsStripes { pattern: 1, chunk_bytes: 524_288, target_count: 4 };
        assert_eq!(parse_stripe_info(&info(1, 524_288, 4)), Ok(expected));
        for (chunk_bytes, target_count) in [(0, 4), (65_536, 0), (65_536, 2_001)] {
            let error = BeeGfsError::BadStripes(target_count, chunk_bytes);
            assert_eq!(parse_stripe_info(&info(1, chunk_bytes, target_count)), Err(error));
        }
    }

    #[test]
    fn a_stripes_target_is_its_number() {
        let mut answer = [0; STRIPE_TARGET_BYTES];
        answer[..2].copy_from_slice(&3u16.to_ne_bytes()); // which stripe was asked for
        answer[4..6].copy_from_slice(&9u16.to_ne_bytes()); // node
        assert_eq!(parse_stripe_target(&answer), Err(BeeGfsError::NoTarget));
        answer[2..4].copy_from_slice(&101u16.to_ne_bytes());
        assert_eq!(parse_stripe_target(&answer), Ok(BeeGfsStripeTarget { target: 101, node: Some(9) }));
    }

    #[test]
    fn a_group_of_buddies_is_its_primary_target() {
        let mut answer = [0; STRIPE_TARGET_V2_BYTES];
        assert_eq!(parse_stripe_target_v2(&answer), Err(BeeGfsError::NoTarget));
        answer[4..8].copy_from_slice(&7u32.to_ne_bytes()); // target, or group
        assert_eq!(parse_stripe_target_v2(&answer), Ok(BeeGfsStripeTarget { target: 7, node: None }));
        answer[8..12].copy_from_slice(&201u32.to_ne_bytes()); // primary
        answer[12..16].copy_from_slice(&202u32.to_ne_bytes()); // secondary
        answer[16..20].copy_from_slice(&3u32.to_ne_bytes()); // primary's node
        answer[20..24].copy_from_slice(&4u32.to_ne_bytes()); // secondary's node
        assert_eq!(parse_stripe_target_v2(&answer), Ok(BeeGfsStripeTarget { target: 201, node: Some(3) }));
    }

    proptest! {
        #[test]
        fn anything_is_an_answer_or_refused(answer: [u8; 12]) {
            if let Ok(stripes) = parse_stripe_info(&answer) {
                prop_assert!(stripes.chunk_bytes > 0 && (1..=2_000).contains(&stripes.target_count));
            }
        }
    }
}
