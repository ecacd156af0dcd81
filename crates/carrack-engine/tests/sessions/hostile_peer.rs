//! Peers that lie, cheat or break. The real end leaves within seconds with an error that gives the reason,
//! changes nothing outside its destination, and leaves no temporary names. The test plays the hostile end by
//! hand.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use carrack_engine::{
    AbortHandle, AccessPolicy, AccessRequest, AdmittedCallerRights, ControlChannel, EndSettings,
    ProcessOwnerAccessPolicy, SessionError, SessionRole, TransferOutcome, serve,
};
use carrack_model::{
    AgreedTransferSpec, DeletionRules, FailureKind, ObjectChecksumAlgorithm, ProtectionLevel, RelPath,
    SyncRules, TransferEvent,
};
use carrack_wire::message::{
    self, ControlMessage, CountersMessage, DestinationRootMessage, DialFailureMessage, FileReference,
    FinishMessage, HelloMessage, ObjectAcksMessage, SinkHandshakeFacts, WelcomeMessage,
};
use carrack_wire::{
    EntryTableEncoder, FrameHeader, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Preamble, to_json,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::common::scripted::*;
use crate::common::*;

const LIMIT_S: u64 = 30;
const SLOT: usize = 128 << 10;

fn spec() -> AgreedTransferSpec {
    AgreedTransferSpec {
        recursive: true,
        checksum: ObjectChecksumAlgorithm::None,
        slot_bytes: SLOT as u32,
        streams: 1,
        ..AgreedTransferSpec::default()
    }
}

/// A destination with an entry and with a link that leads outside, and a directory outside.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("dst/old"), b"old");
        write(&dir.path().join("outside/secret"), b"secret");
        symlink("../outside", dir.path().join("dst/out")).unwrap();
        World { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn destination(&self) -> PathBuf {
        self.path("dst")
    }

    fn assert_unharmed(&self) {
        assert_eq!(fs::read(self.path("dst/old")).unwrap(), b"old");
        assert_eq!(fs::read_link(self.path("dst/out")).unwrap(), Path::new("../outside"));
        assert_eq!(names(&self.path("outside")), ["secret"]);
        assert_eq!(fs::read(self.path("outside/secret")).unwrap(), b"secret");
        assert_eq!(names(self.dir.path()), ["dst", "outside"]);
        assert_clean(&self.destination());
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_violation(outcome: &TransferOutcome) -> bool {
    outcome.result.as_ref().is_err_and(SessionError::is_protocol_violation)
}

/// Plays a hostile source against each kind of sink: `script` breaks a rule; the sink gives the reason and
/// leaves.
fn attack_sink(what: &str, script: impl Fn(&mut Session) + Clone + Send + 'static) {
    attack_sink_with(spec(), what, script);
}

fn attack_sink_with(
    spec: AgreedTransferSpec,
    what: &str,
    script: impl Fn(&mut Session) + Clone + Send + 'static,
) {
    for victim in VICTIMS {
        let (what, spec, script) = (what.to_string(), spec.clone(), script.clone());
        within(LIMIT_S, move || {
            let world = World::new();
            let mut session = Session::with_sink(victim, &spec, &world.destination(), 0);
            script(&mut session);
            let (outcome, said) = session.end();
            assert!(is_violation(&outcome), "{what}, {victim:?}: {:?}", outcome.result);
            assert!(reason(&said).is_some(), "{what}, {victim:?}: it left without a word");
            world.assert_unharmed();
        });
    }
}

/// Plays a hostile sink against each kind of source, whose files have a few objects each.
fn attack_source(what: &str, script: impl Fn(&mut Session) + Clone + Send + 'static) {
    for victim in VICTIMS {
        let (what, script) = (what.to_string(), script.clone());
        within(LIMIT_S, move || {
            let dir = some_files();
            let mut session = Session::with_source(victim, &spec(), &[dir.path()], 2);
            script(&mut session);
            let (outcome, said) = session.end();
            assert!(is_violation(&outcome), "{what}, {victim:?}: {:?}", outcome.result);
            assert!(reason(&said).is_some(), "{what}, {victim:?}: it left without a word");
        });
    }
}

fn some_files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("small"), b"small");
    write(&dir.path().join("large"), &noise(5 * SLOT + 1, 1));
    dir
}

fn finish() -> ControlMessage {
    ControlMessage::Finish(FinishMessage { counters: None, objects_sent: 0, closes: false })
}

fn commit(id: u64) -> ControlMessage {
    ControlMessage::CommitFile(FileReference { id })
}

fn abandon(id: u64) -> ControlMessage {
    ControlMessage::AbandonFile(FileReference { id })
}

fn done(written: &[u64], corrupt: &[u64]) -> ControlMessage {
    let (written, corrupt) = (written.to_vec(), corrupt.to_vec());
    ControlMessage::ObjectsDone(ObjectAcksMessage { written, corrupt, set_aside: vec![] })
}

fn set_aside(objects: &[u64]) -> ControlMessage {
    ControlMessage::ObjectsDone(ObjectAcksMessage {
        written: vec![],
        corrupt: vec![],
        set_aside: objects.to_vec(),
    })
}

// A hostile source: names.

const BAD_NAMES: [&[u8]; 9] =
    [b"", b".", b"..", b"a/b", b"/etc", b"../outside/secret", b"a\0b", b"/", &[b'x'; 256]];

#[test]
fn names_that_could_lead_elsewhere_are_refused() {
    for name in BAD_NAMES {
        attack_sink(&format!("bundle {name:?}"), move |source| {
            source.peer.frame(&bundle(1, b"abc", &table("", &[(name, 3)])));
        });
        attack_sink(&format!("announcement {name:?}"), move |source| {
            source.peer.say(open(1, table("", &[(name, 3)])));
        });
    }
}

#[test]
fn directories_that_could_lie_elsewhere_are_refused() {
    for path in [&b".."[..], b"/", b"/etc", b"../outside", b"a/../..", b"a//b", b"./a", b"a/", b"a\0b"] {
        attack_sink(&format!("bundle {path:?}"), move |source| {
            source.peer.frame(&bundle(1, b"abc", &table_in(path, &[(b"secret", 3)])));
        });
        attack_sink(&format!("announcement {path:?}"), move |source| {
            source.peer.say(open(1, table_in(path, &[(b"secret", 3)])));
        });
    }
}

/// Plays a source that follows the protocol but names paths through links; `script` returns the number of
/// entries that fail.
fn detour(script: impl Fn(&mut Scripted) -> u64 + Clone + Send + 'static) {
    for victim in VICTIMS {
        let script = script.clone();
        within(LIMIT_S, move || {
            let world = World::new();
            let mut session = Session::with_sink(victim, &spec(), &world.destination(), 0);
            let expected = script(&mut session.peer);
            session.peer.say(finish());
            let (outcome, _) = session.end();
            assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
            assert_eq!(outcome.summary.entries_failed, expected, "{victim:?}");
            world.assert_unharmed();
        });
    }
}

#[test]
fn no_path_leads_through_a_link_that_stands_there() {
    detour(|source| {
        source.frame(&bundle(1, b"abc", &table("out", &[(b"secret", 3)])));
        source.hear_answer();
        source.frame(&bundle(2, b"abc", &table("out/new", &[(b"file", 3)])));
        source.hear_answer();
        2
    });
    detour(|source| {
        source.say(open(1, table("out", &[(b"secret", 3)])));
        source.frame(&object(1, 1, 0, b"abc"));
        source.hear_answer();
        source.say(abandon(1));
        1
    });
}

#[test]
fn no_path_leads_through_a_link_that_the_source_has_sent_before() {
    detour(|source| {
        source.frame(&bundle(1, b"", &link_table("", "way", "../outside")));
        source.hear_answer();
        source.frame(&bundle(2, b"abc", &table("way", &[(b"secret", 3)])));
        source.hear_answer();
        // One bundle has the link and the directory, whose metadata would be set at the end.
        let mut second = Vec::new();
        let mut writer = EntryTableEncoder::new(&mut second);
        writer.begin_section(&RelPath::new(b"path").unwrap(), Some(&METADATA));
        writer.add_regular(b"new", 3, &METADATA, 0, None);
        source.frame(&bundle(3, b"abc", &[link_table("", "path", "../outside"), second].concat()));
        source.hear_answer();
        3
    });
}

trait Answer {
    /// Waits for the answer to an object.
    fn hear_answer(&mut self);
}

impl Answer for Scripted {
    fn hear_answer(&mut self) {
        loop {
            match self.message() {
                ControlMessage::Failure(failure) => assert_eq!(failure.kind, FailureKind::InTheWay as u32),
                ControlMessage::FileFailed(_) => {}
                ControlMessage::ObjectsDone(done) => {
                    assert_eq!((done.written.len(), done.corrupt.len()), (1, 0));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

// A hostile source: lanes.

#[test]
fn a_message_for_a_lane_that_there_is_not_is_refused() {
    attack_sink("lane", |source| {
        let body = finish().to_body();
        let header = FrameHeader { lane: 7, ..FrameHeader::control(body.len() as u32) };
        source.peer.frame(&(header, body));
    });
}

// A hostile source: tables.

#[test]
fn bundles_that_promise_more_or_less_are_refused() {
    for (content, size) in [(&b"abc"[..], 4), (b"abc", 2), (b"", 1), (b"abc", 0), (b"abc", u64::MAX)] {
        attack_sink(&format!("{content:?} for {size}"), move |source| {
            source.peer.frame(&bundle(1, content, &table("", &[(b"f", size)])));
        });
    }
    attack_sink("sizes whose sum overflows", |source| {
        let files: [(&[u8], u64); 2] = [(b"f", u64::MAX), (b"g", 4)];
        source.peer.frame(&bundle(1, b"abc", &table("", &files)));
    });
    attack_sink("contents without a table", |source| source.peer.frame(&bundle(1, b"abc", b"")));
    attack_sink("garbage for a table", |source| source.peer.frame(&bundle(1, b"abc", &[0xff; 500])));
    attack_sink("a table cut short", |source| {
        let table = table("", &[(b"f", 3)]);
        source.peer.frame(&bundle(1, b"abc", &table[..table.len() - 1]));
    });
    attack_sink("a table longer than the body", |source| {
        let (header, body) = bundle(1, b"abc", &table("", &[(b"f", 3)]));
        source.peer.frame(&(FrameHeader { table_len: header.body_len + 1, ..header }, body));
    });
}

#[test]
fn announcements_of_anything_but_one_file_are_refused() {
    let two: [(&[u8], u64); 2] = [(b"f", 3), (b"g", 3)];
    let f: [(&[u8], u64); 1] = [(b"f", 3)];
    let tables = [
        ("nothing", Vec::new()),
        ("no entry", table("", &[])),
        ("two entries", table("", &two)),
        ("two sections", [table("", &f), table("a", &f)].concat()),
        ("garbage", vec![0xff; 100]),
    ];
    for (what, table) in tables {
        attack_sink(what, move |source| source.peer.say(open(1, table.clone())));
    }
}

#[test]
fn announcements_of_links_and_empty_files_are_refused() {
    for table in [link_table("", "l", "f"), table("", &[(b"f", 0)])] {
        attack_sink("no file with objects", move |source| {
            source.peer.say(open(1, table.clone()));
            source.peer.say(commit(1));
            source.peer.say(finish());
        });
    }
}

// A hostile source: objects and files.

#[test]
fn objects_that_do_not_fit_are_refused() {
    for (offset, len) in [(0, 11), (10, 1), (5, 6), (u64::MAX, 2), (u64::MAX - 1, 1), (3, 0)] {
        attack_sink(&format!("{offset}+{len} of 10"), move |source| {
            source.peer.say(open(1, table("", &[(b"f", 10)])));
            source.peer.frame(&object(1, 1, offset, &vec![7; len]));
        });
    }
    for (offset, len) in [(0, 6), (5, 1), (0, 10), (4, 3)] {
        attack_sink(&format!("{offset}+{len} over 0+6"), move |source| {
            source.peer.say(open(1, table("", &[(b"f", 10)])));
            source.peer.frame(&object(1, 1, 0, b"abcdef"));
            source.peer.frame(&object(2, 1, offset, &vec![7; len]));
        });
    }
}

#[test]
fn sizes_that_no_storage_has_do_no_harm() {
    for checksum in [ObjectChecksumAlgorithm::None, ObjectChecksumAlgorithm::Blake3] {
        for victim in VICTIMS {
            within(LIMIT_S, move || {
                let world = World::new();
                let spec = AgreedTransferSpec { checksum, ..spec() };
                let mut session = Session::with_sink(victim, &spec, &world.destination(), 0);
                session.peer.say(open(1, table("", &[(b"f", u64::MAX)])));
                session.peer.frame(&object(1, 1, (u64::MAX >> 20 << 20) - (1 << 20), &[7; SLOT]));
                session.peer.frame(&object(2, 1, 0, &[7; SLOT]));
                let mut answered = 0;
                while answered < 2 {
                    match session.peer.hear() {
                        Heard::Control(ControlMessage::ObjectsDone(done)) => {
                            answered += done.written.len() + done.corrupt.len();
                        }
                        Heard::Control(ControlMessage::Abort(_)) | Heard::Closed => break,
                        _ => {}
                    }
                }
                session.peer.say(commit(1));
                session.peer.say(finish());
                // The file is incomplete, or was given up earlier, as no file can have that size.
                let (outcome, _) = session.end();
                let has_failed = outcome.result.is_err() || outcome.summary.entries_failed == 1;
                assert!(has_failed && outcome.summary.files_done == 0, "{victim:?} {checksum}: {outcome:?}");
                assert!(!world.path("dst/f").exists());
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn files_out_of_order_are_refused() {
    let announce = |source: &mut Session, id| source.peer.say(open(id, table("", &[(b"f", 3)])));
    attack_sink("file 0", move |source| announce(source, 0));
    for second in [1, 5] {
        attack_sink("an id that does not rise", move |source| {
            announce(source, 5);
            announce(source, second);
        });
    }
    attack_sink("an id that comes again", move |source| {
        announce(source, 1);
        source.peer.say(abandon(1));
        announce(source, 1);
    });
    for message in [commit(1), abandon(1), commit(0), abandon(u64::MAX)] {
        attack_sink("the end of a file that never began", move |source| source.peer.say(message.clone()));
    }
    for end in [commit(1), abandon(1)] {
        attack_sink("two ends of one file", move |source| {
            announce(source, 1);
            source.peer.frame(&object(1, 1, 0, b"abc"));
            let ControlMessage::ObjectsDone(_) = source.peer.message() else { panic!("no answer") };
            source.peer.say(abandon(1));
            source.peer.say(end.clone());
        });
    }
    attack_sink("a commit before the file is whole", move |source| {
        announce(source, 1);
        source.peer.frame(&object(1, 1, 0, b"ab"));
        source.peer.say(commit(1));
    });
    attack_sink("a commit without any object", move |source| {
        announce(source, 1);
        source.peer.say(commit(1));
    });
    attack_sink("an object of a file that has ended", move |source| {
        announce(source, 1);
        source.peer.say(abandon(1));
        source.peer.frame(&object(1, 1, 0, b"abc"));
    });
}

#[test]
fn more_open_files_than_allowed_are_refused() {
    attack_sink("one file too many", |source| {
        for id in 1..=carrack_model::limits::OPEN_FILES_MAX as u64 + 1 {
            source.peer.say(open(id, table("", &[(format!("f{id}").as_bytes(), 3)])));
        }
    });
}

#[test]
fn objects_of_files_never_announced_are_bounded_by_credits() {
    attack_sink("one object more than credits", |source| {
        for id in 1..=u64::from(source.credits) + 1 {
            source.peer.frame(&object(id, 100 + id, 0, b"abc"));
        }
    });
    attack_sink("objects that wait for their file at the end", |source| {
        source.peer.frame(&object(1, 9, 0, b"abc"));
        // The object must be parked first: the writer looks for its file before the end is read.
        std::thread::sleep(std::time::Duration::from_millis(300));
        source.peer.say(finish());
    });
}

// A hostile end: frames and messages, to a sink and to a source.

type Break = fn(&mut [u8; 80]);

const BROKEN_FRAMES: [(&str, Break); 8] = [
    ("garbage", |header| *header = [0x5a; 80]),
    ("magic", |header| header[0] = 0),
    ("version", |header| header[4] = 2),
    ("kind", |header| header[5] = 9),
    ("header length", |header| header[6] = 79),
    ("critical flags", |header| header[11] = 1),
    ("control body of 4 GiB", |header| header[12..16].fill(0xff)),
    ("table in a control message", |header| header[40] = 1),
];

#[test]
fn broken_frames_end_the_session() {
    for (what, break_it) in BROKEN_FRAMES {
        let script = move |session: &mut Session| {
            let mut header = FrameHeader::control(4).encode();
            break_it(&mut header);
            session.peer.raw(&header);
        };
        attack_sink(what, script);
        attack_source(what, script);
    }
    attack_sink("object larger than a slot", |source| {
        source.peer.frame(&object(1, 1, 0, &vec![7; SLOT + 1]));
    });
}

#[test]
fn messages_that_nobody_knows_end_the_session() {
    for (what, body) in
        [("nothing", &b""[..]), ("kind 111", b"\xfa\x06\x00"), ("garbage", &[0xff; 50]), ("cut", b"\x52\xff")]
    {
        attack_sink(what, move |session| session.peer.say_body(body));
        attack_source(what, move |session| session.peer.say_body(body));
    }
}

#[test]
fn messages_at_the_wrong_time_end_the_session() {
    let place =
        ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() });
    let both = [
        ControlMessage::Hello(Scripted::hello(&spec())),
        ControlMessage::Welcome(WelcomeMessage::default()),
        place.clone(),
        ControlMessage::DialFailed(message::DialFailureMessage::default()),
        ControlMessage::Dial(message::ListenAddresses::default()),
    ];
    for message in &both {
        let message = message.clone();
        let script = move |session: &mut Session| session.peer.say(message.clone());
        attack_sink("a handshake after the handshake", script.clone());
        attack_source("a handshake after the handshake", script);
    }
    for message in [
        done(&[1], &[]),
        ControlMessage::FileDone(FileReference { id: 1 }),
        ControlMessage::Finished(Default::default()),
    ] {
        attack_sink("what only a sink says", move |source| source.peer.say(message.clone()));
    }
    for message in [open(1, table("", &[(b"f", 3)])), commit(1), abandon(1), finish()] {
        attack_source("what only a source says", move |sink| sink.peer.say(message.clone()));
    }
    attack_sink("the end with a file still open", |source| {
        source.peer.say(open(1, table("", &[(b"f", 3)])));
        source.peer.say(finish());
    });
}

#[test]
fn what_was_sent_before_the_end_is_not_lost_silently() {
    for victim in VICTIMS {
        for _ in 0..20 {
            within(LIMIT_S, move || {
                let world = World::new();
                let mut session = Session::with_sink(victim, &spec(), &world.destination(), 0);
                for n in 1..=6 {
                    let name = format!("f{n}");
                    session.peer.frame(&bundle(n, &[7; 60_000], &table("", &[(name.as_bytes(), 60_000)])));
                }
                session.peer.say(finish());
                let (outcome, _) = session.end();
                if outcome.result.is_ok() {
                    assert_eq!(outcome.summary.files_done, 6, "{victim:?} says that all is well");
                    assert!((1..=6).all(|n| world.path(&format!("dst/f{n}")).exists()));
                }
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn an_object_in_a_dry_run_is_refused() {
    attack_sink_with(AgreedTransferSpec { dry_run: true, ..spec() }, "dry run", |source| {
        source.peer.frame(&bundle(1, b"abc", &table("", &[(b"f", 3)])));
    });
}

#[test]
fn counters_out_of_all_proportion_do_no_harm() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let world = World::new();
            let mut session = Session::with_sink(victim, &spec(), &world.destination(), 0);
            for n in [u64::MAX, 0, u64::MAX] {
                session.peer.say(ControlMessage::Counters(message::CountersMessage {
                    entries_failed: n,
                    idle_ns: n,
                    storage_ns: n,
                    network_ns: n,
                    blocked_ns: n,
                    ..Default::default()
                }));
                std::thread::sleep(std::time::Duration::from_millis(700));
            }
            session.peer.frame(&bundle(1, b"", &table("", &[(b"", 0)])));
            let (outcome, _) = session.end();
            assert!(is_violation(&outcome), "{victim:?}: {:?}", outcome.result);
        });
    }
}

// Removals.

#[test]
fn a_removal_that_nobody_asked_for_is_refused() {
    let prune = |tree: &[u8]| ControlMessage::Prune(message::PruneMessage { trees: vec![tree.to_vec()] });
    attack_sink("a removal in a copy", move |source| source.peer.say(prune(b"")));
    let keeps = AgreedTransferSpec { sync: Some(SyncRules::default()), ..spec() };
    attack_sink_with(keeps, "a removal in a sync without one", move |source| source.peer.say(prune(b"")));
    let deletes = SyncRules { deletion: Some(DeletionRules::default()), ..SyncRules::default() };
    let deletes = AgreedTransferSpec { sync: Some(deletes), ..spec() };
    attack_sink_with(deletes.clone(), "outside", move |source| source.peer.say(prune(b"../outside")));
    attack_sink_with(deletes, "an answer of another size", move |source| {
        source.peer.say(prune(b""));
        source.peer.say(ControlMessage::Stands(message::SourceExistenceReply { id: 1, kinds: vec![0; 7] }));
    });
}

#[test]
fn questions_before_their_time_are_refused() {
    let names = vec![b"small".to_vec()];
    let question = message::SourceExistenceQuery { id: 1, path: Vec::new(), names };
    attack_source("a question in a copy", move |sink| sink.peer.say(ControlMessage::Stand(question.clone())));
    attack_source("an end of nothing", |sink| {
        sink.peer.say(ControlMessage::Pruned(message::DeletionDoneMessage {}))
    });
}

// Damaged objects.

fn xxh3(body: &[u8]) -> [u8; 32] {
    let mut check = [0; 32];
    check[..16].copy_from_slice(&xxh3_128(body).to_le_bytes());
    check
}

#[test]
fn a_sink_asks_again_for_what_arrived_damaged() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let world = World::new();
            let spec = AgreedTransferSpec { checksum: ObjectChecksumAlgorithm::Xxh3, ..spec() };
            let mut session = Session::with_sink(victim, &spec, &world.destination(), 0);
            let peer = &mut session.peer;
            peer.say(open(1, table("", &[(b"large", 6)])));
            let sent = [object(1, 1, 0, b"abcdef"), bundle(2, b"xyz", &table("sub", &[(b"small", 3)]))];
            for (n, (header, body)) in sent.into_iter().enumerate() {
                peer.frame(&(FrameHeader { check: [1; 32], ..header }, body.clone()));
                assert_eq!(peer.message(), done(&[], &[n as u64 + 1]));
                peer.frame(&(FrameHeader { check: xxh3(&body), ..header }, body));
                assert_eq!(peer.message(), done(&[n as u64 + 1], &[]));
            }
            peer.say(commit(1));
            assert_eq!(peer.message(), ControlMessage::FileDone(FileReference { id: 1 }));
            peer.say(finish());
            let (outcome, _) = session.end();
            assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
            assert_eq!((outcome.summary.files_done, outcome.summary.bytes_done), (2, 9));
            assert_eq!(fs::read(world.path("dst/large")).unwrap(), b"abcdef");
            assert_eq!(fs::read(world.path("dst/sub/small")).unwrap(), b"xyz");
            world.assert_unharmed();
        });
    }
}

#[test]
fn a_source_sends_again_what_arrived_damaged() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            write(&dir.path().join("large"), &noise(SLOT + 9, 1));
            let mut session = Session::with_source(victim, &spec(), &[&dir.path().join("large")], 1);
            let peer = &mut session.peer;
            let (header, body) = peer.object();
            peer.say(done(&[], &[header.object.0]));
            let mut seen = Vec::new();
            for _ in 0..2 {
                let (header, body) = peer.object();
                peer.say(done(&[header.object.0], &[]));
                seen.push((header.offset, body));
            }
            assert!(seen.contains(&(header.offset, body)), "the damaged object came again");
            seen.sort();
            assert_eq!(seen.concat_bodies(), noise(SLOT + 9, 1));
            assert_eq!(peer.message(), commit(header.file.0));
            peer.say(ControlMessage::FileDone(FileReference { id: header.file.0 }));
            let ControlMessage::Finish(_) = peer.message() else { panic!("no end") };
            peer.say(ControlMessage::Finished(Default::default()));
            let (outcome, _) = session.end();
            assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
            assert_eq!((outcome.summary.entries_failed, outcome.summary.objects_reread), (0, 1));
        });
    }
}

#[test]
fn an_object_that_is_put_aside_returns_its_credit_once() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let dir = tempfile::tempdir().unwrap();
            write(&dir.path().join("large"), &noise(4 * SLOT, 1));
            let mut session = Session::with_source(victim, &spec(), &[&dir.path().join("large")], 1);
            let peer = &mut session.peer;
            let first = peer.object();
            assert!(peer.objects_in_a_while().is_empty(), "{victim:?}: there was one credit");
            peer.say(set_aside(&[first.0.object.0]));
            let second = peer.object();
            peer.say(done(&[], &[first.0.object.0]));
            assert!(peer.objects_in_a_while().is_empty(), "{victim:?}: its credit was returned before");
            // The credit returns only now; the corrupt object is sent again.
            let mut seen = vec![(second.0.offset, second.1)];
            peer.say(done(&[second.0.object.0], &[]));
            for _ in 0..3 {
                let (header, body) = peer.object();
                peer.say(done(&[header.object.0], &[]));
                seen.push((header.offset, body));
            }
            seen.sort();
            assert_eq!(seen.concat_bodies(), noise(4 * SLOT, 1));
            assert_eq!(peer.message(), commit(first.0.file.0));
            peer.say(ControlMessage::FileDone(FileReference { id: first.0.file.0 }));
            let ControlMessage::Finish(_) = peer.message() else { panic!("no end") };
            peer.say(ControlMessage::Finished(Default::default()));
            assert!(session.end().0.result.is_ok());
        });
    }
}

