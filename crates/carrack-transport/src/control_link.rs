//! The control link: control messages over a pair of descriptors such as the pipes of ssh, or over TLS, and
//! objects too where no data connection could be made.
//!
//! Before the session runs, one thread uses the link with deadlines. Then it belongs to the comm thread,
//! which never waits for it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carrack_machine::{Slot, SlotPool};
use carrack_wire::FrameHeader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::endpoint_interface::{IncomingObject, TransportError};
use crate::framing::{FrameReadResult, FrameReader, FrameWriter, ReceivedFrame};
use crate::seal::SECRET_BYTES;
use crate::tls::TlsChannel;

/// The result of an attempt to receive.
#[derive(Debug)]
pub enum ControlLinkInput {
    /// The body of a control message, with its lane.
    Control {
        /// The lane's index; 0 is the first.
        lane: u32,
        /// The encoded message.
        body: Vec<u8>,
    },
    /// An object.
    Object(IncomingObject),
    /// No whole frame at present.
    Pending,
    /// The other end has closed the link.
    Closed,
}

/// The byte stream under a control link. Authenticated and encrypted, except for links within a process.
#[derive(Debug)]
pub enum ControlChannel {
    /// A pair of descriptors, protected by ssh.
    Pipes {
        /// The descriptor to read from.
        input: OwnedFd,
        /// The descriptor to write to.
        output: OwnedFd,
    },
    /// TLS 1.3 between the two ends.
    Tls(Box<TlsChannel>),
}

impl ControlChannel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ControlChannel::Pipes { input, .. } => Ok(rustix::io::read(input, buffer)?),
            ControlChannel::Tls(tls) => tls.read(buffer),
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            ControlChannel::Pipes { output, .. } => Ok(rustix::io::writev(output, parts)?),
            ControlChannel::Tls(tls) => tls.write(parts),
        }
    }

    /// Sends encrypted bytes that wait. Returns true if none is left in this process.
    fn push(&mut self) -> io::Result<bool> {
        match self {
            ControlChannel::Pipes { .. } => Ok(true),
            ControlChannel::Tls(tls) => tls.push(),
        }
    }

    fn input(&self) -> BorrowedFd<'_> {
        match self {
            ControlChannel::Pipes { input, .. } => input.as_fd(),
            ControlChannel::Tls(tls) => tls.readiness(),
        }
    }

    fn output(&self) -> BorrowedFd<'_> {
        match self {
            ControlChannel::Pipes { output, .. } => output.as_fd(),
            ControlChannel::Tls(tls) => tls.readiness(),
        }
    }
}

/// One end of the control link.
pub struct SessionControlLink {
    channel: ControlChannel,
    reader: FrameReader,
    queue: VecDeque<FrameWriter>,
    /// Readable when a wait must end.
    interrupt: Option<OwnedFd>,
}

impl SessionControlLink {
    /// A link over a channel, whose descriptors become non-blocking. Objects may have `slot_bytes` at most.
    pub fn new(channel: ControlChannel, slot_bytes: u32) -> io::Result<SessionControlLink> {
        for fd in [channel.input(), channel.output()] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(SessionControlLink {
            channel,
            reader: FrameReader::new(slot_bytes),
            queue: VecDeque::new(),
            interrupt: None,
        })
    }

    /// A link over two pipes or both ends of one socket.
    pub fn over_pipes(input: OwnedFd, output: OwnedFd, slot_bytes: u32) -> io::Result<SessionControlLink> {
        SessionControlLink::new(ControlChannel::Pipes { input, output }, slot_bytes)
    }

    /// The secret that only the two ends of this link have; `None` for a link other than one TLS connection.
    pub fn exporter(&self) -> Result<Option<[u8; SECRET_BYTES]>, rustls::Error> {
        match &self.channel {
            ControlChannel::Pipes { .. } => Ok(None),
            ControlChannel::Tls(tls) => tls.exporter().map(Some),
        }
    }

    /// Makes the calls with a deadline also end, with `ErrorKind::Interrupted`, when `fd` becomes readable.
    /// With `None` they end only at the deadline.
    pub fn interrupt_on(&mut self, fd: Option<OwnedFd>) {
        self.interrupt = fd;
    }

