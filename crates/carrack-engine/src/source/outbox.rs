//! Objects that are ready to be sent, endpoints that nobody drives, and the sink's credits.
//!
//! Whoever brings an object and finds an endpoint free drives it: the object leaves from the cache of the core that
//! read it. If the sink doesn't keep up, objects gather here; whoever drives an endpoint takes them along.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use carrack_transport::{Outgoing, SendEndpoint};

/// An endpoint together with the object that it shall send.
pub(super) type Departure = (Box<dyn SendEndpoint>, Outgoing);

pub(super) struct Outbox {
    state: Mutex<State>,
    /// There are no data endpoints: the comm thread sends everything over the link.
    pub(super) uses_link: bool,
}

struct State {
    ready: VecDeque<Outgoing>,
    idle: Vec<Box<dyn SendEndpoint>>,
    /// Free slots that the sink has promised.
    credits: u64,
}

impl Outbox {
    pub(super) fn new(endpoints: Vec<Box<dyn SendEndpoint>>, credits: u32) -> Outbox {
        let uses_link = endpoints.is_empty();
        let state = State { ready: VecDeque::new(), idle: endpoints, credits: credits.into() };
        Outbox { state: Mutex::new(state), uses_link }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object behind those that are ready; returns what the caller shall drive.
    pub(super) fn bring(&self, outgoing: Outgoing) -> Option<Departure> {
        let mut state = self.lock();
        state.ready.push_back(outgoing);
        state.departure()
    }

    /// The driver's endpoint is free again: the next object for it, or the endpoint stays here.
    pub(super) fn next_for(&self, endpoint: Box<dyn SendEndpoint>) -> Option<Departure> {
        let mut state = self.lock();
        state.idle.push(endpoint);
        state.departure()
    }

    /// More credits came.
    pub(super) fn credit(&self, count: u64) {
        self.lock().credits += count;
    }

    /// Something to drive, if everything for it is there.
    pub(super) fn departure(&self) -> Option<Departure> {
        self.lock().departure()
    }

    /// Something to send over the link, if everything for it is there.
    pub(super) fn for_link(&self) -> Option<Outgoing> {
        self.lock().ready_object()
    }
}

impl State {
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