trait Bodies {
    fn concat_bodies(&self) -> Vec<u8>;
}

impl Bodies for Vec<(u64, Vec<u8>)> {
    fn concat_bodies(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, body)| body.clone()).collect()
    }
}

#[test]
fn a_source_gives_up_what_arrives_damaged_three_times() {
    for victim in VICTIMS {
        for size in [5, 3 * SLOT] {
            within(LIMIT_S, move || {
                let dir = tempfile::tempdir().unwrap();
                write(&dir.path().join("f"), &noise(size, 1));
                let mut session = Session::with_source(victim, &spec(), &[&dir.path().join("f")], 2);
                let (mut tries, mut told) = (0, Vec::new());
                let outcome = loop {
                    match session.peer.hear() {
                        Heard::Object(header, _) if header.offset == 0 => {
                            tries += 1;
                            session.peer.say(done(&[], &[header.object.0]));
                        }
                        Heard::Object(header, _) => session.peer.say(done(&[header.object.0], &[])),
                        Heard::Control(ControlMessage::Finish(_)) => {
                            session.peer.say(ControlMessage::Finished(Default::default()));
                            told.extend(session.recorder.failed());
                            break session.end().0;
                        }
                        Heard::Control(ControlMessage::Failure(failure)) => {
                            told.push((FailureKind::from_code(failure.kind).unwrap(), "f".into()));
                        }
                        Heard::Control(ControlMessage::CommitFile(_)) => panic!("it was never whole"),
                        Heard::Control(_) => {}
                        Heard::Closed => panic!("{victim:?} left"),
                    }
                };
                assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result);
                assert_eq!(tries, 3);
                assert_eq!(told, [(FailureKind::Corrupt, "f".to_string())], "{victim:?}");
                assert_eq!((outcome.summary.entries_failed, outcome.summary.objects_reread), (1, 3));
            });
        }
    }
}

