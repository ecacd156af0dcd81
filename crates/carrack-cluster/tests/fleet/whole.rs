//! Managers and movers together: transfers of real trees between directories, and what becomes of them when
//! somebody dies.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::client::FleetUserClient;
use carrack_cluster::destination_leftovers::{LEFTOVERS_KEPT, LEFTOVERS_KEPT_MIN, clear_leftovers};
use carrack_cluster::manager::{self, ManagerOptions};
use carrack_cluster::mover::{self, MoverOptions, UserMessageCallback};
use carrack_cluster::transfers::TransferStore;
use carrack_engine::SpillSettings;
use carrack_model::ProtectionLevel;
use carrack_register::transfer_operations::{TransferControlOrder, TransferOperations};
use carrack_register::transfer_records::{
    SITE_MARK, TransferOptions, TransferRecord, TransferState, TransferSubmission,
};
use carrack_transport::fabric::usable_offers;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::support::{Nats, PATIENCE, nats};

pub const MIB: usize = 1 << 20;

/// Two sites in one directory: `a` and `b`.
pub struct Fleet {
    dir: tempfile::TempDir,
    pub nats: Nats,
    pub control: FleetUserClient,
    pub runtime: Runtime,
}

/// A manager or a mover, on threads of its own; dropped it dies without a word.
pub struct Member {
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Member {
    /// Ends it as SIGTERM does, and waits for that.
    pub fn drain(mut self) {
        let _ = self.stop.send(true);
        let runtime = self.runtime.take().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), &mut self.task).await })
            .unwrap()
            .unwrap();
        runtime.shutdown_background();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            self.task.abort();
            runtime.shutdown_background();
        }
    }
}

fn say(who: &'static str) -> UserMessageCallback {
    Arc::new(move |text| eprintln!("{who}: {text}"))
}

impl Fleet {
    pub fn new() -> Option<Fleet> {
        let nats = nats(1)?;
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        let bus: NatsBus = runtime.block_on(nats.bus());
        let control = runtime.block_on(FleetUserClient::new(bus)).unwrap();
        Some(Fleet { dir, nats, control, runtime })
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What is in a directory, but for the mark that movers know it by.
    pub fn names_in(&self, path: &str) -> Vec<String> {
        let names = fs::read_dir(self.at(path)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != SITE_MARK);
        names.sort();
        names
    }

    pub fn manager(&self) -> Member {
        self.manager_with(|_| {})
    }

    /// One with other options.
    pub fn manager_with(&self, change: impl FnOnce(&mut ManagerOptions)) -> Member {
        let mut options = ManagerOptions {
            bus: self.nats.options(),
            replicas: None,
            limits: Default::default(),
            keep_history: manager::HISTORY_KEPT,
            keep_leftovers: LEFTOVERS_KEPT,
            near: Vec::new(),
            shares: Vec::new(),
            say: say("manager"),
        };
        change(&mut options);
        member(|stop| async move { manager::run(options, stop).await.unwrap() })
    }

    pub fn mover(&self, site: &'static str, pairs_max: u32) -> Member {
        self.mover_by(self.nats.options(), site, pairs_max)
    }

    /// One that reaches NATS in its own way.
    fn mover_by(&self, bus: BusOptions, site: &'static str, pairs_max: u32) -> Member {
        let options = MoverOptions {
            bus,
            site: site.into(),
            paths: vec![self.at(site)],
            listen: ([127, 0, 0, 1], 0).into(),
            addresses: Vec::new(),
            ports: None,
            pairs_max,
            scan_threads: 2,
            spill: SpillSettings::default(),
            lanes: 1,
            protection_min: ProtectionLevel::Private,
            keep_owners: false,
            allows_fabric: true,
            say: say(site),
        };
        member(|stop| async move { mover::run(options, stop).await.unwrap() })
    }

    pub fn submit(&self, from: &str, to: &str, options: TransferOptions) -> TransferRecord {
        let location = |path: &str| {
            let site = &path[..1];
            format!("{site}:{}", self.at(path).display()).parse().unwrap()
        };
        let submission = TransferSubmission {
            source: location(from),
            destination: location(to),
            options: options.with("buffer", 16 << 20),
            priority: 5,
            label: String::new(),
            not_before_ms: None,
            umask: None,
        };
        self.runtime.block_on(self.control.submit("alice", submission)).unwrap()
    }

    /// The record when it is over, or satisfies `is_enough`.
    pub fn wait(&self, id: &str, is_enough: impl Fn(&TransferRecord) -> bool) -> TransferRecord {
        let watching = async {
            let mut records = self.control.watch(id);
            while let Some(record) = records.next().await {
                let record = record.unwrap();
                if record.ended_ms.is_some() || is_enough(&record) {
                    return record;
                }
            }
            panic!("the transfer is not over");
        };
        let watched =
            self.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(150), watching).await });
        watched.unwrap_or_else(|_| {
            panic!("{:#?}", self.runtime.block_on(self.control.transfer(id)));
        })
    }

    pub fn done(&self, id: &str) -> TransferRecord {
        let record = self.wait(id, |_| false);
        assert_eq!(record.state, TransferState::Done, "{record:#?}");
        record
    }
}

