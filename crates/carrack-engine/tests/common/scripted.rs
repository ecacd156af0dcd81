//! A peer that the test plays over the control channel, which carries the objects as well. It follows the
//! protocol as far as the test wants. The opposite end is a real one, initiator or responder.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use carrack_engine::{
    AbortHandle, EndSettings, SessionRole, TransferOutcome, TransferRequest, copy_with_peer,
};
use carrack_model::{AgreedTransferSpec, FileId, Metadata, ObjectId, RelPath};
use carrack_wire::message::{
    ControlMessage, DestinationRootMessage, DialFailureMessage, HelloMessage, OpenFileMessage, RefuseMessage,
    SinkHandshakeFacts, WelcomeMessage,
};
use carrack_wire::{
    EntryTableEncoder, FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES, Preamble, to_json,
};

use super::{Recorder, channel, peer, serve_any};

/// A message or an object from the opposite end.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Heard {
    Control(ControlMessage),
    Object(FrameHeader, Vec<u8>),
    Closed,
}

/// The end that the test plays.
pub struct Scripted {
    input: File,
    output: File,
    /// Objects and bundles sent until now; `Finish` carries this count.
    objects_sent: u64,
}

impl Scripted {
    pub fn new((input, output): (OwnedFd, OwnedFd)) -> Scripted {
        Scripted { input: input.into(), output: output.into(), objects_sent: 0 }
    }

    /// Sends bytes unchanged; returns false if the opposite end has left.
    pub fn raw(&mut self, bytes: &[u8]) -> bool {
        self.output.write_all(bytes).is_ok()
    }

    /// Closes the input: later writes of the opposite end fail.
    pub fn deafen(&mut self) {
        self.input = File::open("/dev/null").unwrap();
    }

    pub fn say(&mut self, mut message: ControlMessage) {
        if let ControlMessage::Finish(finish) = &mut message {
            finish.objects_sent = self.objects_sent;
        }
        self.say_body(&message.to_body());
    }

    /// Sends a control frame with an arbitrary body.
    pub fn say_body(&mut self, body: &[u8]) {
        self.frame(&(FrameHeader::control(body.len() as u32), body.to_vec()));
    }

    pub fn frame(&mut self, (header, body): &(FrameHeader, Vec<u8>)) {
        self.objects_sent += u64::from(header.kind != carrack_wire::FrameKind::Control);
        self.raw(&[&header.encode()[..], body].concat());
    }

    pub fn preambles(&mut self) {
        self.raw(&Preamble::OURS.encode());
        self.input.read_exact(&mut [0; PREAMBLE_BYTES]).unwrap();
    }

    /// Returns the next message or object, without heartbeats and counters.
    pub fn hear(&mut self) -> Heard {
        loop {
            match self.hear_any() {
                Heard::Control(ControlMessage::Heartbeat(_) | ControlMessage::Counters(_)) => {}
                heard => return heard,
            }
        }
    }

    fn hear_any(&mut self) -> Heard {
        let mut raw = [0; HEADER_BYTES];
        if self.input.read_exact(&mut raw).is_err() {
            return Heard::Closed;
        }
        let header = FrameHeader::decode(&raw, 64 << 20).unwrap();
        let mut body = vec![0; header.body_len as usize];
        if self.input.read_exact(&mut body).is_err() {
            return Heard::Closed;
        }
        match header.kind {
            FrameKind::Control => Heard::Control(ControlMessage::from_body(&body).unwrap()),
            FrameKind::Object | FrameKind::Bundle => Heard::Object(header, body),
        }
    }

