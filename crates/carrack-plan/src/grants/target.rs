//! One target: who waits, who has the privilege, and what rests.

use std::time::Duration;

use super::health::Allowance;
use super::holding::Holding;
use super::messages::Held;
use super::settings::GrantSettings;
use super::turns::{ClientKey, Standing, Turns};

/// Weight of the last burst in the target's rate.
const RATE_WEIGHT: f64 = 0.3;

/// What a target has to know of the rest of the server.
pub(super) struct Context<'a> {
    pub(super) now: Duration,
    pub(super) settings: &'a GrantSettings,
    pub(super) allowance: Allowance,
    /// How each client stands that was heard of lately, for a grant that begins then.
    pub(super) standing: &'a dyn Fn(ClientKey, Duration) -> Option<Standing>,
}

/// What a batch says of a target.
pub(super) struct Wanted {
    pub(super) client: ClientKey,
    pub(super) weight: u32,
    /// Since when it has been asked for; nothing if it is not.
    pub(super) since: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    turns: Turns,
    holdings: Vec<Holding>,
    /// When each place that rests may be used again.
    rests: Vec<Duration>,
    bytes_per_s: f64,
}

impl Target {
    /// Nobody has it, wants it, or is kept from it.
    pub(super) fn is_unused(&self) -> bool {
        self.holdings.is_empty() && self.rests.is_empty() && self.turns.waiting().next().is_none()
    }

    pub(super) fn holdings(&self) -> &[Holding] {
        &self.holdings
    }

