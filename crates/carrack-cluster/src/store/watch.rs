//! Watching a bucket's keys.

use std::collections::HashMap;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::bucket::is_deletion_marker;
use super::stream_follower::StreamMessage;
use super::{KvBucketEntry, NatsStreamFollower, TailEvent, read_record};

/// Timeout of the first entries: an entry that expires while they are on their way is never sent.
const FIRST_ENTRIES_WITHIN: Duration = Duration::from_secs(2);

/// A change of the keys.
#[derive(Debug)]
pub(crate) enum BucketKeyChange<T> {
    /// All entries: at the start, and after every interruption. Earlier entries that are not among these are
    /// gone.
    All(Vec<KvBucketEntry<T>>),
    /// A key has this value now.
    Put(KvBucketEntry<T>),
    /// A key has no value, or an unreadable or unwanted one.
    Gone(String),
}

/// A watch, which never ends.
pub(crate) struct BucketWatch<T> {
    tail: NatsStreamFollower,
    prefix: String,
    keeps: fn(&T) -> bool,
}

impl<T: DeserializeOwned> BucketWatch<T> {
    pub(super) fn new(tail: NatsStreamFollower, prefix: String) -> BucketWatch<T> {
        BucketWatch { tail, prefix, keeps: |_| true }
    }

    /// Treats other values as missing.
    pub(crate) fn with_value_filter(self, keeps: fn(&T) -> bool) -> BucketWatch<T> {
        BucketWatch { keeps, ..self }
    }

    pub(crate) async fn next(&mut self) -> BucketKeyChange<T> {
        match self.tail.next().await {
            TailEvent::Begun(pending) => BucketKeyChange::All(self.initial_entries(pending).await),
            TailEvent::Next(message) => self.read(&message),
        }
    }

    async fn initial_entries(&mut self, mut pending: u64) -> Vec<KvBucketEntry<T>> {
        // Boxed, as a growing map has twice the room that it needs.
        let mut entries: HashMap<String, Box<KvBucketEntry<T>>> = HashMap::new();
        while pending > 0 {
            match tokio::time::timeout(FIRST_ENTRIES_WITHIN, self.tail.next()).await {
                Err(_) => break,
                Ok(TailEvent::Begun(again)) => {
                    entries.clear();
                    pending = again;
                }
                Ok(TailEvent::Next(message)) => {
                    pending = message.behind;
                    // A key that changed meanwhile may come twice: the last value counts.
                    match self.read(&message) {
                        BucketKeyChange::Put(entry) => {
                            drop(entries.insert(entry.key.clone(), Box::new(entry)))
                        }
                        BucketKeyChange::Gone(key) => drop(entries.remove(&key)),
                        BucketKeyChange::All(_) => {}
                    }
                }
            }
        }
        entries.into_values().map(|entry| *entry).collect()
    }

    fn read(&self, message: &StreamMessage) -> BucketKeyChange<T> {
        let key = message.subject.strip_prefix(&self.prefix).unwrap_or(&message.subject).to_owned();
        if is_deletion_marker(&message.headers) {
            return BucketKeyChange::Gone(key);
        }
        match read_record(&key, &message.body) {
            Ok(value) if (self.keeps)(&value) => {
                BucketKeyChange::Put(KvBucketEntry { key, value, revision: message.seq })
            }
            _ => BucketKeyChange::Gone(key),
        }
    }
}
