//! A manager: the coordinators of its transfers, driven as the product drives them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carrack_plan::fleet::{
    AssignedMoverPair, ChunkOutcome, CoordinatorInputs, CoordinatorStep, CoordinatorStepResult, CutTotals,
    FleetMover, LEASE_RENEW_EVERY, LargeFileNumber, LeaseRenewalTime, ManagerOwnedTransfer, MoverHealth,
    MoverPairChanges, MoverPairLimits, MoverStorageMark, OrphanedMoverPairs, PairCountTuner, PartedFileRef,
    RankRules, TransferCandidate, TransferCoordinator, TransferHealthVerdict, TransferPairDemand,
    TransferRanking, TransferTrackerEvent, WaitingTransfer, assign, same_storage, select_transfers, shares,
};

use super::server::{
    Change, Entry, Item, ItemKind, PairKey, Record, Registration, Reply, Request, State, Watch, key_of,
};
use super::world::{Body, Process, Task as AnyTask, World};

/// How often it looks around, and for more to take.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Default)]
pub struct Manager {
    pub body: Body,
    /// What its wall clock is wrong by.
    pub clock_ms: i64,
    /// As it follows them: those that are open.
    records: BTreeMap<String, Record>,
    leases: BTreeMap<String, u64>,
    pairs: BTreeMap<PairKey, AssignedMoverPair>,
    health: MoverHealth,
    ranks: Option<TransferRanking>,
    phantoms: OrphanedMoverPairs<PairKey>,
    owned: BTreeMap<String, Owned>,
    acquiring: BTreeMap<String, u64>,
    /// Changes of pairs that are not answered yet: pairs are dealt again when they are.
    dealing: usize,
    /// What of pairs was told meanwhile: the product reads it when it has dealt.
    told_meanwhile: Vec<Change>,
}

struct Owned {
    coordinator: TransferCoordinator,
    term: LeaseRenewalTime,
    token: u64,
    account: String,
    /// Entries of the log that were told; `None` while it does not follow it.
    log: Option<usize>,
    /// The step that is being carried out.
    step: Option<CoordinatorStep>,
    /// Of the last wait: earlier ones are over.
    wake: u64,
    is_stuck: bool,
    waits_for: String,
}

#[derive(Clone, Debug)]
pub enum Task {
    Look,
    Acquired { transfer: String, token: u64, sent_at: Duration },
    Renew { transfer: String, token: u64 },
    Renewed { transfer: String, token: u64, sent_at: Duration },
    Settled { transfer: String, token: u64 },
    Stepped { transfer: String, token: u64 },
    Drive { transfer: String, token: u64, wake: u64 },
    LogCurrent { transfer: String, token: u64 },
    PairPut(AssignedMoverPair),
    PairRemoved(PairKey),
    PhantomRead(PairKey),
    Nothing,
}

fn later(world: &mut World, process: Process, at: Duration, task: Task) {
    world.wake(process, at, AnyTask::Manager(task));
}

fn ask(world: &mut World, process: Process, request: Request, task: Task) {
    world.ask(process, request, AnyTask::Manager(task));
}

fn now_ms(world: &World, process: Process) -> u64 {
    let ms = 1_000_000_000 + world.now.as_millis() as i64 + world.managers[process.index].clock_ms;
    ms.max(0) as u64
}

pub fn start(world: &mut World, process: Process) {
    let manager = &mut world.managers[process.index];
    let (body, clock_ms) = (std::mem::take(&mut manager.body), manager.clock_ms);
    let server = &world.server;
    *manager = Manager {
        body,
        clock_ms,
        records: server
            .records
            .iter()
            .filter(|(_, record)| record.is_open())
            .map(|(id, record)| (id.clone(), record.clone()))
            .collect(),
        leases: server.leases.iter().map(|(id, lease)| (id.clone(), lease.token)).collect(),
        pairs: server.pairs.clone(),
        ranks: Some(TransferRanking::new(RankRules::default())),
        ..Manager::default()
    };
    later(world, process, world.now, Task::Look);
}

