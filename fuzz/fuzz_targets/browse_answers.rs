//! What a caller that looks around, makes or removes is told: nothing but names may reach it, and no more than it asked for.
//! Input: one byte that says what is asked for, then what comes after the preamble.
#![no_main]

use std::ops::ControlFlow;

use carrack_engine::{Abort, Browsing, Found, Operation, Peer, browse};
use carrack_fuzz::far_end::closed_pipes;
use carrack_model::check_name;
use carrack_wire::Preamble;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, said)) = data.split_first() else { return };
    let operation = match choice % 4 {
        0 => Operation::List,
        1 => Operation::Stat,
        2 => Operation::MakeDirectory { parents: true },
        _ => Operation::Remove { recursive: true },
    };
    let (input, output) = closed_pipes(&[&Preamble::OURS.encode(), said].concat());
    let peer = Peer::over_pipes(input, output, "localhost".into());
    let mut count = 0;
    let mut found = |found| {
        match &found {
            Found::Entry(entry) => {
                assert!(
                    operation == Operation::Stat && entry.name.is_empty() || check_name(&entry.name).is_ok()
                );
                assert!(entry.mode <= 0o7777 && entry.mtime.nanoseconds < 1_000_000_000);
                count += 1;
            }
            Found::Export(name) => {
                assert!(operation == Operation::List && check_name(name).is_ok());
            }
            Found::Failed { .. } => {}
        }
        ControlFlow::Continue(())
    };
    let browsing = Browsing { operation, path: "/x".into() };
    // The other end is the input: nothing is touched.
    let _ = browse(peer, &browsing, &mut found, &Abort::new().expect("an eventfd"));
    match operation {
        Operation::List => {}
        Operation::Stat => assert!(count <= 1),
        _ => assert_eq!(count, 0),
    }
});
