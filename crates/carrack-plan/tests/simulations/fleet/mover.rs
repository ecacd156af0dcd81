//! A mover: its pairs, their sessions and chunks, and scans.

use std::collections::BTreeMap;
use std::time::Duration;

use carrack_plan::fleet::{
    AssignedMoverPair, AvailableMovers, ChunkDeliveryState, ChunkStepResult, FailedMovers,
    HeldQueueDeliveries, MoverBlamedChunkFailure, MoverFault, MoverFaultKind, MoverPairId,
    MoverPairReconciler, MoverReconcilerAction, QueuedChunkStep, may_leave_to_others, redelivery_delay,
    scan_ack_delay,
};

use super::server::{ACK_WAIT, Change, Delivery, Entry, Item, ItemKind, Registration, Reply, Request, State};
use super::sites::Destination;
use super::world::{Body, Process, Task as AnyTask, World};

/// How often it registers itself.
const BEAT: Duration = Duration::from_secs(2);

/// How often what is held is looked at.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// A pull that finds nothing is tried again after so long.
const PULL_AGAIN: Duration = Duration::from_millis(300);

/// A session that broke begins anew after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What NATS does not take is tried again after so long, and for so long.
const REPEAT_AFTER: Duration = Duration::from_millis(500);
const REPEAT_FOR: Duration = Duration::from_secs(20);

/// The other end is believed to be gone when it has said nothing for so long.
const SILENT_FOR: Duration = Duration::from_secs(20);

/// Storage that does not answer for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// Chunks that a session has at once.
const HELD_MAX: usize = 2;

/// How a mover is ill, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Illness {
    None,
    /// The source is not there.
    LacksSource,
    /// The destination can't be written.
    ReadOnly,
    /// It writes where nobody else looks.
    Astray,
    /// Nobody gets through to it.
    Unreachable,
    /// Each write fails.
    WriteErrors,
    /// A hundred times slower than others.
    Slow,
}

pub struct Mover {
    pub id: String,
    pub site: usize,
    pub body: Body,
    pub illness: Illness,
    /// Reads and writes do not return before.
    pub hung_until: Duration,
    set: MoverPairReconciler,
    sessions: BTreeMap<MoverPairId, Session>,
    scans: BTreeMap<String, bool>,
    /// A session was left to its storage, which does not answer.
    knows_that_it_hangs: bool,
}

struct Session {
    pair: AssignedMoverPair,
    /// Which of the pair's sessions it is.
    number: u64,
    is_open: bool,
    is_told_to_end: bool,
    is_pulling: bool,
    /// The transfer's last chunk was taken: the session ends when that is done, and not before.
    is_closing: bool,
    /// Nothing more is to be had.
    is_ended: bool,
    deliveries: HeldQueueDeliveries,
    held: BTreeMap<u64, Held>,
    next_number: u64,
    moved_at: Duration,
}

struct Held {
    case: ChunkDeliveryState,
    delivery: Delivery,
    began_at: Duration,
    failed: u64,
    deleted: u64,
    doubts: Vec<MoverBlamedChunkFailure>,
    repeated_since: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum Task {
    Beat,
    Begin(MoverPairId),
    Read(MoverPairId),
    Dialled(MoverPairId, u64),
    Fetch(MoverPairId, u64),
    Pulled(MoverPairId, u64),
    Copied(MoverPairId, u64, u64),
    /// Whether the transfer's record lets something go.
    MayDelete(MoverPairId, u64, u64),
    Case(MoverPairId, u64),
    CaseAgain(MoverPairId, u64),
    Keep(MoverPairId, u64),
    Extended(MoverPairId, u64, Duration),
    ToldToEnd(MoverPairId),
    Scan(String),
    ScanPulled(String),
    ScanTried(String, Delivery),
    Scanned(String, Delivery, FailedMovers),
    ScanExtend(String, Delivery),
    ScanPublished(String, Delivery, u32),
    ScanLogged(String, Delivery),
    ScanSettled(String, Delivery),
    ScanOver(String),
    Nothing,
}

fn later(world: &mut World, process: Process, after: Duration, task: Task) {
    world.wake(process, world.now + after, AnyTask::Mover(task));
}

fn ask(world: &mut World, process: Process, request: Request, task: Task) {
    world.ask(process, request, AnyTask::Mover(task));
}

impl Mover {
    pub fn new(site: usize, illness: Illness) -> Mover {
        Mover {
            id: String::new(),
            site,
            body: Body::default(),
            illness,
            hung_until: Duration::ZERO,
            set: MoverPairReconciler::default(),
            sessions: BTreeMap::new(),
            scans: BTreeMap::new(),
            knows_that_it_hangs: false,
        }
    }