pub fn told(world: &mut World, process: Process, change: Change) {
    let manager = &mut world.managers[process.index];
    if manager.dealing > 0 && matches!(change, Change::PairPut(_) | Change::PairGone(_)) {
        return manager.told_meanwhile.push(change);
    }
    match change {
        Change::Record(record) => follow(&mut manager.records, record),
        Change::Lease { transfer, owner: Some(token) } => drop(manager.leases.insert(transfer, token)),
        Change::Lease { transfer, owner: None } => drop(manager.leases.remove(&transfer)),
        Change::PairPut(pair) => drop(manager.pairs.insert(key_of(&pair), pair)),
        Change::PairGone(key) => drop(manager.pairs.remove(&key)),
        Change::Logged { transfer, place, entry } => {
            let Some(owned) = manager.owned.get_mut(&transfer) else { return };
            if owned.log.is_some_and(|seen| place == seen + 1) {
                owned.log = Some(place);
                logged(world, process, &transfer, entry);
            }
        }
    }
}

fn follow(records: &mut BTreeMap<String, Record>, record: Record) {
    if record.is_open() {
        records.insert(record.id.clone(), record);
    } else {
        records.remove(&record.id);
    }
}

fn logged(world: &mut World, process: Process, transfer: &str, entry: Entry) {
    let now = world.now;
    let manager = &mut world.managers[process.index];
    let Some(owned) = manager.owned.get_mut(transfer) else { return };
    let is_news = owned.coordinator.is_current();
    let event = match entry {
        Entry::ScanDone { attempt, chunks, files, large } => {
            let found = CutTotals { chunks, files, files_in_parts: large, ..CutTotals::default() };
            TransferTrackerEvent::Scanned { attempt, found, is_finished: true }
        }
        Entry::ScanFailed { reason } => {
            owned.coordinator.record_scan_failure(reason);
            return drive_soon(world, process, transfer);
        }
        Entry::Chunk { item, delivered, by, sink, files, failed } => {
            if is_news && failed > 0 {
                manager.health.clear_doubts(transfer);
            } else if is_news {
                manager.health.record_success(now, transfer, &by);
                manager.health.record_success(now, transfer, &sink);
            }
            let part = match item.kind {
                ItemKind::Part { file, count, .. } => {
                    Some(PartedFileRef { file: LargeFileNumber(file), count })
                }
                _ => None,
            };
            let outcome = ChunkOutcome { files, failed, ..ChunkOutcome::default() };
            let delivery = delivered as u32;
            TransferTrackerEvent::ChunkSettled {
                attempt: item.attempt,
                number: item.number,
                delivery,
                outcome,
                part,
            }
        }
        Entry::Finished { attempt, file, is_done } => {
            TransferTrackerEvent::FinishSettled { attempt, file: LargeFileNumber(file), is_done }
        }
        Entry::Discarded { attempt, file } => {
            TransferTrackerEvent::DiscardSettled { attempt, file: LargeFileNumber(file) }
        }
        Entry::Deleted { attempt, delivered, deleted, failed } => {
            TransferTrackerEvent::DeleteSettled { attempt, delivery: delivered as u32, deleted, failed }
        }
        Entry::Closed { attempt } => TransferTrackerEvent::CloseSettled { attempt, failed: 0 },
        Entry::Broken(fault) => {
            if is_news {
                owned.coordinator.record_fault(format!("{}: {}", fault.mover, fault.reason));
                manager.health.record_fault(now, &fault);
            }
            return;
        }
    };
    owned.coordinator.observe(&event);
    drive_soon(world, process, transfer);
}

