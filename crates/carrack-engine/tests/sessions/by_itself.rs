//! Inline-announced files: the first object announces the file, which gets its name as soon as it is complete
//! (docs/formats/wire.md). The test plays one end by hand.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use carrack_engine::SessionError;
use carrack_model::{AgreedTransferSpec, FileId, ObjectChecksumAlgorithm};
use carrack_wire::FrameHeader;
use carrack_wire::message::{ControlMessage, FileReference, FinishMessage, ObjectAcksMessage};
use xxhash_rust::xxh3::xxh3_128;

use crate::common::scripted::*;
use crate::common::*;

const LIMIT_S: u64 = 30;
/// The object size of files in memory.
const OBJECT: usize = 512 << 10;
const ID: u64 = FileId::FIRST_BY_ITSELF.0;

fn spec() -> AgreedTransferSpec {
    AgreedTransferSpec {
        recursive: true,
        checksum: ObjectChecksumAlgorithm::Xxh3,
        streams: 1,
        ..AgreedTransferSpec::default()
    }
}

fn checked((header, body): (FrameHeader, Vec<u8>)) -> (FrameHeader, Vec<u8>) {
    let mut check = [0; 32];
    check[..16].copy_from_slice(&xxh3_128(&body).to_le_bytes());
    (FrameHeader { check, ..header }, body)
}

/// Returns the object that announces its file.
fn first(id: u64, file: u64, content: &[u8], table: &[u8]) -> (FrameHeader, Vec<u8>) {
    let (header, body) = object(id, file, 0, &[content, table].concat());
    checked((FrameHeader { table_len: table.len() as u32, ..header }, body))
}

fn done(written: &[u64], corrupt: &[u64]) -> ControlMessage {
    let (written, corrupt) = (written.to_vec(), corrupt.to_vec());
    ControlMessage::ObjectsDone(ObjectAcksMessage { written, corrupt, set_aside: vec![] })
}

fn finish() -> ControlMessage {
    ControlMessage::Finish(FinishMessage { counters: None, objects_sent: 0, closes: false })
}

// The sink is real.

/// Plays the source to each kind of sink; asserts that the session ends well.
fn with_sink(spec: AgreedTransferSpec, script: impl Fn(&mut Session, &Path) + Clone + Send + 'static) {
    for victim in VICTIMS {
        let (spec, script) = (spec.clone(), script.clone());
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            let mut session = Session::with_sink(victim, &spec, dir.path(), 0);
            script(&mut session, dir.path());
            session.peer.say(finish());
            let (outcome, _) = session.end();
            assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
            assert_clean(dir.path());
        });
    }
}

#[test]
fn it_has_its_name_when_the_last_object_is_answered() {
    with_sink(spec(), |source, destination| {
        // One file overtakes another, whose second object arrives before its first.
        source.peer.frame(&first(1, ID + 1, b"second", &table("sub", &[(b"two", 6)])));
        assert_eq!(source.peer.message(), done(&[1], &[]));
        assert_eq!(fs::read(destination.join("sub/two")).unwrap(), b"second");
        source.peer.frame(&checked(object(2, ID, 3, b"def")));
        source.peer.frame(&first(3, ID, b"abc", &table("", &[(b"one", 6)])));
        let ControlMessage::ObjectsDone(mut answers) = source.peer.message() else { panic!("no answer") };
        if answers.written.len() == 1 {
            let ControlMessage::ObjectsDone(rest) = source.peer.message() else { panic!("no answer") };
            answers.written.extend(rest.written);
        }
        answers.written.sort_unstable();
        assert_eq!((answers.written, answers.corrupt), (vec![2, 3], vec![]));
        assert_eq!(fs::read(destination.join("one")).unwrap(), b"abcdef");
        let metadata = fs::metadata(destination.join("one")).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o644, 1_000_000_000));
    });
}

#[test]
fn one_that_was_damaged_is_announced_by_a_message() {
    with_sink(spec(), |source, destination| {
        let table = table("", &[(b"f", 6)]);
        let (header, body) = first(1, ID, b"abc", &table);
        source.peer.frame(&(FrameHeader { check: [1; 32], ..header }, body));
        assert_eq!(source.peer.message(), done(&[], &[1]));
        source.peer.say(open(ID, table));
        source.peer.frame(&checked(object(2, ID, 3, b"def")));
        assert_eq!(source.peer.message(), done(&[2], &[]));
        assert!(!destination.join("f").exists());
        source.peer.frame(&checked(object(3, ID, 0, b"abc")));
        assert_eq!(source.peer.message(), done(&[3], &[]));
        assert_eq!(fs::read(destination.join("f")).unwrap(), b"abcdef");
    });
}

