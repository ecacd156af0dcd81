//! The end that is called (`carrack session`), before anything is agreed: whatever comes must be refused in words.
//! Input: what comes. A session that could begin is left out: its paths would be real ones.
#![no_main]

use carrack_engine::{Abort, Channel, OwnHouse, serve};
use carrack_fuzz::far_end::closed_pipes;
use carrack_model::Protection;
use carrack_wire::message::Control;
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES};
use libfuzzer_sys::fuzz_target;

/// Whether the first frame is a hello.
fn begins(data: &[u8]) -> bool {
    let frame = data.get(PREAMBLE_BYTES..).and_then(|frames| frames.split_first_chunk::<HEADER_BYTES>());
    let Some((header, rest)) = frame else { return false };
    let Ok(header) = FrameHeader::decode(header, u32::MAX) else { return false };
    let body = rest.get(..header.body_len as usize);
    header.kind == FrameKind::Control
        && body.is_some_and(|body| matches!(Control::from_body(body), Ok(Control::Hello(_))))
}

fuzz_target!(|data: &[u8]| {
    if begins(data) {
        return;
    }
    let (input, output) = closed_pipes(data);
    let house = OwnHouse::over_ssh(Protection::Clear);
    let outcome = serve(Channel::Pipes { input, output }, &house, &Abort::new().expect("an eventfd"));
    assert!(outcome.result.is_err());
});
