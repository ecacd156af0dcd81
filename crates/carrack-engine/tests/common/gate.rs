//! Two real ends with a gate between them. The gate holds the sink's answers back: the source stops with its
//! files announced, and has read only as far as the sink's credits and its own pool allow. Then the test
//! changes the files.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use carrack_engine::{AbortHandle, SessionRole, TransferOutcome, TransferRequest, copy_with_peer};
use carrack_wire::message::ControlMessage;
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES};

use super::{Recorder, Way, channel, peer, serve_any, wait_until};

/// Closed until the test opens it; it closes again when the source announces another large file.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files_announced: usize,
    permitted: usize,
    is_holding: bool,
}

impl Gate {
    /// Waits until the source has stopped for the `round`th time.
    pub fn wait(&self, round: usize) {
        wait_until("the source stands still", || {
            let state = self.state.lock().unwrap();
            state.is_holding && state.files_announced.max(1) >= round
        });
        // Meanwhile the source reads the objects for which it has credits.
        thread::sleep(Duration::from_millis(200));
    }

    /// Opens the gate for the `round`th time.
    pub fn open(&self, round: usize) {
        self.state.lock().unwrap().permitted = round;
        self.changed.notify_all();
    }

    fn pass(&self, message: &ControlMessage) {
        let mut state = self.state.lock().unwrap();
        match message {
            ControlMessage::OpenFile(_) => state.files_announced += 1,
            ControlMessage::ObjectsDone(_) => {
                while state.permitted < state.files_announced.max(1) {
                    state.is_holding = true;
                    state = self.changed.wait(state).unwrap();
                }
                state.is_holding = false;
            }
            _ => {}
        }
    }

    /// Forwards the frames of one direction.
    fn forward(&self, from: OwnedFd, to: OwnedFd) -> std::io::Result<()> {
        let (mut from, mut to) = (File::from(from), File::from(to));
        let mut preamble = [0; PREAMBLE_BYTES];
        from.read_exact(&mut preamble)?;
        to.write_all(&preamble)?;
        loop {
            let mut raw = [0; HEADER_BYTES];
            from.read_exact(&mut raw)?;
            let header = FrameHeader::decode(&raw, 64 << 20).unwrap();
            let mut body = vec![0; header.body_len as usize];
            from.read_exact(&mut body)?;
            if header.kind == FrameKind::Control {
                self.pass(&ControlMessage::from_body(&body).unwrap());
            }
            to.write_all(&raw)?;
            to.write_all(&body)?;
        }
    }
}

/// Copies through a gate, which `script` opens.
pub fn copy_gated(
    way: Way,
    transfer: &TransferRequest,
    script: impl FnOnce(&Gate) + Send,
) -> (TransferOutcome, Recorder) {
    let role = if way == Way::Push { SessionRole::Source } else { SessionRole::Sink };
    let (caller, caller_side) = channel();
    let (served, served_side) = channel();
    let gate = Arc::new(Gate::default());
    for (from, to) in [(caller_side.0, served_side.1), (served_side.0, caller_side.1)] {
        let gate = Arc::clone(&gate);
        thread::spawn(move || gate.forward(from, to));
    }
    let serving = thread::spawn(move || serve_any(served, &AbortHandle::new().unwrap()));
    let peer = peer(caller);
    let recorder = Recorder::default();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| script(&gate));
        copy_with_peer(transfer, role, peer, &recorder, &AbortHandle::new().unwrap())
    });
    let _ = serving.join().unwrap();
    (outcome, recorder)
}