fn member<F>(run: impl FnOnce(watch::Receiver<bool>) -> F) -> Member
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stop, stopped) = watch::channel(false);
    let task = runtime.spawn(run(stopped));
    Member { runtime: Some(runtime), stop, task }
}

pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Small files, one that is cut into parts of 8 MiB, links, directories with modes of their own.
pub fn tree(root: &Path) {
    for i in 0..400u64 {
        let directory = root.join(format!("small/{}", i % 11));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{i}")), noise(i as usize * 37, i)).unwrap();
    }
    fs::create_dir_all(root.join("large/deep")).unwrap();
    fs::write(root.join("large/deep/one"), noise(45 * MIB + 123, 7)).unwrap();
    fs::write(root.join("large/two"), noise(5 * MIB, 8)).unwrap();
    symlink("two", root.join("large/link")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(root.join("small/3"), fs::Permissions::from_mode(0o555)).unwrap();
}

/// What there is beneath `root`: kind, mode, time and content of everything.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let (mode, time) = (metadata.mode(), (metadata.mtime(), metadata.mtime_nsec()));
        let what = if metadata.is_symlink() {
            format!("link to {:?}", fs::read_link(&path).unwrap())
        } else if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            format!("directory {mode:o} {time:?}")
        } else {
            format!("file {mode:o} {time:?} {}", blake3::hash(&fs::read(&path).unwrap()))
        };
        found.insert(path.strip_prefix(root).unwrap().to_path_buf(), what);
    }
    found
}

pub fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (snapshot(a), snapshot(b));
    let names = |map: &BTreeMap<PathBuf, String>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&a), names(&b));
    for (path, what) in &a {
        assert_eq!(Some(what), b.get(path), "{}", path.display());
    }
}

/// Chunks so small that there are many.
pub fn small_chunks() -> TransferOptions {
    TransferOptions::default().with("chunk-size", 8 << 20)
}

#[test]
fn a_fleet_carries_trees_and_files() {
    let Some(fleet) = Fleet::new() else { return };
    let _members =
        (fleet.manager(), fleet.mover("a", 4), fleet.mover("a", 4), fleet.mover("b", 4), fleet.mover("b", 4));
    tree(&fleet.at("a/tree"));
    let tree = fleet.submit("a/tree", "b/new", small_chunks());
    let file = fleet.submit("a/tree/large/two", "b/renamed", TransferOptions::default());
    let record = fleet.done(&tree.id);
    assert_eq!((record.tally.files_done, record.tally.entries_failed), (403, 0), "{record:#?}");
    assert_eq!(record.tally.bytes_done, record.tally.bytes_found);
    assert!(record.tally.chunks_done >= 7, "{:?}", record.tally);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
    fleet.done(&file.id);
    assert_eq!(fs::read(fleet.at("b/renamed")).unwrap(), fs::read(fleet.at("a/tree/large/two")).unwrap());
    assert_eq!(fleet.names_in("b"), ["new", "renamed"]);
    // Into a directory that is there; and what can't be.
    let again = fleet.submit("a/tree/large", "b/new", TransferOptions::default());
    fleet.done(&again.id);
    assert_same(&fleet.at("a/tree/large"), &fleet.at("b/new/large"));
    let nothing = fleet.wait(&fleet.submit("a/nothing", "b/x", TransferOptions::default()).id, |_| false);
    assert_eq!(nothing.state, TransferState::Failed);
    assert!(nothing.reason.contains("does not exist"), "{}", nothing.reason);
}

