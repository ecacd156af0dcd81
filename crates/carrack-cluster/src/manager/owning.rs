//! One transfer, for as long as this manager has its lease: reads the log, asks for what comes next, and writes the record.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carrack_plan::fleet::{
    Fault, FileKey, Found, Next, Outcome, PairTuner, PartOf as PlanPart, Stragglers, Totals, Tracker,
    TrackerEvent, Verdict,
};
use futures_util::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Manager;
use super::ends::{Which, end, ids};
use super::losses::Losses;
use super::moved::Moved;
use super::settling::settle_leg;
use crate::curves::{CurvePoint, CurveRecord, Curves};
use crate::error::BusError;
use crate::lease::{Lease, RENEW_EVERY, RenewError};
use crate::log::{ChunkDone, Log, LogEntry, Logged};
use crate::mover::pairs_of;
use crate::queue::{ACK_WAIT, COMMON, ChunkHead, ChunkKind, Queue, ScanHead};
use crate::records::{
    FAILURES_KEPT, Failure, RECORD_VERSION, Skipped, TransferRecord, TransferState, now_ms,
};
use crate::reports::{PairReport, reports};
use crate::transfers::TransferChange;

/// How often it decides, though nothing was told.
const TICK: Duration = Duration::from_millis(250);

/// What was told is waited for so long, so that what comes together is decided about once.
const SOON: Duration = Duration::from_millis(5);

/// Whether a scan is ordered is asked again after so long, as one that is not begun may have been lost.
const ASK_SCAN_EVERY: Duration = Duration::from_secs(5);

/// A transfer with pairs in which nothing has moved for so long says what went wrong last.
const STANDS_AFTER: Duration = Duration::from_secs(10);

/// How often the record is written while something changes.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// A report older than this says nothing about now.
const REPORT_LASTS: Duration = Duration::from_secs(4);

/// Acknowledged chunks are trimmed so often.
const TRIM_EVERY: Duration = Duration::from_secs(30);

/// Why the work for a transfer ends here.
pub(super) enum Stop {
    /// Another manager goes on with it.
    Lost,
    /// Nothing is left to do for it.
    Over,
    /// This manager ends.
    Told,
}

type Entries = Pin<Box<dyn Stream<Item = Logged> + Send>>;
type Reports = Pin<Box<dyn Stream<Item = PairReport> + Send>>;

pub(super) struct Owning {
    pub(super) manager: Arc<Manager>,
    pub(super) id: String,
    wanted: Arc<AtomicU32>,
    queue: Queue,
    log: Log,
    began: Instant,
    pub(super) tracker: Tracker,
    pub(super) stragglers: Stragglers,
    tuner: PairTuner,
    /// The latest report of each pair, and when it came.
    pairs: std::collections::HashMap<(String, u32), (Instant, PairReport)>,
    /// The log was read to its end.
    is_current: bool,
    attempt: u32,
    failures: Vec<Failure>,
    moved: Moved,
    losses: Losses,
    /// What the last scan has left out, and how many these are.
    skipped: (Vec<Skipped>, u64),
    /// What went wrong last, and since when nothing has moved.
    last_fault: String,
    moved_at: (Instant, u64),
    scan_asked_at: Option<Instant>,
    /// Why it can't be carried on.
    given_up: Option<String>,
    recorded_at: Option<Instant>,
    trimmed_at: Instant,
    observed_at: Instant,
}