pub fn woken(world: &mut World, process: Process, task: Task) {
    match task {
        Task::Look => {
            look(world, process);
            let at = world.now + LOOK_EVERY;
            later(world, process, at, Task::Look);
        }
        Task::Renew { transfer, token } if is_own(world, process, &transfer, token) => {
            let sent_at = world.now;
            let request = Request::Renew { transfer: transfer.clone(), token };
            ask(world, process, request, Task::Renewed { transfer, token, sent_at });
        }
        Task::Settled { transfer, token } if is_own(world, process, &transfer, token) => {
            settle(world, process, transfer, token);
        }
        Task::Drive { transfer, token, wake } => {
            let owned = world.managers[process.index].owned.get(&transfer);
            if owned.is_some_and(|owned| owned.token == token && owned.wake == wake && owned.step.is_none()) {
                drive(world, process, &transfer);
            }
        }
        Task::LogCurrent { transfer, token } => {
            if is_own(world, process, &transfer, token)
                && let Some(owned) = world.managers[process.index].owned.get_mut(&transfer)
            {
                owned.coordinator.mark_current();
                drive_soon(world, process, &transfer);
            }
        }
        _ => {}
    }
}

fn is_own(world: &World, process: Process, transfer: &str, token: u64) -> bool {
    world.managers[process.index].owned.get(transfer).is_some_and(|owned| owned.token == token)
}

pub fn answered(world: &mut World, process: Process, task: Task, reply: Option<Reply>) {
    let now = world.now;
    match task {
        Task::Acquired { transfer, token, sent_at } => {
            let manager = &mut world.managers[process.index];
            manager.acquiring.remove(&transfer);
            if let Some(Reply::Done) = reply {
                let now_ms = now_ms(world, process);
                let manager = &mut world.managers[process.index];
                if let (Some(record), Some(ranks)) = (manager.records.get(&transfer), &mut manager.ranks) {
                    ranks.record_start(&waiting(record), now_ms);
                }
                let owned = Owned {
                    coordinator: TransferCoordinator::new(now),
                    term: LeaseRenewalTime::new(sent_at),
                    token,
                    account: transfer.clone(),
                    log: None,
                    step: None,
                    wake: 0,
                    is_stuck: false,
                    waits_for: String::new(),
                };
                manager.owned.insert(transfer.clone(), owned);
                world.tell(|| format!("{process:?} has {transfer}"));
                later(
                    world,
                    process,
                    now + LEASE_RENEW_EVERY,
                    Task::Renew { transfer: transfer.clone(), token },
                );
                drive(world, process, &transfer);
            }
        }
        Task::Renewed { transfer, token, sent_at } => {
            if !is_own(world, process, &transfer, token) {
                return;
            }
            let Some(owned) = world.managers[process.index].owned.get_mut(&transfer) else { return };
            if let Some(Reply::Done) = reply {
                owned.term.confirm(sent_at);
            }
            if matches!(reply, Some(Reply::Refused)) || !owned.term.is_certainly_held(now) {
                world.managers[process.index].owned.remove(&transfer);
                return world.tell(|| format!("{process:?} has lost {transfer}"));
            }
            later(world, process, sent_at + LEASE_RENEW_EVERY, Task::Renew { transfer, token });
        }
        Task::Stepped { transfer, token } if is_own(world, process, &transfer, token) => {
            stepped(world, process, &transfer, reply);
        }
        Task::PairPut(pair) => {
            let manager = &mut world.managers[process.index];
            if let Some(Reply::Done) = reply {
                manager.pairs.insert(key_of(&pair), pair);
            }
            dealt(world, process);
        }
        Task::PairRemoved(key) => {
            let manager = &mut world.managers[process.index];
            if let Some(Reply::Done) = reply {
                manager.pairs.remove(&key);
            }
            dealt(world, process);
        }
        Task::PhantomRead(key) => {
            if let Some(Reply::Record(record)) = reply
                && record.is_none_or(|record| !record.is_open())
            {
                world.managers[process.index].dealing += 1;
                ask(world, process, Request::RemovePair(key.clone()), Task::PairRemoved(key));
            }
        }
        _ => {}
    }
}

fn dealt(world: &mut World, process: Process) {
    let manager = &mut world.managers[process.index];
    manager.dealing -= 1;
    if manager.dealing == 0 {
        for change in std::mem::take(&mut manager.told_meanwhile) {
            told(world, process, change);
        }
    }
}

