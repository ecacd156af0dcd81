//! Descriptors of both processes. Their numbers are never those of the kernel's descriptors.

use std::collections::BTreeMap;

use crate::scheduler::EndProcess;
use crate::streams::BytePipe;
use crate::volumes::NodeRef;

/// The first simulated descriptor.
pub const FIRST: i32 = 1000;

/// An index of a pipe.
pub type PipeId = usize;

/// The object that a descriptor leads to.
#[derive(Clone, Debug)]
pub enum DescriptorKind {
    /// A file or directory.
    Node {
        /// Which.
        node: NodeRef,
        /// Open for reading.
        reads: bool,
        /// Open for writing.
        writes: bool,
        /// The last name that was listed.
        listed: Option<Vec<u8>>,
    },
    /// An end of a pipe or connection.
    Stream {
        /// The direction from which it reads.
        input: Option<PipeId>,
        /// The direction to which it writes.
        output: Option<PipeId>,
    },
    /// An event counter.
    Event(u64),
    /// A socket that listens, with the ends of connections that nobody accepted.
    Listener {
        /// Its port.
        port: u16,
        /// Input and output of each.
        waiting: Vec<(PipeId, PipeId)>,
    },
    /// A socket that is not connected, with the port that it is bound to.
    Socket(u16),
}

/// An open file description.
#[derive(Clone, Debug)]
pub struct OpenDescription {
    /// The object that it leads to.
    pub kind: DescriptorKind,
    /// Calls don't wait.
    pub is_nonblocking: bool,
    /// Writes go to the end.
    pub appends: bool,
    /// The position in a file.
    pub position: u64,
    /// The file's lock: exclusive or not.
    pub lock: Option<bool>,
    /// The longest wait for bytes.
    pub receive_timeout: Option<u64>,
    /// The longest wait for room.
    pub send_timeout: Option<u64>,
    /// The flags of its opening.
    pub flags: i32,
    references: u32,
}

impl OpenDescription {
    /// A new one.
    pub fn new(kind: DescriptorKind) -> OpenDescription {
        OpenDescription {
            kind,
            is_nonblocking: false,
            appends: false,
            position: 0,
            lock: None,
            receive_timeout: None,
            send_timeout: None,
            flags: libc::O_RDWR,
            references: 0,
        }
    }
}

/// All descriptors, descriptions and pipes.
#[derive(Default)]
pub struct DescriptorTable {
    open: BTreeMap<i32, (usize, EndProcess)>,
    descriptions: Vec<Option<OpenDescription>>,
    /// Pipes, by their index.
    pub pipes: Vec<BytePipe>,
    /// The next port that nobody has.
    next_port: u16,
    /// A lock whose holder is waited for.
    wanted_locks: BTreeMap<usize, bool>,
}

impl DescriptorTable {
    /// Opens a new description.
    pub fn add(&mut self, process: EndProcess, mut description: OpenDescription) -> i32 {
        description.references = 1;
        if let DescriptorKind::Stream { input, output } = &description.kind {
            if let Some(input) = input {
                self.pipes[*input].readers += 1;
            }
            if let Some(output) = output {
                self.pipes[*output].writers += 1;
            }
        }
        self.descriptions.push(Some(description));
        self.number(process, self.descriptions.len() - 1)
    }

    fn number(&mut self, process: EndProcess, description: usize) -> i32 {
        let mut fd = FIRST;
        while self.open.contains_key(&fd) {
            fd += 1;
        }
        self.open.insert(fd, (description, process));
        fd
    }

    /// Another number for the same description.
    pub fn duplicate(&mut self, process: EndProcess, fd: i32) -> Result<i32, i32> {
        let (description, _) = *self.open.get(&fd).ok_or(libc::EBADF)?;
        if let Some(description) = &mut self.descriptions[description] {
            description.references += 1;
        }
        Ok(self.number(process, description))
    }

    /// The description's index.
    pub fn index(&self, fd: i32) -> Result<usize, i32> {
        self.open.get(&fd).map(|(description, _)| *description).ok_or(libc::EBADF)
    }

    /// The description.
    pub fn get(&self, fd: i32) -> Result<&OpenDescription, i32> {
        self.descriptions[self.index(fd)?].as_ref().ok_or(libc::EBADF)
    }

    /// The description, to change it.
    pub fn get_mut(&mut self, fd: i32) -> Result<&mut OpenDescription, i32> {
        let index = self.index(fd)?;
        self.descriptions[index].as_mut().ok_or(libc::EBADF)
    }

