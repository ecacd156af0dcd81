//! The transfers' records, and the order of their submission.
//!
//! A record changes all the time, and a stream has its messages in the order of their last change. So each
//! transfer also has an entry in a bucket of its own, which never changes: lists are read from its end, and
//! cost as much as they show, independent of the number of transfers. The entry is created before the record,
//! and removed after it: if both are missing, no transfer was lost.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use carrack_model::TransferId;
use futures_util::Stream;
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::destination_leftovers::has_leftovers;
use crate::error::BusError;
use crate::mover::journal_id;
use crate::store::{BucketKeyChange, BucketWatch, RecordBucket};
use crate::subjects::NatsBucketName;
use crate::transfer_records::{DELETION_VERSION, RECORD_VERSION, TransferRecord};
use crate::unique_ids::is_prefix;

pub use crate::unique_ids::new_id;

/// Attempts of one change. A record is changed by its manager, some times a second, and by its user, now and
/// then.
const TRIES: u32 = 20;

/// Time by which a replica of a bucket may lag when it is read.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Replicas of the records lag for less than this, if their servers are there.
const COPIES_AGREE_WITHIN: Duration = Duration::from_secs(2);

/// Records that a list requests at once: they must fit in memory.
const LISTED_AT_ONCE: usize = 1_000;

/// An error of finding a transfer.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("there is no transfer {0}")]
    Unknown(String),
    /// There are several.
    #[error("{count} transfers begin with {prefix}")]
    Several {
        /// The given prefix.
        prefix: String,
        /// Number of matches.
        count: usize,
    },
    /// An error of NATS.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A change of the records.
#[derive(Debug)]
pub enum TransferRecordWatchEvent {
    /// All records, in no order: at first and after each interruption. Earlier ones that are not among these
    /// are gone.
    All(Vec<TransferRecord>),
    /// A new or changed record.
    Put(Box<TransferRecord>),
    /// The ID of a removed record.
    Gone(String),
}

/// An entry of the order of submission, which is given by its place in the stream.
#[derive(Serialize, Deserialize)]
struct SubmissionOrder {
    version: u32,
    submitted_ms: u64,
}

/// A summary of a transfer for surveys.
pub(crate) struct TransferCleanupFacts {
    pub submitted_ms: u64,
    /// Time of its end.
    pub ended_ms: Option<u64>,
    /// ID of its journals.
    pub journals: TransferId,
    /// True if it may have leftovers at the destination.
    pub has_leftovers: bool,
}

impl TransferCleanupFacts {
    fn of(record: &TransferRecord) -> TransferCleanupFacts {
        TransferCleanupFacts {
            submitted_ms: record.submitted_ms,
            ended_ms: record.ended_ms.filter(|_| record.state.is_over()),
            journals: journal_id(&record.submission),
            has_leftovers: has_leftovers(record),
        }
    }
}

/// A record as read or written, with the revision for compare-and-swap.
#[derive(Clone, Debug)]
pub(crate) struct ReadTransfer {
    pub record: TransferRecord,
    revision: u64,
}

/// The records.
#[derive(Clone)]
pub struct TransferStore {
    bucket: RecordBucket<TransferRecord>,
    order: RecordBucket<SubmissionOrder>,
}

