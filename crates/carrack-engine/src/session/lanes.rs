//! How many lanes a session has, and how each comes to a link of its own.
//!
//! Both ends say what they would like; the one that was called decides (N7). Where there are several lanes, their control
//! messages share the session's link: a relay, on a thread of its own, carries each lane's messages between that link and
//! the lane, and knows nothing of what they say.

use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carrack_machine::SlotPool;
use carrack_model::limits::{LANE_IO_THREADS_MIN, LANES_MAX, SLOT_COUNT_MIN};
use carrack_transport::{Link, LinkInput, TransportError};
use carrack_wire::message::Lanes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::error::{STARTING_A_THREAD, SessionError};
use crate::settings::Settings;

/// Messages that may wait for a link before those that follow are left where they are.
const QUEUE_MAX: usize = 256;

/// How long the last messages may take when all lanes have ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What this end would like: a lane for each of so many places of its machine, where storage would like `depth` requests
/// at a time.
pub(super) fn wish(settings: &Settings, places: usize, depth: u32, slot_bytes: u32) -> Lanes {
    let by_requests = match settings.scheduling.in_flight_max {
        0 => u32::MAX,
        most => most,
    };
    if settings.lanes > 0 {
        let lanes = by_requests.min(settings.lanes as u32);
        return Lanes { wanted: lanes, most: lanes };
    }
    let by_threads = settings.io_thread_count(depth) / LANE_IO_THREADS_MIN;
    let by_slots = settings.slot_count(slot_bytes) as usize / SLOT_COUNT_MIN;
    let most = by_requests.min(by_threads.min(by_slots) as u32);
    Lanes { wanted: places as u32, most }
}

/// As many lanes as the machine with more places for them would like, if both ends have a use for them.
pub(super) fn agree(here: Lanes, there: Lanes) -> usize {
    let wanted = here.wanted.max(there.wanted);
    wanted.min(here.most).min(there.most).clamp(1, LANES_MAX as u32) as usize
}

/// Two ends of a link within this process.
pub(super) fn link_pair(slot_bytes: u32) -> Result<(Link, Link), SessionError> {
    let make = || -> std::io::Result<(Link, Link)> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let link = |fd: OwnedFd| Link::over_pipes(fd.try_clone()?, fd, slot_bytes);
        Ok((link(here)?, link(there)?))
    };
    make().map_err(SessionError::local("making a link"))
}

/// A link for each lane; all of them lead to `link`, the only lane's is `link` itself.
pub(super) fn lane_links(
    link: Link,
    lane_count: usize,
    slot_bytes: u32,
) -> Result<(Vec<Link>, Option<RelayThread>), SessionError> {
    if lane_count == 1 {
        return Ok((vec![link], None));
    }
    let pairs = (0..lane_count).map(|_| link_pair(slot_bytes)).collect::<Result<Vec<_>, _>>()?;
    let (inner, outer): (Vec<Link>, Vec<Link>) = pairs.into_iter().unzip();
    let relay =
        Relay { link, lanes: outer.into_iter().map(Some).collect(), slots: SlotPool::new(4096, 4096)? };
    let named = thread::Builder::new().name("carrack-relay".into());
    let started = named.spawn(move || relay.run()).map_err(SessionError::local(STARTING_A_THREAD))?;
    Ok((inner, Some(RelayThread(Some(started)))))
}

/// The relay's thread. Dropped, it is waited for: it ends when all lanes have dropped their links.
pub(super) struct RelayThread(Option<JoinHandle<()>>);

impl Drop for RelayThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // It can't panic but by a defect; then the lanes have found their links closed.
            let _ = thread.join();
        }
    }
}

/// Carries control messages between the session's link and the lanes'.
struct Relay {
    link: Link,
    /// Nothing for a lane that has ended.
    lanes: Vec<Option<Link>>,
    /// Never used: objects don't travel on these links.
    slots: SlotPool,
}

/// What one turn of the relay came to.
#[derive(PartialEq, Eq)]
enum Turn {
    GoOn,
    /// The other end is gone, or broke a rule: the lanes find their links closed.
    Lost,
}

impl Relay {
    /// Until all lanes have ended, or the other end is gone.
    fn run(mut self) {
        while self.lanes.iter().any(Option::is_some) {
            if self.turn() == Turn::Lost {
                return;
            }
        }
        // The other end may be gone; then nobody is left to be told.
        let _ = self.link.flush_by(Instant::now() + LAST_WORDS);
    }

