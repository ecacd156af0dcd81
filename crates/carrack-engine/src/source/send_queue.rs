//! Objects that are ready to send, free endpoints, and the sink's credits.
//!
//! A thread that brings an object drives a free endpoint: the object leaves from the cache of the core that
//! read it. If all endpoints are in use, or credits are out, objects gather here, and the driving threads
//! take them along. An I/O thread that has read far enough ahead waits here until it can drive. The comm
//! thread sends objects that waited for credits only when no I/O thread waits.

use std::collections::VecDeque;

use carrack_machine::{FifoConditionLock, FifoMonitorClosed, Slot};
use carrack_transport::{ObjectPayload, OutgoingObject, TcpPathState, TcpStateReader, TransportSendEndpoint};
use carrack_wire::FrameHeader;

use crate::SessionError;

/// An endpoint with its index in the session.
pub(super) struct NumberedEndpoint {
    number: usize,
    pub(super) endpoint: Box<dyn TransportSendEndpoint>,
}

/// An endpoint with the object that it sends next.
pub(super) type EndpointWithObject = (NumberedEndpoint, OutgoingObject);

/// The endpoint that a thread drove last. The thread prefers the same endpoint: its objects then arrive on
/// one stream, and one thread writes them.
#[derive(Default)]
pub(super) struct LastDrivenEndpoint(Option<usize>);

pub(super) struct SendQueue {
    state: FifoConditionLock<SendQueueState>,
    /// Set when objects remain for the thread `carrack-send`. Threads at the state's lock wait to bring
    /// objects, so this needs a lock of its own.
    leftovers: FifoConditionLock<bool>,
    /// The kernel's view of the connections.
    gauges: Vec<TcpStateReader>,
    /// Without data endpoints the comm thread sends everything over the link.
    pub(super) endpoint_count: usize,
    /// True if every endpoint sends extents of files as well as slots.
    pub(super) sends_extents: bool,
    /// True if endpoints seal. Sealing takes time, so a separate thread drives objects that waited for
    /// credits, and not the comm thread.
    pub(super) seals: bool,
}

struct SendQueueState {
    /// Objects from flash, older than all ready ones.
    first: VecDeque<OutgoingObject>,
    ready: VecDeque<OutgoingObject>,
    /// The number of ready objects at which readers wait.
    ready_max: usize,
    idle: Vec<NumberedEndpoint>,
    /// The number of endpoints in use: the first ones.
    used: usize,
    /// Free slots that the sink has promised.
    credits: u64,
    /// The number of slots: one credit each.
    credits_at_start: u64,
    /// Bytes that have left.
    left_bytes: u64,
    /// True if no object follows.
    is_finished: bool,
}

impl SendQueue {
    /// Creates the queue; the first `used` endpoints are in use.
    pub(super) fn new(
        endpoints: Vec<Box<dyn TransportSendEndpoint>>,
        used: usize,
        credits: u32,
        ready_max: usize,
    ) -> SendQueue {
        let endpoint_count = endpoints.len();
        let sends_extents = endpoint_count > 0 && endpoints.iter().all(|endpoint| endpoint.sends_extents());
        let seals = endpoints.iter().any(|endpoint| endpoint.seals());
        let gauges = endpoints.iter().filter_map(|endpoint| endpoint.tcp_state_reader()).collect();
        assert!(ready_max > 0, "an object may be ready before readers wait");
        let credits = u64::from(credits);
        let numbered = endpoints.into_iter().enumerate();
        let idle = numbered.map(|(number, endpoint)| NumberedEndpoint { number, endpoint }).collect();
        let (first, ready) = Default::default();
        let state = SendQueueState {
            first,
            ready,
            ready_max,
            idle,
            used,
            credits,
            credits_at_start: credits,
            left_bytes: 0,
            is_finished: false,
        };
        let leftovers = FifoConditionLock::new(false);
        SendQueue {
            state: FifoConditionLock::new(state),
            leftovers,
            gauges,
            endpoint_count,
            sends_extents,
            seals,
        }
    }

