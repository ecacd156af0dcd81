//! Third-party transfers: the caller only controls the two far ends.

use std::fs;
use std::path::Path;
use std::thread;

use carrack_engine::{
    AbortHandle, ControlChannel, ProcessOwnerAccessPolicy, SessionError, SessionRole, ThirdPartyEndChannels,
    TransferOutcome, TransferRequest, copy_between, serve,
};
use carrack_model::{DialingEnd, ObjectChecksumAlgorithm, ProtectionLevel, TransferEvent};
use carrack_wire::message::{ControlMessage, DestinationRootMessage, SinkHandshakeFacts, WelcomeMessage};

use crate::common::scripted::{Heard, Scripted, bundle, reason, table};
use crate::common::*;

const LIMIT_S: u64 = 60;

/// Runs a transfer between two real ends, with this process as their controller.
fn between(transfer: &TransferRequest, relays: bool) -> (TransferOutcome, Recorder) {
    let end = || {
        let (here, there) = channel();
        (peer(here), thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap())))
    };
    let ((source, reading), (sink, writing)) = (end(), end());
    let recorder = Recorder::default();
    let outcome = copy_between(
        transfer,
        ThirdPartyEndChannels { source, sink, relays },
        &recorder,
        &AbortHandle::new().unwrap(),
    );
    let served = [reading.join().unwrap(), writing.join().unwrap()];
    assert_eq!(outcome.result.is_ok(), served.iter().all(|end| end.result.is_ok()), "{outcome:?} {served:?}");
    (outcome, recorder)
}

fn connected(recorder: &Recorder) -> (&'static str, Option<ProtectionLevel>) {
    let found = recorder.events().into_iter().find_map(|event| match event {
        TransferEvent::Connected { transport, protection, .. } => Some((transport, protection)),
        _ => None,
    });
    found.expect("a word about the connection")
}

#[test]
fn the_data_goes_directly_whoever_dials_or_through_here() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        rich_tree(&source);
        for (number, (dial_from, lanes, relays)) in [
            (DialingEnd::Either, 0, false),
            (DialingEnd::Source, 1, false),
            (DialingEnd::Sink, 0, false),
            (DialingEnd::Either, 3, false),
            (DialingEnd::Either, 0, true),
            (DialingEnd::Either, 2, true),
        ]
        .into_iter()
        .enumerate()
        {
            let destination = dir.path().join(format!("dst{number}"));
            let mut transfer = transfer(&[&source], &destination);
            (transfer.spec.dial_from, transfer.settings.lanes) = (dial_from, lanes);
            transfer.spec.checksum = ObjectChecksumAlgorithm::Blake3;
            transfer.spec.report_digests = true;
            let (outcome, recorder) = between(&transfer, relays);
            assert!(outcome.result.is_ok(), "{number}: {:?}", outcome.result);
            assert_same(&source, &destination);
            assert_eq!(recorder.failures(), Vec::<String>::new());
            let way = if relays { "relay" } else { "direct" };
            assert_eq!(connected(&recorder), (way, Some(ProtectionLevel::Private)));
            // The counters and the reports of both ends arrive at the controller.
            let digests = recorder
                .events()
                .iter()
                .filter(|event| matches!(event, TransferEvent::FileDigest { .. }))
                .count();
            assert_eq!(digests as u64, outcome.summary.files_done);
            assert!(outcome.summary.files_done > 300 && outcome.summary.bytes_done > 5_000_000);
        }
    });
}

#[test]
fn failures_of_both_ends_are_told() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/good"), b"good");
        write(&dir.path().join("src/taken"), b"new");
        // A directory has the name of the file.
        fs::create_dir_all(dir.path().join("dst/src/taken/in it")).unwrap();
        let (outcome, recorder) =
            between(&transfer(&[&dir.path().join("src")], &dir.path().join("dst")), false);
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert_eq!((outcome.summary.files_done, outcome.summary.entries_failed), (1, 1));
        assert_eq!(recorder.failed()[0].1, "taken");
        let missing = transfer(&[&dir.path().join("nothing")], &dir.path().join("dst"));
        let (outcome, _) = between(&missing, false);
        assert!(outcome.result.is_err_and(|error| error.to_string().contains("nothing")));
    });
}

#[test]
fn a_dry_run_lists_and_touches_nothing() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/f"), b"abc");
        let mut transfer = transfer(&[&dir.path().join("src")], &dir.path().join("dst"));
        transfer.spec.dry_run = true;
        let (outcome, recorder) = between(&transfer, false);
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        assert!(
            recorder.events().iter().any(|event| matches!(event, TransferEvent::WouldCopy { size: 3, .. }))
        );
        assert!(!dir.path().join("dst").exists());
    });
}

/// Both ends can refuse less protection than their minimum.
#[test]
fn either_end_may_refuse() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/f"), b"abc");
        let mut transfer = transfer(&[&dir.path().join("src")], &dir.path().join("dst"));
        transfer.spec.protection = ProtectionLevel::Clear;
        for strict in [0, 1] {
            let end = |number| {
                let (here, (input, output)) = channel();
                let least = if number == strict { ProtectionLevel::Private } else { ProtectionLevel::Clear };
                let serving = thread::spawn(move || {
                    let access_policy = ProcessOwnerAccessPolicy::over_ssh(least);
                    serve(
                        ControlChannel::Pipes { input, output },
                        &access_policy,
                        &AbortHandle::new().unwrap(),
                    )
                });
                (peer(here), serving)
            };
            let ((source, reading), (sink, writing)) = (end(0), end(1));
            let ends = ThirdPartyEndChannels { source, sink, relays: false };
            let outcome = copy_between(&transfer, ends, &Recorder::default(), &AbortHandle::new().unwrap());
            let Err(error @ SessionError::At { role, .. }) = outcome.result else { panic!("{outcome:?}") };
            assert_eq!(role == SessionRole::Sink, strict == 1);
            let message = error.to_string();
            assert!(message.contains("clear") && message.contains("private"), "{message}");
            assert!(reading.join().unwrap().result.is_err() && writing.join().unwrap().result.is_err());
            assert!(!dir.path().join("dst").exists());
        }
    });
}

