//! Reports of pairs' rates, published and not stored: a lost report is followed by the next a second later.

use carrack_plan::fleet::StorageWaitSide;
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::{read_record, write_record};
use crate::transfer_records::{RECORD_VERSION, is_name};

/// The report of a pair's source mover, once a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoverPairReport {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The source's mover.
    pub mover: String,
    /// Its number among the transfer's pairs.
    pub pair: u32,
    /// The sink's mover.
    #[serde(default)]
    pub sink: String,
    /// Bytes of objects that this pair has sent since it began.
    pub bytes_moved: u64,
    /// Its recent rate.
    pub bytes_per_s: u64,
    /// Objects that this pair has sent since it began.
    pub objects: u64,
    /// Chunks that it has taken and not acknowledged.
    pub chunks_held: u32,
    /// The remaining bytes at which the next chunk is requested (Y3).
    pub threshold_bytes: u64,
    /// The end whose storage it waits for most of the time, if any.
    #[serde(default)]
    pub waits_at: StorageWaitSide,
    /// The transport of its objects; empty before it is connected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub transport: String,
    /// I/O threads that read.
    #[serde(default)]
    pub readers: u32,
    /// Data connections in use.
    #[serde(default)]
    pub streams: u32,
}

impl MoverPairReport {
    /// Creates an empty report.
    pub fn new(mover: &str, pair: u32) -> MoverPairReport {
        MoverPairReport {
            version: RECORD_VERSION,
            mover: mover.to_owned(),
            pair,
            sink: String::new(),
            bytes_moved: 0,
            bytes_per_s: 0,
            objects: 0,
            chunks_held: 0,
            threshold_bytes: 0,
            waits_at: StorageWaitSide::Neither,
            transport: String::new(),
            readers: 0,
            streams: 0,
        }
    }
}

/// Publishes a report.
///
/// # Errors
/// If `transfer` is no valid name. A message that NATS loses is no error.
pub async fn report(bus: &NatsBus, transfer: &str, report: &MoverPairReport) -> Result<(), BusError> {
    let body = write_record("a report", report)?;
    let sent = bus.client().publish(subject(bus, transfer)?, body.into()).await;
    sent.map_err(|error| BusError::no_answer("a report", &error))
}

/// Subscribes to the reports of a transfer's pairs.
///
/// # Errors
/// If `transfer` is no valid name, or NATS can't be reached.
pub async fn subscribe_reports_confirmed(
    bus: &NatsBus,
    transfer: &str,
) -> Result<impl Stream<Item = MoverPairReport> + Send + Unpin + use<>, BusError> {
    let subscribed = subscribe_reports(bus, transfer).await?;
    bus.wait_until_processed("reports").await?;
    Ok(subscribed)
}

/// The same without waiting until the server knows the subscription.
///
/// # Errors
/// As [`subscribe_reports_confirmed`].
pub(crate) async fn subscribe_reports(
    bus: &NatsBus,
    transfer: &str,
) -> Result<impl Stream<Item = MoverPairReport> + Send + Unpin + use<>, BusError> {
    let subscribed = bus.client().subscribe(subject(bus, transfer)?).await;
    let messages = subscribed.map_err(|error| BusError::no_answer("reports", &error))?;
    Ok(messages.filter_map(|message| std::future::ready(read_record("a report", &message.payload).ok())))
}

fn subject(bus: &NatsBus, transfer: &str) -> Result<String, BusError> {
    if !is_name(transfer) {
        return Err(BusError::BadName(transfer.to_owned()));
    }
    Ok(bus.names().report_subject(transfer))
}