    /// Returns the next message; an object fails the test.
    pub fn message(&mut self) -> ControlMessage {
        match self.hear() {
            Heard::Control(message) => message,
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// Returns the next object, and skips the messages before it.
    pub fn object(&mut self) -> (FrameHeader, Vec<u8>) {
        loop {
            match self.hear() {
                Heard::Object(header, body) => return (header, body),
                Heard::Control(_) => {}
                Heard::Closed => panic!("closed instead of an object"),
            }
        }
    }

    /// Returns the objects that come until the opposite end has sent its counters twice, half a second at
    /// least.
    pub fn objects_in_a_while(&mut self) -> Vec<(FrameHeader, Vec<u8>)> {
        let (mut objects, mut told) = (Vec::new(), 0);
        while told < 2 {
            match self.hear_any() {
                Heard::Control(ControlMessage::Counters(_)) => told += 1,
                Heard::Control(_) => {}
                Heard::Object(header, body) => objects.push((header, body)),
                Heard::Closed => panic!("closed"),
            }
        }
        objects
    }

    /// Returns all messages until the opposite end closes.
    pub fn rest(&mut self) -> Vec<ControlMessage> {
        let mut said = Vec::new();
        loop {
            match self.hear() {
                Heard::Control(message) => said.push(message),
                Heard::Object(..) => {}
                Heard::Closed => return said,
            }
        }
    }

    /// Returns all bytes until the opposite end closes, undecoded.
    pub fn raw_rest(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let _ = self.input.read_to_end(&mut heard);
        heard
    }

    // The handshake, in four parts.

    pub fn hello(spec: &AgreedTransferSpec) -> HelloMessage {
        HelloMessage {
            software: "a test".into(),
            session_key: vec![7; 32],
            spec: to_json(spec),
            settings: r#"{"pool_bytes":1048576}"#.into(),
            ..HelloMessage::default()
        }
    }

    pub fn sink_state(credits: u32) -> SinkHandshakeFacts {
        let host = b"another".to_vec();
        SinkHandshakeFacts { destination: 1, name: b"dst".to_vec(), host, credits, ..Default::default() }
    }

    /// Plays the source as initiator; returns the sink's credits.
    fn call_sink(&mut self, spec: &AgreedTransferSpec, destination: &Path, place: u32) -> u32 {
        self.preambles();
        let destination = Some(destination.as_os_str().as_bytes().to_vec());
        self.say(ControlMessage::Hello(HelloMessage { destination, ..Scripted::hello(spec) }));
        let ControlMessage::Welcome(welcome) = self.message() else { panic!("no welcome") };
        self.say(ControlMessage::Place(DestinationRootMessage {
            root: place,
            ..DestinationRootMessage::default()
        }));
        self.dial_failed(spec);
        welcome.sink.unwrap().credits
    }

    /// Plays the source as responder; returns the sink's credits.
    fn answer_sink(&mut self, spec: &AgreedTransferSpec, place: u32) -> u32 {
        self.preambles();
        let ControlMessage::Hello(hello) = self.message() else { panic!("no hello") };
        self.say(ControlMessage::Welcome(WelcomeMessage {
            place: Some(DestinationRootMessage { root: place, ..DestinationRootMessage::default() }),
            lanes: 1,
            ..WelcomeMessage::default()
        }));
        self.dial_failed_back(spec);
        hello.sink.unwrap().credits
    }

    /// Plays the sink as initiator.
    fn call_source(&mut self, spec: &AgreedTransferSpec, sources: &[&Path], credits: u32) {
        self.preambles();
        let sources = sources.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        let sink = Some(Scripted::sink_state(credits));
        self.say(ControlMessage::Hello(HelloMessage { sources, sink, ..Scripted::hello(spec) }));
        let ControlMessage::Welcome(_) = self.message() else { panic!("no welcome") };
        self.dial_failed(spec);
    }

    /// Plays the sink as responder.
    fn answer_source(&mut self, spec: &AgreedTransferSpec, credits: u32) {
        self.preambles();
        let ControlMessage::Hello(_) = self.message() else { panic!("no hello") };
        self.say(ControlMessage::Welcome(WelcomeMessage {
            sink: Some(Scripted::sink_state(credits)),
            lanes: 1,
            ..WelcomeMessage::default()
        }));
        let ControlMessage::Place(_) = self.message() else { panic!("no place") };
        self.dial_failed_back(spec);
    }

    fn dial_failed(&mut self, spec: &AgreedTransferSpec) {
        if !spec.dry_run {
            self.say(ControlMessage::DialFailed(DialFailureMessage { problem: "a test".into() }));
        }
    }

    /// Answers `Dial` with `DialFailureMessage`; an end that refuses the handshake sends a refusal in place
    /// of `Dial`.
    pub fn dial_failed_back(&mut self, spec: &AgreedTransferSpec) {
        if !spec.dry_run
            && let Heard::Control(ControlMessage::Dial(_)) = self.hear()
        {
            self.dial_failed(spec);
        }
    }
}

/// The real end that the test attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The responder: the test is the initiator of [`carrack_engine::serve`].
    Called,
    /// The initiator: [`copy_with_peer`] calls the test.
    Caller,
}

pub const VICTIMS: [Victim; 2] = [Victim::Called, Victim::Caller];

/// A session of a real end with the test.
pub struct Session {
    pub peer: Scripted,
    pub recorder: Arc<Recorder>,
    /// The real sink's credits.
    pub credits: u32,
    victim: JoinHandle<TransferOutcome>,
}

impl Session {
    /// Begins a session whose real end has sent nothing yet.
    pub fn begin(victim: Victim, transfer: TransferRequest, role: SessionRole) -> Session {
        let (here, there) = channel();
        let recorder = Arc::new(Recorder::default());
        let observer = Arc::clone(&recorder);
        let victim = thread::spawn(move || {
            let abort = AbortHandle::new().unwrap();
            match victim {
                Victim::Called => serve_any(there, &abort),
                Victim::Caller => copy_with_peer(&transfer, role, peer(there), &*observer, &abort),
            }
        });
        Session { peer: Scripted::new(here), recorder, credits: 0, victim }
    }