    pub fn sees_source(&self) -> bool {
        self.illness != Illness::LacksSource
    }

    /// Whether nothing is wrong with it for good.
    pub fn is_well(&self) -> bool {
        matches!(self.illness, Illness::None | Illness::Slow)
    }
}

pub fn start(world: &mut World, process: Process) {
    let mover = &mut world.movers[process.index];
    let (body, hung_until) = (std::mem::take(&mut mover.body), mover.hung_until);
    let id = format!("m{}-{}", process.index, process.life);
    *mover = Mover { id, body, hung_until, ..Mover::new(mover.site, mover.illness) };
    register(world, process);
    later(world, process, BEAT, Task::Beat);
}

fn register(world: &mut World, process: Process) {
    let mover = &world.movers[process.index];
    let mark = match mover.illness {
        Illness::Astray => "elsewhere",
        Illness::ReadOnly | Illness::LacksSource => "",
        _ => "site",
    };
    let registration = Registration::new(mover.id.clone(), mover.site, mover.knows_that_it_hangs, mark);
    ask(world, process, Request::Register(registration), Task::Nothing);
}

pub fn told(world: &mut World, process: Process, change: Change) {
    let set = &mut world.movers[process.index].set;
    let acts = match change {
        Change::PairPut(pair) => set.put(pair),
        Change::PairGone((_, transfer, number)) => set.remove_wanted(&(transfer, number)),
        _ => return,
    };
    carry_out(world, process, acts);
}

fn carry_out(world: &mut World, process: Process, acts: Vec<MoverReconcilerAction>) {
    for act in acts {
        match act {
            MoverReconcilerAction::Begin(pair) => {
                let id = (pair.transfer.clone(), pair.number);
                let session = Session {
                    pair,
                    number: 0,
                    is_open: false,
                    is_told_to_end: false,
                    is_pulling: false,
                    is_closing: false,
                    is_ended: false,
                    deliveries: HeldQueueDeliveries::new(ACK_WAIT),
                    held: BTreeMap::new(),
                    next_number: 0,
                    moved_at: world.now,
                };
                world.movers[process.index].sessions.insert(id.clone(), session);
                later(world, process, Duration::ZERO, Task::Begin(id));
            }
            MoverReconcilerAction::Stop(id) => {
                if let Some(session) = world.movers[process.index].sessions.get_mut(&id) {
                    session.is_told_to_end = true;
                    let read = Request::Read(id.0.clone());
                    ask(world, process, read, Task::ToldToEnd(id));
                }
            }
            MoverReconcilerAction::BeginScans(transfer) => {
                let is_new = world.movers[process.index].scans.insert(transfer.clone(), true).is_none();
                if is_new {
                    later(world, process, Duration::ZERO, Task::Scan(transfer));
                }
            }
            MoverReconcilerAction::StopScans(transfer) => {
                if let Some(goes_on) = world.movers[process.index].scans.get_mut(&transfer) {
                    *goes_on = false;
                }
            }
        }
    }
}

fn session_of<'a>(world: &'a mut World, process: Process, id: &MoverPairId) -> Option<&'a mut Session> {
    world.movers[process.index].sessions.get_mut(id)
}

/// The session, if it is still the one of this number.
fn current<'a>(
    world: &'a mut World,
    process: Process,
    id: &MoverPairId,
    number: u64,
) -> Option<&'a mut Session> {
    session_of(world, process, id).filter(|session| session.number == number && session.is_open)
}

pub fn woken(world: &mut World, process: Process, task: Task) {
    match task {
        Task::Beat => {
            let now = world.now;
            let mover = &mut world.movers[process.index];
            mover.knows_that_it_hangs &= mover.hung_until > now;
            register(world, process);
            later(world, process, BEAT, Task::Beat);
        }
        Task::Begin(id) => begin(world, process, id),
        Task::Dialled(id, number) => dialled(world, process, id, number),
        Task::Fetch(id, number) => fetch(world, process, &id, number),
        Task::Copied(id, number, chunk) => copied(world, process, id, number, chunk),
        Task::CaseAgain(id, chunk) => drive(world, process, &id, chunk),
        Task::Keep(id, number) => keep(world, process, id, number),
        of_scans => scan_woken(world, process, of_scans),
    }
}

