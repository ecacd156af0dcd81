//! Listing, making and removing entries at the other end: the caller's results, and the limits that each end
//! sets the other.

use std::fs;
use std::ops::ControlFlow::{Break, Continue};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carrack_engine::{
    AbortHandle, AccessPolicy, BrowseItem, BrowsedKind, ControlChannel, ListedEntry, PathOperationRequest,
    ProcessOwnerAccessPolicy, RemotePathOperation, RemotePathOperationCounts, SessionError, TransferOutcome,
    perform_local_operation, perform_remote_operation, serve,
};
use carrack_model::ProtectionLevel;
use carrack_wire::message::{
    BrowseDone, BrowsedEntriesMessage, BrowsedEntry, ControlMessage, DestinationRootMessage, FailureMessage,
    KeepaliveMessage, PathOperationMessage, RefuseMessage, WelcomeMessage,
};

use crate::common::export::ExportHouse;
use crate::common::scripted::{Heard, Scripted};
use crate::common::*;

const LIMIT_S: u64 = 60;

type Answer = (Result<RemotePathOperationCounts, SessionError>, Vec<BrowseItem>);

fn own_house() -> ProcessOwnerAccessPolicy {
    ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Private)
}

/// Starts the responder on a thread.
fn answering<H: AccessPolicy + Send + 'static>(
    access_policy: H,
    abort: AbortHandle,
) -> (Scripted, JoinHandle<TransferOutcome>) {
    let (here, (input, output)) = channel();
    let serving =
        thread::spawn(move || serve(ControlChannel::Pipes { input, output }, &access_policy, &abort));
    (Scripted::new(here), serving)
}

fn ask(
    access_policy: impl AccessPolicy + Send + 'static,
    operation: RemotePathOperation,
    path: &Path,
    token: &str,
) -> Answer {
    let (here, (input, output)) = channel();
    let serving = thread::spawn(move || {
        serve(ControlChannel::Pipes { input, output }, &access_policy, &AbortHandle::new().unwrap())
    });
    let mut found = Vec::new();
    let mut peer = peer(here);
    peer.token = token.into();
    let browsing = PathOperationRequest { operation, path: path.into() };
    let done = perform_remote_operation(
        peer,
        &browsing,
        &mut |one| {
            found.push(one);
            Continue(())
        },
        &AbortHandle::new().unwrap(),
    );
    let served = serving.join().unwrap();
    assert_eq!(done.is_ok(), served.result.is_ok(), "{done:?} {served:?}");
    (done, found)
}

fn here(operation: RemotePathOperation, path: &Path) -> Answer {
    let mut found = Vec::new();
    let browsing = PathOperationRequest { operation, path: path.into() };
    let mut keep = |one| {
        found.push(one);
        Continue(())
    };
    let done = perform_local_operation(&browsing, &mut keep, &AbortHandle::new().unwrap());
    (done, found)
}

fn sorted((done, mut found): Answer) -> (String, Vec<BrowseItem>) {
    found.sort_by_key(|one| format!("{one:?}"));
    (format!("{done:?}"), found)
}

fn entries(found: &[BrowseItem]) -> Vec<&ListedEntry> {
    fn entry(one: &BrowseItem) -> &ListedEntry {
        match one {
            BrowseItem::Entry(entry) => entry,
            other => panic!("{other:?}"),
        }
    }
    found.iter().map(entry).collect()
}

#[test]
fn the_far_end_sees_what_this_one_sees() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    rich_tree(root);
    fs::set_permissions(root.join("sizes/4095"), fs::Permissions::from_mode(0o4751)).unwrap();
    for operation in [RemotePathOperation::List, RemotePathOperation::Stat] {
        for path in
            ["", "names", "names/", "sizes/4095", "link", "link-to-directory", "dangling", "none", "link/x"]
        {
            let path = root.join(path);
            let far = sorted(ask(own_house(), operation, &path, ""));
            assert_eq!(far, sorted(here(operation, &path)), "{operation:?} {path:?}");
        }
    }
    let (_, found) = ask(own_house(), RemotePathOperation::List, &root.join("sizes/4095"), "");
    let entry = entries(&found)[0].clone();
    let real = fs::metadata(root.join("sizes/4095")).unwrap();
    assert_eq!((&*entry.name, entry.kind, entry.size), (&b"4095"[..], BrowsedKind::File, 4095));
    assert_eq!((entry.mode, entry.uid, entry.gid), (0o4751, real.uid(), real.gid()));
    assert_eq!((entry.mtime.seconds, i64::from(entry.mtime.nanoseconds)), (real.mtime(), real.mtime_nsec()));
    let (missing, _) = ask(own_house(), RemotePathOperation::List, &root.join("none"), "");
    let Err(SessionError::Refused { message, .. }) = missing else { panic!("{missing:?}") };
    assert!(message.ends_with("none: No such file or directory"), "{message}");
}