    /// Adds an object behind the ready ones. Returns the endpoint and object that the caller must drive.
    /// Waits while too many objects are ready and no endpoint is free. Calls `wake_comm` if the comm thread
    /// sends.
    pub(super) fn enqueue(
        &self,
        outgoing: OutgoingObject,
        home: &mut LastDrivenEndpoint,
        wake_comm: impl FnOnce(),
    ) -> Result<Option<EndpointWithObject>, FifoMonitorClosed> {
        let outcome = self.state.with(|state| {
            state.ready.push_back(outgoing);
            state.next_action(home)
        });
        if self.endpoint_count == 0 {
            wake_comm();
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.state.take(|state| state.next_action(home)),
        }
    }

    /// Adds an object before all others. Returns the endpoint and object that the caller must drive.
    pub(super) fn enqueue_first(
        &self,
        outgoing: OutgoingObject,
        wake_comm: impl FnOnce(),
    ) -> Option<EndpointWithObject> {
        let departure = self.state.with(|state| {
            state.first.push_back(outgoing);
            state.take_departure(&mut LastDrivenEndpoint::default())
        });
        if self.endpoint_count == 0 {
            wake_comm();
        }
        departure
    }

    /// Takes back the object that was brought last, if it is in a slot, more than `kept` objects are ready,
    /// and `fit` accepts it.
    pub(super) fn take_last(
        &self,
        kept: usize,
        fit: impl FnOnce(&FrameHeader) -> bool,
    ) -> Option<(FrameHeader, Slot)> {
        self.state.change_and_wake_one(|state| {
            let last = state.ready.back().filter(|last| fit(&last.header))?;
            if state.ready.len() <= kept || !matches!(last.payload, ObjectPayload::Slot(_)) {
                return None;
            }
            match state.ready.pop_back()? {
                OutgoingObject { header, payload: ObjectPayload::Slot(slot) } => Some((header, slot)),
                OutgoingObject { payload: ObjectPayload::Extent(_), .. } => None,
            }
        })
    }

    /// Returns the object of [`take_last`](Self::take_last) to its place.
    pub(super) fn put_last(&self, header: FrameHeader, slot: Slot) {
        let outgoing = OutgoingObject { header, payload: ObjectPayload::Slot(slot) };
        self.state.change_and_wake_one(|state| state.ready.push_back(outgoing));
    }

    /// Bytes that have left so far.
    pub(super) fn departed_bytes(&self) -> u64 {
        self.state.with(|state| state.left_bytes)
    }

    /// Sets the number of endpoints in use, at least one.
    pub(super) fn use_endpoints(&self, count: usize) {
        let before = self.state.with(|state| std::mem::replace(&mut state.used, count.max(1)));
        // A thread that waits for an endpoint may find one now.
        self.state.change_and_wake_many(count.saturating_sub(before), |_| ());
    }

    /// Returns the number of endpoints in use.
    pub(super) fn used_count(&self) -> usize {
        self.state.with(|state| state.used.min(self.endpoint_count))
    }

    /// Returns the objects that are ready or being sent, and their maximum.
    pub(super) fn fill(&self) -> (usize, usize) {
        self.state.with(|state| {
            let driven = self.endpoint_count.saturating_sub(state.idle.len());
            (state.first.len() + state.ready.len() + driven, state.ready_max + state.used)
        })
    }