// A hostile sink.

#[test]
fn answers_to_what_was_never_sent_are_refused() {
    for message in [
        done(&[999], &[]),
        ControlMessage::FileDone(FileReference { id: 1 }),
        ControlMessage::FileDone(FileReference { id: 99 }),
    ] {
        attack_source("an answer from nowhere", move |sink| sink.peer.say(message.clone()));
    }
    attack_source("two answers to one object", |sink| {
        let (header, _) = sink.peer.object();
        sink.peer.say(done(&[header.object.0, header.object.0], &[]));
    });
    attack_source("an object put aside that was never sent", |sink| sink.peer.say(set_aside(&[999])));
    attack_source("an object put aside twice", |sink| {
        let (header, _) = sink.peer.object();
        sink.peer.say(set_aside(&[header.object.0]));
        sink.peer.say(set_aside(&[header.object.0]));
    });
    attack_source("an object put aside after its answer", |sink| {
        let (header, _) = sink.peer.object();
        sink.peer.say(done(&[header.object.0], &[]));
        sink.peer.say(set_aside(&[header.object.0]));
    });
    attack_source("the end before the source has said so", |sink| {
        sink.peer.say(ControlMessage::Finished(Default::default()));
    });
    attack_source("an object from the sink", |sink| sink.peer.frame(&object(1, 1, 0, b"abc")));
}

