//! A whole session as the source, started here, against a sink that sends what the input holds. Input: everything
//! that the sink says: greeting, preamble, messages.
#![no_main]

use std::sync::LazyLock;

use carrack_engine::Role;
use carrack_fuzz::far_end::Ground;
use carrack_model::Checksum;
use libfuzzer_sys::fuzz_target;

static GROUND: LazyLock<Ground> = LazyLock::new(Ground::new);

fuzz_target!(|data: &[u8]| {
    let _ = GROUND.run(Role::Source, Checksum::None, data);
    GROUND.tidy();
});