    /// The data connections, by their numbers.
    pub(super) fn connections(&self) -> std::slice::Iter<'_, TcpStateReader> {
        self.gauges.iter()
    }

    /// The state of the connections' paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = TcpPathState> {
        self.gauges.iter().filter_map(TcpStateReader::path)
    }

    /// Bytes that the kernel has taken and not sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.gauges.iter().map(TcpStateReader::unsent_bytes).sum()
    }

    /// Threads that have read far enough ahead, and wait.
    pub(super) fn waiter_count(&self) -> usize {
        self.state.waiter_count()
    }

    /// Returns the next object for a driver's endpoint, or keeps the free endpoint.
    pub(super) fn next_for(&self, endpoint: NumberedEndpoint) -> Option<EndpointWithObject> {
        self.state.change_and_wake_one(|state| {
            state.put_back(endpoint);
            state.take_departure(&mut LastDrivenEndpoint::default())
        })
    }

    /// Returns the next object for the comm thread's endpoint. I/O threads that wait for an endpoint go
    /// first.
    pub(super) fn next_for_comm(&self, endpoint: NumberedEndpoint) -> Option<EndpointWithObject> {
        let leaves_it = self.state.waiter_count() > 0;
        self.state.change_and_wake_one(|state| {
            state.put_back(endpoint);
            if leaves_it { None } else { state.take_departure(&mut LastDrivenEndpoint::default()) }
        })
    }

    /// Finishes endpoints after the last object, now or when they are put back. The sink's threads at the
    /// other end are then free at once.
    pub(super) fn finish(&self) {
        self.state.with(|state| {
            state.is_finished = true;
            state.finish_idle();
        });
    }

    /// Adds credits and wakes threads that wait for them. There are never more than the sink has slots.
    pub(super) fn add_credits(&self, count: u64) -> Result<(), SessionError> {
        let has_slots = self.state.change_and_wake_many(count as usize, |state| {
            state.credits += count;
            state.credits <= state.credits_at_start
        });
        if !has_slots {
            return Err(SessionError::Protocol("an answer to an object that has not left".into()));
        }
        if self.seals {
            self.leftovers.change_and_wake_one(|is_there| *is_there = true);
        }
        Ok(())
    }

    /// Returns true if every credit has come back: no object is on its way.
    pub(super) fn has_all_credits(&self) -> bool {
        self.state.with(|state| state.credits == state.credits_at_start)
    }

    /// Returns an object to drive, if no I/O thread waits for one.
    pub(super) fn take_unclaimed(&self) -> Option<EndpointWithObject> {
        self.state.try_take(|state| state.take_departure(&mut LastDrivenEndpoint::default()))
    }

    /// Waits until there may be an object to drive.
    pub(super) fn await_unclaimed(&self) -> Result<(), FifoMonitorClosed> {
        self.leftovers.take(|is_there| std::mem::take(is_there).then_some(()))
    }

    /// Returns an object for the link, if there is one with a credit.
    pub(super) fn next_for_link(&self) -> Option<(FrameHeader, Slot)> {
        let outgoing = self.state.change_and_wake_one(SendQueueState::ready_object)?;
        match outgoing.payload {
            ObjectPayload::Slot(slot) => Some((outgoing.header, slot)),
            // Extents are added only if endpoints send them.
            ObjectPayload::Extent(_) => None,
        }
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.leftovers.close();
        self.state.close();
    }
}

impl SendQueueState {
    /// Returns the next action of a thread that brought an object: drive, read on, or wait.
    fn next_action(&mut self, home: &mut LastDrivenEndpoint) -> Option<Option<EndpointWithObject>> {
        match self.take_departure(home) {
            None if self.ready.len() >= self.ready_max => None,
            outcome => Some(outcome),
        }
    }

    fn put_back(&mut self, endpoint: NumberedEndpoint) {
        assert!(self.idle.iter().all(|idle| idle.number != endpoint.number), "one thread drives an endpoint");
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

    fn take_departure(&mut self, home: &mut LastDrivenEndpoint) -> Option<EndpointWithObject> {
        let last = self.idle.iter().rposition(|idle| idle.number < self.used)?;
        let home_number = home.0.filter(|number| *number < self.used);
        let place = self.idle.iter().position(|idle| Some(idle.number) == home_number).unwrap_or(last);
        let outgoing = self.ready_object()?;
        let endpoint = self.idle.swap_remove(place);
        home.0 = Some(endpoint.number);
        Some((endpoint, outgoing))
    }

    fn ready_object(&mut self) -> Option<OutgoingObject> {
        if self.credits == 0 {
            return None;
        }
        let outgoing = self.first.pop_front().or_else(|| self.ready.pop_front())?;
        self.credits -= 1;
        assert!(!self.is_finished, "no object leaves after the last one");
        self.left_bytes += u64::from(outgoing.header.body_len);
        Some(outgoing)
    }
}
