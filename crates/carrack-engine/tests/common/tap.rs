//! A network that an attacker owns, between the two ends. The attacker sees all bytes of the data
//! connections, and can change, drop, repeat and reorder frames. ssh or TLS protect the control channel; here
//! the control channel tells the dialling end the attacker's port.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carrack_engine::{
    AbortHandle, PeerChannel, SessionRole, TransferOutcome, TransferRequest, copy_with_peer,
};
use carrack_model::ProtectionLevel;
use carrack_wire::auth::{PROOF_BYTES, RESPONSE_BYTES};
use carrack_wire::message::{ControlMessage, CountersMessage};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES};

use super::{Recorder, Way, channel, peer, serve_any};

/// Bytes of the tag behind each header of a sealed object.
const TAG_BYTES: usize = 16;

/// The attack on the frames of each connection, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Only reads the frames.
    None,
    /// Flips a bit in this byte of the frame, counted from the start of its header.
    Flip {
        frame: usize,
        byte: usize,
    },
    /// Flips a bit in the last byte of the frame.
    FlipLast {
        frame: usize,
    },
    Drop {
        frame: usize,
    },
    Repeat {
        frame: usize,
    },
    /// Exchanges this frame and the next.
    Swap {
        frame: usize,
    },
    /// Closes the connection after this number of frames, in the order in which the source would.
    CutAfter {
        frames: usize,
    },
    /// Closes the connection within this frame.
    CutWithin {
        frame: usize,
    },
    /// Takes all later bytes of the source and forwards none, from the middle of this frame.
    StallWithin {
        frame: usize,
    },
    /// The same, from the start of this frame.
    StallBefore {
        frame: usize,
    },
    /// The same, while the sink's counters report that its storage is busy.
    StallBusy {
        frame: usize,
    },
    /// Sends frames of the first connection on the second.
    Cross,
}

/// The bytes of both directions, and the number of frames.
#[derive(Default)]
pub struct Seen {
    pub bytes: Vec<u8>,
    pub frames: usize,
    /// True if the attacker has changed a frame.
    pub attacked: bool,
}

pub struct Tap {
    attack: Attack,
    is_sealed: bool,
    /// True if data flows from the end that dials.
    from_dialer: bool,
    seen: Arc<Mutex<Seen>>,
    /// Frames of the first connection, for the second.
    crossing: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Copies over the attacker's network.
pub fn copy_tapped(
    way: Way,
    transfer: &TransferRequest,
    attack: Attack,
) -> (TransferOutcome, Recorder, Seen) {
    let (peer, serving, seen) = serve_tapped(way, transfer, attack);
    let recorder = Recorder::default();
    let role = if way == Way::Push { SessionRole::Source } else { SessionRole::Sink };
    let outcome = copy_with_peer(transfer, role, peer, &recorder, &AbortHandle::new().unwrap());
    let _ = serving.join().unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (outcome, recorder, seen)
}

/// Starts a responder that is reached over the attacker's network.
pub fn serve_tapped(
    way: Way,
    transfer: &TransferRequest,
    attack: Attack,
) -> (PeerChannel, JoinHandle<TransferOutcome>, Arc<Mutex<Seen>>) {
    let (caller, caller_side) = channel();
    let (served, served_side) = channel();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let tap = Arc::new(Tap {
        attack,
        is_sealed: transfer.spec.protection != ProtectionLevel::Clear,
        from_dialer: way == Way::Push,
        seen: Arc::clone(&seen),
        crossing: Arc::default(),
    });
    for (from, to) in [(caller_side.0, served_side.1), (served_side.0, caller_side.1)] {
        let tap = Arc::clone(&tap);
        thread::spawn(move || relay_control(from.into(), to.into(), &tap));
    }
    let serving = thread::spawn(move || serve_any(served, &AbortHandle::new().unwrap()));
    (peer(caller), serving, seen)
}

/// Forwards control frames; replaces the listener's port by the attacker's.
fn relay_control(mut from: std::fs::File, mut to: std::fs::File, tap: &Arc<Tap>) -> Option<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    from.read_exact(&mut preamble).ok()?;
    to.write_all(&preamble).ok()?;
    loop {
        let mut raw = [0; HEADER_BYTES];
        from.read_exact(&mut raw).ok()?;
        let header = FrameHeader::decode(&raw, 64 << 20).ok()?;
        let mut body = vec![0; header.body_len as usize];
        from.read_exact(&mut body).ok()?;
        if header.kind == FrameKind::Control
            && let Ok(ControlMessage::Welcome(mut welcome)) = ControlMessage::from_body(&body)
        {
            if let Some(listening) = &mut welcome.listening {
                listening.port = listen(listening.port as u16, tap).into();
            }
            body = ControlMessage::Welcome(welcome).to_body();
        }
        if matches!(tap.attack, Attack::StallBusy { .. })
            && header.kind == FrameKind::Control
            && let Ok(ControlMessage::Counters(counters)) = ControlMessage::from_body(&body)
        {
            body = ControlMessage::Counters(CountersMessage { storage_busy: 1, ..counters }).to_body();
        }
        to.write_all(&FrameHeader { body_len: body.len() as u32, ..header }.encode()).ok()?;
        to.write_all(&body).ok()?;
    }
}

