//! One target: the clients that wait, the holders, and the places at rest.

use std::time::Duration;

use super::computation_load::TargetAllowance;
use super::holding::ServerGrantRecord;
use super::messages::GrantUseReport;
use super::settings::GrantSettings;
use super::turns::{GrantClientNumber, GrantTurnCandidate, TurnQueue};

/// Weight of the last burst in the target's rate.
const RATE_WEIGHT: f64 = 0.3;

/// The data that a target needs from the rest of the server.
pub(super) struct GrantContext<'a> {
    pub(super) now: Duration,
    pub(super) settings: &'a GrantSettings,
    pub(super) allowance: TargetAllowance,
    /// Returns the standing of a client for a grant that begins then; `None` for a silent client.
    pub(super) standing: &'a dyn Fn(GrantClientNumber, Duration) -> Option<GrantTurnCandidate>,
}

/// The wish for a target in a batch.
pub(super) struct TargetWish {
    pub(super) client: GrantClientNumber,
    pub(super) weight: u32,
    /// Time since which it has been asked for; `None` if it is not.
    pub(super) since: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SharedTarget {
    turns: TurnQueue,
    holdings: Vec<ServerGrantRecord>,
    /// End of the rest of each place that rests.
    rests: Vec<Duration>,
    bytes_per_s: f64,
}

impl SharedTarget {
    /// Returns true if it has no holders, wishes or rests.
    pub(super) fn is_unused(&self) -> bool {
        self.holdings.is_empty() && self.rests.is_empty() && self.turns.waiting_clients().next().is_none()
    }

    fn has(&self, client: GrantClientNumber) -> bool {
        self.holdings.iter().any(|holding| holding.client == client)
    }

    pub(super) fn holdings(&self) -> &[ServerGrantRecord] {
        &self.holdings
    }

    /// Returns the end of a client's grants, if others want the target or have it too.
    pub(super) fn contended_until(&self, client: GrantClientNumber) -> Option<Duration> {
        let own = self.holdings.iter().filter(|holding| holding.client == client);
        let until = own.map(|holding| holding.until).max()?;
        let mut wanted = self.turns.waiting_clients().map(|(other, _)| other);
        let mut held = self.holdings.iter().map(|holding| holding.client);
        (wanted.any(|other| other != client) || held.any(|other| other != client)).then_some(until)
    }

    pub(super) fn waiting_clients(&self) -> impl Iterator<Item = (GrantClientNumber, Duration)> {
        self.turns.waiting_clients()
    }

    /// Ends grants and rests that are over.
    pub(super) fn expire(&mut self, context: &GrantContext<'_>) {
        self.rests.retain(|until| *until > context.now);
        while let Some(index) = self.holdings.iter().position(|holding| holding.until <= context.now) {
            let until = self.holdings[index].until;
            self.end_grant(context, index, until, Duration::ZERO);
        }
    }

    /// Ends a grant at `at`; its client pays for the gap after it.
    fn end_grant(&mut self, context: &GrantContext<'_>, index: usize, at: Duration, gap: Duration) {
        let holding = self.holdings.swap_remove(index);
        let took = holding.burst_length(at);
        if let Some(rate) = holding.bytes_per_s() {
            let weight = if self.bytes_per_s == 0.0 { 1.0 } else { RATE_WEIGHT };
            self.bytes_per_s += weight * (rate - self.bytes_per_s);
        }
        // No grant was used for longer than a burst, except that of a dead client.
        let rest = context.allowance.rest(took.min(context.allowance.burst));
        let rests_until = at + rest;
        if rests_until > context.now {
            self.rests.push(rests_until);
        }
        self.turns.settle(holding.client, holding.turn, took + rest + gap);
    }

    /// Takes a grant back; an unknown one is ignored.
    pub(super) fn give_back(
        &mut self,
        context: &GrantContext<'_>,
        client: GrantClientNumber,
        held: &GrantUseReport,
    ) {
        let mut holdings = self.holdings.iter();
        if let Some(index) = holdings.position(|holding| holding.id == held.id && holding.client == client) {
            self.holdings[index].record_use(context.now, held);
            let is_early =
                self.holdings[index].burst_end > context.now && self.is_wanted_by_others(context, client);
            let gap = if is_early { context.settings.silence_limit() } else { Duration::ZERO };
            self.end_grant(context, index, context.now, gap);
        }
    }

    /// Records the use of a grant.
    pub(super) fn record_use(&mut self, now: Duration, client: GrantClientNumber, held: &GrantUseReport) {
        let mut holdings = self.holdings.iter_mut();
        if let Some(holding) = holdings.find(|holding| holding.id == held.id && holding.client == client) {
            holding.record_use(now, held);
        }
    }

