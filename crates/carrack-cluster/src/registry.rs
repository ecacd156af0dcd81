//! Who is there: movers register themselves again and again, and everybody else keeps a map of them.
//!
//! A mover that is silent for [`LEASE`] is gone. It says itself when it leaves; that saves the others the wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_plan::fleet::{Sight, same_storage};
use carrack_wire::PROTOCOL_VERSION;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::bus::{Bus, LEASE};
use crate::error::BusError;
use crate::records::{MoverRecord, is_name};
use crate::store::{Bucket, Live};
use crate::subjects::BucketName;

/// Two beats may be lost before the lease is.
pub const BEAT: Duration = Duration::from_secs(2);

/// Changes are said at once, but not more often: a mover's rate changes all the time.
const CHANGES_APART: Duration = Duration::from_millis(250);

/// The server tells when a lease ends; this is how long a watcher waits for it to.
const GONE_AFTER: Duration = Duration::from_secs(9);

/// A mover's own record, put every two seconds and when it changes, until it [leaves](Registration::leave).
pub struct Registration {
    bucket: Bucket<MoverRecord>,
    record: watch::Sender<MoverRecord>,
    confirmed: Arc<Mutex<Confirmed>>,
    task: JoinHandle<()>,
}

/// A beat that NATS has confirmed.
#[derive(Clone, Copy)]
struct Confirmed {
    began: Instant,
    /// What the clock said then.
    clock: SystemTime,
    /// Of the key.
    revision: u64,
}

impl Confirmed {
    async fn put(bucket: &Bucket<MoverRecord>, record: &MoverRecord) -> Result<Confirmed, BusError> {
        let (began, clock) = (Instant::now(), SystemTime::now());
        Ok(Confirmed { began, clock, revision: bucket.put(&record.id, record).await? })
    }
}

impl Registration {
    /// Registers; the record is there when this returns.
    ///
    /// # Errors
    /// If the id is no name, or if NATS does not take it.
    pub async fn start(bus: &Bus, record: MoverRecord) -> Result<Registration, BusError> {
        if !is_name(&record.id) {
            return Err(BusError::BadName(record.id));
        }
        let bucket = Bucket::open(bus, BucketName::Movers).await?;
        let confirmed = Arc::new(Mutex::new(Confirmed::put(&bucket, &record).await?));
        let (record, changes) = watch::channel(record);
        let task = tokio::spawn(beat(bucket.clone(), changes, Arc::clone(&confirmed)));
        Ok(Registration { bucket, record, confirmed, task })
    }

    /// Changes the record; others learn it at once, if it is another one then.
    pub fn update(&self, change: impl FnOnce(&mut MoverRecord)) {
        self.record.send_if_modified(|record| {
            let before = record.clone();
            change(record);
            *record != before
        });
    }

    /// The record as it is.
    pub fn record(&self) -> MoverRecord {
        self.record.borrow().clone()
    }

    /// How long ago the last beat began that NATS has confirmed. After [`LEASE`] the others believe that we are gone.
    pub fn confirmed_for(&self) -> Duration {
        self.confirmed().began.elapsed()
    }

    /// By how much this host's clock is ahead of the server's, in milliseconds, less what a word takes to be kept; `None` if there was
    /// another beat meanwhile.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer.
    pub async fn clock_is_ahead_ms(&self) -> Result<Option<i64>, BusError> {
        let id = self.record.borrow().id.clone();
        let Some((revision, kept_ms)) = self.bucket.kept_at(&id).await? else { return Ok(None) };
        let confirmed = self.confirmed();
        let since_epoch = confirmed.clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        let here_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Ok((confirmed.revision == revision).then(|| here_ms.saturating_sub(kept_ms)))
    }

