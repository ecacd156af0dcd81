//! How many chunks a fleet gives out: by a server alone, and by a server and a manager; and what registered
//! movers cost.
//!
//! ```sh
//! url=$(testbed/nats up --dir /tmp/nats) cargo run --release -p carrack-cluster --example assignments --
//! --url "$url" --chunks 50000 --pullers 64 cargo run --release -p carrack-cluster --example assignments --
//! --url "$url" --chunks 50000 --pullers 64 --managed cargo run --release -p carrack-cluster --example
//! assignments -- --url "$url" --movers 1000 testbed/nats down /tmp/nats
//! ```
//!
//! With `--managed` a manager carries a transfer: it settles and orders the scan, follows the log, deals
//! pairs, writes the record, closes. What stands for movers pulls, logs and acknowledges each chunk as movers
//! do, and moves no data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::error::BusError;
use carrack_cluster::log::{FleetTransferLog, LoggedChunkResult, TransferLogEntry};
use carrack_cluster::manager::{self, ManagerOptions};
use carrack_cluster::mover_requests::{MoverReply, MoverRequest, PathReply, serve_requests};
use carrack_cluster::queue::{ACK_WAIT, QueueDelivery, TransferWorkStream, WorkItemHeader, WorkItemKind};
use carrack_cluster::registry::{MoverRegistration, MoverTable};
use carrack_cluster::reports::{MoverPairReport, report};
use carrack_cluster::transfers::{TransferStore, new_id};
use carrack_register::transfer_records::{
    MoverAvailability, MoverRecord, RECORD_VERSION, TransferOptions, TransferRecord, TransferState,
    TransferSubmission,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Connections: pullers and movers share them as evenly as they can.
const CONNECTIONS: usize = 8;

struct Arguments {
    url: String,
    chunks: u64,
    table_bytes: usize,
    pullers: usize,
    movers: usize,
    seconds: u64,
    managed: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        url: "nats://127.0.0.1:4222".to_owned(),
        chunks: 50_000,
        table_bytes: 256,
        pullers: 64,
        movers: 0,
        seconds: 20,
        managed: false,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        if option == "--managed" {
            arguments.managed = true;
            continue;
        }
        let value = rest.next().ok_or(format!("{option} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{option} needs a number, not {value}"));
        match &*option {
            "--url" => arguments.url = value,
            "--chunks" => arguments.chunks = number()?,
            "--table-bytes" => arguments.table_bytes = number()? as usize,
            "--pullers" => arguments.pullers = number()? as usize,
            "--movers" => arguments.movers = number()? as usize,
            "--seconds" => arguments.seconds = number()?,
            _ => return Err(format!("no such option: {option}")),
        }
    }
    Ok(arguments)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let options = BusOptions {
        servers: arguments.url.split(',').map(str::to_owned).collect(),
        ..BusOptions::default()
    };
    let mut buses = Vec::new();
    for _ in 0..CONNECTIONS {
        buses.push(NatsBus::connect(&options).await?);
    }
    buses[0].create_missing_streams(None).await?;
    match arguments.movers {
        0 if arguments.managed => carry(&buses, &options, &arguments).await?,
        0 => assign(&buses, &arguments).await?,
        _ => register(&buses, &arguments).await?,
    }
    Ok(())
}

async fn assign(buses: &[NatsBus], arguments: &Arguments) -> Result<(), BusError> {
    let transfer = new_id();
    let queue = TransferWorkStream::open(&buses[0], &transfer).await?;
    queue.create_consumers(ACK_WAIT).await?;
    let began = Instant::now();
    publish(&queue, 1, arguments).await?;
    print_rate("published", arguments.chunks, began.elapsed());

    let began = Instant::now();
    let again = Arc::new(AtomicU64::new(0));
    let mut pullers = JoinSet::new();
    for puller in 0..arguments.pullers {
        let queue = TransferWorkStream::open(&buses[puller % buses.len()], &transfer).await?;
        let again = Arc::clone(&again);
        pullers.spawn(async move {
            let chunks = queue.chunks();
            let mut done = 0;
            while let Some(delivery) = chunks.next(Duration::ZERO).await? {
                again.fetch_add(u64::from(delivery.is_redelivered()), Ordering::Relaxed);
                delivery.ack().await?;
                done += 1;
            }
            Ok::<u64, BusError>(done)
        });
    }
    let mut done = 0;
    for puller in pullers.join_all().await {
        done += puller?;
    }
    print_rate("pulled and acknowledged", done, began.elapsed());
    println!("{} pullers, {} delivered again", arguments.pullers, again.load(Ordering::Relaxed));
    queue.remove().await
}

