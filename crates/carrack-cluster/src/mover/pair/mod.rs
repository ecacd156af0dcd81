//! One pair, at the source's side: a session that takes chunks from the transfer's queue until it is told to end (Y2, Y3).
//!
//! The session runs on threads of its own. One task gets chunks when the session wants them ([`getting`]), another keeps the
//! books ([`books`]): it logs and acknowledges what is settled, and reports.

mod books;
mod getting;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carrack_engine::{
    Abort, ChunkFeed, Feed, Observer, Outcome, Role, Transfer, TransferIdentity, copy_with_peer,
};
use carrack_model::{EntryFailure, Event, Notice, RunToken, TransferId};
use carrack_plan::fleet::ChunkThreshold;
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
use crate::queue::Queue;
use crate::records::{Leg, Pair, TransferRecord, TransferState};
use crate::transfers::FindError;

/// NATS is away: it is asked again after so long.
const AGAIN: Duration = Duration::from_millis(500);

/// How often it is reported.
const TICK: Duration = Duration::from_secs(1);

/// What was given back is taken by others, or by this mover once more, after so long.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(1);

/// How a pair ended.
pub(super) enum PairEnd {
    /// As it was told to.
    Well,
    /// It may work if it is tried again.
    Passing(String),
    /// It will not work so: the transfer has to be told.
    Broken(String),
}

/// What a session tells.
struct PairObserver {
    say: Say,
    bytes_moved: AtomicU64,
    failures: Mutex<Vec<EntryFailure>>,
}

impl PairObserver {
    fn new(say: Say) -> PairObserver {
        PairObserver { say, bytes_moved: AtomicU64::new(0), failures: Mutex::default() }
    }

    fn take_failures(&self) -> Vec<EntryFailure> {
        std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for PairObserver {
    fn event(&self, event: &Event) {
        match event {
            Event::Progress(progress) => self.bytes_moved.store(progress.bytes_moved, Relaxed),
            Event::Failed(failure) => {
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure.clone());
            }
            Event::Notice(Notice::Warning(text) | Notice::Loss { text, .. }) => (self.say)(text.clone()),
            _ => {}
        }
    }
}

/// What the two tasks share.
struct Work {
    mover: Arc<Mover>,
    pair: Pair,
    leg: Leg,
    /// Something of the transfer was at the destination before it began.
    resumes: bool,
    queue: Queue,
    log: Log,
    name: SessionName,
    feed: Arc<PairFeed>,
    observer: Arc<PairObserver>,
    /// The transfer's last chunk was taken: the session ends when that is done, and not before.
    is_closing: AtomicBool,
    threshold: Mutex<ChunkThreshold>,
}

/// What the task that gets chunks tells the other one.
struct Taken {
    number: u64,
    held: Held,
    at: Instant,
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
            work.carry(transfer, stop, options.static_striping.then(|| pairs_of(record))).await
        }
        Err(end) => end,
    }
}

async fn begin(
    mover: Arc<Mover>,
    pair: Pair,
    record: &TransferRecord,
) -> Result<(Work, (Transfer, Settled)), PairEnd> {
    let passing = |error: BusError| PairEnd::Passing(error.to_string());
    let Some(leg) = record.leg.clone() else {
        return Err(PairEnd::Passing("where the transfer goes is not settled yet".into()));
    };
    let base = mover.reach.base_for(Path::new(&leg.source));
    let base = base.map_err(|error| PairEnd::Passing(error.to_string()))?;
    let (spec, mut settings) = terms(&record.submission.options).map_err(PairEnd::Broken)?;
    settings.sharing = mover.sharing().await;
    settings.spill = mover.options.spill.clone();
    let queue = Queue::open(&mover.bus, &pair.transfer).await.map_err(passing)?;
    let log = Log::open(&mover.bus, &pair.transfer).map_err(passing)?;
    let (settled, settling) = mpsc::unbounded_channel();
    let feed = Arc::new(PairFeed::new(base, ChunkThreshold::default().bytes(), settled));
    let run = new_run().map_err(|error| PairEnd::Passing(error.to_string()))?;
    let submission = &record.submission;
    let with_slash = |path: &str| PathBuf::from(format!("{}/", path.trim_end_matches('/')));
    let transfer = Transfer {
        spec,
        settings,
        sources: vec![with_slash(&leg.source)],
        destination: with_slash(&leg.sink),
        identity: Some(TransferIdentity {
            id: journal_id(&submission.source.to_string(), &submission.destination.to_string()),
            run,
            sources: vec![submission.source.to_string().into_bytes()],
            destination: submission.destination.to_string().into_bytes(),
            is_shared: true,
        }),
        feed: Some(Feed(Arc::clone(&feed) as Arc<dyn ChunkFeed>)),
    };
    let work = Work {
        observer: Arc::new(PairObserver::new(Arc::clone(&mover.options.say))),
        mover,
        name: SessionName::new(&pair.transfer),
        pair,
        leg,
        resumes: record.resumes,
        queue,
        log,
        feed,
        is_closing: AtomicBool::new(false),
        threshold: Mutex::default(),
    };
    Ok((work, (transfer, settling)))
}

type Settled = mpsc::UnboundedReceiver<u64>;

/// What the journals of a transfer are known by: the same for the same source and destination, so that a transfer that is
/// submitted again goes on.
pub(crate) fn journal_id(source: &str, destination: &str) -> TransferId {
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
            return PairEnd::Passing(format!("the mover {} is not there", work.pair.sink));
        };
        let abort = match Abort::new() {
            Ok(abort) => abort,
            Err(error) => return PairEnd::Passing(error.to_string()),
        };
        let mut session = tokio::task::spawn_blocking({
            let (work, abort) = (Arc::clone(&work), abort.clone());
            move || {
                let peer = dial(&sink, &work.mover.authority.client, &work.name)
                    .inspect_err(|_| work.feed.close())?;
                Ok::<Outcome, String>(copy_with_peer(&transfer, Role::Source, peer, &*work.observer, &abort))
            }
        });
        let (taken, mut taking) = mpsc::unbounded_channel();
        let supply = Supply::new(&work.mover.bus, &work.queue, &work.pair, stripes);
        let getting = tokio::spawn(Arc::clone(&work).get(supply, taken));

        let keeper = Arc::new(Keeper::new());
        let keeping = tokio::spawn(Arc::clone(&keeper).keep(abort.clone()));
        let mut state = Books::new(Arc::clone(&work), keeper);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                biased;
                Some(taken) = taking.recv() => state.taken(taken),
                Some(number) = settling.recv() => state.settled(number, &mut settling).await,
                ended = &mut session => break ended,
                _ = ticks.tick() => state.report().await,
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
        match outcome {
            Ok(Ok(outcome)) => state.over(outcome).await,
            Ok(Err(unreached)) => {
                state.give_back(GIVEN_BACK_FOR).await;
                PairEnd::Passing(unreached)
            }
            Err(panic) => {
                state.give_back(GIVEN_BACK_FOR).await;
                PairEnd::Passing(panic.to_string())
            }
        }
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