#[test]
fn complaints_about_what_was_never_sent_are_refused() {
    attack_source("a complaint from nowhere", |sink| sink.peer.say(done(&[], &[999])));
}

/// A sink that is done sends its last message and leaves. The source's later messages fail (its counters,
/// every half a second), and this is not a failure of the transfer.
#[test]
fn the_last_word_of_a_sink_that_left_is_heard() {
    for victim in VICTIMS {
        for is_done in [true, false] {
            within(LIMIT_S, move || {
                let dir = tempfile::tempdir().unwrap();
                let mut session = Session::with_source(victim, &spec(), &[dir.path()], 2);
                loop {
                    match session.peer.hear() {
                        Heard::Object(header, _) => session.peer.say(done(&[header.object.0], &[])),
                        Heard::Control(ControlMessage::Finish(_)) => break,
                        Heard::Control(_) => {}
                        Heard::Closed => panic!("{victim:?} left"),
                    }
                }
                session.peer.deafen();
                std::thread::sleep(std::time::Duration::from_millis(700));
                if is_done {
                    session.peer.say(ControlMessage::Finished(Default::default()));
                }
                let outcome = session.hang_up();
                match is_done {
                    true => assert!(outcome.result.is_ok(), "{victim:?}: {:?}", outcome.result),
                    false => assert!(matches!(outcome.result, Err(SessionError::PeerGone)), "{victim:?}"),
                }
            });
        }
    }
}

