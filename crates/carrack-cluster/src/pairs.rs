//! Pairs of movers: the managers store the desired ones, and the movers follow.

use carrack_plan::fleet::AssignedMoverPair;
use futures_util::future::try_join_all;
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::{BucketKeyChange, RecordBucket};
use crate::subjects::NatsBucketName;
use crate::transfer_records::{RECORD_VERSION, is_name};

/// A pair of a source's and a sink's mover: a key in the pairs' bucket, `SOURCE-MOVER.TRANSFER.NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoverPairRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The transfer's ID.
    pub transfer: String,
    /// Its number among the transfer's pairs.
    pub number: u32,
    /// The mover that reads.
    pub source: String,
    /// The mover that writes.
    pub sink: String,
}

impl From<MoverPairRecord> for AssignedMoverPair {
    fn from(pair: MoverPairRecord) -> AssignedMoverPair {
        let MoverPairRecord { transfer, number, source, sink, .. } = pair;
        AssignedMoverPair { transfer, number, source, sink }
    }
}

impl From<AssignedMoverPair> for MoverPairRecord {
    fn from(pair: AssignedMoverPair) -> MoverPairRecord {
        let AssignedMoverPair { transfer, number, source, sink } = pair;
        MoverPairRecord { version: RECORD_VERSION, transfer, number, source, sink }
    }
}

/// A change of the pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairRecordChange {
    /// All pairs: at first and after each interruption. Earlier pairs that are not among these must end.
    All(Vec<MoverPairRecord>),
    /// A desired pair.
    Put(MoverPairRecord),
    /// A pair that must end.
    Gone(MoverPairKey),
}

/// A pair's key in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoverPairKey {
    /// The mover that reads.
    pub source: String,
    /// The transfer's ID.
    pub transfer: String,
    /// Its number among the transfer's pairs.
    pub number: u32,
}

impl MoverPairKey {
    /// Returns the key of a pair.
    pub fn of(pair: &MoverPairRecord) -> MoverPairKey {
        MoverPairKey { source: pair.source.clone(), transfer: pair.transfer.clone(), number: pair.number }
    }

    fn to_key(&self) -> Result<String, BusError> {
        for name in [&self.source, &self.transfer] {
            if !is_name(name) {
                return Err(BusError::BadName(name.clone()));
            }
        }
        Ok(format!("{}.{}.{}", self.source, self.transfer, self.number))
    }

    fn from_key(key: &str) -> Option<MoverPairKey> {
        let mut parts = key.split('.');
        let (source, transfer, number) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
        let (source, transfer) = (source.to_owned(), transfer.to_owned());
        parts.next().is_none().then_some(MoverPairKey { source, transfer, number })
    }
}

/// A filter of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFilter<'a> {
    /// The pairs in which this mover reads.
    Mover(&'a str),
    /// The pairs of this transfer.
    Transfer(&'a str),
    /// All pairs.
    Everybody,
}

impl PairFilter<'_> {
    fn filter(self) -> Result<String, BusError> {
        match self {
            PairFilter::Mover(name) | PairFilter::Transfer(name) if !is_name(name) => {
                Err(BusError::BadName(name.to_owned()))
            }
            PairFilter::Mover(mover) => Ok(format!("{mover}.>")),
            PairFilter::Transfer(transfer) => Ok(format!("*.{transfer}.*")),
            PairFilter::Everybody => Ok(">".to_owned()),
        }
    }
}

/// The bucket of pairs.
#[derive(Clone)]
pub struct PairAssignmentStore {
    bucket: RecordBucket<MoverPairRecord>,
}

impl PairAssignmentStore {
    /// Opens the bucket.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub async fn open(bus: &NatsBus) -> Result<PairAssignmentStore, BusError> {
        Ok(PairAssignmentStore { bucket: RecordBucket::open(bus, NatsBucketName::Pairs).await? })
    }

    /// Stores a desired pair.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn put(&self, pair: &MoverPairRecord) -> Result<(), BusError> {
        self.bucket.put(&MoverPairKey::of(pair).to_key()?, pair).await.map(|_| ())
    }

    /// Removes a pair.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn remove(&self, key: &MoverPairKey) -> Result<(), BusError> {
        self.bucket.delete(&key.to_key()?, None).await
    }

    /// Removes all pairs of a transfer, and returns their number.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn remove_all(&self, transfer: &str) -> Result<usize, BusError> {
        let pairs = self.list(PairFilter::Transfer(transfer)).await?;
        try_join_all(pairs.iter().map(async |pair| self.remove(&MoverPairKey::of(pair)).await)).await?;
        Ok(pairs.len())
    }

    /// Returns the desired pairs, by transfer and number.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn list(&self, whose: PairFilter<'_>) -> Result<Vec<MoverPairRecord>, BusError> {
        let entries = self.bucket.all(&whose.filter()?).await?;
        let mut pairs: Vec<MoverPairRecord> = entries.into_iter().map(|entry| entry.value).collect();
        pairs.sort_by(|a, b| (&a.transfer, a.number).cmp(&(&b.transfer, b.number)));
        Ok(pairs)
    }

    /// Watches the desired pairs. Never ends.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer. Later interruptions are waited out.
    pub async fn watch(
        &self,
        whose: PairFilter<'_>,
    ) -> Result<impl Stream<Item = PairRecordChange> + Send + use<>, BusError> {
        let watch = self.bucket.watch(&whose.filter()?).await?;
        Ok(stream::unfold(watch, |mut watch| async move {
            loop {
                let change = match watch.next().await {
                    BucketKeyChange::All(all) => {
                        PairRecordChange::All(all.into_iter().map(|entry| entry.value).collect())
                    }
                    BucketKeyChange::Put(entry) => PairRecordChange::Put(entry.value),
                    BucketKeyChange::Gone(key) => match MoverPairKey::from_key(&key) {
                        Some(key) => PairRecordChange::Gone(key),
                        None => continue,
                    },
                };
                return Some((change, watch));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = MoverPairKey { source: "dtn1-7".into(), transfer: "0123456789abcdef".into(), number: 3 };
        assert_eq!(MoverPairKey::from_key(&key.to_key().unwrap()), Some(key.clone()));
        assert!(MoverPairKey { source: "a.b".into(), ..key }.to_key().is_err());
        for bad in ["a.b", "a.b.x", "a.b.1.2"] {
            assert_eq!(MoverPairKey::from_key(bad), None, "{bad}");
        }
    }
}
