//! Scans the source of a transfer and turns it into chunks (Y3). The scan has threads of its own; one task
//! publishes the messages.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use carrack_model::{RelPath, text_without_errno};
use carrack_plan::fleet::{
    AvailableMovers, ChunkLimits, FailedMovers, MoverFaultKind, may_leave_to_others, redelivery_delay,
    scan_ack_delay,
};
use carrack_storage::{
    EntryPlace, ExtraMetadataReader, PathPurpose, ScanFilter, ScanRoot, ScanRootScope, SourceScan,
};
use tokio::sync::watch;

use super::MoverContext;
use super::cutting::{ScanReport, ScannedItemCallback, cut_and_publish};
use super::engine_settings::spec_and_settings;
use super::pair::PairFault;
use crate::error::BusError;
use crate::log::{FleetTransferLog, TransferLogEntry};
use crate::queue::{DeliveryAcker, QueueDelivery, ScanWorkHeader, TransferWorkStream};
use crate::transfer_records::{ResolvedTransferPaths, TransferOptions, TransferRecord};

/// The time limit of a request for a scan.
const PULL_WAIT: Duration = Duration::from_secs(2);

/// A scan without progress for this time hangs, if other movers could do it.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The interval between two extensions of a running scan.
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Takes scans of a transfer, one after the other, until `stop` turns true.
pub(super) async fn run(mover: Arc<MoverContext>, record: TransferRecord, mut stop: watch::Receiver<bool>) {
    let Some(leg) = record.leg.clone() else { return };
    let Ok(queue) = TransferWorkStream::open(&mover.bus, &record.id).await else { return };
    let scans = queue.scans();
    while !*stop.borrow() {
        let mut pull = std::pin::pin!(scans.next(PULL_WAIT));
        let pulled = tokio::select! {
            pulled = &mut pull => pulled,
            _ = stop.changed() => {
                // A delivery on its way would otherwise stay unassigned for half a minute.
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
                    mover.notify_user(format!("transfer {}: the scan: {error}", record.id));
                }
            }
            Err(BusError::Missing(_)) => return,
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

async fn scan(
    mover: &Arc<MoverContext>,
    record: &TransferRecord,
    leg: &ResolvedTransferPaths,
    queue: &TransferWorkStream,
    delivery: QueueDelivery<ScanWorkHeader>,
) -> Result<(), BusError> {
    let mut tried = queue.scan_failed_movers().await?;
    let sources = mover.movers.recently_ready_mover_ids(&record.submission.source.site, &leg.source);
    let able = AvailableMovers { sources, sinks: Vec::new() };
    let may_be_left = may_leave_to_others(delivery.delivered);
    if may_be_left && tried.should_leave_to_others(&mover.id, "", &able) {
        return delivery.nak(redelivery_delay(delivery.delivered)).await;
    }
    tried.add(true, &mover.id);
    let others_may = may_be_left && tried.has_untried(true, &able.sources);
    // Each delivery is a separate attempt, which distinguishes the messages of a mover that died.
    let attempt = delivery.head.attempt - 1 + u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
    let log = FleetTransferLog::open(&mover.bus, &record.id)?;
    let extending = tokio::spawn(extend(delivery.acker()));
    let readers = extras_and_filter(&record.submission.options);
    let steps = Arc::new(AtomicU64::new(0));
    let walk = {
        let (mover, leg, readers, steps) =
            (Arc::clone(mover), leg.clone(), readers.clone(), Arc::clone(&steps));
        move |found: &ScannedItemCallback<'_>| {
            let readers = readers.map_err(io::Error::other)?;
            walk(&mover, &leg, readers, &steps, found)
        }
    };
    let mut cutting = tokio::spawn(cut_and_publish(queue.clone(), attempt, limits(record), walk));
    let over = tokio::select! {
        over = &mut cutting => Ok(over),
        () = wait_until_hanging(&steps), if others_may => Err(PairFault::hung("its scan has stood still")),
    };
    extending.abort();
    let (scanned, published) = match over {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => (Err(std::io::Error::other(panic)), Ok(())),
        Err(fault) => {
            mover.abandon(cutting, true);
            return leave_to_other_movers(mover, queue, &delivery, &tried, &fault).await;
        }
    };
    if let Err(error) = published {
        delivery.nak(Duration::from_secs(1)).await?;
        return Err(error);
    }
    // One mover can't decide that the source is unreadable, however few movers there are.
    if let Some(fault) = scan_fault(&scanned)
        && (others_may || may_be_left && fault.kind == MoverFaultKind::Refused)
    {
        return leave_to_other_movers(mover, queue, &delivery, &tried, &fault).await;
    }
    let reader = readers.ok().and_then(|(reader, _)| reader);
    let losses: Vec<_> = reader.into_iter().flat_map(|reader| reader.losses().take()).collect();
    let by = mover.id.clone();
    if !losses.is_empty() {
        let of = format!("scan-{attempt}");
        log.append(&TransferLogEntry::Lost { by: by.clone(), of, number: 0, losses }).await?;
    }
    log.append(&scan_log_entry(scanned, attempt, by)).await?;
    tokio::time::sleep(scan_ack_delay(delivery.delivered)).await;
    delivery.ack().await
}

/// Scans the sources of the transfer, and counts the entries in `steps`.
fn walk(
    mover: &MoverContext,
    leg: &ResolvedTransferPaths,
    readers: ScanExtrasAndFilter,
    steps: &AtomicU64,
    found: &ScannedItemCallback<'_>,
) -> io::Result<()> {
    let (extras, filter) = readers;
    let follows = filter.as_ref().is_some_and(|filter| filter.follows_links());
    let roots = vec![root(mover, leg, follows)?];
    let threads = mover.options.scan_threads;
    SourceScan { roots, threads, destination: None, extras, filter, record: None }.run(&|what| {
        steps.fetch_add(1, Relaxed);
        found(what)
    });
    Ok(())
}

/// Extends the delivery of a scan until it is aborted, so that no other mover gets it.
async fn extend(acker: DeliveryAcker) {
    loop {
        tokio::time::sleep(EXTEND_EVERY).await;
        // If it is not extended, it is redelivered, and the later attempt counts.
        let _ = acker.in_progress().await;
    }
}

/// Returns the log entry of a scan.
fn scan_log_entry(scanned: io::Result<ScanReport>, attempt: u32, by: String) -> TransferLogEntry {
    match scanned {
        Ok(report) => TransferLogEntry::ScanDone {
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
        Err(error) => TransferLogEntry::ScanFailed { attempt, by, reason: text_without_errno(&error) },
    }
}

type ScanExtrasAndFilter = (Option<Arc<ExtraMetadataReader>>, Option<Arc<ScanFilter>>);

/// The reader of attributes and the filter of entries, as far as the transfer needs them.
fn extras_and_filter(options: &TransferOptions) -> Result<ScanExtrasAndFilter, String> {
    let (spec, settings) = spec_and_settings(options).map_err(|trouble| trouble.line())?;
    let reader = ExtraMetadataReader::new(settings.fidelity, spec.slot_bytes as usize).map(Arc::new);
    let filter = ScanFilter::new(&settings.selection).map_err(|error| text_without_errno(&error))?;
    Ok((reader, filter.map(Arc::new)))
}

/// Returns when the scan has found nothing for too long.
async fn wait_until_hanging(steps: &AtomicU64) {
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

/// Returns a fault if another mover of the site may see the source otherwise: read errors, or no entries at
/// all.
fn scan_fault(scanned: &io::Result<ScanReport>) -> Option<PairFault> {
    let (kind, reason) = match scanned {
        Err(error) => (MoverFaultKind::Refused, text_without_errno(&error)),
        Ok(report) if report.doubt.is_some() => (MoverFaultKind::Doubted, report.doubt.clone()?),
        Ok(report) if report.is_empty() => (MoverFaultKind::Doubted, "it finds nothing there".to_owned()),
        Ok(_) => return None,
    };
    Some(PairFault { is_source: true, kind, reason })
}

/// Leaves the scan to the site's other movers.
async fn leave_to_other_movers(
    mover: &MoverContext,
    queue: &TransferWorkStream,
    delivery: &QueueDelivery<ScanWorkHeader>,
    tried: &FailedMovers,
    fault: &PairFault,
) -> Result<(), BusError> {
    mover.report_fault(queue.transfer(), "", fault).await;
    queue.store_scan_failed_movers(tried).await?;
    delivery.nak(redelivery_delay(delivery.delivered)).await
}

fn limits(record: &TransferRecord) -> ChunkLimits {
    // The user's chunk size is fixed.
    record.submission.options.chunk_bytes().map_or_else(ChunkLimits::default, ChunkLimits::fixed)
}

/// Returns the root of the scan. With `follows` the scan follows links beneath the mover's directories.
fn root(mover: &MoverContext, leg: &ResolvedTransferPaths, follows: bool) -> io::Result<ScanRoot> {
    let source = Path::new(&leg.source);
    let base = mover.reach.base_for(source)?;
    let Some((name, sink_name)) = &leg.only else {
        let root =
            if follows { base.open_following(source)? } else { base.open(source, PathPurpose::ReadThrough)? };
        return Ok(ScanRoot { root: Arc::new(root), what: ScanRootScope::Tree { sink: RelPath::root() } });
    };
    let EntryPlace { root, name, .. } = if follows {
        EntryPlace { root: base.open_following(source)?, name: name.as_bytes().into(), follow: true }
    } else {
        base.hold(&source.join(PathBuf::from(name)), false)?
    };
    let (sink_directory, sink_name) = (RelPath::root(), sink_name.as_bytes().into());
    let what = ScanRootScope::Name { name, sink_directory, sink_name, follow: follows };
    Ok(ScanRoot { root: Arc::new(root), what })
}