    /// Begins a session with a real sink, up to the first object.
    pub fn with_sink(victim: Victim, spec: &AgreedTransferSpec, destination: &Path, place: u32) -> Session {
        // The contents of a directory may have any name.
        Session::with_sink_that_asked(victim, Path::new("/nothing/"), spec, destination, place)
    }

    /// Begins a session with a real sink which, as initiator, asked for `source`.
    pub fn with_sink_that_asked(
        victim: Victim,
        source: &Path,
        spec: &AgreedTransferSpec,
        destination: &Path,
        place: u32,
    ) -> Session {
        let transfer = transfer(spec, &[source], destination);
        let mut session = Session::begin(victim, transfer, SessionRole::Sink);
        session.credits = match victim {
            Victim::Called => session.peer.call_sink(spec, destination, place),
            Victim::Caller => session.peer.answer_sink(spec, place),
        };
        session
    }

    /// Begins a session with a real source, up to the first object.
    pub fn with_source(
        victim: Victim,
        spec: &AgreedTransferSpec,
        sources: &[&Path],
        credits: u32,
    ) -> Session {
        let transfer = transfer(spec, sources, Path::new("/nowhere"));
        let mut session = Session::begin(victim, transfer, SessionRole::Source);
        match victim {
            Victim::Called => session.peer.call_source(spec, sources, credits),
            Victim::Caller => session.peer.answer_source(spec, credits),
        }
        session
    }

    /// Reads until the real end has left; returns its outcome and its last messages.
    pub fn end(mut self) -> (TransferOutcome, Vec<ControlMessage>) {
        let said = self.peer.rest();
        drop(self.peer);
        (self.victim.join().expect("the real end panicked"), said)
    }

    /// Closes the channel; returns the outcome of the real end.
    pub fn hang_up(self) -> TransferOutcome {
        drop(self.peer);
        self.victim.join().expect("the real end panicked")
    }
}

fn transfer(spec: &AgreedTransferSpec, sources: &[&Path], destination: &Path) -> TransferRequest {
    TransferRequest {
        spec: spec.clone(),
        settings: EndSettings { pool_bytes: 1 << 20, ..EndSettings::default() },
        sources: sources.iter().map(|path| path.to_path_buf()).collect(),
        destination: destination.to_path_buf(),
        identity: None,
        source_base: carrack_storage::PathBase::Anywhere,
        feed: None,
    }
}

/// Returns the reason that an end gave when it left.
pub fn reason(said: &[ControlMessage]) -> Option<&RefuseMessage> {
    said.iter().find_map(|message| match message {
        ControlMessage::Abort(reason) | ControlMessage::Refuse(reason) => Some(reason),
        _ => None,
    })
}

// The messages of a source. All checks are zeros, as in a session without checksum.

pub const METADATA: Metadata =
    Metadata { mode: 0o644, mtime: carrack_model::Timestamp { seconds: 1_000_000_000, nanoseconds: 0 } };

/// Returns a table of regular files in one directory.
pub fn table(directory: &str, files: &[(&[u8], u64)]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
    files.iter().for_each(|(name, size)| writer.add_regular(name, *size, &METADATA, 0, None));
    table
}

/// Returns a table of one symbolic link.
pub fn link_table(directory: &str, name: &str, target: &str) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(directory.as_bytes()).unwrap(), None);
    writer.add_symlink(name.as_bytes(), target.as_bytes(), &METADATA, 0);
    table
}

/// Returns a table whose directory is arbitrary bytes.
pub fn table_in(directory: &[u8], files: &[(&[u8], u64)]) -> Vec<u8> {
    let stand_in = "x".repeat(directory.len());
    let mut table = table(&stand_in, files);
    let at = table.windows(directory.len()).position(|window| window == stand_in.as_bytes()).unwrap();
    table[at..at + directory.len()].copy_from_slice(directory);
    table
}

pub fn bundle(object: u64, content: &[u8], table: &[u8]) -> (FrameHeader, Vec<u8>) {
    let body = [content, table].concat();
    let header = FrameHeader {
        kind: FrameKind::Bundle,
        body_len: body.len() as u32,
        object: ObjectId(object),
        table_len: table.len() as u32,
        lane: 0,
        ..FrameHeader::control(0)
    };
    (header, body)
}

pub fn object(object: u64, file: u64, offset: u64, body: &[u8]) -> (FrameHeader, Vec<u8>) {
    let header = FrameHeader {
        kind: FrameKind::Object,
        body_len: body.len() as u32,
        object: ObjectId(object),
        file: FileId(file),
        offset,
        ..FrameHeader::control(0)
    };
    (header, body.to_vec())
}

pub fn open(id: u64, table: Vec<u8>) -> ControlMessage {
    ControlMessage::OpenFile(OpenFileMessage { id, table, ..OpenFileMessage::default() })
}
