//! Records in buckets, and followers of streams.

mod backwards;
mod bucket;
mod live_bucket;
mod stream_follower;
mod stream_pages;
mod watch;

pub(crate) use bucket::{KvBucketEntry, RecordBucket};
pub(crate) use live_bucket::MirroredKvBucket;
pub(crate) use stream_follower::{NatsStreamFollower, StreamMessage, TailEvent, TailStart};
pub(crate) use stream_pages::{JetStreamPageReader, last_of_each};
pub(crate) use watch::{BucketKeyChange, BucketWatch};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::BusError;
use crate::transfer_records::DELETION_VERSION;

/// Parses a record, unless it is of a later version.
pub(crate) fn read_record<T: DeserializeOwned>(place: &str, bytes: &[u8]) -> Result<T, BusError> {
    #[derive(Deserialize)]
    struct NatsRecordVersion {
        version: u32,
    }
    let NatsRecordVersion { version } =
        serde_json::from_slice(bytes).map_err(|error| unreadable(place, error))?;
    if version > DELETION_VERSION {
        let reason = format!("it is of version {version}, and this carrack knows {DELETION_VERSION}");
        return Err(unreadable(place, reason));
    }
    serde_json::from_slice(bytes).map_err(|error| unreadable(place, error))
}

fn unreadable(place: &str, reason: impl ToString) -> BusError {
    BusError::Unreadable { place: place.to_owned(), reason: reason.to_string() }
}

/// Serializes a record. Records are maps with text keys and finite numbers, all of which JSON has.
pub(crate) fn write_record<T: serde::Serialize>(place: &str, record: &T) -> Result<Vec<u8>, BusError> {
    serde_json::to_vec(record)
        .map_err(|error| BusError::Unreadable { place: place.to_owned(), reason: error.to_string() })
}
