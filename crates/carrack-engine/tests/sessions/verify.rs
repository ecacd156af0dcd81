//! Sessions that compare files: the limits that each end sets the other, and the request for the consent of a
//! [`AccessPolicy`].

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::{self, JoinHandle};

use carrack_engine::{
    AbortHandle, AccessPolicy, ControlChannel, EntryDifference, EqualPairs, MetadataChecks,
    ProcessOwnerAccessPolicy, SessionError, SessionRole, TransferOutcome, TreeVerification,
    VerifyEndExaminer, VerifyEndSettings, VerifyFinding, VerifyTotals, serve,
};
use carrack_model::{ProtectionLevel, RelPath};
use carrack_wire::message::{
    ControlMessage, ExaminedEntriesMessage, HashPiecesRequest, LookRequest, PieceDigestsMessage,
    RefuseMessage, VerifyDoneMessage, VerifyEntryMessage, VerifyOpenMessage, WalkRequest, WalkedNamesMessage,
};

use crate::common::export::ExportHouse;
use crate::common::scripted::{Heard, Scripted};
use crate::common::*;

const LIMIT_S: u64 = 60;

fn answering<H: AccessPolicy + Send + 'static>(access_policy: H) -> (Scripted, JoinHandle<TransferOutcome>) {
    let (here, (input, output)) = channel();
    let abort = AbortHandle::new().unwrap();
    let serving =
        thread::spawn(move || serve(ControlChannel::Pipes { input, output }, &access_policy, &abort));
    let mut caller = Scripted::new(here);
    caller.preambles();
    (caller, serving)
}

fn begin(path: &Path) -> ControlMessage {
    let path = path.to_str().unwrap().as_bytes().to_vec();
    ControlMessage::Verify(VerifyOpenMessage {
        path,
        is_destination: true,
        threads: 2,
        ..VerifyOpenMessage::default()
    })
}

fn own_house() -> ProcessOwnerAccessPolicy {
    ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Private)
}

fn look(directory: &str, names: &[&str]) -> ControlMessage {
    let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    ControlMessage::Look(LookRequest {
        directory: directory.into(),
        names,
        digests: true,
        ..LookRequest::default()
    })
}

fn seen(caller: &mut Scripted, directory: &str, names: &[&str]) -> Vec<VerifyEntryMessage> {
    caller.say(look(directory, names));
    let ControlMessage::Seen(seen) = caller.message() else { panic!() };
    seen.sights
}

#[test]
fn nothing_outside_of_an_export_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(&root.join("export/d/f"), b"inside");
    write(&root.join("secret/f"), b"secret");
    for (name, target) in
        [("up", ".."), ("secret", "../secret"), ("d/file", "../../secret/f"), ("etc", "/etc")]
    {
        symlink(target, root.join("export").join(name)).unwrap();
    }
    let access_policy = || ExportHouse::new(&root.join("export"), ProtectionLevel::Private);
    let (mut caller, serving) = answering(access_policy());
    caller.say(begin(Path::new("/data")));
    let inside = seen(&mut caller, "d", &["f", "file"]);
    assert_eq!((inside[0].kind, &*inside[0].digest), (1, &blake3::hash(b"inside").as_bytes()[..]));
    assert_eq!(inside[1].kind, 3, "a link is itself");
    for directory in ["up", "secret", "up/secret", "etc", "d/f", "d/file"] {
        let kinds: Vec<u32> = seen(&mut caller, directory, &["f", "passwd"]).iter().map(|s| s.kind).collect();
        assert_eq!(kinds, [8, 8], "{directory}");
        let of = HashPiecesRequest {
            directory: directory.into(),
            name: b"f".into(),
            file_size: 6,
            len: 6,
            offset: 0,
            piece_bytes: 1_024,
            by_itself: false,
        };
        caller.say(ControlMessage::HashPieces(of));
        let ControlMessage::Pieces(PieceDigestsMessage { values, problem }) = caller.message() else {
            panic!()
        };
        assert!(values.is_empty() && !problem.is_empty(), "{directory}");
        caller.say(ControlMessage::WalkOn(WalkRequest { beneath: directory.into(), specials: true }));
        let ControlMessage::Walked(walked) = caller.message() else { panic!() };
        assert!(walked.failure.is_some() && walked.names.is_empty(), "{walked:?}");
    }
    caller.say(ControlMessage::VerifyEnd(VerifyDoneMessage {}));
    assert_eq!(caller.rest(), []);
    assert!(within(LIMIT_S, move || serving.join().unwrap()).result.is_ok());
    for path in ["/data/up", "/data/secret", "/data/etc", "/data/up/secret", "/data/.."] {
        let (mut caller, serving) = answering(access_policy());
        caller.say(begin(Path::new(path)));
        let kinds: Vec<u32> = seen(&mut caller, "", &["f", "passwd"]).iter().map(|s| s.kind).collect();
        assert!(!kinds.contains(&1), "{path}: {kinds:?}");
        drop(caller);
        within(LIMIT_S, move || serving.join().unwrap());
    }
    let (mut caller, serving) = answering(access_policy());
    caller.say(begin(Path::new("/other")));
    assert!(matches!(&caller.rest()[..], [ControlMessage::Refuse(_)]));
    assert!(serving.join().unwrap().result.is_err());
}

