//! What a transfer's sessions have moved beside what the log's chunks say: for chunks that others finished, and in sessions
//! whose source died before it told.

use std::collections::HashMap;

/// Memory: two numbers for each session that moved something.
#[derive(Default)]
pub(super) struct Moved {
    beside: u64,
    sessions: HashMap<String, Session>,
}

/// Since it began, as its two ends know.
#[derive(Clone, Copy, Default)]
struct Session {
    by_source: u64,
    by_sink: u64,
}

impl Moved {
    /// Bytes that no chunk has in its entry.
    pub fn add(&mut self, bytes: u64) {
        self.beside += bytes;
    }

    /// What the source of a session has told in all so far, in entries of chunks and others.
    pub fn told_by_source(&mut self, session: &str, bytes: u64) {
        let session = self.session(session);
        session.by_source = session.by_source.max(bytes);
    }

    /// What its sink has written in all.
    pub fn told_by_sink(&mut self, session: &str, bytes: u64) {
        let session = self.session(session);
        session.by_sink = session.by_sink.max(bytes);
    }

    fn session(&mut self, name: &str) -> &mut Session {
        self.sessions.entry(name.to_owned()).or_default()
    }

    /// All that no chunk has in its entry.
    pub fn bytes(&self) -> u64 {
        let untold = self.sessions.values().map(|session| session.by_sink.saturating_sub(session.by_source));
        self.beside + untold.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_source_has_not_told_is_counted_as_its_sink_knows_it() {
        let mut moved = Moved::default();
        moved.add(5);
        moved.told_by_source("dies", 70);
        moved.told_by_source("dies", 100);
        moved.told_by_sink("dies", 130);
        // Its end was noticed by both, and each entry may come twice and late.
        moved.told_by_sink("ends", 40);
        moved.told_by_source("ends", 40);
        moved.told_by_source("ends", 20);
        moved.told_by_sink("dies", 130);
        assert_eq!(moved.bytes(), 5 + 30);
        // The sink's words come before the source's.
        moved.told_by_sink("silent", 7);
        assert_eq!(moved.bytes(), 5 + 30 + 7);
        moved.told_by_source("silent", 8);
        assert_eq!(moved.bytes(), 5 + 30);
    }
}
