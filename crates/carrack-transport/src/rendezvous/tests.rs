use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use carrack_wire::auth::{
    DataConnectionAuthError, DialerResponse, ListenerNonce, PROOF_BYTES, RESPONSE_BYTES, SessionKey,
    StreamIndex,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use socket2::SockRef;

use super::listener::{PENDING_MAX, bind};
use super::{DataConnection, DialError, ListenPoint, StreamCount, StreamListener, dial};
use crate::seal::{ConnectionCipherState, SealTag, SessionKeys};

/// The time limit of a test that hangs, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn keys() -> SessionKeys {
    SessionKeys::derive(&SessionKey::new([3; 32]), None, b"agreed")
}

/// A listener, its address and its nonce.
fn listen() -> (StreamListener, SocketAddr, ListenerNonce) {
    let listener = StreamListener::open(ListenPoint::Ports(None)).unwrap();
    let (address, nonce) = (loopback(listener.port()), listener.nonce());
    (listener, address, nonce)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn serve(mut listener: StreamListener) -> thread::JoinHandle<Vec<DataConnection>> {
    thread::spawn(move || {
        let (never, _keep) = rustix::pipe::pipe().unwrap();
        listener.accept_streams(&keys(), never.as_fd(), Instant::now() + PATIENCE, &|| true).unwrap();
        listener.into_streams()
    })
}

/// Sends `message` to the listener. Returns the answer, empty where the listener closes the connection
/// instead.
fn ask(address: SocketAddr, message: &[u8]) -> (Vec<u8>, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(message).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 100];
    let count = match stream.read(&mut answer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
        read => read.unwrap(),
    };
    (answer[..count].to_vec(), stream)
}

fn response(nonce: &ListenerNonce, number: u16, count: u16) -> DialerResponse {
    DialerResponse::new(keys().auth(), nonce, [2; 32], StreamIndex { number, count }, Duration::ZERO)
}