    fn confirmed(&self) -> Confirmed {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Registration::leave`], of one that others still hold: it beats no more, whatever comes of it.
    pub async fn retire(&self) {
        self.task.abort();
        let id = self.record.borrow().id.clone();
        // Else the lease ends by itself.
        let _ = self.bucket.delete(&id, None).await;
    }

    /// Leaves, so that nobody waits for the lease to end.
    ///
    /// # Errors
    /// If NATS does not take it; then the lease ends by itself.
    pub async fn leave(self) -> Result<(), BusError> {
        // A beat on its way could come after the end.
        self.task.abort();
        let id = self.record.borrow().id.clone();
        self.bucket.delete(&id, None).await
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(
    bucket: Bucket<MoverRecord>,
    mut changes: watch::Receiver<MoverRecord>,
    confirmed: Arc<Mutex<Confirmed>>,
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
        // One that fails is followed by another one; `confirmed_for` tells whoever has to know.
        if let Ok(Ok(beat)) = tokio::time::timeout(BEAT, Confirmed::put(&bucket, &record)).await {
            *confirmed.lock().unwrap_or_else(PoisonError::into_inner) = beat;
        }
    }
}

/// The movers that are there, kept up to date.
pub struct Movers {
    live: Live<MoverRecord>,
}

impl Movers {
    /// Begins to follow; knows all that are there when it returns.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer. Later breaks are waited out.
    pub async fn follow(bus: &Bus) -> Result<Movers, BusError> {
        debug_assert!(GONE_AFTER > LEASE);
        let bucket = Bucket::open(bus, BucketName::Movers).await?;
        Ok(Movers { live: Live::follow(&bucket, GONE_AFTER).await? })
    }

    /// A look at what is there now, for who may not follow: it makes no consumer.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer.
    pub async fn list(bus: &Bus) -> Result<Vec<MoverRecord>, BusError> {
        let bucket: Bucket<MoverRecord> = Bucket::open(bus, BucketName::Movers).await?;
        let mut movers: Vec<MoverRecord> = bucket.all(">").await?.into_iter().map(|e| e.value).collect();
        movers.sort_by(|a, b| (&a.site, &a.id).cmp(&(&b.site, &b.id)));
        Ok(movers)
    }

    /// One of them.
    pub fn get(&self, id: &str) -> Option<Arc<MoverRecord>> {
        self.live.get(id)
    }

    /// All, by id.
    pub fn all(&self) -> Vec<Arc<MoverRecord>> {
        self.live.all().into_iter().map(|(_, mover)| mover).collect()
    }

    /// All, and those that were there within the last minute: who is cut off for a while is not given up.
    pub(crate) fn lately(&self) -> Vec<Arc<MoverRecord>> {
        self.live.lately()
    }

    /// Those of one site, by id.
    pub fn at(&self, site: &str) -> Vec<Arc<MoverRecord>> {
        let mut movers = self.all();
        movers.retain(|mover| mover.site == site);
        movers
    }

    /// The ids of those that can read or write at a path of a site now, as far as they know, with a mover of this version: neither
    /// ending nor ill, of the same protocol, and not at another storage than most of them.
    pub fn able(&self, site: &str, path: &str) -> Vec<String> {
        able(self.all().iter().map(|mover| &**mover), site, path)
    }

    /// The same with those that were there lately: what they have not tried waits for them.
    pub(crate) fn able_lately(&self, site: &str, path: &str) -> Vec<String> {
        able(self.lately().iter().map(|mover| &**mover), site, path)
    }

    /// `changed()` on it waits for the next change of anything.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }
}

/// As [`Movers::able`] has it, of these.
pub(crate) fn able<'a>(
    movers: impl IntoIterator<Item = &'a MoverRecord>,
    site: &str,
    path: &str,
) -> Vec<String> {
    let is_able = |mover: &&MoverRecord| {
        mover.reaches(site, path) && mover.takes_work() && mover.protocol == u32::from(PROTOCOL_VERSION)
    };
    let able: Vec<&MoverRecord> = movers.into_iter().filter(is_able).collect();
    let sights = able.iter().map(|mover| {
        let (directory, mark) = mover.reach(path).unwrap_or_default();
        Sight { directory, mark, is_doubtful: false }
    });
    let is_believed = same_storage(&sights.collect::<Vec<_>>()).is_believed;
    // Where nobody can tell who is right, each of them may be.
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

    #[test]
    fn who_sees_another_storage_than_most_or_is_of_another_protocol_is_not_able() {
        let seen = |movers: Vec<MoverRecord>| able(&movers, "s", "/d/e").join(" ");
        assert_eq!(seen(vec![mover("a", "x"), mover("b", "y"), mover("c", "y")]), "b c");
        assert_eq!(seen(vec![mover("a", "x"), mover("b", "y")]), "a b");
        let old = MoverRecord { protocol: u32::from(PROTOCOL_VERSION) - 1, ..mover("a", "x") };
        let ill = MoverRecord { ill: "why".into(), ..mover("b", "x") };
        assert_eq!(seen(vec![old, ill, mover("c", "x")]), "c");
    }
}