pub fn answered(world: &mut World, process: Process, task: Task, reply: Option<Reply>) {
    match task {
        Task::Read(id) => match reply {
            Some(Reply::Record(Some(record))) if record.is_settled => {
                if let Some(session) = session_of(world, process, &id) {
                    session.number += 1;
                    let number = session.number;
                    let takes = world.random.ms(2, 40);
                    later(world, process, takes, Task::Dialled(id, number));
                }
            }
            _ => again(world, process, id),
        },
        Task::Pulled(id, number) => pulled(world, process, id, number, reply),
        Task::MayDelete(id, number, chunk) => may_delete(world, process, id, number, chunk, reply),
        Task::Case(id, chunk) => case_answered(world, process, id, chunk, reply),
        Task::Extended(id, chunk, sent_at) => {
            if let (Some(session), Some(Reply::Done)) = (session_of(world, process, &id), reply) {
                session.deliveries.confirm(chunk, sent_at);
            }
        }
        Task::ToldToEnd(id) => told_to_end(world, process, id, reply),
        of_scans => scan_answered(world, process, of_scans, reply),
    }
}

fn begin(world: &mut World, process: Process, id: MoverPairId) {
    let Some(session) = session_of(world, process, &id) else { return };
    if session.is_told_to_end {
        return end(world, process, id);
    }
    let read = Request::Read(id.0.clone());
    ask(world, process, read, Task::Read(id));
}

/// It begins anew a moment later, unless it is to end.
fn again(world: &mut World, process: Process, id: MoverPairId) {
    later(world, process, AGAIN_AFTER, Task::Begin(id));
}

fn end(world: &mut World, process: Process, id: MoverPairId) {
    let mover = &mut world.movers[process.index];
    // What was settled is brought to its end first.
    if mover.sessions.get(&id).is_some_and(|session| session.held.is_empty()) {
        mover.sessions.remove(&id);
        let acts = mover.set.record_ended(&id);
        carry_out(world, process, acts);
    } else if mover.sessions.contains_key(&id) {
        later(world, process, REPEAT_AFTER, Task::Begin(id));
    }
}

fn sink_of(world: &World, pair: &AssignedMoverPair) -> Option<usize> {
    world.movers.iter().position(|mover| mover.id == pair.sink)
}

fn dialled(world: &mut World, process: Process, id: MoverPairId, number: u64) {
    let now = world.now;
    let Some(pair) = session_of(world, process, &id)
        .filter(|session| session.number == number)
        .map(|session| session.pair.clone())
    else {
        return;
    };
    if world.movers[process.index].illness == Illness::LacksSource {
        return broken(world, process, id, true, MoverFaultKind::Refused, "no such directory");
    }
    let sink = sink_of(world, &pair).map(|index| &world.movers[index]);
    let is_there = sink.is_some_and(|sink| {
        sink.body.is_alive && sink.body.stopped_until <= now && sink.illness != Illness::Unreachable
    });
    if !is_there || world.data_cut_until > now {
        return broken(world, process, id, false, MoverFaultKind::Unreachable, "it is not reached");
    }
    if sink.is_some_and(|sink| sink.illness == Illness::ReadOnly) {
        return broken(world, process, id, false, MoverFaultKind::Refused, "read-only");
    }
    let Some(session) = session_of(world, process, &id) else { return };
    (session.is_open, session.is_pulling, session.moved_at) = (true, false, now);
    (session.is_closing, session.is_ended) = (false, false);
    later(world, process, KEEP_EVERY, Task::Keep(id.clone(), number));
    fetch(world, process, &id, number);
}

/// Pulls a chunk, if the session wants one.
fn fetch(world: &mut World, process: Process, id: &MoverPairId, number: u64) {
    let Some(session) = current(world, process, id, number) else { return };
    if session.is_told_to_end || session.is_closing || session.is_ended {
        if session.held.is_empty() {
            session.is_open = false;
            again(world, process, id.clone());
        }
        return;
    }
    if !session.is_pulling && session.held.len() < HELD_MAX {
        session.is_pulling = true;
        let request = Request::Pull { transfer: id.0.clone(), scan: false };
        ask(world, process, request, Task::Pulled(id.clone(), number));
    }
}

fn pulled(world: &mut World, process: Process, id: MoverPairId, number: u64, reply: Option<Reply>) {
    let now = world.now;
    let delivery = match reply {
        Some(Reply::Delivery(Some(delivery))) => delivery,
        other => {
            let Some(session) = current(world, process, &id, number) else { return };
            session.is_pulling = false;
            // The transfer is over, or was cancelled.
            session.is_ended |= matches!(other, Some(Reply::Missing));
            return later(world, process, PULL_AGAIN, Task::Fetch(id, number));
        }
    };
    let source = world.movers[process.index].id.clone();
    let Some(session) = current(world, process, &id, number) else {
        // What was on its way is given back too.
        let request = Request::GiveBack { transfer: id.0, index: delivery.index, delay: AGAIN_AFTER };
        return ask(world, process, request, Task::Nothing);
    };
    session.is_pulling = false;
    session.is_closing |= delivery.item.kind == ItemKind::Close;
    let chunk = session.next_number;
    session.next_number += 1;
    session.deliveries.add(chunk, now);
    let case = ChunkDeliveryState::new(&source, &session.pair.sink, delivery.delivered);
    let (doubts, repeated_since) = (Vec::new(), None);
    let held = Held { case, delivery, began_at: now, failed: 0, deleted: 0, doubts, repeated_since };
    session.held.insert(chunk, held);
    drive(world, process, &id, chunk);
    fetch(world, process, &id, number);
}

