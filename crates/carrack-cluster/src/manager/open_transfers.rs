//! The transfers that are not over, as a manager follows them: those that have begun, which it examines with
//! every change, apart from the waiting ones, of which there may be many.

use std::collections::HashMap;

use super::is_open;
use crate::transfer_records::{TransferRecord, TransferState};
use crate::transfers::TransferRecordWatchEvent;

/// All of them, by ID. Each is in one of the two maps.
#[derive(Default)]
pub(super) struct ManagerOpenTransfers {
    begun: HashMap<String, Box<TransferRecord>>,
    waiting: HashMap<String, Box<TransferRecord>>,
}

impl ManagerOpenTransfers {
    pub fn apply_change(&mut self, change: TransferRecordWatchEvent) {
        match change {
            TransferRecordWatchEvent::All(all) => {
                *self = ManagerOpenTransfers::default();
                all.into_iter().for_each(|record| self.put(Box::new(record)));
            }
            TransferRecordWatchEvent::Put(record) => self.put(record),
            TransferRecordWatchEvent::Gone(id) => self.remove(&id),
        }
    }

    fn put(&mut self, record: Box<TransferRecord>) {
        self.remove(&record.id);
        if is_open(&record) {
            let waits = record.leg.is_none() && record.state == TransferState::Queued;
            let those = if waits { &mut self.waiting } else { &mut self.begun };
            those.insert(record.id.clone(), record);
        }
    }

    fn remove(&mut self, id: &str) {
        if self.begun.remove(id).is_none() {
            self.waiting.remove(id);
        }
    }

    pub fn get(&self, id: &str) -> Option<&TransferRecord> {
        self.begun.get(id).or_else(|| self.waiting.get(id)).map(|record| &**record)
    }

    /// Returns true if the transfer is known and not over.
    pub fn has(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    /// Returns those with a leg, or in another state than queued.
    pub fn started_transfers(&self) -> impl Iterator<Item = &TransferRecord> {
        self.begun.values().map(|record| &**record)
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &TransferRecord> {
        self.started_transfers().chain(self.waiting.values().map(|record| &**record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer_records::{ResolvedTransferPaths, TransferSubmission};

    fn record(id: &str) -> TransferRecord {
        let submission: TransferSubmission =
            serde_json::from_str(r#"{"source":"a:/x","destination":"b:/y"}"#).unwrap();
        TransferRecord::queued(id.to_owned(), "u", submission, 1)
    }

    fn begun(open: &ManagerOpenTransfers) -> Vec<String> {
        open.started_transfers().map(|record| record.id.clone()).collect()
    }

    #[test]
    fn each_is_in_one_place_and_leaves_when_it_is_over() {
        let mut open = ManagerOpenTransfers::default();
        open.apply_change(TransferRecordWatchEvent::All(vec![record("1"), record("2")]));
        assert_eq!((open.all().count(), begun(&open)), (2, Vec::<String>::new()));
        let leg = Some(ResolvedTransferPaths { source: "/x".into(), sink: "/y".into(), only: None });
        open.apply_change(TransferRecordWatchEvent::Put(Box::new(TransferRecord { leg, ..record("1") })));
        assert_eq!((open.all().count(), begun(&open)), (2, vec!["1".to_owned()]));
        open.apply_change(TransferRecordWatchEvent::Put(Box::new(TransferRecord {
            state: TransferState::Cancelled,
            ..record("2")
        })));
        // Its leftovers are still to clear.
        assert!(open.has("2") && begun(&open).len() == 2);
        for id in ["1", "2"] {
            let (state, ended_ms) = (TransferState::Cancelled, Some(7));
            open.apply_change(TransferRecordWatchEvent::Put(Box::new(TransferRecord {
                state,
                ended_ms,
                ..record(id)
            })));
        }
        assert_eq!((open.has("1"), open.all().count()), (false, 0));
        open.apply_change(TransferRecordWatchEvent::Put(Box::new(record("3"))));
        open.apply_change(TransferRecordWatchEvent::Gone("3".to_owned()));
        assert_eq!(open.all().count(), 0);
    }
}
