//! What the tuner has learnt of a path, so that the next transfer on it begins where this one has arrived (Y4).

use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::error::BusError;
use crate::records::{RECORD_VERSION, is_name};
use crate::store::Bucket;
use crate::subjects::BucketName;

/// How fast so many pairs were together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Pairs at work.
    pub pairs: u32,
    /// What they moved together.
    pub bytes_per_s: u64,
}

/// A path's curve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurveRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The points, fewest pairs first.
    pub points: Vec<CurvePoint>,
    /// When it was written, milliseconds since 1970.
    pub at_ms: u64,
}

impl CurveRecord {
    /// A curve of now.
    pub fn new(points: Vec<CurvePoint>, at_ms: u64) -> CurveRecord {
        CurveRecord { version: RECORD_VERSION, points, at_ms }
    }
}

/// The bucket of curves.
#[derive(Clone)]
pub struct Curves {
    bucket: Bucket<CurveRecord>,
}

impl Curves {
    /// # Errors
    /// None that could be helped.
    pub async fn open(bus: &Bus) -> Result<Curves, BusError> {
        Ok(Curves { bucket: Bucket::open(bus, BucketName::Curves).await? })
    }

    /// What is known of the way from one site to another.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn get(&self, from: &str, to: &str) -> Result<Option<CurveRecord>, BusError> {
        Ok(self.bucket.get(&key(from, to)?).await?.map(|entry| entry.value))
    }

    /// Keeps it, in place of what was known.
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
