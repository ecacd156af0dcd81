//! Several lanes (N2): with any number of lanes all files arrive, and a failure in one lane ends all lanes.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_engine::{SessionError, SessionRole};
use carrack_model::{AgreedTransferSpec, DeletionRules, FailureKind, SyncRules, TransferEvent, UserNotice};
use carrack_transport::seal::SessionKeys;
use carrack_transport::{DataConnection, StreamCount, dial};
use carrack_wire::auth::{ListenerNonce, SessionKey};
use carrack_wire::message::{
    self, ControlMessage, DestinationRootMessage, FinishMessage, HelloMessage, LaneCountProposal,
    WelcomeMessage,
};
use carrack_wire::{FrameHeader, agreed_terms};

use crate::common::scripted::{Heard, Scripted, Session, Victim, reason};
use crate::common::*;

const LANES: [usize; 4] = [1, 2, 3, 8];

/// Makes 12 MiB in a few large files, and more small files than one object holds.
fn tree(root: &Path) {
    rich_tree(root);
    for i in 0..6 {
        write(&root.join(format!("large{i}")), &noise(2 << 20, i));
    }
    for i in 0..1_500 {
        write(&root.join(format!("many/{}/{i}", i % 7)), &noise(i as usize % 3_000, i));
    }
}

/// Returns the objects of each lane as the source reports them at its end; empty for one lane.
fn objects_by_lane(recorder: &Recorder) -> Vec<u64> {
    let told = recorder.events().into_iter().find_map(|event| match event {
        TransferEvent::Notice(UserNotice::Text(text)) => {
            text.strip_prefix("source: objects by lane: ").map(str::to_string)
        }
        _ => None,
    });
    told.map_or_else(Vec::new, |told| told.split(", ").map(|count| count.parse().unwrap()).collect())
}

#[test]
fn every_number_of_lanes_moves_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    tree(&source);
    for way in WAYS {
        let mut summaries = Vec::new();
        for lanes in LANES {
            let destination = dir.path().join(format!("{way:?}-{lanes}"));
            let mut transfer = transfer(&[&source], &destination);
            transfer.spec = AgreedTransferSpec { slot_bytes: 128 << 10, ..transfer.spec };
            transfer.settings.lanes = lanes;
            transfer.settings.io_threads = 4;
            let (outcome, recorder) = copy(way, &transfer);
            assert!(outcome.result.is_ok(), "{:?}", outcome.result);
            summaries.push(outcome.summary);
            let divided = objects_by_lane(&recorder);
            assert!(lanes == 1 || divided.len() == lanes && divided[1] > 0, "{divided:?}");
            assert_same(&source, &destination);
            assert_clean(&destination);
            fs::remove_dir_all(&destination).unwrap();
        }
        let first = &summaries[0];
        assert!(summaries.iter().all(|summary| summary == first), "{way:?}: {summaries:?}");
    }
}

/// The lane that asks for the deletions is not the first to end.
#[test]
fn what_the_source_has_not_goes_with_several_lanes() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    tree(&source);
    for (way, first) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let destination = dir.path().join(format!("{way:?}-{first}"));
        write(&destination.join("gone/too"), b"x");
        let mut transfer = transfer(&[&source.join("")], &destination);
        let deletion = Some(DeletionRules { first, ..DeletionRules::default() });
        transfer.spec.sync = Some(SyncRules { deletion, ..SyncRules::default() });
        transfer.settings.lanes = 2;
        copy_well(way, &transfer);
        assert_same(&source, &destination);
    }
}

#[test]
fn the_pipe_has_one_lane() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    tree(&source);
    let destination = dir.path().join("dst");
    let mut transfer = transfer(&[&source], &destination);
    transfer.settings.lanes = 4;
    // The only allowed port is taken, so that no data connection can be made.
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    transfer.settings.ports = Some(port..=port);
    copy_well(Way::Push, &transfer);
    assert_same(&source, &destination);
}

#[test]
fn failures_of_all_lanes_are_told_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    for i in 0..40 {
        write(&source.join(format!("f{i:02}")), &noise(300 << 10, i));
    }
    let destination = dir.path().join("dst");
    for i in (0..40).step_by(4) {
        // A directory with entries has the file's name.
        write(&destination.join(format!("f{i:02}/in/the/way")), b"!");
    }
    let mut transfer = transfer(&[&source.join("")], &destination);
    transfer.spec = AgreedTransferSpec { slot_bytes: 128 << 10, ..transfer.spec };
    transfer.settings.lanes = 4;
    transfer.settings.io_threads = 4;
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_eq!((outcome.summary.files_done, outcome.summary.entries_failed), (30, 10));
    let failed = recorder.failed();
    assert_eq!(failed.len(), 10);
    assert!(failed.iter().all(|(kind, _)| *kind != FailureKind::Missing), "{failed:?}");
    assert!(destination.join("f00/in/the/way").exists());
}