    fn turn(&mut self) -> Turn {
        if self.sleep().is_err() || self.hear_other_end() == Turn::Lost || self.hear_lanes() == Turn::Lost {
            return Turn::Lost;
        }
        if self.link.flush().is_err() {
            // The other end may have said its last words, and left, since it was listened to.
            self.hear_other_end();
            return self.last_words();
        }
        for lane in &mut self.lanes {
            // A lane that has ended reads no more.
            if lane.as_mut().is_some_and(|link| link.flush().is_err()) {
                *lane = None;
            }
        }
        Turn::GoOn
    }

    /// Whether every lane takes what may come from the other end.
    fn lanes_keep_up(&self) -> bool {
        self.lanes.iter().flatten().all(|link| link.queued_count() < QUEUE_MAX)
    }

    fn link_keeps_up(&self) -> bool {
        self.link.queued_count() < QUEUE_MAX
    }

    fn sleep(&self) -> rustix::io::Result<()> {
        let reads = |yes: bool| if yes { PollFlags::IN } else { PollFlags::empty() };
        let writes = |link: &Link| if link.queued_count() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        // One that is not to be read is left out: poll would report at once, and again, that its other end has left.
        let mut fds = Vec::new();
        let mut add = |fd, wanted: PollFlags| {
            if !wanted.is_empty() {
                fds.push(PollFd::from_borrowed_fd(fd, wanted));
            }
        };
        add(self.link.input(), reads(self.lanes_keep_up()));
        add(self.link.output(), writes(&self.link));
        for link in self.lanes.iter().flatten() {
            add(link.input(), reads(self.link_keeps_up()) | writes(link));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn hear_other_end(&mut self) -> Turn {
        while self.lanes_keep_up() {
            match self.link.receive(&self.slots) {
                Ok(LinkInput::Control { lane, body }) => match self.lanes.get_mut(lane as usize) {
                    Some(Some(link)) => link.queue_control(body),
                    // What was said to a lane that has ended was said too late.
                    Some(None) => {}
                    None => return Turn::Lost,
                },
                Ok(LinkInput::Pending) => return Turn::GoOn,
                Ok(LinkInput::Object(_) | LinkInput::Closed) | Err(_) => return self.last_words(),
            }
        }
        Turn::GoOn
    }

    /// What the other end said before it went reaches the lanes.
    fn last_words(&mut self) -> Turn {
        for link in self.lanes.iter_mut().flatten() {
            let _ = link.flush_by(Instant::now() + LAST_WORDS);
        }
        Turn::Lost
    }

    fn hear_lanes(&mut self) -> Turn {
        for index in 0..self.lanes.len() {
            while self.link_keeps_up() {
                let Some(link) = &mut self.lanes[index] else { break };
                match link.receive(&self.slots) {
                    Ok(LinkInput::Control { body, .. }) => self.link.queue_control_for(index as u32, body),
                    Ok(LinkInput::Pending) => break,
                    Ok(LinkInput::Closed) | Err(TransportError::Io(_) | TransportError::Truncated) => {
                        self.lanes[index] = None;
                    }
                    Ok(LinkInput::Object(_)) | Err(_) => return Turn::Lost,
                }
            }
        }
        Turn::GoOn
    }
}

#[cfg(test)]
mod tests {
    use carrack_model::{PolicyChoice, Scheduling};

    use super::*;

    #[test]
    fn whoever_holds_back_uses_both_sockets_all_the_same() {
        let wish = |scheduling| wish(&Settings { scheduling, ..Settings::default() }, 2, 16, 1 << 20);
        let two = |lanes: Lanes| lanes.wanted == 2 && lanes.most >= 2;
        assert!(two(wish(Scheduling::default())));
        assert!(two(wish(Scheduling { rate: 1, target_rate: 1, ..Scheduling::default() })));
        let policy = PolicyChoice::Adaptive { nice: true };
        assert!(two(wish(Scheduling { policy, in_flight_max: 2, ..Scheduling::default() })));
        // Each lane has a request of its own.
        assert_eq!(wish(Scheduling { in_flight_max: 1, ..Scheduling::default() }).most, 1);
    }
}
