//! The preamble, behind whatever a login shell prints. Input: that.
#![no_main]

use carrack_wire::{PREAMBLE_BYTES, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Preamble};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let found = Preamble::find(data);
    for at in 0..=found.unwrap_or(data.len()) {
        let Some((bytes, _)) = data[at..].split_first_chunk::<PREAMBLE_BYTES>() else { return };
        let Ok(preamble) = Preamble::decode(bytes) else {
            assert_ne!(Some(at), found);
            continue;
        };
        assert_eq!(Some(at), found, "the first place is found");
        assert_eq!(preamble.encode()[..12], bytes[..12]);
        if let Ok(version) = preamble.negotiate_version() {
            assert!((preamble.version_min..=preamble.version_max).contains(&version));
            assert!((PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&version));
        } else {
            assert!(
                preamble.version_min > PROTOCOL_VERSION
                    || preamble.version_max < PROTOCOL_VERSION_MIN
                    || preamble.version_min > preamble.version_max
            );
        }
    }
});