fn stepped(world: &mut World, process: Process, transfer: &str, reply: Option<Reply>) {
    let now = world.now;
    let Some(owned) = world.managers[process.index].owned.get_mut(transfer) else { return };
    let Some(step) = owned.step.take() else { return };
    let answer = match (&step, reply) {
        (CoordinatorStep::ReadRecord, Some(Reply::Record(record))) => {
            CoordinatorStepResult::Record(record.map(|record| record.view()))
        }
        (CoordinatorStep::CheckQueue, Some(Reply::Count(count))) => CoordinatorStepResult::Idle(count == 0),
        (CoordinatorStep::Open, Some(Reply::Done)) => {
            CoordinatorStepResult::Opened(Box::new(PairCountTuner::new(2, 8)))
        }
        (_, Some(Reply::Done)) => CoordinatorStepResult::Done,
        _ => CoordinatorStepResult::Failed,
    };
    let has_opened = matches!(answer, CoordinatorStepResult::Opened(_));
    if let (CoordinatorStep::WriteEnd(_), CoordinatorStepResult::Done) = (&step, &answer) {
        // Not before the watch has seen it.
        world.managers[process.index].records.remove(transfer);
    }
    let Some(owned) = world.managers[process.index].owned.get_mut(transfer) else { return };
    owned.coordinator.apply_step_result(now, &step, answer);
    if has_opened {
        open_log(world, process, transfer);
    }
    drive(world, process, transfer);
}

/// Tells what is in the log, and then that this was all.
fn open_log(world: &mut World, process: Process, transfer: &str) {
    let entries = world.server.logs.get(transfer).cloned().unwrap_or_default();
    let Some(owned) = world.managers[process.index].owned.get_mut(transfer) else { return };
    (owned.log, owned.step) = (Some(0), None);
    let token = owned.token;
    for (index, entry) in entries.into_iter().enumerate() {
        let change = Change::Logged { transfer: transfer.to_owned(), place: index + 1, entry };
        world.tell_past(process, change);
    }
    let at = *world.body(process.kind, process.index).told_at(Watch::Logs);
    later(world, process, at, Task::LogCurrent { transfer: transfer.to_owned(), token });
}

fn drive_soon(world: &mut World, process: Process, transfer: &str) {
    let soon = world.now + Duration::from_millis(5);
    let Some(owned) = world.managers[process.index].owned.get_mut(transfer) else { return };
    owned.coordinator.decide_by(soon);
    if owned.step.is_none() {
        owned.wake += 1;
        let (token, wake) = (owned.token, owned.wake);
        later(world, process, soon, Task::Drive { transfer: transfer.to_owned(), token, wake });
    }
}

