//! A transfer's work: scans, chunks, and what is kept for its end.
//!
//! All of it lies in one stream. Scans and chunks are pulled, one at a time, by whoever has time for them, and are delivered again when
//! nobody acknowledges them; the directories and the large files' entries are only read. What is acknowledged is
//! [trimmed](Queue::trim) now and then, so that the stream holds no more than what is left to do.

mod delivery;
mod head;
mod publisher;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use carrack_plan::fleet::Tried;
use futures_util::future::{join_all, try_join_all};

pub use delivery::{Acker, Delivery, Puller};
use head::TriedRecord;
pub use head::{ChunkHead, ChunkKind, Head, PartOf, ScanHead};
pub use publisher::Publisher;

use crate::bus::Bus;
use crate::error::BusError;
use crate::records::{RECORD_VERSION, is_name};
use crate::store::{Pages, last_of_each, read_record, write_record};
use crate::subjects::WorkKind;

/// A chunk that nobody extends or acknowledges for so long is delivered again.
pub const ACK_WAIT: Duration = Duration::from_secs(30);

/// Chunks that may be out at the same time: more than any fleet has pairs, each with a few.
const OUT_MAX: i64 = 100_000;

/// Pairs that may wait for a chunk at the same time.
const WAITING_MAX: i64 = 20_000;

/// What the scan is called among a transfer's items.
const SCAN_ITEM: &str = "scan";

/// The name for all of a transfer's items: of a mover that can't read or write there at all.
const ALL_ITEMS: &str = "all";

const ATTEMPT: &str = "Carrack-Attempt";

/// How much there is of a kind of work. The server counts what was just published a moment later: for people and for what may be late,
/// and not to tell that everything is done. The log tells that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Items that nobody was given yet.
    pub waiting: u64,
    /// Items that somebody has.
    pub out: u64,
    /// All messages of the stream up to this one are acknowledged, or none of these.
    pub floor: u64,
}

impl Pending {
    /// Items that are not acknowledged.
    pub fn left(&self) -> u64 {
        self.waiting + self.out
    }
}

/// Reads the directories of one attempt, some messages at a time.
pub struct Dirs {
    pages: Pages,
    attempt: u32,
}

impl Dirs {
    /// The next tables; `None` if there are no more. After an error the same ones can be asked for again.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer.
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, BusError> {
        let Some(page) = self.pages.next().await? else { return Ok(None) };
        let of_attempt = |message: &StreamMessage| {
            let attempt = message.headers.get(ATTEMPT).and_then(|value| value.as_str().parse().ok());
            attempt == Some(self.attempt)
        };
        Ok(Some(page.into_iter().filter(of_attempt).map(|message| message.payload.into()).collect()))
    }
}

/// One transfer's work.
#[derive(Clone)]
pub struct Queue {
    bus: Bus,
    transfer: String,
    stream: Stream<()>,
}

impl Queue {
    /// # Errors
    /// If `transfer` is no name.
    pub async fn open(bus: &Bus, transfer: &str) -> Result<Queue, BusError> {
        if !is_name(transfer) {
            return Err(BusError::BadName(transfer.to_owned()));
        }
        let stream = bus.context().get_stream_no_info(bus.names().work()).await;
        let stream = stream.map_err(|error| BusError::refused("the work stream", &error))?;
        Ok(Queue { bus: bus.clone(), transfer: transfer.to_owned(), stream })
    }

    /// The transfer's id.
    pub fn transfer(&self) -> &str {
        &self.transfer
    }

    /// Makes what scans and chunks are pulled from. Again and again is the same as once.
    ///
    /// # Errors
    /// If NATS does not let us.
    pub async fn prepare(&self, ack_wait: Duration) -> Result<(), BusError> {
        let names = self.bus.names();
        let scans = names.work_kind(&self.transfer, WorkKind::Scan);
        let chunks = names.chunks(&self.transfer);
        let made = [(self.scan_consumer(), scans), (self.chunk_consumer(), chunks)];
        let made = made.map(|(name, subject)| self.make_consumer(name, subject, ack_wait));
        try_join_all(made).await.map(|_| ())
    }

