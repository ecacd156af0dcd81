//! Devices, pipes and sockets between ends that did not agree on them, and at a sink that grants no rights.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use carrack_engine::{SessionError, SessionRole, TransferOutcome, TransferRequest};
use carrack_model::{
    AgreedTransferSpec, DeviceNumber, KeptMetadata, ObjectChecksumAlgorithm, RelPath, SpecialFile,
    TransferEvent, UserNotice,
};
use carrack_wire::message::{
    ControlMessage, DestinationRootMessage, FinishMessage, SinkHandshakeFacts, WelcomeMessage,
};
use carrack_wire::{EntryTableDecoder, EntryTableEncoder, EntryTableRecord};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::common::scripted::*;
use crate::common::*;

const LIMIT_S: u64 = 30;

const NULL: SpecialFile = SpecialFile::CharacterDevice(DeviceNumber { major: 1, minor: 3 });

fn spec() -> AgreedTransferSpec {
    AgreedTransferSpec {
        recursive: true,
        checksum: ObjectChecksumAlgorithm::None,
        slot_bytes: 128 << 10,
        streams: 1,
        ..AgreedTransferSpec::default()
    }
}

fn special_table(name: &str, special: &SpecialFile) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::root(), None);
    writer.add_special(name.as_bytes(), special, &METADATA, 0);
    table
}

/// Returns a transfer that keeps these attributes.
fn keeping(kept: KeptMetadata, sources: &[&Path], destination: &Path) -> TransferRequest {
    let mut transfer = transfer(sources, destination);
    transfer.spec = spec();
    transfer.settings.fidelity.kept = kept;
    transfer
}

fn is_violation(outcome: &TransferOutcome) -> bool {
    outcome.result.as_ref().is_err_and(SessionError::is_protocol_violation)
}

fn finish() -> ControlMessage {
    ControlMessage::Finish(FinishMessage { counters: None, objects_sent: 0, closes: false })
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    let warning = |event| match event {
        TransferEvent::Notice(UserNotice::Warning(text)) => Some(text),
        TransferEvent::Notice(UserNotice::Loss(loss)) => Some(loss.to_string()),
        _ => None,
    };
    recorder.events().into_iter().filter_map(warning).collect()
}

#[test]
fn what_nobody_asked_for_is_refused() {
    for special in [SpecialFile::Fifo, SpecialFile::Socket, NULL] {
        for victim in VICTIMS {
            within(LIMIT_S, move || {
                let dir = tempfile::tempdir().unwrap();
                let mut session = Session::with_sink(victim, &spec(), dir.path(), 0);
                session.peer.frame(&bundle(1, b"", &special_table("s", &special)));
                let (outcome, said) = session.end();
                assert!(is_violation(&outcome), "{special:?}, {victim:?}: {:?}", outcome.result);
                assert!(reason(&said).unwrap().message.contains("was not asked for"), "{said:?}");
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            });
        }
    }
}

#[test]
fn who_asked_for_pipes_gets_no_devices() {
    for special in [SpecialFile::Fifo, NULL] {
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            let kept = KeptMetadata { specials: true, ..KeptMetadata::default() };
            let transfer = keeping(kept, &[Path::new("/nothing/")], dir.path());
            let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Sink);
            session.peer.preambles();
            let ControlMessage::Hello(_) = session.peer.message() else { panic!("no hello") };
            let place = Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() });
            session.peer.say(ControlMessage::Welcome(WelcomeMessage {
                place,
                lanes: 1,
                ..WelcomeMessage::default()
            }));
            session.peer.dial_failed_back(&spec());
            session.peer.frame(&bundle(1, b"", &special_table("s", &special)));
            match special.is_device() {
                true => {
                    assert!(is_violation(&session.end().0));
                    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
                }
                false => {
                    let ControlMessage::ObjectsDone(done) = session.peer.message() else {
                        panic!("no answer")
                    };
                    assert_eq!(done.written, [1]);
                    drop(session.hang_up());
                    let found = fs::symlink_metadata(dir.path().join("s")).unwrap();
                    assert!(found.file_type().is_fifo());
                }
            }
        });
    }
}

#[test]
fn none_is_a_large_file() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            let mut session = Session::with_sink(victim, &spec(), dir.path(), 0);
            session.peer.say(open(1, special_table("s", &SpecialFile::Fifo)));
            session.peer.say(finish());
            assert!(is_violation(&session.end().0), "{victim:?}");
        });
    }
}

/// An older sink does not know the record kind, and would end the session.
#[test]
fn an_older_sink_is_sent_none_and_its_user_is_told() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let source = dir.path().join("");
        let transfer = keeping(KeptMetadata::ALL, &[&source], Path::new("/nowhere"));
        let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Source);
        let peer = &mut session.peer;
        peer.preambles();
        let ControlMessage::Hello(_) = peer.message() else { panic!("no hello") };
        let sink = SinkHandshakeFacts { kept: 0b1_1111, ..Scripted::sink_state(2) };
        peer.say(ControlMessage::Welcome(WelcomeMessage {
            sink: Some(sink),
            lanes: 1,
            ..WelcomeMessage::default()
        }));
        let ControlMessage::Place(_) = peer.message() else { panic!("no place") };
        peer.dial_failed_back(&spec());
        let (_, body) = peer.object();
        let table_start = b"content".len();
        let names: Vec<Vec<u8>> = EntryTableDecoder::new(&body[table_start..])
            .filter_map(|record| match record.unwrap() {
                EntryTableRecord::Entry(entry) => Some(entry.name.to_vec()),
                EntryTableRecord::Section { .. } => None,
            })
            .collect();
        assert_eq!(names, [b"f"]);
        let recorder = session.recorder.clone();
        drop(session.hang_up());
        let told = "not kept, as the carrack at the destination is too old for it: devices, named pipes and sockets, file flags";
        assert_eq!(warnings(&recorder).iter().filter(|text| *text == told).count(), 1);
    });
}

/// At a daemon, clients can't create entries that grant rights on its machine.
#[test]
fn a_sink_that_gives_no_rights_makes_pipes_and_no_devices() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, to) = (dir.path().join("tree"), dir.path().join("to"));
    fs::create_dir(&tree).unwrap();
    let node = |name: &str, kind, device| mknodat(CWD, tree.join(name), kind, Mode::RUSR, device);
    node("pipe", FileType::Fifo, 0).unwrap();
    if node("null", FileType::CharacterDevice, makedev(1, 3)).is_err() {
        return println!("skipped: only root can make a device");
    }
    let mut transfer = keeping(KeptMetadata::ALL, &[&tree], &to);
    transfer.settings.special_modes = false;
    let (outcome, recorder) = copy(Way::Local, &transfer);
    outcome.result.unwrap();
    assert_eq!((outcome.summary.specials_done, outcome.summary.entries_failed), (1, 0));
    let warnings = warnings(&recorder);
    assert!(warnings.contains(&"1 device not made: the sink makes none".to_owned()), "{warnings:?}");
    assert!(fs::symlink_metadata(to.join("pipe")).unwrap().file_type().is_fifo());
    assert!(!to.join("null").exists());
}
