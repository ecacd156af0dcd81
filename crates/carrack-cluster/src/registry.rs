//! The registry of movers: each renews its record, and all other processes keep a map of the records.
//!
//! A mover that is silent for [`LEASE`] is gone. It removes its record when it leaves, which saves others the
//! wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_plan::fleet::{MoverStorageMark, same_storage};
use carrack_wire::PROTOCOL_VERSION;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::bus::{LEASE, NatsBus};
use crate::error::BusError;
use crate::store::{MirroredKvBucket, RecordBucket};
use crate::subjects::NatsBucketName;
use crate::transfer_records::{MoverRecord, is_name};

/// Interval of heartbeats: two may be lost before the lease is.
pub const BEAT: Duration = Duration::from_secs(2);

/// Minimum interval between two reports of changes: a mover's rate changes all the time.
const CHANGES_APART: Duration = Duration::from_millis(250);

/// Time after which a watcher counts a silent mover as gone, even without the server's marker.
const GONE_AFTER: Duration = Duration::from_secs(9);

/// A mover's own record, written every two seconds and when it changes, until it
/// [leaves](MoverRegistration::leave).
pub struct MoverRegistration {
    bucket: RecordBucket<MoverRecord>,
    record: watch::Sender<MoverRecord>,
    confirmed: Arc<Mutex<ConfirmedBeat>>,
    task: JoinHandle<()>,
}

/// A heartbeat that NATS has confirmed.
#[derive(Clone, Copy)]
struct ConfirmedBeat {
    began: Instant,
    /// The wall-clock time at its begin.
    clock: SystemTime,
    /// The key's revision.
    revision: u64,
}

impl ConfirmedBeat {
    async fn put(
        bucket: &RecordBucket<MoverRecord>,
        record: &MoverRecord,
    ) -> Result<ConfirmedBeat, BusError> {
        let (began, clock) = (Instant::now(), SystemTime::now());
        Ok(ConfirmedBeat { began, clock, revision: bucket.put(&record.id, record).await? })
    }
}

impl MoverRegistration {
    /// Registers a mover; the record is stored when this returns.
    ///
    /// # Errors
    /// If the ID is no valid name, or if NATS does not take it.
    pub async fn start(bus: &NatsBus, record: MoverRecord) -> Result<MoverRegistration, BusError> {
        if !is_name(&record.id) {
            return Err(BusError::BadName(record.id));
        }
        let bucket = RecordBucket::open(bus, NatsBucketName::Movers).await?;
        let confirmed = Arc::new(Mutex::new(ConfirmedBeat::put(&bucket, &record).await?));
        let (record, changes) = watch::channel(record);
        let task = tokio::spawn(send_heartbeats(bucket.clone(), changes, Arc::clone(&confirmed)));
        Ok(MoverRegistration { bucket, record, confirmed, task })
    }

    /// Changes the record; other processes see a difference at once.
    pub fn update(&self, change: impl FnOnce(&mut MoverRecord)) {
        self.record.send_if_modified(|record| {
            let before = record.clone();
            change(record);
            *record != before
        });
    }

    /// Returns the present record.
    pub fn record(&self) -> MoverRecord {
        self.record.borrow().clone()
    }

    /// Returns the time since the begin of the last confirmed heartbeat. After [`LEASE`] the mover counts as
    /// gone.
    pub fn heartbeat_age(&self) -> Duration {
        self.confirmed_beat().began.elapsed()
    }

    /// Returns the lead of this host's clock over the server's in milliseconds, less the time of storing a
    /// record; `None` if there was another heartbeat meanwhile.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn clock_lead_ms(&self) -> Result<Option<i64>, BusError> {
        let id = self.record.borrow().id.clone();
        let Some((revision, kept_ms)) = self.bucket.revision_and_time_ms(&id).await? else { return Ok(None) };
        let confirmed = self.confirmed_beat();
        let since_epoch = confirmed.clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        let here_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Ok((confirmed.revision == revision).then(|| here_ms.saturating_sub(kept_ms)))
    }

    fn confirmed_beat(&self) -> ConfirmedBeat {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`MoverRegistration::leave`], for a shared registration: it sends no heartbeat any more, even after
    /// an error.
    pub async fn retire(&self) {
        self.task.abort();
        let id = self.record.borrow().id.clone();
        // If the deletion fails, the lease expires.
        let _ = self.bucket.delete(&id, None).await;
    }

    /// Leaves, so that other processes need not wait for the end of the lease.
    ///
    /// # Errors
    /// If NATS does not take it; then the lease expires.
    pub async fn leave(self) -> Result<(), BusError> {
        // A heartbeat on its way could arrive after the deletion.
        self.task.abort();
        let id = self.record.borrow().id.clone();
        self.bucket.delete(&id, None).await
    }
}

impl Drop for MoverRegistration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send_heartbeats(
    bucket: RecordBucket<MoverRecord>,
    mut changes: watch::Receiver<MoverRecord>,
    confirmed: Arc<Mutex<ConfirmedBeat>>,
) {
    let mut clock = tokio::time::interval(BEAT);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            changed = changes.changed() => match changed {
                Ok(()) => tokio::time::sleep(CHANGES_APART).await,
                Err(_) => return,
            },
        }
        let record = changes.borrow_and_update().clone();
        // A failed heartbeat is followed by the next; `heartbeat_age` shows the failure.
        if let Ok(Ok(beat)) = tokio::time::timeout(BEAT, ConfirmedBeat::put(&bucket, &record)).await {
            *confirmed.lock().unwrap_or_else(PoisonError::into_inner) = beat;
        }
    }
}

