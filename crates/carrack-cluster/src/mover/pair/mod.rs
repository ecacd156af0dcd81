//! One pair, at the source's side: a session that takes chunks from the transfer's queue until the pair ends
//! (Y2, Y3).
//!
//! The session runs on threads of its own. Two tasks get chunks on the session's demand, and the ends of
//! large files ([`fetch`]); a third keeps the books ([`delivery_settlement`]): it logs and acknowledges
//! settled chunks, and reports. A separate session removes the entries that the source lacks ([`deletion`]).

mod deletion;
mod delivery_settlement;
mod fetch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{
    AbortHandle, ChunkFeedHandle, FabricWanted, SessionError, SessionRole, SourceChunkFeed, TransferIdentity,
    TransferObserver, TransferOutcome, TransferRequest, copy_with_peer,
};
use carrack_model::{
    EntryFailure, LimitingStage, MetadataLoss, TransferEvent, TransferExecutionId, TransferId,
    TransferProgress, UserNotice,
};
use carrack_plan::fleet::{ChunkRequestThreshold, MoverFaultKind, StorageWaitSide};
use carrack_storage::{PathBase, PathPurpose};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::MissedTickBehavior;

use self::delivery_settlement::PairHeldDeliveries;
use super::ack_extender::AckExtender;
use super::dial::dial;
use super::engine_settings::spec_and_settings;
use super::feed::MoverPairChunkFeed;
use super::held_chunk::HeldChunkDelivery;
use super::session_name::SessionName;
use super::{MoverContext, UserMessageCallback};
use crate::log::FleetTransferLog;
use crate::pairs::MoverPairRecord;
use crate::queue::TransferWorkStream;
use crate::transfer_records::{
    MoverRecord, ResolvedTransferPaths, TransferRecord, TransferState, TransferSubmission,
};
use crate::transfers::FindError;

/// The delay before a request is repeated while NATS is away.
const AGAIN: Duration = Duration::from_millis(500);

/// The interval between two reports.
const TICK: Duration = Duration::from_secs(1);

/// The delay before a returned chunk is delivered again.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(1);

/// Storage without progress for this time hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The end of a pair.
pub(super) enum MoverPairOutcome {
    /// An orderly end.
    Well,
    /// A fault: the manager decides what follows.
    Failed(PairFault),
}

/// A fault, and the mover that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairFault {
    /// True for the reading mover.
    pub is_source: bool,
    pub kind: MoverFaultKind,
    pub reason: String,
}

impl PairFault {
    /// Creates a fault of the mover's own storage.
    pub fn hung(reason: impl ToString) -> PairFault {
        PairFault::at_source(MoverFaultKind::Hung, reason)
    }

    fn passing(reason: impl ToString) -> PairFault {
        PairFault::at_source(MoverFaultKind::Passing, reason)
    }

    fn refused(reason: impl ToString) -> PairFault {
        PairFault::at_source(MoverFaultKind::Refused, reason)
    }

    fn at_source(kind: MoverFaultKind, reason: impl ToString) -> PairFault {
        PairFault { is_source: true, kind, reason: reason.to_string() }
    }

    fn at_sink(kind: MoverFaultKind, reason: impl ToString) -> PairFault {
        PairFault { is_source: false, kind, reason: reason.to_string() }
    }

    /// Returns the fault of a session that began: the source was checked before.
    fn of(error: &SessionError) -> PairFault {
        let kind = match error {
            error if error.is_destination_full() => MoverFaultKind::Full,
            SessionError::Local { .. } => return PairFault::at_source(MoverFaultKind::Passing, error),
            SessionError::Refused { .. } | SessionError::PeerAborted { .. } | SessionError::Version(_) => {
                MoverFaultKind::Refused
            }
            SessionError::PeerSilent | SessionError::Unreachable { .. } => MoverFaultKind::Unreachable,
            _ => MoverFaultKind::Passing,
        };
        PairFault::at_sink(kind, error)
    }
}

impl From<PairFault> for MoverPairOutcome {
    fn from(fault: PairFault) -> MoverPairOutcome {
        MoverPairOutcome::Failed(fault)
    }
}

/// The observer of a session.
struct MoverSessionObserver {
    say: UserMessageCallback,
    bytes_moved: AtomicU64,
    failures: Mutex<Vec<EntryFailure>>,
    losses: Mutex<Vec<MetadataLoss>>,
    /// The last progress, and the time of its last change.
    moved_at: Mutex<(Instant, TransferProgress)>,
    /// The transport, threads and connections in use.
    means: Mutex<SessionResources>,
}

