//! Both ends of a transfer without any protocol: the receiver knows the data to expect.
//!
//! Stream *n* carries the large files *n*, *n* + streams, …; each has a thread at both ends, which handles
//! one block after the other. If there are fewer files than streams, streams share a file and take its blocks
//! in turn.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use carrack_bench::{noise, xxh3};
use rustix::fs::sendfile;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

use crate::kind::{ReceiveWay, SendWay, Transfer};
use crate::link;
use crate::options::Sizes;
use crate::place::Place;
use crate::worker::{Task, in_threads, say};

/// Largest size of a pipe without a privilege (`fs.pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;

/// Connects to `port`, and returns the task that sends.
pub fn prepare_sender(transfer: Transfer, sizes: Sizes, place: Place, port: u16) -> Result<Task> {
    let lanes = lanes(link::connect_all(port, &transfer)?, &transfer, sizes, &place);
    Ok(Box::new(move || in_threads(lanes, |lane| lane.send(transfer.send))))
}

/// Prints its port, waits for the connections, and returns the task that receives.
pub fn prepare_receiver(transfer: Transfer, sizes: Sizes, place: Place) -> Result<Task> {
    let listener = link::listen()?;
    say(&format!("port {}", listener.local_addr()?.port()))?;
    let lanes = lanes(link::accept_all(&listener, &transfer)?, &transfer, sizes, &place);
    match transfer.receive {
        ReceiveWay::Splice => {
            let lanes = lanes.into_iter().map(|lane| Ok((lane, Pipe::new()?))).collect::<Result<_>>()?;
            Ok(Box::new(move || in_threads(lanes, |(lane, pipe)| lane.splice(&pipe))))
        }
        way => Ok(Box::new(move || in_threads(lanes, |lane| lane.receive(way)))),
    }
}

/// One end of one stream.
struct Lane {
    socket: TcpStream,
    /// The large files that it carries.
    files: Vec<u64>,
    /// The first block of each file that it carries.
    first_block: u64,
    /// Number of streams that carry a file.
    sharers: u64,
    place: Place,
    file_bytes: u64,
    block: Vec<u8>,
}

fn lanes(sockets: Vec<TcpStream>, transfer: &Transfer, sizes: Sizes, place: &Place) -> Vec<Lane> {
    let lane = |(number, socket)| Lane {
        socket,
        files: (number % sizes.file_count..sizes.file_count).step_by(transfer.streams as usize).collect(),
        first_block: number / sizes.file_count,
        sharers: transfer.streams.div_ceil(sizes.file_count),
        place: place.clone(),
        file_bytes: sizes.file_bytes,
        block: noise(sizes.block_bytes as usize, number),
    };
    (0..).zip(sockets).map(lane).collect()
}

impl Lane {
    fn send(mut self, way: SendWay) -> Result<u128> {
        let mut digest = 0_u128;
        for index in self.files.clone() {
            let file = (way != SendWay::Buffer).then(|| File::open(self.place.source(index))).transpose()?;
            for (offset, len) in self.blocks() {
                match &file {
                    Some(file) => digest = digest.wrapping_add(self.send_block(way, file, offset, len)?),
                    None => self.socket.write_all(&self.block[..len])?,
                }
            }
        }
        Ok(digest)
    }

    /// Sends a block; returns its hash, 0 without hashing.
    fn send_block(&mut self, way: SendWay, file: &File, offset: u64, len: usize) -> Result<u128> {
        let block = &mut self.block[..len];
        if way != SendWay::Sendfile {
            file.read_exact_at(block, offset)?;
        }
        let digest = match way {
            SendWay::ReadHash | SendWay::HashSendfile => xxh3(block),
            _ => 0,
        };
        match way {
            SendWay::Sendfile | SendWay::HashSendfile => sendfile_all(&self.socket, file, offset, len)?,
            _ => self.socket.write_all(block)?,
        }
        Ok(digest)
    }

    fn receive(mut self, way: ReceiveWay) -> Result<u128> {
        let mut digest = 0_u128;
        for index in self.files.clone() {
            let file = (way != ReceiveWay::Buffer).then(|| self.copy(index)).transpose()?;
            for (offset, len) in self.blocks() {
                let block = &mut self.block[..len];
                receive_all(&self.socket, block)?;
                if way == ReceiveWay::HashWrite {
                    digest = digest.wrapping_add(xxh3(block));
                }
                if let Some(file) = &file {
                    file.write_all_at(block, offset)?;
                }
            }
        }
        Ok(digest)
    }

    fn splice(self, pipe: &Pipe) -> Result<u128> {
        for &index in &self.files {
            let file = self.copy(index)?;
            for (offset, len) in self.blocks() {
                pipe.carry(&self.socket, &file, offset, len)?;
            }
        }
        Ok(0)
    }

    /// Opens the new file, which another stream may have made.
    fn copy(&self, index: u64) -> Result<File> {
        Ok(OpenOptions::new().write(true).create(true).truncate(false).open(self.place.copy(index))?)
    }

    /// Returns offset and length of every block of a file that this stream carries.
    fn blocks(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (file_bytes, block_bytes) = (self.file_bytes, self.block.len() as u64);
        let len_at = move |offset: u64| (file_bytes - offset).min(block_bytes) as usize;
        let offsets =
            (self.first_block * block_bytes..file_bytes).step_by(self.sharers as usize * self.block.len());
        offsets.map(move |offset| (offset, len_at(offset)))
    }
}

fn sendfile_all(socket: &TcpStream, file: &File, mut offset: u64, len: usize) -> Result<()> {
    let mut left = len;
    while left > 0 {
        let sent = retry_on_intr(|| sendfile(socket, file, Some(&mut offset), left))?;
        ensure!(sent > 0, "a source file ends early");
        left -= sent;
    }
    Ok(())
}

fn receive_all(socket: &TcpStream, mut block: &mut [u8]) -> Result<()> {
    while !block.is_empty() {
        let (received, _) = retry_on_intr(|| recv(socket, &mut *block, RecvFlags::WAITALL))?;
        ensure!(received > 0, "the sender left early");
        block = &mut block[received..];
    }
    Ok(())
}

/// The pipe that `splice` needs between a socket and a file.
struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

impl Pipe {
    fn new() -> Result<Pipe> {
        let (output, input) = pipe()?;
        fcntl_setpipe_size(&input, PIPE_BYTES)?;
        Ok(Pipe { output, input })
    }

    /// Moves `len` bytes, to `offset` of the file.
    fn carry(&self, socket: &TcpStream, file: &File, mut offset: u64, len: usize) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let flags = SpliceFlags::MOVE | SpliceFlags::MORE;
            let filled = retry_on_intr(|| splice(socket, None, &self.input, None, left, flags))?;
            ensure!(filled > 0, "the sender left early");
            self.drain(file, &mut offset, filled)?;
            left -= filled;
        }
        Ok(())
    }

    fn drain(&self, file: &File, offset: &mut u64, len: usize) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let flags = SpliceFlags::MOVE;
            let written = retry_on_intr(|| splice(&self.output, None, file, Some(offset), left, flags))?;
            ensure!(written > 0, "a pipe is empty too early");
            left -= written;
        }
        Ok(())
    }
}
