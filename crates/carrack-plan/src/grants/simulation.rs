//! Transfers on shared disks in virtual time: the real server, clients, target queues and policy over a
//! modelled network.
//!
//! A disk serves one request after the other, and each takes longer the more clients have requests at it: the
//! dilation of competing streams, whose seeks lie between the requests of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use carrack_model::{SchedulingPolicyChoice, TargetId};

use super::{
    GrantClient, GrantClientClass, GrantClientReport, GrantClientSettings, GrantGate, GrantGatedPolicy,
    GrantReply, GrantServer, GrantServerPresence, GrantSettings, TargetComputeLoad,
};
use crate::policy::{IoQueueArrivalPattern, SchedulingPolicy, StorageRequestTiming, create_policy};
use crate::target_queues::TargetQueues;

pub(super) const MIB: u64 = 1 << 20;

/// 100 MiB/s.
const REQUEST: Duration = Duration::from_millis(10);

/// Interval at which the carrier of messages looks, unless an event wakes it.
const TICK: Duration = Duration::from_millis(5);

/// One way of a message.
const LATENCY: Duration = Duration::from_micros(300);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn name_of(target: usize) -> String {
    format!("OST{target:04}")
}

#[derive(Clone)]
pub(super) struct GrantExperiment {
    pub(super) clients: usize,
    pub(super) threads: usize,
    pub(super) targets: usize,
    /// Time of one request on a disk with one client.
    pub(super) request: Duration,
    /// Part by which each further client lengthens it.
    pub(super) dilation: f64,
    pub(super) is_managed: bool,
    pub(super) settings: GrantSettings,
    /// Classes, and the class of each client; the rest has none.
    pub(super) classes: BTreeMap<String, GrantClientClass>,
    pub(super) class_of: Vec<&'static str>,
    /// Objects of each client on each target; `None` for no end.
    pub(super) objects_each: Option<u64>,
    /// Bytes and deadline of the first client.
    pub(super) deadline: Option<(u64, Duration)>,
    /// Load of every target by computation.
    pub(super) load: f64,
    /// Times at which the server ends, and the next one begins.
    pub(super) server_down: Vec<(Duration, Duration)>,
    /// Times at which clients die.
    pub(super) deaths: Vec<(usize, Duration)>,
    /// A target that stands still, with the begin and the length.
    pub(super) stall: Option<(usize, Duration, Duration)>,
    pub(super) run_for: Duration,
}

impl GrantExperiment {
    pub(super) fn with_clients(clients: usize, is_managed: bool) -> GrantExperiment {
        GrantExperiment {
            clients,
            threads: 8,
            targets: 16,
            request: REQUEST,
            dilation: 0.2,
            is_managed,
            settings: GrantSettings::default(),
            classes: BTreeMap::new(),
            class_of: Vec::new(),
            objects_each: None,
            deadline: None,
            load: 0.0,
            server_down: Vec::new(),
            deaths: Vec::new(),
            stall: None,
            run_for: Duration::from_secs(60),
        }
    }

    pub(super) fn run(self) -> GrantSimulationOutcome {
        GrantSimulation::new(self).run()
    }
}

pub(super) struct GrantSimulationOutcome {
    /// Bytes moved by each client.
    pub(super) moved: Vec<u64>,
    /// Time at which each client had no work left.
    pub(super) done_at: Vec<Option<Duration>>,
    /// Bytes of all clients in steps of 100 ms.
    pub(super) by_step: Vec<u64>,
    /// Notices to each client's user.
    pub(super) notices: Vec<Vec<GrantServerPresence>>,
    /// Batches sent.
    pub(super) batches: u64,
}

impl GrantSimulationOutcome {
    pub(super) fn total(&self) -> u64 {
        self.moved.iter().sum()
    }

    /// Jain's index of the clients' shares.
    pub(super) fn fairness(&self) -> f64 {
        let sum: f64 = self.moved.iter().map(|&bytes| bytes as f64).sum();
        let squares: f64 = self.moved.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
        sum * sum / (squares * self.moved.len() as f64)
    }
}

#[derive(Debug)]
enum SimulationEvent {
    Tick(usize),
    Served(usize, usize, Duration),
    ToServer(usize, GrantClientReport),
    ToClient(usize, GrantReply),
    ServerEnds,
    ServerBegins,
    Dies(usize),
    Stalls(usize, Duration),
}

struct SimulatedClient {
    queues: TargetQueues<()>,
    grants: Option<SimulatedClientGrants>,
    free_threads: usize,
    in_service: Vec<u32>,
    is_alive: bool,
}

