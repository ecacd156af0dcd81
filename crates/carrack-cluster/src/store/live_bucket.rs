//! A map of a bucket's entries, which a task of its own keeps up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{BucketKeyChange, BucketWatch, KvBucketEntry, RecordBucket};
use crate::bus::NatsBus;
use crate::error::BusError;

/// Interval of checks for expired entries.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time for which a removed entry is remembered: a process that was cut off for a while comes back.
const LATELY: Duration = Duration::from_secs(60);

/// The map. Ends with its last owner.
pub(crate) struct MirroredKvBucket<T> {
    entries: Arc<RwLock<MirroredBucketEntries<T>>>,
    changes: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

struct MirroredBucketEntries<T> {
    there: BTreeMap<String, CachedBucketEntry<T>>,
    /// Removed entries, with the time of removal.
    gone: BTreeMap<String, CachedBucketEntry<T>>,
}

struct CachedBucketEntry<T> {
    value: Arc<T>,
    /// Time at which it was put, or was seen to be gone.
    at: Instant,
}

impl<T> MirroredBucketEntries<T> {
    fn put(&mut self, entry: KvBucketEntry<T>) {
        self.gone.remove(&entry.key);
        self.there.insert(entry.key, CachedBucketEntry { value: Arc::new(entry.value), at: Instant::now() });
    }

    fn retain(&mut self, stays: impl Fn(&str, &CachedBucketEntry<T>) -> bool) {
        let gone: Vec<String> =
            self.there.iter().filter(|(key, known)| !stays(key, known)).map(|(key, _)| key.clone()).collect();
        for key in gone {
            if let Some(known) = self.there.remove(&key) {
                self.gone.insert(key, CachedBucketEntry { at: Instant::now(), ..known });
            }
        }
        self.gone.retain(|_, known| known.at.elapsed() < LATELY);
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> MirroredKvBucket<T> {
    /// Starts following; the present entries are read when this returns. A key that is not put again for
    /// `lasts` counts as expired, even without the server's marker.
    pub(crate) async fn follow(
        bucket: &RecordBucket<T>,
        lasts: Duration,
    ) -> Result<MirroredKvBucket<T>, BusError> {
        let mut watch = bucket.watch(">").await?;
        let entries = MirroredBucketEntries { there: BTreeMap::new(), gone: BTreeMap::new() };
        let entries = Arc::new(RwLock::new(entries));
        let (sender, changes) = watch::channel(0);
        let keeper =
            LiveBucketUpdater { bus: bucket.bus().clone(), entries: Arc::clone(&entries), sender, lasts };
        keeper.apply_change(watch.next().await);
        Ok(MirroredKvBucket { entries, changes, task: tokio::spawn(keeper.follow_changes(watch)) })
    }
}

impl<T> MirroredKvBucket<T> {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read(|entries| entries.there.get(key).map(|known| Arc::clone(&known.value)))
    }

    /// Returns all entries in the order of their keys.
    pub(crate) fn all(&self) -> Vec<(String, Arc<T>)> {
        self.read(|entries| {
            entries.there.iter().map(|(key, known)| (key.clone(), Arc::clone(&known.value))).collect()
        })
    }

    /// Returns the present entries, and those removed within the last minute.
    pub(crate) fn recent_values(&self) -> Vec<Arc<T>> {
        self.read(|entries| {
            let gone = entries.gone.values().filter(|known| known.at.elapsed() < LATELY);
            entries.there.values().chain(gone).map(|known| Arc::clone(&known.value)).collect()
        })
    }

    /// Returns a receiver that changes with the map.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    fn read<R>(&self, look: impl FnOnce(&MirroredBucketEntries<T>) -> R) -> R {
        look(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for MirroredKvBucket<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct LiveBucketUpdater<T> {
    bus: NatsBus,
    entries: Arc<RwLock<MirroredBucketEntries<T>>>,
    sender: watch::Sender<u64>,
    lasts: Duration,
}

impl<T: DeserializeOwned> LiveBucketUpdater<T> {
    async fn follow_changes(self, mut watch: BucketWatch<T>) {
        let mut clock = tokio::time::interval(LOOK_EVERY);
        loop {
            // Created once and polled to its end: a dropped future would lose the entries that it has
            // gathered.
            let mut next = std::pin::pin!(watch.next());
            let seen = loop {
                tokio::select! {
                    seen = &mut next => break seen,
                    _ = clock.tick() => self.remove_expired(),
                }
            };
            self.apply_change(seen);
        }
    }

    fn apply_change(&self, seen: BucketKeyChange<T>) {
        self.change(|entries| match seen {
            BucketKeyChange::All(all) => {
                let keys: BTreeSet<String> = all.iter().map(|entry| entry.key.clone()).collect();
                entries.retain(|key, _| keys.contains(key));
                all.into_iter().for_each(|entry| entries.put(entry));
            }
            BucketKeyChange::Put(entry) => entries.put(entry),
            BucketKeyChange::Gone(key) => entries.retain(|other, _| other != key),
        });
    }

    /// Removes expired entries, but none without a connection: then renewals can't arrive.
    fn remove_expired(&self) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let some_are = entries.there.values().any(|known| known.at.elapsed() > self.lasts);
        drop(entries);
        if some_are && self.bus.disconnected_for().is_none() {
            self.change(|entries| entries.retain(|_, known| known.at.elapsed() <= self.lasts));
        }
    }

    fn change(&self, change: impl FnOnce(&mut MirroredBucketEntries<T>)) {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner));
        self.sender.send_modify(|times| *times += 1);
    }
}
