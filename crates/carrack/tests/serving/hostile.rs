//! Attacks of clients on `carrack serve`, by name, while others copy: each is refused or ended in its way,
//! the daemon lives and does not grow, nothing outside of the exports changes, and the good transfers are not
//! disturbed.

pub mod arena;
pub mod client;
pub mod credentials;
pub mod data;
pub mod handshake;
pub mod sink;
pub mod source;
pub mod strangers;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::daemon::wait_until;
use arena::Arena;
use client::{End, dial_from};

/// A name, the end of the attack (the beginning of an [`End`] in words), and the attack itself. A client that
/// sends to a closed connection may lose the last message with the reset: such an attack has `closed` as a
/// second end, after a bar.
pub type Attack = (&'static str, &'static str, fn(&Arena) -> End);

/// KiB by which the parent may grow: its tables of strangers and sessions, and the allocator's slack.
const PARENT_GROWTH_KIB: u64 = 8 << 10;

/// KiB that the process of one session may take: 32 MiB of buffers, code, stacks and TLS.
const SESSION_KIB: u64 = 128 << 10;

/// Runs an attack, and checks its effects.
fn attacked(arena: &Arena, (name, expected, attack): &Attack) -> Option<String> {
    let began = Instant::now();
    let end = attack(arena).to_string();
    arena.assert_unharmed(name);
    if std::env::var_os("CARRACK_SHOW_ATTACKS").is_some() {
        eprintln!("{:5} ms  {name}: {end}", began.elapsed().as_millis());
    }
    (!expected.split(" | ").any(|expected| end.starts_with(expected)))
        .then(|| format!("{name}: {end}, not {expected}"))
}

/// Returns the memory of the largest session's process while `during` runs, in KiB.
fn with_largest_session(arena: &Arena, during: impl FnOnce()) -> u64 {
    let (over, largest) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                largest.fetch_max(arena.largest_session_kib(), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    largest.into_inner()
}

#[test]
fn attackers_are_refused_and_nobody_else_notices() {
    let quick = [
        strangers::ATTACKS,
        credentials::ATTACKS,
        handshake::ATTACKS,
        source::ATTACKS,
        sink::ATTACKS,
        data::ATTACKS,
    ];
    let slow = [strangers::SLOW_ATTACKS, data::SLOW_ATTACKS];
    let arena = &Arena::new();
    let count = quick.iter().chain(&slow).map(|attacks| attacks.len()).sum::<usize>();
    assert!(count >= 40, "{count} attacks");
    arena.assert_alive("the start");
    let before = arena.daemon.memory_kib();
    let mut surprises = Vec::new();
    let mut transfers = 0;
    let largest = with_largest_session(arena, || {
        transfers = arena.with_good_transfers(|| {
            thread::scope(|scope| {
                let slow: Vec<_> = slow
                    .iter()
                    .copied()
                    .flatten()
                    .map(|attack| scope.spawn(|| attacked(arena, attack)))
                    .collect();
                for attack in quick.iter().copied().flatten() {
                    surprises.extend(attacked(arena, attack));
                    arena.assert_alive(attack.0);
                }
                surprises.extend(slow.into_iter().filter_map(|thread| thread.join().unwrap()));
            });
        });
    });
    assert!(surprises.is_empty(), "{surprises:#?}");
    wait_until("all sessions are over", || arena.daemon.children().is_empty());
    let grown = arena.daemon.memory_kib().saturating_sub(before);
    eprintln!(
        "{count} attacks, {transfers} good transfers; the daemon grew by {grown} KiB, the largest session had {largest} KiB"
    );
    assert!(grown < PARENT_GROWTH_KIB, "the daemon has grown by {grown} KiB");
    assert!(largest < SESSION_KIB, "a session took {largest} KiB");
    assert!(!arena.daemon.log().iter().any(|line| line.contains("panicked")), "{:#?}", arena.daemon.log());
}

/// The connections are half open and from many addresses, like those of a botnet.
#[test]
fn a_flood_of_half_open_connections_is_borne() {
    let wanted: usize = std::env::var("CARRACK_HALF_OPEN").map_or(2_000, |count| count.parse().unwrap());
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let count = wanted.min(limit.maximum.map_or(wanted, |most| most as usize - 500));
    let arena = Arena::new();
    let before = arena.daemon.memory_kib();
    let mut flood: Vec<TcpStream> = Vec::new();
    let transfers = arena.with_good_transfers(|| {
        for number in 0..count {
            let address = [127, 0, 1 + (number / 100) as u8, (1 + number % 100) as u8];
            flood.extend(dial_from(address, arena.address()).ok());
        }
        arena.assert_alive("the flood");
    });
    let grown = arena.daemon.memory_kib().saturating_sub(before);
    eprintln!(
        "{} half-open connections, {transfers} good transfers; the daemon grew by {grown} KiB",
        flood.len()
    );
    assert!(flood.len() * 10 > count * 9, "{} connections came to stand", flood.len());
    assert!(grown < PARENT_GROWTH_KIB, "the daemon has grown by {grown} KiB");
    assert_eq!(client::end_of(&flood[0]), End::Closed, "the oldest makes room");
    arena.assert_unharmed("the flood");
}
