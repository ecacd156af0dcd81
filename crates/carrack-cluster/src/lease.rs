//! Which manager owns which transfer.
//!
//! A lease is a key that ends after six seconds and is renewed by compare-and-swap: of two managers that want it one gets it, and one that
//! slept too long finds that it has lost it. A manager acts for a transfer only while its lease [is sure](Lease::is_sure): what it has
//! published until then is of the log, and the next one reads it there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carrack_plan::fleet::{LEASE_LASTS, LEASE_RENEW_EVERY, LeaseTerm};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::bus::{Bus, LEASE};
use crate::clock::since_boot;
use crate::error::BusError;
use crate::ids;
use crate::records::{RECORD_VERSION, is_name, now_ms};
use crate::store::{Bucket, Live};
use crate::subjects::BucketName;

/// How often to [renew](Lease::renew).
pub const RENEW_EVERY: Duration = LEASE_RENEW_EVERY;

/// Watchers wait so long for the server to say that a lease has ended.
const ENDED_AFTER: Duration = Duration::from_secs(9);

/// Who owns a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The manager's id.
    pub manager: String,
    /// Of this lease, and no other one of the same manager's.
    pub token: String,
    /// Milliseconds since 1970.
    pub since_ms: u64,
}

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// It is another's, or nobody's: stop at once.
    #[error("the lease of transfer {0} is lost")]
    Lost(String),
    /// Not known; try again while the lease is [sure](Lease::is_sure).
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A transfer is ours.
pub struct Lease {
    bucket: Bucket<LeaseRecord>,
    transfer: String,
    record: LeaseRecord,
    revision: u64,
    /// By the clock that goes on while the machine sleeps.
    term: Term,
}

/// How long a lease may be acted by, for those who see to its transfer beside its owner.
#[derive(Clone)]
pub struct Term(Arc<Mutex<LeaseTerm>>);

impl Term {
    fn new(sent_at: Duration) -> Term {
        Term(Arc::new(Mutex::new(LeaseTerm::new(sent_at))))
    }

    fn confirm(&self, sent_at: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).confirm(sent_at);
    }

    /// Whether nobody else can have it yet, by our own clock.
    pub fn is_sure(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_sure(since_boot())
    }
}

impl Lease {
    /// Takes the lease if nobody has it; `None` if somebody has.
    ///
    /// # Errors
    /// If one of the ids is no name, or NATS does not answer.
    pub async fn acquire(bus: &Bus, transfer: &str, manager: &str) -> Result<Option<Lease>, BusError> {
        for name in [transfer, manager] {
            if !is_name(name) {
                return Err(BusError::BadName(name.to_owned()));
            }
        }
        let bucket = Bucket::open(bus, BucketName::Leases).await?;
        let since_ms = now_ms();
        let (version, manager, token) = (RECORD_VERSION, manager.to_owned(), ids::new_id());
        let record = LeaseRecord { version, manager, token, since_ms };
        let began = since_boot();
        match bucket.create(transfer, &record).await {
            Ok(revision) => {
                let (transfer, term) = (transfer.to_owned(), Term::new(began));
                Ok(Some(Lease { bucket, transfer, record, revision, term }))
            }
            Err(BusError::Exists(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The transfer's id.
    pub fn transfer(&self) -> &str {
        &self.transfer
    }

    /// Makes it last for another six seconds.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if it is ours no longer.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        let began = since_boot();
        if let Err(error) = self.swap(began).await {
            let BusError::Conflict(_) = error else { return Err(error.into()) };
            // A renewal whose answer was lost counts all the same: then what is there is ours, with another revision.
            match self.bucket.get(&self.transfer).await? {
                Some(entry) if entry.value.token == self.record.token => self.revision = entry.revision,
                _ => return Err(RenewError::Lost(self.transfer.clone())),
            }
            self.swap(began).await?;
        }
        Ok(())
    }

    async fn swap(&mut self, began: Duration) -> Result<(), BusError> {
        self.revision = self.bucket.update(&self.transfer, &self.record, self.revision).await?;
        self.term.confirm(began);
        Ok(())
    }

    /// Whether nobody else can have it yet, by our own clock.
    pub fn is_sure(&self) -> bool {
        self.term.is_sure()
    }

    /// The same for others, for as long as it lasts.
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// Gives it up, so that another one can take it at once.
    ///
    /// # Errors
    /// If NATS does not take it; then it ends by itself.
    pub async fn release(self) -> Result<(), BusError> {
        self.bucket.delete(&self.transfer, Some(self.revision)).await
    }
}

/// Whether a manager is there: each has a lease of its own name. For who may not follow; it makes no consumer.
///
/// # Errors
/// If NATS does not let us, or does not answer.
pub async fn is_managed(bus: &Bus) -> Result<bool, BusError> {
    let bucket: Bucket<LeaseRecord> = Bucket::open(bus, BucketName::Leases).await?;
    Ok(bucket.keys().await?.iter().any(|key| key.starts_with(MANAGER)))
}

/// What the ids of managers begin with.
pub const MANAGER: &str = "manager-";

/// All leases, kept up to date: what has none is free.
pub struct Leases {
    live: Live<LeaseRecord>,
}

impl Leases {
    /// Begins to follow; knows all leases when it returns.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer. Later breaks are waited out.
    pub async fn follow(bus: &Bus) -> Result<Leases, BusError> {
        debug_assert!(LEASE == LEASE_LASTS && ENDED_AFTER > LEASE);
        let bucket = Bucket::open(bus, BucketName::Leases).await?;
        Ok(Leases { live: Live::follow(&bucket, ENDED_AFTER).await? })
    }

    /// Who owns this transfer; `None` if it is free.
    pub fn owner(&self, transfer: &str) -> Option<Arc<LeaseRecord>> {
        self.live.get(transfer)
    }

    /// All that are owned, by the transfers' ids.
    pub fn all(&self) -> Vec<(String, Arc<LeaseRecord>)> {
        self.live.all()
    }

    /// `changed()` on it waits for the next change of anything.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }
}
