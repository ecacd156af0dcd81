//! Data endpoints over TCP: the source pushes whole objects, and the sink's credits bound the bytes under
//! way.
//!
//! The socket blocks for [`EndpointWaitLimit::BRIEF_MS`]; a caller without patience passes `MSG_DONTWAIT`. So
//! a connection passes between I/O threads and the comm thread without a change of its mode.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use carrack_machine::SlotPool;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::endpoint_interface::{
    EndpointWaitLimit, ObjectPayload, OutgoingObject, ReceiveEndpoint, ReceiveResult, SenderReadiness,
    TransportError, TransportSendEndpoint,
};
use crate::framing::{FrameReadResult, FrameReader, FrameWriter, ReceivedFrame};
use crate::gauge::TcpStateReader;
use crate::seal::ConnectionCipherState;
use crate::sendfile_sender::SendfileSender;

/// Below this round-trip time the path is a machine or a building and needs no pacing. BBR's pacing costs a
/// third of the rate on loopback (6.5 against 9–10 GB/s, measured with 256 KiB sends on 2 cores).
pub const NEAR_RTT: Duration = Duration::from_millis(1);

/// Below this round-trip time two streams with buffers of [`BESIDE_BUFFER_BYTES`] carry 100 Gbit/s.
const BESIDE_RTT: Duration = Duration::from_micros(250);

/// The size of a socket's buffers on a path below [`BESIDE_RTT`]; the kernel doubles it. The kernel's own
/// choice grows to 4 and 32 MiB, and data that waits there leaves the caches: a tenth of the rate on
/// loopback.
const BESIDE_BUFFER_BYTES: usize = 1 << 20;

/// The congestion control of near paths. It doesn't pace.
const NEAR_CONGESTION_CONTROL: &[u8] = b"cubic";

/// Gives a socket the congestion control of near paths before it connects or listens, as the round-trip time
/// is known only later. The reverse order fails: a socket that began with BBR is paced for good (Linux 6.18:
/// a timer for every 64 KiB, a sixth of the CPU time on loopback).
pub fn set_near_congestion_control(socket: &SockRef<'_>) {
    // Not allowed everywhere. An error leaves the system's own choice.
    let _ = socket.set_tcp_congestion(NEAR_CONGESTION_CONTROL);
}

/// Bounds the segments of both ends (TCP_MAXSEG, tcp(7)). Takes effect before a socket connects or listens.
pub(crate) fn limit_segment_size(socket: &SockRef<'_>, bytes: Option<u32>) {
    // An error leaves the system's own segment size.
    let _ = bytes.map(|bytes| socket.set_tcp_mss(bytes));
}

