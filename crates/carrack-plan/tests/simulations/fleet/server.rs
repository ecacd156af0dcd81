//! What lies on NATS, and what its servers do with a request: one request after the other, as JetStream does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use carrack_plan::fleet::{
    AssignedMoverPair, CoordinatedTransferFields, FailedMovers, FleetTransferState, LEASE_LASTS, MoverFault,
    TransferResult, TransferTotals,
};

/// A message with the same id is taken once within this time.
const DEDUPLICATED_FOR: Duration = Duration::from_secs(120);

/// What is not extended is delivered again after so long.
pub const ACK_WAIT: Duration = Duration::from_secs(30);

/// A mover that does not register itself again is gone.
const REGISTERED_FOR: Duration = Duration::from_secs(6);

/// A mover that is gone may come back within this time.
const LATELY: Duration = Duration::from_secs(60);

/// What was just published is counted a moment later.
const COUNTED_AFTER: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Queued,
    Running,
    Paused,
    Done,
    Failed,
    Cancelled,
}

impl State {
    pub fn is_over(self) -> bool {
        matches!(self, State::Done | State::Failed | State::Cancelled)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: String,
    pub priority: u8,
    pub submitted_ms: u64,
    pub state: State,
    pub is_settled: bool,
    pub has_begun: bool,
    /// It is over, and was cleared away.
    pub has_ended: bool,
    pub reason: String,
    pub waits_for: String,
    pub failed_entries: u64,
    pub deletes: bool,
}

impl Record {
    pub fn is_open(&self) -> bool {
        !self.state.is_over() || self.state == State::Cancelled && !self.has_ended
    }

