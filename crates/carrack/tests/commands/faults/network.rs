//! The network between the two ends: every connection passes through here, and can break in every way a connection can.
//!
//! Each connection has a thread that passes bytes on; what is to happen to it is said through atomics. Silence is made by
//! not reading any more: the sender's buffers fill up, as when nothing is acknowledged, and nobody is told of an end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use super::chance::Chance;
use super::fault::{Reach, Towards};

const TICK: Duration = Duration::from_millis(10);

/// Bytes under way in each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// In each direction of each connection, while the network crawls.
const CRAWL_BYTES_PER_TICK: usize = 512;

/// What is to become of a connection.
const FLOWING: u8 = 0;
const RESET: u8 = 1;
const CLOSED: u8 = 2;

/// Directions in which nothing passes, as bits.
const TO_LISTENER: u8 = 1;
const TO_DIALER: u8 = 2;

/// All that passes between the ends.
pub struct Network {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_crawling: AtomicBool,
    /// In all directions: of new connections, and beside their own of those that stand.
    dark: AtomicU8,
    /// Bytes that passed, in both directions.
    moved: AtomicU64,
    connections: Mutex<Vec<Arc<Connection>>>,
}

struct Connection {
    is_control: bool,
    fate: AtomicU8,
    dark: AtomicU8,
    has_ended: AtomicBool,
}

/// What a listener's connections are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    Control,
    Data,
    /// Both, the first of a session being its control channel.
    Both,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Network {
    pub fn new() -> Network {
        Network { shared: Arc::default(), threads: Vec::new() }
    }

    /// Leads from a port of this host's (0: any) to another one; the first one's number.
    pub fn lead(&mut self, from: u16, to: u16, carries: Carries) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, from))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = self.shared.clone();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, to));
        self.threads.push(thread::spawn(move || shared.accept(&listener, to, carries)));
        Ok(port)
    }

    /// Bytes that passed so far, in both directions.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// How many connections were met.
    pub fn reset(&self, reach: Reach, chance: &mut Chance) -> usize {
        self.end(reach, RESET, chance)
    }

    /// How many connections were met.
    pub fn close(&self, reach: Reach, chance: &mut Chance) -> usize {
        self.end(reach, CLOSED, chance)
    }

    fn end(&self, reach: Reach, fate: u8, chance: &mut Chance) -> usize {
        let met = self.shared.choose(reach, chance);
        met.iter().for_each(|connection| connection.fate.store(fate, Ordering::Relaxed));
        met.len()
    }

    /// From now on nothing passes, in one direction or both; how many connections were met.
    pub fn silence(&self, reach: Reach, towards: Option<Towards>, chance: &mut Chance) -> usize {
        let bits = match towards {
            Some(Towards::Listener) => TO_LISTENER,
            Some(Towards::Dialer) => TO_DIALER,
            None => TO_LISTENER | TO_DIALER,
        };
        let met = self.shared.choose(reach, chance);
        met.iter().for_each(|connection| connection.dark.store(bits, Ordering::Relaxed));
        met.len()
    }

    /// Whether anything passes at all; how many connections that concerns now.
    pub fn set_dark(&self, is_dark: bool) -> usize {
        self.shared.dark.store(if is_dark { TO_LISTENER | TO_DIALER } else { 0 }, Ordering::Relaxed);
        self.shared.alive().len()
    }

    /// Whether everything is slow; how many connections that concerns now.
    pub fn set_crawling(&self, is_crawling: bool) -> usize {
        self.shared.is_crawling.store(is_crawling, Ordering::Relaxed);
        self.shared.alive().len()
    }

    /// Breaks one connection, any of them; whether there was one.
    pub fn break_one(&self, chance: &mut Chance) -> bool {
        let alive = self.shared.alive();
        if alive.is_empty() {
            return false;
        }
        let fate = chance.one_of(&[RESET, CLOSED]);
        alive[chance.within(0..=alive.len() as u64 - 1) as usize].fate.store(fate, Ordering::Relaxed);
        true
    }

    /// Ends everything that stands, as when a gateway forgets; what comes later passes.
    pub fn sever(&self) {
        self.set_dark(false);
        self.set_crawling(false);
        self.shared.alive().iter().for_each(|connection| connection.fate.store(RESET, Ordering::Relaxed));
    }
}

impl Shared {
    fn alive(&self) -> Vec<Arc<Connection>> {
        let mut connections = self.connections.lock().unwrap();
        connections.retain(|connection| !connection.has_ended.load(Ordering::Relaxed));
        connections.clone()
    }

