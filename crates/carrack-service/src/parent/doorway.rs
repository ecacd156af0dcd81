//! Half-open connections: accepted up to a limit, classified by their first bytes, and given a process or
//! passed to a session.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use carrack_transport::{ConnectionEvictionOrder, PeerAddressPrefix};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::events::DaemonEventSource;
use super::first_bytes::{self, ConnectionKind};
use super::session::ChildSession;
use super::sockets::{AcceptResult, accept};
use super::{DaemonMainProcess, DaemonPhase};

/// Connections that are accepted before other events get their turn.
const ACCEPTED_AT_ONCE: usize = 64;

/// Descriptors of the daemon's own: signals, sockets, logs, and those for starting a process.
const OWN_DESCRIPTORS: u64 = 48;

/// Returns true if the client closed the connection while it waited for a process.
fn has_left(stream: &TcpStream) -> bool {
    let mut looked = [PollFd::new(stream, PollFlags::RDHUP)];
    let left = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked, Some(&now)).is_ok() && looked[0].revents().intersects(left)
}

impl DaemonMainProcess {
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.sockets.listeners().nth(index) else { return };
            match accept(listener) {
                AcceptResult::Connection(stream, peer) => self.add_half_open(stream, peer),
                AcceptResult::None => return,
                AcceptResult::NoDescriptors => {
                    // The prefix with the most half-open connections makes room. If there is none, the new
                    // connection is closed.
                    match self.strangers.take_of_largest() {
                        Some(closed) => self.uncount_address(closed.peer),
                        None => self.reserve.turn_away(listener),
                    }
                    self.log.detail(|| "no descriptors left: a connection was closed".to_owned());
                }
                AcceptResult::Trouble(error) => {
                    self.log.warn(format!("accepting: {error}"));
                    // Most likely memory. The connection stays in the kernel's queue; without a pause this
                    // loop would spin.
                    return std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Returns the limit of half-open connections. They must not take the descriptors that sessions need, two
    /// for each, even if the configuration allows more of them.
    pub(super) fn half_open_max(&self) -> u64 {
        let limits = &self.plan.config.limits;
        let needed = OWN_DESCRIPTORS + 2 * (limits.sessions + limits.handshakes);
        limits.half_open.min(self.descriptors.saturating_sub(needed).max(self.descriptors / 4))
    }

    fn add_half_open(&mut self, stream: TcpStream, peer: SocketAddr) {
        let place = PeerAddressPrefix::of(peer);
        let limits = &self.plan.config.limits;
        if self.counts.count(place) as u64 >= limits.per_address {
            // A silent connection makes room for a new one, which may say something.
            match self.strangers.take_silent_of(place) {
                Some(silent) => self.uncount_address(silent.peer),
                None => return self.log.detail(|| format!("{peer}: too many connections from there")),
            }
        }
        if self.strangers.len() as u64 >= self.half_open_max()
            && let Some(closed) = self.strangers.take_of_largest()
        {
            self.uncount_address(closed.peer);
            self.log.detail(|| format!("{}: closed, there are too many that say nothing", closed.peer));
        }
        self.counts.add(place);
        let number = self.strangers.add(stream, peer, Instant::now());
        let watched = match self.strangers.get(number) {
            Some(stranger) => {
                self.events.watch_changes(&stranger.stream, DaemonEventSource::Stranger(number))
            }
            None => Ok(()),
        };
        if let Err(error) = watched {
            self.log.warn(format!("{peer}: {error}"));
            self.close_half_open(number);
        }
    }

    /// Closes a half-open connection. Its descriptor is closed with it, which takes it out of `epoll` too.
    pub(super) fn close_half_open(&mut self, number: u64) {
        if let Some(stranger) = self.strangers.take(number) {
            self.uncount_address(stranger.peer);
        }
    }

    /// Takes a connection out of `epoll` before it is passed on: it would stay there although the descriptor
    /// is closed here (epoll(7)).
    fn unwatch(&self, stream: &TcpStream) {
        if let Err(error) = self.events.unwatch(stream) {
            self.log.warn(format!("epoll: {error}"));
        }
    }

    pub(super) fn uncount_address(&mut self, peer: SocketAddr) {
        self.counts.remove(PeerAddressPrefix::of(peer));
    }

    pub(super) fn handle_half_open(&mut self, number: u64) {
        let Some(stranger) = self.strangers.get(number) else { return };
        match first_bytes::classify_connection(&stranger.stream) {
            ConnectionKind::Unknown => {}
            ConnectionKind::Gone => self.close_half_open(number),
            ConnectionKind::Control if self.phase == DaemonPhase::Serving => {
                self.strangers.mark_waiting(number)
            }
            ConnectionKind::Data(nonce) => {
                let Some(stranger) = self.strangers.take(number) else { return };
                self.uncount_address(stranger.peer);
                self.unwatch(&stranger.stream);
                let session = self.sessions.values().find(|session| session.listens_as(&nonce));
                let handed = session.map(|session| session.pass_connection(&stranger.stream));
                if !matches!(handed, Some(Ok(()))) {
                    self.log.detail(|| {
                        format!("{}: a data connection for no session that takes one", stranger.peer)
                    });
                }
            }
            ConnectionKind::Control | ConnectionKind::Foreign => {
                let peer = stranger.peer;
                self.close_half_open(number);
                self.log.detail(|| format!("{peer}: closed, it did not begin as a carrack does"));
            }
        }
    }

    /// Returns the connection that gets the next process: of the prefix and the address with the fewest
    /// processes in their handshakes, and among those the connection that has waited longest. One address has
    /// a quarter of the places at most. If all places are taken, a prefix or address with more of them than
    /// the waiting one loses its oldest. A failed handshake keeps its place for a while, so that clients
    /// which begin one handshake after the other don't take the whole processor.
    fn next_served(&mut self) -> Option<u64> {
        self.strangers.waiting_connections().next()?;
        let limits = &self.plan.config.limits;
        let places = limits.handshakes as usize;
        let mut taken = ConnectionEvictionOrder::default();
        let mut count = 0;
        let now = Instant::now();
        let slow = limits.handshake_timeout() / 4;
        self.failed.retain(|_, failed| now.saturating_duration_since(failed.since) < slow);
        let shaking = self.sessions.values().filter(|session| session.is_in_handshake());
        let shaking = shaking.map(|session| (PeerAddressPrefix::of(session.peer), session.number));
        let failed = self.failed.iter().map(|(&number, failed)| (failed.place, number));
        for (place, number) in shaking.chain(failed) {
            taken.add(place, number);
            count += 1;
        }
        let share = (places / 4).max(1);
        let waiting = self.strangers.waiting_connections().map(|(number, stranger)| {
            let place = PeerAddressPrefix::of(stranger.peer);
            (taken.counts_of(place), number, place)
        });
        let (held, number, place) = waiting.filter(|(held, ..)| held.of_address < share).min()?;
        if count < places {
            return Some(number);
        }
        let (largest, oldest) = taken.eviction_candidate()?;
        let (most, own) = if largest.has_same_prefix(place) {
            (taken.counts_of(largest).of_address, held.of_address)
        } else {
            (taken.counts_of(largest).of_prefix, held.of_prefix)
        };
        if self.failed.contains_key(&oldest) {
            return (most > own + 1).then(|| self.failed.remove(&oldest)).map(|_| number);
        }
        let session = self.sessions.get_mut(&oldest)?;
        // Between nearly equal holders a handshake gets some time, so that they don't end each other's.
        let is_slow = now.saturating_duration_since(session.since) >= slow;
        if most > own + 1 || most > own && is_slow {
            self.log.detail(|| format!("{}: ended in its handshake, others waited", session.peer));
            session.kill("it was in its handshake while others waited");
            return Some(number);
        }
        None
    }

    /// Starts processes for waiting connections, as many as may be in their handshakes.
    pub(super) fn serve_waiting(&mut self) {
        while let Some(number) = self.next_served() {
            let Some(stranger) = self.strangers.take(number) else { return };
            self.unwatch(&stranger.stream);
            if has_left(&stranger.stream) {
                self.uncount_address(stranger.peer);
                continue;
            }
            let session = self.next_session;
            self.next_session += 1;
            let started =
                ChildSession::start(session, stranger.stream, stranger.peer, &self.charge, Instant::now())
                    .and_then(|started| {
                        self.events.watch(&started.socket, DaemonEventSource::Session(session))?;
                        Ok(started)
                    });
            match started {
                Ok(started) => {
                    self.sessions.insert(session, started);
                    self.handle_session_messages(session);
                }
                Err(error) => {
                    self.uncount_address(stranger.peer);
                    self.log.warn(format!("{}: no process for a session: {error}", stranger.peer));
                }
            }
        }
    }
}