    pub fn view(&self) -> CoordinatedTransferFields {
        let state = match self.state {
            State::Queued | State::Running => FleetTransferState::Open,
            State::Paused => FleetTransferState::Paused,
            State::Cancelled if !self.has_ended => FleetTransferState::Cancelled,
            State::Cancelled | State::Done | State::Failed => FleetTransferState::Over,
        };
        let (is_settled, has_begun) = (self.is_settled, self.has_begun);
        let (failed_entries, deletes) = (self.failed_entries, self.deletes);
        CoordinatedTransferFields { state, is_settled, has_begun, pairs_max: None, failed_entries, deletes }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    Scan,
    Files,
    Part { file: u64, index: u64, count: u64 },
    Finish { file: u64 },
    Discard { file: u64 },
    Delete,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub kind: ItemKind,
    pub attempt: u32,
    pub number: u64,
}

impl Item {
    /// What it is called among a transfer's items.
    pub fn name(&self) -> String {
        match self.kind {
            ItemKind::Scan => "scan".to_owned(),
            ItemKind::Files | ItemKind::Part { .. } => format!("{}-chunk-{}", self.attempt, self.number),
            ItemKind::Finish { file } => format!("{}-finish-{file}", self.attempt),
            ItemKind::Discard { file } => format!("{}-discard-{file}", self.attempt),
            ItemKind::Delete => format!("{}-delete", self.attempt),
            ItemKind::Close => format!("{}-close", self.attempt),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Ready(Duration),
    Out(Duration),
    Acknowledged,
}

#[derive(Clone, Debug)]
struct Queued {
    item: Item,
    published_at: Duration,
    held: Held,
    delivered: u64,
}

/// One transfer's queue.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// There are consumers to pull from.
    is_prepared: bool,
    items: Vec<Queued>,
}

#[derive(Clone, Debug)]
pub struct Delivery {
    pub item: Item,
    pub index: usize,
    pub delivered: u64,
}

#[derive(Clone, Debug)]
pub enum Entry {
    ScanDone { attempt: u32, chunks: u64, files: u64, large: u64 },
    ScanFailed { reason: String },
    Chunk { item: Item, delivered: u64, by: String, sink: String, files: u64, failed: u64 },
    Finished { attempt: u32, file: u64, is_done: bool },
    Discarded { attempt: u32, file: u64 },
    Deleted { attempt: u32, delivered: u64, deleted: u64, failed: u64 },
    Closed { attempt: u32 },
    Broken(MoverFault),
}

impl Entry {
    fn id(&self) -> Option<String> {
        match self {
            Entry::ScanDone { attempt, .. } => Some(format!("{attempt}-scanned")),
            Entry::ScanFailed { .. } => Some("scan-failed".to_owned()),
            Entry::Chunk { item, delivered, .. } => Some(format!("{}-{delivered}", item.name())),
            Entry::Finished { attempt, file, .. } => Some(format!("{attempt}-finished-{file}")),
            Entry::Discarded { attempt, file } => Some(format!("{attempt}-discarded-{file}")),
            Entry::Deleted { attempt, delivered, .. } => Some(format!("{attempt}-deleted-{delivered}")),
            Entry::Closed { attempt } => Some(format!("{attempt}-closed")),
            Entry::Broken(_) => None,
        }
    }
}

pub type PairKey = (String, String, u32);

pub fn key_of(pair: &AssignedMoverPair) -> PairKey {
    (pair.source.clone(), pair.transfer.clone(), pair.number)
}

#[derive(Clone, Debug)]
pub struct Registration {
    pub id: String,
    pub site: usize,
    pub pairs_max: u32,
    pub is_ill: bool,
    /// Of the file system that it sees; empty if it can't be marked.
    pub mark: &'static str,
    until: Duration,
}

impl Registration {
    pub fn new(id: String, site: usize, is_ill: bool, mark: &'static str) -> Registration {
        Registration { id, site, pairs_max: 4, is_ill, mark, until: Duration::ZERO }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub enum Request {
    Acquire {
        transfer: String,
        token: u64,
        manager: usize,
    },
    Renew {
        transfer: String,
        token: u64,
    },
    Release {
        transfer: String,
        token: u64,
    },
    Read(String),
    Settled(String),
    Reason(String, String),
    Prepare(String),
    OrderScan {
        transfer: String,
        again: bool,
    },
    Publish {
        transfer: String,
        items: Vec<Item>,
    },
    CountQueue(String),
    Progress {
        transfer: String,
        reason: String,
        totals: TransferTotals,
    },
    PutPair(AssignedMoverPair),
    RemovePair(PairKey),
    RemovePairs(String),
    End {
        transfer: String,
        ending: TransferResult,
    },
    RemoveWork(String),
    Pull {
        transfer: String,
        scan: bool,
    },
    Acknowledge {
        transfer: String,
        index: usize,
    },
    GiveBack {
        transfer: String,
        index: usize,
        delay: Duration,
    },
    Extend {
        transfer: String,
        index: usize,
    },
    ReadTried {
        transfer: String,
        item: String,
    },
    NoteTried {
        transfer: String,
        item: String,
        tried: FailedMovers,
    },
    /// A mover can't serve a transfer at all.
    NoteRefuses {
        transfer: String,
        is_source: bool,
        mover: String,
    },
    Append {
        transfer: String,
        entry: Entry,
    },
    Register(Registration),
}

impl Request {
    /// The transfer that it changes, if only the manager that has its lease may. Where it goes is written by
    /// whoever is first.
    pub fn is_of_owner(&self) -> Option<&str> {
        match self {
            Request::Reason(transfer, _)
            | Request::Prepare(transfer)
            | Request::OrderScan { transfer, .. }
            | Request::Publish { transfer, .. }
            | Request::Progress { transfer, .. }
            | Request::RemovePairs(transfer)
            | Request::End { transfer, .. }
            | Request::RemoveWork(transfer) => Some(transfer),
            Request::PutPair(pair) => Some(&pair.transfer),
            _ => None,
        }
    }

    /// Whether it decides when a transfer is closed.
    pub fn is_worth_telling(&self) -> bool {
        let is_close = |item: &Item| matches!(item.kind, ItemKind::Delete | ItemKind::Close);
        match self {
            Request::CountQueue(_) | Request::OrderScan { .. } => true,
            Request::Pull { scan, .. } => *scan,
            Request::Append { entry, .. } => matches!(entry, Entry::ScanDone { .. }),
            Request::Publish { items, .. } => items.len() > 5 || items.iter().any(is_close),
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Reply {
    Done,
    /// Somebody else has it.
    Refused,
    /// There is no such thing.
    Missing,
    Record(Option<Record>),
    Count(u64),
    Delivery(Option<Delivery>),
    Tried(FailedMovers),
}

/// What those that follow something are told.
#[derive(Clone, Debug)]
pub enum Change {
    Record(Record),
    Lease { transfer: String, owner: Option<u64> },
    PairPut(AssignedMoverPair),
    PairGone(PairKey),
    Logged { transfer: String, place: usize, entry: Entry },
}

#[derive(Debug)]
pub struct Lease {
    pub token: u64,
    /// Who has it.
    pub manager: usize,
    until: Duration,
}

/// What is followed by a subscription of its own: of two of them either may be ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Records,
    Leases,
    Pairs,
    Logs,
}

pub const WATCHES: usize = 4;

impl Change {
    pub fn watch(&self) -> Watch {
        match self {
            Change::Record(_) => Watch::Records,
            Change::Lease { .. } => Watch::Leases,
            Change::PairPut(_) | Change::PairGone(_) => Watch::Pairs,
            Change::Logged { .. } => Watch::Logs,
        }
    }
}

#[derive(Default)]
pub struct Server {
    pub records: BTreeMap<String, Record>,
    pub leases: BTreeMap<String, Lease>,
    pub pairs: BTreeMap<PairKey, AssignedMoverPair>,
    pub work: BTreeMap<String, Work>,
    pub logs: BTreeMap<String, Vec<Entry>>,
    pub movers: BTreeMap<String, Registration>,
    pub changes: Vec<Change>,
    /// How often a record was written as ended.
    pub ends: BTreeMap<String, u32>,
    /// Since when it is over.
    pub over_since: BTreeMap<String, Duration>,
    /// Movers that were there lately, and until when that counts.
    gone: BTreeMap<String, (Registration, Duration)>,
    tried: HashMap<(String, String), FailedMovers>,
    seen: HashMap<String, Duration>,
}

impl Server {
    /// What ends by itself.
    pub fn expire(&mut self, now: Duration) {
        let ended: Vec<String> =
            self.leases.iter().filter(|(_, lease)| lease.until <= now).map(|(id, _)| id.clone()).collect();
        for transfer in ended {
            self.leases.remove(&transfer);
            self.changes.push(Change::Lease { transfer, owner: None });
        }
        let gone: Vec<String> =
            self.movers.iter().filter(|(_, mover)| mover.until <= now).map(|(id, _)| id.clone()).collect();
        for id in gone {
            if let Some(mover) = self.movers.remove(&id) {
                self.gone.insert(id, (mover, now + LATELY));
            }
        }
        self.gone.retain(|_, (_, until)| *until > now);
    }

    /// Movers that are there, or were lately.
    pub fn lately(&self) -> impl Iterator<Item = &Registration> {
        let gone = self.gone.values().map(|(mover, _)| mover);
        self.movers.values().chain(gone.filter(|mover| !self.movers.contains_key(&mover.id)))
    }

    /// What of a transfer's queue is not acknowledged, but for its deletion.
    pub fn under_way(&self, transfer: &str) -> Option<Item> {
        let left = |queued: &&Queued| queued.is_left() && queued.item.kind != ItemKind::Delete;
        self.work.get(transfer)?.items.iter().find(left).map(|queued| queued.item)
    }

    pub fn submit(&mut self, record: Record) {
        self.changes.push(Change::Record(record.clone()));
        self.records.insert(record.id.clone(), record);
    }

    /// What a user does to a transfer; nothing to one that is over.
    pub fn command(&mut self, transfer: &str, state: State) {
        self.change(transfer, |record| {
            let may = match state {
                State::Running => record.state == State::Paused,
                _ => !record.state.is_over(),
            };
            if may {
                record.state = state;
            }
        });
    }

    pub fn carry_out(&mut self, now: Duration, request: Request) -> Reply {
        match request {
            Request::Acquire { transfer, token, manager } => {
                if self.leases.contains_key(&transfer) {
                    return Reply::Refused;
                }
                self.leases.insert(transfer.clone(), Lease { token, manager, until: now + LEASE_LASTS });
                self.changes.push(Change::Lease { transfer, owner: Some(token) });
                Reply::Done
            }
            Request::Renew { transfer, token } => match self.leases.get_mut(&transfer) {
                Some(lease) if lease.token == token => {
                    lease.until = now + LEASE_LASTS;
                    Reply::Done
                }
                _ => Reply::Refused,
            },
            Request::Release { transfer, token } => {
                if self.leases.get(&transfer).is_some_and(|lease| lease.token == token) {
                    self.leases.remove(&transfer);
                    self.changes.push(Change::Lease { transfer, owner: None });
                }
                Reply::Done
            }
            Request::Read(transfer) => Reply::Record(self.records.get(&transfer).cloned()),
            Request::Settled(transfer) => self.change(&transfer, |record| {
                record.is_settled = true;
                record.waits_for.clear();
            }),
            Request::Reason(transfer, reason) => self.change(&transfer, |record| {
                if record.state == State::Queued {
                    record.waits_for = reason.clone();
                }
            }),
            Request::Progress { transfer, reason, totals } => self.change(&transfer, |record| {
                if record.state == State::Queued {
                    record.state = State::Running;
                    record.has_begun = true;
                }
                record.failed_entries = record.failed_entries.max(totals.entries_failed);
                if record.state == State::Running {
                    record.waits_for = reason.clone();
                }
            }),
            Request::End { transfer, ending } => {
                let reply = self.end(&transfer, &ending);
                self.over_since.entry(transfer).or_insert(now);
                reply
            }
            Request::PutPair(pair) => {
                self.changes.push(Change::PairPut(pair.clone()));
                self.pairs.insert(key_of(&pair), pair);
                Reply::Done
            }
            Request::RemovePair(key) => {
                self.pairs.remove(&key);
                self.changes.push(Change::PairGone(key));
                Reply::Done
            }
            Request::RemovePairs(transfer) => {
                let keys: Vec<PairKey> = self.pairs.keys().filter(|key| key.1 == transfer).cloned().collect();
                for key in keys {
                    self.pairs.remove(&key);
                    self.changes.push(Change::PairGone(key));
                }
                Reply::Done
            }
            Request::ReadTried { transfer, item } => {
                let mut tried = self.tried.get(&(transfer.clone(), item)).cloned().unwrap_or_default();
                if let Some(all) = self.tried.get(&(transfer, String::new())) {
                    tried.merge(all);
                }
                Reply::Tried(tried)
            }
            Request::NoteRefuses { transfer, is_source, mover } => {
                self.tried.entry((transfer, String::new())).or_default().add(is_source, &mover);
                Reply::Done
            }
            Request::NoteTried { transfer, item, tried } => {
                self.tried.insert((transfer, item), tried);
                Reply::Done
            }
            Request::Append { transfer, entry } => self.append(now, transfer, entry),
            Request::Register(mut mover) => {
                mover.until = now + REGISTERED_FOR;
                self.movers.insert(mover.id.clone(), mover);
                Reply::Done
            }
            of_work => self.carry_out_work(now, of_work),
        }
    }

    fn carry_out_work(&mut self, now: Duration, request: Request) -> Reply {
        match request {
            Request::Prepare(transfer) => {
                self.work.entry(transfer).or_default().is_prepared = true;
                Reply::Done
            }
            Request::OrderScan { transfer, again } => {
                let left = self.work.get(&transfer).map_or(0, |work| {
                    work.items
                        .iter()
                        .filter(|queued| queued.item.kind == ItemKind::Scan && queued.is_left())
                        .count()
                });
                if !again || left == 0 {
                    let scan = Item { kind: ItemKind::Scan, attempt: 1, number: 0 };
                    self.publish(now, &transfer, scan);
                }
                Reply::Done
            }
            Request::Publish { transfer, items } => {
                items.into_iter().for_each(|item| self.publish(now, &transfer, item));
                Reply::Done
            }
            Request::CountQueue(transfer) => {
                let Some(work) = self.work.get(&transfer).filter(|work| work.is_prepared) else {
                    return Reply::Missing;
                };
                let counts = |queued: &&Queued| {
                    queued.is_left()
                        && (queued.delivered > 0 || now.saturating_sub(queued.published_at) > COUNTED_AFTER)
                };
                Reply::Count(work.items.iter().filter(counts).count() as u64)
            }
            Request::RemoveWork(transfer) => {
                self.work.remove(&transfer);
                self.logs.remove(&transfer);
                Reply::Done
            }
            Request::Pull { transfer, scan } => match self.work.get_mut(&transfer) {
                Some(work) if work.is_prepared => Reply::Delivery(work.pull(now, scan)),
                _ => Reply::Missing,
            },
            Request::Acknowledge { transfer, index } => {
                self.hold(&transfer, index, |_| Held::Acknowledged);
                Reply::Done
            }
            Request::GiveBack { transfer, index, delay } => {
                self.hold(&transfer, index, |held| match held {
                    Held::Acknowledged => held,
                    _ => Held::Ready(now + delay),
                });
                Reply::Done
            }
            Request::Extend { transfer, index } => {
                self.hold(&transfer, index, |held| match held {
                    Held::Out(_) => Held::Out(now + ACK_WAIT),
                    other => other,
                });
                Reply::Done
            }
            other => unreachable!("{other:?} is no request about work"),
        }
    }

    fn hold(&mut self, transfer: &str, index: usize, change: impl FnOnce(Held) -> Held) {
        if let Some(queued) = self.work.get_mut(transfer).and_then(|work| work.items.get_mut(index)) {
            queued.held = change(queued.held);
        }
    }

    fn publish(&mut self, now: Duration, transfer: &str, item: Item) {
        if self.is_new(now, format!("{transfer}-work-{}-{}", item.attempt, item.name())) {
            let held = Held::Ready(now);
            let queued = Queued { item, published_at: now, held, delivered: 0 };
            self.work.entry(transfer.to_owned()).or_default().items.push(queued);
        }
    }

    fn append(&mut self, now: Duration, transfer: String, entry: Entry) -> Reply {
        if entry.id().is_none_or(|id| self.is_new(now, format!("{transfer}-log-{id}"))) {
            let log = self.logs.entry(transfer.clone()).or_default();
            log.push(entry.clone());
            self.changes.push(Change::Logged { transfer, place: log.len(), entry });
        }
        Reply::Done
    }

    fn is_new(&mut self, now: Duration, id: String) -> bool {
        let is_new = self.seen.get(&id).is_none_or(|at| now.saturating_sub(*at) > DEDUPLICATED_FOR);
        if is_new {
            self.seen.insert(id, now);
        }
        is_new
    }

    fn end(&mut self, transfer: &str, ending: &TransferResult) -> Reply {
        let was_over = self.records.get(transfer).is_some_and(|record| record.state.is_over());
        if !was_over {
            *self.ends.entry(transfer.to_owned()).or_default() += 1;
        }
        self.change(transfer, |record| {
            if !record.state.is_over() {
                (record.state, record.reason) = match ending {
                    TransferResult::Done => (State::Done, String::new()),
                    TransferResult::Failed(reason) => (State::Failed, reason.clone()),
                    TransferResult::Cancelled => (State::Cancelled, String::new()),
                };
            }
            record.waits_for.clear();
            record.has_ended = true;
        })
    }

    fn change(&mut self, transfer: &str, change: impl FnOnce(&mut Record)) -> Reply {
        let Some(record) = self.records.get_mut(transfer) else { return Reply::Missing };
        let before = record.clone();
        change(record);
        if *record != before {
            self.changes.push(Change::Record(record.clone()));
        }
        Reply::Done
    }
}

impl Queued {
    fn is_left(&self) -> bool {
        !matches!(self.held, Held::Acknowledged)
    }
}

impl Work {
    fn pull(&mut self, now: Duration, scan: bool) -> Option<Delivery> {
        let is_there = |queued: &Queued| {
            (queued.item.kind == ItemKind::Scan) == scan
                && matches!(queued.held, Held::Ready(at) | Held::Out(at) if at <= now)
        };
        let index = self.items.iter().position(is_there)?;
        let queued = &mut self.items[index];
        queued.held = Held::Out(now + ACK_WAIT);
        queued.delivered += 1;
        Some(Delivery { item: queued.item, index, delivered: queued.delivered })
    }
}