#[test]
fn a_sink_that_fails_every_file_is_believed() {
    for victim in VICTIMS {
        within(LIMIT_S, move || {
            let dir = some_files();
            let mut session = Session::with_source(victim, &spec(), &[dir.path()], 2);
            loop {
                match session.peer.hear() {
                    Heard::Object(header, _) => session.peer.say(done(&[header.object.0], &[])),
                    Heard::Control(ControlMessage::OpenFile(file)) => {
                        session.peer.say(ControlMessage::FileFailed(FileReference { id: file.id }));
                        // A repeated failure and the failure of an unknown file have no effect.
                        session.peer.say(ControlMessage::FileFailed(FileReference { id: file.id }));
                        session.peer.say(ControlMessage::FileFailed(FileReference { id: 77 }));
                    }
                    Heard::Control(ControlMessage::CommitFile(_)) => panic!("it was given up"),
                    Heard::Control(ControlMessage::Finish(_)) => break,
                    Heard::Control(_) => {}
                    Heard::Closed => panic!("{victim:?} left"),
                }
            }
            session.peer.say(ControlMessage::Finished(Default::default()));
            assert!(session.end().0.result.is_ok());
        });
    }
}

#[test]
fn a_sink_that_describes_itself_as_nothing_that_exists_is_refused() {
    for sink in [
        SinkHandshakeFacts { destination: 9, ..Scripted::sink_state(4) },
        SinkHandshakeFacts { destination: 0, name: b"../x".to_vec(), ..Scripted::sink_state(4) },
        SinkHandshakeFacts { destination: 0, name: b"".to_vec(), ..Scripted::sink_state(4) },
    ] {
        for victim in VICTIMS {
            let sink = Some(sink.clone());
            within(LIMIT_S, move || {
                let dir = some_files();
                let mut session = Session::begin(
                    victim,
                    transfer(&[&dir.path().join("small")], Path::new("x")),
                    SessionRole::Source,
                );
                session.peer.preambles();
                match victim {
                    Victim::Called => {
                        let sources = vec![dir.path().join("small").into_os_string().into_encoded_bytes()];
                        let hello = HelloMessage { sources, sink, ..Scripted::hello(&spec()) };
                        session.peer.say(ControlMessage::Hello(hello));
                    }
                    Victim::Caller => {
                        session.peer.say(ControlMessage::Welcome(WelcomeMessage {
                            sink,
                            lanes: 1,
                            ..WelcomeMessage::default()
                        }));
                    }
                }
                let (outcome, said) = session.end();
                assert!(outcome.result.is_err(), "{victim:?}");
                assert!(reason(&said).is_some(), "{victim:?}");
            });
        }
    }
}

