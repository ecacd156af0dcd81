//! The setup of data connections, with the dialling end played by hand. The listening end needs no message
//! about connections that it sees, and reads other messages in the meantime by their meaning.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use carrack_engine::{SessionError, SessionRole};
use carrack_model::{AgreedTransferSpec, ObjectChecksumAlgorithm, ProtectionLevel};
use carrack_transport::seal::SessionKeys;
use carrack_transport::{StreamCount, dial};
use carrack_wire::auth::{ListenerNonce, SessionKey};
use carrack_wire::message::{
    ControlMessage, CountersMessage, DestinationRootMessage, DialFailureMessage, FinishMessage, HelloMessage,
    ListenAddresses, ObjectAcksMessage, WelcomeMessage,
};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES, agreed_terms};

use crate::common::scripted::*;
use crate::common::*;

const LIMIT_S: u64 = 30;
const STREAMS: u16 = 3;

fn spec() -> AgreedTransferSpec {
    AgreedTransferSpec {
        recursive: true,
        checksum: ObjectChecksumAlgorithm::None,
        slot_bytes: 128 << 10,
        streams: STREAMS,
        protection: ProtectionLevel::Clear,
        ..AgreedTransferSpec::default()
    }
}

/// Calls a real sink, up to its address.
fn call_sink(destination: &Path) -> (Session, ListenAddresses) {
    let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Sink);
    session.peer.preambles();
    let destination = Some(destination.as_os_str().as_bytes().to_vec());
    session.peer.say(ControlMessage::Hello(HelloMessage { destination, ..Scripted::hello(&spec()) }));
    let ControlMessage::Welcome(welcome) = session.peer.message() else { panic!("no welcome") };
    session
        .peer
        .say(ControlMessage::Place(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }));
    (session, welcome.listening.unwrap())
}

/// Calls a real source, up to its address.
fn call_source(source: &Path) -> (Session, ListenAddresses) {
    let mut session = Session::begin(Victim::Called, transfer(&[], Path::new("")), SessionRole::Source);
    session.peer.preambles();
    let (sources, sink) = (vec![source.as_os_str().as_bytes().to_vec()], Some(Scripted::sink_state(4)));
    session.peer.say(ControlMessage::Hello(HelloMessage { sources, sink, ..Scripted::hello(&spec()) }));
    let ControlMessage::Welcome(welcome) = session.peer.message() else { panic!("no welcome") };
    (session, welcome.listening.unwrap())
}

fn dial_all(listening: &ListenAddresses) -> Vec<TcpStream> {
    let keys = SessionKeys::derive(&SessionKey::new([7; 32]), None, &agreed_terms(&spec(), 1));
    let nonce = ListenerNonce::from_slice(&listening.nonce).unwrap();
    let address = ([127, 0, 0, 1], u16::try_from(listening.port).unwrap()).into();
    let streams =
        dial(&[address], &keys, &nonce, StreamCount::new(STREAMS, 1, false), None, &|| true).unwrap();
    streams.iter().map(|stream| stream.socket().try_clone().unwrap()).collect()
}

/// Returns the frames of all data connections, until these are closed.
fn frames_of(streams: Vec<TcpStream>) -> Receiver<(FrameHeader, Vec<u8>)> {
    let (sender, frames) = mpsc::channel();
    for mut stream in streams {
        let sender = sender.clone();
        stream.set_read_timeout(None).unwrap();
        thread::spawn(move || {
            let mut raw = [0; HEADER_BYTES];
            while stream.read_exact(&mut raw).is_ok() {
                let header = FrameHeader::decode(&raw, 64 << 20).unwrap();
                let mut body = vec![0; header.body_len as usize];
                stream.read_exact(&mut body).unwrap();
                sender.send((header, body)).unwrap();
            }
        });
    }
    frames
}