/// Carries on until the transfer is over, the lease is lost, or `stop` turns true.
pub(super) async fn run(
    manager: Arc<Manager>,
    mut lease: Lease,
    wanted: Arc<AtomicU32>,
    mut stop: watch::Receiver<bool>,
) {
    let id = lease.transfer().to_owned();
    manager.say(format!("transfer {id}: mine"));
    let end = loop {
        match carry(&manager, &mut lease, &wanted, &mut stop).await {
            Ok(end) => break end,
            Err(error) => {
                manager.say(format!("transfer {id}: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                if !lease.is_sure() && lease.renew().await.is_err() {
                    break Stop::Lost;
                }
            }
        }
    };
    match end {
        Stop::Lost => manager.say(format!("transfer {id}: another manager's now")),
        Stop::Over | Stop::Told => {
            // Else it ends by itself.
            let _ = lease.release().await;
        }
    }
    manager.changed.notify_one();
}

async fn carry(
    manager: &Arc<Manager>,
    lease: &mut Lease,
    wanted: &Arc<AtomicU32>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Stop, BusError> {
    let id = lease.transfer().to_owned();
    // What is followed may be behind: a transfer that is over would be taken again.
    let Some(record) = as_kept(manager, &id).await? else { return Ok(Stop::Over) };
    let is_unsettled = record.state != TransferState::Cancelled && record.leg.is_none();
    if is_unsettled && let Some(end) = settle_leg(manager, lease, &record, stop).await? {
        return Ok(end);
    }
    let queue = Queue::open(&manager.bus, &id).await?;
    let log = Log::open(&manager.bus, &id)?;
    let stripes = if record.submission.options.static_striping { pairs_of(&record) } else { 0 };
    queue.prepare(ACK_WAIT, stripes).await?;
    let mut entries: Entries = Box::pin(log.replay_and_follow().await?);
    let mut told: Reports = Box::pin(reports(&manager.bus, &id).await?);
    let now = Instant::now();
    let mut owning = Owning {
        manager: Arc::clone(manager),
        id,
        wanted: Arc::clone(wanted),
        queue,
        log,
        began: now,
        tracker: Tracker::new(),
        stragglers: Stragglers::new(),
        tuner: PairTuner::new(1, 1),
        pairs: std::collections::HashMap::new(),
        is_current: false,
        attempt: 0,
        failures: Vec::new(),
        moved: Moved::default(),
        losses: Losses::default(),
        skipped: (Vec::new(), 0),
        last_fault: String::new(),
        moved_at: (now, 0),
        scan_asked_at: None,
        given_up: None,
        recorded_at: None,
        trimmed_at: now,
        observed_at: now,
    };
    owning.begin(&record).await;
    let mut next = tokio::time::Instant::now();
    let mut renewals = tokio::time::interval(RENEW_EVERY);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(logged) = entries.next() => {
                owning.logged(logged);
                next = next.min(tokio::time::Instant::now() + SOON);
            }
            Some(report) = told.next() => owning.reported(report),
            _ = renewals.tick() => match lease.renew().await {
                Err(RenewError::Lost(_)) => return Ok(Stop::Lost),
                Err(_) if !lease.is_sure() => return Ok(Stop::Lost),
                _ => {}
            },
            () = tokio::time::sleep_until(next) => {
                next = tokio::time::Instant::now() + TICK;
                // What another one may decide by now is not decided here.
                if lease.is_sure() && owning.tick().await? {
                    return Ok(Stop::Over);
                }
            }
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    return Ok(Stop::Told);
                }
            }
        }
    }
}

/// The record, if something is left to do.
pub(super) async fn current(manager: &Manager, id: &str) -> Result<Option<TransferRecord>, BusError> {
    // Followed all the time; what is not there may be new, or over.
    let known = manager.known().records.get(id).cloned();
    if known.is_some() {
        return Ok(known);
    }
    as_kept(manager, id).await
}

