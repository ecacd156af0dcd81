//! Existence queries to the source, from the query to the reply.
//!
//! One I/O thread of the first lane asks and waits; the first lane's comm thread delivers the reply.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use carrack_machine::{FifoConditionLock, FifoMonitorClosed};

/// The open queries, with the replies that have arrived.
pub(super) struct OpenSourceQueries(FifoConditionLock<HashMap<u64, Option<Vec<u8>>>>);

impl OpenSourceQueries {
    pub(super) fn new() -> OpenSourceQueries {
        OpenSourceQueries(FifoConditionLock::new(HashMap::new()))
    }

    /// Registers a query that is about to be sent. Returns false if a query of that number is open.
    #[must_use]
    pub(super) fn register(&self, id: u64) -> bool {
        self.0.with(|open| match open.entry(id) {
            Entry::Vacant(place) => {
                place.insert(None);
                true
            }
            Entry::Occupied(_) => false,
        })
    }

    /// Delivers the source's reply. Returns false if that query is not open, or has a reply.
    #[must_use]
    pub(super) fn deliver_reply(&self, id: u64, kinds: Vec<u8>) -> bool {
        self.0.change_and_wake_one(|open| match open.get_mut(&id) {
            Some(answer @ None) => {
                *answer = Some(kinds);
                true
            }
            _ => false,
        })
    }

    /// Waits for the reply to a query, and closes the query.
    pub(super) fn await_reply(&self, id: u64) -> Result<Vec<u8>, FifoMonitorClosed> {
        self.0.take(|open| {
            assert!(open.contains_key(&id), "who waits for an answer has asked");
            let kinds = open.get_mut(&id).and_then(Option::take)?;
            open.remove(&id);
            Some(kinds)
        })
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_belongs_to_an_open_question() {
        let queries = OpenSourceQueries::new();
        assert!(!queries.deliver_reply(1, vec![0]), "nobody asked");
        assert!(queries.register(1) && queries.register(2) && !queries.register(2));
        assert!(
            queries.deliver_reply(2, vec![2]) && !queries.deliver_reply(2, vec![1]),
            "it is answered once"
        );
        assert_eq!(queries.await_reply(2), Ok(vec![2]));
        assert!(!queries.deliver_reply(2, vec![1]), "it was taken");
        thread::scope(|scope| {
            let taken = scope.spawn(|| queries.await_reply(1));
            assert!(queries.deliver_reply(1, vec![0, 1]));
            assert_eq!(taken.join().unwrap(), Ok(vec![0, 1]));
        });
        assert!(queries.register(3));
        queries.close();
        assert_eq!(queries.await_reply(3), Err(FifoMonitorClosed));
    }
}
