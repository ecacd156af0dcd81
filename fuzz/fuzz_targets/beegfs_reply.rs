//! What BeeGFS answers. Input: the three answers one after the other; what is missing is zeros.
#![no_main]

use carrack_layout::formats::{
    STRIPE_INFO_BYTES, STRIPE_TARGET_BYTES, STRIPE_TARGET_V2_BYTES, parse_stripe_info, parse_stripe_target,
    parse_stripe_target_v2,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let info: [u8; STRIPE_INFO_BYTES] = next(&mut rest);
    if let Ok(stripes) = parse_stripe_info(&info) {
        assert!((1..=2_000).contains(&stripes.target_count) && stripes.chunk_bytes > 0);
        assert_eq!(info[..4], stripes.pattern.to_ne_bytes());
        assert_eq!(info[4..8], stripes.chunk_bytes.to_ne_bytes());
        assert_eq!(info[8..10], stripes.target_count.to_ne_bytes());
    }
    let target: [u8; STRIPE_TARGET_BYTES] = next(&mut rest);
    if let Ok(found) = parse_stripe_target(&target) {
        assert!((1..=u32::from(u16::MAX)).contains(&found.target) && found.node != Some(0));
    }
    let target: [u8; STRIPE_TARGET_V2_BYTES] = next(&mut rest);
    if let Ok(found) = parse_stripe_target_v2(&target) {
        let number = found.target.to_ne_bytes();
        assert!(found.target > 0 && [&target[4..8], &target[8..12]].contains(&&number[..]));
    }
});

fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (piece, after) = rest.split_at(N.min(rest.len()));
    *rest = after;
    std::array::from_fn(|at| piece.get(at).copied().unwrap_or(0))
}
