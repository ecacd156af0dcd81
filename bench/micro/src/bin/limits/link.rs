//! The connections of a transfer: over the loopback address, numbered, with a congestion control of their own
//! each.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_congestion};

use crate::kind::Transfer;

/// Time after which a partner on loopback counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Size of each socket's send and receive buffer: more would not stay in the cache.
const BUFFER_BYTES: usize = 1 << 20;

/// Listens on a port of the kernel's choice.
pub fn listen() -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on the loopback address")
}

/// Accepts the receiver's connections, in the order of their numbers.
pub fn accept_all(listener: &TcpListener, transfer: &Transfer) -> Result<Vec<TcpStream>> {
    let mut numbered = Vec::new();
    for _ in 0..transfer.streams {
        let (mut stream, _) = listener.accept()?;
        prepare(&stream, transfer)?;
        let mut number = [0];
        stream.read_exact(&mut number)?;
        numbered.push((number[0], stream));
    }
    numbered.sort_by_key(|(number, _)| *number);
    ensure!((0..).zip(&numbered).all(|(index, (number, _))| index == *number), "connections got mixed up");
    Ok(numbered.into_iter().map(|(_, stream)| stream).collect())
}

/// Opens the sender's connections, in the order of their numbers.
pub fn connect_all(port: u16, transfer: &Transfer) -> Result<Vec<TcpStream>> {
    let connect = |number| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        prepare(&stream, transfer)?;
        stream.write_all(&[number])?;
        Ok(stream)
    };
    (0..transfer.streams as u8).map(connect).collect()
}

/// Sets the options that carrack sets on its data connections.
fn prepare(stream: &TcpStream, transfer: &Transfer) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    set_socket_send_buffer_size(stream, BUFFER_BYTES)?;
    set_socket_recv_buffer_size(stream, BUFFER_BYTES)?;
    let congestion = transfer.congestion.name();
    set_tcp_congestion(stream, congestion)
        .with_context(|| format!("congestion control {congestion} can't be had"))
}