async fn as_kept(manager: &Manager, id: &str) -> Result<Option<TransferRecord>, BusError> {
    use crate::transfers::FindError;
    match manager.transfers.get(id).await {
        Ok(record) => Ok(Some(record).filter(super::is_open)),
        Err(FindError::Bus(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

impl Owning {
    /// The first guess: the pairs with which an earlier transfer between the sites was fastest, or one for each mover of the smaller.
    async fn begin(&mut self, record: &TransferRecord) {
        let movers = self.manager.movers.all();
        let submission = &record.submission;
        let count = |site: &str| movers.iter().filter(|mover| mover.site == site).count() as u32;
        let fewest = count(&submission.source.site).min(count(&submission.destination.site)).max(1);
        let start = self.fastest_before(record).await.unwrap_or(fewest).min(capacity(&self.manager));
        self.tuner = match submission.options.static_striping {
            true => PairTuner::new(pairs_of(record), pairs_of(record)),
            false => PairTuner::new(start.min(submission.options.pairs_max.unwrap_or(u32::MAX)), start),
        };
    }

    /// Nothing is known, or can be asked: then it begins as if none had been before.
    async fn fastest_before(&self, record: &TransferRecord) -> Option<u32> {
        let submission = &record.submission;
        let curves = Curves::open(&self.manager.bus).await.ok()?;
        let curve = curves.get(&submission.source.site, &submission.destination.site).await.ok()??;
        curve.points.iter().max_by_key(|point| point.bytes_per_s).map(|point| point.pairs.max(1))
    }

    /// What was learnt of the path is there for the next transfer on it.
    async fn keep_curve(&self, record: &TransferRecord) {
        let points: Vec<CurvePoint> =
            self.tuner.points().map(|(pairs, bytes_per_s)| CurvePoint { pairs, bytes_per_s }).collect();
        let submission = &record.submission;
        if points.is_empty() || submission.options.static_striping {
            return;
        }
        // The next one begins as if it were the first, then.
        if let Ok(curves) = Curves::open(&self.manager.bus).await {
            let curve = CurveRecord::new(points, now_ms());
            let _ = curves.put(&submission.source.site, &submission.destination.site, &curve).await;
        }
    }

    fn logged(&mut self, logged: Logged) {
        match logged {
            Logged::Current => self.is_current = true,
            Logged::Entry { entry, .. } => self.entry(entry),
        }
    }

    fn entry(&mut self, entry: LogEntry) {
        let event = match entry {
            LogEntry::ScanDone {
                attempt,
                chunks,
                files,
                bytes,
                names,
                directories,
                large_files,
                failures,
                failed_entries,
                skipped,
                skipped_entries,
                ..
            } => {
                if attempt >= self.attempt {
                    self.skipped = (skipped, skipped_entries);
                }
                self.attempt = self.attempt.max(attempt);
                self.note(failures);
                let found = Found {
                    chunks,
                    files,
                    bytes,
                    names,
                    directories,
                    files_in_parts: large_files,
                    failed: failed_entries,
                };
                TrackerEvent::Scanned { attempt, found, is_finished: true }
            }
            LogEntry::ScanFailed { reason, .. } => {
                self.given_up.get_or_insert(reason);
                return;
            }
            LogEntry::ChunkDone(done) => {
                self.chunk_done(&done);
                self.note(done.failures);
                self.moved.told_by_source(&done.session, done.session_bytes);
                let part =
                    done.part.map(|part| PlanPart { file: FileKey(part.file), count: part.count.into() });
                TrackerEvent::ChunkSettled {
                    attempt: done.attempt,
                    number: done.number,
                    delivery: u32::try_from(done.delivered).unwrap_or(u32::MAX),
                    outcome: Outcome {
                        files: done.files,
                        bytes: done.bytes,
                        moved_bytes: done.moved_bytes,
                        failed: done.failed_entries,
                    },
                    part,
                }
            }
            LogEntry::FileFinished { attempt, file, failure, by } => {
                self.follow_file(&by);
                let is_done = failure.is_none();
                self.note(failure.into_iter().collect());
                TrackerEvent::FinishSettled { attempt, file: FileKey(file), is_done }
            }
            LogEntry::FileDiscarded { attempt, file, by } => {
                self.follow_file(&by);
                TrackerEvent::DiscardSettled { attempt, file: FileKey(file) }
            }
            LogEntry::Closed { attempt, failures, failed_entries, .. } => {
                self.note(failures);
                TrackerEvent::CloseSettled { attempt, failed: failed_entries }
            }
            LogEntry::Lost { losses, .. } => {
                self.losses.add(losses);
                return;
            }
            LogEntry::Moved { bytes, session, session_bytes, .. } => {
                self.moved.add(bytes);
                self.moved.told_by_source(&session, session_bytes);
                return;
            }
            LogEntry::Received { session, bytes, .. } => {
                self.moved.told_by_sink(&session, bytes);
                return;
            }
            LogEntry::PairBroken { by, sink, is_source, kind, reason } => {
                let (mover, other) = if is_source { (by, sink) } else { (sink, by) };
                self.fault(Fault { transfer: self.id.clone(), mover, other, kind, reason });
                return;
            }
            LogEntry::LargeFiles { .. } | LogEntry::Note { .. } | LogEntry::Unknown => return,
        };
        self.tracker.observe(&event);
    }

    /// Who has brought a chunk to its end is well; of entries that nobody could copy nobody is to blame.
    fn chunk_done(&mut self, done: &ChunkDone) {
        if !self.is_current {
            return;
        }
        if done.failed_entries > 0 {
            return self.manager.health().clear_doubts(&self.id);
        }
        self.follow_chunk(done);
        for mover in [&done.by, &done.sink].into_iter().filter(|mover| !mover.is_empty()) {
            self.manager.did_well(&self.id, mover);
        }
    }

    /// What went wrong before this manager had the transfer says nothing about now.
    pub(super) fn fault(&mut self, fault: Fault) {
        if self.is_current {
            self.last_fault = format!("{}: {}", fault.mover, fault.reason);
            self.manager.fault(&fault);
        }
    }

    fn note(&mut self, failures: Vec<Failure>) {
        for failure in failures {
            // A large file that changed is told of by each of its parts, and what can't be read by each scan.
            let is_known =
                self.failures.iter().any(|known| known.path == failure.path && known.kind == failure.kind);
            if !is_known && self.failures.len() < FAILURES_KEPT {
                self.failures.push(failure);
            }
        }
    }

    fn reported(&mut self, report: PairReport) {
        self.follow_pace(&report);
        self.pairs.insert((report.mover.clone(), report.pair), (Instant::now(), report));
    }

    /// Whether nothing is left to do.
    async fn tick(&mut self) -> Result<bool, BusError> {
        let Some(record) = current(&self.manager, &self.id).await? else {
            // Somebody else has ended it: what this manager made for it meanwhile goes.
            self.remove_work().await?;
            return Ok(true);
        };
        if record.state == TransferState::Cancelled {
            return self.clear_away(TransferState::Cancelled, None).await.map(|()| true);
        }
        if !self.is_current {
            return Ok(false);
        }
        if let Some(reason) = self.given_up.take() {
            return self.clear_away(TransferState::Failed, Some(reason)).await.map(|()| true);
        }
        if record.state == TransferState::Paused {
            self.want(0);
            self.record(&record).await?;
            return Ok(false);
        }
        self.relieve_stragglers();
        let waits_for = match self.verdict(&record) {
            Verdict::GoOn => self.stands_still(),
            Verdict::Wait(reason) => reason,
            Verdict::Fail(reason) => {
                return self.clear_away(TransferState::Failed, Some(reason)).await.map(|()| true);
            }
        };
        self.see_to_scan(&record).await?;
        let next = self.tracker.next();
        match &next {
            Next::Wait => {}
            Next::FinishFiles(files) => {
                self.ask(&record, files, |file| ChunkKind::Finish { file }).await?;
                self.tracker.asked(&next);
            }
            Next::DiscardFiles(files) => {
                self.ask(&record, files, |file| ChunkKind::Discard { file }).await?;
                self.tracker.asked(&next);
            }
            Next::Close => {
                if self.close(&record).await? {
                    self.tracker.asked(&next);
                }
            }
            Next::Over => {
                self.keep_curve(&record).await;
                return self.clear_away(TransferState::Done, None).await.map(|()| true);
            }
        }
        self.tune(&record);
        self.record_waiting(&record, waits_for).await?;
        self.trim(&record).await;
        Ok(false)
    }

    /// Has the source scanned, unless that is done or ordered.
    async fn see_to_scan(&mut self, record: &TransferRecord) -> Result<(), BusError> {
        let was_asked = self.scan_asked_at.is_some_and(|at| at.elapsed() < ASK_SCAN_EVERY);
        if self.tracker.totals().is_scanned || self.attempt > 0 || was_asked {
            return Ok(());
        }
        let is_new = self.scan_asked_at.replace(Instant::now()).is_none() && record.started_ms.is_none();
        if is_new || self.queue.pending_scans().await?.left() == 0 {
            self.queue.publish_scan(&ScanHead { version: RECORD_VERSION, attempt: 1 }).await?;
        }
        Ok(())
    }

    /// What follows from what is known of the movers that reach both ends.
    fn verdict(&self, record: &TransferRecord) -> Verdict {
        let Some(leg) = &record.leg else { return Verdict::GoOn };
        let (movers, now) = (self.manager.movers.all(), self.manager.now());
        let submission = &record.submission;
        let ends = [
            (Which::Source, &submission.source.site, &leg.source),
            (Which::Sink, &submission.destination.site, &leg.sink),
        ];
        let health = self.manager.health();
        let usable = ends.map(|(which, site, path)| {
            let end = end(&movers, &health, now, &self.id, (which, site, path));
            let is_usable = |&index: &usize| !end.odd.contains_key(&movers[index].id);
            ids(&movers, &end.reaching.iter().copied().filter(is_usable).collect::<Vec<_>>())
        });
        let [sources, sinks] = usable.each_ref().map(|ids| ids.iter().map(|id| &**id).collect::<Vec<_>>());
        health.verdict(now, &self.id, &sources, &sinks)
    }

    /// Why nothing moves, if nothing does though there are pairs; empty if something does, or if nothing is known.
    fn stands_still(&mut self) -> String {
        let moved = self.at_work().1 + self.tracker.totals().chunks_done;
        if moved != self.moved_at.1 || self.last_fault.is_empty() {
            self.moved_at = (Instant::now(), moved);
        }
        let for_s = self.moved_at.0.elapsed();
        if for_s < STANDS_AFTER {
            return String::new();
        }
        format!("nothing has moved for {} s; last, {}", for_s.as_secs(), self.last_fault)
    }

    /// Stripes that chunks go into.
    fn stripes(record: &TransferRecord) -> std::ops::RangeInclusive<u32> {
        match record.submission.options.static_striping {
            true => 1..=pairs_of(record),
            false => COMMON..=COMMON,
        }
    }

    async fn ask(
        &self,
        record: &TransferRecord,
        files: &[FileKey],
        kind: impl Fn(u64) -> ChunkKind,
    ) -> Result<(), BusError> {
        let attempt = self.tracker.counting().unwrap_or(1);
        let stripes = Self::stripes(record);
        let mut publisher = self.queue.publisher();
        for FileKey(file) in files {
            let Some(table) = self.queue.read_large(attempt, *file).await? else {
                return Err(BusError::Missing(format!("the entry of large file {file}")));
            };
            let stripe = stripes.start() + (file % stripes.clone().count() as u64) as u32;
            let head = ChunkHead::new(attempt, *file, kind(*file), 1, 0);
            publisher.publish_chunk(stripe, &head, table).await?;
        }
        publisher.flush().await
    }

    /// False if something of another attempt is still under way: it would write while the journals go.
    async fn close(&mut self, record: &TransferRecord) -> Result<bool, BusError> {
        for stripe in Self::stripes(record) {
            if self.queue.pending_chunks(stripe).await?.left() > 0 {
                return Ok(false);
            }
        }
        // Who closes looks there whether something has failed.
        self.recorded_at = None;
        self.record(record).await?;
        let attempt = self.tracker.counting().unwrap_or(1);
        let head = ChunkHead::new(attempt, 0, ChunkKind::Close, 0, 0);
        let mut publisher = self.queue.publisher();
        publisher.publish_chunk(*Self::stripes(record).start(), &head, Vec::new()).await?;
        publisher.flush().await?;
        Ok(true)
    }

    fn want(&self, pairs: u32) {
        if self.wanted.swap(pairs, Relaxed) != pairs {
            self.manager.changed.notify_one();
        }
    }

    fn totals(&self) -> Totals {
        let totals = self.tracker.totals();
        Totals { bytes_moved: totals.bytes_moved + self.moved.bytes(), ..totals }
    }

    /// How many pairs work now, and what they move together.
    fn at_work(&mut self) -> (u32, u64) {
        self.pairs.retain(|_, (at, _)| at.elapsed() < REPORT_LASTS);
        let bytes_per_s = self.pairs.values().map(|(_, report)| report.bytes_per_s).sum();
        (self.pairs.len() as u32, bytes_per_s)
    }

    /// Follows the curve (Y4).
    fn tune(&mut self, record: &TransferRecord) {
        if record.submission.options.static_striping {
            return self.want(pairs_of(record));
        }
        let now = self.began.elapsed();
        let most = record.submission.options.pairs_max.unwrap_or(u32::MAX).min(capacity(&self.manager));
        self.tuner.set_most(now, most);
        let (pairs, bytes_per_s) = self.at_work();
        let totals = self.tracker.totals();
        let left = totals.chunks_found.saturating_sub(totals.chunks_done);
        // With fewer chunks than pairs the rate says nothing about the pairs.
        let is_telling = pairs > 0 && bytes_per_s > 0 && left > u64::from(pairs);
        if is_telling && self.observed_at.elapsed() >= Duration::from_secs(1) {
            self.observed_at = Instant::now();
            self.tuner.observe(now, pairs, bytes_per_s);
        }
        let useful = if totals.is_scanned { left.clamp(1, u32::MAX.into()) as u32 } else { u32::MAX };
        self.want(self.tuner.wanted().min(useful).max(1));
    }

    async fn trim(&mut self, record: &TransferRecord) {
        if self.trimmed_at.elapsed() < TRIM_EVERY {
            return;
        }
        self.trimmed_at = Instant::now();
        for stripe in Self::stripes(record) {
            // The next time will do.
            let _ = self.queue.trim(stripe).await;
        }
    }

    /// Writes the record, if it is time.
    async fn record(&mut self, record: &TransferRecord) -> Result<(), BusError> {
        self.record_waiting(record, String::new()).await
    }

    /// The same of one that waits for something, which is written at once.
    async fn record_waiting(&mut self, record: &TransferRecord, why: String) -> Result<(), BusError> {
        if self.recorded_at.is_some_and(|at| at.elapsed() < RECORD_EVERY) {
            return Ok(());
        }
        self.recorded_at = Some(Instant::now());
        let (pairs, bytes_per_s) = self.at_work();
        let (totals, failures) = (self.totals(), self.failures.clone());
        let (skipped, losses) = (self.skipped.clone(), self.losses.lines());
        let (manager, wanted) = (self.manager.id.clone(), self.wanted.load(Relaxed));
        let waits_for = if why.is_empty() { self.manager.known().waits_for(&self.id) } else { why };
        let change = |record: &mut TransferRecord| {
            if record.state == TransferState::Queued {
                record.state = TransferState::Running;
                record.started_ms.get_or_insert(now_ms());
            }
            count(record, &totals);
            record.tally.pairs = pairs;
            record.tally.pairs_wanted = wanted;
            record.tally.bytes_per_s = bytes_per_s;
            record.failures.clone_from(&failures);
            record.losses.clone_from(&losses);
            (record.skipped, record.tally.entries_skipped) = skipped.clone();
            record.manager.clone_from(&manager);
            if record.state == TransferState::Running {
                record.waits_for.clone_from(&waits_for);
            }
        };
        use crate::transfers::FindError;
        match self.manager.transfers.update(&record.id, change).await {
            Ok(_) | Err(FindError::Unknown(_)) => Ok(()),
            Err(FindError::Bus(error)) if error.may_pass() => Ok(()),
            Err(FindError::Bus(error)) => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// The transfer is over: its work goes, its record stays.
    async fn clear_away(&mut self, state: TransferState, reason: Option<String>) -> Result<(), BusError> {
        let (totals, failures) = (self.totals(), self.failures.clone());
        let (skipped, losses) = (self.skipped.clone(), self.losses.lines());
        self.remove_work().await?;
        let change = |record: &mut TransferRecord| {
            count(record, &totals);
            record.tally.pairs = 0;
            record.tally.pairs_wanted = 0;
            record.tally.bytes_per_s = 0;
            record.failures.clone_from(&failures);
            record.losses.clone_from(&losses);
            (record.skipped, record.tally.entries_skipped) = skipped.clone();
            record.waits_for.clear();
            if !record.state.is_over() {
                record.state = state;
                record.reason = reason.clone().unwrap_or_default();
            }
            record.ended_ms.get_or_insert(now_ms());
        };
        if let Ok(record) = self.manager.transfers.update(&self.id, change).await {
            // Not before the watch has seen it.
            self.manager.known().follow_record(TransferChange::Put(Box::new(record)));
        }
        self.manager.say(format!("transfer {}: {state}", self.id));
        Ok(())
    }

    /// Its pairs, its queue and its log.
    async fn remove_work(&self) -> Result<(), BusError> {
        self.want(0);
        self.manager.pairs.remove_all(&self.id).await?;
        self.manager.health().forget(&self.id);
        self.queue.remove().await?;
        self.log.remove().await
    }
}

/// Pairs that all movers together could have, and one at least.
fn capacity(manager: &Manager) -> u32 {
    manager.movers.all().iter().map(|mover| mover.pairs_max).sum::<u32>().max(1)
}

/// Grows only: a later scan that counts may have found less.
fn count(record: &mut TransferRecord, totals: &Totals) {
    let tally = &mut record.tally;
    tally.is_scanned |= totals.is_scanned;
    for (kept, now) in [
        (&mut tally.files_found, totals.files_found),
        (&mut tally.bytes_found, totals.bytes_found),
        (&mut tally.files_done, totals.files_done),
        (&mut tally.bytes_done, totals.bytes_done),
        (&mut tally.bytes_moved, totals.bytes_moved),
        (&mut tally.entries_failed, totals.entries_failed),
        (&mut tally.chunks_found, totals.chunks_found),
        (&mut tally.chunks_done, totals.chunks_done),
    ] {
        *kept = now.max(*kept);
    }
}
