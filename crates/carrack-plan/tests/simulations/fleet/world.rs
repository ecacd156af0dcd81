//! Virtual time, the network, and the processes of a fleet.
//!
//! A request takes its time to the server and back; either way may be lost. What processes follow comes to
//! them late, and of each watch in order. A process that is stopped does nothing until it goes on; one that
//! is killed is another one when it starts again.

use std::collections::BTreeMap;
use std::time::Duration;

use carrack_plan::fleet::TransferResult;

use super::manager::{self, Manager};
use super::mover::{self, Mover};
use super::random::Random;
use super::server::{Change, Record, Reply, Request, Server, State, WATCHES, Watch};
use super::sites::Destination;

/// A request that is not answered has failed after so long.
const UNANSWERED_AFTER: Duration = Duration::from_secs(3);

/// Nothing goes any more of what was cancelled or paused so long ago; where the mover hears nothing, when it
/// has lost what it holds.
const UNWANTED_AFTER: Duration = Duration::from_secs(1);
const UNHEARD_AFTER: Duration = Duration::from_secs(25);

/// Whoever decides for a transfer knows by then that it is over.
const KNOWN_AFTER: Duration = Duration::from_secs(5);

/// A process, and which of its lives it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub kind: Kind,
    pub index: usize,
    pub life: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Manager,
    Mover,
}

/// What a process waits for, or does later.
#[derive(Clone, Debug)]
pub enum Task {
    Manager(manager::Task),
    Mover(mover::Task),
}

#[derive(Debug)]
pub enum Event {
    Request {
        from: Process,
        request: Request,
        task: Task,
        is_answered: bool,
    },
    Reply {
        to: Process,
        reply: Option<Reply>,
        task: Task,
    },
    Told {
        to: Process,
        change: Change,
    },
    Wake {
        process: Process,
        task: Task,
    },
    Start {
        kind: Kind,
        index: usize,
    },
    /// A process that was stopped goes on, unless it was stopped for longer since.
    GoOn {
        kind: Kind,
        index: usize,
    },
    Submit(Record),
    Command {
        transfer: String,
        state: State,
    },
    Fault(Fault),
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    Kill {
        kind: Kind,
        index: usize,
        down: Duration,
    },
    /// As SIGSTOP does.
    Stop {
        kind: Kind,
        index: usize,
        time: Duration,
    },
    /// It gets nothing to NATS and nothing from there.
    CutOff {
        kind: Kind,
        index: usize,
        time: Duration,
    },
    /// What it follows comes late: all of it, or of one watch.
    StaleWatch {
        kind: Kind,
        index: usize,
        of: Option<Watch>,
        lag: Duration,
        time: Duration,
    },
    /// Requests and answers get lost, and are slow.
    BadNetwork {
        time: Duration,
    },
    /// Nothing gets from movers to movers.
    DataCut {
        time: Duration,
    },
    /// Reads, or writes, of this mover do not return.
    Hang {
        mover: usize,
        time: Duration,
    },
    /// The destination has no room.
    Full {
        time: Duration,
    },
    /// The wall clock of a manager is another one.
    ClockJump {
        manager: usize,
        by_ms: i64,
    },
}

/// How a process is, apart from what it knows.
#[derive(Debug, Default)]
pub struct Body {
    pub life: u32,
    pub is_alive: bool,
    pub stopped_until: Duration,
    pub cut_off_until: Duration,
    stale_until: Duration,
    stale: Option<Watch>,
    lag: Duration,
    /// When each watch has told the last change, or will.
    told_at: [Duration; WATCHES],
    /// What has come while it was stopped.
    waiting: Vec<Event>,
}

impl Body {
    /// When the last change of this watch was told, or will be.
    pub fn told_at(&mut self, watch: Watch) -> &mut Duration {
        &mut self.told_at[watch as usize]
    }