/// The system's own congestion control, which an administrator may have chosen.
pub fn system_congestion_control() -> io::Result<String> {
    let fresh = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    let name = fresh.tcp_congestion()?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Connects within `timeout`. Neither end sends larger segments than `segment_bytes`, if given.
pub(crate) fn connect(
    address: SocketAddr,
    timeout: Duration,
    segment_bytes: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    set_near_congestion_control(&SockRef::from(&socket));
    limit_segment_size(&SockRef::from(&socket), segment_bytes);
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}

/// Makes an authenticated connection ready for objects. `rtt` is the round-trip time of its handshake. The
/// socket began with the congestion control of near paths.
pub fn prepare_stream(stream: &TcpStream, rtt: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    stream.set_nonblocking(false)?;
    socket.set_tcp_nodelay(true)?;
    let brief = Duration::from_millis(EndpointWaitLimit::BRIEF_MS);
    stream.set_read_timeout(Some(brief))?;
    stream.set_write_timeout(Some(brief))?;
    if rtt >= NEAR_RTT {
        let _ = socket.set_tcp_congestion(system_congestion_control()?.as_bytes());
    } else if rtt < BESIDE_RTT {
        socket.set_send_buffer_size(BESIDE_BUFFER_BYTES)?;
        socket.set_recv_buffer_size(BESIDE_BUFFER_BYTES)?;
    }
    Ok(())
}

/// Keepalive probes without an answer before the connection counts as broken.
const PROBES: u32 = 4;

/// Makes the kernel notice within about `patience` that the other end of an idle connection has vanished. The
/// kernel counts in seconds.
pub(crate) fn keep_alive(socket: &SockRef<'_>, patience: Duration) -> io::Result<()> {
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new()
        .with_time((patience / 2).max(second))
        .with_interval((patience / (2 * PROBES)).max(second))
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// The source's end of a connection.
pub struct TcpSender {
    stream: Arc<TcpStream>,
    seal: Option<ConnectionCipherState>,
    frame: Option<FrameWriter>,
    /// The body that follows the frame, if it is sent from a file.
    extent: Option<SendfileSender>,
}

impl TcpSender {
    /// A sender on a connection that [`prepare_stream`] has made ready.
    pub fn new(stream: TcpStream) -> TcpSender {
        TcpSender::with_seal(stream, None)
    }

    /// The same, where every object is sealed.
    pub fn with_seal(stream: TcpStream, seal: Option<ConnectionCipherState>) -> TcpSender {
        TcpSender { stream: Arc::new(stream), seal, frame: None, extent: None }
    }
}

impl TransportSendEndpoint for TcpSender {
    fn seals(&self) -> bool {
        self.seal.is_some()
    }

    fn sends_extents(&self) -> bool {
        self.seal.is_none()
    }

    fn post(&mut self, outgoing: OutgoingObject) -> Result<(), OutgoingObject> {
        if self.frame.is_some() || self.extent.is_some() {
            return Err(outgoing);
        }
        let header = outgoing.header;
        match (outgoing.payload, &mut self.seal) {
            (ObjectPayload::Slot(slot), None) => self.frame = Some(FrameWriter::object(&header, slot)),
            (ObjectPayload::Slot(slot), Some(seal)) => {
                self.frame = Some(FrameWriter::sealed_object(&header, slot, seal));
            }
            (payload @ ObjectPayload::Extent(_), Some(_)) => return Err(OutgoingObject { header, payload }),
            (ObjectPayload::Extent(file), None) => {
                self.frame = Some(FrameWriter::header_only(&header));
                self.extent = Some(SendfileSender::new(file, &header));
            }
        }
        Ok(())
    }

    fn advance(&mut self, patience: EndpointWaitLimit) -> Result<SenderReadiness, TransportError> {
        let stream = &*self.stream;
        if let Some(frame) = &mut self.frame {
            let mut flags = send_flags(patience);
            flags.set(SendFlags::MORE, self.extent.is_some());
            let is_sent = frame
                .advance(|parts| Ok(sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags)?))?;
            if !is_sent {
                return Ok(SenderReadiness::Busy);
            }
            self.frame = None;
        }
        if let Some(extent) = &mut self.extent {
            if !extent.advance(stream, patience)? {
                return Ok(SenderReadiness::Busy);
            }
            self.extent = None;
        }
        Ok(SenderReadiness::Idle)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    fn tcp_state_reader(&self) -> Option<TcpStateReader> {
        Some(TcpStateReader::of(&self.stream))
    }
}

pub(crate) fn send_flags(patience: EndpointWaitLimit) -> SendFlags {
    match patience {
        EndpointWaitLimit::None => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        EndpointWaitLimit::Brief => SendFlags::NOSIGNAL,
    }
}

/// The sink's end of a connection.
pub struct TcpReceiver {
    stream: TcpStream,
    reader: FrameReader,
    /// The counter of bytes that arrived, shared with other connections.
    arrived: Arc<AtomicU64>,
}

impl TcpReceiver {
    /// A receiver on a connection that [`prepare_stream`] has made ready. Objects may have `slot_bytes` at
    /// most.
    pub fn new(stream: TcpStream, slot_bytes: u32) -> TcpReceiver {
        TcpReceiver::with_seal(stream, slot_bytes, None)
    }

    /// The same, where every object is sealed.
    pub fn with_seal(stream: TcpStream, slot_bytes: u32, seal: Option<ConnectionCipherState>) -> TcpReceiver {
        TcpReceiver { stream, reader: FrameReader::with_seal(slot_bytes, seal), arrived: Arc::default() }
    }
}

impl ReceiveEndpoint for TcpReceiver {
    fn advance(
        &mut self,
        patience: EndpointWaitLimit,
        slots: &SlotPool,
    ) -> Result<ReceiveResult, TransportError> {
        let flags = match patience {
            EndpointWaitLimit::None => RecvFlags::DONTWAIT,
            EndpointWaitLimit::Brief => RecvFlags::WAITALL,
        };
        let (stream, arrived) = (&self.stream, &self.arrived);
        let input = self.reader.advance(slots, |buffer| {
            let count = recv(stream, buffer, flags)?.0;
            arrived.fetch_add(count as u64, Relaxed);
            Ok(count)
        })?;
        Ok(match input {
            FrameReadResult::Frame(ReceivedFrame::Object(incoming)) => ReceiveResult::Object(incoming),
            FrameReadResult::Frame(ReceivedFrame::Control { .. }) => {
                return Err(TransportError::ControlOnData);
            }
            FrameReadResult::Pending => ReceiveResult::Pending,
            FrameReadResult::Closed => ReceiveResult::Closed,
        })
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn count_received_bytes(&mut self, arrived: Arc<AtomicU64>) {
        self.arrived = arrived;
    }

    fn is_midway(&self) -> bool {
        self.reader.is_midway()
    }
}