/// A client's grants, which its policy looks at too.
#[derive(Clone)]
struct SimulatedClientGrants(Arc<Mutex<GrantClient>>);

impl SimulatedClientGrants {
    fn client(&self) -> MutexGuard<'_, GrantClient> {
        self.0.lock().unwrap()
    }
}

impl GrantGate for SimulatedClientGrants {
    fn may_start(&self, target: TargetId, in_service: u32, now: Duration) -> bool {
        self.client().may_start(target, in_service, now)
    }

    fn opens_at(&self, target: TargetId, now: Duration) -> Option<Duration> {
        self.client().opens_at(target, now)
    }

    fn record_start(&mut self, target: TargetId, bytes: u64, now: Duration) {
        self.client().record_start(target, bytes, now);
    }

    fn record_finish(&mut self, target: TargetId, service: StorageRequestTiming, now: Duration) {
        self.client().record_finish(target, service, now);
    }
}

fn make_policy(experiment: &GrantExperiment) -> Box<dyn SchedulingPolicy> {
    create_policy(
        &SchedulingPolicyChoice::Adaptive { nice: false },
        experiment.threads,
        IoQueueArrivalPattern::Queued,
    )
}

struct GrantSimulation {
    experiment: GrantExperiment,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64)>>,
    bodies: BTreeMap<u64, SimulationEvent>,
    number: u64,
    server: Option<GrantServer>,
    clients: Vec<SimulatedClient>,
    free_at: Vec<Duration>,
    outcome: GrantSimulationOutcome,
}

impl GrantSimulation {
    fn new(experiment: GrantExperiment) -> GrantSimulation {
        let count = experiment.clients;
        let mut world = GrantSimulation {
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            number: 0,
            server: None,
            clients: (0..count).map(|index| SimulatedClient::new(&experiment, index)).collect(),
            free_at: vec![Duration::ZERO; experiment.targets],
            outcome: GrantSimulationOutcome {
                moved: vec![0; count],
                done_at: vec![None; count],
                by_step: vec![0; experiment.run_for.as_millis() as usize / 100 + 1],
                notices: vec![Vec::new(); count],
                batches: 0,
            },
            experiment,
        };
        world.begin_server();
        for index in 0..count {
            // Not all at the same moment.
            world.schedule(ms(7 * index as u64 % 50), SimulationEvent::Tick(index));
        }
        for (ends, begins) in world.experiment.server_down.clone() {
            world.schedule(ends, SimulationEvent::ServerEnds);
            world.schedule(begins, SimulationEvent::ServerBegins);
        }
        for (client, at) in world.experiment.deaths.clone() {
            world.schedule(at, SimulationEvent::Dies(client));
        }
        if let Some((target, at, span)) = world.experiment.stall {
            world.schedule(at, SimulationEvent::Stalls(target, span));
        }
        world
    }

    fn schedule(&mut self, time: Duration, event: SimulationEvent) {
        self.number += 1;
        self.events.push(Reverse((time, self.number)));
        self.bodies.insert(self.number, event);
    }

    fn begin_server(&mut self) {
        let GrantExperiment { settings, classes, is_managed, .. } = &self.experiment;
        let epoch = 1 + self.now.as_nanos() as u64;
        self.server = None;
        if *is_managed {
            let mut server = GrantServer::new(settings.clone(), classes.clone(), epoch, self.now);
            let load = TargetComputeLoad { present: self.experiment.load, expected: 0.0 };
            (0..self.free_at.len()).for_each(|target| server.set_load(&name_of(target), load, self.now));
            self.server = Some(server);
        }
    }

    fn run(mut self) -> GrantSimulationOutcome {
        while let Some(Reverse((time, number))) = self.events.pop() {
            if time > self.experiment.run_for {
                break;
            }
            self.now = time;
            if let Some(event) = self.bodies.remove(&number) {
                self.handle_event(event);
            }
        }
        self.outcome
    }

