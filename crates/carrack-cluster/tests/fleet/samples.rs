//! The configurations of `docs/examples/nats`, with other ports: each role can do its work, and no more.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_cluster::bus::{BusOptions, NatsBus, NatsLogin};
use carrack_cluster::destination_leftovers::LEFTOVERS_KEPT;
use carrack_cluster::error::BusError;
use carrack_cluster::log::{FleetTransferLog, LogFollowEvent, TransferLogEntry};
use carrack_cluster::manager::{self, ManagerOptions};
use carrack_cluster::mover_requests::{
    MoverReply, MoverRequest, PathReply, send_mover_request, serve_requests,
};
use carrack_cluster::pairs::{PairAssignmentStore, PairFilter};
use carrack_cluster::queue::{ScanWorkHeader, TransferWorkStream, WorkItemHeader, WorkItemKind};
use carrack_cluster::registry::{MoverRegistration, MoverTable};
use carrack_cluster::reports::{MoverPairReport, report, subscribe_reports_confirmed};
use carrack_cluster::sharing::{SiteTargetsRequestError, site_targets};
use carrack_cluster::transfer_lease::{TransferLeaseTable, TransferManagerLease};
use carrack_cluster::transfers::TransferStore;
use carrack_register::transfer_records::{RECORD_VERSION, TransferState};
use carrack_sharing::SiteSharing;
use futures_util::StreamExt;

use crate::support::{PATIENCE, Server, free_ports, mover, server_program, transfer, until};

const ID: &str = "0123456789abcdef";
/// Of one question, which may be asked again.
const WAIT: Duration = Duration::from_secs(3);
const ROLES: [&str; 4] = ["mover", "manager", "user", "observer"];

/// The samples in a directory of the test's, with what differs on one machine replaced.
struct Samples(tempfile::TempDir);

impl Samples {
    fn new() -> Samples {
        let dir = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(samples()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        for role in ROLES {
            std::fs::write(dir.path().join(role), format!("{role}-secret\n")).unwrap();
        }
        Samples(dir)
    }

    fn start(&self, name: &str, store: &str, changes: &[(&str, String)], port: u16) -> Server {
        let mut text = std::fs::read_to_string(samples().join(name)).unwrap();
        let store_dir = format!("\"{}\"", self.0.path().join(store).display());
        let all = [("\"/var/lib/nats\"", store_dir), ("0.0.0.0:4222", format!("127.0.0.1:{port}"))];
        for (from, to) in all.iter().chain(changes) {
            assert!(text.contains(from), "{name} has no {from}");
            text = text.replace(from, to);
        }
        let config = self.0.path().join(format!("{store}.conf"));
        std::fs::write(&config, text).unwrap();
        let secrets =
            ROLES.map(|role| (format!("CARRACK_{}_PASSWORD", role.to_uppercase()), format!("{role}-secret")));
        let mut environment: Vec<(&str, &str)> =
            secrets.iter().map(|(name, secret)| (name.as_str(), secret.as_str())).collect();
        environment.extend([("CARRACK_WEST_PASSWORD", "west-secret"), ("CARRACK_NATS_NAME", store)]);
        Server::start(&config, &environment, port)
    }

    fn options(&self, role: &str, port: u16, domain: Option<&str>) -> BusOptions {
        BusOptions {
            servers: vec![format!("nats://127.0.0.1:{port}")],
            login: NatsLogin::Password { user: role.into(), file: self.0.path().join(role) },
            inbox: Some(format!("_INBOX_{role}")),
            domain: domain.map(str::to_owned),
            ..BusOptions::default()
        }
    }

    async fn bus(&self, role: &str, port: u16, domain: Option<&str>) -> NatsBus {
        NatsBus::connect(&self.options(role, port, domain)).await.unwrap()
    }
}

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/nats")
}