async fn publish(queue: &TransferWorkStream, attempt: u32, arguments: &Arguments) -> Result<(), BusError> {
    let mut publisher = queue.publisher();
    for number in 0..arguments.chunks {
        let head = WorkItemHeader::new(attempt, number, WorkItemKind::Files, 1, 1 << 30);
        publisher.publish_chunk(&head, vec![0; arguments.table_bytes]).await?;
    }
    publisher.flush().await
}

/// A whole transfer by a manager. The time is from the scan's end until the record says that it is done.
async fn carry(
    buses: &[NatsBus],
    options: &BusOptions,
    arguments: &Arguments,
) -> Result<(), Box<dyn std::error::Error>> {
    let (stop, stopped) = watch::channel(false);
    let manager = tokio::spawn(manager::run(manager_options(options), stopped));
    let mut movers = Vec::new();
    for number in 0..4 {
        let bus = &buses[number % buses.len()];
        let record = MoverRecord { pairs_max: 64, ..record(number) };
        let answers = serve_requests(bus, &record.id, |ask| Box::pin(async move { answer(&ask) })).await?;
        movers.push((answers, MoverRegistration::start(bus, record).await?));
    }
    let transfers = TransferStore::open(&buses[0]).await?;
    let id = new_id();
    transfers.create(&TransferRecord::queued(id.clone(), "bench", submission(), now_ms())).await?;

    let queue = TransferWorkStream::open(&buses[0], &id).await?;
    let log = FleetTransferLog::open(&buses[0], &id)?;
    let scan = loop {
        // Until the manager has made it there is no queue.
        if let Ok(Some(scan)) = queue.scans().next(Duration::from_secs(1)).await {
            break scan;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    publish(&queue, scan.head.attempt, arguments).await?;
    log.append(&scan_done(scan.head.attempt, arguments.chunks)).await?;
    let began = Instant::now();
    scan.ack().await?;

    let mut pullers = JoinSet::new();
    for puller in 0..arguments.pullers {
        let bus = buses[puller % buses.len()].clone();
        let (queue, log) = (TransferWorkStream::open(&bus, &id).await?, FleetTransferLog::open(&bus, &id)?);
        pullers.spawn(pull(bus, queue, log, puller));
    }
    loop {
        let record = transfers.get(&id).await?;
        if record.state == TransferState::Done {
            break;
        }
        assert!(!record.state.is_over(), "{:?}: {}", record.state, record.reason);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    print_rate("carried by a manager", arguments.chunks, began.elapsed());
    pullers.shutdown().await;
    let _ = stop.send(true);
    Ok(manager.await??)
}

/// As a mover's pair: each chunk is logged, and then acknowledged.
async fn pull(
    bus: NatsBus,
    queue: TransferWorkStream,
    log: FleetTransferLog,
    puller: usize,
) -> Result<(), BusError> {
    let mover = format!("mover-{}", puller % 2 * 2);
    let mut told = Instant::now();
    let mut moved = 0;
    let chunks = queue.chunks();
    loop {
        // Gone with the transfer.
        let Ok(next) = chunks.next(Duration::from_secs(1)).await else { return Ok(()) };
        if let Some(delivery) = next {
            log.append(&entry(&mover, &delivery)).await?;
            delivery.ack().await?;
            moved += delivery.head.bytes;
        }
        if told.elapsed() >= Duration::from_secs(1) {
            let bytes_per_s = moved / told.elapsed().as_secs().max(1);
            let said = MoverPairReport { bytes_per_s, ..MoverPairReport::new(&mover, puller as u32) };
            report(&bus, queue.transfer(), &said).await?;
            (told, moved) = (Instant::now(), 0);
        }
    }
}

fn entry(mover: &str, delivery: &QueueDelivery<WorkItemHeader>) -> TransferLogEntry {
    let (head, by) = (&delivery.head, mover.to_owned());
    match head.kind {
        WorkItemKind::Close => {
            TransferLogEntry::Closed { attempt: head.attempt, by, failures: Vec::new(), failed_entries: 0 }
        }
        _ => TransferLogEntry::ChunkDone(LoggedChunkResult {
            attempt: head.attempt,
            number: head.number,
            by,
            sink: "mover-1".to_owned(),
            delivered: delivery.delivered,
            part: None,
            files: head.entries,
            bytes: head.bytes,
            moved_bytes: head.bytes,
            session: mover.to_owned(),
            session_bytes: head.bytes,
            failures: Vec::new(),
            failed_entries: 0,
        }),
    }
}

fn scan_done(attempt: u32, chunks: u64) -> TransferLogEntry {
    TransferLogEntry::ScanDone {
        attempt,
        by: "mover-0".to_owned(),
        chunks,
        files: chunks,
        bytes: chunks << 30,
        names: 0,
        directories: 1,
        directory_messages: 0,
        large_files: 0,
        failures: Vec::new(),
        failed_entries: 0,
        skipped: Vec::new(),
        skipped_entries: 0,
    }
}

fn answer(ask: &MoverRequest) -> MoverReply {
    match ask {
        MoverRequest::Look { .. } => MoverReply::Looked(PathReply {
            exists: true,
            is_directory: true,
            size: 0,
            is_link: false,
            parent_exists: true,
        }),
        MoverRequest::Make { .. } => MoverReply::Made,
        MoverRequest::Names { .. } => MoverReply::Names { digest: "the same".to_owned() },
        MoverRequest::Prove { .. } => MoverReply::Unseen { files: Vec::new() },
        MoverRequest::Clear { .. } => MoverReply::Cleared { journals: 0, temporaries: 0 },
        MoverRequest::LeftOut { .. } => MoverReply::Noted,
    }
}

fn submission() -> TransferSubmission {
    TransferSubmission {
        source: "site-0:/data/x".parse().expect("a place"),
        destination: "site-1:/data/y".parse().expect("a place"),
        options: TransferOptions::default(),
        priority: 5,
        label: String::new(),
        not_before_ms: None,
        umask: None,
    }
}

fn manager_options(bus: &BusOptions) -> ManagerOptions {
    ManagerOptions {
        bus: bus.clone(),
        replicas: None,
        limits: Default::default(),
        keep_history: manager::HISTORY_KEPT,
        keep_leftovers: Duration::from_secs(3600),
        near: Vec::new(),
        shares: Vec::new(),
        say: Arc::new(|text| eprintln!("manager: {text}")),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

async fn register(buses: &[NatsBus], arguments: &Arguments) -> Result<(), BusError> {
    let began = Instant::now();
    let mut registrations = Vec::new();
    for number in 0..arguments.movers {
        registrations.push(MoverRegistration::start(&buses[number % buses.len()], record(number)).await?);
    }
    print_rate("registered", arguments.movers as u64, began.elapsed());
    let movers = MoverTable::follow(&NatsBus::clone(&buses[0])).await?;
    let mut fewest = usize::MAX;
    for _ in 0..arguments.seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fewest = fewest.min(movers.all().len());
    }
    let oldest = registrations.iter().map(MoverRegistration::heartbeat_age).max().unwrap_or_default();
    println!(
        "{} movers for {} s: {fewest} were there at the fewest, the oldest beat is {oldest:.1?} old",
        arguments.movers, arguments.seconds
    );
    Ok(())
}

fn record(number: usize) -> MoverRecord {
    MoverRecord {
        version: RECORD_VERSION,
        id: format!("mover-{number}"),
        site: format!("site-{}", number % 2),
        host: "simulated".to_owned(),
        addresses: vec!["192.0.2.1:4000".to_owned()],
        // As long as a certificate is.
        ca_pem: "x".repeat(700),
        paths: vec!["/data".to_owned()],
        pairs_max: 4,
        pairs: 0,
        lanes: 2,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: 1,
        state: MoverAvailability::Idle,
        bytes_per_s: 0,
        site_marks: Vec::new(),
        ill: String::new(),
        left_out: String::new(),
    }
}

fn print_rate(what: &str, count: u64, time: Duration) {
    println!(
        "{what}: {count} in {:.2} s, {:.0} a second",
        time.as_secs_f64(),
        count as f64 / time.as_secs_f64()
    );
}
