//! The events of the daemon's loop, by `epoll`: ten thousand silent connections cost nothing while they are
//! silent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Events that are taken with one call.
const BATCH: usize = 256;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonEventSource {
    /// One of the signals.
    Signal,
    /// The listening socket of this index.
    Listener(u64),
    /// The half-open connection of this number.
    Stranger(u64),
    /// The session of this number.
    Session(u64),
}

impl DaemonEventSource {
    /// Returns the value for `epoll`, with the kind in the two lowest bits.
    fn to_data(self) -> EventData {
        EventData::new_u64(match self {
            DaemonEventSource::Signal => 0,
            DaemonEventSource::Listener(index) => index << 2 | 1,
            DaemonEventSource::Stranger(number) => number << 2 | 2,
            DaemonEventSource::Session(number) => number << 2 | 3,
        })
    }

    fn of(data: EventData) -> DaemonEventSource {
        let data = data.u64();
        let number = data >> 2;
        match data & 3 {
            0 => DaemonEventSource::Signal,
            1 => DaemonEventSource::Listener(number),
            2 => DaemonEventSource::Stranger(number),
            _ => DaemonEventSource::Session(number),
        }
    }
}

/// The kernel's list of watched descriptors.
#[derive(Debug)]
pub struct EventPoll(OwnedFd);

impl EventPoll {
    /// Creates an empty list.
    pub fn new() -> io::Result<EventPoll> {
        Ok(EventPoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a descriptor and reports it as long as there is something to read.
    pub fn watch(&self, what: impl AsFd, source: DaemonEventSource) -> io::Result<()> {
        Ok(epoll::add(&self.0, what, source.to_data(), EventFlags::IN)?)
    }

    /// Watches a descriptor and reports it once for each arrival (edge-triggered): bytes may stay in the
    /// socket.
    pub fn watch_changes(&self, what: impl AsFd, source: DaemonEventSource) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, what, source.to_data(), flags)?)
    }

    /// Changes a watched descriptor: it is also reported when there is room to write, or no longer.
    pub fn update_watch(&self, what: impl AsFd, source: DaemonEventSource, writes: bool) -> io::Result<()> {
        let flags = if writes { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.0, what, source.to_data(), flags)?)
    }

    /// Stops watching a descriptor.
    pub fn unwatch(&self, what: impl AsFd) -> io::Result<()> {
        match epoll::delete(&self.0, what) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until there is an event, or `patience` is over.
    pub fn wait(&self, patience: Option<Duration>) -> io::Result<Vec<DaemonEventSource>> {
        let timeout = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        });
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; BATCH];
        match epoll::wait(&self.0, &mut events[..], timeout.as_ref()) {
            Ok(count) => Ok(events[..count].iter().map(|event| DaemonEventSource::of(event.data)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
