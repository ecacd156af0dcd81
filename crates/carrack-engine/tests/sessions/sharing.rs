//! Ends that ask a meta-scheduler for grants on their targets: a real meta-scheduler, in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{GrantExchange, GrantExchangeHandle, TransferRequest};
use carrack_model::{TransferEvent, UserNotice};
use carrack_plan::grants::{GrantClientReport, GrantReply, GrantServer, GrantSettings};

use crate::common::*;

/// A meta-scheduler that records the batches of its clients.
struct Server {
    began: Instant,
    grants: Mutex<GrantServer>,
    seen: Mutex<Vec<GrantClientReport>>,
    /// All grants by number, with their clients.
    granted: Mutex<BTreeSet<(u64, String)>>,
    is_away: AtomicBool,
}

impl Server {
    fn start(settings: GrantSettings) -> Arc<Server> {
        let grants = Mutex::new(GrantServer::new(settings, BTreeMap::new(), 1, Duration::ZERO));
        let (seen, granted, is_away) = Default::default();
        Arc::new(Server { began: Instant::now(), grants, seen, granted, is_away })
    }

    fn bytes_moved(&self) -> BTreeMap<String, u64> {
        self.seen.lock().unwrap().iter().map(|batch| (batch.client.clone(), batch.bytes_moved)).collect()
    }

    fn targets(&self) -> BTreeSet<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().flat_map(|batch| batch.asks.iter().map(|ask| ask.target.clone())).collect()
    }

    fn farewells(&self) -> usize {
        self.seen.lock().unwrap().iter().filter(|batch| batch.leaves).count()
    }
}

impl GrantExchange for Server {
    fn exchange(&self, batch: &GrantClientReport) -> io::Result<GrantReply> {
        self.seen.lock().unwrap().push(batch.clone());
        if self.is_away.load(SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let answer = self.grants.lock().unwrap().answer(self.began.elapsed(), batch);
        let granted = answer.grants.iter().map(|grant| (grant.id, batch.client.clone()));
        self.granted.lock().unwrap().extend(granted);
        Ok(answer)
    }
}

/// The directory is on a disk: file systems in memory are not shared targets.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn sharing(source: &Path, destination: &Path, server: &Arc<Server>) -> TransferRequest {
    let mut transfer = transfer(&[source], destination);
    transfer.settings.sharing = Some(GrantExchangeHandle(server.clone()));
    transfer.settings.class = "night".into();
    transfer
}

#[test]
fn an_end_asks_for_its_targets_and_says_farewell() {
    let dir = directory();
    let source = dir.path().join("src");
    rich_tree(&source);
    write(&source.join("large"), &noise(20 << 20, 1));
    for way in WAYS {
        let server = Server::start(GrantSettings::default());
        let destination = dir.path().join(format!("{way:?}"));
        let mut transfer = sharing(&source, &destination, &server);
        // The rate makes the transfer last until the first request.
        transfer.settings.scheduling.rate = 100 << 20;
        copy_well(way, &transfer);
        assert_same(&source, &destination);
        assert_clean(&destination);
        // The far end has no meta-scheduler.
        let clients = server.bytes_moved();
        assert_eq!((clients.len(), server.farewells()), (1, 1), "{clients:?}");
        let ends = if way == Way::Local { 2 } else { 1 };
        assert!(clients.values().all(|bytes| *bytes >= ends * (20 << 20)), "{clients:?}");
        assert!(server.seen.lock().unwrap().iter().all(|batch| batch.leaves || batch.class == "night"));
        let targets = server.targets();
        assert!(targets.len() == 1 && targets.iter().all(|name| name.contains('/')), "{targets:?}");
    }
}

#[test]
fn a_deadline_claims_what_is_left() {
    let dir = directory();
    let source = dir.path().join("src");
    for i in 0..10 {
        write(&source.join(format!("large{i}")), &noise(4 << 20, i));
    }
    for way in [Way::Local, Way::Push, Way::Pull] {
        let server = Server::start(GrantSettings::default());
        let mut transfer = sharing(&source, &dir.path().join(format!("{way:?}")), &server);
        transfer.settings.deadline = Some(SystemTime::now() + Duration::from_secs(3_600));
        transfer.settings.scheduling.rate = 20 << 20;
        copy_well(way, &transfer);
        let seen = server.seen.lock().unwrap();
        let told: Vec<_> = seen.iter().filter_map(|batch| batch.deadline).collect();
        assert!(told.iter().all(|deadline| (3_590_000..=3_600_000).contains(&deadline.in_ms)), "{told:?}");
        // Both ends of a local copy are one client.
        let all = (40 << 20) * if way == Way::Local { 2 } else { 1 };
        let most = told.iter().map(|deadline| deadline.bytes_left).max().unwrap();
        let least = told.iter().map(|deadline| deadline.bytes_left).min().unwrap();
        // Written bytes are reported slightly later than read bytes.
        assert!((all / 4..=3 * all).contains(&most) && least < most, "{least} to {most} of {all}");
    }
}

#[test]
fn two_take_turns_and_both_arrive() {
    let dir = directory();
    let source = dir.path().join("src");
    for i in 0..6 {
        write(&source.join(format!("large{i}")), &noise(16 << 20, i));
    }
    // Bursts are far shorter than the transfers.
    let settings = GrantSettings {
        burst: Duration::from_millis(20),
        burst_min: Duration::from_millis(5),
        ..GrantSettings::default()
    };
    let server = Server::start(settings);
    thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let (destination, server, source) = (dir.path().join(name), &server, &source);
            scope.spawn(move || {
                let mut transfer = sharing(source, &destination, server);
                transfer.settings.scheduling.rate = 48 << 20;
                copy_well(Way::Push, &transfer);
                assert_same(source, &destination);
            });
        }
    });
    let clients = server.bytes_moved();
    assert_eq!((clients.len(), server.farewells()), (3, 3));
    let granted = server.granted.lock().unwrap();
    let grants: BTreeSet<_> = granted.iter().map(|(id, _)| id).collect();
    assert_eq!(grants.len(), granted.len(), "no grant was two clients'");
    assert!(grants.len() > 6, "it changed hands: {granted:?}");
}

#[test]
fn a_sink_that_gets_one_object_at_a_time_asks_too() {
    let dir = directory();
    let source = dir.path().join("src");
    write(&source.join("large"), &noise(4 << 20, 1));
    let server = Server::start(GrantSettings::default());
    let destination = dir.path().join("dst");
    let mut transfer = sharing(&source, &destination, &server);
    transfer.settings.scheduling.rate = 4 << 20;
    copy_well(Way::Pull, &transfer);
    assert_same(&source, &destination);
    assert!(!server.granted.lock().unwrap().is_empty(), "{:?}", server.seen.lock().unwrap());
}

#[test]
fn without_a_server_it_goes_on_and_says_so() {
    let dir = directory();
    let source = dir.path().join("src");
    write(&source.join("large"), &noise(24 << 20, 1));
    let server = Server::start(GrantSettings::default());
    server.is_away.store(true, SeqCst);
    let destination = dir.path().join("dst");
    let mut transfer = sharing(&source, &destination, &server);
    // The transfer lasts longer than the detection of the missing meta-scheduler.
    transfer.settings.scheduling.rate = 12 << 20;
    let (outcome, recorder) = copy(Way::Push, &transfer);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert_same(&source, &destination);
    let said = recorder.events().iter().any(|event| {
        matches!(event, TransferEvent::Notice(UserNotice::Warning(text)) if text.contains("going on without its grants"))
    });
    assert!(said, "{:?}", recorder.events());
}
