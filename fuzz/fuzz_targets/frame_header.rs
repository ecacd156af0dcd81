//! The frame header. Input: the slot size's exponent (1 byte), a header (80).
#![no_main]

use carrack_fuzz::Input;
use carrack_model::limits::{CONTROL_BODY_BYTES_MAX, SLOT_BYTES_MAX};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (Some([exponent]), Some(bytes)) = (input.take(), input.take::<HEADER_BYTES>()) else { return };
    let slot_bytes = 1u32 << (exponent % 32);
    let Ok(header) = FrameHeader::decode(&bytes, slot_bytes) else { return };

    let limit = match header.kind {
        FrameKind::Control => CONTROL_BODY_BYTES_MAX as u32,
        FrameKind::Object | FrameKind::Bundle => slot_bytes.min(SLOT_BYTES_MAX as u32),
    };
    assert!(header.body_len <= limit && header.table_len <= header.body_len);
    let may_have_table = match header.kind {
        FrameKind::Control => false,
        FrameKind::Bundle => true,
        // Behind contents, of which an object always has some.
        FrameKind::Object => header.file.is_inline_announced() && header.table_len < header.body_len,
    };
    assert!(header.table_len == 0 || may_have_table);

    // All bytes mean something, but for the flags that may be ignored.
    let mut expected = bytes;
    expected[8..12].fill(0);
    assert_eq!(header.encode(), expected);
    assert_eq!(FrameHeader::decode(&expected, slot_bytes), Ok(header));
});