#[test]
fn directories_are_made_as_mkdir_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    // Sessions of other tests in this process clear the umask, before or after this test.
    carrack_storage::clear_umask();
    let make = |path: &str, parents| {
        ask(own_house(), RemotePathOperation::MakeDirectory { parents }, &dir.path().join(path), "").0
    };
    assert!(matches!(make("a/b", false), Err(SessionError::Refused { .. })));
    assert_eq!(make("a/b", true).unwrap().done_count, 1);
    assert_eq!(make("a/b", true).unwrap().done_count, 1);
    assert!(matches!(make("a/b", false), Err(SessionError::Refused { .. })));
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
    let expected = 0o777 & !carrack_storage::users_umask();
    assert_eq!((mode("a"), mode("a/b")), (expected, expected));
    assert_ne!(expected, 0o777, "a umask to see");
}

#[test]
fn removals_are_counted_and_what_stays_is_told_by_the_callers_path() {
    let dir = tempfile::tempdir().unwrap();
    let export = || ExportHouse::new(dir.path(), ProtectionLevel::Private);
    let remove =
        |path: &str, recursive| ask(export(), RemotePathOperation::Remove { recursive }, Path::new(path), "");
    for n in 0..2_500 {
        write(&dir.path().join(format!("full/sub/{n}")), b"");
    }
    for path in ["/data/full", "/data/full/", "/data//full//"] {
        let (done, found) = remove(path, false);
        assert_eq!(done.unwrap(), RemotePathOperationCounts { done_count: 0, failed_count: 1 });
        let BrowseItem::Failed { path: told, detail } = &found[0] else { panic!("{found:?}") };
        assert_eq!(&**told, path.trim_end_matches('/').as_bytes());
        assert!(detail.contains("not empty"), "{detail}");
    }
    let (done, found) = remove("/data/full", true);
    assert_eq!((done.unwrap().done_count, found.len()), (2_502, 0));
    for path in ["/data/full", "/data", "/data/", "/data/../x", "/elsewhere"] {
        assert!(matches!(remove(path, true).0, Err(SessionError::Refused { .. })), "{path}");
    }
    assert!(dir.path().exists());
}

#[test]
fn a_house_may_list_its_exports() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("f"), b"");
    let export = || ExportHouse::new(dir.path(), ProtectionLevel::Private);
    for path in ["/", "//"] {
        let (done, found) = ask(export(), RemotePathOperation::List, Path::new(path), "");
        assert_eq!((done.unwrap().done_count, found.len()), (1_001, 1_001));
        assert_eq!(found.last(), Some(&BrowseItem::Export(b"data"[..].into())));
    }
    let (_, found) = ask(export(), RemotePathOperation::List, Path::new("/data"), "");
    assert_eq!(&*entries(&found)[0].name, b"f");
    let (refused, found) = ask(export(), RemotePathOperation::List, Path::new("/"), "unwelcome");
    assert!(matches!(refused, Err(SessionError::Refused { .. })) && found.is_empty());
    for operation in [RemotePathOperation::Stat, RemotePathOperation::Remove { recursive: true }] {
        assert!(matches!(ask(export(), operation, Path::new("/"), "").0, Err(SessionError::Refused { .. })));
    }
    // `/` is listed as a directory if it is one.
    let (_, found) = ask(own_house(), RemotePathOperation::List, Path::new("/"), "");
    assert!(entries(&found).iter().any(|entry| &*entry.name == b"proc"));
}

#[test]
fn links_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("kept"), b"");
    symlink(outside.path(), dir.path().join("out")).unwrap();
    let ask = |operation, path: &str| {
        ask(ExportHouse::new(dir.path(), ProtectionLevel::Private), operation, Path::new(path), "")
    };
    for operation in [
        RemotePathOperation::List,
        RemotePathOperation::Stat,
        RemotePathOperation::Remove { recursive: true },
        RemotePathOperation::MakeDirectory { parents: true },
    ] {
        assert!(ask(operation, "/data/out/kept").0.is_err(), "{operation:?}");
    }
    let (_, found) = ask(RemotePathOperation::List, "/data/out");
    assert_eq!(entries(&found)[0].kind, BrowsedKind::Symlink);
    assert_eq!(ask(RemotePathOperation::Remove { recursive: true }, "/data/out").0.unwrap().done_count, 1);
    assert!(outside.path().join("kept").exists());
}