#[test]
fn movers_and_managers_die_and_others_go_on() {
    let Some(fleet) = Fleet::new() else { return };
    tree(&fleet.at("a/tree"));
    for i in 0..6 {
        fs::write(fleet.at(&format!("a/tree/more{i}")), noise(24 * MIB, 20 + i)).unwrap();
    }
    let mut managers = vec![fleet.manager()];
    let (lives, dies) = (fleet.mover("a", 2), fleet.mover("a", 2));
    let (sink, dying_sink) = (fleet.mover("b", 2), fleet.mover("b", 2));
    let slow = small_chunks().with("bwlimit", 6_000_000);
    let id = fleet.submit("a/tree", "b/new", slow).id;
    let moved = |bytes: u64| move |record: &TransferRecord| record.tally.bytes_done > bytes;
    fleet.wait(&id, moved(16 << 20));
    managers.push(fleet.manager());
    drop(dies);
    let before = fleet.wait(&id, moved(32 << 20)).manager;
    drop(managers.remove(0));
    drop(dying_sink);
    let joins = (fleet.mover("a", 2), fleet.mover("b", 2));
    let record = fleet.done(&id);
    assert_ne!(record.manager, before);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
    assert_eq!((record.tally.entries_failed, record.tally.bytes_done), (0, record.tally.bytes_found));
    let twice = record.tally.bytes_moved.saturating_sub(record.tally.bytes_done);
    // Two movers died, each with two pairs that held a few chunks of 8 MiB.
    assert!(twice <= 2 * 2 * 4 * (8 << 20), "{twice} bytes were moved twice");
    // Sinks wait for those that write to them; the sessions of movers that died within this process do not
    // end.
    drop((sink, joins.1));
    for member in [lives, joins.0, managers.remove(0)] {
        member.drain();
    }
}

/// A way to a server that can be held up.
struct Way {
    url: String,
    is_open: Arc<AtomicBool>,
}

