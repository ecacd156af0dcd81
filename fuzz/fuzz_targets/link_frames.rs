//! The control link's frame reader over a pipe, against a reader that sees all bytes at once. Input: a seed for where
//! the bytes are cut and which slots are kept (2 bytes), then the bytes.
#![no_main]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use carrack_fuzz::Input;
use carrack_machine::{Slot, SlotPool};
use carrack_transport::{SessionControlLink, ControlLinkInput, TransportError};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES};
use libfuzzer_sys::fuzz_target;
use rustix::pipe::{PipeFlags, pipe_with};

const SLOT_BYTES: u32 = 4096;
const SLOT_COUNT: usize = 3;

static POOL: LazyLock<SlotPool> = LazyLock::new(|| {
    SlotPool::new(SLOT_COUNT as u64 * u64::from(SLOT_BYTES), SLOT_BYTES as usize).expect("a small pool")
});

static NOWHERE: LazyLock<OwnedFd> =
    LazyLock::new(|| File::options().write(true).open("/dev/null").expect("/dev/null").into());

/// A plain generator of small numbers: the same seed, the same cuts.
struct Chance(u32);

impl Chance {
    fn next(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) % below
    }
}

/// All frames of a stream, and how it ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    Truncated,
    NotAFrame,
}

fn frames(mut stream: &[u8]) -> (Vec<(FrameHeader, &[u8])>, End) {
    let mut found = Vec::new();
    loop {
        if stream.is_empty() {
            return (found, End::Closed);
        }
        let Some((header, rest)) = stream.split_first_chunk::<HEADER_BYTES>() else {
            return (found, End::Truncated);
        };
        let Ok(header) = FrameHeader::decode(header, SLOT_BYTES) else { return (found, End::NotAFrame) };
        let Some((body, rest)) = rest.split_at_checked(header.body_len as usize) else {
            // The header counts: a slot is taken as soon as it is there.
            found.push((header, &[]));
            return (found, End::Truncated);
        };
        found.push((header, body));
        stream = rest;
    }
}

/// What the link gave so far.
struct Reading<'a> {
    expected: std::vec::IntoIter<(FrameHeader, &'a [u8])>,
    end: End,
    kept: Vec<Slot>,
    chance: Chance,
}

impl Reading<'_> {
    /// Receives until the link wants more bytes; false when it is done.
    fn receive(&mut self, link: &mut SessionControlLink) -> bool {
        loop {
            match link.receive(&POOL) {
                Ok(ControlLinkInput::Control { lane, body }) => {
                    let (header, expected) = self.expected.next().expect("a frame that was sent");
                    assert_eq!((header.kind, header.lane, &body[..]), (FrameKind::Control, lane, expected));
                }
                Ok(ControlLinkInput::Object(incoming)) => {
                    let (header, expected) = self.expected.next().expect("a frame that was sent");
                    assert_eq!((incoming.header, incoming.body()), (header, expected));
                    if self.chance.next(4) == 0 {
                        self.kept.push(incoming.slot);
                    }
                }
                Ok(ControlLinkInput::Pending) => return true,
                Ok(ControlLinkInput::Closed) => {
                    assert_eq!((self.end == End::Closed, self.expected.len()), (true, 0));
                    return false;
                }
                Err(TransportError::NoCredit) => {
                    assert_eq!(self.kept.len(), SLOT_COUNT);
                    let (header, _) = self.expected.next().expect("an object");
                    assert_ne!(header.kind, FrameKind::Control);
                    return false;
                }
                Err(TransportError::Truncated) => {
                    assert!(self.end == End::Truncated && self.expected.len() <= 1);
                    return false;
                }
                Err(TransportError::Frame(_)) => {
                    assert_eq!((self.end == End::NotAFrame, self.expected.len()), (true, 0));
                    return false;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let Some(seed) = input.take() else { return };
    let mut chance = Chance(u16::from_le_bytes(seed).into());
    let stream = input.0;
    let (expected, end) = frames(stream);
    let mut reading =
        Reading { expected: expected.into_iter(), end, kept: Vec::new(), chance: Chance(chance.0) };

    let (receiving, sending) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let nowhere = NOWHERE.try_clone().expect("a descriptor");
    let mut link = SessionControlLink::over_pipes(receiving, nowhere, SLOT_BYTES).expect("a link");
    let mut rest = stream;
    let mut goes_on = true;
    while goes_on && !rest.is_empty() {
        // Mostly a few bytes, sometimes a page: less than the pipe holds.
        let longest = 1 << chance.next(13);
        let (piece, after) = rest.split_at(rest.len().min(1 + chance.next(longest) as usize));
        assert_eq!(rustix::io::write(&sending, piece), Ok(piece.len()));
        rest = after;
        goes_on = reading.receive(&mut link);
    }
    drop(sending);
    assert!(!goes_on || !reading.receive(&mut link), "the end is seen");
    drop((link, reading));
    assert_eq!(POOL.free_count(), SLOT_COUNT, "slots come back");
});
