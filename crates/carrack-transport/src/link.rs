//! The control link: control messages over a pair of descriptors such as the pipes of ssh, and, where no data
//! connection could be made, the objects too.
//!
//! Before the session runs it is used with deadlines by one thread; then it belongs to the comm thread, which never
//! waits for it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carrack_machine::{Slot, SlotPool};
use carrack_wire::FrameHeader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::endpoint::{Incoming, TransportError};
use crate::framing::{Frame, FrameInput, FrameReader, FrameWriter};

/// What came over the link.
#[derive(Debug)]
pub enum LinkInput {
    /// The body of a control message, and the lane that it is for.
    Control {
        /// 0 is the first lane.
        lane: u32,
        /// As encoded.
        body: Vec<u8>,
    },
    /// An object.
    Object(Incoming),
    /// Nothing (more) at present.
    Pending,
    /// The other end is gone.
    Closed,
}

/// One end of the control link.
pub struct Link {
    input: OwnedFd,
    output: OwnedFd,
    reader: FrameReader,
    queue: VecDeque<FrameWriter>,
    /// Readable when waiting shall end.
    interrupt: Option<OwnedFd>,
}

impl Link {
    /// Over a descriptor to read from and one to write to; both become non-blocking.
    pub fn new(input: OwnedFd, output: OwnedFd, slot_bytes: u32) -> io::Result<Link> {
        for fd in [&input, &output] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(Link {
            input,
            output,
            reader: FrameReader::new(slot_bytes),
            queue: VecDeque::new(),
            interrupt: None,
        })
    }

    /// The calls with a deadline also end, with `ErrorKind::Interrupted`, when `fd` becomes readable; nothing for
    /// only at their deadline.
    pub fn interrupt_on(&mut self, fd: Option<OwnedFd>) {
        self.interrupt = fd;
    }

    /// Whether that has happened.
    pub fn is_interrupted(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.interrupt.as_ref().is_some_and(|fd| {
            let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
            poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }

    /// From now on, objects may have `slot_bytes` at most. Only between two frames.
    pub fn set_slot_bytes(&mut self, slot_bytes: u32) {
        self.reader = FrameReader::new(slot_bytes);
    }

    /// Queues a control message for the first lane, or the only one that this link leads to.
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

    /// Frames that are not out yet.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Writes what can be written without waiting; true when nothing is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(frame) = self.queue.front_mut() {
            let output = &self.output;
            if !frame.advance(|parts| Ok(rustix::io::writev(output, parts)?))? {
                return Ok(false);
            }
            self.queue.pop_front();
        }
        Ok(true)
    }

    /// Reads on without waiting.
    pub fn receive(&mut self, slots: &SlotPool) -> Result<LinkInput, TransportError> {
        let fd = &self.input;
        Ok(match self.reader.advance(slots, |buffer| Ok(rustix::io::read(fd, buffer)?))? {
            FrameInput::Frame(Frame::Control { lane, body }) => LinkInput::Control { lane, body },
            FrameInput::Frame(Frame::Object(incoming)) => LinkInput::Object(incoming),
            FrameInput::Pending => LinkInput::Pending,
            FrameInput::Closed => LinkInput::Closed,
        })
    }

    /// The descriptor to read from.
    pub fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// The descriptor to write to.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Writes everything that is queued, until `deadline` at most.
    pub fn flush_by(&mut self, deadline: Instant) -> io::Result<()> {
        while !self.flush()? {
            self.wait_for(self.output.as_fd(), PollFlags::OUT, deadline)?;
        }
        Ok(())
    }

    /// The next control message, until `deadline` at most (`ErrorKind::TimedOut`); nothing if the other end is gone.
    pub fn receive_control_by(
        &mut self,
        slots: &SlotPool,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, TransportError> {
        loop {
            match self.receive(slots)? {
                LinkInput::Control { body, .. } => return Ok(Some(body)),
                LinkInput::Closed => return Ok(None),
                LinkInput::Object(_) => return Err(TransportError::NoCredit),
                LinkInput::Pending => self.wait_for(self.input.as_fd(), PollFlags::IN, deadline)?,
            }
        }
    }

    /// Raw bytes in front of the first frame: writes `bytes` ahead of everything that is queued.
    pub fn write_raw_by(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.output, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::AGAIN) => {
                    self.wait_for(self.output.as_fd(), PollFlags::OUT, deadline)?
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Raw bytes in front of the first frame: fills `buffer` as far as the other end goes on before it closes.
    pub fn read_raw_by(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match rustix::io::read(&self.input, &mut buffer[got..]) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(rustix::io::Errno::AGAIN) => {
                    self.wait_for(self.input.as_fd(), PollFlags::IN, deadline)?
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
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
