//! Control messages. Input: the body of a control frame.
#![no_main]

use carrack_model::limits::STREAMS_MAX;
use carrack_wire::message::ControlMessage;
use carrack_wire::{decode_section, spec_from_json, to_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = ControlMessage::from_body(data) else { return };
    let body = message.clone().to_body();
    assert_eq!(ControlMessage::from_body(&body), Ok(message.clone()));
    match message {
        ControlMessage::Hello(hello) => {
            let Ok(spec) = spec_from_json(&hello.spec) else { return };
            assert!(spec.slot_bytes.is_power_of_two() && usize::from(spec.streams) <= STREAMS_MAX);
            assert_eq!(spec_from_json(&to_json(&spec)), Ok(spec));
        }
        ControlMessage::OpenFile(open) => {
            let _ = decode_section(&open.table);
        }
        _ => {}
    }
});
