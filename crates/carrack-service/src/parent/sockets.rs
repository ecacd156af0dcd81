//! The sockets that the daemon listens on: systemd's, or its own.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use carrack_transport::set_near_congestion_control;
use listenfd::ListenFd;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that the kernel may hold until they are accepted.
const BACKLOG: i32 = 1024;

/// The listening sockets.
#[derive(Debug)]
pub struct ListenSockets {
    /// Each socket with its configured address; a socket from systemd with its own.
    open: Vec<(SocketAddr, TcpListener)>,
    /// True if they are systemd's.
    given: bool,
}

impl ListenSockets {
    /// Takes the sockets that systemd passes (sd_listen_fds(3)), or else opens `addresses`.
    ///
    /// # Errors
    /// The first address that can't be listened on, by name.
    pub fn open(addresses: &[SocketAddr]) -> io::Result<ListenSockets> {
        let given = from_systemd()?;
        if !given.is_empty() {
            return Ok(ListenSockets { open: given, given: true });
        }
        let open =
            addresses.iter().map(|&address| Ok((address, listen(address)?))).collect::<io::Result<_>>()?;
        Ok(ListenSockets { open, given: false })
    }

    /// Returns all sockets.
    pub fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        self.open.iter().map(|(_, listener)| listener)
    }

    /// Returns true if systemd opened them, so that the configuration's addresses don't count.
    pub fn are_from_systemd(&self) -> bool {
        self.given
    }

    /// Opens sockets for those of `addresses` that have none; open sockets stay as they are.
    ///
    /// # Errors
    /// The first address that can't be listened on; nothing has changed then.
    pub fn open_missing(
        &self,
        addresses: &[SocketAddr],
    ) -> io::Result<Vec<(SocketAddr, Option<TcpListener>)>> {
        let mut changed = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let is_open = self.open.iter().any(|(open, _)| *open == address);
            changed.push((address, if is_open { None } else { Some(listen(address)?) }));
        }
        Ok(changed)
    }

    /// Takes the result of [`ListenSockets::open_missing`]; all other sockets are closed.
    pub fn apply_change(&mut self, changed: Vec<(SocketAddr, Option<TcpListener>)>) {
        let mut before = std::mem::take(&mut self.open);
        for (address, new) in changed {
            if let Some(new) = new {
                self.open.push((address, new));
            } else if let Some(at) = before.iter().position(|(open, _)| *open == address) {
                self.open.push(before.swap_remove(at));
            }
        }
    }
}

fn from_systemd() -> io::Result<Vec<(SocketAddr, TcpListener)>> {
    let mut given = ListenFd::from_env();
    let mut taken = Vec::new();
    for index in 0..given.len() {
        let Some(listener) = given.take_tcp_listener(index)? else { continue };
        listener.set_nonblocking(true)?;
        set_near_congestion_control(&SockRef::from(&listener));
        taken.push((listener.local_addr()?, listener));
    }
    Ok(taken)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    try_listen(address)
        .or_else(|error| match Errno::from_io_error(&error) {
            // Systems without IPv6 get all addresses all the same.
            Some(Errno::AFNOSUPPORT) if address.ip() == Ipv6Addr::UNSPECIFIED => try_listen(everywhere),
            _ => Err(error),
        })
        .map_err(|error| io::Error::new(error.kind(), format!("{address} can't be listened on: {error}")))
}

fn try_listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` means every address, IPv4 included, independent of the system's default.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    set_near_congestion_control(&SockRef::from(&socket));
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A descriptor that is released when no others are left, so that a connection can be accepted and closed: a
/// connection that stays in the kernel's queue would wake the daemon for ever.
#[derive(Debug)]
pub struct ReserveDescriptor(Option<File>);

impl ReserveDescriptor {
    /// Opens the reserved descriptor.
    pub fn new() -> io::Result<ReserveDescriptor> {
        Ok(ReserveDescriptor(Some(File::open("/dev/null")?)))
    }

    /// Closes the connection that waits longest in the kernel's queue.
    pub fn turn_away(&mut self, listener: &TcpListener) {
        self.0 = None;
        drop(listener.accept());
        self.0 = File::open("/dev/null").ok();
    }
}

/// The outcome of accepting a connection.
#[derive(Debug)]
pub enum AcceptResult {
    /// A connection.
    Connection(TcpStream, SocketAddr),
    /// No connection waits.
    None,
    /// No descriptors are left, in this process or in the system.
    NoDescriptors,
    /// The system lacks another resource.
    Trouble(io::Error),
}

/// Accepts one connection, without waiting.
pub fn accept(listener: &TcpListener) -> AcceptResult {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => return AcceptResult::Connection(stream, peer),
            Err(error) => match (error.kind(), Errno::from_io_error(&error)) {
                (ErrorKind::WouldBlock, _) => return AcceptResult::None,
                // A connection that broke before it was accepted (accept(2)).
                (ErrorKind::ConnectionAborted | ErrorKind::Interrupted, _) => {}
                (_, Some(Errno::MFILE | Errno::NFILE)) => return AcceptResult::NoDescriptors,
                _ => return AcceptResult::Trouble(error),
            },
        }
    }
}
