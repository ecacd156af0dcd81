//! Trees for the tests, and functions that copy and compare them.
#![allow(dead_code, clippy::unwrap_used)]

pub mod export;
pub mod gate;
pub mod scripted;
pub mod tap;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{
    AbortHandle, ControlChannel, EndSettings, PeerChannel, ProcessOwnerAccessPolicy, SessionRole,
    TransferObserver, TransferOutcome, TransferRequest, copy_local, copy_with_peer, serve,
};
use carrack_model::{
    AgreedTransferSpec, EntryFailure, FailureKind, MetadataFidelity, ProtectionLevel, TransferEvent,
};

/// An observer that keeps all events.
#[derive(Default)]
pub struct Recorder(pub Mutex<Vec<TransferEvent>>);

impl TransferObserver for Recorder {
    fn handle_event(&self, event: &TransferEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Recorder {
    pub fn events(&self) -> Vec<TransferEvent> {
        self.0.lock().unwrap().clone()
    }

    /// Returns the kinds and the last names of the failures, in order.
    pub fn failed(&self) -> Vec<(FailureKind, String)> {
        let failed = |event: &TransferEvent| match event {
            TransferEvent::Failed(EntryFailure { path, kind, .. }) => {
                let path = String::from_utf8_lossy(path);
                Some((*kind, path.rsplit('/').next().unwrap().to_string()))
            }
            _ => None,
        };
        let mut failed: Vec<_> = self.events().iter().filter_map(failed).collect();
        failed.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
        failed
    }

    pub fn failures(&self) -> Vec<String> {
        let failed = |event: &TransferEvent| match event {
            TransferEvent::Failed(failure) => Some(format!("{}: {failure}", failure.kind)),
            _ => None,
        };
        self.events().iter().filter_map(failed).collect()
    }
}

/// The connection of the two ends in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Local,
    Push,
    Pull,
}

pub const WAYS: [Way; 3] = [Way::Local, Way::Push, Way::Pull];

pub fn transfer(sources: &[&Path], destination: &Path) -> TransferRequest {
    TransferRequest {
        spec: AgreedTransferSpec { recursive: true, ..AgreedTransferSpec::default() },
        // Trees are compared with their modes, with any umask.
        settings: EndSettings {
            pool_bytes: 32 << 20,
            fidelity: MetadataFidelity { perms: true, ..MetadataFidelity::default() },
            ..EndSettings::default()
        },
        sources: sources.iter().map(|path| path.to_path_buf()).collect(),
        destination: destination.to_path_buf(),
        identity: None,
        source_base: carrack_storage::PathBase::Anywhere,
        feed: None,
    }
}

/// Returns both ends of a channel of two pipes, each as input and output.
pub fn channel() -> ((OwnedFd, OwnedFd), (OwnedFd, OwnedFd)) {
    let (a_in, b_out) = std::io::pipe().unwrap();
    let (b_in, a_out) = std::io::pipe().unwrap();
    ((a_in.into(), a_out.into()), (b_in.into(), b_out.into()))
}

/// Returns the initiator's [`PeerChannel`] over such a channel.
pub fn peer((input, output): (OwnedFd, OwnedFd)) -> PeerChannel {
    PeerChannel::over_pipes(input, output, "127.0.0.1".into())
}

/// Serves one session over such a channel, with everything allowed.
pub fn serve_any((input, output): (OwnedFd, OwnedFd), abort: &AbortHandle) -> TransferOutcome {
    serve(
        ControlChannel::Pipes { input, output },
        &ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Clear),
        abort,
    )
}

pub fn copy(way: Way, transfer: &TransferRequest) -> (TransferOutcome, Recorder) {
    let recorder = Recorder::default();
    let abort = AbortHandle::new().unwrap();
    let outcome = match way {
        Way::Local => copy_local(transfer, &recorder, &abort),
        Way::Push => with_peer(transfer, SessionRole::Source, &recorder, &abort),
        Way::Pull => with_peer(transfer, SessionRole::Sink, &recorder, &abort),
    };
    (outcome, recorder)
}