#[test]
fn a_small_load_stays_on_the_first_lane() {
    // The slots of the other lanes are never touched, so that their memory costs nothing (N7).
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    write(&source.join("one"), b"a");
    let destination = dir.path().join("dst");
    let mut transfer = transfer(&[&source], &destination);
    transfer.settings.lanes = 8;
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_same(&source, &destination);
    assert_eq!(objects_by_lane(&recorder), [1, 0, 0, 0, 0, 0, 0, 0]);
}

// A peer that the test plays.

/// Calls a real sink with two lanes; returns its session and its data connections.
fn sink_with_two_lanes(destination: &Path) -> (Session, Vec<DataConnection>) {
    let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
    session.peer.preambles();
    let spec = AgreedTransferSpec { slot_bytes: 128 << 10, ..AgreedTransferSpec::default() };
    let settings = r#"{"pool_bytes":2097152,"lanes":2}"#.into();
    session.peer.say(ControlMessage::Hello(HelloMessage {
        destination: Some(destination.as_os_str().as_bytes().to_vec()),
        settings,
        lanes: Some(LaneCountProposal { wanted: 2, most: 2 }),
        ..Scripted::hello(&spec)
    }));
    let ControlMessage::Welcome(welcome) = session.peer.message() else { panic!("no welcome") };
    assert_eq!((welcome.lanes, welcome.sink.unwrap().credits), (2, 16));
    session
        .peer
        .say(ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }));
    let listening = welcome.listening.unwrap();
    let nonce = ListenerNonce::from_slice(&listening.nonce).unwrap();
    let address = ([127, 0, 0, 1], u16::try_from(listening.port).unwrap()).into();
    let keys = SessionKeys::derive(&SessionKey::new([7; 32]), None, &agreed_terms(&spec, 2));
    let streams = dial(&[address], &keys, &nonce, StreamCount::new(2, 2, false), None, &|| true).unwrap();
    (session, streams)
}

fn say_to(session: &mut Session, lane: u32, message: ControlMessage) {
    let body = message.to_body();
    session.peer.frame(&(FrameHeader { lane, ..FrameHeader::control(body.len() as u32) }, body));
}

fn finish() -> ControlMessage {
    ControlMessage::Finish(FinishMessage { counters: None, objects_sent: 0, closes: false })
}

fn finished(session: &mut Session) {
    let heard = session.peer.hear();
    assert!(matches!(heard, Heard::Control(ControlMessage::Finished(_))), "{heard:?}");
}

#[test]
fn the_first_lane_ends_last() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, _streams) = sink_with_two_lanes(dir.path());
        say_to(&mut session, 1, finish());
        finished(&mut session);
        say_to(&mut session, 0, finish());
        finished(&mut session);
        assert!(session.hang_up().result.is_ok());

        let (mut session, _streams) = sink_with_two_lanes(dir.path());
        say_to(&mut session, 0, finish());
        let (outcome, said) = session.end();
        assert!(outcome.result.is_err_and(|error| error.is_protocol_violation()));
        assert!(reason(&said).unwrap().message.contains("before the others"), "{said:?}");
    });
}

#[test]
fn a_message_for_no_lane_ends_the_session() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, _streams) = sink_with_two_lanes(dir.path());
        say_to(&mut session, 2, finish());
        assert!(session.end().0.result.is_err());
    });
}

#[test]
fn a_lane_that_breaks_a_rule_takes_the_others_with_it() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, _streams) = sink_with_two_lanes(dir.path());
        say_to(&mut session, 1, ControlMessage::CommitFile(message::FileReference { id: 5 }));
        let (outcome, said) = session.end();
        assert!(outcome.result.is_err_and(|error| error.is_protocol_violation()));
        assert!(reason(&said).is_some());
    });
}

#[test]
fn lanes_are_not_decided_beyond_what_was_offered() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("f"), b"a");
        for lanes in [0, 3, 9, u32::MAX] {
            let mut transfer = transfer(&[&dir.path().join("f")], Path::new("x"));
            transfer.settings.lanes = 2;
            let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Source);
            session.peer.preambles();
            let ControlMessage::Hello(hello) = session.peer.message() else { panic!("no hello") };
            assert_eq!(hello.lanes, Some(LaneCountProposal { wanted: 2, most: 2 }));
            let sink = Some(Scripted::sink_state(4));
            session.peer.say(ControlMessage::Welcome(WelcomeMessage {
                sink,
                lanes,
                ..WelcomeMessage::default()
            }));
            let outcome = session.end().0;
            assert!(outcome.result.is_err_and(|error| error.is_protocol_violation()), "{lanes}");
        }
        // A caller that asks for more lanes than the limit is refused.
        let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
        session.peer.preambles();
        let settings = r#"{"lanes":9}"#.into();
        let destination = Some(dir.path().as_os_str().as_bytes().to_vec());
        let hello = Scripted::hello(&AgreedTransferSpec::default());
        session.peer.say(ControlMessage::Hello(HelloMessage { destination, settings, ..hello }));
        let outcome = session.end().0;
        assert!(matches!(outcome.result, Err(SessionError::Protocol(_))), "{:?}", outcome.result);
    });
}
