//! Delivery of items, one at a time, and their acknowledgement.
//!
//! Requests are made here and not by async-nats, as its `double_ack` counts "no responders" as an answer:
//! other movers would move a chunk again that was wrongly taken for acknowledged.

use std::marker::PhantomData;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::{Message, Request, RequestErrorKind, StatusCode};
use serde_json::json;

use super::QueueItemHeader;
use super::publisher::HEAD;
use crate::bus::NatsBus;
use crate::error::BusError;
use crate::store::read_record;

/// Time for the server's answer beyond the requested wait.
const SLACK: Duration = Duration::from_secs(2);

/// Timeout of the answer to an acknowledgement or an extension.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Delay of an item that this version can't read: newer movers may.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// A source of items from a queue.
#[derive(Clone)]
pub struct QueuePuller<H> {
    bus: NatsBus,
    subject: String,
    consumer: String,
    heads: PhantomData<fn() -> H>,
}

impl<H: QueueItemHeader> QueuePuller<H> {
    pub(super) fn new(bus: &NatsBus, consumer: String) -> QueuePuller<H> {
        let names = bus.names();
        let subject = format!("{}.CONSUMER.MSG.NEXT.{}.{consumer}", names.api_prefix(), names.work_stream());
        QueuePuller { bus: bus.clone(), subject, consumer, heads: PhantomData }
    }

    /// Returns the next item; `None` if there was none within `wait`. Nothing is fetched in advance: it would
    /// wait at a slow mover.
    ///
    /// If the future is dropped before its end, an item on its way is redelivered after the ack deadline.
    ///
    /// # Errors
    /// [`BusError::Away`] also if the queue does not exist: NATS does not distinguish these cases.
    pub async fn next(&self, wait: Duration) -> Result<Option<QueueDelivery<H>>, BusError> {
        let request = if wait.is_zero() {
            json!({ "batch": 1, "no_wait": true })
        } else {
            json!({ "batch": 1, "expires": u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX) })
        };
        // An inbox of its own: a delivered message keeps its subject, by which async-nats would look for the
        // requester.
        let inbox = self.bus.client().new_inbox();
        let request =
            Request::new().payload(request.to_string().into()).timeout(Some(wait + SLACK)).inbox(inbox);
        let mut connected = self.bus.times_connected();
        connected.borrow_and_update();
        let answer = tokio::select! {
            answer = self.bus.client().send_request(self.subject.clone(), request) => answer,
            // A new connection has new subscriptions: the server dropped the old request with the old ones.
            _ = connected.changed() => return Err(BusError::no_answer(&self.consumer, &"the connection was lost")),
        };
        let message = answer.map_err(|error| self.bus.no_answer_error(&self.consumer, &error))?;
        match message.status {
            None | Some(StatusCode::OK) => self.read(message).await.map(Some),
            Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => Ok(None),
            Some(status) => Err(self.no_item(status, message.description.as_deref().unwrap_or_default())),
        }
    }

    fn no_item(&self, status: StatusCode, reason: &str) -> BusError {
        if reason.eq_ignore_ascii_case("Consumer Deleted") {
            return BusError::Missing(format!("the queue {}", self.consumer));
        }
        BusError::no_answer(&self.consumer, &format!("{status} {reason}"))
    }

    async fn read(&self, message: Message) -> Result<QueueDelivery<H>, BusError> {
        let head = message.headers.as_ref().and_then(|headers| headers.get(HEAD));
        let head = read_record(&self.consumer, head.map_or(b"", |head| head.as_str().as_bytes()));
        let message = self.bus.jetstream_message(message);
        let info = message.info();
        let info = info.map_err(|error| BusError::refused(&self.consumer, &error))?;
        let (seq, delivered) = (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(0));
        let behind = info.pending;
        let reply = message.message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
        let acker = DeliveryAcker { bus: self.bus.clone(), consumer: self.consumer.clone(), reply };
        match head {
            Ok(head) => Ok(QueueDelivery {
                head,
                body: message.message.payload.into(),
                delivered,
                seq,
                behind,
                acker,
            }),
            Err(error) => {
                acker.send_ack(AckKind::Nak(Some(LEFT_FOR))).await?;
                Err(error)
            }
        }
    }
}

/// An item that belongs to this process until it is acknowledged, or its ack deadline is over.
pub struct QueueDelivery<H> {
    /// Its description.
    pub head: H,
    /// Its entry table.
    pub body: Vec<u8>,
    /// Number of deliveries, including the present.
    pub delivered: u64,
    /// Its sequence number in the stream.
    pub seq: u64,
    /// Items behind it that waited when it was delivered.
    pub behind: u64,
    acker: DeliveryAcker,
}

impl<H> QueueDelivery<H> {
    /// Returns true if it was delivered before: parts of the work may be done.
    pub fn is_redelivered(&self) -> bool {
        self.delivered > 1
    }

    /// Returns the part that extends and ends the delivery, for another task.
    pub fn acker(&self) -> DeliveryAcker {
        self.acker.clone()
    }

    /// See [`DeliveryAcker::in_progress`].
    ///
    /// # Errors
    /// If NATS does not answer: then it is not extended.
    pub async fn in_progress(&self) -> Result<(), BusError> {
        self.acker.in_progress().await
    }

    /// See [`DeliveryAcker::ack`].
    ///
    /// # Errors
    /// If NATS does not answer: then it may be redelivered.
    pub async fn ack(&self) -> Result<(), BusError> {
        self.acker.ack().await
    }

    /// See [`DeliveryAcker::nak`].
    ///
    /// # Errors
    /// If NATS does not answer: then it is redelivered after the ack deadline.
    pub async fn nak(&self, delay: Duration) -> Result<(), BusError> {
        self.acker.nak(delay).await
    }
}

/// Extends and ends a delivery. The server confirms each message.
#[derive(Clone)]
pub struct DeliveryAcker {
    bus: NatsBus,
    consumer: String,
    reply: String,
}

impl DeliveryAcker {
    /// Extends the ack deadline, as the work continues; returns after the server's confirmation.
    ///
    /// # Errors
    /// If NATS does not answer: then it is not extended.
    pub async fn in_progress(&self) -> Result<(), BusError> {
        self.send_ack(AckKind::Progress).await
    }

    /// Acknowledges the delivery, which is never redelivered then; returns after the server's confirmation.
    ///
    /// # Errors
    /// If NATS does not answer: then it may be redelivered.
    pub async fn ack(&self) -> Result<(), BusError> {
        self.send_ack(AckKind::Ack).await
    }

    /// Returns the item to the queue, to be redelivered after `delay`.
    ///
    /// # Errors
    /// If NATS does not answer: then it is redelivered after the ack deadline.
    pub async fn nak(&self, delay: Duration) -> Result<(), BusError> {
        self.send_ack(AckKind::Nak(Some(delay))).await
    }

    async fn send_ack(&self, kind: AckKind) -> Result<(), BusError> {
        let request = Request::new().payload(kind.into()).timeout(Some(ANSWER_WITHIN));
        match self.bus.client().send_request(self.reply.clone(), request).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                Err(BusError::no_answer(&self.consumer, &"its server is away, or it was removed"))
            }
            Err(error) => Err(self.bus.no_answer_error(&self.consumer, &error)),
        }
    }
}