    /// Adopts a grant of an earlier server. While the server listens there is room for all.
    pub(super) fn adopt(
        &mut self,
        context: &GrantContext<'_>,
        wanted: &TargetWish,
        held: &GrantUseReport,
        id: u64,
        is_settling: bool,
    ) {
        let GrantContext { now, settings, allowance, .. } = *context;
        if self.has(wanted.client) || !(is_settling || self.holdings.len() < allowance.users) {
            return;
        }
        let starts_in = Duration::from_micros(held.starts_in_us).min(settings.lease);
        let ends_in = Duration::from_micros(held.ends_in_us).min(settings.lease);
        let start = now + starts_in.min(settings.burst);
        // No client stops while the server listens.
        let until = (now + ends_in).max(start + settings.silence_limit());
        let burst = allowance.burst.min(until - start);
        let turn = self.turns.charge_next_burst(wanted.client, wanted.weight, burst);
        let holding =
            ServerGrantRecord { until, ..ServerGrantRecord::new(id, wanted.client, start, burst, turn) };
        self.holdings.push(holding);
    }

    /// Removes a client with its grants and its wish.
    pub(super) fn forget(&mut self, context: &GrantContext<'_>, client: GrantClientNumber) {
        while let Some(index) = self.holdings.iter().position(|holding| holding.client == client) {
            self.end_grant(context, index, context.now, Duration::ZERO);
        }
        self.turns.forget(client);
    }

    /// Removes a client's wish.
    pub(super) fn remove_wish(&mut self, client: GrantClientNumber) {
        self.turns.remove_wish(client);
    }

    /// Extends or ends a client's grants.
    pub(super) fn renew_or_expire(&mut self, context: &GrantContext<'_>, wanted: &TargetWish) {
        self.renew(context, wanted);
        self.expire(context);
    }

    /// Grants the target to a client if its turn has come: not while the server listens. `next_id` is the
    /// number of the next grant.
    pub(super) fn grant_if_turn(
        &mut self,
        context: &GrantContext<'_>,
        wanted: &TargetWish,
        is_settling: bool,
        next_id: &mut u64,
    ) {
        let client = wanted.client;
        let has_running = self.is_using(context.now, client);
        let goes_on =
            has_running && context.allowance.is_unrestricted() && !self.is_wanted_by_others(context, client);
        match wanted.since {
            Some(since) if is_settling => self.turns.add_wish(client, wanted.weight, since),
            Some(since) if !goes_on => {
                self.plan_burst(context, wanted, since, next_id);
                self.renew(context, wanted);
            }
            _ => self.turns.remove_wish(client),
        }
    }

    fn running(&self, now: Duration) -> impl Iterator<Item = &ServerGrantRecord> {
        self.holdings.iter().filter(move |holding| holding.is_running(now))
    }

    /// Returns true if another client waits that has no grant, or waits for its next burst; or if there are
    /// more holders than allowed, after a restart of the server or with more computation.
    fn is_wanted_by_others(&self, context: &GrantContext<'_>, client: GrantClientNumber) -> bool {
        let now = context.now;
        let mut needy = self.turns.waiting_clients().map(|(other, _)| other);
        needy.any(|other| other != client && !self.has(other) && (context.standing)(other, now).is_some())
            || self.holdings.iter().any(|next| next.client != client && !self.is_using(now, next.client))
            || self.running(now).count() > context.allowance.users
    }

    fn is_using(&self, now: Duration, client: GrantClientNumber) -> bool {
        self.running(now).any(|holding| holding.client == client)
    }

    /// Brings the client's next burst forward, or gives it one if its turn has come.
    fn plan_burst(
        &mut self,
        context: &GrantContext<'_>,
        wanted: &TargetWish,
        since: Duration,
        next_id: &mut u64,
    ) {
        let GrantContext { now, settings, allowance, .. } = *context;
        let client = wanted.client;
        if self.holdings.iter().any(|holding| holding.client == client && !holding.is_running(now)) {
            self.turns.remove_wish(client);
            self.bring_burst_forward(context, client);
            return;
        }
        self.turns.add_wish(client, wanted.weight, since);
        self.revoke_idle_grant(context, client);
        let start = self.next_start(context);
        if start > now + settings.silence_limit() {
            return;
        }
        let holdings = &self.holdings;
        let chosen = self.turns.choose(allowance.cycle(), |other| {
            let has_it = holdings.iter().any(|holding| holding.client == other && holding.until > start);
            if has_it { None } else { (context.standing)(other, start) }
        });
        let Some((chosen, is_reserved)) = chosen else { return };
        if chosen != client {
            return;
        }
        if let Some(turn) = self.turns.grant_turn(client, is_reserved, allowance.cycle()) {
            let burst = self.burst_length(settings, allowance);
            self.holdings.push(ServerGrantRecord::new(*next_id, client, start, burst, turn));
            *next_id += 1;
        }
    }

