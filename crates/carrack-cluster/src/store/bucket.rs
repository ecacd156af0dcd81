//! A bucket of records: JSON under keys, each with a revision for compare-and-swap.
//!
//! The wire format is that of every NATS client's key-value store. It is implemented here so that roles need
//! few permissions: no request asks for account information, or makes a consumer to read one key.

use std::marker::PhantomData;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::stream_pages::last_of_each;
use super::{
    BucketWatch, JetStreamPageReader, NatsStreamFollower, TailStart, backwards, read_record, write_record,
};
use crate::bus::{LEASE, NatsBus};
use crate::error::BusError;
use crate::subjects::NatsBucketName;

/// The header of a marker that a key has ended; a value has none.
pub(super) const OPERATION: &str = "KV-Operation";
/// The server's own marker of a key that has ended.
pub(super) const MARKER: &str = "Nats-Marker-Reason";
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const TTL: &str = "Nats-TTL";

/// Seconds for which the marker of a deleted key stays in buckets without expiry: long enough for every
/// watcher.
const DELETED_STAYS_S: u64 = 60;

/// The filter of all keys.
const EVERYTHING: &str = ">";

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KvBucketEntry<T> {
    pub key: String,
    pub value: T,
    pub revision: u64,
}

/// The records of one kind.
pub(crate) struct RecordBucket<T> {
    bus: NatsBus,
    name: NatsBucketName,
    stream: Stream<()>,
    records: PhantomData<fn() -> T>,
}

impl<T> Clone for RecordBucket<T> {
    fn clone(&self) -> RecordBucket<T> {
        RecordBucket {
            bus: self.bus.clone(),
            name: self.name,
            stream: self.stream.clone(),
            records: PhantomData,
        }
    }
}

impl<T: Serialize + DeserializeOwned> RecordBucket<T> {
    pub(crate) async fn open(bus: &NatsBus, name: NatsBucketName) -> Result<RecordBucket<T>, BusError> {
        let stream = bus.names().bucket_stream(name);
        let stream = bus.context().get_stream_no_info(&stream).await;
        let stream = stream.map_err(|error| BusError::refused("a bucket", &error))?;
        Ok(RecordBucket { bus: bus.clone(), name, stream, records: PhantomData })
    }

    pub(crate) fn bus(&self) -> &NatsBus {
        &self.bus
    }

    /// Writes a value, independent of the present one.
    pub(crate) async fn put(&self, key: &str, value: &T) -> Result<u64, BusError> {
        self.write(key, HeaderMap::new(), write_record(&self.describe_key(key), value)?).await
    }

    /// Writes a value only if the key has none, else [`BusError::Exists`].
    pub(crate) async fn create(&self, key: &str, value: &T) -> Result<u64, BusError> {
        let first = match self.update(key, value, 0).await {
            Err(BusError::Conflict(_)) => self.last(key).await?,
            done => return done,
        };
        // A deleted or expired key has left a marker with a revision of its own.
        if let Some(message) = first
            && is_deletion_marker(&message.headers)
        {
            match self.update(key, value, message.sequence).await {
                Err(BusError::Conflict(_)) => {}
                done => return done,
            }
        }
        Err(BusError::Exists(self.describe_key(key)))
    }