#[test]
fn a_listening_sink_needs_no_word_about_its_streams() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        let (mut session, listening) = call_sink(dir.path());
        let mut streams = dial_all(&listening);
        assert_eq!(streams.len(), usize::from(STREAMS));
        // The message and the objects are sent at once, on both connections: the sink loses none in any
        // order.
        session.peer.say(open(1, table("", &[(b"large", 3)])));
        for (stream, (header, body)) in streams.iter_mut().zip([
            object(1, 1, 0, b"abc"),
            bundle(2, b"de", &table("", &[(b"small", 2)])),
            bundle(3, b"f", &table("", &[(b"tiny", 1)])),
        ]) {
            stream.write_all(&[&header.encode()[..], &body].concat()).unwrap();
        }
        let mut answered = Vec::new();
        while answered.len() < 3 {
            let ControlMessage::ObjectsDone(done) = session.peer.message() else { panic!("no answer") };
            answered.extend(done.written);
        }
        session.peer.say(ControlMessage::CommitFile(carrack_wire::message::FileReference { id: 1 }));
        let ControlMessage::FileDone(_) = session.peer.message() else { panic!("not done") };
        session.peer.say_body(
            &ControlMessage::Finish(FinishMessage { counters: None, objects_sent: 3, closes: false })
                .to_body(),
        );
        let (outcome, _) = session.end();
        assert!(outcome.result.is_ok(), "{:?}", outcome.result);
        for (name, content) in [("large", "abc"), ("small", "de"), ("tiny", "f")] {
            assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), content);
        }
    });
}

#[test]
fn a_listening_source_sends_as_soon_as_its_streams_stand() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("f"), b"abc");
        let (mut session, listening) = call_source(dir.path());
        // The test has sent no message since the hello.
        let frames = frames_of(dial_all(&listening));
        let (header, body) = frames.recv().unwrap();
        assert_eq!((header.kind, &body[..3]), (FrameKind::Bundle, &b"abc"[..]));
        session.peer.say(ControlMessage::ObjectsDone(ObjectAcksMessage {
            written: vec![1],
            corrupt: vec![],
            set_aside: vec![],
        }));
        let ControlMessage::Finish(finish) = session.peer.message() else { panic!("no end") };
        assert_eq!(finish.objects_sent, 1);
        session.peer.say(ControlMessage::Finished(CountersMessage::default()));
        assert!(session.end().0.result.is_ok());
    });
}

#[test]
fn giving_up_streams_that_stand_ends_the_session_in_words() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("f"), b"abc");
        for message in [
            ControlMessage::DialFailed(DialFailureMessage::default()),
            ControlMessage::Dial(ListenAddresses::default()),
        ] {
            for begin in [call_sink, call_source] {
                let (mut session, listening) = begin(dir.path());
                let _streams = dial_all(&listening);
                session.peer.say(message.clone());
                let (outcome, said) = session.end();
                let Err(SessionError::Protocol(text)) = &outcome.result else { panic!("{outcome:?}") };
                assert!(text.contains("gave up data connections"), "{text}");
                assert!(reason(&said).unwrap().message.contains("gave up data connections"));
            }
        }
    });
}

#[test]
fn a_nonce_of_another_length_is_named_at_both_ends() {
    within(LIMIT_S, || {
        let dir = tempfile::tempdir().unwrap();
        for length in [0, 31, 33, 1000] {
            let listening =
                ListenAddresses { port: 1, addresses: vec!["127.0.0.1".into()], nonce: vec![1; length] };
            let words = format!("nonce of {length} bytes");
            let (mut session, _) = call_sink(dir.path());
            session.peer.say(ControlMessage::Dial(listening.clone()));
            let (outcome, said) = session.end();
            assert!(outcome.result.is_err_and(|error| error.to_string().contains(&words)));
            assert!(reason(&said).unwrap().message.contains(&words));

            let calling = transfer(&[Path::new("/nothing/")], dir.path());
            let mut session = Session::begin(Victim::Caller, calling, SessionRole::Sink);
            session.peer.preambles();
            let place = Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() });
            let welcome =
                WelcomeMessage { place, listening: Some(listening), lanes: 1, ..WelcomeMessage::default() };
            session.peer.say(ControlMessage::Welcome(welcome));
            let (outcome, said) = session.end();
            assert!(outcome.result.is_err_and(|error| error.to_string().contains(&words)));
            assert!(reason(&said).unwrap().message.contains(&words));
        }
    });
}