    /// Publishes a scan. The same attempt again within two minutes is the same message.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn publish_scan(&self, head: &ScanHead) -> Result<(), BusError> {
        self.publisher().publish_scan(head).await
    }

    /// One that publishes many items, many of them at the same time.
    pub fn publisher(&self) -> Publisher {
        Publisher::new(&self.bus, &self.transfer)
    }

    /// Where scans come from.
    pub fn scans(&self) -> Puller<ScanHead> {
        Puller::new(&self.bus, self.scan_consumer())
    }

    /// Where chunks come from.
    pub fn chunks(&self) -> Puller<ChunkHead> {
        Puller::new(&self.bus, self.chunk_consumer())
    }

    /// How many scans there are.
    ///
    /// # Errors
    /// [`BusError::Missing`] if the queue was never prepared, or was removed.
    pub async fn pending_scans(&self) -> Result<Pending, BusError> {
        self.pending_of(&self.scan_consumer()).await
    }

    /// How many chunks there are.
    ///
    /// # Errors
    /// [`BusError::Missing`] if the queue was never prepared, or was removed.
    pub async fn pending_chunks(&self) -> Result<Pending, BusError> {
        self.pending_of(&self.chunk_consumer()).await
    }

    /// Removes the chunks that are acknowledged, up to the first that is not; returns how many.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer.
    pub async fn trim(&self) -> Result<u64, BusError> {
        let floor = self.pending_chunks().await?.floor;
        if floor == 0 {
            return Ok(0);
        }
        let chunks = self.bus.names().chunks(&self.transfer);
        let purged = self.stream.purge().filter(chunks).sequence(floor + 1).await;
        purged.map(|purged| purged.purged).map_err(|error| self.failed(&error))
    }

    /// What an attempt's scan has published of directories, in that order. It makes no consumer.
    pub fn dirs(&self, attempt: u32) -> Dirs {
        let names = self.bus.names();
        let subject = names.work_kind(&self.transfer, WorkKind::Dirs);
        Dirs { pages: Pages::new(&self.bus, names.work(), subject), attempt }
    }

    /// A large file's entry, as the scan has published it.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn read_large(&self, attempt: u32, file: u64) -> Result<Option<Vec<u8>>, BusError> {
        let subject = self.bus.names().large(&self.transfer, attempt, file);
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => Ok(Some(message.payload.into())),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Movers that have failed a chunk, or can't serve the transfer at all.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn tried(&self, head: &ChunkHead) -> Result<Tried, BusError> {
        self.tried_at(&head.item()).await
    }

    /// The same of the scan.
    ///
    /// # Errors
    /// If NATS does not answer.
    pub async fn scan_tried(&self) -> Result<Tried, BusError> {
        self.tried_at(SCAN_ITEM).await
    }

    /// Notes who has failed a chunk.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn note_tried(&self, head: &ChunkHead, tried: &Tried) -> Result<(), BusError> {
        self.note_tried_at(&head.item(), tried).await
    }

    /// Notes who has failed the scan.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn note_scan_tried(&self, tried: &Tried) -> Result<(), BusError> {
        self.note_tried_at(SCAN_ITEM, tried).await
    }

    /// Notes that a mover can't read, or write, where the transfer is: others do not wait for it.
    ///
    /// # Errors
    /// If NATS does not take it.
    pub async fn note_refuses(&self, is_source: bool, mover: &str) -> Result<(), BusError> {
        let mut tried = self.read_tried(ALL_ITEMS).await?;
        tried.add(is_source, mover);
        self.note_tried_at(ALL_ITEMS, &tried).await
    }

    async fn tried_at(&self, item: &str) -> Result<Tried, BusError> {
        let names = self.bus.names();
        let subjects = [item, ALL_ITEMS].map(|item| names.tried(&self.transfer, item));
        let mut tried = Tried::default();
        for message in last_of_each(&self.bus, &names.work(), &subjects).await? {
            let record: TriedRecord = read_record("who has failed an item", &message.payload)?;
            tried.merge(&record.tried);
        }
        Ok(tried)
    }

    async fn read_tried(&self, item: &str) -> Result<Tried, BusError> {
        let subject = self.bus.names().tried(&self.transfer, item);
        match self.stream.direct_get_last_for_subject(subject).await {
            Ok(message) => {
                let record: TriedRecord = read_record("who has failed an item", &message.payload)?;
                Ok(record.tried)
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(Tried::default()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn note_tried_at(&self, item: &str, tried: &Tried) -> Result<(), BusError> {
        let what = "who has failed an item";
        let subject = self.bus.names().tried(&self.transfer, item);
        let record = TriedRecord { version: RECORD_VERSION, tried: tried.clone() };
        self.bus.store(what, subject, HeaderMap::new(), write_record(what, &record)?).await.map(|_| ())
    }

    /// Removes everything of the transfer's work.
    ///
    /// # Errors
    /// If NATS does not let us, or does not answer; what is left can be removed by another try.
    pub async fn remove(&self) -> Result<(), BusError> {
        // Another manager may have been faster.
        let consumers = [self.chunk_consumer(), self.scan_consumer()];
        join_all(consumers.iter().map(|name| self.stream.delete_consumer(name))).await;
        let everything = self.bus.names().work_of(Some(&self.transfer));
        self.stream.purge().filter(everything).await.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    async fn make_consumer(
        &self,
        name: String,
        filter_subject: String,
        ack_wait: Duration,
    ) -> Result<(), BusError> {
        let config = pull::Config {
            durable_name: Some(name),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait,
            // Again and again: a chunk is over when it is settled, and not when it was tried often.
            max_deliver: -1,
            filter_subject,
            max_ack_pending: OUT_MAX,
            max_waiting: WAITING_MAX,
            ..pull::Config::default()
        };
        self.stream.create_consumer(config).await.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    async fn pending_of(&self, consumer: &str) -> Result<Pending, BusError> {
        use async_nats::jetstream::context::ConsumerInfoErrorKind;
        let info = self.stream.consumer_info(consumer).await.map_err(|error| match error.kind() {
            ConsumerInfoErrorKind::NotFound => BusError::Missing(format!("the queue {consumer}")),
            _ => self.failed(&error),
        })?;
        Ok(Pending {
            waiting: info.num_pending,
            out: info.num_ack_pending as u64,
            floor: info.ack_floor.stream_sequence,
        })
    }

    fn scan_consumer(&self) -> String {
        format!("{}_scan", self.transfer)
    }

    fn chunk_consumer(&self) -> String {
        format!("{}_chunk_0", self.transfer)
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> BusError {
        self.bus.explain(BusError::away(&format!("the work of transfer {}", self.transfer), error))
    }
}