    fn handle_event(&mut self, event: SimulationEvent) {
        let now = self.now;
        match event {
            SimulationEvent::Tick(index) if self.clients[index].is_alive => {
                self.send_batch(index);
                self.start_requests(index);
                self.schedule(now + TICK, SimulationEvent::Tick(index));
            }
            SimulationEvent::Served(index, target, began) => self.finish_request(index, target, began),
            SimulationEvent::ToServer(index, batch) => {
                if let Some(server) = &mut self.server {
                    let answer = server.answer(now, &batch);
                    self.schedule(now + LATENCY, SimulationEvent::ToClient(index, answer));
                }
            }
            SimulationEvent::ToClient(index, answer) if self.clients[index].is_alive => {
                if let Some(grants) = &self.clients[index].grants {
                    grants.client().apply_reply(now, &answer);
                }
                self.start_requests(index);
            }
            SimulationEvent::ServerEnds => self.server = None,
            SimulationEvent::ServerBegins => self.begin_server(),
            SimulationEvent::Dies(index) => self.clients[index].is_alive = false,
            // Requests in service are not delayed, all later ones are.
            SimulationEvent::Stalls(target, span) => {
                self.free_at[target] = self.free_at[target].max(now) + span
            }
            SimulationEvent::Tick(_) | SimulationEvent::ToClient(..) => {}
        }
    }

    fn send_batch(&mut self, index: usize) {
        let now = self.now;
        let client = &self.clients[index];
        let Some(mut grants) = client.grants.as_ref().map(SimulatedClientGrants::client) else { return };
        if let Some((bytes, at)) = self.experiment.deadline.filter(|_| index == 0) {
            let moved = self.outcome.moved[0];
            grants.set_deadline(at, moved, bytes.saturating_sub(moved));
        }
        let batch = grants.take_due_batch(now, client.queues.states());
        self.outcome.notices[index].extend(grants.take_notice());
        drop(grants);
        if let Some(batch) = batch {
            self.outcome.batches += 1;
            self.schedule(now + LATENCY, SimulationEvent::ToServer(index, batch));
        }
    }

    /// Idle threads take the permitted objects.
    fn start_requests(&mut self, index: usize) {
        let now = self.now;
        loop {
            let Some(target) = self.clients[index].take(now) else { return };
            let streams = self.clients.iter().filter(|client| client.in_service[target] > 0).count();
            let slower = 1.0 + self.experiment.dilation * (streams - 1) as f64;
            let begins = self.free_at[target].max(now);
            self.free_at[target] = begins + self.experiment.request.mul_f64(slower);
            let ends = self.free_at[target];
            self.schedule(ends, SimulationEvent::Served(index, target, now));
        }
    }

    fn finish_request(&mut self, index: usize, target: usize, began: Duration) {
        let now = self.now;
        let client = &mut self.clients[index];
        client.in_service[target] -= 1;
        if !client.is_alive {
            return;
        }
        client.free_threads += 1;
        let service = StorageRequestTiming { time: now - began, bytes: MIB };
        let id = TargetId(target as u64);
        client.queues.finish_service(id, Some(service), now);
        if self.experiment.objects_each.is_none() {
            client.queues.push(id, MIB, ());
        }
        self.outcome.moved[index] += MIB;
        self.outcome.by_step[now.as_millis() as usize / 100] += MIB;
        if client.queues.is_empty() && client.queues.in_service() == 0 {
            self.outcome.done_at[index] = Some(now);
        }
        self.start_requests(index);
    }
}

impl SimulatedClient {
    fn new(experiment: &GrantExperiment, index: usize) -> SimulatedClient {
        let settings = GrantClientSettings {
            threads: experiment.threads,
            period: experiment.settings.period,
            ..Default::default()
        };
        let class = experiment.class_of.get(index).copied().unwrap_or("");
        let mut grants = GrantClient::new(&format!("client-{index}"), class, settings);
        for target in 0..experiment.targets {
            // Each client has met the targets in another order.
            let id = TargetId(((target + index) % experiment.targets) as u64);
            grants.add_target(id, &name_of(id.0 as usize));
        }
        let grants = experiment.is_managed.then(|| SimulatedClientGrants(Arc::new(Mutex::new(grants))));
        let mut queues = TargetQueues::new(match &grants {
            Some(grants) => Box::new(GrantGatedPolicy::new(make_policy(experiment), grants.clone())),
            None => make_policy(experiment),
        });
        for target in 0..experiment.targets {
            let id = TargetId(((target + index) % experiment.targets) as u64);
            queues.set_depth(id, 8);
            let count = experiment.objects_each.unwrap_or(32);
            (0..count).for_each(|_| queues.push(id, MIB, ()));
        }
        SimulatedClient {
            queues,
            grants,
            free_threads: experiment.threads,
            in_service: vec![0; experiment.targets],
            is_alive: true,
        }
    }

    fn take(&mut self, now: Duration) -> Option<usize> {
        if self.free_threads == 0 || !self.is_alive {
            return None;
        }
        let (target, ()) = self.queues.take(now)?;
        self.queues.charge(target, MIB, now);
        self.free_threads -= 1;
        self.in_service[target.0 as usize] += 1;
        Some(target.0 as usize)
    }
}