/// Listens on a port that leads to `port` over the attacker's network.
fn listen(port: u16, tap: &Arc<Tap>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().port();
    let tap = Arc::clone(tap);
    thread::spawn(move || {
        for (number, dialer) in listener.incoming().enumerate() {
            let (Ok(dialer), Ok(listener)) = (dialer, TcpStream::connect(("127.0.0.1", port))) else {
                return;
            };
            let pair = |a: &TcpStream, b: &TcpStream| (a.try_clone().unwrap(), b.try_clone().unwrap());
            let (data, other) = if tap.from_dialer {
                (pair(&dialer, &listener), pair(&listener, &dialer))
            } else {
                (pair(&listener, &dialer), pair(&dialer, &listener))
            };
            let (data_tap, other_tap, from_dialer) = (Arc::clone(&tap), Arc::clone(&tap), tap.from_dialer);
            let first_words = if from_dialer { RESPONSE_BYTES } else { PROOF_BYTES };
            thread::spawn(move || data_tap.pass_data(number, data, first_words));
            thread::spawn(move || other_tap.pass(other));
        }
    });
    here
}

impl Tap {
    fn see(&self, bytes: &[u8]) {
        self.seen.lock().unwrap().bytes.extend_from_slice(bytes);
    }

    /// Forwards the opposite direction, which carries only the proofs of the handshake.
    fn pass(&self, (mut from, mut to): (TcpStream, TcpStream)) -> Option<()> {
        let mut buffer = [0; 4096];
        loop {
            match from.read(&mut buffer).ok()? {
                0 => return to.shutdown(Shutdown::Write).ok(),
                count => {
                    self.see(&buffer[..count]);
                    to.write_all(&buffer[..count]).ok()?;
                }
            }
        }
    }

    /// Forwards the data frame by frame, after `first_words` bytes of the handshake.
    fn pass_data(
        &self,
        number: usize,
        (mut from, mut to): (TcpStream, TcpStream),
        first_words: usize,
    ) -> Option<()> {
        let mut words = vec![0; first_words];
        from.read_exact(&mut words).ok()?;
        self.see(&words);
        to.write_all(&words).ok()?;
        let mut held = None;
        let mut index = 0;
        while let Some(frame) = self.read_frame(&mut from) {
            self.see(&frame);
            self.seen.lock().unwrap().frames += 1;
            let sent = self.attacked(number, index, frame.clone(), &mut held);
            if matches!(self.attack, Attack::StallBefore { frame } | Attack::StallBusy { frame } if index >= frame)
            {
                return std::io::copy(&mut from, &mut std::io::sink()).ok().map(drop);
            }
            let is_cut = matches!(self.attack, Attack::CutAfter { .. });
            self.seen.lock().unwrap().attacked |= is_cut || sent != [frame];
            for frame in sent {
                to.write_all(&frame).ok()?;
            }
            if matches!(self.attack, Attack::StallWithin { frame } if index == frame) {
                return std::io::copy(&mut from, &mut std::io::sink()).ok().map(drop);
            }
            index += 1;
            if matches!(self.attack, Attack::CutAfter { frames } if index == frames)
                || matches!(self.attack, Attack::CutWithin { frame } if index == frame + 1)
            {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok()?;
        // The loop lasts until the source has left: only the missing answers tell the source that its objects
        // are lost.
        std::io::copy(&mut from, &mut std::io::sink()).ok().map(drop)
    }

    fn read_frame(&self, from: &mut TcpStream) -> Option<Vec<u8>> {
        let mut frame = vec![0; HEADER_BYTES + if self.is_sealed { TAG_BYTES } else { 0 }];
        from.read_exact(&mut frame).ok()?;
        let header = FrameHeader::decode(frame.first_chunk()?, 64 << 20).ok()?;
        let head_len = frame.len();
        frame.resize(head_len + header.body_len as usize, 0);
        from.read_exact(&mut frame[head_len..]).ok()?;
        Some(frame)
    }

    /// Returns the frames that are sent in place of this frame.
    fn attacked(
        &self,
        number: usize,
        index: usize,
        mut frame: Vec<u8>,
        held: &mut Option<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        match self.attack {
            Attack::Flip { frame: at, byte } if index == at => {
                frame[byte] ^= 1;
                vec![frame]
            }
            Attack::FlipLast { frame: at } if index == at => {
                *frame.last_mut().unwrap() ^= 0x80;
                vec![frame]
            }
            Attack::Drop { frame: at } if index == at => vec![],
            Attack::Repeat { frame: at } if index == at => vec![frame.clone(), frame],
            Attack::Swap { frame: at } if index == at => {
                *held = Some(frame);
                vec![]
            }
            Attack::Swap { frame: at } if index == at + 1 => vec![frame, held.take().unwrap()],
            Attack::CutWithin { frame: at } | Attack::StallWithin { frame: at } if index == at => {
                vec![frame[..frame.len() / 2].to_vec()]
            }
            Attack::Cross if number == 0 => {
                self.crossing.lock().unwrap().push(frame.clone());
                vec![frame]
            }
            // If the first connection carries no frame within two seconds, this frame is sent twice.
            Attack::Cross => {
                let deadline = Instant::now() + Duration::from_secs(2);
                while self.crossing.lock().unwrap().is_empty() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(1));
                }
                let other = self.crossing.lock().unwrap().first().cloned();
                other.map_or_else(|| vec![frame.clone(), frame], |other| vec![other])
            }
            _ => vec![frame],
        }
    }
}
