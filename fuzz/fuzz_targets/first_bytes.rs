//! What a daemon makes of a connection by its first bytes. Input: how many bytes have come beyond those (1 byte), then the bytes.
#![no_main]

use carrack_service::fuzzing::{ConnectionRoutingDecision, routing_decision};
use libfuzzer_sys::fuzz_target;

/// The parent looks at no more.
const LOOKED_AT: usize = 52;

fuzz_target!(|data: &[u8]| {
    let Some((&more, said)) = data.split_first() else { return };
    let start = &said[..said.len().min(LOOKED_AT)];
    if start.is_empty() {
        return;
    }
    let there = start.len() + usize::from(more) * usize::from(start.len() == LOOKED_AT);
    let judgement = routing_decision(start, there);
    match judgement {
        ConnectionRoutingDecision::Control => {
            let length = usize::from(u16::from_be_bytes([start[3], start[4]]));
            assert!(start[..2] == [0x16, 3] && (1..=1 << 14).contains(&length) && there >= 5 + length);
        }
        ConnectionRoutingDecision::Data(nonce) => {
            assert!(start.len() == LOOKED_AT && start[..10] == *b"carrackd\x03\x00");
            assert_eq!(nonce.as_bytes()[..], start[20..]);
        }
        ConnectionRoutingDecision::Waits => {
            assert!(start[0] == 0x16 || b"carrackd".starts_with(&start[..start.len().min(8)]))
        }
        ConnectionRoutingDecision::Closed => {}
    }
    // More bytes never take back what was told from fewer; only one that waits becomes something.
    for count in 1..start.len() {
        let before = routing_decision(&start[..count], count);
        assert!(before == ConnectionRoutingDecision::Waits || before == judgement, "{before:?}, then {judgement:?}");
    }
});