impl TransferStore {
    /// Opens the buckets.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub async fn open(bus: &NatsBus) -> Result<TransferStore, BusError> {
        let order = RecordBucket::open(bus, NatsBucketName::Submitted).await?;
        Ok(TransferStore { bucket: RecordBucket::open(bus, NatsBucketName::Transfers).await?, order })
    }

    /// Stores a new record.
    ///
    /// # Errors
    /// [`BusError::Exists`] if there is a record with this ID.
    pub async fn create(&self, record: &TransferRecord) -> Result<u64, BusError> {
        check_id(&record.id)?;
        debug_assert!(record.version <= DELETION_VERSION);
        self.add_to_order(&record.id, record.submitted_ms).await?;
        self.bucket.create(&record.id, record).await
    }

    /// Changes a record. `change` may be called again, on the record as another process has changed it
    /// meanwhile; if it changes nothing, nothing is written. Returns the present record.
    ///
    /// # Errors
    /// [`FindError::Unknown`] if there is none.
    pub async fn update(
        &self,
        id: &str,
        change: impl FnMut(&mut TransferRecord),
    ) -> Result<TransferRecord, FindError> {
        let read = self.read(id).await?;
        self.update_from(&read, change).await.map(|updated| updated.record)
    }

    /// As [`TransferStore::update`], from a record that was read or written before: it is read again only if
    /// another process has changed it since, or if `change` has no effect on the known version.
    pub(crate) async fn update_from(
        &self,
        read: &ReadTransfer,
        mut change: impl FnMut(&mut TransferRecord),
    ) -> Result<ReadTransfer, FindError> {
        let (mut last, mut is_fresh) = (read.clone(), false);
        let id = last.record.id.clone();
        for tried in 0..TRIES {
            let mut record = last.record.clone();
            change(&mut record);
            if record != last.record {
                match self.bucket.update(&id, &record, last.revision).await {
                    Ok(revision) => return Ok(ReadTransfer { record, revision }),
                    Err(BusError::Conflict(_)) => tokio::time::sleep(READ_AGAIN_AFTER * tried).await,
                    Err(error) => return Err(error.into()),
                }
            } else if is_fresh {
                return Ok(last);
            }
            (last, is_fresh) = (self.read(&id).await?, true);
        }
        Err(BusError::Conflict(id).into())
    }

    /// Returns a record by its whole ID.
    ///
    /// # Errors
    /// [`FindError::Unknown`] if there is none.
    pub async fn get(&self, id: &str) -> Result<TransferRecord, FindError> {
        self.read(id).await.map(|read| read.record)
    }

    /// Returns a record by its ID, or by a unique prefix of an ID. A missing record is read again for two
    /// seconds: it may be new, and the answering replica may lag.
    ///
    /// # Errors
    /// [`FindError`] if there is not exactly one.
    pub async fn find(&self, prefix: &str) -> Result<TransferRecord, FindError> {
        if !is_prefix(prefix) {
            return Err(FindError::Unknown(prefix.to_owned()));
        }
        if prefix.len() == 16 {
            return self.get_with_retries(prefix).await;
        }
        let mut ids = self.order.keys().await?;
        ids.retain(|id| id.starts_with(prefix));
        match ids.as_slice() {
            [] => Err(FindError::Unknown(prefix.to_owned())),
            [id] => self.get_with_retries(id).await,
            ids => Err(FindError::Several { prefix: prefix.to_owned(), count: ids.len() }),
        }
    }

    /// Returns the latest submissions, `limit` at most, the latest first; with `after` those that were
    /// submitted before that transfer. Each is listed once, even if others change meanwhile. Makes no
    /// consumer.
    ///
    /// # Errors
    /// [`FindError::Unknown`] if there is no `after`.
    pub async fn list(&self, limit: usize, after: Option<&str>) -> Result<Vec<TransferRecord>, FindError> {
        let mut before = match after {
            Some(id) => Some(self.position_in_order(id).await?),
            None => None,
        };
        let mut listed = Vec::new();
        while listed.len() < limit {
            let places = self.order.latest(before, (limit - listed.len()).min(LISTED_AT_ONCE)).await?;
            let Some(last) = places.last() else { break };
            before = Some(last.revision);
            let records = self.bucket.existing_entries(places.iter().map(|place| &*place.key)).await?;
            let mut records: HashMap<String, TransferRecord> =
                records.into_iter().map(|entry| (entry.key, entry.value)).collect();
            listed.extend(places.iter().filter_map(|place| records.remove(&place.key)));
        }
        Ok(listed)
    }

    /// Returns some of the records that were changed after this revision, in that order, and the revision up
    /// to which these are all; `None` if there was no change. For clients that may not make consumers.
    pub(crate) async fn changed_after(
        &self,
        revision: u64,
    ) -> Result<Option<(Vec<TransferRecord>, u64)>, BusError> {
        let page = self.bucket.entries(revision + 1).next().await?;
        Ok(page.map(|page| (page.entries.into_iter().map(|entry| entry.value).collect(), page.last)))
    }

    /// Returns summaries of all transfers, and `None` for records of a later version.
    pub(crate) async fn summarize_all(
        &self,
    ) -> Result<HashMap<String, Option<TransferCleanupFacts>>, BusError> {
        let mut found = HashMap::new();
        let mut entries = self.bucket.entries(1);
        while let Some(page) = entries.next().await? {
            found.extend(page.unreadable.into_iter().map(|id| (id, None)));
            let briefs = page
                .entries
                .into_iter()
                .map(|entry| (entry.key, Some(TransferCleanupFacts::of(&entry.value))));
            found.extend(briefs);
        }
        Ok(found)
    }

    /// Returns the IDs in the order of submission's bucket.
    pub(crate) async fn submission_order_ids(&self) -> Result<HashSet<String>, BusError> {
        Ok(self.order.keys().await?.into_iter().collect())
    }

    /// Adds a transfer at the end of the order of submission, if it is missing.
    pub(crate) async fn add_to_order(&self, id: &str, submitted_ms: u64) -> Result<(), BusError> {
        match self.order.create(id, &SubmissionOrder { version: RECORD_VERSION, submitted_ms }).await {
            Ok(_) | Err(BusError::Exists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a transfer from the order of submission.
    pub(crate) async fn remove_from_order(&self, id: &str) -> Result<(), BusError> {
        self.order.delete(id, None).await
    }

    async fn position_in_order(&self, id: &str) -> Result<u64, FindError> {
        check_id(id).map_err(|_| FindError::Unknown(id.to_owned()))?;
        let place = self.order.get(id).await?;
        place.map(|place| place.revision).ok_or_else(|| FindError::Unknown(id.to_owned()))
    }

    /// Removes a transfer in any state.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn forget(&self, id: &str) -> Result<(), BusError> {
        check_id(id)?;
        self.bucket.delete(id, None).await?;
        self.remove_from_order(id).await
    }

    /// Watches one record, or all with `None`. Never ends.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer. Later interruptions are waited out.
    pub async fn watch(
        &self,
        id: Option<&str>,
    ) -> Result<impl Stream<Item = TransferRecordWatchEvent> + Send + use<>, BusError> {
        if let Some(id) = id {
            check_id(id)?;
        }
        Ok(changes(self.bucket.watch(id.unwrap_or(">")).await?))
    }

    /// As [`TransferStore::watch`] of all records, but treats an unwanted record as a removed one: it takes
    /// no memory.
    pub(crate) async fn watch_wanted(
        &self,
        wanted: fn(&TransferRecord) -> bool,
    ) -> Result<impl Stream<Item = TransferRecordWatchEvent> + Send + use<>, BusError> {
        Ok(changes(self.bucket.watch(">").await?.with_value_filter(wanted)))
    }

    /// Returns a record now, and again when it has changed, read at an interval: for clients that may not
    /// make consumers. Ends after an error, or when the transfer is over.
    pub fn poll_changes(
        &self,
        id: &str,
        every: Duration,
    ) -> impl Stream<Item = Result<TransferRecord, FindError>> + Send + use<> {
        let look = (self.clone(), id.to_owned(), None::<TransferRecord>, false);
        stream::unfold(look, move |(transfers, id, mut last, is_over)| async move {
            if is_over {
                return None;
            }
            loop {
                if last.is_some() {
                    tokio::time::sleep(every).await;
                }
                let error = match transfers.get(&id).await {
                    Ok(record) if last.as_ref() == Some(&record) => continue,
                    Ok(record) => {
                        last = Some(record.clone());
                        let is_over = record.state.is_over();
                        return Some((Ok(record), (transfers, id, last, is_over)));
                    }
                    // Servers come back.
                    Err(FindError::Bus(error)) if error.is_transient() && last.is_some() => continue,
                    Err(error) => error,
                };
                return Some((Err(error), (transfers, id, last, true)));
            }
        })
    }

    async fn get_with_retries(&self, id: &str) -> Result<TransferRecord, FindError> {
        let until = Instant::now() + COPIES_AGREE_WITHIN;
        loop {
            match self.get(id).await {
                Err(FindError::Unknown(_)) if Instant::now() < until => {
                    tokio::time::sleep(READ_AGAIN_AFTER).await
                }
                found => return found,
            }
        }
    }

    /// Returns a record by its whole ID, with its revision.
    pub(crate) async fn read(&self, id: &str) -> Result<ReadTransfer, FindError> {
        check_id(id).map_err(|_| FindError::Unknown(id.to_owned()))?;
        let entry = self.bucket.get(id).await?.ok_or_else(|| FindError::Unknown(id.to_owned()))?;
        Ok(ReadTransfer { record: entry.value, revision: entry.revision })
    }
}

fn changes(watch: BucketWatch<TransferRecord>) -> impl Stream<Item = TransferRecordWatchEvent> + Send {
    stream::unfold(watch, |mut watch| async move {
        let change = match watch.next().await {
            BucketKeyChange::All(all) => {
                TransferRecordWatchEvent::All(all.into_iter().map(|entry| entry.value).collect())
            }
            BucketKeyChange::Put(entry) => TransferRecordWatchEvent::Put(Box::new(entry.value)),
            BucketKeyChange::Gone(id) => TransferRecordWatchEvent::Gone(id),
        };
        Some((change, watch))
    })
}

fn check_id(id: &str) -> Result<(), BusError> {
    if is_prefix(id) && id.len() == 16 { Ok(()) } else { Err(BusError::BadName(id.to_owned())) }
}
