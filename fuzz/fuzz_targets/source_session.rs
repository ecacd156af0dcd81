//! A whole session as the source, started here, against a sink that sends what the input holds. Input: the checksum
//! (1 byte; with XXH3, files in memory announce themselves), then everything that the sink says: greeting, preamble,
//! messages.
#![no_main]

use std::sync::LazyLock;

use carrack_engine::SessionRole;
use carrack_fuzz::{Input, far_end::Ground};
use carrack_model::ObjectChecksumAlgorithm;
use libfuzzer_sys::fuzz_target;

static GROUND: LazyLock<Ground> = LazyLock::new(Ground::new);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let checksum = [ObjectChecksumAlgorithm::None, ObjectChecksumAlgorithm::Xxh3][usize::from(input.byte() % 2)];
    let _ = GROUND.run(SessionRole::Source, checksum, input.0);
    GROUND.tidy();
});
