//! One pair, at the source's side: a session that takes chunks from the transfer's queue until it is told to end (Y2, Y3).
//!
//! The session runs on threads of its own. One task gets chunks when the session wants them ([`getting`]), another keeps the
//! books ([`books`]): it logs and acknowledges what is settled, and reports. What the source has not is removed by a session beside it
//! ([`deleting`]).

mod books;
mod deleting;
mod getting;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{
    Abort, ChunkFeed, FabricWanted, Feed, Observer, Outcome, Role, SessionError, Transfer, TransferIdentity,
    copy_with_peer,
};
use carrack_model::{EntryFailure, Event, Limiter, Loss, Notice, Progress, RunToken, TransferId};
use carrack_plan::fleet::{ChunkThreshold, FaultKind, WaitsAt};
use carrack_storage::{Base, Purpose};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use self::books::Books;
use super::dial::dial;
use super::feed::PairFeed;
use super::held::Held;
use super::keeper::Keeper;
use super::scan::pairs_of;
use super::session_name::SessionName;
use super::supply::Supply;
use super::terms::terms;
use super::{Mover, Say};
use crate::error::BusError;
use crate::log::Log;
use crate::pairs::Pair;
use crate::queue::Queue;
use crate::records::{Leg, MoverRecord, Submission, TransferRecord, TransferState};
use crate::transfers::FindError;

/// NATS is away: it is asked again after so long.
const AGAIN: Duration = Duration::from_millis(500);

/// How often it is reported.
const TICK: Duration = Duration::from_secs(1);

/// What was given back is taken by others, or by this mover once more, after so long.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(1);

/// Storage in which nothing has moved for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// How a pair ended.
pub(super) enum PairEnd {
    /// As it was told to.
    Well,
    /// Otherwise: the manager decides what follows.
    Failed(PairFault),
}

/// What went wrong, and with which of the two movers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairFault {
    /// With the one that reads.
    pub is_source: bool,
    pub kind: FaultKind,
    pub reason: String,
}

impl PairFault {
    /// Of the storage of the mover itself.
    pub fn hung(reason: impl ToString) -> PairFault {
        PairFault::at_source(FaultKind::Hung, reason)
    }

    fn at_source(kind: FaultKind, reason: impl ToString) -> PairFault {
        PairFault { is_source: true, kind, reason: reason.to_string() }
    }

    fn at_sink(kind: FaultKind, reason: impl ToString) -> PairFault {
        PairFault { is_source: false, kind, reason: reason.to_string() }
    }

    /// Of a session that began: whether there is something to read was looked at before it.
    fn of(error: &SessionError) -> PairFault {
        let kind = match error {
            error if error.is_full() => FaultKind::Full,
            SessionError::Local { .. } => return PairFault::at_source(FaultKind::Passing, error),
            SessionError::Refused { .. } | SessionError::PeerAborted { .. } | SessionError::Version(_) => {
                FaultKind::Refused
            }
            SessionError::PeerSilent | SessionError::Unreachable { .. } => FaultKind::Unreachable,
            _ => FaultKind::Passing,
        };
        PairFault::at_sink(kind, error)
    }
}

impl From<PairFault> for PairEnd {
    fn from(fault: PairFault) -> PairEnd {
        PairEnd::Failed(fault)
    }
}

/// What a session tells.
struct PairObserver {
    say: Say,
    bytes_moved: AtomicU64,
    failures: Mutex<Vec<EntryFailure>>,
    losses: Mutex<Vec<Loss>>,
    /// The last progress that was another one than that before it, and when it came.
    moved_at: Mutex<(Instant, Progress)>,
    /// What the objects go over, and the threads and connections in use.
    means: Mutex<Means>,
}

/// What a session works with.
#[derive(Clone, Copy, Default)]
struct Means {
    transport: &'static str,
    readers: u32,
    streams: u32,
}

impl PairObserver {
    fn new(say: Say) -> PairObserver {
        let moved_at = Mutex::new((Instant::now(), Progress::default()));
        PairObserver {
            say,
            bytes_moved: AtomicU64::new(0),
            failures: Mutex::default(),
            losses: Mutex::default(),
            moved_at,
            means: Mutex::default(),
        }
    }

