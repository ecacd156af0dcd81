//! The scan of a transfer's source, which becomes chunks (Y3). Runs on threads of its own; one task publishes what they cut.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use carrack_model::RelPath;
use carrack_plan::fleet::{Able, ChunkLimits, FaultKind, Tried, acknowledged_after, left_for, may_be_left};
use carrack_storage::{ExtrasReader, Filter, Named, Purpose, RootKind, Scan, ScanRoot};
use tokio::sync::watch;

use super::Mover;
use super::cutting::{Report, Taking, cut_and_publish};
use super::pair::PairFault;
use super::terms::terms;
use crate::error::BusError;
use crate::log::{Log, LogEntry};
use crate::queue::{Acker, Delivery, Queue, ScanHead};
use crate::records::{Leg, Options, TransferRecord};

/// A request that finds no scan waits so long for one.
const PULL_WAIT: Duration = Duration::from_secs(2);

/// A scan that finds nothing for so long hangs, where others could do it.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// How often a scan that goes on is extended.
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Takes scans of a transfer, one after the other, until `stop` turns true.
pub(super) async fn run(mover: Arc<Mover>, record: TransferRecord, mut stop: watch::Receiver<bool>) {
    let Some(leg) = record.leg.clone() else { return };
    let Ok(queue) = Queue::open(&mover.bus, &record.id).await else { return };
    let scans = queue.scans();
    while !*stop.borrow() {
        let mut pull = std::pin::pin!(scans.next(PULL_WAIT));
        let pulled = tokio::select! {
            pulled = &mut pull => pulled,
            _ = stop.changed() => {
                // What is on its way from the server would be nobody's for half a minute.
                if let Ok(Some(delivery)) = pull.await {
                    let _ = delivery.nak(Duration::ZERO).await;
                }
                return;
            }
        };
        match pulled {
            Ok(None) => {}
            Ok(Some(delivery)) => {
                if let Err(error) = scan(&mover, &record, &leg, &queue, delivery).await {
                    mover.say(format!("transfer {}: the scan: {error}", record.id));
                }
            }
            Err(BusError::Missing(_)) => return,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

async fn scan(
    mover: &Arc<Mover>,
    record: &TransferRecord,
    leg: &Leg,
    queue: &Queue,
    delivery: Delivery<ScanHead>,
) -> Result<(), BusError> {
    let mut tried = queue.scan_tried().await?;
    let sources = mover.movers.able_lately(&record.submission.source.site, &leg.source);
    let able = Able { sources, sinks: Vec::new() };
    let may_be_left = may_be_left(delivery.delivered);
    if may_be_left && tried.is_for_others(&mover.id, "", &able) {
        return delivery.nak(left_for(delivery.delivered)).await;
    }
    tried.add(true, &mover.id);
    let others_may = may_be_left && tried.leaves(true, &able.sources);
    // Each delivery is an attempt of its own: what a mover that died has published is told from it.
    let attempt = delivery.head.attempt - 1 + u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
    let log = Log::open(&mover.bus, &record.id)?;
    let extending = tokio::spawn(extend(delivery.acker()));
    let readers = readers(&record.submission.options);
    let (mover_here, leg_here, readers_here) = (Arc::clone(mover), leg.clone(), readers.clone());
    let steps = Arc::new(AtomicU64::new(0));
    let steps_here = Arc::clone(&steps);
    let walk = move |found: &Taking<'_>| {
        let found: &Taking<'_> = &|what| {
            steps_here.fetch_add(1, Relaxed);
            found(what)
        };
        let (extras, filter) = readers_here.map_err(io::Error::other)?;
        let follows = filter.as_ref().is_some_and(|filter| filter.follows_links());
        let roots = vec![root(&mover_here, &leg_here, follows)?];
        Scan {
            roots,
            threads: mover_here.options.scan_threads,
            destination: None,
            extras,
            filter,
            record: None,
        }
        .run(found);
        Ok(())
    };
    let stripes = stripes_fixed(record);
    let cut = cut_and_publish(queue.clone(), attempt, stripes, limits(record), walk);
    let mut cutting = tokio::spawn(cut);
    let over = tokio::select! {
        over = &mut cutting => Ok(over),
        () = hangs(&steps), if others_may => Err(PairFault::hung("its scan has stood still")),
    };
    extending.abort();
    let (scanned, published) = match over {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => (Err(std::io::Error::other(panic)), Ok(())),
        Err(fault) => {
            mover.abandon(cutting, true);
            return give_to_others(mover, queue, &delivery, &tried, &fault).await;
        }
    };
    if let Err(error) = published {
        delivery.nak(Duration::from_secs(1)).await?;
        return Err(error);
    }
    // That it can't be read at all is not for one mover to say, however few there are.
    let is_left = |fault: &PairFault| others_may || may_be_left && fault.kind == FaultKind::Refused;
    if let Some(fault) = doubt(&scanned).filter(is_left) {
        return give_to_others(mover, queue, &delivery, &tried, &fault).await;
    }
    let by = mover.id.clone();
    let losses: Vec<_> = readers
        .ok()
        .and_then(|(reader, _)| reader)
        .into_iter()
        .flat_map(|reader| reader.losses().take())
        .collect();
    if !losses.is_empty() {
        let of = format!("scan-{attempt}");
        log.append(&LogEntry::Lost { by: by.clone(), of, number: 0, losses }).await?;
    }
    log.append(&ended(scanned, attempt, by)).await?;
    tokio::time::sleep(acknowledged_after(delivery.delivered)).await;
    delivery.ack().await
}

/// Keeps a scan from being delivered to others, until it is aborted.
async fn extend(acker: Acker) {
    loop {
        tokio::time::sleep(EXTEND_EVERY).await;
        // Not extended it is delivered again, and the later attempt counts.
        let _ = acker.in_progress().await;
    }
}

/// What the log is told of a scan.
fn ended(scanned: io::Result<Report>, attempt: u32, by: String) -> LogEntry {
    match scanned {
        Ok(report) => LogEntry::ScanDone {
            attempt,
            by,
            chunks: report.counts.chunks,
            files: report.counts.files,
            bytes: report.counts.bytes,
            names: report.counts.names,
            directories: report.counts.directories,
            directory_messages: report.end_messages,
            large_files: report.counts.files_in_parts,
            failures: report.failures,
            failed_entries: report.failed_entries,
            skipped: report.skipped,
            skipped_entries: report.skipped_entries,
        },
        Err(error) => LogEntry::ScanFailed { attempt, by, reason: error.to_string() },
    }
}

type Readers = (Option<Arc<ExtrasReader>>, Option<Arc<Filter>>);

/// What reads what is kept beyond modes and times, if anything is, and what says what is left out, if anything is.
fn readers(options: &Options) -> Result<Readers, String> {
    let (spec, settings) = terms(options).map_err(|trouble| trouble.line())?;
    let reader = ExtrasReader::new(settings.fidelity, spec.slot_bytes as usize).map(Arc::new);
    let filter = Filter::new(&settings.selection).map_err(|error| error.to_string())?;
    Ok((reader, filter.map(Arc::new)))
}

/// Returns when nothing was found for too long.
async fn hangs(steps: &AtomicU64) {
    let mut last = 0;
    loop {
        tokio::time::sleep(HANGS_AFTER).await;
        let now = steps.load(Relaxed);
        if now == last {
            return;
        }
        last = now;
    }
}

/// What another mover of the site may see otherwise: what could not be read, and that there is nothing at all.
fn doubt(scanned: &io::Result<Report>) -> Option<PairFault> {
    let (kind, reason) = match scanned {
        Err(error) => (FaultKind::Refused, error.to_string()),
        Ok(report) if report.doubt.is_some() => (FaultKind::Doubted, report.doubt.clone()?),
        Ok(report) if report.is_empty() => (FaultKind::Doubted, "it finds nothing there".to_owned()),
        Ok(_) => return None,
    };
    Some(PairFault { is_source: true, kind, reason })
}

/// The site's other movers scan.
async fn give_to_others(
    mover: &Mover,
    queue: &Queue,
    delivery: &Delivery<ScanHead>,
    tried: &Tried,
    fault: &PairFault,
) -> Result<(), BusError> {
    mover.tell_fault(queue.transfer(), "", fault).await;
    queue.note_scan_tried(tried).await?;
    delivery.nak(left_for(delivery.delivered)).await
}

/// With how many stripes a transfer's queue is prepared: none but for static striping.
pub(crate) fn stripes_fixed(record: &TransferRecord) -> u32 {
    if record.submission.options.static_striping() { pairs_of(record) } else { 0 }
}

/// Pairs that a transfer with static striping has.
pub(crate) fn pairs_of(record: &TransferRecord) -> u32 {
    record.submission.options.pairs().unwrap_or(1).max(1)
}

fn limits(record: &TransferRecord) -> ChunkLimits {
    // Chunks of a size that was named have that.
    record.submission.options.chunk_bytes().map_or_else(ChunkLimits::default, ChunkLimits::fixed)
}

/// With `follows` links are what they lead to beneath the directories that the mover serves.
fn root(mover: &Mover, leg: &Leg, follows: bool) -> io::Result<ScanRoot> {
    let source = Path::new(&leg.source);
    let base = mover.reach.base_for(source)?;
    let open = || match follows {
        true => base.open_following(source),
        false => base.open(source, Purpose::ReadThrough),
    };
    let Some((name, sink_name)) = &leg.only else {
        return Ok(ScanRoot { root: Arc::new(open()?), what: RootKind::Tree { sink: RelPath::root() } });
    };
    let Named { root, name, .. } = match follows {
        true => Named { root: open()?, name: name.as_bytes().into(), follow: true },
        false => base.hold(&source.join(PathBuf::from(name)), false)?,
    };
    let (sink_directory, sink_name) = (RelPath::root(), sink_name.as_bytes().into());
    let what = RootKind::Name { name, sink_directory, sink_name, follow: follows };
    Ok(ScanRoot { root: Arc::new(root), what })
}
