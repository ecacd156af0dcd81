//! Control messages. Input: the body of a control frame.
#![no_main]

use carrack_model::TransferSpec;
use carrack_model::limits::STREAMS_MAX;
use carrack_wire::decode_section;
use carrack_wire::message::{Control, Spec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Control::from_body(data) else { return };
    let body = message.clone().to_body();
    assert_eq!(Control::from_body(&body), Ok(message.clone()));
    match message {
        Control::Hello(hello) => {
            let Some(message) = hello.spec else { return };
            let Ok(spec) = TransferSpec::try_from(&message) else { return };
            assert!(spec.slot_bytes.is_power_of_two() && usize::from(spec.streams) <= STREAMS_MAX);
            assert_eq!(Spec::from(&spec), message);
        }
        Control::OpenFile(open) => {
            let _ = decode_section(&open.table);
        }
        _ => {}
    }
});
