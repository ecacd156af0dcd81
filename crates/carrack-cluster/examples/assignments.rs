//! How many chunks a server gives out: pulls and confirmed acknowledgements a second, and what registered movers cost.
//!
//! ```sh
//! url=$(testbed/nats up --dir /tmp/nats)
//! cargo run --release -p carrack-cluster --example assignments -- --url "$url" --chunks 50000 --pullers 64
//! cargo run --release -p carrack-cluster --example assignments -- --url "$url" --movers 1000
//! testbed/nats down /tmp/nats
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carrack_cluster::bus::{Bus, BusOptions};
use carrack_cluster::error::BusError;
use carrack_cluster::queue::{ACK_WAIT, COMMON, ChunkHead, ChunkKind, Queue};
use carrack_cluster::registry::{Movers, Registration};
use carrack_cluster::transfers::new_id;
use carrack_register::records::{MoverRecord, MoverState, RECORD_VERSION};
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
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        url: "nats://127.0.0.1:4222".to_owned(),
        chunks: 50_000,
        table_bytes: 256,
        pullers: 64,
        movers: 0,
        seconds: 20,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
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
        buses.push(Bus::connect(&options).await?);
    }
    buses[0].prepare(None).await?;
    match arguments.movers {
        0 => assign(&buses, &arguments).await?,
        _ => register(&buses, &arguments).await?,
    }
    Ok(())
}

async fn assign(buses: &[Bus], arguments: &Arguments) -> Result<(), BusError> {
    let transfer = new_id();
    let queue = Queue::open(&buses[0], &transfer).await?;
    queue.prepare(ACK_WAIT, 0).await?;
    let began = Instant::now();
    let mut publisher = queue.publisher();
    for number in 0..arguments.chunks {
        let head = ChunkHead::new(1, number, ChunkKind::Files, 1, 1 << 30);
        publisher.publish_chunk(COMMON, &head, vec![0; arguments.table_bytes]).await?;
    }
    publisher.flush().await?;
    print_rate("published", arguments.chunks, began.elapsed());

    let began = Instant::now();
    let again = Arc::new(AtomicU64::new(0));
    let mut pullers = JoinSet::new();
    for puller in 0..arguments.pullers {
        let queue = Queue::open(&buses[puller % buses.len()], &transfer).await?;
        let again = Arc::clone(&again);
        pullers.spawn(async move {
            let chunks = queue.chunks(COMMON);
            let mut done = 0;
            while let Some(delivery) = chunks.next(Duration::ZERO).await? {
                again.fetch_add(u64::from(delivery.is_again()), Ordering::Relaxed);
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
    queue.remove(0).await
}

async fn register(buses: &[Bus], arguments: &Arguments) -> Result<(), BusError> {
    let began = Instant::now();
    let mut registrations = Vec::new();
    for number in 0..arguments.movers {
        registrations.push(Registration::start(&buses[number % buses.len()], record(number)).await?);
    }
    print_rate("registered", arguments.movers as u64, began.elapsed());
    let movers = Movers::follow(&Bus::clone(&buses[0])).await?;
    let mut fewest = usize::MAX;
    for _ in 0..arguments.seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fewest = fewest.min(movers.all().len());
    }
    let oldest = registrations.iter().map(Registration::confirmed_for).max().unwrap_or_default();
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
        state: MoverState::Idle,
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