/// Has the coordinator say what is next, and begins it.
fn drive(world: &mut World, process: Process, transfer: &str) {
    let now = world.now;
    let movers = movers(world);
    let manager = &mut world.managers[process.index];
    let Some(mut owned) = manager.owned.remove(transfer) else { return };
    let lately: Vec<Registration> = world.server.lately().cloned().collect();
    let verdict = || verdict(&manager.health, now, transfer, &lately);
    let outlook = CoordinatorInputs {
        lease_is_sure: owned.term.is_certainly_held(now),
        record: manager.records.get(transfer).map(Record::view),
        verdict: &verdict,
        pairs_most: movers.iter().map(|mover| mover.pairs_max).sum::<u32>().max(1),
    };
    let step = owned.coordinator.next(now, &outlook);
    let (token, id) = (owned.token, transfer.to_owned());
    let stepped = Task::Stepped { transfer: id.clone(), token };
    owned.step = Some(step.clone());
    owned.wake += 1;
    let (wake, totals, waits_for) = (owned.wake, owned.coordinator.totals(), owned.waits_for.clone());
    let attempt = owned.coordinator.counting_attempt().unwrap_or(1);
    if let CoordinatorStep::Wait(_) | CoordinatorStep::Release = step {
        owned.step = None;
    }
    if step != CoordinatorStep::Release {
        manager.owned.insert(id.clone(), owned);
    }
    match step {
        CoordinatorStep::Wait(at) => later(world, process, at, Task::Drive { transfer: id, token, wake }),
        CoordinatorStep::Release => {
            world.tell(|| format!("{process:?} puts {transfer} down"));
            ask(world, process, Request::Release { transfer: id, token }, Task::Nothing);
        }
        CoordinatorStep::ReadRecord => ask(world, process, Request::Read(id), stepped),
        CoordinatorStep::Settle => {
            let at = now + world.random.ms(2, 600);
            later(world, process, at, Task::Settled { transfer: id, token });
        }
        CoordinatorStep::WriteReason(reason) => ask(world, process, Request::Reason(id, reason), stepped),
        CoordinatorStep::Open => ask(world, process, Request::Prepare(id), stepped),
        CoordinatorStep::OrderScan { again } => {
            ask(world, process, Request::OrderScan { transfer: id, again }, stepped);
        }
        CoordinatorStep::FinishFiles(files) => {
            publish(world, process, id, token, attempt, &files, |file| ItemKind::Finish { file })
        }
        CoordinatorStep::DiscardFiles(files) => {
            publish(world, process, id, token, attempt, &files, |file| ItemKind::Discard { file })
        }
        CoordinatorStep::CheckQueue => ask(world, process, Request::CountQueue(id), stepped),
        CoordinatorStep::PublishDelete => {
            let delete = Item { kind: ItemKind::Delete, attempt, number: 0 };
            ask(world, process, Request::Publish { transfer: id, items: vec![delete] }, stepped);
        }
        CoordinatorStep::PublishClose => {
            let close = Item { kind: ItemKind::Close, attempt, number: 0 };
            ask(world, process, Request::Publish { transfer: id, items: vec![close] }, stepped);
        }
        CoordinatorStep::WriteProgress(reason) => {
            let reason = if reason.is_empty() { waits_for } else { reason };
            ask(world, process, Request::Progress { transfer: id, reason, totals }, stepped);
        }
        CoordinatorStep::TrimQueue | CoordinatorStep::KeepCurve => {
            self::stepped(world, process, transfer, Some(Reply::Done))
        }
        CoordinatorStep::RemovePairs => ask(world, process, Request::RemovePairs(id), stepped),
        CoordinatorStep::WriteEnd(ending) => {
            world.tell(|| format!("{process:?} ends {transfer}: {ending:?}"));
            world.note_failure(transfer, &ending);
            ask(world, process, Request::End { transfer: id, ending }, stepped);
        }
        CoordinatorStep::RemoveWork => {
            world.managers[process.index].health.forget(transfer);
            ask(world, process, Request::RemoveWork(id), stepped);
        }
    }
}

fn publish(
    world: &mut World,
    process: Process,
    transfer: String,
    token: u64,
    attempt: u32,
    files: &[LargeFileNumber],
    kind: impl Fn(u64) -> ItemKind,
) {
    let item = |file: &LargeFileNumber| Item { kind: kind(file.0), attempt, number: file.0 };
    let items = files.iter().map(item).collect();
    let task = Task::Stepped { transfer: transfer.clone(), token };
    ask(world, process, Request::Publish { transfer, items }, task);
}

/// Looks at both ends: who sees no source there is left out.
fn settle(world: &mut World, process: Process, transfer: String, token: u64) {
    let now = world.now;
    let movers = movers(world);
    let sees = |mover: &&Registration| {
        let there = world.movers.iter().find(|there| there.id == mover.id);
        there.is_some_and(|there| {
            there.body.is_alive && there.body.stopped_until <= now && there.sees_source()
        })
    };
    let sources: Vec<&Registration> = movers.iter().filter(|mover| mover.site == 0).collect();
    let has_sink = movers.iter().any(|mover| mover.site == 1 && !mover.is_ill);
    let seeing = sources.iter().copied().filter(sees).count();
    let is_never = !sources.is_empty()
        && seeing == 0
        && world.movers.iter().all(|mover| mover.site != 0 || !mover.sees_source());
    let Some(owned) = world.managers[process.index].owned.get_mut(&transfer) else { return };
    let answer = match (seeing > 0 && has_sink, is_never) {
        (true, _) => {
            owned.is_stuck = false;
            let task = Task::Stepped { transfer: transfer.clone(), token };
            return ask(world, process, Request::Settled(transfer), task);
        }
        (false, true) => CoordinatorStepResult::Impossible("the source does not exist".into()),
        (false, false) => CoordinatorStepResult::Unsettled("no mover is there".into()),
    };
    owned.is_stuck = true;
    if let Some(step) = owned.step.take() {
        owned.coordinator.apply_step_result(now, &step, answer);
    }
    drive(world, process, &transfer);
}

