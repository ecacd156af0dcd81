//! Frames out of and into a stream of bytes: one object or control message at a time, resumable at every byte.
//!
//! Used by the tcp endpoints and by the control link; they differ only in the system call that moves the bytes.

use std::io::{self, ErrorKind, IoSlice};

use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES};

use crate::endpoint::{Incoming, TransportError};

/// The bytes behind a header.
enum Body {
    Slot(Slot),
    Control(Vec<u8>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Slot(slot) => slot.bytes(),
            Body::Control(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Body::Slot(slot) => slot.bytes_mut(),
            Body::Control(bytes) => bytes,
        }
    }
}

/// One frame on its way out.
pub(crate) struct FrameWriter {
    header: [u8; HEADER_BYTES],
    body: Body,
    body_len: usize,
    sent: usize,
}

impl FrameWriter {
    pub(crate) fn object(header: &FrameHeader, slot: Slot) -> FrameWriter {
        let body_len = header.body_len as usize;
        FrameWriter { header: header.encode(), body: Body::Slot(slot), body_len, sent: 0 }
    }

    /// Only the header: its body follows by another way.
    pub(crate) fn header_only(header: &FrameHeader) -> FrameWriter {
        FrameWriter { header: header.encode(), body: Body::Control(Vec::new()), body_len: 0, sent: 0 }
    }

    pub(crate) fn control(lane: u32, body: Vec<u8>) -> FrameWriter {
        let header = FrameHeader { lane, ..FrameHeader::control(body.len() as u32) }.encode();
        FrameWriter { header, body_len: body.len(), body: Body::Control(body), sent: 0 }
    }

    /// Sends until everything is out (true) or `send` would block (false).
    pub(crate) fn advance(
        &mut self,
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while self.sent < HEADER_BYTES + self.body_len {
            match send(&self.rest()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn rest(&self) -> [IoSlice<'_>; 2] {
        let header = &self.header[self.sent.min(HEADER_BYTES)..];
        let body = &self.body.bytes()[self.sent.saturating_sub(HEADER_BYTES)..self.body_len];
        [IoSlice::new(header), IoSlice::new(body)]
    }
}

/// A whole frame.
pub(crate) enum Frame {
    Object(Incoming),
    Control { lane: u32, body: Vec<u8> },
}

/// What reading gave.
pub(crate) enum FrameInput {
    Frame(Frame),
    Pending,
    Closed,
}

/// Puts frames together from a stream of bytes.
pub(crate) struct FrameReader {
    slot_bytes: u32,
    header: [u8; HEADER_BYTES],
    header_got: usize,
    body: Option<(FrameHeader, Body)>,
    body_got: usize,
}

impl FrameReader {
    /// Objects may have `slot_bytes` at most.
    pub(crate) fn new(slot_bytes: u32) -> FrameReader {
        FrameReader { slot_bytes, header: [0; HEADER_BYTES], header_got: 0, body: None, body_got: 0 }
    }

    /// Receives until a frame is whole or `receive` would block.
    pub(crate) fn advance(
        &mut self,
        slots: &SlotPool,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<FrameInput, TransportError> {
        loop {
            if let Some(frame) = self.take_whole() {
                return Ok(FrameInput::Frame(frame));
            }
            match receive(self.missing()) {
                Ok(0) if self.header_got == 0 => return Ok(FrameInput::Closed),
                Ok(0) => return Err(TransportError::Truncated),
                Ok(count) => self.got(count, slots)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(FrameInput::Pending),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn missing(&mut self) -> &mut [u8] {
        match &mut self.body {
            Some((header, body)) => &mut body.bytes_mut()[self.body_got..header.body_len as usize],
            None => &mut self.header[self.header_got..],
        }
    }

    fn got(&mut self, count: usize, slots: &SlotPool) -> Result<(), TransportError> {
        if self.body.is_some() {
            self.body_got += count;
            return Ok(());
        }
        self.header_got += count;
        if self.header_got == HEADER_BYTES {
            // During the handshake the pool's slots may be smaller than those that will be agreed.
            let slot_bytes = self.slot_bytes.min(u32::try_from(slots.slot_bytes()).unwrap_or(u32::MAX));
            let header = FrameHeader::decode(&self.header, slot_bytes)?;
            let body = match header.kind {
                FrameKind::Control => Body::Control(vec![0; header.body_len as usize]),
                // A credit stands for a free slot, so there is one unless the peer took more than it was given.
                FrameKind::Object | FrameKind::Bundle => {
                    Body::Slot(slots.try_lease().ok_or(TransportError::NoCredit)?)
                }
            };
            self.body = Some((header, body));
            self.body_got = 0;
        }
        Ok(())
    }

    fn take_whole(&mut self) -> Option<Frame> {
        let is_whole =
            self.body.as_ref().is_some_and(|(header, _)| header.body_len as usize == self.body_got);
        let (header, body) = self.body.take_if(|_| is_whole)?;
        self.header_got = 0;
        Some(match body {
            Body::Slot(slot) => Frame::Object(Incoming { header, slot }),
            Body::Control(body) => Frame::Control { lane: header.lane, body },
        })
    }
}
