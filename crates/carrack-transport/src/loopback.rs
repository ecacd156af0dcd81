//! Endpoints within one process: the slot itself changes hands, no byte is copied.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_machine::{Slot, SlotPool};
use carrack_wire::FrameHeader;
use rustix::event::{EventfdFlags, eventfd};

use crate::endpoint::{
    Incoming, Outgoing, Patience, Payload, ReceiveEndpoint, Received, SendEndpoint, SendState, TransportError,
};
use crate::seal::{TAG_BYTES, Tag};

/// Objects that may wait between the two: one that is taken and one that is ready.
pub(crate) const DEPTH: usize = 2;

/// Of an object that is not sealed.
pub(crate) const NO_TAG: Tag = [0; TAG_BYTES];

/// An eventfd counter that, once raised to its maximum, is not writable.
const EVENTFD_FULL: u64 = u64::MAX - 1;

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Readable while something waits or the sender is gone.
    arrived: OwnedFd,
    /// Writable while there is room: its counter is full while the queue is.
    room: OwnedFd,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(FrameHeader, Slot, Tag)>,
    is_finished: bool,
    sender_gone: bool,
    receiver_gone: bool,
    /// Whether the two counters are raised.
    shown: (bool, bool),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps up to the caller's patience while `blocked`.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Patience,
        blocked: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        match patience {
            Patience::None => state,
            Patience::Brief => {
                let brief = Duration::from_millis(Patience::BRIEF_MS);
                let waited = self.changed.wait_timeout_while(state, brief, |state| blocked(state));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Makes the two descriptors say what the state is.
    fn signal(&self, state: &mut State) {
        let has_arrived = !state.waiting.is_empty() || state.is_finished || state.sender_gone;
        let is_full = state.waiting.len() >= DEPTH && !state.receiver_gone;
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
    // Both calls fail with EAGAIN where the counter is already as wanted.
    let _ = rustix::io::read(fd, &mut [0; 8][..]);
    if raised {
        let _ = rustix::io::write(fd, &value.to_ne_bytes());
    }
}

/// Two connected endpoints.
pub fn loopback_pair() -> std::io::Result<(LoopbackSender, LoopbackReceiver)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        arrived: eventfd(0, flags)?,
        room: eventfd(0, flags)?,
    });
    Ok((LoopbackSender { shared: Arc::clone(&shared) }, LoopbackReceiver { shared }))
}

/// The source's end.
pub struct LoopbackSender {
    shared: Arc<Shared>,
}

impl LoopbackSender {
    /// Posts an object with its seal's tag.
    pub(crate) fn post_tagged(&mut self, outgoing: Outgoing, tag: Tag) -> Result<(), Outgoing> {
        let mut state = self.shared.lock();
        match outgoing.payload {
            Payload::Slot(slot) if state.waiting.len() < DEPTH => {
                state.waiting.push_back((outgoing.header, slot, tag));
                self.shared.signal(&mut state);
                Ok(())
            }
            payload => Err(Outgoing { payload, ..outgoing }),
        }
    }
}

impl SendEndpoint for LoopbackSender {
    fn post(&mut self, outgoing: Outgoing) -> Result<(), Outgoing> {
        self.post_tagged(outgoing, NO_TAG)
    }

    fn advance(&mut self, patience: Patience) -> Result<SendState, TransportError> {
        let is_full = |state: &State| state.waiting.len() >= DEPTH && !state.receiver_gone;
        let state = self.shared.wait(self.shared.lock(), patience, is_full);
        if state.receiver_gone {
            return Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
        }
        Ok(if is_full(&state) { SendState::Busy } else { SendState::Idle })
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.shared.room.as_fd()
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        let mut state = self.shared.lock();
        state.is_finished = true;
        self.shared.signal(&mut state);
        Ok(())
    }
}

impl Drop for LoopbackSender {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sender_gone = true;
        self.shared.signal(&mut state);
    }
}

/// The sink's end.
pub struct LoopbackReceiver {
    shared: Arc<Shared>,
}

impl LoopbackReceiver {
    /// The next object, and its seal's tag.
    pub(crate) fn take_tagged(&mut self, patience: Patience) -> (Received, Tag) {
        let is_empty = |state: &State| state.waiting.is_empty() && !state.is_finished && !state.sender_gone;
        let mut state = self.shared.wait(self.shared.lock(), patience, is_empty);
        if let Some((header, slot, tag)) = state.waiting.pop_front() {
            self.shared.signal(&mut state);
            return (Received::Object(Incoming { header, slot }), tag);
        }
        let is_over = state.is_finished || state.sender_gone;
        (if is_over { Received::Closed } else { Received::Pending }, NO_TAG)
    }
}

impl ReceiveEndpoint for LoopbackReceiver {
    fn advance(&mut self, patience: Patience, _slots: &SlotPool) -> Result<Received, TransportError> {
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
        self.shared.signal(&mut state);
    }
}