/// Begins what is next for a chunk.
fn drive(world: &mut World, process: Process, id: &MoverPairId, chunk: u64) {
    let (now, source) = (world.now, world.movers[process.index].id.clone());
    let Some(session) = world.movers[process.index].sessions.get_mut(id) else { return };
    let (number, sink) = (session.number, session.pair.sink.clone());
    let Some(held) = session.held.get_mut(&chunk) else { return };
    let (transfer, index, item) = (id.0.clone(), held.delivery.index, held.delivery.item);
    let task = Task::Case(id.clone(), chunk);
    match held.case.next() {
        QueuedChunkStep::ReadTried => {
            ask(world, process, Request::ReadTried { transfer, item: item.name() }, task);
        }
        QueuedChunkStep::NoteTried(tried) => {
            ask(world, process, Request::NoteTried { transfer, item: item.name(), tried }, task);
        }
        QueuedChunkStep::TellDoubts(doubts) => {
            for MoverBlamedChunkFailure { is_source, reason } in doubts {
                let kind = MoverFaultKind::Doubted;
                let fault = fault(&transfer, &source, &sink, is_source, kind, &reason);
                let request = Request::Append { transfer: transfer.clone(), entry: Entry::Broken(fault) };
                ask(world, process, request, Task::Nothing);
            }
            answer(world, process, id, chunk, ChunkStepResult::Done);
        }
        QueuedChunkStep::Leave(delay) => {
            world.tell(|| format!("{source} and {sink}: {transfer} {} is left to others", item.name()));
            let now = world.now;
            let is_lost = |session: &mut Session| session.deliveries.may_be_redelivered(chunk, now);
            if !session_of(world, process, id).is_some_and(is_lost) {
                ask(world, process, Request::GiveBack { transfer, index, delay }, Task::Nothing);
            }
            drop_held(world, process, id, chunk);
        }
        QueuedChunkStep::Carry => {
            held.began_at = now;
            let takes = copy_takes(world, process, &sink, &transfer, &item);
            later(world, process, takes, Task::Copied(id.clone(), number, chunk));
        }
        QueuedChunkStep::Prove => {
            let mut doubts = held.doubts.clone();
            if !world.destination.has(&transfer, &item) && has_witness(world, &sink) {
                if let Some(held) = held_of(world, process, id, chunk) {
                    held.failed += 1;
                }
                doubts
                    .push(MoverBlamedChunkFailure { is_source: false, reason: "nobody else sees it".into() });
            }
            answer(world, process, id, chunk, ChunkStepResult::Doubts(doubts));
        }
        QueuedChunkStep::Log => {
            let entry =
                entry(&transfer, held, &source, &sink, files_in(&world.destination, &transfer, &item));
            ask(world, process, Request::Append { transfer, entry }, task);
        }
        QueuedChunkStep::Acknowledge => ask(world, process, Request::Acknowledge { transfer, index }, task),
        QueuedChunkStep::Over => drop_held(world, process, id, chunk),
    }
}

fn files_in(destination: &Destination, transfer: &str, item: &Item) -> u64 {
    match item.kind {
        ItemKind::Files => destination.trees[transfer].files_of(item).count() as u64,
        _ => 0,
    }
}

fn entry(transfer: &str, held: &Held, by: &str, sink: &str, files: u64) -> Entry {
    let (item, failed) = (held.delivery.item, held.failed);
    let attempt = item.attempt;
    match item.kind {
        ItemKind::Scan => unreachable!("{transfer}: scans are no chunks"),
        ItemKind::Files | ItemKind::Part { .. } => Entry::Chunk {
            item,
            delivered: held.delivery.delivered,
            by: by.to_owned(),
            sink: sink.to_owned(),
            files: files.saturating_sub(failed),
            failed,
        },
        ItemKind::Finish { file } => Entry::Finished { attempt, file, is_done: failed == 0 },
        ItemKind::Discard { file } => Entry::Discarded { attempt, file },
        ItemKind::Delete => {
            let (delivered, deleted) = (held.delivery.delivered, held.deleted);
            Entry::Deleted { attempt, delivered, deleted, failed }
        }
        ItemKind::Close => Entry::Closed { attempt },
    }
}

fn held_of<'a>(world: &'a mut World, process: Process, id: &MoverPairId, chunk: u64) -> Option<&'a mut Held> {
    session_of(world, process, id)?.held.get_mut(&chunk)
}

