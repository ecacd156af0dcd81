//! Results of the tuner for a path, from which the next transfer on it starts (Y4).

use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::RecordBucket;
use crate::subjects::NatsBucketName;
use crate::transfer_records::{RECORD_VERSION, is_name};

/// The rate of a number of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCountRate {
    /// Pairs at work.
    pub pairs: u32,
    /// Their total rate.
    pub bytes_per_s: u64,
}

/// A path's curve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCurveRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The points, fewest pairs first.
    pub points: Vec<PairCountRate>,
    /// Time of writing, milliseconds since 1970.
    pub at_ms: u64,
}

impl PairCurveRecord {
    /// Creates a curve of this version.
    pub fn new(points: Vec<PairCountRate>, at_ms: u64) -> PairCurveRecord {
        PairCurveRecord { version: RECORD_VERSION, points, at_ms }
    }
}

/// The bucket of curves.
#[derive(Clone)]
pub struct PairCountCurveStore {
    bucket: RecordBucket<PairCurveRecord>,
}

impl PairCountCurveStore {
    /// Opens the bucket.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub async fn open(bus: &NatsBus) -> Result<PairCountCurveStore, BusError> {
        Ok(PairCountCurveStore { bucket: RecordBucket::open(bus, NatsBucketName::Curves).await? })
    }

    /// Returns the curve of the path from one site to another.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn get(&self, from: &str, to: &str) -> Result<Option<PairCurveRecord>, BusError> {
        Ok(self.bucket.get(&key(from, to)?).await?.map(|entry| entry.value))
    }

    /// Stores a curve in place of an earlier one.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn put(&self, from: &str, to: &str, curve: &PairCurveRecord) -> Result<(), BusError> {
        self.bucket.put(&key(from, to)?, curve).await.map(|_| ())
    }
}

fn key(from: &str, to: &str) -> Result<String, BusError> {
    for name in [from, to] {
        if !is_name(name) {
            return Err(BusError::BadName(name.to_owned()));
        }
    }
    Ok(format!("{from}.{to}"))
}
