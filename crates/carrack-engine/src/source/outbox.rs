//! Objects that are ready to be sent, endpoints that nobody drives, and the sink's credits.
//!
//! Whoever brings an object and finds an endpoint free drives it: the object leaves from the cache of the core that
//! read it. If all endpoints are being driven, or credits are out, objects gather here, and whoever drives an endpoint
//! takes them along. An I/O thread that has read far enough ahead waits here until it can drive; only when none does, the
//! comm thread sends what had to wait for credits.

use std::collections::VecDeque;

use carrack_machine::{Closed, Monitor};
use carrack_transport::{Outgoing, SendEndpoint};

/// An endpoint together with the object that it shall send.
pub(super) type Departure = (Box<dyn SendEndpoint>, Outgoing);

pub(super) struct Outbox {
    state: Monitor<State>,
    /// There are no data endpoints: the comm thread sends everything over the link.
    pub(super) uses_link: bool,
}

struct State {
    ready: VecDeque<Outgoing>,
    /// Objects that may be ready before whoever brings more has to wait.
    ready_max: usize,
    idle: Vec<Box<dyn SendEndpoint>>,
    /// Free slots that the sink has promised.
    credits: u64,
    /// No object follows.
    is_finished: bool,
}

impl Outbox {
    pub(super) fn new(endpoints: Vec<Box<dyn SendEndpoint>>, credits: u32, ready_max: usize) -> Outbox {
        let uses_link = endpoints.is_empty();
        let credits = credits.into();
        let state = State { ready: VecDeque::new(), ready_max, idle: endpoints, credits, is_finished: false };
        Outbox { state: Monitor::new(state), uses_link }
    }

    /// Puts an object behind those that are ready; returns what the caller shall drive. Waits while too many are
    /// ready and nothing can be driven. `wake_comm` is called if it is the comm thread that sends.
    pub(super) fn bring(
        &self,
        outgoing: Outgoing,
        wake_comm: impl FnOnce(),
    ) -> Result<Option<Departure>, Closed> {
        let outcome = self.state.with(|state| {
            state.ready.push_back(outgoing);
            state.drive_or_go_on()
        });
        if self.uses_link {
            wake_comm();
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.state.take(State::drive_or_go_on),
        }
    }

    /// The driver's endpoint is free again: the next object for it, or the endpoint stays here.
    pub(super) fn next_for(&self, endpoint: Box<dyn SendEndpoint>) -> Option<Departure> {
        self.state.release(|state| {
            state.put_back(endpoint);
            state.departure()
        })
    }

    /// The comm thread's endpoint is free again: I/O threads that wait for one go first.
    pub(super) fn next_for_comm(&self, endpoint: Box<dyn SendEndpoint>) -> Option<Departure> {
        let leaves_it = self.state.waiter_count() > 0;
        self.state.release(|state| {
            state.put_back(endpoint);
            if leaves_it { None } else { state.departure() }
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

    /// More credits came; returns what the comm thread shall drive, if no I/O thread waits to.
    pub(super) fn credit(&self, count: u64) -> Option<Departure> {
        self.state.release_many(count as usize, |state| state.credits += count);
        self.departure_for_comm()
    }

    /// What the comm thread shall drive next, if no I/O thread waits to.
    pub(super) fn departure_for_comm(&self) -> Option<Departure> {
        self.state.try_take(State::departure)
    }

    /// Something to send over the link, if everything for it is there.
    pub(super) fn for_link(&self) -> Option<Outgoing> {
        self.state.release(State::ready_object)
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.state.close();
    }
}

impl State {
    /// What a thread that brought an object does next: drive, go on reading, or wait.
    fn drive_or_go_on(&mut self) -> Option<Option<Departure>> {
        match self.departure() {
            None if self.ready.len() >= self.ready_max => None,
            outcome => Some(outcome),
        }
    }

    fn put_back(&mut self, endpoint: Box<dyn SendEndpoint>) {
        self.idle.push(endpoint);
        if self.is_finished {
            self.finish_idle();
        }
    }

    fn finish_idle(&mut self) {
        for mut endpoint in self.idle.drain(..) {
            // A connection that is broken by now has done its work.
            let _ = endpoint.finish();
        }
    }

    fn departure(&mut self) -> Option<Departure> {
        if self.idle.is_empty() {
            return None;
        }
        let outgoing = self.ready_object()?;
        Some((self.idle.pop()?, outgoing))
    }

    fn ready_object(&mut self) -> Option<Outgoing> {
        if self.credits == 0 {
            return None;
        }
        let outgoing = self.ready.pop_front()?;
        self.credits -= 1;
        Some(outgoing)
    }
}