    fn means(&self) -> MutexGuard<'_, Means> {
        self.means.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self, progress: &Progress) {
        self.bytes_moved.store(progress.bytes_moved, Relaxed);
        let steps = |progress: &Progress| {
            let Progress { entries_done, entries_failed, bytes_done, bytes_moved, .. } = *progress;
            (entries_done, entries_failed, bytes_done, bytes_moved, progress.bytes_read, progress.bytes_sent)
        };
        let mut moved_at = self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        if steps(&moved_at.1) != steps(progress) || progress.storage_busy == (false, false) {
            moved_at.0 = Instant::now();
        }
        moved_at.1 = *progress;
    }

    /// Whose storage hangs, if nothing has moved for so long and a thread waits for it: the source's, if it is both.
    fn hangs(&self) -> Option<PairFault> {
        let (moved_at, progress) = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        let for_s = moved_at.elapsed().as_secs();
        let words = || format!("its storage has not answered for {for_s} s");
        match progress.storage_busy {
            _ if moved_at.elapsed() < HANGS_AFTER => None,
            (true, false) => Some(PairFault::at_source(FaultKind::Hung, words())),
            (_, true) => Some(PairFault::at_sink(FaultKind::Hung, words())),
            (false, false) => None,
        }
    }

    /// What it waits for of late, if that is storage: where a thread is in it at one end only, and else where most time goes.
    fn waits_at(&self) -> WaitsAt {
        let (_, progress) = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        match (progress.storage_busy, progress.limiter) {
            ((true, false), _) | (_, Limiter::SourceStorage) => WaitsAt::Source,
            ((false, true), _) | (_, Limiter::SinkStorage) => WaitsAt::Sink,
            _ => WaitsAt::Neither,
        }
    }

    fn take_failures(&self) -> Vec<EntryFailure> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.losses.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for PairObserver {
    fn event(&self, event: &Event) {
        match event {
            Event::Progress(progress) => self.progress(progress),
            Event::Connected { transport, streams, .. } => {
                let mut means = self.means();
                (means.transport, means.streams) = (transport, *streams);
            }
            Event::Source(report) => {
                let mut means = self.means();
                means.readers = report.lanes.iter().map(|lane| lane.readers).sum();
                means.streams = report.lanes.iter().map(|lane| lane.streams).sum();
            }
            Event::Failed(failure) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure.clone());
            }
            Event::Notice(Notice::Loss(loss)) => {
                self.losses.lock().unwrap_or_else(PoisonError::into_inner).push(loss.clone());
            }
            Event::Notice(Notice::Warning(text)) => (self.say)(text.clone()),
            _ => {}
        }
    }
}

/// Why a session is left to itself before it has ended.
enum Left {
    /// Storage does not answer.
    Hangs(PairFault),
    /// The pair was told to end, as one of its movers is left out: others have what it holds now.
    IsLeftOut,
}

/// What the two tasks share.
struct Work {
    mover: Arc<Mover>,
    pair: Pair,
    leg: Leg,
    /// The site that is read at, and the one that is written at.
    sites: [String; 2],
    /// Something of the transfer was at the destination before it began.
    resumes: bool,
    /// What it was asked to copy is all there afterwards, but for what has failed: with `--existing` and `--ignore-existing` that can't be
    /// told.
    is_provable: bool,
    queue: Queue,
    log: Log,
    name: SessionName,
    feed: Arc<PairFeed>,
    observer: Arc<PairObserver>,
    /// As one session would carry it out that scans.
    whole: Transfer,
    /// The transfer's last chunk was taken: the session ends when that is done, and not before.
    is_closing: AtomicBool,
    threshold: Mutex<ChunkThreshold>,
}

/// What the task that gets chunks tells the other one.
struct Taken {
    number: u64,
    held: Held,
    /// By the clock that goes on while the machine sleeps.
    at: Duration,
}

/// Runs until `stop` turns true and what was taken is settled, or until the session breaks.
pub(super) async fn run(
    mover: Arc<Mover>,
    pair: Pair,
    record: &TransferRecord,
    stop: watch::Receiver<bool>,
) -> PairEnd {
    let begun = begin(mover, pair, record).await;
    match begun {
        Ok((work, transfer)) => {
            let options = &record.submission.options;
            work.carry(transfer, stop, options.static_striping().then(|| pairs_of(record))).await
        }
        Err(end) => end,
    }
}

