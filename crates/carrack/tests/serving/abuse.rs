//! Abuse of `carrack serve` by strangers, which must have no effect.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use carrack_engine::{EndSettings, SessionRole};
use carrack_model::SchedulingOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::daemon;
use crate::daemon::{Copy, Daemon, PATIENCE, Site, noise, refusal, wait_until};

fn daemon_with(site: &Site, limits: &str) -> Daemon {
    Daemon::start(&site.write_config("", &format!("[limits]\n{limits}\n{}", site.usual_exports())))
}

/// Returns true if the other end closes the connection within the tests' time limit.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Connects from another address of this host.
fn from_address(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// Returns the first record of a valid client that stops there.
fn first_record_of_a_client(site: &Site) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| site.try_connect(address, Some(site.identity("alice"))).unwrap_err());
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; 5];
        stream.read_exact(&mut header).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        stream.read_exact(&mut body).unwrap();
        [&header[..], &body].concat()
    })
}

fn small_copy(site: &Site, address: SocketAddr) -> String {
    let source = site.path().join("small");
    fs::write(&source, noise(100_000)).unwrap();
    let said =
        refusal(&site.copy(address, "alice", SessionRole::Source, source.to_str().unwrap(), "/data/small"));
    assert_eq!(fs::read(site.path().join("data/small")).unwrap(), noise(100_000));
    said
}

/// Runs `attack` during a transfer of a few seconds, which must end well.
fn during_a_transfer(site: &Site, daemon: &Daemon, attack: impl FnOnce()) {
    let source = site.path().join("file");
    fs::write(&source, noise(6_000_000)).unwrap();
    let scheduling = SchedulingOptions { rate: 2_000_000, ..SchedulingOptions::default() };
    let settings = EndSettings { scheduling, ..EndSettings::default() };
    let copy = Copy {
        who: Some("alice"),
        settings,
        ..Copy::new(SessionRole::Source, source.to_str().unwrap(), "/data/slow")
    };
    thread::scope(|scope| {
        let slow = scope.spawn(|| refusal(&site.copy_with(daemon.address, copy)));
        daemon.wait_for("alice on data");
        attack();
        assert_eq!(slow.join().unwrap(), "");
    });
    assert_eq!(fs::read(site.path().join("data/slow")).unwrap(), noise(6_000_000));
}

#[test]
fn what_does_not_begin_as_a_carrack_is_closed_without_a_word() {
    let site = Site::new();
    let daemon = daemon_with(&site, "");
    let mut wrong_version = *b"carrackd................................................";
    wrong_version[8..10].copy_from_slice(&9u16.to_le_bytes());
    let mut no_session = wrong_version;
    no_session[8..10].copy_from_slice(&3u16.to_le_bytes());
    let openings: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\0",
        b"\x16\x03\x01\xff\xff",
        b"carrack\x00\x05\x00\x00\x00",
        &wrong_version,
        &no_session,
    ];
    for opening in openings {
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        stream.write_all(opening).unwrap();
        assert!(is_closed(&mut stream), "{opening:?}");
    }
    // A stream that is TLS only in its first record costs a process, which ends.
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.write_all(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.len() < 50, "an alert at most: {said:?}");
    wait_until("its process ends", || daemon.children().is_empty());
    assert_eq!(small_copy(&site, daemon.address), "");
    assert_eq!(site.audited(1).len(), 1, "strangers are not in the audit log");
}

#[test]
fn who_is_too_slow_is_closed() {
    let site = Site::new();
    let daemon = daemon_with(&site, "handshake_seconds = 3");
    let mut silent = TcpStream::connect(daemon.address).unwrap();
    let mut stalled = TcpStream::connect(daemon.address).unwrap();
    stalled.write_all(b"carrackd").unwrap();
    // The client sends byte by byte: the time since the beginning counts.
    let mut loris = TcpStream::connect(daemon.address).unwrap();
    for byte in *b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" {
        let _ = loris.write_all(&[byte]);
        assert!(daemon.children().is_empty(), "a client that is this slow gets no process");
        thread::sleep(Duration::from_millis(200));
    }
    for stream in [&mut silent, &mut stalled, &mut loris] {
        assert!(is_closed(stream));
    }
    // After a whole first record the client is silent: a process has the same time limit.
    let mut record = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    record.resize(5 + 512, 7);
    let mut begun = TcpStream::connect(daemon.address).unwrap();
    begun.write_all(&record).unwrap();
    let mut rest = Vec::new();
    begun.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = begun.read_to_end(&mut rest);
    wait_until("its process ends", || daemon.children().is_empty());
    assert_eq!(small_copy(&site, daemon.address), "");
}

