//! Results of the tuner for a path, from which the next transfer on it starts (Y4).

use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::records::{RECORD_VERSION, is_name};
use crate::store::RecordBucket;
use crate::subjects::BucketName;

/// The rate of a number of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCurvePoint {
    /// Pairs at work.
    pub pairs: u32,
    /// Their total rate.
    pub bytes_per_s: u64,
}

/// A path's curve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurveRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The points, fewest pairs first.
    pub points: Vec<PairCurvePoint>,
    /// Time of writing, milliseconds since 1970.
    pub at_ms: u64,
}

impl CurveRecord {
    /// Creates a curve of this version.
    pub fn new(points: Vec<PairCurvePoint>, at_ms: u64) -> CurveRecord {
        CurveRecord { version: RECORD_VERSION, points, at_ms }
    }
}

/// The bucket of curves.
#[derive(Clone)]
pub struct CurveStore {
    bucket: RecordBucket<CurveRecord>,
}

impl CurveStore {
    /// Opens the bucket.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub async fn open(bus: &NatsBus) -> Result<CurveStore, BusError> {
        Ok(CurveStore { bucket: RecordBucket::open(bus, BucketName::Curves).await? })
    }

    /// Returns the curve of the path from one site to another.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn get(&self, from: &str, to: &str) -> Result<Option<CurveRecord>, BusError> {
        Ok(self.bucket.get(&key(from, to)?).await?.map(|entry| entry.value))
    }

    /// Stores a curve in place of an earlier one.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn put(&self, from: &str, to: &str, curve: &CurveRecord) -> Result<(), BusError> {
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
