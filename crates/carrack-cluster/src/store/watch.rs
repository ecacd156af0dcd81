//! Watching a bucket's keys.

use std::collections::HashMap;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::bucket::is_mark;
use super::tail::Kept;
use super::{Entry, Tail, Tailed, read_record};

/// Timeout of the first entries: an entry that expires while they are on their way is never sent.
const FIRST_ENTRIES_WITHIN: Duration = Duration::from_secs(2);

/// A change of the keys.
#[derive(Debug)]
pub(crate) enum Seen<T> {
    /// All entries: at the start, and after every interruption. Earlier entries that are not among these are
    /// gone.
    All(Vec<Entry<T>>),
    /// A key has this value now.
    Put(Entry<T>),
    /// A key has no value, or an unreadable or unwanted one.
    Gone(String),
}

/// A watch, which never ends.
pub(crate) struct Watch<T> {
    tail: Tail,
    prefix: String,
    keeps: fn(&T) -> bool,
}

impl<T: DeserializeOwned> Watch<T> {
    pub(super) fn new(tail: Tail, prefix: String) -> Watch<T> {
        Watch { tail, prefix, keeps: |_| true }
    }

    /// Treats other values as missing.
    pub(crate) fn only(self, keeps: fn(&T) -> bool) -> Watch<T> {
        Watch { keeps, ..self }
    }

    pub(crate) async fn next(&mut self) -> Seen<T> {
        match self.tail.next().await {
            Tailed::Begun(pending) => Seen::All(self.first(pending).await),
            Tailed::Next(message) => self.read(&message),
        }
    }

    async fn first(&mut self, mut pending: u64) -> Vec<Entry<T>> {
        // Boxed, as a growing map has twice the room that it needs.
        let mut entries: HashMap<String, Box<Entry<T>>> = HashMap::new();
        while pending > 0 {
            match tokio::time::timeout(FIRST_ENTRIES_WITHIN, self.tail.next()).await {
                Err(_) => break,
                Ok(Tailed::Begun(again)) => {
                    entries.clear();
                    pending = again;
                }
                Ok(Tailed::Next(message)) => {
                    pending = message.behind;
                    // A key that changed meanwhile may come twice: the last value counts.
                    match self.read(&message) {
                        Seen::Put(entry) => drop(entries.insert(entry.key.clone(), Box::new(entry))),
                        Seen::Gone(key) => drop(entries.remove(&key)),
                        Seen::All(_) => {}
                    }
                }
            }
        }
        entries.into_values().map(|entry| *entry).collect()
    }

    fn read(&self, message: &Kept) -> Seen<T> {
        let key = message.subject.strip_prefix(&self.prefix).unwrap_or(&message.subject).to_owned();
        if is_mark(&message.headers) {
            return Seen::Gone(key);
        }
        match read_record(&key, &message.body) {
            Ok(value) if (self.keeps)(&value) => Seen::Put(Entry { key, value, revision: message.seq }),
            _ => Seen::Gone(key),
        }
    }
}
