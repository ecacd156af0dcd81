//! Tests that no client waits for longer than `GrantWaitBound`, that no target has more users than allowed,
//! and that messages may be lost: one target, any clients.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::simulation::ms;
use super::{
    GrantClientClass, GrantClientReport, GrantReply, GrantRequest, GrantServer, GrantSettings,
    GrantUseReport, GrantWaitBound, TargetComputeLoad, TargetGrant, ViewOfHolder, share_left,
};

const TARGET: &str = "OST0000";

/// Random events of one batch of a client.
#[derive(Clone, Copy, Debug)]
struct TestGrantClientBatch {
    /// Time until the next batch.
    pause_ms: u64,
    /// Number of batches without work.
    rests: u8,
    /// It gives back its grants.
    gives_back: bool,
    /// The batch or the answer is lost.
    is_lost: bool,
}

#[derive(Clone, Debug)]
struct SimulatedGrantClient {
    name: String,
    class: String,
    weight: u32,
    is_guaranteed: bool,
    moves: Vec<TestGrantClientBatch>,
    dies_at: Option<Duration>,
}

struct SimulatedClientState {
    number: u64,
    epoch: u64,
    next_at: Duration,
    step: usize,
    rests: u8,
    grants: Vec<(TargetGrant, Duration)>,
    waits_since: Option<Duration>,
    /// Time since which the server has known of the wish, while the client had no grant.
    heard_at: Option<Duration>,
}

fn moves(is_lossy: bool) -> impl Strategy<Value = Vec<TestGrantClientBatch>> {
    let one = (1u64..200, prop::option::weighted(0.1, 1u8..10), any::<u8>(), any::<u8>());
    let make = move |(pause_ms, rests, back, lost): (u64, Option<u8>, u8, u8)| TestGrantClientBatch {
        pause_ms,
        rests: rests.unwrap_or(0),
        gives_back: back < 20,
        is_lost: is_lossy && lost < 40,
    };
    prop::collection::vec(one.prop_map(make), 1..40)
}

fn peers(is_lossy: bool, dies: bool) -> impl Strategy<Value = Vec<SimulatedGrantClient>> {
    let weight = prop_oneof![Just(1u32), 1u32..10, Just(100)];
    let death = prop::option::weighted(if dies { 0.3 } else { 1e-9 }, 1_000u64..20_000);
    let one = (weight, prop::option::weighted(0.2, Just(())), moves(is_lossy), death);
    prop::collection::vec(one, 2..9).prop_map(|peers| {
        let numbered = peers.into_iter().enumerate();
        let peers = numbered.map(|(index, (weight, guarantee, moves, dies))| SimulatedGrantClient {
            name: format!("client-{index}"),
            class: format!("class-{index}"),
            weight,
            is_guaranteed: guarantee.is_some(),
            moves,
            dies_at: dies.map(ms),
        });
        peers.collect()
    })
}

/// Clients of a server, all at one target.
struct GrantWaitSimulation<'a> {
    settings: &'a GrantSettings,
    peers: &'a [SimulatedGrantClient],
    states: Vec<SimulatedClientState>,
    server: GrantServer,
    /// Time at which it has listened for long enough, and all grants of an earlier server are over.
    sound_from: Duration,
    most_users: usize,
    loads: Vec<f64>,
    longest: Vec<Duration>,
    /// Times of the last use and the last wish of any client.
    had_at: Duration,
    wanted_at: Duration,
}