/// The resources of a session.
#[derive(Clone, Copy, Default)]
struct SessionResources {
    transport: &'static str,
    readers: u32,
    streams: u32,
}

/// The counts of a session by which it is seen to move.
fn progress_counts(progress: &TransferProgress) -> [u64; 6] {
    [
        progress.entries_done,
        progress.entries_failed,
        progress.bytes_done,
        progress.bytes_moved,
        progress.bytes_read,
        progress.bytes_sent,
    ]
}

impl MoverSessionObserver {
    fn new(say: UserMessageCallback) -> MoverSessionObserver {
        let moved_at = Mutex::new((Instant::now(), TransferProgress::default()));
        MoverSessionObserver {
            say,
            bytes_moved: AtomicU64::new(0),
            failures: Mutex::default(),
            losses: Mutex::default(),
            moved_at,
            means: Mutex::default(),
        }
    }

    fn resources(&self) -> MutexGuard<'_, SessionResources> {
        self.means.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_progress(&self, progress: &TransferProgress) {
        self.bytes_moved.store(progress.bytes_moved, Relaxed);
        let mut moved_at = self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        if progress_counts(&moved_at.1) != progress_counts(progress)
            || progress.storage_busy == (false, false)
        {
            moved_at.0 = Instant::now();
        }
        moved_at.1 = *progress;
    }

    /// Returns a fault if nothing has moved for long and a thread waits for storage: the source's storage if
    /// both ends wait.
    fn storage_hang(&self) -> Option<PairFault> {
        let (moved_at, progress) = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        let for_s = moved_at.elapsed().as_secs();
        if moved_at.elapsed() < HANGS_AFTER {
            return None;
        }
        let words = format!("its storage has not answered for {for_s} s");
        match progress.storage_busy {
            (true, false) => Some(PairFault::at_source(MoverFaultKind::Hung, words)),
            (_, true) => Some(PairFault::at_sink(MoverFaultKind::Hung, words)),
            (false, false) => None,
        }
    }

    /// Returns the end whose storage limits the session: the only end with a thread in storage, else the end
    /// with the most time there.
    fn waiting_side(&self) -> StorageWaitSide {
        let (_, progress) = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        match (progress.storage_busy, progress.limiter) {
            ((true, false), _) | (_, LimitingStage::SourceStorage) => StorageWaitSide::Source,
            ((false, true), _) | (_, LimitingStage::SinkStorage) => StorageWaitSide::Sink,
            _ => StorageWaitSide::Neither,
        }
    }

