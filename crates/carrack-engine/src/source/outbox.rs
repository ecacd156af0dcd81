//! Objects that are ready to be sent, endpoints that nobody drives, and the sink's credits.
//!
//! Whoever brings an object and finds an endpoint free drives it: the object leaves from the cache of the core that
//! read it. If all endpoints are being driven, or credits are out, objects gather here, and whoever drives an endpoint
//! takes them along. An I/O thread that has read far enough ahead waits here until it can drive; only when none does, the
//! comm thread sends what had to wait for credits.

use std::collections::VecDeque;

use carrack_machine::{Closed, Monitor, Slot};
use carrack_transport::{Outgoing, Payload, SendEndpoint};
use carrack_wire::FrameHeader;

/// An endpoint, and which of the session's it is.
pub(super) struct Numbered {
    number: usize,
    pub(super) endpoint: Box<dyn SendEndpoint>,
}

/// An endpoint together with the object that it shall send.
pub(super) type Departure = (Numbered, Outgoing);

/// The endpoint that a thread drove last. It drives the same one again if that is free: what one thread reads then
/// arrives on one stream, and is written by one thread.
#[derive(Default)]
pub(super) struct Home(Option<usize>);

pub(super) struct Outbox {
    state: Monitor<State>,
    /// Whether the thread that sends what is left has something to look at. Who waits for the state waits to bring more:
    /// that is another thing to wait for.
    leftovers: Monitor<bool>,
    /// Without data endpoints the comm thread sends everything over the link.
    pub(super) endpoint_count: usize,
    /// Whether every endpoint takes extents of files as well as slots.
    pub(super) sends_extents: bool,
    /// Whether endpoints seal what they send. That takes its time, so a thread of its own drives what had to wait for
    /// credits, and not the comm thread.
    pub(super) seals: bool,
}

struct State {
    /// What came back from flash: older than all that is ready.
    first: VecDeque<Outgoing>,
    ready: VecDeque<Outgoing>,
    /// Objects that may be ready before whoever brings more has to wait.
    ready_max: usize,
    idle: Vec<Numbered>,
    /// Endpoints that are used: the first ones.
    used: usize,
    /// Free slots that the sink has promised.
    credits: u64,
    /// Bytes that have left.
    left_bytes: u64,
    /// No object follows.
    is_finished: bool,
}

impl Outbox {
    /// `used` of the endpoints are used at first.
    pub(super) fn new(
        endpoints: Vec<Box<dyn SendEndpoint>>,
        used: usize,
        credits: u32,
        ready_max: usize,
    ) -> Outbox {
        let endpoint_count = endpoints.len();
        let sends_extents = endpoint_count > 0 && endpoints.iter().all(|endpoint| endpoint.sends_extents());
        let seals = endpoints.iter().any(|endpoint| endpoint.seals());
        let credits = credits.into();
        let numbered = |(number, endpoint)| Numbered { number, endpoint };
        let idle = endpoints.into_iter().enumerate().map(numbered).collect();
        let (first, ready) = Default::default();
        let state = State { first, ready, ready_max, idle, used, credits, left_bytes: 0, is_finished: false };
        let leftovers = Monitor::new(false);
        Outbox { state: Monitor::new(state), leftovers, endpoint_count, sends_extents, seals }
    }

    /// Puts an object behind those that are ready; returns what the caller shall drive. Waits while too many are
    /// ready and nothing can be driven. `wake_comm` is called if it is the comm thread that sends.
    pub(super) fn bring(
        &self,
        outgoing: Outgoing,
        home: &mut Home,
        wake_comm: impl FnOnce(),
    ) -> Result<Option<Departure>, Closed> {
        let outcome = self.state.with(|state| {
            state.ready.push_back(outgoing);
            state.drive_or_go_on(home)
        });
        if self.endpoint_count == 0 {
            wake_comm();
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.state.take(|state| state.drive_or_go_on(home)),
        }
    }

    /// Puts an object before all others; returns what the caller shall drive.
    pub(super) fn bring_first(&self, outgoing: Outgoing, wake_comm: impl FnOnce()) -> Option<Departure> {
        let departure = self.state.with(|state| {
            state.first.push_back(outgoing);
            state.departure(&mut Home::default())
        });
        if self.endpoint_count == 0 {
            wake_comm();
        }
        departure
    }

    /// Takes the object back that was brought last, if it is in a slot, more than `kept` are ready, and it is `fit`.
    pub(super) fn take_last(
        &self,
        kept: usize,
        fit: impl FnOnce(&FrameHeader) -> bool,
    ) -> Option<(FrameHeader, Slot)> {
        self.state.release(|state| {
            let last = state.ready.back().filter(|last| fit(&last.header))?;
            if state.ready.len() <= kept || !matches!(last.payload, Payload::Slot(_)) {
                return None;
            }
            match state.ready.pop_back()? {
                Outgoing { header, payload: Payload::Slot(slot) } => Some((header, slot)),
                Outgoing { payload: Payload::Extent(_), .. } => None,
            }
        })
    }

