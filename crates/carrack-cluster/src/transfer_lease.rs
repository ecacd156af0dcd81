//! Ownership of transfers by managers.
//!
//! A lease is a key that expires after six seconds and is renewed by compare-and-swap: of two managers that
//! want it one gets it, and a manager that slept too long finds that it has lost it. A manager acts for a
//! transfer only while its lease [is sure](TransferManagerLease::is_certainly_held): its earlier messages are
//! in the log, where the next manager reads them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use carrack_engine::since_boot;
use carrack_plan::fleet::{LEASE_LASTS, LEASE_RENEW_EVERY, LeaseRenewalTime};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::bus::{LEASE, NatsBus};
use crate::error::BusError;
use crate::store::{MirroredKvBucket, RecordBucket};
use crate::subjects::NatsBucketName;
use crate::transfer_records::{RECORD_VERSION, is_name, now_ms};
use crate::unique_ids;

/// Interval of [renewals](TransferManagerLease::renew).
pub const RENEW_EVERY: Duration = LEASE_RENEW_EVERY;

/// Time after which watchers count an unrenewed lease as expired, even without the server's marker.
const ENDED_AFTER: Duration = Duration::from_secs(9);

/// The owner of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The manager's ID.
    pub manager: String,
    /// Unique to this lease, among all leases of the same manager.
    pub token: String,
    /// Begin of the lease, milliseconds since 1970.
    pub since_ms: u64,
}

/// An error of renewing a lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseRenewError {
    /// Another manager has it, or it has expired: stop at once.
    #[error("the lease of transfer {0} is lost")]
    Lost(String),
    /// The state is unknown; retry while the lease is [sure](TransferManagerLease::is_certainly_held).
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// This manager's lease of a transfer.
pub struct TransferManagerLease {
    bucket: RecordBucket<LeaseRecord>,
    transfer: String,
    record: LeaseRecord,
    revision: u64,
    /// By the clock that runs while the machine sleeps.
    term: SharedManagerLeaseTerm,
}

/// The time for which a lease is valid, shared with other tasks of its owner.
#[derive(Clone)]
pub struct SharedManagerLeaseTerm(Arc<Mutex<LeaseRenewalTime>>);

impl SharedManagerLeaseTerm {
    fn new(sent_at: Duration) -> SharedManagerLeaseTerm {
        SharedManagerLeaseTerm(Arc::new(Mutex::new(LeaseRenewalTime::new(sent_at))))
    }

    fn confirm(&self, sent_at: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).confirm(sent_at);
    }

    /// Returns true if no other manager can have the lease yet, by the local clock.
    pub fn is_certainly_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_certainly_held(since_boot())
    }
}

impl TransferManagerLease {
    /// Acquires the lease; `None` if it has an owner.
    ///
    /// # Errors
    /// If one of the IDs is no valid name, or NATS does not answer.
    pub async fn acquire(
        bus: &NatsBus,
        transfer: &str,
        manager: &str,
    ) -> Result<Option<TransferManagerLease>, BusError> {
        for name in [transfer, manager] {
            if !is_name(name) {
                return Err(BusError::BadName(name.to_owned()));
            }
        }
        let bucket = RecordBucket::open(bus, NatsBucketName::Leases).await?;
        let since_ms = now_ms();
        let (version, manager, token) = (RECORD_VERSION, manager.to_owned(), unique_ids::new_id());
        let record = LeaseRecord { version, manager, token, since_ms };
        let began = since_boot();
        match bucket.create(transfer, &record).await {
            Ok(revision) => {
                let (transfer, term) = (transfer.to_owned(), SharedManagerLeaseTerm::new(began));
                Ok(Some(TransferManagerLease { bucket, transfer, record, revision, term }))
            }
            Err(BusError::Exists(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the transfer's ID.
    pub fn transfer(&self) -> &str {
        &self.transfer
    }

    /// Renews the lease for another six seconds.
    ///
    /// # Errors
    /// [`LeaseRenewError::Lost`] if another manager may have it.
    pub async fn renew(&mut self) -> Result<(), LeaseRenewError> {
        let began = since_boot();
        if let Err(error) = self.compare_and_swap(began).await {
            let BusError::Conflict(_) = error else { return Err(error.into()) };
            // A renewal whose answer was lost counts all the same: then the key has this lease's token, with
            // another revision.
            match self.bucket.get(&self.transfer).await? {
                Some(entry) if entry.value.token == self.record.token => self.revision = entry.revision,
                _ => return Err(LeaseRenewError::Lost(self.transfer.clone())),
            }
            self.compare_and_swap(began).await?;
        }
        Ok(())
    }

    async fn compare_and_swap(&mut self, began: Duration) -> Result<(), BusError> {
        self.revision = self.bucket.update(&self.transfer, &self.record, self.revision).await?;
        self.term.confirm(began);
        Ok(())
    }

    /// Returns true if no other manager can have the lease yet, by the local clock.
    pub fn is_certainly_held(&self) -> bool {
        self.term.is_certainly_held()
    }

    /// Returns the lease's time, for other tasks.
    pub fn term(&self) -> SharedManagerLeaseTerm {
        self.term.clone()
    }

    /// Releases the lease, so that another manager can acquire it at once.
    ///
    /// # Errors
    /// If NATS does not take it; then the lease expires.
    pub async fn release(self) -> Result<(), BusError> {
        self.bucket.delete(&self.transfer, Some(self.revision)).await
    }
}

/// Returns true if a manager is there: each has a lease of its own name. For clients that may not follow;
/// makes no consumer.
///
/// # Errors
/// If NATS refuses, or does not answer.
pub async fn is_manager_present(bus: &NatsBus) -> Result<bool, BusError> {
    let bucket: RecordBucket<LeaseRecord> = RecordBucket::open(bus, NatsBucketName::Leases).await?;
    Ok(bucket.keys().await?.iter().any(|key| key.starts_with(MANAGER)))
}

/// Prefix of managers' IDs.
pub const MANAGER: &str = "manager-";

/// All leases, kept up to date: a transfer without one is free.
pub struct TransferLeaseTable {
    live: MirroredKvBucket<LeaseRecord>,
}

impl TransferLeaseTable {
    /// Starts following; all leases are known when this returns.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer. Later interruptions are waited out.
    pub async fn follow(bus: &NatsBus) -> Result<TransferLeaseTable, BusError> {
        debug_assert!(LEASE == LEASE_LASTS && ENDED_AFTER > LEASE);
        let bucket = RecordBucket::open(bus, NatsBucketName::Leases).await?;
        Ok(TransferLeaseTable { live: MirroredKvBucket::follow(&bucket, ENDED_AFTER).await? })
    }

    /// Returns the owner of this transfer; `None` if it is free.
    pub fn owner(&self, transfer: &str) -> Option<Arc<LeaseRecord>> {
        self.live.get(transfer)
    }

    /// Returns all leases, by the transfers' IDs.
    pub fn all(&self) -> Vec<(String, Arc<LeaseRecord>)> {
        self.live.all()
    }

    /// Returns a receiver that changes with any lease.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }
}