#[test]
fn a_called_end_answers_questions_only_and_not_too_many() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("f"), b"x");
    let pieces = HashPiecesRequest {
        name: b"f".into(),
        file_size: 1,
        len: 1,
        offset: 0,
        piece_bytes: 1_024,
        by_itself: false,
        directory: vec![],
    };
    let wrong: Vec<Vec<ControlMessage>> = vec![
        vec![look("..", &["f"])],
        vec![look("", &["../f"])],
        vec![look("", &["f"; 258])],
        vec![ControlMessage::WalkOn(WalkRequest { beneath: b"/etc".to_vec(), specials: false })],
        vec![ControlMessage::HashPieces(HashPiecesRequest { piece_bytes: 0, ..pieces.clone() })],
        vec![ControlMessage::HashPieces(HashPiecesRequest { len: 2, ..pieces.clone() })],
        vec![ControlMessage::HashPieces(HashPiecesRequest { file_size: u64::MAX, len: u64::MAX, ..pieces })],
        vec![ControlMessage::Seen(ExaminedEntriesMessage::default())],
        vec![begin(dir.path())],
        vec![ControlMessage::VerifyEnd(VerifyDoneMessage {}), look("", &["f"])],
        (0..5_000).map(|_| look("", &["f"])).collect(),
    ];
    for said in wrong {
        let shown = format!("{:.80?}", said[0]);
        let (mut caller, serving) = answering(own_house());
        caller.say(begin(dir.path()));
        said.into_iter().for_each(|message| caller.say(message));
        let heard = within(LIMIT_S, move || caller.rest());
        let served = within(LIMIT_S, move || serving.join().unwrap());
        // Messages after the end may stay unread.
        let is_over = shown.starts_with("VerifyEnd") && served.result.is_ok();
        assert!(is_over || matches!(heard.last(), Some(ControlMessage::Refuse(_))), "{shown}: {heard:?}");
        assert!(is_over || served.result.is_err(), "{shown}");
    }
}

/// Returns the caller's results for a destination that gives these answers in order.
fn hear(answers: Vec<ControlMessage>) -> (Result<(), SessionError>, Vec<VerifyFinding>, VerifyTotals) {
    within(LIMIT_S, move || {
        let (here, there) = channel();
        let answering = thread::spawn(move || {
            let mut peer = Scripted::new(there);
            peer.preambles();
            let Heard::Control(ControlMessage::Verify(_)) = peer.hear() else { panic!("no verify") };
            for answer in answers {
                let Heard::Control(_) = peer.hear() else { return };
                peer.say(answer);
            }
        });
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        let abort = AbortHandle::new().unwrap();
        let how = VerifyEndSettings { is_destination: true, ..VerifyEndSettings::default() };
        let mut source =
            VerifyEndExaminer::open_local(dir.path(), VerifyEndSettings::default(), &abort).unwrap();
        let mut sink = VerifyEndExaminer::open_remote(peer(here), Path::new("/x"), how, &abort).unwrap();
        let (mut findings, mut kept) = (Vec::new(), EqualPairs::disabled());
        let mut told = |finding| findings.push(finding);
        let mut verifying =
            TreeVerification::new(&mut sink, &mut kept, &mut told).checking(MetadataChecks::contents_only());
        let ended = verifying.compare_tree(&mut source, &RelPath::root(), false);
        let verified = verifying.totals();
        drop(sink);
        answering.join().unwrap();
        (ended, findings, verified)
    })
}