async fn begin(
    mover: Arc<Mover>,
    pair: Pair,
    record: &TransferRecord,
) -> Result<(Work, (Transfer, Settled)), PairEnd> {
    let passing = |error: BusError| PairFault::at_source(FaultKind::Passing, error);
    let Some(leg) = record.leg.clone() else {
        let reason = "where the transfer goes is not settled yet";
        return Err(PairFault::at_source(FaultKind::Passing, reason).into());
    };
    let base = open_source(&mover, &leg).await?;
    let refused = |reason| PairFault::at_source(FaultKind::Refused, reason);
    let (spec, mut settings) =
        terms(&record.submission.options).map_err(|trouble| refused(trouble.line()))?;
    let host = mover.movers.get(&pair.sink).map(|sink| sink.host.clone()).unwrap_or_default();
    settings.history = Some(mover.known_paths.history(&host));
    match settings.fabric {
        FabricWanted::Provider(_) if !mover.options.allows_fabric => {
            return Err(refused("it was started without --allow-fabric".to_owned()).into());
        }
        FabricWanted::Provider(_) => {}
        _ if mover.options.allows_fabric && mover.known_paths.may_use_fabric(&host) => {}
        _ => settings.fabric = FabricWanted::Off,
    }
    settings.sharing = mover.sharing().await;
    settings.spill = mover.options.spill.clone();
    let leaves_what_it_likes = spec.sync.as_ref().is_some_and(|sync| sync.existing || sync.ignore_existing);
    let queue = Queue::open(&mover.bus, &pair.transfer).await.map_err(passing)?;
    let log = Log::open(&mover.bus, &pair.transfer).map_err(passing)?;
    let (settled, settling) = mpsc::unbounded_channel();
    let feed = Arc::new(PairFeed::new(ChunkThreshold::default().bytes(), settled));
    let run = new_run().map_err(|error| PairFault::at_source(FaultKind::Passing, error))?;
    let submission = &record.submission;
    let with_slash = |path: &str| PathBuf::from(format!("{}/", path.trim_end_matches('/')));
    let whole = Transfer {
        spec,
        settings,
        source_base: base,
        sources: vec![with_slash(&leg.source)],
        destination: with_slash(&leg.sink),
        identity: Some(TransferIdentity {
            id: journal_id(submission),
            run,
            sources: vec![submission.source.to_string().into_bytes()],
            destination: submission.destination.to_string().into_bytes(),
            is_shared: true,
        }),
        feed: None,
    };
    let feed_here = Some(Feed(Arc::clone(&feed) as Arc<dyn ChunkFeed>));
    let mut transfer = Transfer { feed: feed_here, ..whole.clone() };
    if let Some(sync) = &mut transfer.spec.sync {
        // It has seen a part of the source.
        sync.deletion = None;
    }
    let work = Work {
        observer: Arc::new(PairObserver::new(Arc::clone(&mover.options.say))),
        mover,
        name: SessionName::new(&pair.transfer),
        pair,
        leg,
        sites: [submission.source.site.clone(), submission.destination.site.clone()],
        resumes: record.resumes,
        is_provable: !leaves_what_it_likes,
        queue,
        log,
        feed,
        whole,
        is_closing: AtomicBool::new(false),
        threshold: Mutex::default(),
    };
    Ok((work, (transfer, settling)))
}

/// Whether there is something to read, by this mover: what else a session is refused for is the other's.
async fn open_source(mover: &Arc<Mover>, leg: &Leg) -> Result<Base, PairFault> {
    let refused = |error: std::io::Error| PairFault::at_source(FaultKind::Refused, error);
    let base = mover.reach.base_for(Path::new(&leg.source)).map_err(refused)?;
    let (opened, source) = (base.clone(), PathBuf::from(&leg.source));
    let opening = tokio::task::spawn_blocking(move || opened.open(&source, Purpose::ReadThrough).map(drop));
    match tokio::time::timeout(HANGS_AFTER, opening).await {
        Ok(Ok(Ok(()))) => Ok(base),
        Ok(Ok(Err(error))) => {
            let reason = format!("{}: {error}", leg.source);
            Err(PairFault::at_source(FaultKind::Refused, reason))
        }
        Ok(Err(panic)) => Err(PairFault::at_source(FaultKind::Passing, panic)),
        Err(_) => Err(PairFault::at_source(FaultKind::Hung, format!("{} does not open", leg.source))),
    }
}

type Settled = mpsc::UnboundedReceiver<u64>;

