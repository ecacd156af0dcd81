//! A whole session as the sink, started here, against a source that sends what the input holds. Input: the checksum
//! (1 byte), then everything that the source says: greeting, preamble, messages, objects.
#![no_main]

use std::sync::LazyLock;

use carrack_engine::SessionRole;
use carrack_fuzz::{Input, far_end::Ground};
use carrack_model::ObjectChecksumAlgorithm;
use libfuzzer_sys::fuzz_target;

static GROUND: LazyLock<Ground> = LazyLock::new(Ground::new);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let checksum =
        [ObjectChecksumAlgorithm::None, ObjectChecksumAlgorithm::None, ObjectChecksumAlgorithm::Xxh3, ObjectChecksumAlgorithm::Blake3][usize::from(input.byte() % 4)];
    let _ = GROUND.run(SessionRole::Sink, checksum, input.0);
    GROUND.tidy();
});