    /// Writes a value only if the present one has this revision, else [`BusError::Conflict`].
    pub(crate) async fn update(&self, key: &str, value: &T, revision: u64) -> Result<u64, BusError> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, revision.to_string().as_str());
        self.write(key, headers, write_record(&self.describe_key(key), value)?).await
    }

    /// Deletes a key; with a revision, only if the value has it.
    pub(crate) async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), BusError> {
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, "DEL");
        headers.insert(TTL, self.deletion_marker_ttl_s().to_string().as_str());
        if let Some(revision) = revision {
            headers.insert(EXPECTED, revision.to_string().as_str());
        }
        self.write(key, headers, Vec::new()).await.map(|_| ())
    }

    /// Returns the revision of a key, and the time of its storage in milliseconds since 1970, by the server's
    /// clock.
    pub(crate) async fn revision_and_time_ms(&self, key: &str) -> Result<Option<(u64, i64)>, BusError> {
        let kept = self.last(key).await?;
        Ok(kept.map(|message| (message.sequence, (message.time.unix_timestamp_nanos() / 1_000_000) as i64)))
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<KvBucketEntry<T>>, BusError> {
        match self.last(key).await? {
            Some(message) if !is_deletion_marker(&message.headers) => {
                let value = read_record(&self.describe_key(key), &message.payload)?;
                Ok(Some(KvBucketEntry { key: key.to_owned(), value, revision: message.sequence }))
            }
            _ => Ok(None),
        }
    }

    /// Returns all entries whose keys match `filter`, in the order of their last change, without unreadable
    /// ones. Makes no consumer.
    pub(crate) async fn all(&self, filter: &str) -> Result<Vec<KvBucketEntry<T>>, BusError> {
        let names = self.bus.names();
        let stream = names.bucket_stream(self.name);
        let messages = JetStreamPageReader::new(&self.bus, stream, self.subjects(filter)).all().await?;
        Ok(messages.iter().filter_map(|message| self.entry_of(message)).collect())
    }

    /// Returns those of these keys that exist, in no order. Makes no consumer.
    pub(crate) async fn existing_entries(
        &self,
        keys: impl Iterator<Item = &str>,
    ) -> Result<Vec<KvBucketEntry<T>>, BusError> {
        let names = self.bus.names();
        let subjects: Vec<String> = keys.map(|key| names.key_subject(self.name, key)).collect();
        let messages = last_of_each(&self.bus, &names.bucket_stream(self.name), &subjects).await?;
        Ok(messages.iter().filter_map(|message| self.entry_of(message)).collect())
    }

    /// Returns at most `most` existing entries whose last revision is below `before` (with `None`, of all),
    /// the latest first. Makes no consumer.
    pub(crate) async fn latest(
        &self,
        before: Option<u64>,
        most: usize,
    ) -> Result<Vec<KvBucketEntry<T>>, BusError> {
        let names = self.bus.names();
        let (stream, filter) = (names.bucket_stream(self.name), self.subjects(EVERYTHING));
        let messages = backwards::latest(&self.bus, &stream, &filter, before, most, |message| {
            self.entry_of(message).is_some()
        });
        let messages = messages.await?;
        Ok(messages.iter().filter_map(|message| self.entry_of(message)).collect())
    }

    /// Returns a reader of all entries from this revision on, in the order of their last change. Makes no
    /// consumer.
    pub(crate) fn entries(&self, from: u64) -> BucketReader<'_, T> {
        let names = self.bus.names();
        let pages =
            JetStreamPageReader::new(&self.bus, names.bucket_stream(self.name), self.subjects(EVERYTHING));
        BucketReader { bucket: self, pages: pages.starting(from) }
    }

    /// Returns all existing keys, readable or not.
    pub(crate) async fn keys(&self) -> Result<Vec<String>, BusError> {
        let names = self.bus.names();
        let stream = names.bucket_stream(self.name);
        let messages = JetStreamPageReader::new(&self.bus, stream, self.subjects(EVERYTHING)).all().await?;
        let there = messages.iter().filter(|message| !is_deletion_marker(&message.headers));
        Ok(there.filter_map(|message| self.key_of(message).map(str::to_owned)).collect())
    }

    /// Watches the keys that match `filter`, present and later ones.
    pub(crate) async fn watch(&self, filter: &str) -> Result<BucketWatch<T>, BusError> {
        let names = self.bus.names();
        let (stream, subject) = (names.bucket_stream(self.name), names.key_subject(self.name, filter));
        let tail = NatsStreamFollower::open(&self.bus, stream, subject, TailStart::LastOfEach).await?;
        Ok(BucketWatch::new(tail, names.key_subject(self.name, "")))
    }

    /// Returns the last message of a key. Any replica may answer, and one may lag: compare-and-swap detects
    /// that, and its caller reads again.
    async fn last(&self, key: &str) -> Result<Option<StreamMessage>, BusError> {
        let place = self.describe_key(key);
        let subject = self.bus.names().key_subject(self.name, key);
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.bus.no_answer_error(&place, &error)),
        }
    }

    async fn write(&self, key: &str, headers: HeaderMap, body: Vec<u8>) -> Result<u64, BusError> {
        let subject = self.bus.names().key_write_subject(self.name, key);
        self.bus
            .publish_to_stream(&self.describe_key(key), subject, headers, body)
            .await
            .map(|ack| ack.sequence)
    }

    fn entry_of(&self, message: &StreamMessage) -> Option<KvBucketEntry<T>> {
        if is_deletion_marker(&message.headers) {
            return None;
        }
        let key = self.key_of(message)?;
        let value = read_record(key, &message.payload).ok()?;
        Some(KvBucketEntry { key: key.to_owned(), value, revision: message.sequence })
    }

    /// Returns the stream's subjects for a filter of keys. The stream has nothing but keys, and only this
    /// wildcard tells the server that everything is requested: with the subjects of all keys it would match
    /// each message against each of them.
    fn subjects(&self, filter: &str) -> String {
        if filter == EVERYTHING {
            EVERYTHING.to_owned()
        } else {
            self.bus.names().key_subject(self.name, filter)
        }
    }

    fn key_of<'m>(&self, message: &'m StreamMessage) -> Option<&'m str> {
        message.subject.strip_prefix(self.bus.names().key_subject(self.name, "").as_str())
    }

    fn deletion_marker_ttl_s(&self) -> u64 {
        match self.name {
            NatsBucketName::Movers | NatsBucketName::Leases => LEASE.as_secs(),
            _ => DELETED_STAYS_S,
        }
    }

    fn describe_key(&self, key: &str) -> String {
        format!("{key} in {}", self.bus.names().bucket(self.name))
    }
}

/// A reader of a bucket, some entries at a time.
pub(crate) struct BucketReader<'a, T> {
    bucket: &'a RecordBucket<T>,
    pages: JetStreamPageReader,
}

/// Some entries.
pub(crate) struct BucketPage<T> {
    pub entries: Vec<KvBucketEntry<T>>,
    /// Keys with an unreadable value.
    pub unreadable: Vec<String>,
    /// Last revision that was read.
    pub last: u64,
}

impl<T: Serialize + DeserializeOwned> BucketReader<'_, T> {
    /// Returns the next entries; `None` if there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<BucketPage<T>>, BusError> {
        let Some(messages) = self.pages.next().await? else { return Ok(None) };
        let last = messages.last().map_or(0, |message| message.sequence);
        let mut page = BucketPage { entries: Vec::new(), unreadable: Vec::new(), last };
        for message in messages.iter().filter(|message| !is_deletion_marker(&message.headers)) {
            match self.bucket.entry_of(message) {
                Some(entry) => page.entries.push(entry),
                None => page.unreadable.extend(self.bucket.key_of(message).map(str::to_owned)),
            }
        }
        Ok(Some(page))
    }
}

pub(super) fn is_deletion_marker(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_some() || headers.get(MARKER).is_some()
}