/// The client is authenticated, and then silent.
#[test]
fn who_is_known_and_says_nothing_is_closed_too() {
    let site = Site::new();
    let daemon = daemon_with(&site, "handshake_seconds = 3");
    let channel = site.connect(daemon.address, "alice");
    wait_until("its process is killed", || daemon.children().is_empty());
    let line = &site.audited(1)[0];
    assert_eq!((&line["result"], &line["reason"]), (&"killed".into(), &"it was not admitted in time".into()));
    assert_eq!(line["who"]["name"], "alice");
    drop(channel);
}

#[test]
fn thousands_of_silent_connections_disturb_nobody() {
    let wanted: usize = std::env::var("CARRACK_HALF_OPEN").map_or(2_000, |count| count.parse().unwrap());
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let count = wanted.min(limit.maximum.map_or(wanted, |most| most as usize - 500));
    if count < wanted {
        eprintln!("only {count} connections: {limit:?}");
    }
    // With a low bound of half-open connections, and with one so high that all are kept.
    disturb_nobody(count, 512);
    disturb_nobody(count, 100_000);
}

fn disturb_nobody(count: usize, half_open: usize) {
    let site = Site::new();
    let limits = format!("half_open = {half_open}\nper_address = 100000\nhandshake_seconds = 600");
    let daemon = daemon_with(&site, &limits);
    let before = daemon.memory_kib();
    let mut silent = Vec::new();
    during_a_transfer(&site, &daemon, || {
        for _ in 0..count {
            silent.push(TcpStream::connect(daemon.address).unwrap());
        }
    });
    let kept = count.min(half_open);
    wait_until("they are kept up to the limit", || (kept..kept + 50).contains(&daemon.descriptors()));
    let grown = daemon.memory_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more than before {count} connections");
    assert_eq!(small_copy(&site, daemon.address), "");
}

#[test]
fn one_address_can_not_have_all_there_is() {
    let site = Site::new();
    let daemon = daemon_with(&site, "per_address = 20\nhandshake_seconds = 600");
    let mut silent: Vec<_> = (0..20).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    let is_open = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    // The oldest connection is closed for a new one of its own address, and for no other address.
    let mut one_more = TcpStream::connect(daemon.address).unwrap();
    assert!(is_closed(&mut silent[0]));
    let mut other = from_address([127, 0, 0, 2], daemon.address);
    assert!(is_open(&mut other) && is_open(&mut one_more) && is_open(&mut silent[1]));
    assert_eq!(small_copy(&site, daemon.address), "");
}