fn with_peer(
    transfer: &TransferRequest,
    role: SessionRole,
    recorder: &Recorder,
    abort: &AbortHandle,
) -> TransferOutcome {
    let (here, there) = channel();
    let serving = thread::spawn(move || serve_any(there, &AbortHandle::new().unwrap()));
    let outcome = copy_with_peer(transfer, role, peer(here), recorder, abort);
    let _ = serving.join().unwrap();
    outcome
}

pub fn copy_well(way: Way, transfer: &TransferRequest) -> TransferOutcome {
    let (outcome, recorder) = copy(way, transfer);
    assert!(outcome.result.is_ok(), "{way:?}: {:?}", outcome.result);
    assert_eq!(recorder.failures(), Vec::<String>::new(), "{way:?}");
    outcome
}

/// Pseudorandom bytes without repetition.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len.div_ceil(8))
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(len)
        .collect()
}

pub fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub fn set_mtime(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes a tree with names of every kind, sizes around every boundary, links, modes and times.
pub fn rich_tree(root: &Path) {
    for (i, size) in
        [0, 1, 4095, 4096, 4097, 100_000, 262_143, 262_144, 262_145, 1 << 20, (1 << 20) + 1, 5_000_000]
            .into_iter()
            .enumerate()
    {
        write(&root.join(format!("sizes/{size}")), &noise(size, i as u64 + 1));
    }
    for i in 0..300 {
        write(&root.join(format!("many/{}/f{i}", i % 7)), &noise(i * 13, i as u64));
    }
    let strange: [&[u8]; 6] = [b"new\nline", b"\xff\xfe\x80", b" lead", b"-rf", b"back\\slash", &[b'n'; 255]];
    for name in strange {
        write(&root.join("names").join(OsStr::from_bytes(name)), b"strange");
    }
    fs::create_dir_all(root.join("empty/inside")).unwrap();
    symlink("sizes/1", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    symlink("many", root.join("link-to-directory")).unwrap();
    for (name, mode) in
        [("sizes/1", 0o600), ("sizes/4096", 0o711), ("sizes/100000", 0o444), ("sizes/1048576", 0o751)]
    {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    set_mtime(&root.join("sizes/0"), 1_000_000_000, 123_456_789);
    set_mtime(&root.join("sizes/5000000"), 1_234_567_890, 1);
    set_mtime(&root.join("empty"), 1_111_111_111, 999_999_999);
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o555)).unwrap();
    set_mtime(&root.join("many"), 1_222_222_222, 5);
}

/// Maps each path to all attributes that carrack promises to keep.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    collect(root, root, &mut found);
    found
}

fn collect(root: &Path, path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let stat = fs::symlink_metadata(path).unwrap();
    let kept = if stat.is_symlink() {
        format!("link to {:?}", fs::read_link(path).unwrap())
    } else {
        let content = if stat.is_file() { format!("{:x?}", digest(path)) } else { String::new() };
        format!("{:o} {}.{:09} {content}", stat.mode(), stat.mtime(), stat.mtime_nsec())
    };
    found.insert(path.strip_prefix(root).unwrap().to_path_buf(), kept);
    if stat.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(root, &entry.unwrap().path(), found);
        }
    }
}

fn digest(path: &Path) -> blake3::Hash {
    blake3::hash(&fs::read(path).unwrap())
}

pub fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (snapshot(a), snapshot(b));
    for (path, kept) in &a {
        assert_eq!(b.get(path), Some(kept), "{path:?}");
    }
    assert_eq!(a.len(), b.len(), "{:?}", b.keys().filter(|path| !a.contains_key(*path)).collect::<Vec<_>>());
}

/// Asserts that no temporary name is left. It reads only names, and skips unreadable directories.
pub fn assert_clean(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        assert!(!entry.file_name().to_string_lossy().contains("carrack-"), "{:?}", entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            assert_clean(&entry.path());
        }
    }
}

/// Runs `work` on its own thread: a hang fails the test after `seconds`.
pub fn within<R: Send + 'static>(seconds: u64, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, waiting) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = done.send(work());
    });
    match waiting.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs: nothing after {seconds} s"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().err().unwrap()),
    }
}

/// Waits until `condition` is true, for 15 seconds at most.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
