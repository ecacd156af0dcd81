//! A manager owns transfers, each by a lease, and plans their work (Y1, Y4).
//!
//! Any number of managers run; each transfer has one. A manager stores nothing: another manager with the
//! lease reads the transfer's log and continues. It moves neither data nor chunks.

mod byte_count;
mod destination_resolution;
mod eligible_movers;
mod faults;
mod free_transfers;
mod log_dispatcher;
mod losses;
mod obsolete_records;
mod open_transfers;
mod pair_counts;
mod planning_input;
mod sessions;
mod stragglers;
mod transfer_results;
mod transfer_task;
mod wait_reasons;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carrack_plan::fleet::{
    AssignedMoverPair, MoverHealth, MoverPairChanges, MoverPairLimits, OrphanedMoverPairs, RankRules,
    TransferRanking, assign, shares,
};
use carrack_sharing::SiteSharing;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::bus::{BusOptions, BusPreparationResult, NatsBus};
use crate::error::BusError;
use crate::mover::UserMessageCallback;
use crate::pairs::{MoverPairKey, MoverPairRecord, PairAssignmentStore, PairFilter, PairRecordChange};
use crate::registry::MoverTable;
use crate::sharing::site;
use crate::startup_retry::retry_at_startup;
use crate::transfer_lease::{
    MANAGER, RENEW_EVERY, SharedManagerLeaseTerm, TransferLeaseTable, TransferManagerLease,
};
use crate::transfer_records::{TransferRecord, TransferState};
use crate::transfers::{FindError, TransferStore};
use crate::unique_ids;
use eligible_movers::storage_mismatches;
use log_dispatcher::TransferLogSubscriptions;
use obsolete_records::ObsoleteRecordSweeper;
use open_transfers::ManagerOpenTransfers;
use pair_counts::FastestPairCountCache;
use planning_input::MoverPairClaims;
pub(crate) use wait_reasons::TURN;

/// The interval between two rounds without a change.
const TICK: Duration = Duration::from_millis(500);

/// The delay after a change, in which further changes are gathered. A round over all begun transfers costs as
/// much as one change.
const GATHERS_FOR: Duration = Duration::from_millis(5);

/// The delay before a manager that failed to restart tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The time limit for releasing owned transfers.
const PUT_DOWN_WITHIN: Duration = Duration::from_secs(5);

/// The default retention of finished transfers.
pub const HISTORY_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The options of a manager.
#[derive(Clone)]
pub struct ManagerOptions {
    /// The connection to NATS.
    pub bus: BusOptions,
    /// The number of copies of everything on NATS; by default the servers' suggestion.
    pub replicas: Option<usize>,
    /// Upper bounds of pairs, for users and sites.
    pub limits: MoverPairLimits,
    /// The retention of finished transfers.
    pub keep_history: Duration,
    /// The retention of leftovers of unfinished transfers at their destinations, at least two minutes.
    pub keep_leftovers: Duration,
    /// The sites near this manager. It takes transfers that read there at once, and others only if no nearer
    /// manager does. Without sites it is near to all.
    pub near: Vec<String>,
    /// Sites whose storage targets it shares if no other manager does (L10), each once.
    pub shares: Vec<SiteSharing>,
    /// Receives messages for the operator.
    pub say: UserMessageCallback,
}

/// The state that a manager's tasks share.
struct FleetManager {
    id: String,
    bus: NatsBus,
    transfers: TransferStore,
    pairs: PairAssignmentStore,
    movers: MoverTable,
    leases: TransferLeaseTable,
    logs: TransferLogSubscriptions,
    paths: FastestPairCountCache,
    options: ManagerOptions,
    known: Mutex<ManagerFleetState>,
    /// The health of movers, as this manager has seen it; instants are since `began`.
    health: Mutex<MoverHealth>,
    began: Instant,
    /// The order in which waiting transfers begin.
    ranks: Mutex<TransferRanking>,
    /// Signals a change.
    changed: Notify,
}

