//! How fast pairs are, told to whoever listens and kept nowhere: what is lost is said again a second later.

use carrack_plan::fleet::WaitsAt;
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::error::BusError;
use crate::records::{RECORD_VERSION, is_name};
use crate::store::{read_record, write_record};

/// What a pair's source mover tells once a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairReport {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The source's mover.
    pub mover: String,
    /// Of the transfer's pairs, which it is.
    pub pair: u32,
    /// The sink's mover.
    #[serde(default)]
    pub sink: String,
    /// Bytes of objects that this pair has sent since it began.
    pub bytes_moved: u64,
    /// Per second, of late.
    pub bytes_per_s: u64,
    /// Objects that this pair has sent since it began.
    pub objects: u64,
    /// Chunks that it has taken and not acknowledged.
    pub chunks_held: u32,
    /// The next chunk is asked for when less than this is left (Y3).
    pub threshold_bytes: u64,
    /// What it waits for most of the time, if that is storage.
    #[serde(default)]
    pub waits_at: WaitsAt,
    /// What its objects go over; empty before it is connected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub transport: String,
    /// I/O threads that read.
    #[serde(default)]
    pub readers: u32,
    /// Connections that are used.
    #[serde(default)]
    pub streams: u32,
}

impl PairReport {
    /// Nothing yet.
    pub fn new(mover: &str, pair: u32) -> PairReport {
        PairReport {
            version: RECORD_VERSION,
            mover: mover.to_owned(),
            pair,
            sink: String::new(),
            bytes_moved: 0,
            bytes_per_s: 0,
            objects: 0,
            chunks_held: 0,
            threshold_bytes: 0,
            waits_at: WaitsAt::Neither,
            transport: String::new(),
            readers: 0,
            streams: 0,
        }
    }
}

/// Tells it.
///
/// # Errors
/// If `transfer` is no name. What NATS does not carry is lost without a word.
pub async fn report(bus: &Bus, transfer: &str, report: &PairReport) -> Result<(), BusError> {
    let body = write_record("a report", report)?;
    let sent = bus.client().publish(subject(bus, transfer)?, body.into()).await;
    sent.map_err(|error| BusError::away("a report", &error))
}

/// What the pairs of a transfer tell from now on.
///
/// # Errors
/// If `transfer` is no name, or NATS can't be reached.
pub async fn reports(
    bus: &Bus,
    transfer: &str,
) -> Result<impl Stream<Item = PairReport> + Send + Unpin + use<>, BusError> {
    let subscribed = subscribe_reports(bus, transfer).await?;
    bus.settle("reports").await?;
    Ok(subscribed)
}

/// The same from the moment on at which the server hears of it, which is not waited for.
///
/// # Errors
/// As [`reports`].
pub(crate) async fn subscribe_reports(
    bus: &Bus,
    transfer: &str,
) -> Result<impl Stream<Item = PairReport> + Send + Unpin + use<>, BusError> {
    let subscribed = bus.client().subscribe(subject(bus, transfer)?).await;
    let messages = subscribed.map_err(|error| BusError::away("reports", &error))?;
    Ok(messages.filter_map(|message| std::future::ready(read_record("a report", &message.payload).ok())))
}

fn subject(bus: &Bus, transfer: &str) -> Result<String, BusError> {
    if !is_name(transfer) {
        return Err(BusError::BadName(transfer.to_owned()));
    }
    Ok(bus.names().report(transfer))
}
