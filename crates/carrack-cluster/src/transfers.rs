//! The transfers' records.

use std::time::{Duration, Instant};

use futures_util::Stream;
use futures_util::stream;

use crate::bus::Bus;
use crate::error::BusError;
use crate::ids::is_prefix;
use crate::records::{RECORD_VERSION, TransferRecord};
use crate::store::{Bucket, Seen};
use crate::subjects::BucketName;

pub use crate::ids::new_id;

/// Tries of one change. Those who change a record are its manager, some times a second, and its user, now and then.
const TRIES: u32 = 20;

/// A copy of a bucket may be behind by so long when it is read.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Copies of the records are behind for less than this, if their servers are there.
const COPIES_AGREE_WITHIN: Duration = Duration::from_secs(2);

/// Why a transfer is not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("there is no transfer {0}")]
    Unknown(String),
    /// There are several.
    #[error("{count} transfers begin with {prefix}")]
    Several {
        /// What was asked for.
        prefix: String,
        /// How many there are.
        count: usize,
    },
    /// NATS does not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// What happens to the records.
#[derive(Debug)]
pub enum TransferChange {
    /// All that are there, in no order: at first and after each break. What was known and is not among them is gone.
    All(Vec<TransferRecord>),
    /// One is new or another one now.
    Put(Box<TransferRecord>),
    /// One was forgotten.
    Gone(String),
}

/// The records.
#[derive(Clone)]
pub struct Transfers {
    bucket: Bucket<TransferRecord>,
}

impl Transfers {
    /// # Errors
    /// None that could be helped.
    pub async fn open(bus: &Bus) -> Result<Transfers, BusError> {
        Ok(Transfers { bucket: Bucket::open(bus, BucketName::Transfers).await? })
    }

    /// Keeps a new one.
    ///
    /// # Errors
    /// [`BusError::Exists`] if there is one of this id.
    pub async fn create(&self, record: &TransferRecord) -> Result<u64, BusError> {
        check_id(&record.id)?;
        debug_assert_eq!(record.version, RECORD_VERSION);
        self.bucket.create(&record.id, record).await
    }

    /// Changes one. `change` may be called again, on what somebody else has made of the record meanwhile; where it changes nothing
    /// nothing is written. Returns the record as it is then.
    ///
    /// # Errors
    /// [`FindError::Unknown`] if there is none.
    pub async fn update(
        &self,
        id: &str,
        mut change: impl FnMut(&mut TransferRecord),
    ) -> Result<TransferRecord, FindError> {
        for tried in 0..TRIES {
            let (mut record, revision) = self.get_with_revision(id).await?;
            let before = record.clone();
            change(&mut record);
            if record == before {
                return Ok(record);
            }
            match self.bucket.update(id, &record, revision).await {
                Ok(_) => return Ok(record),
                Err(BusError::Conflict(_)) => tokio::time::sleep(READ_AGAIN_AFTER * tried).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(BusError::Conflict(id.to_owned()).into())
    }

    /// One by its whole id.
    ///
    /// # Errors
    /// [`FindError::Unknown`] if there is none.
    pub async fn get(&self, id: &str) -> Result<TransferRecord, FindError> {
        self.get_with_revision(id).await.map(|(record, _)| record)
    }

    /// One by its id, or by a beginning of it that no other one has. One of this id that is not there is looked for again for two seconds:
    /// it may have been made a moment ago, and the copy of the records that answers be behind.
    ///
    /// # Errors
    /// [`FindError`] if there is not exactly one.
    pub async fn find(&self, prefix: &str) -> Result<TransferRecord, FindError> {
        if !is_prefix(prefix) {
            return Err(FindError::Unknown(prefix.to_owned()));
        }
        if prefix.len() == 16 {
            return self.get_soon(prefix).await;
        }
        let mut found = self.all().await?;
        found.retain(|record| record.id.starts_with(prefix));
        match found.len() {
            0 => Err(FindError::Unknown(prefix.to_owned())),
            1 => Ok(found.swap_remove(0)),
            count => Err(FindError::Several { prefix: prefix.to_owned(), count }),
        }
    }

    /// All, the latest first, `limit` at most. It makes no consumer.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn list(&self, limit: usize) -> Result<Vec<TransferRecord>, BusError> {
        let mut all = self.all().await?;
        all.sort_by(|a, b| (b.submitted_ms, &b.id).cmp(&(a.submitted_ms, &a.id)));
        all.truncate(limit);
        Ok(all)
    }

    /// Those that were changed after this revision, and the revision up to which these are all: for who may not make consumers.
    pub(crate) async fn after(&self, revision: u64) -> Result<(Vec<TransferRecord>, u64), BusError> {
        let changed = self.bucket.after(revision).await?;
        let last = changed.last().map_or(revision, |entry| entry.revision);
        Ok((changed.into_iter().map(|entry| entry.value).collect(), last))
    }

    /// The ids of all, also of those whose records are of a later version.
    pub(crate) async fn ids(&self) -> Result<Vec<String>, BusError> {
        self.bucket.keys().await
    }

    /// Forgets one, whatever its state.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn forget(&self, id: &str) -> Result<(), BusError> {
        check_id(id)?;
        self.bucket.delete(id, None).await
    }

    /// One of them as it is and as it changes; with `None`, all of them. Never ends.
    ///
    /// # Errors
    /// If NATS does not let us follow, or does not answer. Later breaks are waited out.
    pub async fn watch(
        &self,
        id: Option<&str>,
    ) -> Result<impl Stream<Item = TransferChange> + Send + use<>, BusError> {
        if let Some(id) = id {
            check_id(id)?;
        }
        let watch = self.bucket.watch(id.unwrap_or(">")).await?;
        Ok(stream::unfold(watch, |mut watch| async move {
            let change = match watch.next().await {
                Seen::All(all) => TransferChange::All(all.into_iter().map(|entry| entry.value).collect()),
                Seen::Put(entry) => TransferChange::Put(Box::new(entry.value)),
                Seen::Gone(id) => TransferChange::Gone(id),
            };
            Some((change, watch))
        }))
    }

    /// One of them as it is, and again when it has changed, asked for every so often: for who may not make consumers. Ends
    /// after an error, or when the transfer is over.
    pub fn look_again(
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
                    Err(FindError::Bus(error)) if error.may_pass() && last.is_some() => continue,
                    Err(error) => error,
                };
                return Some((Err(error), (transfers, id, last, true)));
            }
        })
    }

    pub(crate) async fn all(&self) -> Result<Vec<TransferRecord>, BusError> {
        Ok(self.bucket.all(">").await?.into_iter().map(|entry| entry.value).collect())
    }

    async fn get_soon(&self, id: &str) -> Result<TransferRecord, FindError> {
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

    async fn get_with_revision(&self, id: &str) -> Result<(TransferRecord, u64), FindError> {
        check_id(id).map_err(|_| FindError::Unknown(id.to_owned()))?;
        let entry = self.bucket.get(id).await?.ok_or_else(|| FindError::Unknown(id.to_owned()))?;
        Ok((entry.value, entry.revision))
    }
}

fn check_id(id: &str) -> Result<(), BusError> {
    if is_prefix(id) && id.len() == 16 { Ok(()) } else { Err(BusError::BadName(id.to_owned())) }
}