#[test]
fn a_caller_that_has_enough_leaves() {
    let dir = tempfile::tempdir().unwrap();
    (0..5_000).for_each(|n| write(&dir.path().join(format!("{n:0200}")), b""));
    let path = dir.path().to_path_buf();
    within(LIMIT_S, move || {
        let (here, (input, output)) = channel();
        let serving = thread::spawn(move || {
            serve(ControlChannel::Pipes { input, output }, &own_house(), &AbortHandle::new().unwrap())
        });
        let mut count = 0;
        let mut first = |_| {
            count += 1;
            Break(())
        };
        let browsing = PathOperationRequest { operation: RemotePathOperation::List, path };
        let done = perform_remote_operation(peer(here), &browsing, &mut first, &AbortHandle::new().unwrap());
        assert_eq!((count, done.unwrap().done_count), (1, 1));
        let served = serving.join().unwrap();
        assert!(matches!(served.result, Err(SessionError::PeerGone)), "{served:?}");
    });
}

fn browse_message(operation: u32, path: &Path) -> ControlMessage {
    let path = path.to_str().unwrap().as_bytes().to_vec();
    ControlMessage::Browse(PathOperationMessage {
        operation,
        path,
        deep: true,
        ..PathOperationMessage::default()
    })
}

#[test]
fn a_removal_ends_where_it_is_when_the_caller_leaves() {
    let dir = tempfile::tempdir().unwrap();
    (0..5_000).for_each(|n| write(&dir.path().join(format!("tree/{n}")), b""));
    let (mut caller, serving) = answering(own_house(), AbortHandle::new().unwrap());
    caller.preambles();
    caller.say(browse_message(4, &dir.path().join("tree")));
    drop(caller);
    let served = within(LIMIT_S, move || serving.join().unwrap());
    assert!(matches!(served.result, Err(SessionError::PeerGone)), "{served:?}");
    assert_eq!(fs::read_dir(dir.path().join("tree")).unwrap().count(), 4_000);
}

#[test]
fn either_end_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    (0..5_000).for_each(|n| write(&dir.path().join(format!("{n:0200}")), b""));
    // The responder is blocked by a caller that does not read.
    let abort = AbortHandle::new().unwrap();
    let (mut caller, serving) = answering(own_house(), abort.clone());
    caller.preambles();
    caller.say(browse_message(1, dir.path()));
    thread::sleep(Duration::from_millis(200));
    assert!(!serving.is_finished(), "it waits for the caller");
    abort.interrupt();
    let reading = thread::spawn(move || caller.rest());
    let served = within(LIMIT_S, move || serving.join().unwrap());
    assert!(matches!(served.result, Err(SessionError::Interrupted)), "{served:?}");
    let said = reading.join().unwrap();
    assert!(
        matches!(said.last(), Some(ControlMessage::Refuse(RefuseMessage { reason: 1, .. }))),
        "{:?}",
        said.last()
    );

    // The caller's other end is silent.
    let (here, there) = channel();
    let abort = AbortHandle::new().unwrap();
    let interrupting = abort.clone();
    let calling = thread::spawn(move || {
        let browsing = PathOperationRequest { operation: RemotePathOperation::List, path: "/".into() };
        perform_remote_operation(peer(here), &browsing, &mut |_| Continue(()), &abort)
    });
    let mut silent = Scripted::new(there);
    silent.preambles();
    assert!(matches!(silent.message(), ControlMessage::Browse(_)));
    interrupting.interrupt();
    let done = within(LIMIT_S, move || calling.join().unwrap());
    assert!(matches!(done, Err(SessionError::Interrupted)), "{done:?}");
}

#[test]
fn a_called_end_refuses_what_it_does_not_know() {
    let dir = tempfile::tempdir().unwrap();
    let browse = |operation, path: Vec<u8>| {
        ControlMessage::Browse(PathOperationMessage {
            operation,
            path,
            deep: true,
            ..PathOperationMessage::default()
        })
    };
    let path = dir.path().to_str().unwrap().as_bytes().to_vec();
    for wrong in [
        ControlMessage::Place(DestinationRootMessage::default()),
        ControlMessage::BrowseDone(BrowseDone::default()),
        ControlMessage::Entries(BrowsedEntriesMessage::default()),
        ControlMessage::Heartbeat(KeepaliveMessage {}),
        browse(0, path.clone()),
        browse(5, path.clone()),
        browse(1, vec![b'a'; 70_000]),
        browse(1, b"a\0b".to_vec()),
    ] {
        let shown = format!("{wrong:.60?}");
        let (mut caller, serving) = answering(own_house(), AbortHandle::new().unwrap());
        caller.preambles();
        caller.say(wrong);
        // Later messages have no effect.
        caller.say(browse_message(4, dir.path()));
        let said = caller.rest();
        assert!(matches!(&said[..], [ControlMessage::Refuse(_)]), "{shown}: {said:?}");
        assert!(serving.join().unwrap().result.is_err(), "{shown}");
    }
    assert!(dir.path().exists());
}

fn entry(name: &[u8]) -> BrowsedEntry {
    BrowsedEntry { name: name.to_vec(), kind: 1, ..BrowsedEntry::default() }
}