    /// How late a change comes, where nothing is wrong after `lag`.
    fn lag(&self, now: Duration, watch: Watch, lag: Duration) -> Duration {
        let is_stale = self.stale_until > now && self.stale.is_none_or(|stale| stale == watch);
        if is_stale { self.lag } else { lag }
    }
}

pub struct World {
    pub now: Duration,
    pub random: Random,
    pub server: Server,
    pub destination: Destination,
    /// Since when users want nothing of them done.
    unwanted: BTreeMap<String, Duration>,
    pub managers: Vec<Manager>,
    pub movers: Vec<Mover>,
    pub bad_network_until: Duration,
    pub data_cut_until: Duration,
    /// What happened, for people.
    pub story: Vec<String>,
    pub tells_story: bool,
    pub events_seen: u64,
    events: BTreeMap<(Duration, u64), Event>,
    number: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Duration::ZERO,
            random: Random::new(seed),
            server: Server::default(),
            destination: Destination::default(),
            unwanted: BTreeMap::new(),
            managers: Vec::new(),
            movers: Vec::new(),
            bad_network_until: Duration::ZERO,
            data_cut_until: Duration::ZERO,
            story: Vec::new(),
            tells_story: false,
            events_seen: 0,
            events: BTreeMap::new(),
            number: 0,
        }
    }

    pub fn tell(&mut self, words: impl FnOnce() -> String) {
        if self.tells_story {
            self.story.push(format!("{:9.3} {}", self.now.as_secs_f64(), words()));
        }
    }

    pub fn at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.events.insert((at.max(self.now), self.number), event);
    }

    pub fn wake(&mut self, process: Process, at: Duration, task: Task) {
        self.at(at, Event::Wake { process, task });
    }

    pub fn body(&mut self, kind: Kind, index: usize) -> &mut Body {
        match kind {
            Kind::Manager => &mut self.managers[index].body,
            Kind::Mover => &mut self.movers[index].body,
        }
    }

    /// A manager has decided how a transfer ends: not as failed while a mover at each end is there and well.
    pub fn note_failure(&mut self, transfer: &str, ending: &TransferResult) {
        let TransferResult::Failed(reason) = ending else { return };
        let is_served = |site: usize| {
            let well = |mover: &&Mover| mover.site == site && mover.is_well();
            self.movers.iter().filter(well).any(|mover| self.server.movers.contains_key(&mover.id))
        };
        let was_full = self.destination.full_until > Duration::ZERO && reason.contains("no space");
        if is_served(0) && is_served(1) && !was_full {
            self.destination.wrongs.push(format!("{transfer} fails, and need not: {reason}"));
        }
    }

    /// Whether the user of a transfer wants it carried, or did a moment ago, as far as a process can know.
    pub fn is_wanted(&mut self, transfer: &str, process: Process) -> bool {
        let deaf_until = self.body(process.kind, process.index).cut_off_until.max(self.bad_network_until);
        let is_deaf = self.now < deaf_until + UNANSWERED_AFTER;
        let after = if is_deaf { UNHEARD_AFTER } else { UNWANTED_AFTER };
        self.unwanted.get(transfer).is_none_or(|since| self.now.saturating_sub(*since) < after)
    }

    /// For a lease: nobody had it before.
    pub fn new_token(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A manager changes only what it has the lease of, and gives no pairs to what is over.
    fn watch_owner(&mut self, from: Process, request: &Request) {
        let Some(transfer) = request.is_of_owner().filter(|_| from.kind == Kind::Manager) else { return };
        let server = &self.server;
        let others = server.leases.get(transfer).filter(|lease| lease.manager != from.index);
        let is_over = |since: &Duration| self.now.saturating_sub(*since) > KNOWN_AFTER;
        let wrong = if let Some(lease) = others {
            format!("{from:?} has no lease of {transfer}, which is of manager {}: {request:?}", lease.manager)
        } else if matches!(request, Request::PutPair(_))
            && server.over_since.get(transfer).is_some_and(is_over)
        {
            format!("{from:?} gives {transfer}, which is over, a pair")
        } else {
            return;
        };
        self.destination.wrongs.push(wrong);
    }

    /// Asks the server something; the answer comes as `task`.
    pub fn ask(&mut self, from: Process, request: Request, task: Task) {
        self.watch_owner(from, &request);
        let is_bad = self.now < self.bad_network_until;
        let now = self.now;
        let is_cut_off = self.body(from.kind, from.index).cut_off_until > now;
        let (is_lost, is_answered) = match is_bad && self.random.once_in(12) {
            true => (self.random.once_in(2), false),
            false => (is_cut_off, true),
        };
        let most = if is_bad { 2_500 } else { 4 };
        let takes = self.random.ms(1, most);
        if is_lost {
            let at = self.now + UNANSWERED_AFTER;
            return self.at(at, Event::Reply { to: from, reply: None, task });
        }
        self.at(self.now + takes, Event::Request { from, request, task, is_answered });
    }

    /// Everything at the end, for people.
    pub fn shown(&self) -> String {
        let server = &self.server;
        let open: Vec<_> = server.records.values().filter(|record| record.is_open()).collect();
        let work: Vec<_> = open.iter().filter_map(|record| server.work.get(&record.id)).collect();
        let owned: Vec<String> = self.managers.iter().map(Manager::shown).collect();
        format!(
            "{open:#?}\n{work:#?}\n{:#?}\n{:#?}\n{:#?}\n{}",
            server.pairs,
            server.leases,
            server.movers,
            owned.join("\n")
        )
    }

    /// Does what comes next; false if nothing does until then.
    pub fn step(&mut self, until: Duration) -> bool {
        let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= until) else {
            self.now = until;
            return false;
        };
        let ((at, _), event) = entry.remove_entry();
        self.now = at;
        self.events_seen += 1;
        self.server.expire(at);
        self.spread();
        match event {
            Event::Request { from, request, task, is_answered } => {
                let asked = self.tells_story.then(|| request.clone());
                let reply = self.server.carry_out(at, request);
                if let Some(asked) = asked.filter(Request::is_worth_telling) {
                    self.tell(|| format!("{from:?}: {asked:?}: {reply:?}"));
                }
                self.spread();
                let is_cut_off = self.body(from.kind, from.index).cut_off_until > at;
                let (reply, takes) = match is_answered && !is_cut_off {
                    true => (Some(reply), self.random.ms(1, 4)),
                    false => (None, UNANSWERED_AFTER),
                };
                self.at(at + takes, Event::Reply { to: from, reply, task });
            }
            event @ (Event::Reply { .. } | Event::Told { .. } | Event::Wake { .. }) => self.comes(event),
            Event::GoOn { kind, index } => {
                if self.body(kind, index).stopped_until <= at {
                    for event in std::mem::take(&mut self.body(kind, index).waiting) {
                        self.at(at, event);
                    }
                }
            }
            Event::Start { kind, index } => self.start(kind, index),
            Event::Submit(record) => {
                self.tell(|| format!("{} is submitted", record.id));
                self.server.submit(record);
            }
            Event::Command { transfer, state } => {
                self.tell(|| format!("{transfer} is to be {state:?}"));
                match state {
                    State::Running => drop(self.unwanted.remove(&transfer)),
                    _ => drop(self.unwanted.entry(transfer.clone()).or_insert(at)),
                }
                self.server.command(&transfer, state);
            }
            Event::Fault(fault) => self.strike(fault),
        }
        self.spread();
        true
    }

    /// Something comes to a process, which acts on it, at once or when it goes on.
    fn comes(&mut self, event: Event) {
        let now = self.now;
        let process = match &event {
            Event::Reply { to, .. } | Event::Told { to, .. } => *to,
            Event::Wake { process, .. } => *process,
            _ => return,
        };
        let body = self.body(process.kind, process.index);
        if !body.is_alive || body.life != process.life {
            return;
        }
        if body.stopped_until > now || !body.waiting.is_empty() {
            return body.waiting.push(event);
        }
        match event {
            Event::Reply { reply, task: Task::Manager(task), .. } => {
                manager::answered(self, process, task, reply);
            }
            Event::Reply { reply, task: Task::Mover(task), .. } => {
                mover::answered(self, process, task, reply)
            }
            Event::Wake { task: Task::Manager(task), .. } => manager::woken(self, process, task),
            Event::Wake { task: Task::Mover(task), .. } => mover::woken(self, process, task),
            Event::Told { change, .. } if process.kind == Kind::Manager => {
                manager::told(self, process, change);
            }
            Event::Told { change, .. } => mover::told(self, process, change),
            _ => {}
        }
    }

    /// Everybody who follows something is told of it, late.
    fn spread(&mut self) {
        for change in std::mem::take(&mut self.server.changes) {
            for index in 0..self.managers.len() {
                self.tell_later(Kind::Manager, index, &change);
            }
            let source = match &change {
                Change::PairPut(pair) => Some(pair.source.clone()),
                Change::PairGone(key) => Some(key.0.clone()),
                _ => None,
            };
            if let Some(index) = self.movers.iter().position(|mover| Some(&mover.id) == source.as_ref()) {
                self.tell_later(Kind::Mover, index, &change);
            }
        }
    }

    fn tell_later(&mut self, kind: Kind, index: usize, change: &Change) {
        let (now, lag) = (self.now, self.random.ms(1, 10));
        let body = self.body(kind, index);
        if !body.is_alive {
            return;
        }
        let watch = change.watch();
        let lag = body.lag(now, watch, lag);
        let at = (now + lag).max(*body.told_at(watch)).max(body.cut_off_until);
        *body.told_at(watch) = at;
        let to = Process { kind, index, life: body.life };
        self.at(at, Event::Told { to, change: change.clone() });
    }

    /// What a process that begins to follow a log is told of what was there before.
    pub fn tell_past(&mut self, to: Process, change: Change) {
        let now = self.now;
        let body = self.body(to.kind, to.index);
        let at = now.max(*body.told_at(change.watch())) + Duration::from_millis(1);
        *body.told_at(change.watch()) = at;
        self.at(at, Event::Told { to, change });
    }

    fn start(&mut self, kind: Kind, index: usize) {
        let now = self.now;
        let body = self.body(kind, index);
        *body = Body { life: body.life + 1, is_alive: true, told_at: [now; WATCHES], ..Body::default() };
        let process = Process { kind, index, life: body.life };
        match kind {
            Kind::Manager => manager::start(self, process),
            Kind::Mover => mover::start(self, process),
        }
    }

    fn strike(&mut self, fault: Fault) {
        self.tell(|| format!("fault: {fault:?}"));
        let now = self.now;
        match fault {
            Fault::Kill { kind, index, down } => {
                self.body(kind, index).is_alive = false;
                self.at(now + down, Event::Start { kind, index });
            }
            Fault::Stop { kind, index, time } => {
                let body = self.body(kind, index);
                body.stopped_until = body.stopped_until.max(now + time);
                self.at(now + time, Event::GoOn { kind, index });
            }
            Fault::CutOff { kind, index, time } => {
                let body = self.body(kind, index);
                body.cut_off_until = body.cut_off_until.max(now + time);
            }
            Fault::StaleWatch { kind, index, of, lag, time } => {
                let body = self.body(kind, index);
                (body.stale_until, body.stale, body.lag) = (now + time, of, lag);
            }
            Fault::BadNetwork { time } => self.bad_network_until = now + time,
            Fault::DataCut { time } => self.data_cut_until = now + time,
            Fault::Hang { mover, time } => self.movers[mover].hung_until = now + time,
            Fault::Full { time } => self.destination.full_until = now + time,
            Fault::ClockJump { manager, by_ms } => self.managers[manager].clock_ms += by_ms,
        }
    }
}