impl Way {
    fn to(url: &str) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = url.strip_prefix("nats://").unwrap().to_owned();
        let way = Way {
            url: format!("nats://{}", listener.local_addr().unwrap()),
            is_open: Arc::new(AtomicBool::new(true)),
        };
        let is_open = Arc::clone(&way.is_open);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&server) else { continue };
                let ends = [(stream.try_clone(), far.try_clone()), (Ok(far), Ok(stream))];
                for (from, to) in ends {
                    let is_open = Arc::clone(&is_open);
                    thread::spawn(move || pass(&from.unwrap(), &to.unwrap(), &is_open));
                }
            }
        });
        way
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, is_open: &AtomicBool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while !is_open.load(Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A mover of which NATS hears nothing any more, though its data still flows: it ends by itself, others carry
/// on, and it comes back.
#[test]
fn a_mover_that_is_cut_off_ends_its_sessions_and_comes_back() {
    let Some(fleet) = Fleet::new() else { return };
    tree(&fleet.at("a/tree"));
    for i in 0..4 {
        fs::write(fleet.at(&format!("a/tree/more{i}")), noise(24 * MIB, 20 + i)).unwrap();
    }
    let way = Way::to(&fleet.nats.urls[0]);
    let apart = BusOptions { servers: vec![way.url.clone()], ..fleet.nats.options() };
    let _members = (fleet.manager(), fleet.mover("a", 2), fleet.mover_by(apart, "a", 2), fleet.mover("b", 4));
    let slow = small_chunks().with("bwlimit", 1_500_000);
    let id = fleet.submit("a/tree", "b/new", slow).id;
    fleet.wait(&id, |record| record.tally.pairs == 2 && record.tally.bytes_done > 8 << 20);
    way.is_open.store(false, Relaxed);
    let movers = || fleet.runtime.block_on(fleet.control.movers()).unwrap().len();
    let wait_for = |count: usize, what: &str| {
        let began = Instant::now();
        while movers() != count {
            assert!(began.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(200));
        }
    };
    wait_for(2, "its lease has ended");
    thread::sleep(Duration::from_secs(25));
    way.is_open.store(true, Relaxed);
    let record = fleet.done(&id);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
    assert_eq!((record.tally.entries_failed, record.tally.bytes_done), (0, record.tally.bytes_found));
    wait_for(3, "it has come back");
}

#[test]
fn a_transfer_waits_goes_on_and_ends_as_it_is_told() {
    let Some(fleet) = Fleet::new() else { return };
    tree(&fleet.at("a/tree"));
    let _members = (fleet.manager(), fleet.mover("a", 2), fleet.mover("b", 2));
    let slow = small_chunks().with("bwlimit", 4_000_000).with("pairs", 1);
    let id = fleet.submit("a/tree", "b/new", slow.clone()).id;
    fleet.wait(&id, |record| record.tally.bytes_done > 8 << 20);
    let order = |user: &str, order| fleet.runtime.block_on(fleet.control.issue_order(user, &id, order));
    assert!(order("mallory", TransferControlOrder::Cancel).is_err());
    order("alice", TransferControlOrder::Pause).unwrap();
    fleet.wait(&id, |record| record.state == TransferState::Paused && record.tally.pairs == 0);
    let paused = fleet.wait(&id, |_| true).tally.bytes_done;
    thread::sleep(Duration::from_secs(3));
    assert_eq!(fleet.wait(&id, |_| true).tally.bytes_done, paused);
    order("alice", TransferControlOrder::Resume).unwrap();
    fleet.wait(&id, |record| record.tally.bytes_done > paused);
    order("alice", TransferControlOrder::Cancel).unwrap();
    let record = fleet.wait(&id, |_| false);
    assert_eq!(record.state, TransferState::Cancelled);
    assert!(order("alice", TransferControlOrder::Resume).is_err());
    // Submitted again it goes on: the journals know what is there.
    let again = fleet.submit("a/tree", "b/new", small_chunks());
    let record = fleet.done(&again.id);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
    assert!(record.tally.bytes_moved < record.tally.bytes_done, "{:?}", record.tally);
}

/// What a transfer that was cancelled has left is removed when it is old, unless another one goes on with it.
#[test]
fn what_an_unfinished_transfer_left_is_removed_once_it_is_old() {
    let Some(fleet) = Fleet::new() else { return };
    tree(&fleet.at("a/tree"));
    let _members = (fleet.manager(), fleet.mover("a", 2), fleet.mover("b", 2));
    let slow = small_chunks().with("bwlimit", 4_000_000).with("pairs", 1);
    let cancel = |id: &str| {
        fleet.runtime.block_on(fleet.control.issue_order("alice", id, TransferControlOrder::Cancel)).unwrap();
        assert_eq!(fleet.wait(id, |_| false).state, TransferState::Cancelled);
    };
    let first = fleet.submit("a/tree", "b/new", slow.clone()).id;
    fleet.wait(&first, |record| record.tally.bytes_done > 8 << 20);
    cancel(&first);
    let bus: NatsBus = fleet.runtime.block_on(fleet.nats.bus());
    let transfers = fleet.runtime.block_on(TransferStore::open(&bus)).unwrap();
    let clear = || {
        let cleared = clear_leftovers(&bus, &transfers, LEFTOVERS_KEPT_MIN);
        fleet.runtime.block_on(cleared).unwrap()
    };
    let is_hidden = |name: &String| name.starts_with('.');
    assert!(fleet.names_in("b/new").iter().any(is_hidden), "a cancelled transfer leaves its journals");
    assert_eq!(clear(), [], "it has only just ended");
    let age = |record: &mut TransferRecord| record.ended_ms = record.ended_ms.map(|ms| ms - 3_600_000);
    fleet.runtime.block_on(transfers.update(&first, age)).unwrap();
    let second = fleet.submit("a/tree", "b/new", slow).id;
    assert_eq!(clear(), [], "the second goes on with it");
    cancel(&second);
    let cleared = clear();
    assert_eq!(cleared.len(), 1, "{cleared:?}");
    assert_eq!(cleared[0].transfer, first);
    assert!(matches!(cleared[0].removed, Ok((journals, _)) if journals > 0), "{cleared:?}");
    assert!(!fleet.names_in("b/new").iter().any(is_hidden), "{:?}", fleet.names_in("b/new"));
    assert_eq!(clear(), [], "once is enough");
    // Nothing tells any more that the directory was made by a transfer.
    let again = fleet.submit("a/tree/", "b/new", small_chunks());
    fleet.done(&again.id);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
}

#[test]
fn all_transfers_are_watched_at_once() {
    let Some(fleet) = Fleet::new() else { return };
    fs::write(fleet.at("a/file"), noise(24 * MIB, 1)).unwrap();
    let _members = (fleet.manager(), fleet.mover("a", 4), fleet.mover("b", 4));
    let over = fleet.submit("a/file", "b/over", TransferOptions::default()).id;
    fleet.done(&over);
    let slow = small_chunks().with("bwlimit", 8_000_000);
    let first = fleet.submit("a/file", "b/one", slow).id;
    let (mut seen, mut second) = (Vec::new(), None);
    let watching = async {
        let mut watched = fleet.control.watch_all();
        loop {
            let record = watched.next().await.unwrap().unwrap();
            assert_ne!(record.id, over, "what was over before is not told of");
            seen.push((record.id.clone(), record.state, record.tally.bytes_done));
            if second.is_none() {
                let path = record.submission.destination.path.replace("/one", "/two");
                let destination = format!("b:{path}").parse().unwrap();
                let again = TransferSubmission { destination, ..record.submission };
                second = Some(fleet.control.submit("bob", again).await.unwrap().id);
            }
            let is_over = |id: &String| seen.iter().any(|(of, state, _)| of == id && state.is_over());
            if is_over(&first) && second.as_ref().is_some_and(is_over) {
                return;
            }
        }
    };
    let within = async { tokio::time::timeout(Duration::from_secs(150), watching).await };
    fleet.runtime.block_on(within).expect("both come to their ends");
    let progress: Vec<u64> = seen.iter().filter(|(id, ..)| *id == first).map(|(.., bytes)| *bytes).collect();
    assert!(progress.is_sorted() && progress.len() > 2 && progress.last() == Some(&(24 << 20)), "{seen:?}");
}

#[test]
fn sessions_tell_what_they_work_with_and_go_over_a_fabric_that_is_named() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = (fleet.manager(), fleet.mover("a", 2), fleet.mover("b", 2));
    tree(&fleet.at("a/tree"));
    let told = |options: TransferOptions, to: &str| {
        let slow = options.with("bwlimit", 10_000_000);
        let id = fleet.submit("a/tree", to, slow).id;
        let working = |record: &TransferRecord| record.sessions.iter().any(|session| session.readers > 0);
        let record = fleet.wait(&id, working);
        assert!(working(&record), "{record:#?}");
        let ended = fleet.done(&id);
        assert_eq!(ended.sessions, []);
        assert_same(&fleet.at("a/tree"), &fleet.at(to));
        record.sessions.into_iter().find(|session| session.readers > 0).unwrap()
    };
    let session = told(small_chunks(), "b/tcp");
    assert_eq!(session.transport, "tcp");
    assert!(session.streams > 0 && session.source != session.sink, "{session:?}");

    const PROVIDER: &str = "tcp;ofi_rxm";
    if usable_offers(Some(PROVIDER)).is_err() {
        eprintln!("SKIPPED: libfabric is not there, or has no {PROVIDER}");
        return;
    }
    let session = told(small_chunks().with("fabric", PROVIDER), "b/fabric");
    assert_eq!(session.transport, "fabric");
}