#[test]
fn streams_stand_although_strangers_knock() {
    let (listener, address, nonce) = listen();
    let serving = serve(listener);
    let silent: Vec<_> = (0..PENDING_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    for i in 0..100 {
        let mut stranger = TcpStream::connect(address).unwrap();
        let _ = stranger.write_all(&[i; 500]);
    }
    let other_keys = SessionKeys::derive(&SessionKey::new([4; 32]), None, b"agreed");
    let disagreeing = SessionKeys::derive(&SessionKey::new([3; 32]), None, b"something else");
    let other_nonce = ListenerNonce::new([5; 32]);
    for (key, nonce) in [(&other_keys, &nonce), (&disagreeing, &nonce), (&keys(), &other_nonce)] {
        assert!(matches!(
            dial(&[address], key, nonce, StreamCount::new(1, 1, false), None, &|| true),
            Err(DialError::Closed(_))
        ));
    }
    let dialled = dial(&[address], &keys(), &nonce, StreamCount::new(3, 1, false), None, &|| true).unwrap();
    assert_eq!((dialled.len(), serving.join().unwrap().len()), (3, 3));
    drop(silent);
    assert!(TcpStream::connect(address).is_err(), "the port is closed once the streams stand");
}

#[test]
fn a_captured_response_gets_no_proof() {
    let (listener, address, nonce) = listen();
    let serving = serve(listener);
    let captured = response(&nonce, 0, 2);
    let (proof, _first) = ask(address, captured.as_bytes());
    assert_eq!(proof, captured.listener_proof(keys().auth()));
    for _ in 0..3 {
        assert_eq!(ask(address, captured.as_bytes()).0, b"");
    }
    // No proof for another true response with that number, nor for one with another count.
    let rival = DialerResponse::new(keys().auth(), &nonce, [3; 32], captured.stream_index(), Duration::ZERO);
    for refused in [rival, response(&nonce, 1, 3), response(&nonce, 1, 1), response(&nonce, 2, 2)] {
        assert_eq!(ask(address, refused.as_bytes()).0, b"");
    }
    let last = response(&nonce, 1, 2);
    let (proof, _second) = ask(address, last.as_bytes());
    assert_eq!(proof, last.listener_proof(keys().auth()));
    assert_eq!(serving.join().unwrap().len(), 2);
}

#[test]
fn strangers_are_told_nothing() {
    let (listener, address, nonce) = listen();
    let serving = serve(listener);
    let ours = response(&nonce, 0, 1);
    for at in [0, 8, 10, 12, 14, 16, 20, 52, 84, RESPONSE_BYTES - 1] {
        let mut changed = *ours.as_bytes();
        changed[at] ^= 1;
        assert_eq!(ask(address, &changed).0, b"", "{at}");
    }
    let none = response(&nonce, 0, 0);
    assert_eq!(ask(address, none.as_bytes()).0, b"");
    // In pieces, and with a surplus byte, which belongs to the stream.
    let mut slow = TcpStream::connect(address).unwrap();
    for byte in ours.as_bytes() {
        slow.write_all(&[*byte]).unwrap();
    }
    slow.write_all(b"!").unwrap();
    let mut proof = [0; PROOF_BYTES];
    slow.read_exact(&mut proof).unwrap();
    assert_eq!(proof, ours.listener_proof(keys().auth()));
    let mut streams = serving.join().unwrap();
    let mut rest = [0; 2];
    assert_eq!((streams[0].socket.read(&mut rest).unwrap(), rest[0]), (1, b'!'));
}

/// Answers `count` responses with `answer`, and closes the connection if the answer is empty. A dialer that
/// finds the path longer than a near one gives its first connection up unused: such ones do not count.
fn answer_with(
    count: usize,
    answer: impl Fn(&[u8; RESPONSE_BYTES]) -> Vec<u8> + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        while kept.len() < count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; RESPONSE_BYTES];
            if stream.read_exact(&mut heard).is_err() {
                continue;
            }
            let said = answer(&heard);
            stream.write_all(&said).unwrap();
            kept.push((!said.is_empty()).then_some(stream));
        }
        thread::sleep(Duration::from_millis(100));
    });
    address
}

#[test]
fn a_dialer_does_not_trust_a_listener_without_the_key() {
    let nonce = ListenerNonce::new([1; 32]);
    let count = StreamCount::new(1, 1, false);
    let impostor = answer_with(1, |_| vec![0; PROOF_BYTES]);
    let dialled = dial(&[impostor], &keys(), &nonce, count, None, &|| true);
    assert!(matches!(dialled, Err(DialError::Stranger(_, DataConnectionAuthError::WrongProof))));
    let mirror = answer_with(1, |heard| heard.to_vec());
    let dialled = dial(&[mirror], &keys(), &nonce, count, None, &|| true);
    assert!(matches!(dialled, Err(DialError::Stranger(_, DataConnectionAuthError::WrongProof))));
    let closing = answer_with(1, |_| vec![]);
    let dialled = dial(&[closing], &keys(), &nonce, count, None, &|| true);
    assert!(matches!(dialled, Err(DialError::Closed(_))));
}