#[test]
fn a_port_scan_does_not_disturb_a_transfer() {
    let site = Site::new();
    let daemon = daemon_with(&site, "");
    during_a_transfer(&site, &daemon, || {
        for round in 0..300u32 {
            let Ok(mut stream) = TcpStream::connect(daemon.address) else { continue };
            match round % 4 {
                0 => {}
                1 => drop(stream.write_all(&noise(200))),
                2 => drop(stream.write_all(b"carrackd\x03\x00")),
                _ => drop(socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
            }
        }
    });
    assert!(daemon.children().is_empty() || site.audited(1).len() == 1);
}

/// Changes the limit of a running process.
fn limit_descriptors(daemon: &Daemon, limit: u64) {
    let limit = Rlimit { current: Some(limit), maximum: Some(20_000) };
    rustix::process::prlimit(Some(daemon.pid()), Resource::Nofile, limit).unwrap();
}

#[test]
fn few_descriptors_are_kept_for_those_who_say_something() {
    let site = Site::new();
    let config = site.write_config(
        "",
        &format!(
            "[limits]\nhalf_open = 1000\nper_address = 1000\nhandshake_seconds = 600\n{}",
            site.usual_exports()
        ),
    );
    let mut command = Command::new("prlimit");
    command.args(["--nofile=64:64", daemon::CARRACK]);
    let daemon = Daemon::start_as(&mut command, &config);
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    daemon.wait_for("too many that say nothing");
    assert_eq!(small_copy(&site, daemon.address), "");
    drop(silent);
    assert_eq!(small_copy(&site, daemon.address), "");
}

#[test]
fn without_descriptors_it_does_not_spin_and_comes_back() {
    let site = Site::new();
    let daemon = daemon_with(&site, "per_address = 1000\nhandshake_seconds = 600");
    let own = daemon.descriptors() as u64;
    limit_descriptors(&daemon, own + 3);
    let mut silent: Vec<_> = (0..50).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    daemon.wait_for("no descriptors left");
    assert!(is_closed(&mut silent[0]), "the oldest makes room");
    // There is no descriptor left for a new connection.
    drop(silent);
    wait_until("they are gone", || daemon.descriptors() as u64 == own);
    limit_descriptors(&daemon, own);
    let mut turned_away = TcpStream::connect(daemon.address).unwrap();
    assert!(is_closed(&mut turned_away));
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid().as_raw_nonzero())).unwrap();
        let words: Vec<u64> =
            stat.rsplit(')').next().unwrap().split_whitespace().filter_map(|w| w.parse().ok()).collect();
        // utime and stime are the 14th and 15th field; the state is no number.
        words[10] + words[11]
    };
    let before = ticks();
    thread::sleep(Duration::from_millis(500));
    assert!(ticks() - before < 10, "it sleeps");
    limit_descriptors(&daemon, 1000);
    assert_eq!(small_copy(&site, daemon.address), "");
}

#[test]
fn one_address_can_not_have_all_processes() {
    let site = Site::new();
    let daemon = daemon_with(&site, "handshakes = 8\nhandshake_seconds = 600");
    let hello = first_record_of_a_client(&site);
    let slow: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(daemon.address).unwrap();
            stream.write_all(&hello).unwrap();
            stream
        })
        .collect();
    wait_until("their share is taken", || daemon.children().len() == 2);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.children().len(), 2);
    let other = from_address([127, 0, 0, 2], daemon.address);
    (&other).write_all(&hello).unwrap();
    wait_until("another address has room", || daemon.children().len() == 3);
    drop(slow);
}

#[test]
fn a_few_addresses_that_stop_in_their_handshakes_keep_no_other_out() {
    let site = Site::new();
    let daemon = daemon_with(&site, "handshakes = 8\nhalf_open = 40\nhandshake_seconds = 600");
    let hello = first_record_of_a_client(&site);
    let begin = |host: u8, count: usize| -> Vec<_> {
        let begun = (0..count).map(|_| {
            let mut stream = from_address([127, 0, 0, host], daemon.address);
            stream.write_all(&hello).unwrap();
            stream
        });
        begun.collect()
    };
    // Each of four addresses has two processes and many waiting connections, so that some of these are
    // closed.
    let stalled: Vec<_> = (2..6).flat_map(|host| begin(host, 2)).collect();
    wait_until("all places are taken", || daemon.children().len() == 8);
    let mut waiting: Vec<_> = (2..6).flat_map(|host| begin(host, 15)).collect();
    for _ in 0..3 {
        assert_eq!(small_copy(&site, daemon.address), "");
    }
    daemon.wait_for("ended in its handshake, others waited");
    assert!(waiting.iter_mut().any(is_closed));
    drop(stalled);
}

#[test]
fn handshakes_wait_for_their_turn() {
    let site = Site::new();
    let daemon = daemon_with(&site, "handshakes = 1\nhandshake_seconds = 60");
    // TLS is established, and the client is silent: the only place is taken.
    let first = site.connect(daemon.address, "alice");
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| site.try_connect(daemon.address, Some(site.identity("bob"))).is_ok());
        thread::sleep(Duration::from_millis(500));
        assert_eq!(daemon.children().len(), 1);
        drop(first);
        second.join().unwrap()
    });
    assert!(second, "the place is free again");
}
