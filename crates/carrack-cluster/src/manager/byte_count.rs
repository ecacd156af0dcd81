//! Bytes that a transfer's sessions have moved in addition to those in the log's chunk entries: for chunks
//! that others finished, and in sessions whose source died before its report.

use std::collections::HashMap;

/// Memory: two numbers for each session that moved bytes.
#[derive(Default)]
pub(super) struct MovedByteCount {
    beside: u64,
    sessions: HashMap<String, SessionByteCount>,
}

/// Bytes of a session since its begin, by each of its ends.
#[derive(Clone, Copy, Default)]
struct SessionByteCount {
    by_source: u64,
    by_sink: u64,
}

impl MovedByteCount {
    /// Adds bytes that are in no chunk's entry.
    pub fn add(&mut self, bytes: u64) {
        self.beside += bytes;
    }

    /// Records the total that the source of a session has reported, in entries of chunks and others.
    pub fn record_source_bytes(&mut self, session: &str, bytes: u64) {
        let session = self.session(session);
        session.by_source = session.by_source.max(bytes);
    }

    /// Records the total that the sink of a session has written.
    pub fn record_sink_bytes(&mut self, session: &str, bytes: u64) {
        let session = self.session(session);
        session.by_sink = session.by_sink.max(bytes);
    }

    fn session(&mut self, name: &str) -> &mut SessionByteCount {
        self.sessions.entry(name.to_owned()).or_default()
    }

    /// Returns all bytes that are in no chunk's entry.
    pub fn bytes_outside_chunks(&self) -> u64 {
        let untold = self.sessions.values().map(|session| session.by_sink.saturating_sub(session.by_source));
        self.beside + untold.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_source_has_not_told_is_counted_as_its_sink_knows_it() {
        let mut moved = MovedByteCount::default();
        moved.add(5);
        moved.record_source_bytes("dies", 70);
        moved.record_source_bytes("dies", 100);
        moved.record_sink_bytes("dies", 130);
        // Both ends reported the session's end, and each entry may arrive twice and late.
        moved.record_sink_bytes("ends", 40);
        moved.record_source_bytes("ends", 40);
        moved.record_source_bytes("ends", 20);
        moved.record_sink_bytes("dies", 130);
        assert_eq!(moved.bytes_outside_chunks(), 5 + 30);
        // The sink's report arrives before the source's.
        moved.record_sink_bytes("silent", 7);
        assert_eq!(moved.bytes_outside_chunks(), 5 + 30 + 7);
        moved.record_source_bytes("silent", 8);
        assert_eq!(moved.bytes_outside_chunks(), 5 + 30);
    }
}
