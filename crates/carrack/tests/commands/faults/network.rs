//! The network between the two ends: every connection passes through it, and can break in every way.
//!
//! Each connection has a thread that forwards bytes; atomics control its fate. For silence the thread stops
//! reading: the sender's buffers fill up, as without acks, and no peer sees an end.

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

/// Bytes in flight in each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// Bytes per tick in each direction of each connection, while the network crawls.
const CRAWL_BYTES_PER_TICK: usize = 512;

/// The fate of a connection.
const FLOWING: u8 = 0;
const RESET: u8 = 1;
const CLOSED: u8 = 2;

/// Directions in which no data passes, as bits.
const TO_LISTENER: u8 = 1;
const TO_DIALER: u8 = 2;

/// The network with all connections between the ends.
pub struct Network {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_crawling: AtomicBool,
    /// Dark directions of all connections, including new ones, besides their own.
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

/// The kind of a listener's connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    Control,
    Data,
    /// Both: the first of a session is its control channel.
    Both,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Network {
    pub fn new() -> Network {
        Network { shared: Arc::default(), threads: Vec::new() }
    }

    /// Forwards connections from a port of this host (0: any) to another port; returns the former.
    pub fn lead(&mut self, from: u16, to: u16, carries: Carries) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, from))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = self.shared.clone();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, to));
        self.threads.push(thread::spawn(move || shared.accept(&listener, to, carries)));
        Ok(port)
    }

    /// Returns the bytes that passed so far, in both directions.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Resets connections; returns their number.
    pub fn reset(&self, reach: Reach, chance: &mut Chance) -> usize {
        self.end(reach, RESET, chance)
    }

    /// Closes connections; returns their number.
    pub fn close(&self, reach: Reach, chance: &mut Chance) -> usize {
        self.end(reach, CLOSED, chance)
    }

    fn end(&self, reach: Reach, fate: u8, chance: &mut Chance) -> usize {
        let met = self.shared.choose(reach, chance);
        met.iter().for_each(|connection| connection.fate.store(fate, Ordering::Relaxed));
        met.len()
    }

    /// Stops the data of connections, in one direction or both; returns their number.
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

    /// Stops or resumes all data; returns the number of connections.
    pub fn set_dark(&self, is_dark: bool) -> usize {
        self.shared.dark.store(if is_dark { TO_LISTENER | TO_DIALER } else { 0 }, Ordering::Relaxed);
        self.shared.alive().len()
    }

    /// Slows all data down, or ends that; returns the number of connections.
    pub fn set_crawling(&self, is_crawling: bool) -> usize {
        self.shared.is_crawling.store(is_crawling, Ordering::Relaxed);
        self.shared.alive().len()
    }

    /// Breaks a random connection; returns true if there was one.
    pub fn break_one(&self, chance: &mut Chance) -> bool {
        let alive = self.shared.alive();
        if alive.is_empty() {
            return false;
        }
        let fate = chance.one_of(&[RESET, CLOSED]);
        alive[chance.within(0..=alive.len() as u64 - 1) as usize].fate.store(fate, Ordering::Relaxed);
        true
    }

    /// Ends all connections, as a gateway that forgets them; new ones pass.
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

    /// Joins a dialer to the listener; without a listener the dialer's connection is closed.
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
            // An error of a connection ends it.
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

    /// Forwards until both directions have ended, a fault breaks it, or a side fails.
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

    /// Waits until data can be forwarded, or for a tick.
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
        // A socket without a wanted event would still wake up for its errors.
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

    /// Reads once and writes once; returns the bytes read.
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