    /// Returns true if the interrupting descriptor is readable.
    pub fn is_interrupted(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.interrupt.as_ref().is_some_and(|fd| {
            let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
            poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }

    /// Returns true if the channel is a TLS connection of this process.
    pub fn is_tls(&self) -> bool {
        matches!(self.channel, ControlChannel::Tls(_))
    }

    /// Makes the kernel notice within about `patience` that the other end has vanished. Where ssh carries the
    /// link, ssh does so. Errors are ignored, as the session has a watch of its own.
    pub fn set_peer_timeout(&self, patience: Duration) {
        if let ControlChannel::Tls(tls) = &self.channel {
            tls.set_peer_timeout(patience);
        }
    }

    /// Sets the largest object to `slot_bytes`. Only between two frames.
    pub fn set_slot_bytes(&mut self, slot_bytes: u32) {
        self.reader = FrameReader::new(slot_bytes);
    }

    /// Queues a control message for the first lane, or for the only lane of this link.
    pub fn queue_control(&mut self, body: Vec<u8>) {
        self.queue_control_for(0, body);
    }

    /// Queues a control message for a lane.
    pub fn queue_control_for(&mut self, lane: u32, body: Vec<u8>) {
        self.queue.push_back(FrameWriter::control(lane, body));
    }

    /// Queues an object.
    pub fn queue_object(&mut self, header: &FrameHeader, slot: Slot) {
        self.queue.push_back(FrameWriter::object(header, slot));
    }

    /// Frames that have not left this process.
    pub fn queued_count(&self) -> usize {
        let is_leaving = matches!(&self.channel, ControlChannel::Tls(tls) if tls.has_unsent());
        self.queue.len() + usize::from(is_leaving)
    }

    /// Returns true if bytes are decrypted and unread, which `poll` does not show.
    pub fn has_unread(&self) -> bool {
        matches!(&self.channel, ControlChannel::Tls(tls) if tls.has_unread())
    }

    /// Writes without waiting. Returns true when the queue is empty.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(frame) = self.queue.front_mut() {
            let channel = &mut self.channel;
            if !frame.advance(|parts| channel.write(parts))? {
                return Ok(false);
            }
            self.queue.pop_front();
        }
        self.channel.push()
    }

    /// Reads without waiting.
    pub fn receive(&mut self, slots: &SlotPool) -> Result<ControlLinkInput, TransportError> {
        let channel = &mut self.channel;
        Ok(match self.reader.advance(slots, |buffer| channel.read(buffer))? {
            FrameReadResult::Frame(ReceivedFrame::Control { lane, body }) => {
                ControlLinkInput::Control { lane, body }
            }
            FrameReadResult::Frame(ReceivedFrame::Object(incoming)) => ControlLinkInput::Object(incoming),
            FrameReadResult::Pending => ControlLinkInput::Pending,
            FrameReadResult::Closed => ControlLinkInput::Closed,
        })
    }

    /// The descriptor to read from.
    pub fn input(&self) -> BorrowedFd<'_> {
        self.channel.input()
    }

    /// The descriptor to write to.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.channel.output()
    }

    /// Writes the whole queue, or fails at `deadline`.
    pub fn flush_by(&mut self, deadline: Instant) -> io::Result<()> {
        while !self.flush()? {
            self.wait_for(self.output(), PollFlags::OUT, deadline)?;
        }
        Ok(())
    }

    /// Flushes the queue, closes the link and waits until `deadline` at most for the other end to close.
    pub fn close_by(&mut self, deadline: Instant) {
        if let (Ok(()), ControlChannel::Tls(tls)) = (self.flush_by(deadline), &mut self.channel) {
            tls.close_by(deadline);
        }
    }

    /// Returns the next control message; `None` if the other end has closed the link. Fails at `deadline`
    /// with `ErrorKind::TimedOut`.
    pub fn receive_control_by(
        &mut self,
        slots: &SlotPool,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, TransportError> {
        loop {
            match self.receive(slots)? {
                ControlLinkInput::Control { body, .. } => return Ok(Some(body)),
                ControlLinkInput::Closed => return Ok(None),
                ControlLinkInput::Object(_) => return Err(TransportError::NoCredit),
                ControlLinkInput::Pending => self.wait_for(self.input(), PollFlags::IN, deadline)?,
            }
        }
    }

    /// Writes raw bytes in front of the first frame, ahead of the queue.
    pub fn write_raw_by(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.channel.write(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_for(self.output(), PollFlags::OUT, deadline)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while !self.channel.push()? {
            self.wait_for(self.output(), PollFlags::OUT, deadline)?;
        }
        Ok(())
    }

    /// Reads raw bytes in front of the first frame, until `buffer` is full or the other end closes the link.
    pub fn read_raw_by(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.channel.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_for(self.input(), PollFlags::IN, deadline)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }

    fn wait_for(&self, fd: BorrowedFd<'_>, events: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut fds = vec![PollFd::from_borrowed_fd(fd, events)];
        fds.extend(self.interrupt.as_ref().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        match poll(&mut fds, Some(&to_timespec(left))) {
            Ok(_) if fds.get(1).is_some_and(|interrupt| !interrupt.revents().is_empty()) => {
                Err(ErrorKind::Interrupted.into())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) fn to_timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
