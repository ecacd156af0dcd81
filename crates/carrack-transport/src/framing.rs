//! Frames out of and into a stream of bytes: one object or control message at a time, resumable at every
//! byte.
//!
//! The tcp endpoints and the control link share this code and differ only in the system call that moves the
//! bytes. Where the connection is sealed, an object's tag follows its header: header, tag, body.

use std::io::{self, ErrorKind, IoSlice};

use carrack_machine::{Slot, SlotPool};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES};

use crate::endpoint_interface::{IncomingObject, TransportError};
use crate::seal::{ConnectionCipherState, SealTag, TAG_BYTES};

/// Bytes in front of a body: the header, and the tag of a sealed object.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + TAG_BYTES;

/// The bytes behind a header.
enum FrameBody {
    Slot(Slot),
    Control(Vec<u8>),
}

impl FrameBody {
    fn bytes(&self) -> &[u8] {
        match self {
            FrameBody::Slot(slot) => slot.bytes(),
            FrameBody::Control(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            FrameBody::Slot(slot) => slot.bytes_mut(),
            FrameBody::Control(bytes) => bytes,
        }
    }
}

/// A frame to send.
pub(crate) struct FrameWriter {
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    body: FrameBody,
    body_len: usize,
    sent: usize,
}

impl FrameWriter {
    pub(crate) fn object(header: &FrameHeader, slot: Slot) -> FrameWriter {
        FrameWriter::new(header, FrameBody::Slot(slot), header.body_len as usize)
    }

    /// The same, sealed. The sealed bytes replace the slot's content.
    pub(crate) fn sealed_object(
        header: &FrameHeader,
        mut slot: Slot,
        seal: &mut ConnectionCipherState,
    ) -> FrameWriter {
        let tag = seal.seal(&header.encode(), &mut slot.bytes_mut()[..header.body_len as usize]);
        let mut writer = FrameWriter::object(header, slot);
        writer.head[HEADER_BYTES..].copy_from_slice(&tag);
        writer.head_len = HEAD_BYTES_MAX;
        writer
    }

    /// Only the header: the caller sends the body.
    pub(crate) fn header_only(header: &FrameHeader) -> FrameWriter {
        FrameWriter::new(header, FrameBody::Control(Vec::new()), 0)
    }

    pub(crate) fn control(lane: u32, body: Vec<u8>) -> FrameWriter {
        let (header, body_len) = (FrameHeader::control(body.len() as u32), body.len());
        FrameWriter::new(&FrameHeader { lane, ..header }, FrameBody::Control(body), body_len)
    }

    fn new(header: &FrameHeader, body: FrameBody, body_len: usize) -> FrameWriter {
        let mut head = [0; HEAD_BYTES_MAX];
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        FrameWriter { head, head_len: HEADER_BYTES, body, body_len, sent: 0 }
    }