/// The manager's view of the fleet.
#[derive(Default)]
struct ManagerFleetState {
    /// Transfers that are not over.
    records: ManagerOpenTransfers,
    pairs: HashMap<MoverPairKey, MoverPairRecord>,
    /// Transfers that it owns.
    owned: HashMap<String, ManagedTransfer>,
    /// The next transfers in line, by the last look at all waiting ones.
    line: VecDeque<String>,
    /// The reasons of transfers without pairs.
    waits: HashMap<String, String>,
    /// Transfers that wait for something else than a place: they don't prevent that others are taken.
    stuck: HashSet<String>,
    /// Movers that don't see what others of their site see: time since, and true if they were notified.
    odd: HashMap<String, (Instant, bool)>,
    /// Pairs of transfers that are over, or unknown.
    phantoms: OrphanedMoverPairs<MoverPairKey>,
}

/// A transfer that this manager owns.
struct ManagedTransfer {
    /// The wanted number of pairs.
    wanted: Arc<AtomicU32>,
    /// Time until which the lease is certainly this manager's.
    term: SharedManagerLeaseTerm,
    /// The user whose turn it took.
    user: String,
    since: Instant,
}

/// The reason why a manager's time with a fleet ends.
enum ManagerExit {
    /// The operator ended it.
    Told,
    /// The data on NATS was removed or replaced: the manager's state is void.
    Emptied,
}

/// Runs a manager until `stop` turns true. Its transfers are then free for other managers at once. After NATS
/// was emptied it creates everything again and starts over.
///
/// # Errors
///
/// If it could not begin.
pub async fn run(options: ManagerOptions, mut stop: watch::Receiver<bool>) -> Result<(), BusError> {
    let bus =
        retry_at_startup(&options.say, BusError::is_transient, || NatsBus::connect(&options.bus)).await?;
    let say = Arc::clone(&options.say);
    let mut has_begun = false;
    loop {
        match manage(&bus, &options, &mut stop, &mut has_begun).await {
            Ok(ManagerExit::Told) => break,
            Ok(ManagerExit::Emptied) => say("what lay on NATS is gone: it is made again".to_owned()),
            Err(error) if has_begun => {
                say(error.to_string());
                tokio::select! {
                    () = tokio::time::sleep(AGAIN_AFTER) => {}
                    _ = stop.changed() => break,
                }
            }
            Err(error) => return Err(error),
        }
    }
    bus.close().await;
    Ok(())
}