fn told(entries: &[BrowsedEntry]) -> ControlMessage {
    ControlMessage::Entries(BrowsedEntriesMessage { entries: entries.to_vec() })
}

/// Returns the caller's result for an opposite end that sends these messages and leaves.
fn hear(operation: RemotePathOperation, said: Vec<ControlMessage>) -> Answer {
    within(LIMIT_S, move || {
        let (here, there) = channel();
        let answering = thread::spawn(move || {
            let mut peer = Scripted::new(there);
            peer.preambles();
            let Heard::Control(ControlMessage::Browse(_)) = peer.hear() else { panic!("no browse") };
            said.into_iter().for_each(|message| peer.say(message));
        });
        let mut found = Vec::new();
        let mut keep = |one| {
            found.push(one);
            Continue(())
        };
        let browsing = PathOperationRequest { operation, path: "/x".into() };
        let done = perform_remote_operation(peer(here), &browsing, &mut keep, &AbortHandle::new().unwrap());
        answering.join().unwrap();
        (done, found)
    })
}

#[test]
fn what_breaks_the_rules_ends_the_session_before_it_is_shown() {
    use RemotePathOperation::{List, MakeDirectory, Remove, Stat};
    let done = || ControlMessage::BrowseDone(BrowseDone { done: 1, failed: 0 });
    let remove = Remove { recursive: true };
    let bad_names = [&b""[..], b".", b"..", b"../../etc/passwd", b"/etc/passwd", b"a\0b", &[b'x'; 256]];
    let mut cases: Vec<(RemotePathOperation, Vec<ControlMessage>)> =
        bad_names.iter().map(|name| (List, vec![told(&[entry(name)]), done()])).collect();
    cases.extend([
        (List, vec![told(&vec![entry(b"a"); 257]), done()]),
        (List, vec![told(&[BrowsedEntry { mode: 0o10000, ..entry(b"a") }]), done()]),
        (List, vec![told(&[BrowsedEntry { mtime_ns: 1_000_000_000, ..entry(b"a") }]), done()]),
        (List, vec![told(&[BrowsedEntry { kind: 7, ..entry(b"a/b") }]), done()]),
        (List, vec![ControlMessage::Welcome(WelcomeMessage::default())]),
        (List, vec![browse_message(1, Path::new("/"))]),
        (Stat, vec![told(&[entry(b"a"), entry(b"b")]), done()]),
        (Stat, vec![told(&[entry(b"..")]), done()]),
        (Stat, vec![done()]),
        (remove, vec![told(&[entry(b"a")]), done()]),
        (MakeDirectory { parents: true }, vec![told(&[entry(b"a")]), done()]),
    ]);
    for (operation, said) in cases {
        let shown = format!("{operation:?} {said:.100?}");
        let (done, found) = hear(operation, said);
        assert!(done.as_ref().is_err_and(SessionError::is_protocol_violation), "{shown}: {done:?}");
        assert!(found.is_empty(), "{shown}: {found:?}");
    }
    let (done, found) = hear(Stat, vec![told(&[entry(b"a")]), told(&[entry(b"b")]), done()]);
    assert!(done.unwrap_err().is_protocol_violation() && found.len() == 1);
}

#[test]
fn an_end_that_leaves_or_refuses_is_told_so() {
    let (done, found) = hear(RemotePathOperation::List, vec![told(&[entry(b"a")])]);
    assert!(matches!(done, Err(SessionError::PeerGone)) && found.len() == 1, "{done:?}");
    let refuse =
        RefuseMessage { message: "I/O error".into(), hint: "ask".into(), reason: 0, retry_after_ms: 0 };
    let (done, found) =
        hear(RemotePathOperation::List, vec![told(&[entry(b"a")]), ControlMessage::Refuse(refuse)]);
    let Err(SessionError::Refused { message, hint }) = done else { panic!("{done:?}") };
    assert_eq!((&*message, hint.as_deref(), found.len()), ("I/O error", Some("ask"), 1));
}

#[test]
fn failures_are_counted_and_their_words_tamed() {
    let failure = |detail: &str| {
        ControlMessage::Failure(FailureMessage { path: b"/x/\x1b".to_vec(), kind: 99, detail: detail.into() })
    };
    let done = ControlMessage::BrowseDone(BrowseDone { done: 5, failed: 0 });
    let said = vec![failure("\x1b[2J"), ControlMessage::Heartbeat(KeepaliveMessage {}), failure("no"), done];
    let (done, found) = hear(RemotePathOperation::Remove { recursive: true }, said);
    // The summary claims no failures, but two were reported.
    assert_eq!(done.unwrap(), RemotePathOperationCounts { done_count: 5, failed_count: 2 });
    let tamed = BrowseItem::Failed { path: b"/x/\x1b"[..].into(), detail: "\\u{1b}[2J".into() };
    assert_eq!(found[0], tamed);
}