#[tokio::test]
async fn each_role_can_do_its_work_and_no_more() {
    if server_program().is_none() {
        return;
    }
    let (samples, port) = (Samples::new(), free_ports(1)[0]);
    let _server = samples.start("one-site.conf", "one", &[], port);
    let [mover, manager, user, observer] = [
        samples.bus("mover", port, None).await,
        samples.bus("manager", port, None).await,
        samples.bus("user", port, None).await,
        samples.bus("observer", port, None).await,
    ];
    manager.create_missing_streams(None).await.unwrap();
    everybody_works(&mover, &manager, &user, &observer).await;
    forgets_and_shows(samples.options("manager", port, None), &user, &observer).await;

    // What nobody answers takes its time: all at once.
    let refused = |done: Result<(), BusError>| {
        let error = done.expect_err("it is refused");
        assert!(matches!(error, BusError::Refused { .. }), "{error}");
        assert!(error.hint().is_some());
    };
    let registers =
        async { MoverRegistration::start(&user, crate::support::mover("fake", "a")).await.map(drop) };
    let works = async {
        let mut publisher = TransferWorkStream::open(&user, ID).await?.publisher();
        publisher.publish_scan(&ScanWorkHeader { version: RECORD_VERSION, attempt: 9 }).await
    };
    let logs = async {
        let note = TransferLogEntry::Note { by: "user".into(), text: String::new() };
        FleetTransferLog::open(&user, ID)?.append(&note).await.map(drop)
    };
    let follows = async { MoverTable::follow(&user).await.map(drop) };
    let writes = async {
        let transfers = TransferStore::open(&observer).await?;
        transfers.create(&transfer("00000000000000aa", 1)).await.map(drop)
    };
    let leases = async { TransferManagerLease::acquire(&mover, ID, "mover").await.map(drop) };
    let looks = async {
        site_targets(&mover, "east", "").await.map(drop).map_err(|error| match error {
            SiteTargetsRequestError::Bus(error) => error,
            error => panic!("{error}"),
        })
    };
    let (a, b, c, d, e, f, g) = tokio::join!(registers, works, logs, follows, writes, leases, looks);
    for done in [a, b, c, d, e, f, g] {
        refused(done);
    }
    assert!(MoverTable::list(&manager).await.unwrap().iter().all(|mover| mover.id != "fake"));
    assert_eq!(TransferStore::open(&manager).await.unwrap().list(9, None).await.unwrap().len(), 1);

    let wrong = BusOptions {
        login: NatsLogin::Password { user: "manager".into(), file: samples.0.path().join("mover") },
        ..samples.options("manager", port, None)
    };
    let error = NatsBus::connect(&wrong).await.err().unwrap();
    assert!(error.hint().unwrap().contains("credentials"), "{error}");
}

