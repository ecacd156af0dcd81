//! Endpoints within one process: they pass the slot on, without a copy.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_machine::{Slot, SlotPool};
use carrack_wire::FrameHeader;
use rustix::event::{EventfdFlags, eventfd};

use crate::endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ObjectPayload, OutgoingObject, ReceiveEndpoint, ReceiveResult,
    SenderReadiness, TransportError, TransportSendEndpoint,
};
use crate::seal::{SealTag, TAG_BYTES};

/// Objects that may wait between the two ends: one is taken while the other is made ready.
pub(crate) const DEPTH: usize = 2;

/// The tag of an object that is not sealed.
pub(crate) const NO_TAG: SealTag = [0; TAG_BYTES];

/// The value at which an eventfd counter is not writable.
const EVENTFD_FULL: u64 = u64::MAX - 1;

struct LoopbackShared {
    state: Mutex<LoopbackState>,
    changed: Condvar,
    /// Readable while an object waits or the sender is gone.
    arrived: OwnedFd,
    /// Writable while there is room: the counter is full while the queue is full.
    room: OwnedFd,
}

#[derive(Default)]
struct LoopbackState {
    waiting: VecDeque<(FrameHeader, Slot, SealTag)>,
    is_finished: bool,
    sender_gone: bool,
    receiver_gone: bool,
    /// True for each of the two counters that is raised.
    shown: (bool, bool),
}

impl LoopbackState {
    fn is_full(&self) -> bool {
        self.waiting.len() >= DEPTH && !self.receiver_gone
    }

    /// Returns true if the receiver has an object to take, or the end of the stream to see.
    fn has_arrived(&self) -> bool {
        !self.waiting.is_empty() || self.is_finished || self.sender_gone
    }
}
impl LoopbackShared {
    fn lock(&self) -> MutexGuard<'_, LoopbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps up to the caller's patience while `blocked` returns true.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, LoopbackState>,
        patience: EndpointWaitLimit,
        blocked: impl Fn(&LoopbackState) -> bool,
    ) -> MutexGuard<'a, LoopbackState> {
        match patience {
            EndpointWaitLimit::None => state,
            EndpointWaitLimit::Brief => {
                let brief = Duration::from_millis(EndpointWaitLimit::BRIEF_MS);
                let waited = self.changed.wait_timeout_while(state, brief, |state| blocked(state));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Updates the readiness of the two descriptors from the state.
    fn update_readiness(&self, state: &mut LoopbackState) {
        let (has_arrived, is_full) = (state.has_arrived(), state.is_full());
        let was = std::mem::replace(&mut state.shown, (has_arrived, is_full));
        if was.0 != has_arrived {
            set_counter(&self.arrived, has_arrived, 1);
        }
        if was.1 != is_full {
            set_counter(&self.room, is_full, EVENTFD_FULL);
        }
        self.changed.notify_all();
    }
}

fn set_counter(fd: &OwnedFd, raised: bool, value: u64) {
    // Both calls fail with EAGAIN where the counter already has that state.
    let _ = rustix::io::read(fd, &mut [0; 8][..]);
    if raised {
        let _ = rustix::io::write(fd, &value.to_ne_bytes());
    }
}

/// Two connected endpoints.
pub fn loopback_pair() -> std::io::Result<(LoopbackSender, LoopbackReceiver)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let shared = Arc::new(LoopbackShared {
        state: Mutex::default(),
        changed: Condvar::new(),
        arrived: eventfd(0, flags)?,
        room: eventfd(0, flags)?,
    });
    Ok((LoopbackSender { shared: Arc::clone(&shared) }, LoopbackReceiver { shared }))
}

/// The source's end.
pub struct LoopbackSender {
    shared: Arc<LoopbackShared>,
}

impl LoopbackSender {
    /// Posts an object with its seal's tag.
    pub(crate) fn post_tagged(
        &mut self,
        outgoing: OutgoingObject,
        tag: SealTag,
    ) -> Result<(), OutgoingObject> {
        let mut state = self.shared.lock();
        match outgoing.payload {
            ObjectPayload::Slot(slot) if state.waiting.len() < DEPTH => {
                state.waiting.push_back((outgoing.header, slot, tag));
                self.shared.update_readiness(&mut state);
                Ok(())
            }
            payload => Err(OutgoingObject { payload, ..outgoing }),
        }
    }
}

impl TransportSendEndpoint for LoopbackSender {
    fn post(&mut self, outgoing: OutgoingObject) -> Result<(), OutgoingObject> {
        self.post_tagged(outgoing, NO_TAG)
    }

    fn advance(&mut self, patience: EndpointWaitLimit) -> Result<SenderReadiness, TransportError> {
        let state = self.shared.wait(self.shared.lock(), patience, LoopbackState::is_full);
        if state.receiver_gone {
            return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        }
        Ok(if state.is_full() { SenderReadiness::Busy } else { SenderReadiness::Idle })
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.room.as_fd()
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        let mut state = self.shared.lock();
        state.is_finished = true;
        self.shared.update_readiness(&mut state);
        Ok(())
    }
}

impl Drop for LoopbackSender {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sender_gone = true;
        self.shared.update_readiness(&mut state);
    }
}

/// The sink's end.
pub struct LoopbackReceiver {
    shared: Arc<LoopbackShared>,
}

impl LoopbackReceiver {
    /// Takes the next object and its seal's tag.
    pub(crate) fn take_tagged(&mut self, patience: EndpointWaitLimit) -> (ReceiveResult, SealTag) {
        let mut state = self.shared.wait(self.shared.lock(), patience, |state| !state.has_arrived());
        if let Some((header, slot, tag)) = state.waiting.pop_front() {
            self.shared.update_readiness(&mut state);
            return (ReceiveResult::Object(IncomingObject { header, slot }), tag);
        }
        let is_over = state.is_finished || state.sender_gone;
        (if is_over { ReceiveResult::Closed } else { ReceiveResult::Pending }, NO_TAG)
    }
}

impl ReceiveEndpoint for LoopbackReceiver {
    fn advance(
        &mut self,
        patience: EndpointWaitLimit,
        _slots: &SlotPool,
    ) -> Result<ReceiveResult, TransportError> {
        Ok(self.take_tagged(patience).0)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.arrived.as_fd()
    }
}

impl Drop for LoopbackReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.receiver_gone = true;
        state.waiting.clear();
        self.shared.update_readiness(&mut state);
    }
}
