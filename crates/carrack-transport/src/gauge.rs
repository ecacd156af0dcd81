//! The kernel's view of a TCP connection: unsent bytes, the state of the path, and the congestion control.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::ioctl::{Getter, Opcode, ioctl};
use socket2::SockRef;

/// `SIOCOUTQNSD` (linux/sockios.h): the unsent bytes, as an `int`.
const NOT_SENT: Opcode = 0x894B;

/// Reads the state of a connection that an endpoint owns.
#[derive(Clone, Debug)]
pub struct TcpStateReader(Weak<TcpStream>);

/// The state of a connection's path, as TCP measures it (`TCP_INFO`, tcp(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpPathState {
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// The shortest round trip of the last minutes: that of a path without queues.
    pub round_trip_min: Duration,
    /// Payload that the other end has acknowledged.
    pub acked_bytes: u64,
    /// Segments with data that were sent, with the retransmitted ones.
    pub segments: u64,
    /// Segments with data that were retransmitted.
    pub retransmitted: u64,
}

/// The beginning of `struct tcp_info` (linux/tcp.h), as Linux 4.6 and newer fill it in.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TcpInfo {
    flags: [u8; 8],
    before_rtt: [u32; 15],
    rtt_us: u32,
    before_retransmitted: [u32; 7],
    retransmitted: u32,
    pacing_rates: [u64; 2],
    acked_bytes: u64,
    received_bytes: u64,
    before_min_rtt: [u32; 3],
    min_rtt_us: u32,
    data_segments_in: u32,
    data_segments: u32,
}

impl TcpStateReader {
    pub(crate) fn of(stream: &Arc<TcpStream>) -> TcpStateReader {
        TcpStateReader(Arc::downgrade(stream))
    }

    /// Bytes that were written and not sent yet; 0 when the connection is closed or broken.
    pub fn unsent_bytes(&self) -> u64 {
        let Some(stream) = self.0.upgrade() else { return 0 };
        // SAFETY: for a TCP socket the kernel writes an `int`, for which the getter has room, and keeps no
        // pointer.
        let count = unsafe { ioctl(&*stream, Getter::<NOT_SENT, c_int>::new()) };
        count.ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    /// The state of the path; `None` when the connection is closed.
    pub fn path(&self) -> Option<TcpPathState> {
        let stream = self.0.upgrade()?;
        let mut info = TcpInfo::default();
        let mut len = size_of::<TcpInfo>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, plain numbers, to memory of that size; it keeps no
        // pointer.
        let failed = unsafe {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
            libc::getsockopt(stream.as_raw_fd(), level, name, (&raw mut info).cast(), &raw mut len)
        };
        (failed == 0).then(|| TcpPathState {
            round_trip: Duration::from_micros(info.rtt_us.into()),
            round_trip_min: Duration::from_micros(info.min_rtt_us.into()),
            acked_bytes: info.acked_bytes,
            segments: info.data_segments.into(),
            retransmitted: info.retransmitted.into(),
        })
    }

    /// Sets the congestion control of the connection (TCP_CONGESTION, tcp(7)).
    ///
    /// # Errors
    /// `NotFound` if the kernel has none of this name, `PermissionDenied` if this user may not set it.
    pub fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        match self.0.upgrade() {
            Some(stream) => SockRef::from(&*stream).set_tcp_congestion(name.as_bytes()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    #[allow(clippy::unwrap_used)]
    fn what_the_other_end_does_not_take_waits_here() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut far = listener.accept().unwrap().0;
        let gauge = TcpStateReader::of(&near);
        assert_eq!((gauge.unsent_bytes(), gauge.path().unwrap().segments), (0, 0));
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = (&*near).write(&[7; 65_536]) {
            written += count;
        }
        let waiting = gauge.unsent_bytes();
        assert!(waiting > 0 && waiting < written as u64, "{waiting} of {written}");
        far.read_exact(&mut vec![0; written]).unwrap();
        assert_eq!(gauge.unsent_bytes(), 0);
        let path = gauge.path().unwrap();
        // A segment on loopback has 64 KiB at most.
        assert!(path.segments >= written as u64 >> 16 && path.segments < written as u64 / 500, "{path:?}");
        assert!(path.round_trip > Duration::ZERO && path.round_trip < Duration::from_secs(5), "{path:?}");
        assert!(path.retransmitted <= path.segments, "{path:?}");
        assert!(path.acked_bytes >= written as u64, "{path:?}");
        assert!(Duration::ZERO < path.round_trip_min && path.round_trip_min <= path.round_trip, "{path:?}");
        assert!(gauge.set_congestion_control("reno").is_ok());
        let refused = gauge.set_congestion_control("no-such-control").unwrap_err();
        assert!([io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied].contains(&refused.kind()));
        drop(near);
        assert_eq!((gauge.unsent_bytes(), gauge.path()), (0, None));
    }
}
