//! One end of a session, alone with what the other end is supposed to send.
//!
//! What the input holds comes through a pipe, with short pauses where a real peer would have waited for this end; the
//! answers go to `/dev/null`. No port is opened and none is dialled: the other end always dials and there is nothing
//! to listen on, so that the data takes the control channel. Everything that is written is written below one scratch
//! directory, and what lies beside the destination must never change.

use std::convert::Infallible;
use std::fs::{self, File, Permissions};
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use carrack_engine::{AbortHandle, TransferObserver, TransferOutcome, PeerChannel, SessionRole, EndSettings, TransferRequest, copy_with_peer};
use carrack_model::limits::SLOT_BYTES_MIN;
use carrack_model::{ObjectChecksumAlgorithm, DialingEnd, TransferEvent, AgreedTransferSpec};
use carrack_wire::message::ControlMessage;
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES, Preamble};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};

/// Inputs beyond this would fill the pipe.
const SAID_BYTES_MAX: usize = 48 << 10;

/// How long this end gets to do what the next message answers: a few system calls.
const PAUSE: Duration = Duration::from_millis(3);

/// How long this end gets to finish once it was told to. Short, as inputs that never end wait for it.
const LINGER: Duration = Duration::from_millis(20);

/// Pauses of one input at most.
const PAUSES_MAX: usize = 4;

/// Messages that follow the preamble without a pause: the handshake.
const FIRST_FRAMES: usize = 2;

/// Nobody watches.
struct Nobody;

impl TransferObserver for Nobody {
    fn handle_event(&self, event: &TransferEvent) {
        std::hint::black_box(event);
    }
}

/// What a peer sent before it closed, to read from, and a place for the answers.
pub fn closed_pipes(said: &[u8]) -> (OwnedFd, OwnedFd) {
    let mut input = File::from(memfd_create(c"peer", MemfdFlags::CLOEXEC).expect("memory"));
    input.write_all(said).expect("memory");
    input.rewind().expect("a file");
    (input.into(), nowhere())
}

fn nowhere() -> OwnedFd {
    File::options().write(true).open("/dev/null").expect("/dev/null").into()
}

/// Where to pause in what is said, and whether the end is told.
fn pauses(said: &[u8]) -> (Vec<usize>, bool) {
    let (mut pauses, mut ends) = (Vec::new(), false);
    let Some(preamble) = Preamble::find(said) else { return (pauses, ends) };
    let mut at = preamble + PREAMBLE_BYTES;
    for count in 0.. {
        let Some((header, rest)) = said.get(at..).and_then(|rest| rest.split_first_chunk::<HEADER_BYTES>())
        else {
            break;
        };
        let Ok(header) = FrameHeader::decode(header, u32::MAX) else { break };
        let Some(body) = rest.get(..header.body_len as usize) else { break };
        let message = (header.kind == FrameKind::Control).then(|| ControlMessage::from_body(body).ok()).flatten();
        let ends_here = matches!(message, Some(ControlMessage::Finish(_) | ControlMessage::Finished(_)));
        ends |= ends_here;
        let waits = count == FIRST_FRAMES
            || ends_here
            || matches!(message, Some(ControlMessage::CommitFile(_) | ControlMessage::FileDone(_)));
        if waits && pauses.len() < PAUSES_MAX {
            pauses.push(at);
        }
        at += HEADER_BYTES + body.len();
    }
    (pauses, ends)
}

/// Says it all and hangs up. `over` is closed when nobody listens any more.
fn say(mut output: File, said: &[u8], over: &Receiver<Infallible>) {
    let (pauses, ends) = pauses(said);
    let mut from = 0;
    for at in pauses {
        let _ = output.write_all(&said[from..at]);
        let _ = over.recv_timeout(PAUSE);
        from = at;
    }
    let _ = output.write_all(&said[from..]);
    if ends {
        let _ = over.recv_timeout(LINGER);
    }
}