    /// Sends until the frame is out (true) or `send` would block (false).
    pub(crate) fn advance(
        &mut self,
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        while self.sent < self.head_len + self.body_len {
            match send(&self.remaining_slices()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn remaining_slices(&self) -> [IoSlice<'_>; 2] {
        let head = &self.head[self.sent.min(self.head_len)..self.head_len];
        let body = &self.body.bytes()[self.sent.saturating_sub(self.head_len)..self.body_len];
        [IoSlice::new(head), IoSlice::new(body)]
    }
}

/// A whole frame.
pub(crate) enum ReceivedFrame {
    Object(IncomingObject),
    Control { lane: u32, body: Vec<u8> },
}

/// The result of an attempt to read a frame.
pub(crate) enum FrameReadResult {
    Frame(ReceivedFrame),
    Pending,
    Closed,
}

/// Puts frames together from a stream of bytes.
pub(crate) struct FrameReader {
    slot_bytes: u32,
    seal: Option<ConnectionCipherState>,
    head: [u8; HEAD_BYTES_MAX],
    head_got: usize,
    body: Option<(FrameHeader, FrameBody)>,
    body_got: usize,
}

impl FrameReader {
    /// A reader of objects of at most `slot_bytes`.
    pub(crate) fn new(slot_bytes: u32) -> FrameReader {
        FrameReader {
            slot_bytes,
            seal: None,
            head: [0; HEAD_BYTES_MAX],
            head_got: 0,
            body: None,
            body_got: 0,
        }
    }

    /// The same, where every object is sealed.
    pub(crate) fn with_seal(slot_bytes: u32, seal: Option<ConnectionCipherState>) -> FrameReader {
        FrameReader { seal, ..FrameReader::new(slot_bytes) }
    }

    /// Receives until a frame is whole or `receive` would block.
    pub(crate) fn advance(
        &mut self,
        slots: &SlotPool,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<FrameReadResult, TransportError> {
        loop {
            if let Some(frame) = self.take_complete_frame()? {
                return Ok(FrameReadResult::Frame(frame));
            }
            match receive(self.unfilled_buffer()) {
                Ok(0) if self.head_got == 0 => return Ok(FrameReadResult::Closed),
                Ok(0) => return Err(TransportError::Truncated),
                Ok(count) => self.record_received(count, slots)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(FrameReadResult::Pending),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns true while a frame has arrived in part.
    pub(crate) fn is_midway(&self) -> bool {
        self.head_got > 0
    }

    fn head_len(&self) -> usize {
        if self.seal.is_some() { HEAD_BYTES_MAX } else { HEADER_BYTES }
    }

    fn unfilled_buffer(&mut self) -> &mut [u8] {
        let head_len = self.head_len();
        match &mut self.body {
            Some((header, body)) => &mut body.bytes_mut()[self.body_got..header.body_len as usize],
            None => &mut self.head[self.head_got..head_len],
        }
    }

    fn record_received(&mut self, count: usize, slots: &SlotPool) -> Result<(), TransportError> {
        if self.body.is_some() {
            self.body_got += count;
            return Ok(());
        }
        self.head_got += count;
        if self.head_got == self.head_len() {
            // During the handshake the pool's slots may be smaller than those that will be agreed.
            let slot_bytes = self.slot_bytes.min(u32::try_from(slots.slot_bytes()).unwrap_or(u32::MAX));
            let header = FrameHeader::decode(self.header(), slot_bytes)?;
            let body = match header.kind {
                FrameKind::Control => FrameBody::Control(vec![0; header.body_len as usize]),
                // A credit stands for a free slot, so the lease fails only if the peer sent more objects than
                // it had credits.
                FrameKind::Object | FrameKind::Bundle => {
                    FrameBody::Slot(slots.try_lease().ok_or(TransportError::NoCredit)?)
                }
            };
            self.body = Some((header, body));
            self.body_got = 0;
        }
        Ok(())
    }

    fn header(&self) -> &[u8; HEADER_BYTES] {
        self.head.first_chunk().expect("a head is longer than a header")
    }

    fn tag(&self) -> SealTag {
        *self.head.last_chunk().expect("a head is longer than a tag")
    }

    fn take_complete_frame(&mut self) -> Result<Option<ReceivedFrame>, TransportError> {
        let is_whole =
            self.body.as_ref().is_some_and(|(header, _)| header.body_len as usize == self.body_got);
        let Some((header, mut body)) = self.body.take_if(|_| is_whole) else { return Ok(None) };
        self.head_got = 0;
        let (encoded, tag) = (*self.header(), self.tag());
        if let Some(seal) = &mut self.seal {
            seal.open(&encoded, &mut body.bytes_mut()[..header.body_len as usize], &tag)?;
        }
        Ok(Some(match body {
            FrameBody::Slot(slot) => ReceivedFrame::Object(IncomingObject { header, slot }),
            FrameBody::Control(body) => ReceivedFrame::Control { lane: header.lane, body },
        }))
    }
}