fn sights(sights: &[(u32, u64, &[u8])]) -> ControlMessage {
    let sight = |&(kind, size, digest): &(u32, u64, &[u8])| VerifyEntryMessage {
        kind,
        size,
        digest: digest.into(),
        ..VerifyEntryMessage::default()
    };
    ControlMessage::Seen(ExaminedEntriesMessage { sights: sights.iter().map(sight).collect() })
}

#[test]
fn a_destination_that_lies_about_the_form_ends_it() {
    let names = [(2, 0, &b""[..]), (1, 7, b"")];
    let digest = *blake3::hash(b"content").as_bytes();
    let (ended, findings, verified) = hear(vec![sights(&names), sights(&[(1, 7, &digest)])]);
    assert!(ended.is_ok() && findings.is_empty() && verified.equal == 2, "{ended:?} {findings:?}");
    for wrong in [
        vec![sights(&names[..1])],
        vec![sights(&[names[0], (1, 7, &digest)])],
        vec![ControlMessage::Pieces(PieceDigestsMessage::default())],
        vec![ControlMessage::Walked(WalkedNamesMessage::default())],
        vec![sights(&names), sights(&[(1, 7, &digest[1..])])],
        vec![
            sights(&names),
            sights(&[(1, 7, &[7; 32])]),
            ControlMessage::Pieces(PieceDigestsMessage { values: vec![0; 33], problem: String::new() }),
        ],
    ] {
        let (ended, findings, verified) = hear(wrong);
        let Err(SessionError::At { role: SessionRole::Sink, error }) = ended else { panic!("{ended:?}") };
        assert!(error.is_protocol_violation() && findings.is_empty() && verified.equal < 2, "{error}");
    }
    let refuse = ControlMessage::Refuse(RefuseMessage {
        message: "no".into(),
        hint: "ask".into(),
        reason: 0,
        retry_after_ms: 0,
    });
    let (ended, ..) = hear(vec![refuse]);
    let Err(SessionError::At { error, .. }) = ended else { panic!("{ended:?}") };
    assert!(matches!(*error, SessionError::Refused { .. }), "{error:?}");
    let (ended, ..) = hear(vec![]);
    let Err(SessionError::At { error, .. }) = ended else { panic!("{ended:?}") };
    assert!(matches!(*error, SessionError::PeerGone), "{error:?}");
}

#[test]
fn a_file_that_differed_once_is_not_called_equal() {
    let names = [(2, 0, &b""[..]), (1, 7, b"")];
    let digest = *blake3::hash(b"content").as_bytes();
    let pieces = |values: &[u8]| {
        ControlMessage::Pieces(PieceDigestsMessage { values: values.into(), problem: String::new() })
    };
    // The second read is correct.
    let (_, findings, verified) = hear(vec![sights(&names), sights(&[(1, 7, &[7; 32])]), pieces(&digest)]);
    assert!(
        matches!(&findings[0].what, EntryDifference::Content { ranges, .. } if ranges[0].len == 7),
        "{findings:?}"
    );
    assert_eq!((verified.equal, verified.differing), (1, 1));
    let unread =
        ControlMessage::Pieces(PieceDigestsMessage { values: vec![], problem: "I/O \x1berror".into() });
    let (_, findings, _) = hear(vec![sights(&names), sights(&[(1, 7, &[7; 32])]), unread]);
    assert!(
        matches!(&findings[0].what, EntryDifference::Unreadable { detail, .. } if detail == "I/O \\u{1b}error"),
        "{findings:?}"
    );
}