    /// Returns the length of a burst; shorter if its bytes are moved sooner, or many clients wait.
    fn burst_length(&self, settings: &GrantSettings, allowance: TargetAllowance) -> Duration {
        let by_bytes = Duration::try_from_secs_f64(settings.burst_bytes as f64 / self.bytes_per_s);
        let users = self.turns.waiting_clients().count() + self.holdings.len();
        let by_round = settings.round / u32::try_from(users.max(1)).unwrap_or(u32::MAX);
        let longest = allowance.burst.min(by_round.max(settings.burst_short));
        by_bytes.map_or(longest, |span| span.min(longest)).max(settings.burst_min.min(allowance.burst))
    }

    /// Returns the time at which a place is free: now, or when an earlier burst has ended and rested.
    fn next_start(&self, context: &GrantContext<'_>) -> Duration {
        let mut free_at = self.rests.clone();
        for holding in &self.holdings {
            let last = holding.burst_length(holding.until).min(context.allowance.burst);
            free_at.push(holding.until + context.allowance.rest(last));
        }
        free_at.sort_unstable();
        let first = free_at.len().checked_sub(context.allowance.users);
        first.map_or(context.now, |index| free_at[index].max(context.now))
    }

    /// Begins a planned burst now if the burst before it has ended early.
    fn bring_burst_forward(&mut self, context: &GrantContext<'_>, client: GrantClientNumber) {
        let now = context.now;
        let used = self.running(now).count() + self.rests.len();
        let next = self.holdings.iter().filter(|holding| !holding.is_running(now));
        let mut planned: Vec<(Duration, u64)> = next.map(|holding| (holding.start, holding.id)).collect();
        planned.sort_unstable();
        planned.truncate(context.allowance.users.saturating_sub(used));
        let is_free = !self.is_using(now, client);
        for holding in self.holdings.iter_mut().filter(|holding| holding.client == client && is_free) {
            if planned.contains(&(holding.start, holding.id)) {
                holding.bring_forward_to(now);
            }
        }
    }

    /// Ends an idle grant of another client in favour of a wish.
    fn revoke_idle_grant(&mut self, context: &GrantContext<'_>, client: GrantClientNumber) {
        let now = context.now;
        if self.has(client) || self.holdings.len() + self.rests.len() < context.allowance.users {
            return;
        }
        let mut holdings = self.holdings.iter();
        if let Some(index) = holdings.position(|holding| holding.used.is_idle && holding.is_running(now)) {
            self.end_grant(context, index, now, Duration::ZERO);
        }
    }

    /// Ends the client's next burst, which a continued grant does not need.
    fn drop_next(&mut self, context: &GrantContext<'_>, client: GrantClientNumber) {
        while let Some(index) = self
            .holdings
            .iter()
            .position(|holding| holding.client == client && !holding.is_running(context.now))
        {
            self.end_grant(context, index, context.now, Duration::ZERO);
        }
    }

    /// Extends the client's grant if no other client waits; otherwise it ends with the burst.
    fn renew(&mut self, context: &GrantContext<'_>, wanted: &TargetWish) {
        let GrantContext { now, settings, allowance, .. } = *context;
        let others_wait = self.is_wanted_by_others(context, wanted.client);
        let goes_on = allowance.is_unrestricted() && !others_wait;
        let burst = self.burst_length(settings, allowance);
        if goes_on && self.is_using(now, wanted.client) {
            self.drop_next(context, wanted.client);
        }
        let own = self.holdings.iter_mut().filter(|holding| holding.client == wanted.client);
        for holding in own {
            holding.others_wait = others_wait;
            holding.requests_max = allowance.requests_max;
            if goes_on && holding.is_running(now) {
                if holding.burst_end <= now {
                    self.turns.settle(holding.client, holding.turn, holding.burst_length(now));
                    let turn = self.turns.charge_next_burst(holding.client, wanted.weight, burst);
                    holding.start_next_burst(now, burst, turn);
                }
                holding.until = now + settings.lease;
                holding.bytes_max = None;
            } else {
                holding.until = holding.until.min(holding.burst_end.max(now));
                holding.bytes_max = Some(holding.bytes_at_burst.saturating_add(settings.burst_bytes));
            }
        }
    }
}