/// The present movers, kept up to date.
pub struct MoverTable {
    live: MirroredKvBucket<MoverRecord>,
}

impl MoverTable {
    /// Starts following; all present movers are known when this returns.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer. Later interruptions are waited out.
    pub async fn follow(bus: &NatsBus) -> Result<MoverTable, BusError> {
        debug_assert!(GONE_AFTER > LEASE);
        let bucket = RecordBucket::open(bus, NatsBucketName::Movers).await?;
        Ok(MoverTable { live: MirroredKvBucket::follow(&bucket, GONE_AFTER).await? })
    }

    /// Returns the present movers, for clients that may not follow: makes no consumer.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer.
    pub async fn list(bus: &NatsBus) -> Result<Vec<MoverRecord>, BusError> {
        let bucket: RecordBucket<MoverRecord> = RecordBucket::open(bus, NatsBucketName::Movers).await?;
        let mut movers: Vec<MoverRecord> = bucket.all(">").await?.into_iter().map(|e| e.value).collect();
        movers.sort_by(|a, b| (&a.site, &a.id).cmp(&(&b.site, &b.id)));
        Ok(movers)
    }

    /// Returns a mover.
    pub fn get(&self, id: &str) -> Option<Arc<MoverRecord>> {
        self.live.get(id)
    }

    /// Returns all movers, by ID.
    pub fn all(&self) -> Vec<Arc<MoverRecord>> {
        self.live.all().into_iter().map(|(_, mover)| mover).collect()
    }

    /// Returns all movers, and those of the last minute: a mover that is cut off for a while is not given up.
    pub(crate) fn recent_movers(&self) -> Vec<Arc<MoverRecord>> {
        self.live.recent_values()
    }

    /// Returns the movers of one site, by ID.
    pub fn at_site(&self, site: &str) -> Vec<Arc<MoverRecord>> {
        let mut movers = self.all();
        movers.retain(|mover| mover.site == site);
        movers
    }

    /// Returns the IDs of movers that can read or write at a path of a site now with a mover of this version:
    /// neither ending nor ill, of the same protocol, and not at another storage than most of them.
    pub fn ready_mover_ids(&self, site: &str, path: &str) -> Vec<String> {
        ready_mover_ids(self.all().iter().map(|mover| &**mover), site, path)
    }

    /// The same with the movers of the last minute: items that they have not tried wait for them.
    pub(crate) fn recently_ready_mover_ids(&self, site: &str, path: &str) -> Vec<String> {
        ready_mover_ids(self.recent_movers().iter().map(|mover| &**mover), site, path)
    }

    /// Returns a receiver that changes with any mover.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }
}

/// The same as [`MoverTable::ready_mover_ids`], among these movers.
pub(crate) fn ready_mover_ids<'a>(
    movers: impl IntoIterator<Item = &'a MoverRecord>,
    site: &str,
    path: &str,
) -> Vec<String> {
    let able = movers.into_iter().filter(|mover| {
        mover.can_access(site, path) && mover.takes_work() && mover.protocol == u32::from(PROTOCOL_VERSION)
    });
    let able: Vec<&MoverRecord> = able.collect();
    let sights = able.iter().map(|mover| {
        let (directory, mark) = mover.directory_containing(path).unwrap_or_default();
        MoverStorageMark { directory, mark, is_doubtful: false }
    });
    let is_believed = same_storage(&sights.collect::<Vec<_>>()).is_believed;
    // Without a majority, each may be right.
    let is_anybody = is_believed.contains(&true);
    let ids = able.iter().zip(is_believed).filter(|(_, is_believed)| *is_believed || !is_anybody);
    ids.map(|(mover, _)| mover.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mover(id: &str, mark: &str) -> MoverRecord {
        let text = format!(
            r#"{{"version":1,"id":"{id}","site":"s","host":"h","addresses":[],"ca_pem":"","paths":["/d"],"pairs_max":1,
                "pairs":0,"lanes":1,"software":"","protocol":{PROTOCOL_VERSION},"state":"idle","bytes_per_s":0,
                "site_marks":["{mark}"]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn seen(movers: Vec<MoverRecord>) -> String {
        ready_mover_ids(&movers, "s", "/d/e").join(" ")
    }

    #[test]
    fn who_sees_another_storage_than_most_or_is_of_another_protocol_is_not_able() {
        assert_eq!(seen(vec![mover("a", "x"), mover("b", "y"), mover("c", "y")]), "b c");
        assert_eq!(seen(vec![mover("a", "x"), mover("b", "y")]), "a b");
        let old = MoverRecord { protocol: u32::from(PROTOCOL_VERSION) - 1, ..mover("a", "x") };
        let ill = MoverRecord { ill: "why".into(), ..mover("b", "x") };
        assert_eq!(seen(vec![old, ill, mover("c", "x")]), "c");
    }
}