/// What the journals of a transfer are known by: the same for the same source and destination, so that a transfer that is
/// submitted again goes on.
pub(crate) fn journal_id(Submission { source, destination, .. }: &Submission) -> TransferId {
    let hash = blake3::derive_key("carrack fleet 1 transfer", format!("{source}\n{destination}").as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    TransferId(id)
}

fn new_run() -> std::io::Result<RunToken> {
    carrack_transport::random().map(RunToken)
}

impl Work {
    async fn carry(
        self,
        (transfer, mut settling): (Transfer, Settled),
        mut stop: watch::Receiver<bool>,
        stripes: Option<u32>,
    ) -> PairEnd {
        let work = Arc::new(self);
        let Some(sink) = work.mover.movers.get(&work.pair.sink) else {
            let reason = format!("the mover {} is not there", work.pair.sink);
            return PairFault::at_sink(FaultKind::Unreachable, reason).into();
        };
        let abort = match Abort::new() {
            Ok(abort) => abort,
            Err(error) => return PairFault::at_source(FaultKind::Passing, error).into(),
        };
        let mut session = tokio::task::spawn_blocking({
            let (work, abort) = (Arc::clone(&work), abort.clone());
            move || {
                let peer = dial(&work.mover, &sink, &work.name).inspect_err(|_| work.feed.close())?;
                Ok::<Outcome, String>(copy_with_peer(&transfer, Role::Source, peer, &*work.observer, &abort))
            }
        });
        let (taken, mut taking) = mpsc::unbounded_channel();
        let supply = Supply::new(&work.mover.bus, &work.queue, &work.pair, stripes);
        let getting = tokio::spawn(Arc::clone(&work).get(supply, taken));

        let keeper = Arc::new(Keeper::new());
        let keeping = tokio::spawn(Arc::clone(&keeper).keep(abort.clone()));
        let mut state = Books::new(Arc::clone(&work), keeper);
        // The first report is made at once: that a pair works is known by its reports.
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                biased;
                Some(taken) = taking.recv() => state.taken(taken),
                Some(number) = settling.recv() => state.settled(number, &mut settling).await,
                ended = &mut session => break Ok(ended),
                _ = ticks.tick() => {
                    if let Some(fault) = work.observer.hangs().filter(|_| state.holds()) {
                        break Err(Left::Hangs(fault));
                    }
                    if state.was_told && work.is_left_out() {
                        break Err(Left::IsLeftOut);
                    }
                    state.report().await;
                }
                changed = stop.changed() => {
                    if (changed.is_err() || *stop.borrow()) && !work.is_closing.load(Relaxed) {
                        work.feed.end();
                        state.was_told = true;
                        if work.is_to_end_now().await {
                            abort.interrupt();
                        }
                    }
                }
            }
        };
        keeping.abort();
        work.feed.close();
        // What is on its way from the server is given back too.
        let _ = getting.await;
        while let Ok(taken) = taking.try_recv() {
            state.taken(taken);
        }
        while let Ok(number) = settling.try_recv() {
            state.settled(number, &mut settling).await;
        }
        let fault = match outcome {
            Ok(Ok(Ok(outcome))) => return state.over(outcome).await,
            Ok(Ok(Err(unreached))) => PairFault::at_sink(FaultKind::Unreachable, unreached),
            Ok(Err(panic)) => PairFault::at_source(FaultKind::Passing, panic),
            Err(Left::Hangs(fault)) => {
                abort.interrupt();
                work.mover.abandon(session, fault.is_source);
                fault
            }
            Err(Left::IsLeftOut) => {
                abort.interrupt();
                work.mover.abandon(session, false);
                state.give_back(Duration::ZERO).await;
                return PairEnd::Well;
            }
        };
        state.give_back(GIVEN_BACK_FOR).await;
        fault.into()
    }

    /// Whether one of its movers is left out for now: what the pair holds is for others, who do better.
    fn is_left_out(&self) -> bool {
        let sink = self.mover.movers.get(&self.pair.sink);
        let is_out = |record: &MoverRecord| !record.ill.is_empty() || !record.left_out.is_empty();
        is_out(&self.mover.registration.record()) || sink.is_some_and(|sink| is_out(&sink))
    }

    /// Whether its user wants nothing of the transfer moved any more, or the other mover is gone. What is not settled then is given
    /// back: when the transfer goes on, what of it is in the journals does not travel again.
    async fn is_to_end_now(&self) -> bool {
        self.mover.movers.get(&self.pair.sink).is_none()
            || self.is_in(|state| state == TransferState::Paused || state.is_over()).await
    }

    /// Whether the transfer is in one of these states, or known no more: where NATS was emptied nobody waits for what the pair holds,
    /// and the same transfer may be submitted again.
    async fn is_in(&self, states: impl Fn(TransferState) -> bool) -> bool {
        match self.mover.transfers.get(&self.pair.transfer).await {
            Ok(record) => states(record.state),
            Err(FindError::Unknown(_)) => true,
            Err(_) => false,
        }
    }
}