    /// Puts it where it was.
    pub(super) fn put_last(&self, header: FrameHeader, slot: Slot) {
        let outgoing = Outgoing { header, payload: Payload::Slot(slot) };
        self.state.release(|state| state.ready.push_back(outgoing));
    }

    /// Bytes that have left so far.
    pub(super) fn left_bytes(&self) -> u64 {
        self.state.with(|state| state.left_bytes)
    }

    /// Uses so many endpoints from now on, one at least.
    pub(super) fn use_endpoints(&self, count: usize) {
        let before = self.state.with(|state| std::mem::replace(&mut state.used, count.max(1)));
        // Whoever waits for an endpoint may find one now.
        self.state.release_many(count.saturating_sub(before), |_| ());
    }

    /// How many endpoints are used.
    pub(super) fn used_count(&self) -> usize {
        self.state.with(|state| state.used.min(self.endpoint_count))
    }

    /// Objects that are ready or being sent, and how many can be.
    pub(super) fn fill(&self) -> (usize, usize) {
        self.state.with(|state| {
            let driven = self.endpoint_count.saturating_sub(state.idle.len());
            (state.first.len() + state.ready.len() + driven, state.ready_max + state.used)
        })
    }

    /// Threads that have read far enough ahead, and wait.
    pub(super) fn waiter_count(&self) -> usize {
        self.state.waiter_count()
    }

    /// The driver's endpoint is free again: the next object for it, or the endpoint stays here.
    pub(super) fn next_for(&self, endpoint: Numbered) -> Option<Departure> {
        self.state.release(|state| {
            state.put_back(endpoint);
            state.departure(&mut Home::default())
        })
    }

    /// The comm thread's endpoint is free again: I/O threads that wait for one go first.
    pub(super) fn next_for_comm(&self, endpoint: Numbered) -> Option<Departure> {
        let leaves_it = self.state.waiter_count() > 0;
        self.state.release(|state| {
            state.put_back(endpoint);
            if leaves_it { None } else { state.departure(&mut Home::default()) }
        })
    }

    /// No object follows: endpoints are finished, now or when they come back, so that the sink's threads, which wait at
    /// the other end, are free at once.
    pub(super) fn finish(&self) {
        self.state.with(|state| {
            state.is_finished = true;
            state.finish_idle();
        });
    }

    /// More credits came: whoever waits for them goes on.
    pub(super) fn credit(&self, count: u64) {
        self.state.release_many(count as usize, |state| state.credits += count);
        if self.seals {
            self.leftovers.release(|is_there| *is_there = true);
        }
    }

    /// What is to be driven next and no I/O thread waits to drive.
    pub(super) fn leftover(&self) -> Option<Departure> {
        self.state.try_take(|state| state.departure(&mut Home::default()))
    }

    /// Waits until there may be a leftover.
    pub(super) fn await_leftover(&self) -> Result<(), Closed> {
        self.leftovers.take(|is_there| std::mem::take(is_there).then_some(()))
    }

    /// Something to send over the link, if everything for it is there.
    pub(super) fn for_link(&self) -> Option<(FrameHeader, Slot)> {
        let outgoing = self.state.release(State::ready_object)?;
        match outgoing.payload {
            Payload::Slot(slot) => Some((outgoing.header, slot)),
            // Nobody brings one where there is no endpoint for it.
            Payload::Extent(_) => None,
        }
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.leftovers.close();
        self.state.close();
    }
}

impl State {
    /// What a thread that brought an object does next: drive, go on reading, or wait.
    fn drive_or_go_on(&mut self, home: &mut Home) -> Option<Option<Departure>> {
        match self.departure(home) {
            None if self.ready.len() >= self.ready_max => None,
            outcome => Some(outcome),
        }
    }

    fn put_back(&mut self, endpoint: Numbered) {
        self.idle.push(endpoint);
        if self.is_finished {
            self.finish_idle();
        }
    }

    fn finish_idle(&mut self) {
        for mut endpoint in self.idle.drain(..) {
            // A connection that is broken by now has done its work.
            let _ = endpoint.endpoint.finish();
        }
    }

    fn departure(&mut self, home: &mut Home) -> Option<Departure> {
        let is_used = |idle: &Numbered| idle.number < self.used;
        let is_home = |idle: &Numbered| Some(idle.number) == home.0 && is_used(idle);
        let last = self.idle.iter().rposition(is_used)?;
        let place = self.idle.iter().position(is_home).unwrap_or(last);
        let outgoing = self.ready_object()?;
        let endpoint = self.idle.swap_remove(place);
        home.0 = Some(endpoint.number);
        Some((endpoint, outgoing))
    }

    fn ready_object(&mut self) -> Option<Outgoing> {
        if self.credits == 0 {
            return None;
        }
        let outgoing = self.first.pop_front().or_else(|| self.ready.pop_front())?;
        self.credits -= 1;
        self.left_bytes += u64::from(outgoing.header.body_len);
        Some(outgoing)
    }
}