/// Another mover of the sink's site that sees what the site sees.
fn has_witness(world: &World, sink: &str) -> bool {
    world.movers.iter().any(|mover| {
        mover.site == 1
            && mover.id != sink
            && mover.body.is_alive
            && mover.body.stopped_until <= world.now
            && mover.illness != Illness::Astray
    })
}

fn drop_held(world: &mut World, process: Process, id: &MoverPairId, chunk: u64) {
    let Some(session) = session_of(world, process, id) else { return };
    session.held.remove(&chunk);
    session.deliveries.remove(chunk);
    let number = session.number;
    fetch(world, process, id, number);
}

fn copy_takes(world: &mut World, process: Process, sink: &str, transfer: &str, item: &Item) -> Duration {
    let is_slow = |mover: &Mover| mover.illness == Illness::Slow;
    let slow = is_slow(&world.movers[process.index])
        || world.movers.iter().any(|mover| mover.id == sink && is_slow(mover));
    let pieces = files_in(&world.destination, transfer, item).max(1) as u32;
    world.random.ms(10, 150) * pieces * if slow { 100 } else { 1 }
}

/// The session has copied a chunk, as far as its ends let it.
fn copied(world: &mut World, process: Process, id: MoverPairId, number: u64, chunk: u64) {
    let now = world.now;
    let source_hung = world.movers[process.index].hung_until > now;
    let is_cut = world.data_cut_until > now;
    let Some(session) = current(world, process, &id, number) else { return };
    let moved_at = session.moved_at;
    if session.deliveries.is_lost(now) {
        // A process that was stopped sees so before, or within half a second: what it sends by then is what
        // others have sent.
        give_back(world, process, &id, AGAIN_AFTER);
        return again(world, process, id);
    }
    let Some(held) = session.held.get(&chunk) else { return };
    let (item, pair, began_at) = (held.delivery.item, session.pair.clone(), held.began_at);
    let carries =
        |(other, held): (&u64, &Held)| *other != chunk && held.case.next() == QueuedChunkStep::Carry;
    if item.kind == ItemKind::Close && session.held.iter().any(carries) {
        // A session closes after all that it carries.
        return later(world, process, PULL_AGAIN, Task::Copied(id, number, chunk));
    }
    let Some(sink) = sink_of(world, &pair).filter(|&index| world.movers[index].body.is_alive) else {
        return broken(world, process, id, false, MoverFaultKind::Passing, "the connection was lost");
    };
    let illness = world.movers[sink].illness;
    let silent = world.movers[sink].body.stopped_until > now || is_cut;
    if source_hung || world.movers[sink].hung_until > now || silent {
        let since = moved_at.max(began_at);
        if silent && now.saturating_sub(since) > SILENT_FOR {
            return broken(world, process, id, false, MoverFaultKind::Unreachable, "it has said nothing");
        }
        return later(world, process, AGAIN_AFTER, Task::Copied(id, number, chunk));
    }
    if world.destination.full_until > now && illness != Illness::Astray {
        return broken(world, process, id, false, MoverFaultKind::Full, "no space left");
    }
    if item.kind == ItemKind::Delete && illness != Illness::WriteErrors {
        // It is asked for again and again whether it is still wanted.
        let read = Request::Read(id.0.clone());
        return ask(world, process, read, Task::MayDelete(id, number, chunk));
    }
    let is_data = matches!(item.kind, ItemKind::Files | ItemKind::Part { .. } | ItemKind::Delete);
    let (failed, is_source, reason) = match illness {
        Illness::WriteErrors if is_data => (files_in(&world.destination, &id.0, &item).max(1), false, "EIO"),
        Illness::Astray => (world.destination.unreadable_of(&id.0, &item), true, "can't be read"),
        _ => (world.destination.write(&id.0, &item), true, "can't be read"),
    };
    let doubts = (failed > 0)
        .then(|| MoverBlamedChunkFailure { is_source, reason: reason.to_owned() })
        .into_iter()
        .collect();
    settled(world, process, id, chunk, failed, doubts);
}

/// The sink has settled a chunk.
fn settled(
    world: &mut World,
    process: Process,
    id: MoverPairId,
    chunk: u64,
    failed: u64,
    doubts: Vec<MoverBlamedChunkFailure>,
) {
    let now = world.now;
    if let Some(session) = session_of(world, process, &id)
        && let Some(held) = session.held.get(&chunk)
    {
        let (AssignedMoverPair { source, sink, .. }, item) = (session.pair.clone(), held.delivery.item);
        world.tell(|| format!("{source} and {sink}: {} {} is settled, {failed} failed", id.0, item.name()));
    }
    let Some(session) = session_of(world, process, &id) else { return };
    session.moved_at = now;
    let Some(held) = session.held.get_mut(&chunk) else { return };
    (held.failed, held.doubts) = (failed, doubts);
    held.case.record_settled();
    drive(world, process, &id, chunk);
}

