//! What a mover does while it runs: it has the pairs that it should have, and no others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::pair::PairEnd;
use super::{AGAIN_AFTER, Mover, MoverError, clock_watch, look, pair, scan, site_mark};
use crate::asks::serve_asks;
use crate::pairs::{PairChange, PairKey, Pairs, Whose};
use crate::records::{MoverState, Pair, TransferRecord};

/// When it drains, the pairs in which it writes end within this time, or not at all well.
const OTHERS_LEAVE_WITHIN: Duration = Duration::from_secs(120);

/// What is told to end, and when it is to.
type Stop = watch::Sender<bool>;

#[derive(Default)]
struct Running {
    /// Those that should be.
    wanted: HashMap<PairKey, Pair>,
    /// Those that are, each with its sink; some of them were told to end.
    pairs: HashMap<PairKey, (String, Stop)>,
    /// Scans of the transfers that it has pairs of.
    scans: HashMap<String, Stop>,
}

pub(super) async fn run(mover: Arc<Mover>, mut drain: watch::Receiver<bool>) -> Result<(), MoverError> {
    let asked = Arc::clone(&mover);
    let _asks = serve_asks(&mover.bus, &mover.id, move |ask| look::answer(Arc::clone(&asked), ask)).await?;
    let marks = tokio::spawn(site_mark::watch(Arc::clone(&mover)));
    let clock = tokio::spawn(clock_watch::watch(Arc::clone(&mover)));
    let pairs = Pairs::open(&mover.bus).await?;
    let mut changes = Box::pin(pairs.watch(Whose::Mover(&mover.id)).await?);
    let mut running = Running::default();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some(change) = changes.next() => running.follow(&mover, &mut tasks, change),
            Some(ended) = tasks.join_next() => running.ended(&mover, &mut tasks, ended.ok().flatten()),
            changed = drain.changed() => {
                if changed.is_err() || *drain.borrow() {
                    break;
                }
            }
        }
    }
    mover.registration.update(|record| record.state = MoverState::Draining);
    mover.say("draining: what is begun is ended, nothing else is taken".to_owned());
    running.stop_all();
    while tasks.join_next().await.is_some() {}
    let others_leave = async {
        while mover.writing.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(OTHERS_LEAVE_WITHIN, others_leave).await;
    marks.abort();
    clock.abort();
    mover.registration.retire().await;
    mover.bus.close().await;
    Ok(())
}

impl Running {
    fn follow(&mut self, mover: &Arc<Mover>, tasks: &mut JoinSet<Option<PairKey>>, change: PairChange) {
        match change {
            PairChange::All(all) => {
                let keys: Vec<PairKey> = all.iter().map(PairKey::of).collect();
                let gone: Vec<PairKey> =
                    self.wanted.keys().filter(|key| !keys.contains(key)).cloned().collect();
                gone.iter().for_each(|key| self.end(key));
                all.into_iter().for_each(|pair| self.want(mover, tasks, pair));
            }
            PairChange::Put(pair) => self.want(mover, tasks, pair),
            PairChange::Gone(key) => self.end(&key),
        }
    }

    /// One that is told to end under the same key is waited for.
    fn want(&mut self, mover: &Arc<Mover>, tasks: &mut JoinSet<Option<PairKey>>, pair: Pair) {
        let key = PairKey::of(&pair);
        self.wanted.insert(key.clone(), pair.clone());
        match self.pairs.get(&key) {
            None => self.begin(mover, tasks, key, pair),
            Some((sink, stop)) if *sink != pair.sink => drop(stop.send(true)),
            Some(_) => {}
        }
    }

    fn begin(&mut self, mover: &Arc<Mover>, tasks: &mut JoinSet<Option<PairKey>>, key: PairKey, pair: Pair) {
        let (stop, stopped) = watch::channel(false);
        self.pairs.insert(key.clone(), (pair.sink.clone(), stop));
        if !self.scans.contains_key(&pair.transfer) {
            let (stop, stopped) = watch::channel(false);
            self.scans.insert(pair.transfer.clone(), stop);
            let (mover, transfer) = (Arc::clone(mover), pair.transfer.clone());
            tasks.spawn(async move {
                if let Some(record) = settled_record(&mover, &transfer, stopped.clone()).await {
                    scan::run(mover, record, stopped).await;
                }
                None
            });
        }
        let mover = Arc::clone(mover);
        tasks.spawn(async move {
            keep(mover, pair, stopped).await;
            Some(key)
        });
    }

    fn end(&mut self, key: &PairKey) {
        self.wanted.remove(key);
        if let Some((_, stop)) = self.pairs.get(key) {
            let _ = stop.send(true);
        }
    }

    fn ended(&mut self, mover: &Arc<Mover>, tasks: &mut JoinSet<Option<PairKey>>, key: Option<PairKey>) {
        let Some(key) = key else { return };
        self.pairs.remove(&key);
        if let Some(pair) = self.wanted.get(&key).cloned() {
            return self.begin(mover, tasks, key, pair);
        }
        if !self.pairs.keys().any(|other| other.transfer == key.transfer)
            && let Some(stop) = self.scans.remove(&key.transfer)
        {
            let _ = stop.send(true);
        }
    }

    fn stop_all(&mut self) {
        for stop in self.pairs.values().map(|(_, stop)| stop).chain(self.scans.values()) {
            let _ = stop.send(true);
        }
    }
}

/// The transfer's record, once it says where the transfer goes.
async fn settled_record(
    mover: &Mover,
    transfer: &str,
    mut stop: watch::Receiver<bool>,
) -> Option<TransferRecord> {
    loop {
        if *stop.borrow() {
            return None;
        }
        if let Ok(record) = mover.transfers.get(transfer).await
            && record.leg.is_some()
        {
            return Some(record);
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN_AFTER) => {}
            _ = stop.changed() => return None,
        }
    }
}

/// Has a pair for as long as it should be.
async fn keep(mover: Arc<Mover>, pair: Pair, mut stop: watch::Receiver<bool>) {
    let Some(record) = settled_record(&mover, &pair.transfer, stop.clone()).await else { return };
    while !*stop.borrow() {
        let counted = Arc::clone(&mover);
        let _sending = counted.sending();
        let end = pair::run(Arc::clone(&mover), pair.clone(), &record, stop.clone()).await;
        mover.rests(&PairKey::of(&pair));
        let reason = match end {
            // The transfer is closed, or its work is: the manager says what comes next.
            PairEnd::Well => None,
            PairEnd::Failed(fault) => {
                mover.tell_fault(&pair.transfer, &pair.sink, &fault).await;
                Some(fault.reason)
            }
        };
        if let Some(reason) = reason {
            mover.say(format!("transfer {}, with {}: {reason}", pair.transfer, pair.sink));
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN_AFTER) => {}
            _ = stop.changed() => return,
        }
    }
}
