//! The number of a session's lanes, and a link for each of them.
//!
//! Both ends send their wishes, and the responder decides (N7). Several lanes share the session's link: a
//! relay, on its own thread, carries each lane's control messages between that link and the lane, and does
//! not decode them.

use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::limits::{LANE_IO_THREADS_MIN, LANES_MAX, SLOT_COUNT_MIN};
use carrack_transport::{ControlLinkInput, SessionControlLink, TransportError};
use carrack_wire::message::LaneCountProposal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::error::{STARTING_A_THREAD, SessionError};
use crate::settings::EndSettings;

/// Messages that may wait for a link before further ones are left unread.
const QUEUE_MAX: usize = 256;

/// The time for the last messages after all lanes have ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Returns this end's wish: a lane for each of `places` places of its machine, if the storage can use `depth`
/// requests at a time.
pub(super) fn lane_count_proposal(
    settings: &EndSettings,
    places: usize,
    depth: u32,
    slot_bytes: u32,
) -> LaneCountProposal {
    let by_requests = match settings.scheduling.in_flight_max {
        0 => u32::MAX,
        most => most,
    };
    if settings.lanes > 0 {
        let lanes = by_requests.min(settings.lanes as u32);
        return LaneCountProposal { wanted: lanes, most: lanes };
    }
    let by_threads = settings.io_thread_count(depth) / LANE_IO_THREADS_MIN;
    let by_slots = settings.slot_count(slot_bytes) as usize / SLOT_COUNT_MIN;
    let most = by_requests.min(by_threads.min(by_slots) as u32);
    LaneCountProposal { wanted: places as u32, most }
}

/// Returns the number of lanes that the machine with more places wishes for, within both ends' limits.
pub(super) fn negotiate_lane_count(here: LaneCountProposal, there: LaneCountProposal) -> usize {
    let wanted = here.wanted.max(there.wanted);
    wanted.min(here.most).min(there.most).clamp(1, LANES_MAX as u32) as usize
}

/// Creates the two ends of a link within this process.
pub(super) fn link_pair(slot_bytes: u32) -> Result<(SessionControlLink, SessionControlLink), SessionError> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let links = pair
        .map_err(std::io::Error::from)
        .and_then(|(here, there)| Ok((link_over(here, slot_bytes)?, link_over(there, slot_bytes)?)));
    links.map_err(SessionError::local("making a link"))
}

fn link_over(socket: OwnedFd, slot_bytes: u32) -> std::io::Result<SessionControlLink> {
    SessionControlLink::over_pipes(socket.try_clone()?, socket, slot_bytes)
}

/// Returns a link for each lane; all of them lead to `link`. The link of a single lane is `link` itself.
pub(super) fn lane_links(
    link: SessionControlLink,
    lane_count: usize,
    slot_bytes: u32,
) -> Result<(Vec<SessionControlLink>, Option<LaneControlMultiplexerThread>), SessionError> {
    assert!(lane_count > 0, "a link leads to a lane");
    if lane_count == 1 {
        return Ok((vec![link], None));
    }
    let pairs = (0..lane_count).map(|_| link_pair(slot_bytes)).collect::<Result<Vec<_>, _>>()?;
    let (inner, outer): (Vec<SessionControlLink>, Vec<SessionControlLink>) = pairs.into_iter().unzip();
    let relay = ControlMultiplexer {
        link,
        lanes: outer.into_iter().map(Some).collect(),
        slots: SlotPool::new(4096, 4096)?,
    };
    let named = thread::Builder::new().name("carrack-relay".into());
    let started = named.spawn(move || relay.run()).map_err(SessionError::local(STARTING_A_THREAD))?;
    Ok((inner, Some(LaneControlMultiplexerThread(Some(started)))))
}

/// The relay's thread. Dropping it waits for its end, which comes when all lanes have dropped their links.
pub(super) struct LaneControlMultiplexerThread(Option<JoinHandle<()>>);

impl Drop for LaneControlMultiplexerThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // It panics only by a defect; the lanes have found their links closed then.
            let _ = thread.join();
        }
    }
}

/// Carries control messages between the session's link and the lanes' links.
struct ControlMultiplexer {
    link: SessionControlLink,
    /// `None` for a lane that has ended.
    lanes: Vec<Option<SessionControlLink>>,
    /// Never used: no objects are sent on these links.
    slots: SlotPool,
}

/// The outcome of a turn of the relay.
#[derive(PartialEq, Eq)]
enum MultiplexerTurnOutcome {
    GoOn,
    /// The other end is gone, or broke a rule: the lanes find their links closed.
    Lost,
}

/// What a lane has sent.
#[derive(PartialEq, Eq)]
enum LaneMessage {
    Forwarded,
    /// Nothing now, or it has ended.
    None,
    Unexpected,
}

impl ControlMultiplexer {
    /// Runs until all lanes have ended, or the other end is gone.
    fn run(mut self) {
        while self.lanes.iter().any(Option::is_some) {
            if self.run_once() == MultiplexerTurnOutcome::Lost {
                return;
            }
        }
        // The other end may be gone.
        let _ = self.link.flush_by(Instant::now() + LAST_WORDS);
    }