fn movers(world: &World) -> Vec<Registration> {
    world.server.movers.values().cloned().collect()
}

fn verdict(
    health: &MoverHealth,
    now: Duration,
    transfer: &str,
    movers: &[Registration],
) -> TransferHealthVerdict {
    let at = |site: usize| -> Vec<&str> {
        believed(health, transfer, movers, site).into_iter().map(|index| &*movers[index].id).collect()
    };
    health.verdict(now, transfer, &at(0), &at(1))
}

/// The movers of a site, but for those that see another storage than the others.
fn believed(health: &MoverHealth, transfer: &str, movers: &[Registration], site: usize) -> Vec<usize> {
    let at: Vec<usize> = (0..movers.len()).filter(|&index| movers[index].site == site).collect();
    let sight = |&index: &usize| {
        let mover = &movers[index];
        let is_doubtful = mover.is_ill || health.refuses(transfer, &mover.id);
        MoverStorageMark { directory: "/d", mark: mover.mark, is_doubtful }
    };
    let believed = same_storage(&at.iter().map(sight).collect::<Vec<_>>()).is_believed;
    at.into_iter().zip(believed).filter_map(|(index, is)| is.then_some(index)).collect()
}

fn waiting(record: &Record) -> WaitingTransfer<'_> {
    WaitingTransfer {
        id: &record.id,
        account: &record.id,
        priority: record.priority,
        submitted_ms: record.submitted_ms,
        deadline_ms: None,
        not_before_ms: None,
    }
}

/// Takes what is free, deals pairs, and looks into those that should not be.
fn look(world: &mut World, process: Process) {
    let (now, now_ms, movers) = (world.now, now_ms(world, process), movers(world));
    let manager = &mut world.managers[process.index];
    let lately: BTreeSet<&str> = world.server.lately().map(|mover| &*mover.id).collect();
    manager.health.retain_movers(|id| lately.contains(id));
    let has_pairs = |id: &String| manager.pairs.keys().any(|key| key.1 == *id);
    let owned: Vec<ManagerOwnedTransfer<'_>> = manager
        .owned
        .iter()
        .map(|(id, owned)| ManagerOwnedTransfer {
            account: &owned.account,
            priority: manager.records.get(id).map_or(5, |record| record.priority),
            is_stuck: owned.is_stuck,
            has_pairs: has_pairs(id),
        })
        .collect();
    let is_free = |id: &str| {
        !manager.owned.contains_key(id)
            && !manager.leases.contains_key(id)
            && !manager.acquiring.contains_key(id)
    };
    let candidates: Vec<TransferCandidate<'_>> = manager
        .records
        .values()
        .filter(|record| is_free(&record.id) && record.state != State::Paused)
        .map(|record| TransferCandidate {
            waiting: waiting(record),
            is_begun: matches!(record.state, State::Running | State::Cancelled),
        })
        .collect();
    let places = movers.iter().map(|mover| mover.pairs_max as usize).sum::<usize>() / 2;
    let ranks = manager.ranks.as_ref().expect("it has begun");
    let take: Vec<String> =
        select_transfers(ranks, now_ms, (places, manager.leases.len()), &owned, &candidates)
            .take
            .into_iter()
            .map(str::to_owned)
            .collect();
    for transfer in take {
        let (token, sent_at) = (world.new_token(), now);
        world.managers[process.index].acquiring.insert(transfer.clone(), token);
        let request = Request::Acquire { transfer: transfer.clone(), token, manager: process.index };
        ask(world, process, request, Task::Acquired { transfer, token, sent_at });
    }
    deal(world, process, &movers);
    let manager = &mut world.managers[process.index];
    let unknown = manager.pairs.keys().filter(|key| !manager.records.contains_key(&key.1));
    for key in manager.phantoms.find_long_orphaned(now, unknown) {
        ask(world, process, Request::Read(key.1.clone()), Task::PhantomRead(key));
    }
}