/// The scratch directory of this process: a source, a destination, and a neighbour that nobody may touch.
pub struct Ground {
    base: PathBuf,
}

impl Ground {
    /// Makes it below the directory for temporary files, with a few files in `source`.
    pub fn new() -> Ground {
        let ground =
            Ground { base: std::env::temp_dir().join(format!("carrack-fuzz-{}", std::process::id())) };
        clear(&ground.base);
        for directory in ["source/a/b", "sink", "neighbour"] {
            fs::create_dir_all(ground.base.join(directory)).expect("a scratch directory");
        }
        let large = vec![7; 3 * SLOT_BYTES_MIN];
        for (name, content) in
            [("source/large", &large[..]), ("source/a/small", b"small"), ("source/a/b/empty", b"")]
        {
            fs::write(ground.base.join(name), content).expect("a file");
        }
        ground
    }

    /// This process as `role`, against a peer that sends `said`, with `checksum` on everything that travels.
    pub fn run(&self, role: SessionRole, checksum: ObjectChecksumAlgorithm, said: &[u8]) -> TransferOutcome {
        let said = &said[..said.len().min(SAID_BYTES_MAX)];
        let (input, saying) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        // This end may stop reading; the pipe has room for all, and held open it gives nobody a SIGPIPE.
        let _held = input.try_clone().expect("a descriptor");
        let (done, over) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || say(saying.into(), said, &over));
            let outcome = self.end(role, checksum, PeerChannel::over_pipes(input, nowhere(), String::new()));
            drop(done);
            outcome
        })
    }

    fn end(&self, role: SessionRole, checksum: ObjectChecksumAlgorithm, peer: PeerChannel) -> TransferOutcome {
        // As the sink it asks for a directory's contents: they may have any name.
        let (dial_from, sources) = match role {
            SessionRole::Source => (DialingEnd::Sink, "source"),
            SessionRole::Sink => (DialingEnd::Source, "source/"),
        };
        let transfer = TransferRequest {
            spec: AgreedTransferSpec {
                recursive: true,
                checksum,
                report_digests: checksum == ObjectChecksumAlgorithm::Blake3,
                slot_bytes: SLOT_BYTES_MIN as u32,
                streams: 1,
                dial_from,
                ..AgreedTransferSpec::default()
            },
            settings: EndSettings {
                pool_bytes: 8 * SLOT_BYTES_MIN as u64,
                io_threads: 1,
                scan_threads: 1,
                // An empty range: there is no port to listen on.
                #[allow(clippy::reversed_empty_ranges)]
                ports: Some(1..=0),
                ..EndSettings::default()
            },
            sources: vec![self.base.join(sources)],
            destination: self.base.join("sink"),
            identity: None,
            source_base: carrack_storage::PathBase::Anywhere,
            feed: None,
        };
        let abort = AbortHandle::new().expect("an eventfd");
        copy_with_peer(&transfer, role, peer, &Nobody, &abort)
    }

    /// Empties the destination; nothing else may have changed.
    pub fn tidy(&self) {
        let names = |path: &Path| -> Vec<_> {
            let mut names: Vec<_> =
                fs::read_dir(path).expect("a directory").flatten().map(|e| e.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&self.base), ["neighbour", "sink", "source"], "something beside the destination");
        assert!(names(&self.base.join("neighbour")).is_empty(), "something in the neighbour's directory");
        assert_eq!(names(&self.base.join("source")), ["a", "large"], "something among the sources");
        let sink = self.base.join("sink");
        clear(&sink);
        fs::create_dir_all(&sink).expect("the destination");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        clear(&self.base);
    }
}

impl Default for Ground {
    fn default() -> Self {
        Ground::new()
    }
}

/// Removes a directory whatever modes the other end gave to what is in it.
fn clear(directory: &Path) {
    if fs::remove_dir_all(directory).is_ok() {
        return;
    }
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            clear(&entry.path());
        }
    }
    let _ = fs::remove_dir_all(directory);
}