/// The test plays a sink that announces a port without a listener.
#[test]
fn ends_that_can_not_reach_each_other_are_told_so_with_a_way_out() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/f"), b"abc");
        let transfer = transfer(&[&dir.path().join("src")], Path::new("/nowhere"));
        let (outcome, said) = with_scripted_sink(transfer, |sink| {
            let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = nobody.local_addr().unwrap().port();
            drop(nobody);
            welcome_at(sink, port)
        });
        let Err(SessionError::Refused { message, hint }) = outcome.result else { panic!("{outcome:?}") };
        assert!(message.contains("can't reach"), "{message}");
        assert!(hint.unwrap().contains("--relay"));
        assert!(reason(&said).is_some(), "the sink is told");
    });
}

fn welcome_at(sink: &mut Scripted, port: u16) {
    let listening = carrack_wire::message::ListenAddresses {
        port: port.into(),
        addresses: vec!["127.0.0.1".into()],
        nonce: vec![1; 32],
    };
    let state = SinkHandshakeFacts { destination: 1, credits: 4, ..SinkHandshakeFacts::default() };
    let welcome = WelcomeMessage {
        sink: Some(state),
        listening: Some(listening),
        lanes: 1,
        ..WelcomeMessage::default()
    };
    sink.say(ControlMessage::Welcome(welcome));
}

/// Returns the transfer's outcome, and the messages that the sink received.
fn with_scripted_sink(
    transfer: TransferRequest,
    script: impl FnOnce(&mut Scripted),
) -> (TransferOutcome, Vec<ControlMessage>) {
    let ((near_source, far_source), (near_sink, far_sink)) = (channel(), channel());
    let reading = thread::spawn(move || serve_any(far_source, &AbortHandle::new().unwrap()));
    let calling = thread::spawn(move || {
        let ends = ThirdPartyEndChannels { source: peer(near_source), sink: peer(near_sink), relays: false };
        copy_between(&transfer, ends, &Recorder::default(), &AbortHandle::new().unwrap())
    });
    let mut sink = Scripted::new(far_sink);
    sink.preambles();
    let ControlMessage::Hello(hello) = sink.message() else { panic!("no hello") };
    assert!(hello.third_party && hello.session_key.len() == 32);
    script(&mut sink);
    let said = sink.rest();
    drop(sink);
    let outcome = calling.join().unwrap();
    let _ = reading.join().unwrap();
    (outcome, said)
}

/// The test plays a source, which may send only the files that the user asked for.
#[test]
fn a_source_may_write_only_what_was_asked_of_it() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        let destination = dir.path().join("dst");
        fs::create_dir(&destination).unwrap();
        let mut transfer = transfer(&[Path::new("/data/run7")], &destination);
        transfer.spec.checksum = ObjectChecksumAlgorithm::None;
        let ((near_source, far_source), (near_sink, far_sink)) = (channel(), channel());
        let writing = thread::spawn(move || serve_any(far_sink, &AbortHandle::new().unwrap()));
        let calling = thread::spawn(move || {
            let ends =
                ThirdPartyEndChannels { source: peer(near_source), sink: peer(near_sink), relays: true };
            copy_between(&transfer, ends, &Recorder::default(), &AbortHandle::new().unwrap())
        });
        let mut source = Scripted::new(far_source);
        source.preambles();
        let ControlMessage::Hello(_) = source.message() else { panic!("no hello") };
        let place = Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() });
        source.say(ControlMessage::Welcome(WelcomeMessage { place, lanes: 1, ..WelcomeMessage::default() }));
        let ControlMessage::DialFailed(_) = source.message() else { panic!("it does not relay") };
        source.frame(&bundle(1, b"evil", &table("", &[(b".bashrc", 4)])));
        while !matches!(source.hear(), Heard::Closed) {}
        assert!(
            writing.join().unwrap().result.is_err_and(|error| error.to_string().contains("not asked for"))
        );
        assert!(calling.join().unwrap().result.is_err());
        assert_eq!(fs::read_dir(&destination).unwrap().count(), 0);
    });
}

#[test]
fn an_interruption_ends_all_three() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/big"), &noise(8 << 20, 1));
        let mut transfer = transfer(&[&dir.path().join("src")], &dir.path().join("dst"));
        transfer.settings.scheduling.rate = 1 << 20;
        let end = || {
            let (here, there) = channel();
            (peer(here), thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap())))
        };
        let ((source, reading), (sink, writing)) = (end(), end());
        let abort = AbortHandle::new().unwrap();
        let stopping = abort.clone();
        thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(700));
            stopping.interrupt();
        });
        let outcome = copy_between(
            &transfer,
            ThirdPartyEndChannels { source, sink, relays: false },
            &Recorder::default(),
            &abort,
        );
        assert!(outcome.result.is_err_and(|error| error.is_interrupted()));
        assert!(reading.join().unwrap().result.is_err() && writing.join().unwrap().result.is_err());
        assert_clean(&dir.path().join("dst"));
        assert!(!dir.path().join("dst/big").exists());
    });
}