fn deal(world: &mut World, process: Process, movers: &[Registration]) {
    let now = world.now;
    let manager = &mut world.managers[process.index];
    if manager.dealing > 0 {
        return;
    }
    let fleet: Vec<FleetMover> = movers
        .iter()
        .map(|mover| FleetMover {
            id: mover.id.clone(),
            site: mover.site.to_string(),
            host: mover.id.clone(),
            protocol: 1,
            pairs_max: mover.pairs_max,
            is_draining: false,
        })
        .collect();
    let able = |transfer: &str, site: usize| -> Vec<usize> {
        let is_able = |&index: &usize| {
            let mover = &movers[index];
            !mover.is_ill && manager.health.quarantine_of(now, transfer, &mover.id).is_none()
        };
        believed(&manager.health, transfer, movers, site).into_iter().filter(is_able).collect()
    };
    let claims: Vec<TransferPairDemand> = manager
        .records
        .values()
        .filter(|record| record.is_settled && record.is_open())
        .map(|record| {
            let owned = manager.owned.get(&record.id).filter(|owned| owned.term.is_certainly_held(now));
            TransferPairDemand {
                transfer: record.id.clone(),
                submitted_ms: record.submitted_ms,
                priority: record.priority,
                user: "u".into(),
                source_site: "0".into(),
                sink_site: "1".into(),
                sources: able(&record.id, 0),
                sinks: able(&record.id, 1),
                wanted: owned.map_or(0, |owned| owned.coordinator.pairs_wanted()),
                pairs_max: None,
                is_mine: owned.is_some(),
            }
        })
        .filter(|claim| claim.wanted > 0 || claim.is_mine)
        .collect();
    let shares = shares(&fleet, &claims, &MoverPairLimits::default());
    let known = manager.pairs.values().filter(|pair| manager.records.contains_key(&pair.transfer));
    let present: Vec<AssignedMoverPair> = known.cloned().collect();
    let MoverPairChanges { add, drop } = assign(&fleet, &claims, &shares, &present);
    for (claim, share) in claims.iter().zip(&shares) {
        if let Some(owned) = manager.owned.get_mut(&claim.transfer) {
            let waits = *share == 0 && claim.wanted > 0;
            owned.waits_for = if waits { "its turn, or movers".into() } else { String::new() };
        }
    }
    let mine = |transfer: &str| claims.iter().any(|claim| claim.is_mine && claim.transfer == transfer);
    let drop: Vec<PairKey> = drop.iter().filter(|pair| mine(&pair.transfer)).map(key_of).collect();
    for key in drop {
        world.managers[process.index].dealing += 1;
        ask(world, process, Request::RemovePair(key.clone()), Task::PairRemoved(key));
    }
    for pair in add {
        world.managers[process.index].dealing += 1;
        ask(world, process, Request::PutPair(pair.clone()), Task::PairPut(pair));
    }
}

impl Manager {
    /// What it has, for people.
    pub fn shown(&self) -> String {
        let one = |(id, owned): (&String, &Owned)| {
            format!(
                "{id}: {:?}, log {:?}, wants {}, {:?}",
                owned.step,
                owned.log,
                owned.coordinator.pairs_wanted(),
                owned.coordinator
            )
        };
        let owned: Vec<String> = self.owned.iter().map(one).collect();
        format!(
            "{:?}, leases {:?}, acquiring {:?}, dealing {}, clock {} ms, knows {:?}\n{}\n{:#?}",
            self.body,
            self.leases,
            self.acquiring,
            self.dealing,
            self.clock_ms,
            self.records.keys(),
            owned.join("\n"),
            self.health
        )
    }
}