#[test]
fn where_one_stream_stood_no_other_address_is_dialled() {
    let nonce = ListenerNonce::new([1; 32]);
    let halfway = answer_with(2, move |heard| match DialerResponse::verify(heard, keys().auth(), &nonce) {
        Ok(response) if response.stream_index().number == 0 => {
            response.listener_proof(keys().auth()).to_vec()
        }
        _ => vec![],
    });
    let (listener, address, other) = listen();
    let dialled = dial(&[halfway, address], &keys(), &nonce, StreamCount::new(2, 1, false), None, &|| true);
    assert!(matches!(dialled, Err(DialError::Closed(refusing)) if refusing == halfway));
    assert!(listener.connections.accept().is_err());
    // Without a proof from the first address, the next one is dialled.
    let serving = serve(listener);
    let closing = answer_with(2, |_| vec![]);
    assert_eq!(
        dial(&[closing, address], &keys(), &other, StreamCount::new(2, 1, false), None, &|| true)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(serving.join().unwrap().len(), 2);
}

#[test]
fn what_else_is_readable_ends_the_waiting_only_while_streams_are_missing() {
    let (readable, said) = rustix::pipe::pipe().unwrap();
    rustix::io::write(said, b"!").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (mut listener, address, nonce) = listen();
    listener.accept_streams(&keys(), readable.as_fd(), deadline, &|| true).unwrap();
    assert!(!listener.is_complete());

    let (silent, _keep) = rustix::pipe::pipe().unwrap();
    let (last, _stream) = thread::scope(|scope| {
        let asking = scope.spawn(|| ask(address, response(&nonce, 0, 1).as_bytes()));
        listener.accept_streams(&keys(), silent.as_fd(), deadline, &|| true).unwrap();
        asking.join().unwrap()
    });
    assert_eq!(last.len(), PROOF_BYTES);
    listener.accept_streams(&keys(), readable.as_fd(), deadline, &|| true).unwrap();
    assert!(listener.is_complete());
}

#[test]
fn a_near_path_gets_few_streams() {
    // Surplus connections may find the port closed. A busy machine may measure a long round trip to itself.
    let stream_counts = (0..20).map(|_| {
        let (listener, address, nonce) = listen();
        let serving = serve(listener);
        let dialled =
            dial(&[address], &keys(), &nonce, StreamCount::new(0, 1, false), None, &|| true).unwrap();
        assert_eq!(dialled.len(), serving.join().unwrap().len());
        dialled.len()
    });
    assert_eq!(stream_counts.min(), Some(2));
}

#[test]
fn every_lane_gets_as_many_streams() {
    fn counts(wanted: u16, lanes: u16) -> (u16, u16) {
        let streams = StreamCount::new(wanted, lanes, false);
        (streams.near.opened, streams.far.opened)
    }
    assert_eq!((counts(0, 1), counts(0, 2), counts(0, 3), counts(0, 8)), ((2, 8), (4, 8), (6, 9), (16, 16)));
    assert_eq!((counts(1, 1), counts(1, 4), counts(5, 2), counts(64, 6)), ((1, 1), (4, 4), (6, 6), (60, 60)));
}

#[test]
fn more_streams_are_opened_than_used_where_their_number_may_grow() {
    fn used(wanted: u16, lanes: u16) -> [(u16, usize); 2] {
        let streams = StreamCount::new(wanted, lanes, true);
        [streams.near, streams.far].map(|streams| (streams.opened, usize::from(streams.used)))
    }
    assert_eq!((used(0, 1), used(0, 3)), ([(4, 2), (16, 8)], [(12, 6), (18, 9)]));
    // With 16 lanes each has a near stream in reserve; far streams are all used.
    assert_eq!((used(0, 16), used(5, 2)), ([(64, 32), (32, 32)], [(6, 6); 2]));
    let streams = StreamCount::new(0, 3, true);
    assert_eq!([2, 12, 18].map(|opened| streams.used(opened)), [2, 6, 9]);
    assert_eq!(StreamCount::new(0, 1, false).used(2), 2);
    assert_eq!([2, 12, 18].map(|opened| streams.is_near(opened)), [false, true, false]);
}

#[test]
fn the_port_comes_from_the_range() {
    let taken = bind(0).unwrap();
    let first = taken.local_addr().unwrap().port();
    let Some(last) = first.checked_add(20) else { return };
    let listener = StreamListener::open(ListenPoint::Ports(Some(first..=last))).unwrap();
    assert!((first + 1..=last).contains(&listener.port()));
    assert!(StreamListener::open(ListenPoint::Ports(Some(first..=first))).is_err());
}

#[test]
fn ipv6_works_where_the_system_has_it() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on this machine");
        return;
    }
    let (listener, address, nonce) = listen();
    let serving = serve(listener);
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
    assert_eq!(
        dial(&[address], &keys(), &nonce, StreamCount::new(2, 1, false), None, &|| true).unwrap().len(),
        2
    );
    assert_eq!(serving.join().unwrap().len(), 2);
}