    fn take_failures(&self) -> Vec<EntryFailure> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_losses(&self) -> Vec<MetadataLoss> {
        std::mem::take(&mut *self.losses.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TransferObserver for MoverSessionObserver {
    fn handle_event(&self, event: &TransferEvent) {
        match event {
            TransferEvent::Progress(progress) => self.record_progress(progress),
            TransferEvent::Connected { transport, streams, .. } => {
                let mut means = self.resources();
                (means.transport, means.streams) = (transport, *streams);
            }
            TransferEvent::Source(report) => {
                let mut means = self.resources();
                means.readers = report.lanes.iter().map(|lane| lane.readers).sum();
                means.streams = report.lanes.iter().map(|lane| lane.streams).sum();
            }
            TransferEvent::Failed(failure) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure.clone());
            }
            TransferEvent::Notice(UserNotice::Loss(loss)) => {
                self.losses.lock().unwrap_or_else(PoisonError::into_inner).push(loss.clone());
            }
            TransferEvent::Notice(UserNotice::Warning(text)) => (self.say)(text.clone()),
            TransferEvent::Notice(UserNotice::StorageDelay(delay)) => (self.say)(delay.to_string()),
            _ => {}
        }
    }
}

/// The reason for leaving a session before its end.
enum SessionLeaveReason {
    /// Storage does not answer.
    Hangs(PairFault),
    /// The manager ended the pair, as one of its movers is left out. Other pairs have its chunks now.
    IsLeftOut,
}

/// The state that the tasks share.
struct MoverPairTaskContext {
    mover: Arc<MoverContext>,
    pair: MoverPairRecord,
    /// The mover that writes.
    sink: Arc<MoverRecord>,
    leg: ResolvedTransferPaths,
    /// The reading site and the writing site.
    sites: [String; 2],
    /// True if the destination had entries of the transfer before it began.
    resumes: bool,
    /// True if everything asked for is at the destination afterwards, failures excepted. With `--existing`
    /// and `--ignore-existing` that is unknown.
    is_provable: bool,
    queue: TransferWorkStream,
    log: FleetTransferLog,
    name: SessionName,
    feed: Arc<MoverPairChunkFeed>,
    observer: Arc<MoverSessionObserver>,
    /// The whole transfer, as one session with a scan would carry it out.
    whole: TransferRequest,
    /// The number of the session's next chunk.
    chunk_numbers: AtomicU64,
    /// True once the transfer's last chunk was taken: the session then ends only when that is done.
    is_closing: AtomicBool,
    threshold: Mutex<ChunkRequestThreshold>,
}

/// A message from the task that gets chunks to the task that keeps the books.
struct TakenWorkChunk {
    number: u64,
    held: HeldChunkDelivery,
    /// Time by the clock that continues while the machine sleeps.
    at: Duration,
}

/// Runs until `stop` turns true and the taken chunks are settled, or until the session breaks.
pub(super) async fn run(
    mover: Arc<MoverContext>,
    pair: MoverPairRecord,
    record: &TransferRecord,
    stop: watch::Receiver<bool>,
) -> MoverPairOutcome {
    let begun = prepare_pair_task(mover, pair, record).await;
    match begun {
        Ok((work, transfer)) => work.run_session(transfer, stop).await,
        Err(end) => end,
    }
}

async fn prepare_pair_task(
    mover: Arc<MoverContext>,
    pair: MoverPairRecord,
    record: &TransferRecord,
) -> Result<(MoverPairTaskContext, (TransferRequest, SettledChunkReceiver)), MoverPairOutcome> {
    let Some(leg) = record.leg.clone() else {
        let reason = "where the transfer goes is not settled yet";
        return Err(PairFault::passing(reason).into());
    };
    let base = open_source(&mover, &leg).await?;
    let (spec, mut settings) = spec_and_settings(&record.submission.options)
        .map_err(|trouble| PairFault::refused(trouble.line()))?;
    let Some(sink) = mover.movers.get(&pair.sink) else {
        let reason = format!("the mover {} is not there", pair.sink);
        return Err(PairFault::at_sink(MoverFaultKind::Unreachable, reason).into());
    };
    settings.history = Some(mover.known_paths.history(&sink.host));
    settings.fabric = fabric(&mover, &sink, settings.fabric).map_err(PairFault::refused)?;
    settings.sharing = mover.grant_exchange().await;
    settings.spill = mover.options.spill.clone();
    let is_provable = !spec.sync.as_ref().is_some_and(|sync| sync.existing || sync.ignore_existing);
    let queue = TransferWorkStream::open(&mover.bus, &pair.transfer).await.map_err(PairFault::passing)?;
    let log = FleetTransferLog::open(&mover.bus, &pair.transfer).map_err(PairFault::passing)?;
    let (settled, settling) = mpsc::unbounded_channel();
    let feed = Arc::new(MoverPairChunkFeed::new(ChunkRequestThreshold::default().bytes(), settled));
    let submission = &record.submission;
    let identity = identity(submission).map_err(PairFault::passing)?;
    let whole = TransferRequest {
        spec,
        settings,
        source_base: base,
        sources: vec![with_slash(&leg.source)],
        destination: with_slash(&leg.sink),
        identity: Some(identity),
        feed: None,
    };
    let transfer = chunk_session_request(&whole, &feed);
    let work = MoverPairTaskContext {
        observer: Arc::new(MoverSessionObserver::new(Arc::clone(&mover.options.say))),
        mover,
        name: SessionName::new(&pair.transfer),
        pair,
        sink,
        leg,
        sites: [submission.source.site.clone(), submission.destination.site.clone()],
        resumes: record.resumes,
        is_provable,
        queue,
        log,
        feed,
        whole,
        chunk_numbers: AtomicU64::new(0),
        is_closing: AtomicBool::new(false),
        threshold: Mutex::default(),
    };
    Ok((work, (transfer, settling)))
}

/// Returns the transfer of the chunks from `feed`.
fn chunk_session_request(whole: &TransferRequest, feed: &Arc<MoverPairChunkFeed>) -> TransferRequest {
    let feed = Some(ChunkFeedHandle(Arc::clone(feed) as Arc<dyn SourceChunkFeed>));
    let mut transfer = TransferRequest { feed, ..whole.clone() };
    if let Some(sync) = &mut transfer.spec.sync {
        // The session sees only a part of the source.
        sync.deletion = None;
    }
    transfer
}

/// Returns the identity by which all sessions of a transfer find their journals.
fn identity(submission: &TransferSubmission) -> std::io::Result<TransferIdentity> {
    Ok(TransferIdentity {
        id: journal_id(submission),
        run: new_run()?,
        sources: vec![submission.source.to_string().into_bytes()],
        destination: submission.destination.to_string().into_bytes(),
        is_shared: true,
    })
}

/// Returns the fabric for a session to a sink's mover, or an error text if the user insists on a fabric that
/// this mover may not use.
fn fabric(mover: &MoverContext, sink: &MoverRecord, wanted: FabricWanted) -> Result<FabricWanted, String> {
    let allows = mover.options.allows_fabric;
    match wanted {
        FabricWanted::Provider(_) if !allows => Err("it was started without --allow-fabric".to_owned()),
        FabricWanted::Provider(_) => Ok(wanted),
        _ if allows && mover.known_paths.may_use_fabric(&sink.host) => Ok(wanted),
        _ => Ok(FabricWanted::Off),
    }
}

fn with_slash(path: &str) -> PathBuf {
    PathBuf::from(format!("{}/", path.trim_end_matches('/')))
}

fn is_unavailable(mover: &MoverRecord) -> bool {
    !mover.ill.is_empty() || !mover.left_out.is_empty()
}

/// Opens the source, to find out if this mover can read it. Later refusals of the session are then the
/// sink's.
async fn open_source(mover: &Arc<MoverContext>, leg: &ResolvedTransferPaths) -> Result<PathBase, PairFault> {
    let base = mover.reach.base_for(Path::new(&leg.source)).map_err(PairFault::refused)?;
    let (opened, source) = (base.clone(), PathBuf::from(&leg.source));
    let opening =
        tokio::task::spawn_blocking(move || opened.open(&source, PathPurpose::ReadThrough).map(drop));
    match tokio::time::timeout(HANGS_AFTER, opening).await {
        Ok(Ok(Ok(()))) => Ok(base),
        Ok(Ok(Err(error))) => Err(PairFault::refused(format!("{}: {error}", leg.source))),
        Ok(Err(panic)) => Err(PairFault::passing(panic)),
        Err(_) => Err(PairFault::at_source(MoverFaultKind::Hung, format!("{} does not open", leg.source))),
    }
}

type SettledChunkReceiver = mpsc::UnboundedReceiver<u64>;

/// The thread of a session.
type SessionThread = JoinHandle<Result<TransferOutcome, String>>;

/// Returns the ID of a transfer's journals. It depends on source and destination only, so that a resubmitted
/// transfer resumes.
pub(crate) fn journal_id(TransferSubmission { source, destination, .. }: &TransferSubmission) -> TransferId {
    let hash = blake3::derive_key("carrack fleet 1 transfer", format!("{source}\n{destination}").as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    TransferId(id)
}

fn new_run() -> std::io::Result<TransferExecutionId> {
    carrack_transport::random().map(TransferExecutionId)
}

impl MoverPairTaskContext {
    async fn run_session(
        self,
        (transfer, mut settling): (TransferRequest, SettledChunkReceiver),
        stop: watch::Receiver<bool>,
    ) -> MoverPairOutcome {
        let work = Arc::new(self);
        let abort = match AbortHandle::new() {
            Ok(abort) => abort,
            Err(error) => return PairFault::at_source(MoverFaultKind::Passing, error).into(),
        };
        let mut session = work.start_session(transfer, &abort);
        let (taken, mut taking) = mpsc::unbounded_channel();
        let ending = tokio::spawn(Arc::clone(&work).get_file_ends(taken.clone()));
        let getting = tokio::spawn(Arc::clone(&work).get(taken));

        let keeper = Arc::new(AckExtender::new());
        let keeping = tokio::spawn(Arc::clone(&keeper).extend_until_aborted(abort.clone()));
        let mut books = PairHeldDeliveries::new(Arc::clone(&work), keeper);
        let outcome = work
            .process_session_events(&mut books, &mut session, (&mut taking, &mut settling), (stop, &abort))
            .await;
        keeping.abort();
        work.feed.close();
        if work.is_closing.load(Relaxed) {
            // All files have ended: nothing is on its way.
            ending.abort();
        }
        // Chunks on their way from the server are returned, too.
        let _ = tokio::join!(getting, ending);
        while let Ok(taken) = taking.try_recv() {
            books.add_taken_chunk(taken);
        }
        while let Ok(number) = settling.try_recv() {
            books.handle_settled_chunks(number, &mut settling).await;
        }
        let fault = match outcome {
            Ok(Ok(Ok(outcome))) => return books.handle_session_end(outcome).await,
            Ok(Ok(Err(unreached))) => PairFault::at_sink(MoverFaultKind::Unreachable, unreached),
            Ok(Err(panic)) => PairFault::at_source(MoverFaultKind::Passing, panic),
            Err(SessionLeaveReason::Hangs(fault)) => {
                abort.interrupt();
                work.mover.abandon(session, fault.is_source);
                fault
            }
            Err(SessionLeaveReason::IsLeftOut) => {
                abort.interrupt();
                work.mover.abandon(session, false);
                books.give_back(Duration::ZERO).await;
                return MoverPairOutcome::Well;
            }
        };
        books.give_back(GIVEN_BACK_FOR).await;
        fault.into()
    }

    /// Starts the session on a thread of its own.
    fn start_session(self: &Arc<Self>, transfer: TransferRequest, abort: &AbortHandle) -> SessionThread {
        let (work, abort) = (Arc::clone(self), abort.clone());
        tokio::task::spawn_blocking(move || {
            let peer = dial(&work.mover, &work.sink, &work.name).inspect_err(|_| work.feed.close())?;
            Ok::<TransferOutcome, String>(copy_with_peer(
                &transfer,
                SessionRole::Source,
                peer,
                &*work.observer,
                &abort,
            ))
        })
    }

    /// Keeps the books while the session runs; returns its end, or the reason for leaving it.
    async fn process_session_events(
        &self,
        books: &mut PairHeldDeliveries,
        session: &mut SessionThread,
        (taking, settling): (&mut mpsc::UnboundedReceiver<TakenWorkChunk>, &mut SettledChunkReceiver),
        (mut stop, abort): (watch::Receiver<bool>, &AbortHandle),
    ) -> Result<Result<Result<TransferOutcome, String>, JoinError>, SessionLeaveReason> {
        // The first report is sent at once: it shows that the pair works.
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(taken) = taking.recv() => books.add_taken_chunk(taken),
                Some(number) = settling.recv() => books.handle_settled_chunks(number, settling).await,
                ended = &mut *session => return Ok(ended),
                _ = ticks.tick() => {
                    if let Some(fault) = self.observer.storage_hang().filter(|_| books.has_chunks()) {
                        return Err(SessionLeaveReason::Hangs(fault));
                    }
                    if books.was_told && self.is_left_out() {
                        return Err(SessionLeaveReason::IsLeftOut);
                    }
                    books.send_report().await;
                }
                changed = stop.changed() => {
                    if (changed.is_err() || *stop.borrow()) && !self.is_closing.load(Relaxed) {
                        self.feed.end();
                        books.was_told = true;
                        if self.should_end_now().await {
                            abort.interrupt();
                        }
                    }
                }
            }
        }
    }

    /// Returns true if one of its movers is left out for now. The pair's chunks are then for others.
    fn is_left_out(&self) -> bool {
        let sink = self.mover.movers.get(&self.pair.sink);
        is_unavailable(&self.mover.registration.record()) || sink.is_some_and(|sink| is_unavailable(&sink))
    }

    /// Returns true if the user has stopped the transfer, or the other mover is gone. Unsettled chunks are
    /// returned then. When the transfer continues, their recorded bytes don't travel again.
    async fn should_end_now(&self) -> bool {
        self.mover.movers.get(&self.pair.sink).is_none()
            || self.is_in_state(|state| state == TransferState::Paused || state.is_over()).await
    }

    /// Returns true if the transfer is in one of these states, or unknown. After NATS was emptied no manager
    /// waits for the pair's chunks, and the same transfer may be submitted again.
    async fn is_in_state(&self, states: impl Fn(TransferState) -> bool) -> bool {
        match self.mover.transfers.get(&self.pair.transfer).await {
            Ok(record) => states(record.state),
            Err(FindError::Unknown(_)) => true,
            Err(_) => false,
        }
    }
}