/// One more entry goes that the source has not, unless its user wants no more of it, or something has failed.
fn may_delete(
    world: &mut World,
    process: Process,
    id: MoverPairId,
    number: u64,
    chunk: u64,
    reply: Option<Reply>,
) {
    let now = world.now;
    let Some(session) = current(world, process, &id, number) else { return };
    let is_lost = session.deliveries.is_lost(now);
    let Some(held) = session.held.get(&chunk) else { return };
    let has_begun = held.deleted > 0;
    let (is_unwanted, has_failed) = match reply {
        Some(Reply::Record(Some(record))) => {
            (record.state != State::Running, record.failed_entries > 0 && !has_begun)
        }
        Some(_) => (true, false),
        // Nobody knows; nothing is begun so.
        None => (!has_begun, false),
    };
    if is_lost || is_unwanted {
        give_back(world, process, &id, AGAIN_AFTER);
        return again(world, process, id);
    }
    if has_failed {
        return settled(world, process, id, chunk, 0, Vec::new());
    }
    if !has_begun && world.destination.has_too_many(&id.0) {
        return settled(world, process, id, chunk, 1, Vec::new());
    }
    let (under_way, is_wanted) = (world.server.under_way(&id.0), world.is_wanted(&id.0, process));
    if !world.destination.delete_one(&id.0, under_way, is_wanted) {
        return settled(world, process, id, chunk, 0, Vec::new());
    }
    if let Some(session) = session_of(world, process, &id) {
        session.moved_at = now;
        session.held.entry(chunk).and_modify(|held| held.deleted += 1);
    }
    // A directory with a million entries, say.
    let most = if world.random.once_in(4) { 10_000 } else { 400 };
    let takes = world.random.ms(10, most);
    later(world, process, takes, Task::Copied(id, number, chunk));
}

fn fault(
    transfer: &str,
    source: &str,
    sink: &str,
    is_source: bool,
    kind: MoverFaultKind,
    reason: &str,
) -> MoverFault {
    let (mover, other) = if is_source { (source, sink) } else { (sink, source) };
    let (transfer, mover) = (transfer.to_owned(), mover.to_owned());
    MoverFault { transfer, mover, other: other.to_owned(), kind, reason: reason.to_owned() }
}

/// The session is over: what it has not settled is given back, and the manager is told.
fn broken(
    world: &mut World,
    process: Process,
    id: MoverPairId,
    is_source: bool,
    kind: MoverFaultKind,
    reason: &str,
) {
    let source = world.movers[process.index].id.clone();
    let Some(session) = session_of(world, process, &id) else { return };
    let fault = fault(&id.0, &source, &session.pair.sink, is_source, kind, reason);
    world.tell(|| format!("{source}: {fault:?}"));
    if kind == MoverFaultKind::Refused {
        let (transfer, mover) = (id.0.clone(), fault.mover.clone());
        ask(world, process, Request::NoteRefuses { transfer, is_source, mover }, Task::Nothing);
    }
    give_back(world, process, &id, AGAIN_AFTER);
    let request = Request::Append { transfer: id.0.clone(), entry: Entry::Broken(fault) };
    ask(world, process, request, Task::Nothing);
    again(world, process, id);
}

fn give_back(world: &mut World, process: Process, id: &MoverPairId, delay: Duration) {
    let now = world.now;
    let Some(session) = session_of(world, process, id) else { return };
    session.is_open = false;
    let unsettled: Vec<u64> = session
        .held
        .iter()
        .filter(|(_, held)| matches!(held.case.next(), QueuedChunkStep::Carry | QueuedChunkStep::ReadTried))
        .map(|(chunk, _)| *chunk)
        .collect();
    let mut indexes = Vec::new();
    for chunk in unsettled {
        let is_own = !session.deliveries.may_be_redelivered(chunk, now);
        session.deliveries.remove(chunk);
        indexes.extend(session.held.remove(&chunk).filter(|_| is_own).map(|held| held.delivery.index));
    }
    for index in indexes {
        ask(world, process, Request::GiveBack { transfer: id.0.clone(), index, delay }, Task::Nothing);
    }
}