/// Manages transfers until `stop` turns true, or the data on NATS is gone.
async fn manage(
    bus: &NatsBus,
    options: &ManagerOptions,
    stop: &mut watch::Receiver<bool>,
    has_begun: &mut bool,
) -> Result<ManagerExit, BusError> {
    let begun = retry_at_startup(&options.say, BusError::is_transient, || FleetManager::begin(bus, options));
    let (manager, prepared) = begun.await?;
    let made = bus.stream_creation_times().await?;
    prepared.warning.iter().for_each(|warning| manager.notify_user(warning.clone()));
    manager.notify_user(format!("{} at {}, {} copies", manager.id, manager.bus.server(), prepared.replicas));
    let mut records = Box::pin(manager.transfers.watch_wanted(is_open).await?);
    let mut pairs = Box::pin(manager.pairs.watch(PairFilter::Everybody).await?);
    *has_begun = true;
    let (mut movers, mut leases) = (manager.movers.changes(), manager.leases.changes());
    let mut emptied = std::pin::pin!(bus.wait_until_streams_recreated(made));
    let sweeper = ObsoleteRecordSweeper::new(bus, &manager.transfers, &manager.pairs, options);
    let mut sweeping = std::pin::pin!(sweeper.run(|text| manager.notify_user(text)));
    let mut presence = std::pin::pin!(manager.maintain_presence_lease());
    let (put_down, told) = watch::channel(false);
    let mut sharing = start_meta_servers(bus, &manager.id, options, &told);
    let mut owning: JoinSet<String> = JoinSet::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look_at = Instant::now();
    let end = loop {
        tokio::select! {
            Some(change) = records.next() => manager.lock_state().records.apply_change(change),
            Some(change) = pairs.next() => manager.lock_state().apply_pair_change(change),
            Some(ended) = owning.join_next() => ended.iter().for_each(|transfer| manager.remove_owned(transfer)),
            _ = movers.changed() => {}
            _ = leases.changed() => {}
            () = manager.changed.notified() => {}
            _ = ticks.tick() => {}
            () = &mut emptied => break ManagerExit::Emptied,
            () = &mut sweeping => {}
            () = &mut presence => {}
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    break ManagerExit::Told;
                }
            }
        }
        // Changes that arrive together are handled in one round.
        tokio::time::sleep(GATHERS_FOR).await;
        while let Some(ended) = owning.try_join_next() {
            ended.iter().for_each(|transfer| manager.remove_owned(transfer));
        }
        while let Some(Some(change)) = records.next().now_or_never() {
            manager.lock_state().records.apply_change(change);
        }
        while let Some(Some(change)) = pairs.next().now_or_never() {
            manager.lock_state().apply_pair_change(change);
        }
        let began = Instant::now();
        let looks = look_at <= began;
        manager.take_unowned_transfers(&mut owning, &told, looks).await;
        if looks {
            look_at = began + free_transfers::LOOK_EVERY.max(began.elapsed() * free_transfers::LOOKS_ONE_OF);
        }
        manager.deal_pairs().await;
        manager.remove_orphaned_pairs().await;
    };
    let _ = put_down.send(true);
    let put_down = async {
        while owning.join_next().await.is_some() {}
        while sharing.join_next().await.is_some() {}
    };
    let _ = tokio::time::timeout(PUT_DOWN_WITHIN, put_down).await;
    Ok(end)
}

/// Starts the meta-servers of sites that this manager may run.
fn start_meta_servers(
    bus: &NatsBus,
    id: &str,
    options: &ManagerOptions,
    told: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut sharing = JoinSet::new();
    for share in &options.shares {
        let say = Arc::clone(&options.say);
        sharing.spawn(site::run(bus.clone(), share.clone(), id.to_owned(), say, told.clone()));
    }
    sharing
}

impl ManagerFleetState {
    fn apply_pair_change(&mut self, change: PairRecordChange) {
        match change {
            PairRecordChange::All(all) => {
                self.pairs = all.into_iter().map(|pair| (MoverPairKey::of(&pair), pair)).collect();
            }
            PairRecordChange::Put(pair) => drop(self.pairs.insert(MoverPairKey::of(&pair), pair)),
            PairRecordChange::Gone(key) => drop(self.pairs.remove(&key)),
        }
    }
}

/// Returns true if a transfer needs work, such as clearing after a cancel.
fn is_open(record: &TransferRecord) -> bool {
    !record.state.is_over() || record.state == TransferState::Cancelled && record.ended_ms.is_none()
}

impl FleetManager {
    /// Creates the missing buckets and streams, and starts the watches.
    async fn begin(
        bus: &NatsBus,
        options: &ManagerOptions,
    ) -> Result<(Arc<FleetManager>, BusPreparationResult), BusError> {
        let prepared = bus.create_missing_streams(options.replicas).await?;
        let manager = FleetManager {
            id: format!("{MANAGER}{}", &unique_ids::new_id()[..8]),
            transfers: TransferStore::open(bus).await?,
            pairs: PairAssignmentStore::open(bus).await?,
            movers: MoverTable::follow(bus).await?,
            leases: TransferLeaseTable::follow(bus).await?,
            logs: TransferLogSubscriptions::start(bus).await?,
            paths: FastestPairCountCache::default(),
            known: Mutex::default(),
            health: Mutex::default(),
            began: Instant::now(),
            ranks: Mutex::new(TransferRanking::new(RankRules::default())),
            changed: Notify::new(),
            options: options.clone(),
            bus: bus.clone(),
        };
        Ok((Arc::new(manager), prepared))
    }