// The root of the tree, which the sink alone decides.

#[test]
fn a_source_cannot_move_the_root_out_of_the_destination() {
    for root in [1, 2, 3, u32::MAX] {
        for victim in VICTIMS {
            within(LIMIT_S, move || {
                let world = World::new();
                let mut session = Session::with_sink(victim, &spec(), &world.destination(), root);
                session.peer.frame(&bundle(1, b"abc", &table("", &[(b"evil", 3)])));
                session.peer.say(finish());
                let (outcome, _) = session.end();
                assert!(is_violation(&outcome), "{root}, {victim:?}: {:?}", outcome.result);
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn a_source_of_one_file_cannot_choose_its_name() {
    for victim in VICTIMS {
        for (table, content) in [
            (table("", &[(b"evil", 3)]), &b"abc"[..]),
            (table("dst", &[(b"evil", 3)]), b"abc"),
            (link_table("", "evil", "x"), b""),
        ] {
            within(LIMIT_S, move || {
                let world = World::new();
                let mut session = Session::with_sink(victim, &spec(), &world.path("new"), 2);
                session.peer.frame(&bundle(1, content, &table));
                session.peer.say(finish());
                let (outcome, _) = session.end();
                assert!(is_violation(&outcome), "{victim:?}: {:?}", outcome.result);
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn a_called_source_sends_only_what_was_asked_for() {
    for (table, content) in [
        (table("", &[(b".bashrc", 3)]), &b"abc"[..]),
        (table(".ssh", &[(b"authorized_keys", 3)]), b"abc"),
        (link_table("", "evil", "x"), b""),
    ] {
        within(LIMIT_S, move || {
            let world = World::new();
            let (asked, destination) = (std::path::Path::new("/some/file"), world.destination());
            let mut session = Session::with_sink_that_asked(Victim::Caller, asked, &spec(), &destination, 0);
            session.peer.frame(&bundle(1, content, &table));
            session.peer.say(finish());
            let (outcome, _) = session.end();
            assert!(is_violation(&outcome), "{:?}", outcome.result);
            world.assert_unharmed();
        });
    }
}

// The handshake.

#[test]
fn greetings_that_lie_are_refused() {
    let good = Scripted::hello(&spec());
    let with = |change: &dyn Fn(&mut AgreedTransferSpec)| {
        let mut spec = spec();
        change(&mut spec);
        HelloMessage { spec: to_json(&spec), ..good.clone() }
    };
    let settings = |settings: &str| HelloMessage { settings: settings.into(), ..good.clone() };
    let hellos = [
        HelloMessage { spec: String::new(), ..good.clone() },
        HelloMessage { spec: good.spec.replacen("\"Private\"", "\"None\"", 1), ..good.clone() },
        settings(""),
        HelloMessage { session_key: vec![7; 31], ..good.clone() },
        HelloMessage { session_key: Vec::new(), ..good.clone() },
        with(&|spec| spec.slot_bytes = 0),
        with(&|spec| spec.slot_bytes = u32::MAX),
        with(&|spec| spec.slot_bytes = SLOT as u32 + 1),
        with(&|spec| spec.streams = u16::MAX),
        settings(r#"{"pool_bytes":18446744073709551615}"#),
        settings(r#"{"ports":{"start":70000,"end":70001}}"#),
        settings(r#"{"stall":{"secs":18446744073709551615,"nanos":0}}"#),
        settings(r#"{"of_the_future":true}"#),
    ];
    for hello in hellos {
        within(LIMIT_S, move || {
            let world = World::new();
            let destination = Some(world.destination().into_os_string().into_encoded_bytes());
            let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
            session.peer.preambles();
            session.peer.say(ControlMessage::Hello(HelloMessage { destination, ..hello.clone() }));
            let (outcome, said) = session.end();
            assert!(outcome.result.is_err(), "{hello:?}");
            assert!(reason(&said).is_some(), "{hello:?}");
            world.assert_unharmed();
        });
    }
}

#[test]
fn something_else_than_the_next_step_of_the_handshake_is_refused() {
    within(LIMIT_S, || {
        let world = World::new();
        for first in [
            finish(),
            ControlMessage::Welcome(WelcomeMessage::default()),
            ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }),
        ] {
            let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
            session.peer.preambles();
            session.peer.say(first);
            assert!(is_violation(&session.end().0));
        }
        let hello = || HelloMessage {
            destination: Some(world.destination().into_os_string().into_encoded_bytes()),
            ..Scripted::hello(&spec())
        };
        // A second hello; no place after the welcome; a session without data connections.
        for second in [ControlMessage::Hello(hello()), finish()] {
            let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
            session.peer.preambles();
            session.peer.say(ControlMessage::Hello(hello()));
            session.peer.say(second);
            assert!(is_violation(&session.end().0));
        }
        for third in [
            ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }),
            finish(),
            ControlMessage::Welcome(WelcomeMessage::default()),
        ] {
            let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
            session.peer.preambles();
            session.peer.say(ControlMessage::Hello(hello()));
            session.peer.say(ControlMessage::Place(DestinationRootMessage {
                root: 0,
                ..DestinationRootMessage::default()
            }));
            session.peer.say(third);
            assert!(is_violation(&session.end().0));
        }
        for first in [finish(), ControlMessage::Hello(hello())] {
            let transfer = transfer(&[&world.path("outside")], Path::new("x"));
            let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Source);
            session.peer.preambles();
            session.peer.say(first);
            assert!(is_violation(&session.end().0));
        }
        for welcome in [
            WelcomeMessage::default(),
            WelcomeMessage {
                place: Some(DestinationRootMessage { root: 9, ..DestinationRootMessage::default() }),
                lanes: 1,
                ..WelcomeMessage::default()
            },
        ] {
            for role in [SessionRole::Source, SessionRole::Sink] {
                let transfer = transfer(&[&world.path("outside")], &world.destination());
                let mut session = Session::begin(Victim::Caller, transfer, role);
                session.peer.preambles();
                session.peer.say(ControlMessage::Welcome(welcome.clone()));
                assert!(is_violation(&session.end().0));
            }
        }
        world.assert_unharmed();
    });
}

#[test]
fn an_end_that_tells_to_dial_nowhere_gets_an_answer() {
    within(LIMIT_S, || {
        let world = World::new();
        for (port, addresses) in [
            (70_000, vec!["127.0.0.1".into()]),
            (0, vec!["127.0.0.1".into(); 1000]),
            (1, vec!["not an address\x1b[2J".into(), "127.0.0.1".into()]),
        ] {
            let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
            session.peer.preambles();
            session.peer.say(ControlMessage::Hello(HelloMessage {
                destination: Some(world.destination().into_os_string().into_encoded_bytes()),
                ..Scripted::hello(&spec())
            }));
            let ControlMessage::Welcome(_) = session.peer.message() else { panic!("no welcome") };
            session.peer.say(ControlMessage::Place(DestinationRootMessage {
                root: 0,
                ..DestinationRootMessage::default()
            }));
            session.peer.say(ControlMessage::Dial(message::ListenAddresses {
                port,
                addresses,
                nonce: vec![1; 32],
            }));
            let ControlMessage::DialFailed(_) = session.peer.message() else { panic!("no answer") };
            session.peer.say(finish());
            assert!(session.end().0.result.is_ok());
        }
        world.assert_unharmed();
    });
}

#[test]
fn versions_without_overlap_are_named_at_both_ends() {
    for victim in VICTIMS {
        let after = PROTOCOL_VERSION + 1;
        for (version_min, version_max) in [(after, after + 1), (0, PROTOCOL_VERSION_MIN - 1), (after, after)]
        {
            within(LIMIT_S, move || {
                let mut session = Session::begin(victim, transfer(&[], Path::new(".")), SessionRole::Sink);
                session.peer.raw(&Preamble { version_min, version_max }.encode());
                let (outcome, _) = session.end_raw();
                let Err(error @ SessionError::Version(_)) = &outcome.result else {
                    panic!("{:?}", outcome.result)
                };
                assert!(error.to_string().contains(&format!("{version_min} to {version_max}")), "{error}");
                assert!(error.hint().unwrap().contains("same version"));
            });
        }
    }
}

trait EndRaw {
    /// Ends the session as `end` does, but returns the other end's bytes undecoded.
    fn end_raw(self) -> (TransferOutcome, Vec<u8>);
}

impl EndRaw for Session {
    fn end_raw(mut self) -> (TransferOutcome, Vec<u8>) {
        let heard = self.peer.raw_rest();
        (self.hang_up(), heard)
    }
}

#[test]
fn the_called_end_says_its_version_even_if_it_refuses() {
    within(LIMIT_S, || {
        let mut session = Session::begin(Victim::Called, transfer(&[], Path::new(".")), SessionRole::Sink);
        session
            .peer
            .raw(&Preamble { version_min: PROTOCOL_VERSION + 1, version_max: PROTOCOL_VERSION + 1 }.encode());
        let (_, heard) = session.end_raw();
        assert_eq!(heard, Preamble::OURS.encode());
    });
}

#[test]
fn who_does_not_speak_the_protocol_is_refused() {
    within(LIMIT_S, || {
        for text in ["GET / HTTP/1.0\r\n\r\n", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "carrack", ""] {
            let mut session =
                Session::begin(Victim::Called, transfer(&[], Path::new(".")), SessionRole::Sink);
            session.peer.raw(text.as_bytes());
            let outcome = session.hang_up();
            assert!(
                matches!(outcome.result, Err(SessionError::NotCarrack(_) | SessionError::PeerSilent)),
                "{:?}",
                outcome.result
            );
        }
        let mut session = Session::begin(Victim::Caller, transfer(&[], Path::new(".")), SessionRole::Sink);
        session.peer.raw(b"bash: carrack: \x1b[31mcommand not found\n");
        let outcome = session.hang_up();
        let Err(SessionError::NotCarrack(text)) = outcome.result else { panic!("{:?}", outcome.result) };
        assert!(text.contains("command not found") && !text.contains('\x1b'), "{text}");
    });
}

#[test]
fn a_login_shell_may_greet_first_but_not_for_ever() {
    within(LIMIT_S, || {
        let world = World::new();
        let transfer = || transfer(&[Path::new("/nothing")], &world.destination());
        let mut session = Session::begin(Victim::Caller, transfer(), SessionRole::Sink);
        session.peer.raw(b"Welcome to carrack-host!\nLast login: yesterday, carrack and all\n");
        session.peer.preambles();
        let ControlMessage::Hello(_) = session.peer.message() else { panic!("no hello") };
        session.peer.say(ControlMessage::Welcome(WelcomeMessage {
            place: Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }),
            lanes: 1,
            ..WelcomeMessage::default()
        }));
        let ControlMessage::Dial(_) = session.peer.message() else { panic!("no dial") };
        session.peer.say(ControlMessage::DialFailed(message::DialFailureMessage::default()));
        session.peer.say(finish());
        assert!(session.end().0.result.is_ok());

        let mut session = Session::begin(Victim::Caller, transfer(), SessionRole::Sink);
        let mut sent = 0;
        while sent < 1 << 20 && session.peer.raw(&[b'?'; 1000]) {
            sent += 1000;
        }
        assert!(sent < 1 << 20, "nobody stopped the greeting");
        let outcome = session.hang_up();
        let Err(SessionError::NotCarrack(text)) = outcome.result else { panic!("{:?}", outcome.result) };
        assert!(text.len() < 1000);

        // The responder allows no text before the preamble, as its initiator is always carrack.
        let mut session = Session::begin(Victim::Called, transfer(), SessionRole::Sink);
        session.peer.raw(b"hello\n");
        session.peer.raw(&Preamble::OURS.encode());
        assert!(matches!(session.end_raw().0.result, Err(SessionError::NotCarrack(_))));
        world.assert_unharmed();
    });
}

// Ends that break off.

/// Returns the pieces of a whole session of a hostile source with a sink as responder.
fn pieces_for_called_sink(world: &World) -> Vec<Vec<u8>> {
    let frame = |message: ControlMessage| {
        let body = message.to_body();
        [&FrameHeader::control(body.len() as u32).encode()[..], &body].concat()
    };
    let object = |(header, body): (FrameHeader, Vec<u8>)| [&header.encode()[..], &body].concat();
    vec![
        Preamble::OURS.encode().to_vec(),
        frame(ControlMessage::Hello(HelloMessage {
            destination: Some(world.destination().into_os_string().into_encoded_bytes()),
            ..Scripted::hello(&spec())
        })),
        frame(ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() })),
        frame(ControlMessage::DialFailed(message::DialFailureMessage::default())),
        frame(open(1, table("", &[(b"large", 2 * SLOT as u64)]))),
        object(object_of(1, 0)),
        object(bundle(2, b"abc", &table("sub", &[(b"small", 3)]))),
        object(object_of(3, SLOT as u64)),
    ]
}

fn object_of(id: u64, offset: u64) -> (FrameHeader, Vec<u8>) {
    object(id, 1, offset, &[7; SLOT])
}

#[test]
fn a_source_that_dies_anywhere_leaves_no_trace() {
    let count = pieces_for_called_sink(&World::new()).len();
    for last in 0..count {
        // The session ends within a piece and after it.
        for part in [1, 2, 3] {
            within(LIMIT_S, move || {
                let world = World::new();
                let pieces = pieces_for_called_sink(&world);
                let mut session =
                    Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
                pieces[..last].iter().for_each(|piece| assert!(session.peer.raw(piece)));
                let cut = pieces[last].len() * part / 3;
                session.peer.raw(&pieces[last][..cut]);
                let outcome = session.hang_up();
                let is_cut = matches!(
                    outcome.result,
                    Err(SessionError::PeerGone | SessionError::PeerSilent | SessionError::NotCarrack(_))
                );
                assert!(is_cut, "{last}, {part}: {:?}", outcome.result);
                assert!(!world.path("dst/large").exists());
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn a_called_end_that_dies_anywhere_ends_the_caller() {
    let frame = |message: ControlMessage| {
        let body = message.to_body();
        [&FrameHeader::control(body.len() as u32).encode()[..], &body].concat()
    };
    let welcome = WelcomeMessage {
        place: Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }),
        lanes: 1,
        ..WelcomeMessage::default()
    };
    let pieces = [
        Preamble::OURS.encode().to_vec(),
        frame(ControlMessage::Welcome(welcome)),
        frame(ControlMessage::DialFailed(message::DialFailureMessage::default())),
        frame(open(1, table("", &[(b"large", 2 * SLOT as u64)]))),
        [&object_of(1, 0).0.encode()[..], &[7; SLOT]].concat(),
    ];
    for last in 0..pieces.len() {
        for part in [1, 2, 3] {
            let pieces = pieces.clone();
            within(LIMIT_S, move || {
                let world = World::new();
                let transfer = transfer(&[Path::new("/nothing/")], &world.destination());
                let mut session = Session::begin(Victim::Caller, transfer, SessionRole::Sink);
                pieces[..last].iter().for_each(|piece| assert!(session.peer.raw(piece)));
                let cut = pieces[last].len() * part / 3;
                session.peer.raw(&pieces[last][..cut]);
                let outcome = session.hang_up();
                assert!(outcome.result.is_err(), "{last}, {part}");
                assert!(!is_violation(&outcome), "{last}, {part}: {:?}", outcome.result);
                assert!(!world.path("dst/large").exists());
                world.assert_unharmed();
            });
        }
    }
}

#[test]
fn a_sink_that_dies_ends_the_source() {
    for victim in VICTIMS {
        for objects in [0, 1, 2] {
            within(LIMIT_S, move || {
                let dir = some_files();
                let mut session = Session::with_source(victim, &spec(), &[dir.path()], 2);
                (0..objects).for_each(|_| {
                    session.peer.object();
                });
                let outcome = session.hang_up();
                assert!(matches!(outcome.result, Err(SessionError::PeerGone)), "{:?}", outcome.result);
            });
        }
    }
}

#[test]
fn a_peer_cannot_drive_the_terminal() {
    within(LIMIT_S, || {
        let world = World::new();
        let mut session = Session::with_sink(Victim::Caller, &spec(), &world.destination(), 0);
        let text = "\x1b]0;owned\x07\x1b[2J".to_string();
        session.peer.say(ControlMessage::Failure(message::FailureMessage {
            path: b"x".to_vec(),
            kind: 99,
            detail: text.clone(),
        }));
        session.peer.say(ControlMessage::Notice(message::NoticeMessage {
            kind: 1,
            text: text.clone(),
            ..Default::default()
        }));
        let reason =
            message::RefuseMessage { message: text.clone(), hint: text, reason: 0, retry_after_ms: 0 };
        session.peer.say(ControlMessage::Abort(reason));
        let recorder = session.recorder.clone();
        let (outcome, _) = session.end();
        for event in recorder.events() {
            let shown = match event {
                TransferEvent::Failed(failure) => failure.to_string(),
                TransferEvent::Notice(carrack_model::UserNotice::Warning(text)) => text,
                _ => continue,
            };
            assert!(!shown.contains('\x1b'), "{shown:?}");
        }
        // The escape sequences in the error stay: the code that prints it escapes them.
        assert!(matches!(outcome.result, Err(SessionError::PeerAborted { .. })));
    });
}

/// An [`AccessPolicy`] with an idle limit.
struct Impatient;

impl AccessPolicy for Impatient {
    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        let admission = ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Clear).admit(request)?;
        let settings = EndSettings { idle: Some(Duration::from_secs(1)), ..admission.settings };
        Ok(AdmittedCallerRights { settings, ..admission })
    }
}

/// Peers that keep a session alive and transfer nothing.
#[test]
fn a_session_in_which_nothing_moves_comes_to_an_end() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/f"), b"abc");
        for as_sink in [false, true] {
            let (here, (input, output)) = channel();
            let serving = thread::spawn(move || {
                serve(ControlChannel::Pipes { input, output }, &Impatient, &AbortHandle::new().unwrap())
            });
            let mut peer = Scripted::new(here);
            peer.preambles();
            let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
            let hello = match as_sink {
                true => HelloMessage {
                    sources: vec![bytes(&dir.path().join("src"))],
                    sink: Some(Scripted::sink_state(0)),
                    ..Scripted::hello(&spec())
                },
                false => HelloMessage { destination: Some(bytes(dir.path())), ..Scripted::hello(&spec()) },
            };
            peer.say(ControlMessage::Hello(hello));
            let ControlMessage::Welcome(_) = peer.message() else { panic!("no welcome") };
            if !as_sink {
                peer.say(ControlMessage::Place(DestinationRootMessage {
                    root: 0,
                    ..DestinationRootMessage::default()
                }));
            }
            peer.say(ControlMessage::DialFailed(DialFailureMessage { problem: "a test".into() }));
            let began = Instant::now();
            let counters = |n| {
                ControlMessage::Counters(CountersMessage {
                    bytes_done: n,
                    entries_found: n,
                    ..CountersMessage::default()
                })
            };
            for n in 0.. {
                // The peer's claims of progress do not count.
                peer.say(counters(n));
                thread::sleep(Duration::from_millis(100));
                if serving.is_finished() {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(LIMIT_S / 2), "it waits for ever");
            }
            let outcome = serving.join().unwrap();
            assert!(matches!(outcome.result, Err(SessionError::Idle(1))), "{outcome:?}");
        }
    });
}