/// As a daemon does: it accepts on its own port, looks at the first bytes, and passes the connection on.
#[test]
fn connections_may_be_handed_on() {
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let nonce = ListenerNonce::new([6; 32]);
    let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = daemon.local_addr().unwrap();
    let listener =
        StreamListener::open(ListenPoint::Handed { socket: near, port: address.port(), nonce }).unwrap();
    assert_eq!((listener.port(), listener.nonce()), (address.port(), nonce));
    let serving = serve(listener);
    // A dialer may give a connection up, and make another: as many are handed on as come.
    thread::spawn(move || {
        loop {
            let (stream, _) = daemon.accept().unwrap();
            let descriptors = [stream.as_fd()];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            if sendmsg(&far, &[IoSlice::new(b"!")], &mut control, SendFlags::empty()).is_err() {
                return;
            }
        }
    });
    assert_eq!(
        dial(&[address], &keys(), &nonce, StreamCount::new(3, 1, false), None, &|| true).unwrap().len(),
        3
    );
    assert_eq!(serving.join().unwrap().len(), 3);
}

#[test]
fn a_daemon_that_is_gone_is_noticed() {
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let door = ListenPoint::Handed { socket: near, port: 1, nonce: ListenerNonce::new([6; 32]) };
    let mut listener = StreamListener::open(door).unwrap();
    drop(far);
    let (never, _keep) = rustix::pipe::pipe().unwrap();
    let served = listener.accept_streams(&keys(), never.as_fd(), Instant::now() + PATIENCE, &|| true);
    assert_eq!(served.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// A seal with a connection's secret opens at the other end of the same connection, and on no other
/// connection.
#[test]
fn both_ends_of_a_stream_have_one_secret() {
    let (listener, address, nonce) = listen();
    let serving = serve(listener);
    let dialled = dial(&[address], &keys(), &nonce, StreamCount::new(2, 1, false), None, &|| true).unwrap();
    let served = serving.join().unwrap();
    fn seal(stream: &DataConnection) -> SealTag {
        let cipher = carrack_model::SealCipher::Aes256Gcm;
        let mut seal = ConnectionCipherState::new(
            stream.secret.clone(),
            carrack_model::ProtectionLevel::Private,
            cipher,
        )
        .unwrap();
        seal.seal(&[0; carrack_wire::HEADER_BYTES], &mut [0; 8])
    }
    let (here, there): (Vec<_>, Vec<_>) =
        (dialled.iter().map(seal).collect(), served.iter().map(seal).collect());
    assert_eq!(here, there);
    assert_ne!(here[0], here[1]);
}

#[test]
fn segments_are_bounded_both_ways_by_either_end() {
    fn largest(streams: &[DataConnection]) -> u32 {
        streams.iter().map(|stream| SockRef::from(stream.socket()).tcp_mss().unwrap()).max().unwrap()
    }
    let bound = Some(536);
    for (of_listener, of_dialer, is_small) in [(None, bound, true), (bound, None, true), (None, None, false)]
    {
        let (listener, address, nonce) = listen();
        listener.limit_segment_size(of_listener);
        let serving = serve(listener);
        let count = StreamCount::new(2, 1, false);
        let dialled = dial(&[address], &keys(), &nonce, count, of_dialer, &|| true).unwrap();
        let served = serving.join().unwrap();
        for streams in [&dialled, &served] {
            assert_eq!(
                largest(streams) <= 536,
                is_small,
                "{of_listener:?} {of_dialer:?}: {}",
                largest(streams)
            );
        }
    }
}
