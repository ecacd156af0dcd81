//! What a caller that looks around, makes or removes is told: nothing but names may reach it, and no more than it asked for.
//! Input: one byte that says what is asked for, then what comes after the preamble.
#![no_main]

use std::ops::ControlFlow;

use carrack_engine::{AbortHandle, PathOperationRequest, BrowseItem, RemotePathOperation, PeerChannel, perform_remote_operation};
use carrack_fuzz::far_end::closed_pipes;
use carrack_model::check_name;
use carrack_wire::Preamble;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, said)) = data.split_first() else { return };
    let operation = match choice % 4 {
        0 => RemotePathOperation::List,
        1 => RemotePathOperation::Stat,
        2 => RemotePathOperation::MakeDirectory { parents: true },
        _ => RemotePathOperation::Remove { recursive: true },
    };
    let (input, output) = closed_pipes(&[&Preamble::OURS.encode(), said].concat());
    let peer = PeerChannel::over_pipes(input, output, "localhost".into());
    let mut count = 0;
    let mut found = |found| {
        match &found {
            BrowseItem::Entry(entry) => {
                assert!(
                    operation == RemotePathOperation::Stat && entry.name.is_empty() || check_name(&entry.name).is_ok()
                );
                assert!(entry.mode <= 0o7777 && entry.mtime.nanoseconds < 1_000_000_000);
                count += 1;
            }
            BrowseItem::Export(name) => {
                assert!(operation == RemotePathOperation::List && check_name(name).is_ok());
            }
            BrowseItem::Failed { .. } => {}
        }
        ControlFlow::Continue(())
    };
    let browsing = PathOperationRequest { operation, path: "/x".into() };
    // The other end is the input: nothing is touched.
    let _ = perform_remote_operation(peer, &browsing, &mut found, &AbortHandle::new().expect("an eventfd"));
    match operation {
        RemotePathOperation::List => {}
        RemotePathOperation::Stat => assert!(count <= 1),
        _ => assert_eq!(count, 0),
    }
});