    fn run_once(&mut self) -> MultiplexerTurnOutcome {
        if self.wait_for_readiness().is_err()
            || self.forward_to_lanes() == MultiplexerTurnOutcome::Lost
            || self.forward_from_lanes() == MultiplexerTurnOutcome::Lost
        {
            return MultiplexerTurnOutcome::Lost;
        }
        if self.link.flush().is_err() {
            // The other end may have said its last words, and left, since it was listened to.
            self.forward_to_lanes();
            return self.flush_last_messages();
        }
        for index in 0..self.lanes.len() {
            // A lane that has ended reads no more; its last messages may not be read yet.
            if self.lanes[index].as_mut().is_some_and(|link| link.flush().is_err()) {
                while self.forward_one_from(index) == LaneMessage::Forwarded {}
                self.lanes[index] = None;
            }
        }
        MultiplexerTurnOutcome::GoOn
    }

    /// Returns true if every lane reads its messages fast enough.
    fn lanes_keep_up(&self) -> bool {
        self.lanes.iter().flatten().all(|link| link.queued_count() < QUEUE_MAX)
    }

    fn link_keeps_up(&self) -> bool {
        self.link.queued_count() < QUEUE_MAX
    }

    fn wait_for_readiness(&self) -> rustix::io::Result<()> {
        let mut wanted = vec![
            (self.link.input(), reads_if(self.lanes_keep_up())),
            (self.link.output(), writes(&self.link)),
        ];
        for link in self.lanes.iter().flatten() {
            wanted.push((link.input(), reads_if(self.link_keeps_up()) | writes(link)));
        }
        // A link that must not be read is left out: poll would report again and again that its other end has
        // left.
        wanted.retain(|(_, flags)| !flags.is_empty());
        let mut fds: Vec<PollFd<'_>> =
            wanted.into_iter().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forward_to_lanes(&mut self) -> MultiplexerTurnOutcome {
        while self.lanes_keep_up() {
            match self.link.receive(&self.slots) {
                Ok(ControlLinkInput::Control { lane, body }) => match self.lanes.get_mut(lane as usize) {
                    Some(Some(link)) => link.queue_control(body),
                    // The message to a lane that has ended came too late.
                    Some(None) => {}
                    None => return MultiplexerTurnOutcome::Lost,
                },
                Ok(ControlLinkInput::Pending) => return MultiplexerTurnOutcome::GoOn,
                Ok(ControlLinkInput::Object(_) | ControlLinkInput::Closed) | Err(_) => {
                    return self.flush_last_messages();
                }
            }
        }
        MultiplexerTurnOutcome::GoOn
    }

    /// Sends the other end's last messages to the lanes.
    fn flush_last_messages(&mut self) -> MultiplexerTurnOutcome {
        for link in self.lanes.iter_mut().flatten() {
            let _ = link.flush_by(Instant::now() + LAST_WORDS);
        }
        MultiplexerTurnOutcome::Lost
    }

    fn forward_from_lanes(&mut self) -> MultiplexerTurnOutcome {
        for index in 0..self.lanes.len() {
            while self.link_keeps_up() {
                match self.forward_one_from(index) {
                    LaneMessage::Forwarded => {}
                    LaneMessage::None => break,
                    LaneMessage::Unexpected => return MultiplexerTurnOutcome::Lost,
                }
            }
        }
        MultiplexerTurnOutcome::GoOn
    }

    /// Forwards the next message of a lane.
    fn forward_one_from(&mut self, index: usize) -> LaneMessage {
        let Some(link) = &mut self.lanes[index] else { return LaneMessage::None };
        match link.receive(&self.slots) {
            Ok(ControlLinkInput::Control { body, .. }) => {
                self.link.queue_control_for(index as u32, body);
                LaneMessage::Forwarded
            }
            Ok(ControlLinkInput::Pending) => LaneMessage::None,
            Ok(ControlLinkInput::Closed) | Err(TransportError::Io(_) | TransportError::Truncated) => {
                self.lanes[index] = None;
                LaneMessage::None
            }
            Ok(ControlLinkInput::Object(_)) | Err(_) => LaneMessage::Unexpected,
        }
    }
}

fn reads_if(may_read: bool) -> PollFlags {
    if may_read { PollFlags::IN } else { PollFlags::empty() }
}

fn writes(link: &SessionControlLink) -> PollFlags {
    if link.queued_count() > 0 { PollFlags::OUT } else { PollFlags::empty() }
}

#[cfg(test)]
mod tests {
    use carrack_model::{SchedulingOptions, SchedulingPolicyChoice};

    use super::*;

    #[test]
    fn whoever_holds_back_uses_both_sockets_all_the_same() {
        let policy = SchedulingPolicyChoice::Adaptive { nice: true };
        for scheduling in [
            SchedulingOptions::default(),
            SchedulingOptions { rate: 1, target_rate: 1, ..SchedulingOptions::default() },
            SchedulingOptions { policy, in_flight_max: 2, ..SchedulingOptions::default() },
        ] {
            let lanes = wish_with(scheduling);
            assert!(lanes.wanted == 2 && lanes.most >= 2, "{lanes:?}");
        }
        // Each lane has a different request.
        assert_eq!(wish_with(SchedulingOptions { in_flight_max: 1, ..SchedulingOptions::default() }).most, 1);
    }

    fn wish_with(scheduling: SchedulingOptions) -> LaneCountProposal {
        lane_count_proposal(&EndSettings { scheduling, ..EndSettings::default() }, 2, 16, 1 << 20)
    }
}
