//! The comm thread's loop, the same at both ends (L3): it serves the control link and the endpoints that no
//! I/O thread drives, runs the lane's progress engine if there is one, and sleeps in `poll` only.
//!
//! Each end's [`CommHandler`] handles the messages and the ready endpoints.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_transport::fabric::FabricProgressEngine;
use carrack_transport::{ControlLinkInput, IncomingObject, SessionControlLink, TransportError};
use carrack_wire::message::{ControlMessage, CountersMessage, KeepaliveMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::first_error::FirstSessionError;
use crate::suspension_detector::SuspensionDetector;

/// The longest interval of heartbeats. An idle end also sends at least four in the time after which it would
/// count as dead.
const HEARTBEAT_MAX: Duration = Duration::from_secs(5);

/// The interval at which counters are sent and progress is reported.
pub(crate) const COUNTERS_EVERY: Duration = Duration::from_millis(500);

/// The time that a failing session waits for the other end's reason.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// Messages that are handled before the next turn of the endpoints.
const MESSAGES_A_TURN: usize = 64;

/// The part of an end that its comm thread calls.
pub(crate) trait CommHandler {
    /// Handles the mailbox, timers and queues. Returns the time by which it must be called again.
    fn process_pending_work(
        &mut self,
        link: &mut SessionControlLink,
        now: Instant,
    ) -> Result<Instant, SessionError>;

    /// Handles a control message.
    fn handle_control_message(&mut self, message: ControlMessage) -> Result<(), SessionError>;

    /// Handles an object that the link has carried.
    fn handle_object(&mut self, incoming: IncomingObject) -> Result<(), SessionError>;

    /// Returns the endpoints that no I/O thread drives, and the events for which each waits.
    fn endpoints(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Handles ready endpoints, by their indices in `endpoints()` in rising order.
    fn handle_ready_endpoints(&mut self, places: &[usize]) -> Result<(), SessionError>;

    /// Readable when `process_pending_work` has work.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Resets earlier wake-ups.
    fn reset_wakeups(&self);

    /// Returns the present counters, which the other end of a failing session gets.
    fn last_counters(&self) -> Option<CountersMessage> {
        None
    }

    /// Returns true if the session has ended.
    fn is_over(&self) -> bool;

    /// Returns true if the other end may leave without a message.
    fn peer_may_disconnect(&self) -> bool {
        self.is_over()
    }
}

/// The state of the loop, apart from its side.
pub(crate) struct CommLoop<'a> {
    pub(crate) link: SessionControlLink,
    /// Dropped before the other end learns of the session's end, so that it can't read this end's memory any
    /// more.
    pub(crate) hub: Option<Box<dyn FabricProgressEngine>>,
    pub(crate) pool: &'a SlotPool,
    pub(crate) abort: &'a AbortHandle,
    pub(crate) fault: &'a FirstSessionError,
    /// The silence after which the other end counts as dead.
    pub(crate) stall: Duration,
}

impl CommLoop<'_> {
    /// Runs until the session ends or fails. The other end gets a message about a failure.
    pub(crate) fn run(&mut self, side: &mut dyn CommHandler) -> Result<(), SessionError> {
        let error = match self.run_until_over(side) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        self.hub = None;
        // A cut link is mostly the consequence of an error that another thread may have seen first; other
        // errors explain themselves.
        let error = match error {
            SessionError::PeerGone => self.fault.take().unwrap_or(error),
            error => error,
        };
        let error = self.await_peer_reason(error, side);
        if error.distance_from_cause() == 0 {
            let counters = side.last_counters().map(|counters| ControlMessage::Counters(counters).to_body());
            counters.into_iter().for_each(|body| self.link.queue_control(body));
            self.link.queue_control(ControlMessage::Abort(error.to_message()).to_body());
            // The other end may be gone.
            self.link.close_by(Instant::now() + LAST_WORDS);
        }
        Err(error)
    }

    fn run_until_over(&mut self, side: &mut dyn CommHandler) -> Result<(), SessionError> {
        let mut last_heard = Instant::now();
        let mut last_said = Instant::now();
        let heartbeat = HEARTBEAT_MAX.min(self.stall / 4);
        let mut presence = SuspensionDetector::new(last_heard);
        loop {
            let now = Instant::now();
            last_heard += presence.take_suspended_time(now);
            side.reset_wakeups();
            self.check_abort_and_errors()?;
            if side.is_over() {
                self.hub = None;
            }
            let hub_rest = self.hub.as_mut().map_or(Ok(heartbeat), |hub| hub.make_progress())?;
            let look_again = side.process_pending_work(&mut self.link, now)?;
            if now.duration_since(last_said) >= heartbeat {
                self.link.queue_control(ControlMessage::Heartbeat(KeepaliveMessage {}).to_body());
                last_said = now;
            }
            let Ok(is_flushed) = self.link.flush() else { return self.drain_last_messages(side) };
            if side.is_over() && is_flushed {
                return Ok(());
            }
            let wake_at = look_again.min(now + heartbeat.min(hub_rest));
            let (heard, places) = self.wait_for_events(side, is_flushed, wake_at)?;
            if heard {
                last_heard = Instant::now();
                if self.receive_messages(side)? == ControlReadOutcome::LastWord {
                    return Ok(());
                }
            }
            // Time in which this process was stopped does not count.
            if now.saturating_duration_since(last_heard) > self.stall {
                return Err(SessionError::PeerStalled(self.stall.as_secs()));
            }
            side.handle_ready_endpoints(&places)?;
        }
    }

    /// Reads the last messages of the other end, which does not read any more: the last may be that all is
    /// done.
    fn drain_last_messages(&mut self, side: &mut dyn CommHandler) -> Result<(), SessionError> {
        let deadline = Instant::now() + LAST_WORDS;
        while let Ok(Some(body)) = self.link.receive_control_by(self.pool, deadline) {
            side.handle_control_message(check_session_message(ControlMessage::from_body(&body)?)?)?;
            if side.is_over() {
                return Ok(());
            }
        }
        if side.peer_may_disconnect() { Ok(()) } else { Err(SessionError::PeerGone) }
    }

    fn check_abort_and_errors(&self) -> Result<(), SessionError> {
        if self.abort.is_set() {
            return Err(self.abort.error());
        }
        if self.fault.is_raised() {
            return Err(self.fault.take().unwrap_or(SessionError::Internal));
        }
        Ok(())
    }

    /// Returns true if the link has data, and the indices of the ready endpoints.
    fn wait_for_events(
        &self,
        side: &dyn CommHandler,
        is_flushed: bool,
        wake_at: Instant,
    ) -> Result<(bool, Vec<usize>), SessionError> {
        let output = if is_flushed { PollFlags::empty() } else { PollFlags::OUT };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.link.input(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.link.output(), output),
            PollFd::from_borrowed_fd(self.abort.readiness(), PollFlags::IN),
            PollFd::from_borrowed_fd(side.wake_fd(), PollFlags::IN),
        ];
        let fixed_count = fds.len();
        let endpoints = side.endpoints();
        let of_side = fixed_count..fixed_count + endpoints.len();
        let of_hub = self.hub.iter().flat_map(|hub| hub.readiness());
        fds.extend(
            endpoints.into_iter().chain(of_hub).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)),
        );
        // `poll` does not see bytes that the link has decrypted already.
        let has_unread = self.link.has_unread();
        let wake_at = if has_unread { Instant::now() } else { wake_at };
        let left = wake_at.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SessionError::local("waiting")(error.into())),
        }
        let ready = fds[of_side].iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
        let places = ready.map(|(place, _)| place).collect();
        Ok((has_unread || !fds[0].revents().is_empty(), places))
    }

    fn receive_messages(&mut self, side: &mut dyn CommHandler) -> Result<ControlReadOutcome, SessionError> {
        for _ in 0..MESSAGES_A_TURN {
            match self.link.receive(self.pool) {
                Ok(ControlLinkInput::Control { lane: 1.., .. }) => {
                    return Err(SessionError::Protocol("a message for a lane that there isn't".into()));
                }
                Ok(ControlLinkInput::Control { lane: 0, body }) => {
                    side.handle_control_message(check_session_message(ControlMessage::from_body(&body)?)?)?
                }
                Ok(ControlLinkInput::Object(incoming)) => side.handle_object(incoming)?,
                Ok(ControlLinkInput::Pending) => return Ok(ControlReadOutcome::Words),
                Ok(ControlLinkInput::Closed) | Err(TransportError::Io(_) | TransportError::Truncated)
                    if side.peer_may_disconnect() =>
                {
                    return Ok(ControlReadOutcome::LastWord);
                }
                Ok(ControlLinkInput::Closed) | Err(TransportError::Io(_) | TransportError::Truncated) => {
                    return Err(SessionError::PeerGone);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ControlReadOutcome::Words)
    }

    /// Waits for the other end's reason: a broken data connection is mostly the consequence of an error
    /// there.
    fn await_peer_reason(&mut self, error: SessionError, side: &mut dyn CommHandler) -> SessionError {
        if !matches!(
            error,
            SessionError::Transport(TransportError::Io(_) | TransportError::Truncated)
                | SessionError::PeerGone
        ) {
            return error;
        }
        let deadline = Instant::now() + LAST_WORDS;
        while let Ok(Some(body)) = self.link.receive_control_by(self.pool, deadline) {
            match ControlMessage::from_body(&body) {
                Ok(ControlMessage::Abort(message)) => return SessionError::from_abort(message),
                Ok(ControlMessage::Refuse(message)) => return SessionError::from_refusal(message),
                // An error about the session's liveness does not matter any more.
                Ok(ControlMessage::Counters(counters)) => {
                    drop(side.handle_control_message(ControlMessage::Counters(counters)))
                }
                _ => {}
            }
        }
        error
    }
}

/// The outcome of reading the link.
#[derive(PartialEq, Eq)]
enum ControlReadOutcome {
    /// More messages may follow.
    Words,
    /// The other end has left, as it may.
    LastWord,
}

/// Refuses messages that are not part of a session. The dialling end may have lost a connection, or its last
/// proof, when all connections were established at this end.
fn check_session_message(message: ControlMessage) -> Result<ControlMessage, SessionError> {
    match message {
        ControlMessage::Dial(_) | ControlMessage::DialFailed(_) => {
            Err(SessionError::Protocol("it gave up data connections that stand here".into()))
        }
        // The other end could not place its lanes.
        ControlMessage::Refuse(message) => Err(SessionError::from_refusal(message)),
        message => Ok(message),
    }
}