#[test]
fn one_that_can_not_have_its_name_fails_before_it_is_answered() {
    with_sink(spec(), |source, destination| {
        write(&destination.join("f/in the way"), b"x");
        source.peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 3)])));
        let mut said = Vec::new();
        while !matches!(said.last(), Some(ControlMessage::ObjectsDone(_))) {
            said.push(source.peer.message());
        }
        assert_eq!(said.pop(), Some(done(&[1], &[])));
        assert!(said.contains(&ControlMessage::FileFailed(FileReference { id: ID })), "{said:?}");
        source.peer.say(ControlMessage::AbandonFile(FileReference { id: ID }));
        assert!(destination.join("f/in the way").exists());
    });
}

#[test]
fn one_that_is_given_up_leaves_nothing() {
    with_sink(spec(), |source, destination| {
        source.peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 6)])));
        assert_eq!(source.peer.message(), done(&[1], &[]));
        source.peer.say(ControlMessage::AbandonFile(FileReference { id: ID }));
        assert!(!destination.join("f").exists());
    });
}

#[test]
fn lies_end_the_session() {
    type Lie = fn(&mut Scripted);
    let lies: [(&str, Lie); 7] = [
        ("announced twice", |peer| {
            peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 6)])));
            peer.frame(&first(2, ID, b"abc", &table("", &[(b"f", 6)])));
        }),
        ("two files", |peer| peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 3), (b"g", 3)])))),
        ("an empty file", |peer| peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 0)])))),
        ("more than it has", |peer| peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 2)])))),
        ("a commit of what is not whole", |peer| {
            peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 6)])));
            peer.message();
            peer.say(ControlMessage::CommitFile(FileReference { id: ID }));
        }),
        ("a commit of what has its name", |peer| {
            peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 3)])));
            peer.message();
            peer.say(ControlMessage::CommitFile(FileReference { id: ID }));
        }),
        ("more of what has its name", |peer| {
            peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 3)])));
            peer.message();
            peer.frame(&checked(object(2, ID, 0, b"abc")));
            std::thread::sleep(std::time::Duration::from_millis(300));
            peer.say(finish());
        }),
    ];
    for (what, lie) in lies {
        assert_violation(&spec(), what, lie);
    }
    let whole = |peer: &mut Scripted| peer.frame(&first(1, ID, b"abc", &table("", &[(b"f", 3)])));
    let blake3 = AgreedTransferSpec { checksum: ObjectChecksumAlgorithm::Blake3, ..spec() };
    assert_violation(&blake3, "where digests are made", whole);
}

fn assert_violation(spec: &AgreedTransferSpec, what: &str, lie: fn(&mut Scripted)) {
    for victim in VICTIMS {
        let (what, spec) = (what.to_string(), spec.clone());
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            let mut session = Session::with_sink(victim, &spec, dir.path(), 0);
            lie(&mut session.peer);
            let (outcome, said) = session.end();
            let is_violation = outcome.result.as_ref().is_err_and(SessionError::is_protocol_violation);
            assert!(is_violation, "{what}, {victim:?}: {:?}", outcome.result);
            assert!(reason(&said).is_some(), "{what}, {victim:?}: it left without a word");
            assert_clean(dir.path());
        });
    }
}

// The source is real.

/// Plays the sink, with `credits`, to a source of one file in memory.
fn with_source(
    size: usize,
    credits: u32,
    script: impl Fn(&mut Session, &Path, &[u8]) + Clone + Send + 'static,
) {
    for victim in VICTIMS {
        let script = script.clone();
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let content = noise(size, 1);
            write(&dir.path().join("f"), &content);
            let mut session = Session::with_source(victim, &spec(), &[&dir.path().join("f")], credits);
            script(&mut session, &dir.path().join("f"), &content);
            session.peer.say(ControlMessage::Finished(Default::default()));
            let (outcome, _) = session.end();
            assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
        });
    }
}

fn assert_announces(header: &FrameHeader, body: &[u8], size: usize) {
    assert!(header.file.is_inline_announced() && header.offset == 0 && header.table_len > 0);
    let (_, own) = body.split_at(body.len() - header.table_len as usize);
    let section = carrack_wire::decode_section(own).unwrap();
    assert_eq!((section.entries.len(), section.entries[0].size()), (1, size as u64));
    assert_eq!(header.check[..16], xxh3_128(body).to_le_bytes());
}