    fn choose(&self, reach: Reach, chance: &mut Chance) -> Vec<Arc<Connection>> {
        let alive = self.alive();
        match reach {
            Reach::All => alive,
            Reach::Control => alive.into_iter().filter(|connection| connection.is_control).collect(),
            Reach::Data => {
                let data: Vec<_> = alive.into_iter().filter(|connection| !connection.is_control).collect();
                let one = (!data.is_empty()).then(|| chance.within(0..=data.len() as u64 - 1) as usize);
                one.map(|index| data[index].clone()).into_iter().collect()
            }
        }
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener, to: SocketAddr, carries: Carries) {
        let mut threads = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((dialer, _)) => threads.extend(self.join(dialer, to, carries)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(2))
                }
                Err(error) => panic!("the network can't accept: {error}"),
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Where nobody listens, the dialer is sent away.
    fn join(
        self: &Arc<Shared>,
        dialer: TcpStream,
        to: SocketAddr,
        carries: Carries,
    ) -> Option<JoinHandle<()>> {
        let listener = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?;
        let is_first = carries == Carries::Both && self.alive().is_empty();
        let connection = Arc::new(Connection {
            is_control: carries == Carries::Control || is_first,
            fate: AtomicU8::new(FLOWING),
            dark: AtomicU8::new(0),
            has_ended: AtomicBool::new(false),
        });
        self.connections.lock().unwrap().push(connection.clone());
        let shared = self.clone();
        Some(thread::spawn(move || {
            // What goes wrong on a connection is its end.
            let _ = Pair::new(dialer, listener).and_then(|mut pair| pair.pass(&shared, &connection));
            connection.has_ended.store(true, Ordering::Relaxed);
        }))
    }
}

/// The two sides of a connection.
struct Pair {
    dialer: TcpStream,
    listener: TcpStream,
    out: Flow,
    back: Flow,
}

/// One direction.
#[derive(Default)]
struct Flow {
    waiting: Vec<u8>,
    has_end: bool,
    is_done: bool,
}

impl Pair {
    fn new(dialer: TcpStream, listener: TcpStream) -> io::Result<Pair> {
        for socket in [&dialer, &listener] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
        }
        Ok(Pair { dialer, listener, out: Flow::default(), back: Flow::default() })
    }

    /// Until both directions have ended, somebody breaks it, or a side fails.
    fn pass(&mut self, shared: &Shared, connection: &Connection) -> io::Result<()> {
        while !(shared.is_over.load(Ordering::Relaxed) || self.out.is_done && self.back.is_done) {
            match connection.fate.load(Ordering::Relaxed) {
                RESET => return self.reset(),
                CLOSED => return Ok(()),
                _ => {}
            }
            let dark = connection.dark.load(Ordering::Relaxed) | shared.dark.load(Ordering::Relaxed);
            let is_crawling = shared.is_crawling.load(Ordering::Relaxed);
            self.wait(dark)?;
            let most = if is_crawling { CRAWL_BYTES_PER_TICK } else { BUFFER_BYTES };
            let moved = self.step(dark, most).or_else(|_| self.reset().map(|()| 0))?;
            shared.moved.fetch_add(moved, Ordering::Relaxed);
            if is_crawling {
                thread::sleep(TICK);
            }
        }
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        for socket in [&self.dialer, &self.listener] {
            SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
        }
        Err(ErrorKind::ConnectionReset.into())
    }

    /// Until something can be passed on, or for a tick.
    fn wait(&self, dark: u8) -> io::Result<()> {
        let (mut of_dialer, mut of_listener) = (PollFlags::empty(), PollFlags::empty());
        if dark & TO_LISTENER == 0 {
            of_dialer |= self.out.wants_to_read();
            of_listener |= self.out.wants_to_write();
        }
        if dark & TO_DIALER == 0 {
            of_listener |= self.back.wants_to_read();
            of_dialer |= self.back.wants_to_write();
        }
        // A socket of which nothing is wanted would still wake with its errors.
        let mut waited: Vec<PollFd<'_>> = Vec::new();
        for (socket, flags) in [(&self.dialer, of_dialer), (&self.listener, of_listener)] {
            if !flags.is_empty() {
                waited.push(PollFd::new(socket, flags));
            }
        }
        poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 }))?;
        Ok(())
    }

    fn step(&mut self, dark: u8, most: usize) -> io::Result<u64> {
        let mut moved = 0;
        if dark & TO_LISTENER == 0 {
            moved += self.out.step(&self.dialer, &self.listener, most)?;
        }
        if dark & TO_DIALER == 0 {
            moved += self.back.step(&self.listener, &self.dialer, most)?;
        }
        Ok(moved)
    }
}

impl Flow {
    fn wants_to_read(&self) -> PollFlags {
        if self.waiting.is_empty() && !self.has_end { PollFlags::IN } else { PollFlags::empty() }
    }

    fn wants_to_write(&self) -> PollFlags {
        if self.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT }
    }

    /// Reads once and writes once; how much was read.
    fn step(&mut self, mut from: &TcpStream, mut to: &TcpStream, most: usize) -> io::Result<u64> {
        let mut read = 0;
        if self.waiting.is_empty() && !self.has_end {
            self.waiting.resize(most, 0);
            let count = unless_blocked(from.read(&mut self.waiting));
            self.waiting.truncate(count.as_ref().map_or(0, |count| count.unwrap_or(0)));
            self.has_end = count? == Some(0);
            read = self.waiting.len() as u64;
        }
        if !self.waiting.is_empty() {
            let written = unless_blocked(to.write(&self.waiting))?.unwrap_or(0);
            self.waiting.drain(..written);
        }
        if self.has_end && self.waiting.is_empty() && !self.is_done {
            self.is_done = true;
            to.shutdown(Shutdown::Write)?;
        }
        Ok(read)
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        other => other.map(Some),
    }
}