fn case_answered(world: &mut World, process: Process, id: MoverPairId, chunk: u64, reply: Option<Reply>) {
    let now = world.now;
    let Some(held) = held_of(world, process, &id, chunk) else { return };
    if reply.is_none() {
        // Tried again for a while.
        let since = *held.repeated_since.get_or_insert(now);
        if now.saturating_sub(since) < REPEAT_FOR {
            return later(world, process, REPEAT_AFTER, Task::CaseAgain(id, chunk));
        }
    }
    held.repeated_since = None;
    let answered = match reply {
        Some(Reply::Tried(tried)) => ChunkStepResult::Tried(tried),
        Some(_) => ChunkStepResult::Done,
        None => ChunkStepResult::Failed,
    };
    answer(world, process, &id, chunk, answered);
}

fn answer(world: &mut World, process: Process, id: &MoverPairId, chunk: u64, answer: ChunkStepResult) {
    let able = able(world);
    if let Some(held) = held_of(world, process, id, chunk) {
        held.case.apply_step_result(answer, &able);
        drive(world, process, id, chunk);
    }
}

fn able(world: &World) -> AvailableMovers {
    let at = |site: usize| {
        let movers = world.server.lately().filter(|mover| mover.site == site && !mover.is_ill);
        movers.map(|mover| mover.id.clone()).collect()
    };
    AvailableMovers { sources: at(0), sinks: at(1) }
}

/// Keeps what is held from being delivered to others, and looks whether the storage hangs.
fn keep(world: &mut World, process: Process, id: MoverPairId, number: u64) {
    let now = world.now;
    let own_hangs = world.movers[process.index].hung_until > now;
    let Some(session) = current(world, process, &id, number) else { return };
    if session.deliveries.is_lost(now) {
        give_back(world, process, &id, AGAIN_AFTER);
        return again(world, process, id);
    }
    let since = session.held.values().map(|held| held.began_at).min();
    let stands = since.is_some_and(|since| now.saturating_sub(since.max(session.moved_at)) > HANGS_AFTER);
    let due = session.deliveries.extend(now);
    let due: Vec<(u64, usize)> =
        due.into_iter().filter_map(|chunk| Some((chunk, session.held.get(&chunk)?.delivery.index))).collect();
    let sink = session.pair.sink.clone();
    for (chunk, index) in due {
        let request = Request::Extend { transfer: id.0.clone(), index };
        ask(world, process, request, Task::Extended(id.clone(), chunk, now));
    }
    let sink_hangs = world.movers.iter().any(|mover| mover.id == sink && mover.hung_until > now);
    if stands && (own_hangs || sink_hangs) {
        world.movers[process.index].knows_that_it_hangs |= own_hangs;
        return broken(world, process, id, own_hangs, MoverFaultKind::Hung, "its storage does not answer");
    }
    later(world, process, KEEP_EVERY, Task::Keep(id, number));
}

/// What is not settled is given back at once where nobody wants it moved any more, or the other mover is
/// gone.
fn told_to_end(world: &mut World, process: Process, id: MoverPairId, reply: Option<Reply>) {
    let Some(session) = session_of(world, process, &id) else { return };
    let sink = session.pair.sink.clone();
    let (is_open, number, is_closing) = (session.is_open, session.number, session.is_closing);
    let is_over = match reply {
        Some(Reply::Record(Some(record))) => record.state == State::Paused || record.state.is_over(),
        Some(_) => true,
        None => false,
    };
    let is_gone = !world.server.movers.contains_key(&sink);
    if !is_open {
        return;
    }
    if (is_over || is_gone) && !is_closing {
        give_back(world, process, &id, Duration::ZERO);
        return later(world, process, Duration::ZERO, Task::Begin(id));
    }
    fetch(world, process, &id, number);
}

fn scan_woken(world: &mut World, process: Process, task: Task) {
    match task {
        Task::Scan(transfer) => {
            let scans = &mut world.movers[process.index].scans;
            if scans.get(&transfer).is_some_and(|goes_on| !goes_on) {
                scans.remove(&transfer);
            } else if scans.contains_key(&transfer) {
                let request = Request::Pull { transfer: transfer.clone(), scan: true };
                ask(world, process, request, Task::ScanPulled(transfer));
            }
        }
        Task::Scanned(transfer, delivery, tried) => scanned(world, process, transfer, delivery, tried),
        Task::ScanSettled(transfer, delivery) => {
            let request = Request::Acknowledge { transfer: transfer.clone(), index: delivery.index };
            ask(world, process, request, Task::ScanOver(transfer));
        }
        Task::ScanExtend(transfer, delivery) => {
            let request = Request::Extend { transfer, index: delivery.index };
            ask(world, process, request, Task::Nothing);
        }
        _ => {}
    }
}