impl<'a> GrantWaitSimulation<'a> {
    fn new(
        settings: &'a GrantSettings,
        peers: &'a [SimulatedGrantClient],
        loads: Vec<f64>,
    ) -> GrantWaitSimulation<'a> {
        let new = |index: usize| SimulatedClientState {
            number: 0,
            epoch: 0,
            next_at: ms(index as u64 * 13),
            step: 0,
            rests: 0,
            grants: Vec::new(),
            waits_since: None,
            heard_at: None,
        };
        GrantWaitSimulation {
            settings,
            peers,
            states: (0..peers.len()).map(new).collect(),
            server: server(settings, peers, 1, Duration::ZERO),
            sound_from: Duration::ZERO,
            most_users: 0,
            loads,
            longest: vec![Duration::ZERO; peers.len()],
            had_at: Duration::ZERO,
            wanted_at: Duration::ZERO,
        }
    }

    fn run(&mut self, from: Duration, until: Duration) {
        let mut now = from;
        while now < until {
            let is_alive = |index: &usize| self.peers[*index].dies_at.is_none_or(|at| at > now);
            let next =
                (0..self.states.len()).filter(is_alive).min_by_key(|&index| self.states[index].next_at);
            let Some(index) = next else { return };
            now = now.max(self.states[index].next_at);
            if !self.loads.is_empty() {
                let present = self.loads[now.as_secs() as usize % self.loads.len()];
                self.server.set_load(TARGET, TargetComputeLoad { present, expected: 0.0 }, now);
            }
            self.speak(index, now);
        }
    }

    fn speak(&mut self, index: usize, now: Duration) {
        let peer = &self.peers[index];
        let state = &mut self.states[index];
        let chance = peer.moves[state.step % peer.moves.len()];
        state.step += 1;
        state.next_at = now + ms(chance.pause_ms);
        state.grants.retain(|(_, until)| *until > now);
        state.rests = state.rests.saturating_sub(1);
        if state.rests == 0 {
            state.rests = chance.rests;
        }
        let wants = state.rests == 0;
        state.number += 1;
        let held = |(grant, until): &(TargetGrant, Duration)| GrantUseReport {
            id: grant.id,
            target: TARGET.into(),
            starts_in_us: grant.starts_in_us,
            ends_in_us: (*until - now).as_micros() as u64,
            ..GrantUseReport::default()
        };
        let told: Vec<GrantUseReport> = state.grants.iter().map(held).collect();
        let (held, returns) = if chance.gives_back { (Vec::new(), told) } else { (told, Vec::new()) };
        let has_one = !held.is_empty();
        state.waits_since = (wants && !has_one).then(|| state.waits_since.unwrap_or(now));
        let waits_us = state.waits_since.map_or(0, |since| (now - since).as_micros() as u64);
        let asks =
            wants.then(|| GrantRequest { target: TARGET.into(), objects: 9, bytes: 9 << 20, waits_us });
        let batch = GrantClientReport {
            client: peer.name.clone(),
            class: peer.class.clone(),
            number: state.number,
            epoch: state.epoch,
            threads: 1,
            asks: asks.into_iter().collect(),
            held,
            returns,
            ..GrantClientReport::default()
        };
        if chance.is_lost && state.number.is_multiple_of(2) {
            return;
        }
        let answer = self.server.answer(now, &batch);
        if wants {
            self.wanted_at = now;
        }
        self.measure(index, now, wants, &answer);
        self.count_users(now);
        if !chance.is_lost {
            let state = &mut self.states[index];
            state.epoch = answer.epoch;
            let until = |grant: &TargetGrant| now + Duration::from_micros(grant.ends_in_us);
            state.grants = answer.grants.iter().map(|grant| (grant.clone(), until(grant))).collect();
        }
    }

    fn restart(&mut self, now: Duration) {
        self.server = server(self.settings, self.peers, 1 + now.as_nanos() as u64, now);
        self.sound_from = now + self.settings.silence_limit() + self.settings.lease;
    }

    /// Returns the clients that have the target at this moment, by the server's books.
    fn count_users(&mut self, now: Duration) {
        if now >= self.sound_from {
            let targets = self.server.targets(now);
            let running = |holder: &&ViewOfHolder| holder.starts_in_us == 0;
            let users = targets.iter().map(|view| view.holders.iter().filter(running).count()).max();
            self.most_users = self.most_users.max(users.unwrap_or(0));
            if users > Some(0) {
                self.had_at = now;
            }
        }
    }

    /// Returns the client's wait, if it has a grant now.
    fn measure(&mut self, index: usize, now: Duration, wants: bool, answer: &GrantReply) {
        let state = &mut self.states[index];
        let first = answer.grants.iter().map(|grant| grant.starts_in_us).min();
        let since = state.heard_at.filter(|_| wants);
        let waited = match (since, first) {
            (Some(since), Some(starts)) => Some(now + Duration::from_micros(starts) - since),
            (Some(since), None) => Some(now - since),
            _ => None,
        };
        if let Some(waited) = waited {
            self.longest[index] = self.longest[index].max(waited);
        }
        state.heard_at = match (wants, first) {
            (true, None) => since.or(Some(now)),
            _ => None,
        };
    }

    fn bound(&self, index: usize) -> Duration {
        let others = (0..self.peers.len()).filter(|other| *other != index);
        let bound = GrantWaitBound {
            weight: self.peers[index].weight,
            others: others.map(|other| self.peers[other].weight).collect(),
            has_guarantees: self.peers.iter().any(|peer| peer.is_guaranteed),
            share: self.loads.iter().map(|load| share_left(*load)).fold(1.0, f64::min),
            deaths: self.peers.iter().filter(|peer| peer.dies_at.is_some()).count() as u32,
        };
        bound.limit(self.settings)
    }
}