    /// Until when a client has it, if others want it or have it too.
    pub(super) fn contended_until(&self, client: ClientKey) -> Option<Duration> {
        let own = self.holdings.iter().filter(|holding| holding.client == client);
        let until = own.map(|holding| holding.until).max()?;
        let mut wanted = self.turns.waiting().map(|(other, _)| other);
        let mut held = self.holdings.iter().map(|holding| holding.client);
        (wanted.any(|other| other != client) || held.any(|other| other != client)).then_some(until)
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = (ClientKey, Duration)> {
        self.turns.waiting()
    }

    /// Ends what has ended by now.
    pub(super) fn expire(&mut self, context: &Context<'_>) {
        self.rests.retain(|until| *until > context.now);
        while let Some(index) = self.holdings.iter().position(|holding| holding.until <= context.now) {
            let until = self.holdings[index].until;
            self.end(context, index, until, Duration::ZERO);
        }
    }

    /// Ends one, at `at`; its client pays for the gap that it leaves.
    fn end(&mut self, context: &Context<'_>, index: usize, at: Duration, gap: Duration) {
        let holding = self.holdings.swap_remove(index);
        let took = holding.took(at);
        if let Some(rate) = holding.bytes_per_s() {
            let weight = if self.bytes_per_s == 0.0 { 1.0 } else { RATE_WEIGHT };
            self.bytes_per_s += weight * (rate - self.bytes_per_s);
        }
        // Nobody has used it for longer than a burst, but for a client that died.
        let rest = context.allowance.rest(took.min(context.allowance.burst));
        let rests_until = at + rest;
        if rests_until > context.now {
            self.rests.push(rests_until);
        }
        self.turns.settle(holding.client, holding.turn, took + rest + gap);
    }

    /// A client gives a grant back; one that it has not is no matter.
    pub(super) fn give_back(&mut self, context: &Context<'_>, client: ClientKey, held: &Held) {
        let is_it = |holding: &Holding| holding.id == held.id && holding.client == client;
        if let Some(index) = self.holdings.iter().position(is_it) {
            self.holdings[index].tell(context.now, held);
            let is_early = self.holdings[index].burst_end > context.now && self.is_wanted(context, client);
            let gap = if is_early { context.settings.silence() } else { Duration::ZERO };
            self.end(context, index, context.now, gap);
        }
    }

    /// A client tells what it used a grant for.
    pub(super) fn tell(&mut self, now: Duration, client: ClientKey, held: &Held) {
        let is_it = |holding: &&mut Holding| holding.id == held.id && holding.client == client;
        if let Some(holding) = self.holdings.iter_mut().find(is_it) {
            holding.tell(now, held);
        }
    }

    /// Takes up a grant that an earlier server gave. While the server listens there is room for all.
    pub(super) fn adopt(
        &mut self,
        context: &Context<'_>,
        wanted: &Wanted,
        held: &Held,
        id: u64,
        is_settling: bool,
    ) {
        let Context { now, settings, allowance, .. } = *context;
        let has_one = self.holdings.iter().any(|holding| holding.client == wanted.client);
        if has_one || !(is_settling || self.holdings.len() < allowance.users) {
            return;
        }
        let span = |micros| Duration::from_micros(micros).min(settings.lease);
        let start = now + span(held.starts_in_us).min(settings.burst);
        // Nobody stops while the server listens.
        let until = (now + span(held.ends_in_us)).max(start + settings.silence());
        let burst = allowance.burst.min(until - start);
        let turn = self.turns.go_on(wanted.client, wanted.weight, burst);
        let holding = Holding { until, ..Holding::new(id, wanted.client, start, burst, turn) };
        self.holdings.push(holding);
    }

    /// The client is gone, with all it had.
    pub(super) fn forget(&mut self, context: &Context<'_>, client: ClientKey) {
        while let Some(index) = self.holdings.iter().position(|holding| holding.client == client) {
            self.end(context, index, context.now, Duration::ZERO);
        }
        self.turns.forget(client);
    }

    /// A client does not want it any more.
    pub(super) fn unask(&mut self, client: ClientKey) {
        self.turns.unask(client);
    }

    /// Extends what a client has, or ends it.
    pub(super) fn keep(&mut self, context: &Context<'_>, wanted: &Wanted) {
        self.renew(context, wanted);
        self.expire(context);
    }

    /// Gives a client what it can have now: nothing yet while the server listens. `next_id` is the number of the next grant.
    pub(super) fn serve(
        &mut self,
        context: &Context<'_>,
        wanted: &Wanted,
        is_settling: bool,
        next_id: &mut u64,
    ) {
        let client = wanted.client;
        let has_running = self.running(context.now).any(|holding| holding.client == client);
        let goes_on = has_running && context.allowance.is_full() && !self.is_wanted(context, client);
        match wanted.since {
            Some(since) if is_settling => self.turns.ask(client, wanted.weight, since),
            Some(since) if !goes_on => {
                self.plan(context, wanted, since, next_id);
                self.renew(context, wanted);
            }
            _ => self.turns.unask(client),
        }
    }

    fn running(&self, now: Duration) -> impl Iterator<Item = &Holding> {
        self.holdings.iter().filter(move |holding| holding.is_running(now))
    }

    /// Whether somebody else waits who has nothing, or has the next burst and waits for it; or more have it than may, after the
    /// server began anew or computation did.
    fn is_wanted(&self, context: &Context<'_>, client: ClientKey) -> bool {
        let now = context.now;
        let has = |other| self.holdings.iter().any(|holding| holding.client == other);
        let is_using = |other| self.running(now).any(|holding| holding.client == other);
        let mut needy = self.turns.waiting().map(|(other, _)| other);
        needy.any(|other| other != client && !has(other) && (context.standing)(other, now).is_some())
            || self.holdings.iter().any(|next| next.client != client && !is_using(next.client))
            || self.running(now).count() > context.allowance.users
    }

    /// Brings the client's next burst forward, or gives it one if it is its turn.
    fn plan(&mut self, context: &Context<'_>, wanted: &Wanted, since: Duration, next_id: &mut u64) {
        let Context { now, settings, allowance, .. } = *context;
        let client = wanted.client;
        if self.holdings.iter().any(|holding| holding.client == client && !holding.is_running(now)) {
            self.turns.unask(client);
            self.pull_forward(context, client);
            return;
        }
        self.turns.ask(client, wanted.weight, since);
        self.take_idle(context, client);
        let start = self.next_start(context);
        if start > now + settings.silence() {
            return;
        }
        let holdings = &self.holdings;
        let is_free =
            |other| !holdings.iter().any(|holding| holding.client == other && holding.until > start);
        let standing = |other| (context.standing)(other, start).filter(|_| is_free(other));
        let Some((chosen, is_reserved)) = self.turns.choose(allowance.cycle(), standing) else { return };
        if chosen != client {
            return;
        }
        if let Some(turn) = self.turns.give(client, is_reserved, allowance.cycle()) {
            let burst = self.burst(settings, allowance);
            self.holdings.push(Holding::new(*next_id, client, start, burst, turn));
            *next_id += 1;
        }
    }

    /// As long as a burst may be; shorter if its bytes are moved sooner, or many wait.
    fn burst(&self, settings: &GrantSettings, allowance: Allowance) -> Duration {
        let by_bytes = Duration::try_from_secs_f64(settings.burst_bytes as f64 / self.bytes_per_s);
        let users = self.turns.waiting().count() + self.holdings.len();
        let by_round = settings.round / u32::try_from(users.max(1)).unwrap_or(u32::MAX);
        let longest = allowance.burst.min(by_round.max(settings.burst_short));
        by_bytes.map_or(longest, |span| span.min(longest)).max(settings.burst_min.min(allowance.burst))
    }

    /// When a place is free for one more: now, or when those before it have ended and rested.
    fn next_start(&self, context: &Context<'_>) -> Duration {
        let planned = |holding: &Holding| {
            let last = holding.took(holding.until).min(context.allowance.burst);
            holding.until + context.allowance.rest(last)
        };
        let mut free_at: Vec<Duration> =
            self.holdings.iter().map(planned).chain(self.rests.iter().copied()).collect();
        free_at.sort_unstable();
        let first = free_at.len().checked_sub(context.allowance.users);
        first.map_or(context.now, |index| free_at[index].max(context.now))
    }

    /// A burst that was to follow another one begins now if that has ended early.
    fn pull_forward(&mut self, context: &Context<'_>, client: ClientKey) {
        let now = context.now;
        let used = self.running(now).count() + self.rests.len();
        let next = |holding: &&Holding| !holding.is_running(now);
        let mut planned: Vec<(Duration, u64)> =
            self.holdings.iter().filter(next).map(|holding| (holding.start, holding.id)).collect();
        planned.sort_unstable();
        planned.truncate(context.allowance.users.saturating_sub(used));
        let is_free = !self.running(now).any(|holding| holding.client == client);
        for holding in self.holdings.iter_mut().filter(|holding| holding.client == client && is_free) {
            if planned.contains(&(holding.start, holding.id)) {
                holding.pull_to(now);
            }
        }
    }

    /// What others hold and do not use is for who wants it.
    fn take_idle(&mut self, context: &Context<'_>, client: ClientKey) {
        let now = context.now;
        let has_any = self.holdings.iter().any(|holding| holding.client == client);
        if has_any || self.holdings.len() + self.rests.len() < context.allowance.users {
            return;
        }
        let is_idle = |holding: &Holding| holding.used.is_idle && holding.is_running(now);
        if let Some(index) = self.holdings.iter().position(is_idle) {
            self.end(context, index, now, Duration::ZERO);
        }
    }

    /// What the client goes on with needs no burst to follow it.
    fn drop_next(&mut self, context: &Context<'_>, client: ClientKey) {
        let is_next = |holding: &Holding| holding.client == client && !holding.is_running(context.now);
        while let Some(index) = self.holdings.iter().position(is_next) {
            self.end(context, index, context.now, Duration::ZERO);
        }
    }

    /// Extends what the client has if nobody waits; else it ends with the burst.
    fn renew(&mut self, context: &Context<'_>, wanted: &Wanted) {
        let Context { now, settings, allowance, .. } = *context;
        let others_wait = self.is_wanted(context, wanted.client);
        let goes_on = allowance.is_full() && !others_wait;
        let burst = self.burst(settings, allowance);
        if goes_on && self.running(now).any(|holding| holding.client == wanted.client) {
            self.drop_next(context, wanted.client);
        }
        let own = self.holdings.iter_mut().filter(|holding| holding.client == wanted.client);
        for holding in own {
            holding.others_wait = others_wait;
            holding.requests_max = allowance.requests_max;
            if goes_on && holding.is_running(now) {
                if holding.burst_end <= now {
                    self.turns.settle(holding.client, holding.turn, holding.took(now));
                    let turn = self.turns.go_on(holding.client, wanted.weight, burst);
                    holding.go_on(now, burst, turn);
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