fn scan_answered(world: &mut World, process: Process, task: Task, reply: Option<Reply>) {
    match task {
        Task::ScanPulled(transfer) => match reply {
            Some(Reply::Delivery(Some(delivery))) => {
                let request = Request::ReadTried { transfer: transfer.clone(), item: "scan".into() };
                ask(world, process, request, Task::ScanTried(transfer, delivery));
            }
            _ => later(world, process, REPEAT_AFTER, Task::Scan(transfer)),
        },
        Task::ScanTried(transfer, delivery) => {
            let me = world.movers[process.index].id.clone();
            let Some(Reply::Tried(tried)) = reply else {
                return later(world, process, REPEAT_AFTER, Task::Scan(transfer));
            };
            if may_leave_to_others(delivery.delivered) && tried.should_leave_to_others(&me, "", &able(world))
            {
                return leave_scan(world, process, transfer, &delivery);
            }
            let mut takes = world.random.ms(20, 500);
            if world.random.once_in(20) {
                takes = world.random.ms(5_000, 40_000);
            }
            for tenth in 1..=takes.as_secs() / 10 {
                let task = Task::ScanExtend(transfer.clone(), delivery.clone());
                later(world, process, Duration::from_secs(10 * tenth), task);
            }
            later(world, process, takes, Task::Scanned(transfer, delivery, tried));
        }
        Task::ScanPublished(transfer, delivery, attempt) => match reply {
            Some(_) => {
                let tree = &world.destination.trees[&transfer];
                let (chunks, files) = (tree.cut(attempt).len() as u64, tree.files + tree.large.len() as u64);
                let large = tree.large.len() as u64;
                let entry = Entry::ScanDone { attempt, chunks, files, large };
                let request = Request::Append { transfer: transfer.clone(), entry };
                ask(world, process, request, Task::ScanLogged(transfer, delivery));
            }
            None => {
                let (index, delay) = (delivery.index, AGAIN_AFTER);
                ask(
                    world,
                    process,
                    Request::GiveBack { transfer: transfer.clone(), index, delay },
                    Task::Nothing,
                );
                later(world, process, REPEAT_AFTER, Task::Scan(transfer));
            }
        },
        Task::ScanLogged(transfer, delivery) => {
            if reply.is_some() {
                let after = scan_ack_delay(delivery.delivered);
                return later(world, process, after, Task::ScanSettled(transfer, delivery));
            }
            later(world, process, REPEAT_AFTER, Task::Scan(transfer));
        }
        Task::ScanOver(transfer) => later(world, process, REPEAT_AFTER, Task::Scan(transfer)),
        _ => {}
    }
}

fn leave_scan(world: &mut World, process: Process, transfer: String, delivery: &Delivery) {
    let (index, delay) = (delivery.index, redelivery_delay(delivery.delivered));
    ask(world, process, Request::GiveBack { transfer: transfer.clone(), index, delay }, Task::Nothing);
    later(world, process, REPEAT_AFTER, Task::Scan(transfer));
}

fn scanned(
    world: &mut World,
    process: Process,
    transfer: String,
    delivery: Delivery,
    mut tried: FailedMovers,
) {
    let now = world.now;
    let mover = &world.movers[process.index];
    let (me, lacks, hangs) = (mover.id.clone(), !mover.sees_source(), mover.hung_until > now);
    tried.add(true, &me);
    let (kind, reason) = match (lacks, hangs) {
        (true, _) => (MoverFaultKind::Refused, "no such directory"),
        (false, true) => (MoverFaultKind::Hung, "its scan has stood still"),
        (false, false) => {
            let attempt = delivery.item.attempt - 1 + delivery.delivered as u32;
            let items = world.destination.trees[&transfer].cut(attempt);
            let request = Request::Publish { transfer: transfer.clone(), items };
            return ask(world, process, request, Task::ScanPublished(transfer, delivery, attempt));
        }
    };
    let others_may = tried.has_untried(true, &able(world).sources);
    if may_leave_to_others(delivery.delivered) && (others_may || kind == MoverFaultKind::Refused) {
        let fault = fault(&transfer, &me, "", true, kind, reason);
        let request = Request::Append { transfer: transfer.clone(), entry: Entry::Broken(fault) };
        ask(world, process, request, Task::Nothing);
        let request = Request::NoteTried { transfer: transfer.clone(), item: "scan".into(), tried };
        ask(world, process, request, Task::Nothing);
        return leave_scan(world, process, transfer, &delivery);
    }
    if hangs && !lacks {
        // It goes on when the storage answers.
        let task = Task::Scanned(transfer.clone(), delivery.clone(), tried);
        later(world, process, Duration::from_secs(5), task);
        let task = Task::ScanExtend(transfer, delivery);
        return later(world, process, Duration::ZERO, task);
    }
    let entry = Entry::ScanFailed { reason: reason.to_owned() };
    let request = Request::Append { transfer: transfer.clone(), entry };
    ask(world, process, request, Task::ScanLogged(transfer, delivery));
}
