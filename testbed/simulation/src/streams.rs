//! Pipes, connections and event counters in memory.

use std::collections::VecDeque;

/// Bytes of one write.
#[derive(Debug)]
struct PipeChunk {
    arrives_at: u64,
    data: Vec<u8>,
    start: usize,
}

/// One direction of a pipe or connection.
#[derive(Debug, Default)]
pub struct BytePipe {
    /// Bytes under way, with the time at which they arrive.
    chunks: VecDeque<PipeChunk>,
    bytes: usize,
    /// The most bytes that may be under way.
    pub capacity: usize,
    /// Open descriptions that read.
    pub readers: u32,
    /// Open descriptions that write.
    pub writers: u32,
    /// The time at which the writers hear that nobody reads any more.
    pub readers_left_at: u64,
    /// The connection was reset.
    pub is_reset: bool,
    /// Bytes vanish, and nothing arrives any more.
    pub is_silent: bool,
    /// The network in between: connections can be lost and be slow.
    pub is_network: bool,
    /// Objects travel in the clear: bits may flip.
    pub may_flip: bool,
    /// The time that bytes are under way.
    pub delay_ns: u64,
}

impl BytePipe {
    /// An empty one.
    pub fn new(capacity: usize) -> BytePipe {
        BytePipe { capacity, ..BytePipe::default() }
    }

    /// Bytes that can be read at this time.
    pub fn readable(&self, now: u64) -> bool {
        if self.is_silent {
            return false;
        }
        self.is_reset || self.chunks.front().is_some_and(|chunk| chunk.arrives_at <= now) || self.is_at_end()
    }

    /// Nobody writes any more, and everything was read.
    pub fn is_at_end(&self) -> bool {
        self.writers == 0 && self.chunks.is_empty()
    }

    /// The time at which the next bytes arrive.
    pub fn next_arrival(&self) -> u64 {
        if self.is_silent { u64::MAX } else { self.chunks.front().map_or(u64::MAX, |chunk| chunk.arrives_at) }
    }

    /// Room for bytes; a pipe without readers takes none, but says so at once.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes)
    }

    /// Writers know that nobody reads any more.
    pub fn is_abandoned(&self, now: u64) -> bool {
        self.readers == 0 && !self.is_silent && now >= self.readers_left_at
    }

    /// A write does not wait.
    pub fn writable(&self, now: u64) -> bool {
        self.is_reset || self.is_abandoned(now) || self.room() > 0
    }

    /// Takes bytes, as many as there is room for.
    pub fn push(&mut self, now: u64, data: &[u8]) -> usize {
        let count = data.len().min(self.room());
        self.bytes += count;
        // Bytes on a silent connection stay in the sender's buffer.
        if count > 0 && !self.is_silent {
            let arrives_at = now + self.delay_ns;
            self.chunks.push_back(PipeChunk { arrives_at, data: data[..count].to_vec(), start: 0 });
        }
        count
    }

    /// Gives out bytes that have arrived.
    pub fn pull(&mut self, now: u64, buffer: &mut [u8], peeks: bool) -> usize {
        let mut got = 0;
        for chunk in self.chunks.iter().take_while(|chunk| chunk.arrives_at <= now) {
            let data = &chunk.data[chunk.start..];
            let count = data.len().min(buffer.len() - got);
            buffer[got..got + count].copy_from_slice(&data[..count]);
            got += count;
        }
        if !peeks {
            self.drop_first(got);
        }
        got
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes -= count;
        let mut left = count;
        while left > 0 {
            let Some(chunk) = self.chunks.front_mut() else { break };
            let here = left.min(chunk.data.len() - chunk.start);
            chunk.start += here;
            left -= here;
            if chunk.start == chunk.data.len() {
                self.chunks.pop_front();
            }
        }
    }

    /// Both ends find the connection broken.
    pub fn reset(&mut self) {
        self.is_reset = true;
        self.chunks.clear();
        self.bytes = 0;
    }
}