    /// Announces the manager as long as it runs, by a lease of its own name.
    async fn maintain_presence_lease(&self) {
        loop {
            if let Ok(Some(mut lease)) = TransferManagerLease::acquire(&self.bus, &self.id, &self.id).await {
                while lease.is_certainly_held() {
                    tokio::time::sleep(RENEW_EVERY).await;
                    // A lost lease is acquired again.
                    let _ = lease.renew().await;
                }
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }

    fn notify_user(&self, text: String) {
        (self.options.say)(text);
    }

    fn lock_state(&self) -> MutexGuard<'_, ManagerFleetState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, MoverHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranks(&self) -> MutexGuard<'_, TransferRanking> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time by the clock of `health`.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Changes the pairs of its transfers to their shares.
    async fn deal_pairs(self: &Arc<Self>) {
        let (fleet, MoverPairClaims { claims, odd, unserved }, present) = {
            let (movers, known) = (self.movers.all(), self.lock_state());
            let lately = self.movers.recent_movers();
            self.health().retain_movers(|id| lately.iter().any(|mover| mover.id == id));
            let fleet = planning_input::fleet(&movers);
            let mut claims = planning_input::claims(&known, &movers, &self.health(), self.now());
            claims.odd.extend(storage_mismatches(&movers));
            // Pairs of finished transfers occupy no place.
            let present = known.pairs.values().filter(|pair| known.records.has(&pair.transfer));
            (fleet, claims, present.cloned().map(AssignedMoverPair::from).collect::<Vec<_>>())
        };
        self.notify_storage_mismatches(odd);
        let shares = shares(&fleet, &claims, &self.options.limits);
        let MoverPairChanges { add, drop } = assign(&fleet, &claims, &shares, &present);
        // Pairs of other managers' transfers are not this manager's to drop.
        let drop = drop
            .into_iter()
            .filter(|pair| claims.iter().any(|claim| claim.is_mine && claim.transfer == pair.transfer));
        let drop = drop.map(async |pair| {
            let key = MoverPairKey { source: pair.source, transfer: pair.transfer, number: pair.number };
            if self.pairs.remove(&key).await.is_ok() {
                self.lock_state().pairs.remove(&key);
            }
        });
        join_all(drop).await;
        let add = add.into_iter().map(async |pair| {
            let pair = MoverPairRecord::from(pair);
            if self.pairs.put(&pair).await.is_ok() {
                self.lock_state().pairs.insert(MoverPairKey::of(&pair), pair);
            }
        });
        join_all(add).await;
        self.lock_state().record_wait_reasons(&fleet, &claims, &shares, &self.options.limits, &unserved);
    }

    /// Removes pairs of transfers that are over, or unknown.
    async fn remove_orphaned_pairs(&self) {
        let old = {
            let now = self.now();
            let ManagerFleetState { pairs, records, phantoms, .. } = &mut *self.lock_state();
            phantoms.find_long_orphaned(now, pairs.keys().filter(|key| !records.has(&key.transfer)))
        };
        for key in old {
            // The watch may lag, so the record itself is read.
            let is_over = match self.transfers.get(&key.transfer).await {
                Ok(record) => !is_open(&record),
                Err(error) => matches!(error, FindError::Unknown(_)),
            };
            if is_over && self.pairs.remove(&key).await.is_ok() {
                self.lock_state().pairs.remove(&key);
            }
        }
    }
}

impl ManagerFleetState {
    /// Returns the number of pairs that the owner wants for a transfer. For transfers of other managers it is
    /// in the record.
    fn wanted_pairs(&self, record: &TransferRecord) -> u32 {
        match self.owned.get(&record.id) {
            Some(owned) => owned.wanted.load(Relaxed),
            None if record.state == TransferState::Running => record.tally.pairs_wanted.max(1),
            None => 0,
        }
    }
}