/// A manager may remove what was over long ago, and show the targets of the site that it shares out.
async fn forgets_and_shows(options: BusOptions, user: &NatsBus, observer: &NatsBus) {
    let old = "00000000000000ff";
    let transfers = TransferStore::open(user).await.unwrap();
    let mut record = transfer(old, 1);
    (record.state, record.ended_ms) = (TransferState::Done, Some(1));
    transfers.create(&record).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let limits = Default::default();
    let (keep_history, say) = (manager::HISTORY_KEPT, Arc::new(|text| eprintln!("{text}")));
    let shares = vec![SiteSharing::by_default("east")];
    let options = ManagerOptions {
        bus: options,
        replicas: None,
        limits,
        keep_history,
        keep_leftovers: LEFTOVERS_KEPT,
        near: Vec::new(),
        shares,
        say,
    };
    let running = tokio::spawn(manager::run(options, stopped));
    let began = Instant::now();
    while transfers.get(old).await.is_ok() {
        assert!(began.elapsed() < PATIENCE, "it stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for bus in [user, observer] {
        assert_eq!(site_targets(bus, "east", "").await.unwrap(), []);
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

/// A transfer's way, each step by its role.
async fn everybody_works(mover_bus: &NatsBus, manager: &NatsBus, user: &NatsBus, observer: &NatsBus) {
    let transfers = TransferStore::open(user).await.unwrap();
    transfers.create(&transfer(ID, 1)).await.unwrap();
    transfers.update(ID, |record| record.reason = "new".into()).await.unwrap();
    assert_eq!(transfers.list(9, None).await.unwrap().len(), 1);

    let movers = MoverTable::follow(manager).await.unwrap();
    let registration = MoverRegistration::start(mover_bus, mover("m1", "west")).await.unwrap();
    until("the mover", || movers.get("m1").is_some()).await;
    for bus in [user, observer] {
        assert_eq!(MoverTable::list(bus).await.unwrap().len(), 1);
    }
    assert_eq!(MoverTable::follow(mover_bus).await.unwrap().all().len(), 1);
    let leases = TransferLeaseTable::follow(manager).await.unwrap();
    let mut lease = TransferManagerLease::acquire(manager, ID, "g1").await.unwrap().unwrap();
    until("the lease", || leases.owner(ID).is_some()).await;
    lease.renew().await.unwrap();

    let looked = PathReply { exists: true, is_directory: true, size: 0, is_link: false, parent_exists: true };
    let answer = MoverReply::Looked(looked);
    let said = answer.clone();
    let answers = serve_requests(mover_bus, "m1", move |_| {
        let said = said.clone();
        Box::pin(async move { said })
    });
    let answers = answers.await.unwrap();
    let look = MoverRequest::Look { path: "/data".into() };
    let began = Instant::now();
    let mut asked = send_mover_request(manager, "m1", &look, WAIT).await;
    // Across sites the word that somebody listens takes a moment.
    while asked.is_err() && began.elapsed() < PATIENCE {
        asked = send_mover_request(manager, "m1", &look, WAIT).await;
    }
    assert_eq!(asked.unwrap(), answer);
    drop(answers);

    let managed = TransferWorkStream::open(manager, ID).await.unwrap();
    managed.create_consumers(Duration::from_secs(30)).await.unwrap();
    managed.publish_scan(&ScanWorkHeader { version: RECORD_VERSION, attempt: 1 }).await.unwrap();
    let queue = TransferWorkStream::open(mover_bus, ID).await.unwrap();
    let scan = queue.scans().next(PATIENCE).await.unwrap().unwrap();
    let mut publisher = queue.publisher();
    let head = WorkItemHeader::new(1, 0, WorkItemKind::Files, 1, 1);
    publisher.publish_chunk(&head, b"table".to_vec()).await.unwrap();
    publisher.publish_dirs(1, 0, b"dirs".to_vec()).await.unwrap();
    publisher.publish_large(1, 0, b"large".to_vec()).await.unwrap();
    publisher.flush().await.unwrap();
    scan.ack().await.unwrap();
    let pairs = PairAssignmentStore::open(manager).await.unwrap();
    let pair = carrack_cluster::pairs::MoverPairRecord {
        version: RECORD_VERSION,
        transfer: ID.into(),
        number: 0,
        source: "m1".into(),
        sink: "m2".into(),
    };
    pairs.put(&pair).await.unwrap();
    let mover_pairs = PairAssignmentStore::open(mover_bus).await.unwrap();
    let mut watch = std::pin::pin!(mover_pairs.watch(PairFilter::Mover("m1")).await.unwrap());
    assert!(watch.next().await.is_some());
    let mut heard = subscribe_reports_confirmed(observer, ID).await.unwrap();
    let chunk = queue.chunks().next(PATIENCE).await.unwrap().unwrap();
    chunk.in_progress().await.unwrap();
    // The word that somebody listens is on its way as above.
    let hearing = async {
        loop {
            report(mover_bus, ID, &MoverPairReport::new("m1", 0)).await.unwrap();
            if let Ok(report) = tokio::time::timeout(Duration::from_millis(100), heard.next()).await {
                return report;
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, hearing).await.unwrap().unwrap().mover, "m1");
    let note = TransferLogEntry::Note { by: "m1".into(), text: "moved".into() };
    FleetTransferLog::open(mover_bus, ID).unwrap().append(&note).await.unwrap();
    chunk.ack().await.unwrap();
    assert_eq!(queue.dirs(1).next().await.unwrap().unwrap(), [b"dirs".to_vec()]);
    assert_eq!(queue.read_large(1, 0).await.unwrap().unwrap(), b"large");

    let log = FleetTransferLog::open(manager, ID).unwrap();
    let mut follow = std::pin::pin!(log.replay_and_follow().await.unwrap());
    assert!(matches!(follow.next().await, Some(LogFollowEvent::Entry { entry, .. }) if entry == note));
    assert_eq!(managed.trim().await.unwrap(), 1);
    managed.remove().await.unwrap();
    log.remove().await.unwrap();
    pairs.remove_all(ID).await.unwrap();
    lease.release().await.unwrap();
    registration.leave().await.unwrap();
}

#[tokio::test]
async fn the_cluster_of_three_keeps_three_copies() {
    if server_program().is_none() {
        return;
    }
    let (samples, ports) = (Samples::new(), free_ports(6));
    let servers: Vec<Server> = (0..3)
        .map(|server| {
            let mut changes = vec![("0.0.0.0:6222", format!("127.0.0.1:{}", ports[3 + server]))];
            for (other, host) in
                ["nats1.example.org:6222", "nats2.example.org:6222", "nats3.example.org:6222"]
                    .into_iter()
                    .enumerate()
            {
                changes.push((host, format!("127.0.0.1:{}", ports[3 + other])));
            }
            samples.start("three-servers.conf", &format!("nats{}", server + 1), &changes, ports[server])
        })
        .collect();
    let options = samples.options("manager", ports[0], None);
    let began = Instant::now();
    let prepared = loop {
        // Until the servers have found each other there is no JetStream.
        let prepared = match NatsBus::connect(&options).await {
            Ok(bus) => bus.create_missing_streams(Some(3)).await,
            Err(error) => Err(error),
        };
        match prepared {
            Ok(prepared) => break prepared,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(prepared.replicas, 3);
    drop(servers);
}

#[tokio::test]
async fn a_mover_of_another_site_works_over_the_leaf_link_and_goes_on_when_it_was_cut() {
    if server_program().is_none() {
        return;
    }
    let (samples, ports) = (Samples::new(), free_ports(3));
    let [east_port, west_port, link] = [ports[0], ports[1], ports[2]];
    let link_change = [("0.0.0.0:7422", format!("127.0.0.1:{link}"))];
    let east = samples.start("two-sites-east.conf", "east", &link_change, east_port);
    let url = format!("\"nats://west:west-secret@127.0.0.1:{link}\"");
    let _west = samples.start("two-sites-west.conf", "west", &[("$CARRACK_EAST_URL", url)], west_port);
    let manager = samples.bus("manager", east_port, None).await;
    manager.create_missing_streams(None).await.unwrap();
    let began = Instant::now();
    let mover_bus = loop {
        match NatsBus::connect(&samples.options("mover", west_port, Some("east"))).await {
            Ok(bus) => break bus,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    };
    let [user, observer] = [
        samples.bus("user", west_port, Some("east")).await,
        samples.bus("observer", west_port, Some("east")).await,
    ];
    everybody_works(&mover_bus, &manager, &user, &observer).await;

    // East is away, and comes back: west's mover is still connected to its own server, and goes on.
    let queue = TransferWorkStream::open(&manager, "t2").await.unwrap();
    queue.create_consumers(Duration::from_secs(3)).await.unwrap();
    let mut publisher = queue.publisher();
    for number in 0..2 {
        let head = WorkItemHeader::new(1, number, WorkItemKind::Files, 1, 1);
        publisher.publish_chunk(&head, Vec::new()).await.unwrap();
    }
    publisher.flush().await.unwrap();
    let registration = MoverRegistration::start(&mover_bus, mover("m9", "west")).await.unwrap();
    let chunks = TransferWorkStream::open(&mover_bus, "t2").await.unwrap().chunks();
    let first = chunks.next(PATIENCE).await.unwrap().unwrap();
    drop(east);
    assert!(first.ack().await.is_err(), "nobody hears it");
    assert!(mover_bus.disconnected_for().is_none(), "its own server is there");
    let _east = samples.start("two-sites-east.conf", "east", &link_change, east_port);
    let began = Instant::now();
    let mut left = 2;
    while left > 0 {
        assert!(began.elapsed() < PATIENCE, "{left} chunks are left");
        if let Ok(Some(delivery)) = chunks.next(Duration::from_secs(1)).await {
            delivery.ack().await.unwrap();
            left -= 1;
        }
    }
    let movers = MoverTable::follow(&manager).await.unwrap();
    until("its record", || movers.get("m9").is_some()).await;
    registration.leave().await.unwrap();
}
