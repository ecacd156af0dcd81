//! A map of what is in a bucket, kept up by a task of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Bucket, Entry, Seen, Watch};
use crate::bus::Bus;
use crate::error::BusError;

/// How often the clock is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The map. Ends with its last owner.
pub(crate) struct Live<T> {
    entries: Arc<RwLock<BTreeMap<String, Known<T>>>>,
    changes: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

struct Known<T> {
    value: Arc<T>,
    put: Instant,
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Live<T> {
    /// Begins, and has read everything once when it returns. A key that is not put again for `lasts` has ended, whether or not
    /// the server has said so.
    pub(crate) async fn follow(bucket: &Bucket<T>, lasts: Duration) -> Result<Live<T>, BusError> {
        let mut watch = bucket.watch(">").await?;
        let entries = Arc::new(RwLock::new(BTreeMap::new()));
        let (sender, changes) = watch::channel(0);
        let keeper = Keeper { bus: bucket.bus().clone(), entries: Arc::clone(&entries), sender, lasts };
        keeper.take(watch.next().await);
        Ok(Live { entries, changes, task: tokio::spawn(keeper.keep(watch)) })
    }
}

impl<T> Live<T> {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read(|entries| entries.get(key).map(|known| Arc::clone(&known.value)))
    }

    /// In the order of their keys.
    pub(crate) fn all(&self) -> Vec<(String, Arc<T>)> {
        self.read(|entries| {
            entries.iter().map(|(key, known)| (key.clone(), Arc::clone(&known.value))).collect()
        })
    }

    /// Changes whenever the map does.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    fn read<R>(&self, look: impl FnOnce(&BTreeMap<String, Known<T>>) -> R) -> R {
        look(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for Live<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Keeper<T> {
    bus: Bus,
    entries: Arc<RwLock<BTreeMap<String, Known<T>>>>,
    sender: watch::Sender<u64>,
    lasts: Duration,
}

impl<T: DeserializeOwned> Keeper<T> {
    async fn keep(self, mut watch: Watch<T>) {
        let mut clock = tokio::time::interval(LOOK_EVERY);
        loop {
            // Begun once and waited for: what it has gathered would be lost with it.
            let mut next = std::pin::pin!(watch.next());
            let seen = loop {
                tokio::select! {
                    seen = &mut next => break seen,
                    _ = clock.tick() => self.end_what_is_over(),
                }
            };
            self.take(seen);
        }
    }

    fn take(&self, seen: Seen<T>) {
        self.change(|entries| match seen {
            Seen::All(all) => {
                entries.clear();
                entries.extend(all.into_iter().map(known));
            }
            Seen::Put(entry) => {
                let (key, known) = known(entry);
                entries.insert(key, known);
            }
            Seen::Gone(key) => {
                entries.remove(&key);
            }
        });
    }

    /// While there is no connection nobody can be heard, which says nothing about them.
    fn end_what_is_over(&self) {
        let is_over = |known: &Known<T>| known.put.elapsed() > self.lasts;
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let some_are = entries.values().any(is_over);
        drop(entries);
        if some_are && self.bus.silent_for().is_none() {
            self.change(|entries| entries.retain(|_, known| !is_over(known)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Known<T>>)) {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner));
        self.sender.send_modify(|times| *times += 1);
    }
}

fn known<T>(entry: Entry<T>) -> (String, Known<T>) {
    (entry.key, Known { value: Arc::new(entry.value), put: Instant::now() })
}