    /// Closes a descriptor.
    pub fn close(&mut self, fd: i32, now: u64) -> Result<(), i32> {
        let (index, _) = self.open.remove(&fd).ok_or(libc::EBADF)?;
        let Some(description) = &mut self.descriptions[index] else { return Ok(()) };
        description.references -= 1;
        if description.references > 0 {
            return Ok(());
        }
        match self.descriptions[index].take().map(|description| description.kind) {
            Some(DescriptorKind::Stream { input, output }) => self.leave(input, output, now),
            Some(DescriptorKind::Listener { waiting, .. }) => {
                for (input, output) in waiting {
                    self.leave(Some(input), Some(output), now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn leave(&mut self, input: Option<PipeId>, output: Option<PipeId>, now: u64) {
        if let Some(input) = input {
            let pipe = &mut self.pipes[input];
            pipe.readers -= 1;
            pipe.readers_left_at = now + pipe.delay_ns;
        }
        if let Some(output) = output {
            self.pipes[output].writers = self.pipes[output].writers.saturating_sub(1);
        }
    }

    /// Closes everything that a process has.
    pub fn close_all(&mut self, process: EndProcess, now: u64) {
        for fd in self.of(process) {
            let _ = self.close(fd, now);
        }
    }

    /// The descriptors of a process.
    pub fn of(&self, process: EndProcess) -> Vec<i32> {
        self.open.iter().filter(|(_, (_, owner))| *owner == process).map(|(fd, _)| *fd).collect()
    }

    /// Two new pipes, the directions of a connection: the first one's index is even.
    pub fn pipes(&mut self, capacity: usize) -> (PipeId, PipeId) {
        for _ in 0..2 {
            self.pipes.push(BytePipe::new(capacity));
        }
        (self.pipes.len() - 2, self.pipes.len() - 1)
    }

    /// A port that nobody has.
    pub fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.max(40_000) + 1;
        self.next_port
    }

    /// The description that listens on a port.
    pub fn listener(&mut self, port: u16) -> Option<&mut Vec<(PipeId, PipeId)>> {
        self.descriptions.iter_mut().flatten().find_map(|description| match &mut description.kind {
            DescriptorKind::Listener { port: its, waiting } if *its == port => Some(waiting),
            _ => None,
        })
    }

    /// Notes that a lock is waited for.
    pub fn want_lock(&mut self, description: usize, is_exclusive: bool) {
        self.wanted_locks.insert(description, is_exclusive);
    }

    /// Returns true if no other description holds the lock that is waited for.
    pub fn can_lock(&self, description: usize) -> bool {
        let is_exclusive = self.wanted_locks.get(&description).copied().unwrap_or(true);
        self.is_lock_free(description, is_exclusive)
    }

    /// Returns true if no other description holds the file's lock.
    pub fn is_lock_free(&self, description: usize, is_exclusive: bool) -> bool {
        let node_of = |description: &OpenDescription| match &description.kind {
            DescriptorKind::Node { node, .. } => Some(*node),
            _ => None,
        };
        let mine = self.descriptions[description].as_ref().and_then(node_of);
        let others = self.descriptions.iter().enumerate().filter(|(index, _)| *index != description);
        !others.flat_map(|(_, other)| other).any(|other| {
            node_of(other) == mine && other.lock.is_some_and(|exclusive| exclusive || is_exclusive)
        })
    }

    /// The events of a descriptor, as for `poll`, and the time from which there are more.
    pub fn events(&self, fd: i32, wanted: i16, now: u64) -> (i16, u64) {
        if fd < 0 {
            return (0, u64::MAX);
        }
        let Ok(description) = self.get(fd) else { return (libc::POLLNVAL, u64::MAX) };
        let (mut found, mut next) = (0, u64::MAX);
        match &description.kind {
            DescriptorKind::Node { .. } => found = libc::POLLIN | libc::POLLOUT,
            DescriptorKind::Socket(_) => found = libc::POLLOUT,
            DescriptorKind::Event(count) => {
                if *count > 0 {
                    found |= libc::POLLIN;
                }
                if *count < u64::MAX - 1 {
                    found |= libc::POLLOUT;
                }
            }
            DescriptorKind::Listener { waiting, .. } => {
                if !waiting.is_empty() {
                    found |= libc::POLLIN;
                }
            }
            DescriptorKind::Stream { input, output } => {
                let mut is_half_closed = false;
                if let Some(input) = input {
                    let pipe = &self.pipes[*input];
                    if pipe.readable(now) {
                        found |= libc::POLLIN;
                    } else if wanted & libc::POLLIN != 0 {
                        next = pipe.next_arrival();
                    }
                    if pipe.is_reset {
                        found |= libc::POLLERR;
                    }
                    is_half_closed = pipe.is_at_end() && !pipe.is_silent;
                }
                if let Some(output) = output {
                    let pipe = &self.pipes[*output];
                    if pipe.writable(now) {
                        found |= libc::POLLOUT;
                    }
                    if pipe.readers == 0 && !pipe.is_silent && now < pipe.readers_left_at {
                        next = next.min(pipe.readers_left_at);
                    }
                    if pipe.is_reset || (pipe.is_abandoned(now) && input.is_none()) {
                        found |= libc::POLLERR;
                    }
                }
                let is_taken = |output: &PipeId| !self.pipes[*output].is_abandoned(now);
                if is_half_closed && !output.as_ref().is_some_and(is_taken) {
                    found |= libc::POLLHUP;
                }
                if is_half_closed {
                    found |= wanted & libc::POLLRDHUP;
                }
            }
        }
        let always = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        (found & (wanted | always), next)
    }

    /// Breaks connections over the network: one of them, or all.
    pub fn break_connections(&mut self, choice: u64, is_all: bool, is_silent: bool) -> usize {
        // Both directions of a connection were made one after the other.
        let network: Vec<usize> =
            (0..self.pipes.len()).step_by(2).filter(|&pipe| self.pipes[pipe].is_network).collect();
        let data = network.iter().copied().filter(|&pipe| self.pipes[pipe].writers > 0);
        let candidates: Vec<usize> = data.collect();
        let chosen = match candidates.len() {
            0 => return 0,
            _ if is_all => candidates,
            count => vec![candidates[choice as usize % count]],
        };
        for &pipe in &chosen {
            for pipe in [pipe, pipe + 1] {
                if is_silent { self.pipes[pipe].is_silent = true } else { self.pipes[pipe].reset() }
            }
        }
        chosen.len()
    }
}