#[test]
fn its_first_object_says_what_it_is() {
    with_source(2 * OBJECT + 5, 4, |session, _, content| {
        let (header, body) = session.peer.object();
        assert_announces(&header, &body, content.len());
        assert_eq!(body[..OBJECT], content[..OBJECT]);
        let (second, third) = (session.peer.object(), session.peer.object());
        for (number, (header, body)) in [(1, &second), (2, &third)] {
            assert_eq!((header.offset, header.table_len), ((number * OBJECT) as u64, 0));
            assert_eq!(body[..], content[number * OBJECT..content.len().min((number + 1) * OBJECT)]);
        }
        session.peer.say(done(&[header.object.0, second.0.object.0, third.0.object.0], &[]));
        let ControlMessage::Finish(_) = session.peer.message() else { panic!("no end") };
    });
}

#[test]
fn a_first_object_that_was_damaged_is_followed_by_a_message() {
    with_source(OBJECT + 5, 1, |session, _, content| {
        let (header, body) = session.peer.object();
        assert_announces(&header, &body, content.len());
        session.peer.say(done(&[], &[header.object.0]));
        let (mut is_open, mut seen) = (false, Vec::new());
        while seen.len() < 2 {
            match session.peer.hear() {
                Heard::Control(ControlMessage::OpenFile(file)) => {
                    assert_eq!(FileId(file.id), header.file);
                    assert_eq!(file.table, body[OBJECT..]);
                    is_open = true;
                }
                Heard::Object(again, body) => {
                    assert_eq!((again.file, again.table_len), (header.file, 0));
                    session.peer.say(done(&[again.object.0], &[]));
                    seen.push((again.offset, body));
                }
                other => panic!("{other:?}"),
            }
        }
        seen.sort();
        assert!(is_open, "nobody could know what file it is");
        assert_eq!(seen.into_iter().flat_map(|(_, body)| body).collect::<Vec<_>>(), content);
        let ControlMessage::Finish(_) = session.peer.message() else { panic!("no end") };
    });
}

#[test]
fn one_that_changes_while_it_is_read_does_not_get_its_name() {
    with_source(12 * OBJECT, 1, |session, path, content| {
        let (header, body) = session.peer.object();
        assert_announces(&header, &body, content.len());
        // The source can't have read to the end yet, as it has one credit.
        write(path, &content[1..]);
        let mut answered = header.object.0;
        let file = loop {
            session.peer.say(done(&[answered], &[]));
            match session.peer.hear() {
                Heard::Object(next, _) => {
                    assert!(next.offset + u64::from(next.body_len) < content.len() as u64, "all of it came");
                    answered = next.object.0;
                }
                Heard::Control(ControlMessage::AbandonFile(file)) => break file.id,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(FileId(file), header.file);
        // The source tries again, and announces the file by a message: it compares the metadata before the
        // commit.
        let ControlMessage::OpenFile(again) = session.peer.message() else { panic!("not tried again") };
        assert!(!FileId(again.id).is_inline_announced());
        let mut got = 0;
        while got < content.len() - 1 {
            let (header, body) = session.peer.object();
            assert_eq!(header.file, FileId(again.id));
            got += body.len();
            session.peer.say(done(&[header.object.0], &[]));
        }
        assert_eq!(session.peer.message(), ControlMessage::CommitFile(FileReference { id: again.id }));
        session.peer.say(ControlMessage::FileDone(FileReference { id: again.id }));
        let ControlMessage::Finish(_) = session.peer.message() else { panic!("no end") };
    });
}

#[test]
fn one_that_fails_at_the_sink_is_taken_back() {
    with_source(OBJECT, 2, |session, _, content| {
        let (header, body) = session.peer.object();
        assert_announces(&header, &body, content.len());
        session.peer.say(ControlMessage::FileFailed(FileReference { id: header.file.0 }));
        session.peer.say(done(&[header.object.0], &[]));
        assert_eq!(session.peer.message(), ControlMessage::AbandonFile(FileReference { id: header.file.0 }));
        let ControlMessage::Finish(_) = session.peer.message() else { panic!("no end") };
    });
}

#[test]
fn what_does_not_qualify_is_announced_by_a_message() {
    // The file has more objects than one thread reads in a row.
    with_source(16 * OBJECT, 64, |session, _, content| {
        let ControlMessage::OpenFile(file) = session.peer.message() else { panic!("no announcement") };
        let mut got = 0;
        while got < content.len() {
            let (header, body) = session.peer.object();
            got += body.len();
            session.peer.say(done(&[header.object.0], &[]));
        }
        assert_eq!(session.peer.message(), ControlMessage::CommitFile(FileReference { id: file.id }));
        session.peer.say(ControlMessage::FileDone(FileReference { id: file.id }));
        let ControlMessage::Finish(_) = session.peer.message() else { panic!("no end") };
    });
}