fn server(
    settings: &GrantSettings,
    peers: &[SimulatedGrantClient],
    epoch: u64,
    now: Duration,
) -> GrantServer {
    // An impossible guarantee: its client is always late.
    let class = |peer: &SimulatedGrantClient| GrantClientClass {
        weight: peer.weight,
        client_bytes_per_s: if peer.is_guaranteed { u64::MAX } else { 0 },
        ..GrantClientClass::default()
    };
    let classes: BTreeMap<String, GrantClientClass> =
        peers.iter().map(|peer| (peer.class.clone(), class(peer))).collect();
    GrantServer::new(settings.clone(), classes, epoch, now)
}

fn settings(users: u32) -> GrantSettings {
    GrantSettings { users, ..GrantSettings::default() }
}

const LONG: Duration = Duration::from_secs(120);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nobody_waits_for_longer_than_the_bound(
        peers in peers(false, false),
        loads in prop::collection::vec(0.0..1.0f64, 0..5),
    ) {
        let settings = settings(1);
        let mut run = GrantWaitSimulation::new(&settings, &peers, loads);
        run.run(Duration::ZERO, LONG);
        for (index, longest) in run.longest.iter().enumerate() {
            prop_assert!(*longest <= run.bound(index), "client {index}: {longest:?}, not {:?}", run.bound(index));
        }
    }

    #[test]
    fn nor_with_several_users(peers in peers(false, false), users in 2u32..4) {
        let settings = settings(users);
        let mut run = GrantWaitSimulation::new(&settings, &peers, Vec::new());
        run.run(Duration::ZERO, LONG);
        for (index, longest) in run.longest.iter().enumerate() {
            prop_assert!(*longest <= run.bound(index), "client {index}: {longest:?}, not {:?}", run.bound(index));
        }
        prop_assert!(run.most_users <= users as usize, "{} users", run.most_users);
    }

    #[test]
    fn no_target_has_more_users_than_it_may_have(
        peers in peers(true, true),
        users in 1u32..4,
        restarts in prop::collection::vec(100u64..20_000, 0..4),
    ) {
        let settings = settings(users);
        let mut run = GrantWaitSimulation::new(&settings, &peers, Vec::new());
        let mut now = Duration::ZERO;
        for pause in restarts {
            run.run(now, now + ms(pause));
            now += ms(pause);
            run.restart(now);
        }
        run.run(now, now + LONG);
        prop_assert!(run.most_users <= users as usize, "{} users", run.most_users);
        // Nor is the target lost.
        prop_assert!(run.had_at + Duration::from_secs(10) > run.wanted_at, "lost at {:?}", run.had_at);
    }

    #[test]
    fn nor_where_clients_die(peers in peers(false, true)) {
        let settings = settings(1);
        let mut run = GrantWaitSimulation::new(&settings, &peers, Vec::new());
        run.run(Duration::ZERO, LONG);
        for (index, longest) in run.longest.iter().enumerate() {
            prop_assert!(*longest <= run.bound(index), "client {index}: {longest:?}, not {:?}", run.bound(index));
        }
    }
}
