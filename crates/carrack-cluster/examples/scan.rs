//! How long it takes to cut and queue a tree of very many files, and how much memory: a walk that makes them
//! up, and all that follows as a mover does it.
//!
//! ```sh
//! url=$(testbed/nats up --dir /tmp/nats)
//! cargo run --release -p carrack-cluster --example scan -- "$url" 10000000
//! testbed/nats down /tmp/nats
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::mover::cutting::{ScannedItemCallback, cut_and_publish};
use carrack_cluster::queue::{ACK_WAIT, TransferWorkStream};
use carrack_cluster::transfers::new_id;
use carrack_model::{CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, Metadata, RelPath};
use carrack_plan::fleet::ChunkLimits;
use carrack_storage::ScannedItem;

/// As in the Linux tree, about.
const FILES_A_DIRECTORY: u64 = 100;

fn section(directory: u64, files: u64) -> DirectorySection {
    let path = RelPath::new(format!("data/run-{:04}/part-{directory:06}", directory / 1000).as_bytes());
    let path = path.unwrap_or_else(|_| RelPath::root());
    let entry = |number: u64| Entry {
        name: format!("sample-{number:08}.dat").into_bytes().into(),
        source_name: None,
        // 0 to 40 KB, one in a thousand with 100 MB.
        kind: EntryKind::Regular {
            size: if number % 1000 == 7 { 100 << 20 } else { number * 7919 % 40_000 },
        },
        metadata: Metadata { mode: 0o644, ..Metadata::default() },
        identity: number + 1,
        extras: None,
    };
    DirectorySection {
        directory: Arc::new(CopiedDirectoryPaths { root_index: 0, source: path.clone(), sink: path }),
        metadata: Some(Metadata { mode: 0o755, ..Metadata::default() }),
        extras: None,
        entries: (directory * FILES_A_DIRECTORY..).take(files as usize).map(entry).collect(),
    }
}

/// Peak of the resident memory, in KiB (proc_pid_status(5)).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "nats://127.0.0.1:4222".into());
    let files: u64 = arguments.next().map_or(Ok(10_000_000), |count| count.parse())?;
    let bus = NatsBus::connect(&BusOptions { servers: vec![url], ..BusOptions::default() }).await?;
    bus.create_missing_streams(None).await?;
    let queue = TransferWorkStream::open(&bus, &new_id()).await?;
    queue.create_consumers(ACK_WAIT).await?;
    let before_kib = peak_kib();
    let began = Instant::now();
    let walk = move |found: &ScannedItemCallback<'_>| {
        for directory in 0..files.div_ceil(FILES_A_DIRECTORY) {
            let left = files - directory * FILES_A_DIRECTORY;
            if found(ScannedItem::Section(section(directory, left.min(FILES_A_DIRECTORY)), 1)).is_break() {
                break;
            }
        }
        Ok(())
    };
    let (report, published) = cut_and_publish(queue.clone(), 1, ChunkLimits::default(), walk).await;
    published?;
    let (counts, seconds) = (report?.counts, began.elapsed().as_secs_f64());
    println!(
        "{} files in {} chunks and {} directories: {seconds:.1} s, {:.0} files/s; memory {} KiB at most, {before_kib} before",
        counts.files,
        counts.chunks,
        counts.directories,
        counts.files as f64 / seconds,
        peak_kib(),
    );
    println!("{} chunks wait", queue.pending_chunks().await?.unacknowledged());
    queue.remove().await?;
    Ok(())
}
