//! Getting items, one at a time, and saying what became of them.
//!
//! Requests and answers are spoken here and not left to async-nats, as its `double_ack` takes "nobody is there" for an
//! answer, and a chunk that is believed to be acknowledged and is not would be moved again by others.

use std::marker::PhantomData;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::{Message, Request, RequestErrorKind, StatusCode};
use serde_json::json;

use super::Head;
use super::publisher::HEAD;
use crate::bus::Bus;
use crate::error::BusError;
use crate::store::read_record;

/// What the server's last word may take beyond the time that it was asked to wait.
const SLACK: Duration = Duration::from_secs(2);

/// No answer to "done" or "go on waiting" within this time is none.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// An item that we can't read is left to others, which may be newer.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// One who takes items from a queue.
#[derive(Clone)]
pub struct Puller<H> {
    bus: Bus,
    subject: String,
    consumer: String,
    heads: PhantomData<fn() -> H>,
}

impl<H: Head> Puller<H> {
    pub(super) fn new(bus: &Bus, consumer: String) -> Puller<H> {
        let names = bus.names();
        let subject = format!("{}.CONSUMER.MSG.NEXT.{}.{consumer}", names.api(), names.work());
        Puller { bus: bus.clone(), subject, consumer, heads: PhantomData }
    }

    /// The next item: one, and nothing is fetched in advance, for what lies with a slow mover would have to wait there. `None` if
    /// there was none for as long as `wait`.
    ///
    /// Dropped before its end, the item that was on its way is delivered again after the queue's waiting time.
    ///
    /// # Errors
    /// [`BusError::Away`] also if the queue is not there: NATS does not tell these apart.
    pub async fn next(&self, wait: Duration) -> Result<Option<Delivery<H>>, BusError> {
        let request = if wait.is_zero() {
            json!({ "batch": 1, "no_wait": true })
        } else {
            json!({ "batch": 1, "expires": u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX) })
        };
        // An inbox of its own: what is delivered keeps its subject, by which async-nats would look for whoever asked.
        let inbox = self.bus.client().new_inbox();
        let request =
            Request::new().payload(request.to_string().into()).timeout(Some(wait + SLACK)).inbox(inbox);
        let mut connected = self.bus.times_connected();
        connected.borrow_and_update();
        let answer = tokio::select! {
            answer = self.bus.client().send_request(self.subject.clone(), request) => answer,
            // A new connection has new subscriptions: the old request was forgotten with the old ones.
            _ = connected.changed() => return Err(BusError::away(&self.consumer, &"the connection was lost")),
        };
        let message = answer.map_err(|error| self.bus.explain(BusError::away(&self.consumer, &error)))?;
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
        BusError::away(&self.consumer, &format!("{status} {reason}"))
    }

    async fn read(&self, message: Message) -> Result<Delivery<H>, BusError> {
        let head = message.headers.as_ref().and_then(|headers| headers.get(HEAD));
        let head = read_record(&self.consumer, head.map_or(b"", |head| head.as_str().as_bytes()));
        let message = self.bus.jetstream_message(message);
        let info = message.info();
        let info = info.map_err(|error| BusError::refused(&self.consumer, &error))?;
        let (seq, delivered) = (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(0));
        let behind = info.pending;
        let reply = message.message.reply.as_ref().map(ToString::to_string).unwrap_or_default();
        let acker = Acker { bus: self.bus.clone(), consumer: self.consumer.clone(), reply };
        match head {
            Ok(head) => {
                Ok(Delivery { head, body: message.message.payload.into(), delivered, seq, behind, acker })
            }
            Err(error) => {
                acker.say(AckKind::Nak(Some(LEFT_FOR))).await?;
                Err(error)
            }
        }
    }
}

/// An item that is ours until it is acknowledged, or was not extended for too long.
pub struct Delivery<H> {
    /// What it says of itself.
    pub head: H,
    /// What it is about.
    pub body: Vec<u8>,
    /// How often it was delivered, with this time.
    pub delivered: u64,
    /// Its place in the stream.
    pub seq: u64,
    /// Items behind it that waited when it was delivered.
    pub behind: u64,
    acker: Acker,
}

impl<H> Delivery<H> {
    /// Somebody had it before: parts of it may be done.
    pub fn is_again(&self) -> bool {
        self.delivered > 1
    }

    /// The part that extends and ends the delivery, for another task than the one that works.
    pub fn acker(&self) -> Acker {
        self.acker.clone()
    }

    /// See [`Acker::in_progress`].
    ///
    /// # Errors
    /// If NATS does not answer: then it is not extended.
    pub async fn in_progress(&self) -> Result<(), BusError> {
        self.acker.in_progress().await
    }

    /// See [`Acker::ack`].
    ///
    /// # Errors
    /// If NATS does not answer: then it may be delivered again.
    pub async fn ack(&self) -> Result<(), BusError> {
        self.acker.ack().await
    }

    /// See [`Acker::nak`].
    ///
    /// # Errors
    /// If NATS does not answer: then it is delivered again after the queue's waiting time.
    pub async fn nak(&self, delay: Duration) -> Result<(), BusError> {
        self.acker.nak(delay).await
    }
}

/// Says what becomes of a delivery. Each word is confirmed by the server.
#[derive(Clone)]
pub struct Acker {
    bus: Bus,
    consumer: String,
    reply: String,
}

impl Acker {
    /// It is being worked on: the time after which it is delivered again begins anew. When this returns that is so.
    ///
    /// # Errors
    /// If NATS does not answer: then it is not extended.
    pub async fn in_progress(&self) -> Result<(), BusError> {
        self.say(AckKind::Progress).await
    }

    /// It is done, and is never delivered again. When this returns that is so.
    ///
    /// # Errors
    /// If NATS does not answer: then it may be delivered again.
    pub async fn ack(&self) -> Result<(), BusError> {
        self.say(AckKind::Ack).await
    }

    /// It is given back, and delivered to somebody after `delay`.
    ///
    /// # Errors
    /// If NATS does not answer: then it is delivered again after the queue's waiting time.
    pub async fn nak(&self, delay: Duration) -> Result<(), BusError> {
        self.say(AckKind::Nak(Some(delay))).await
    }

    async fn say(&self, kind: AckKind) -> Result<(), BusError> {
        let request = Request::new().payload(kind.into()).timeout(Some(ANSWER_WITHIN));
        match self.bus.client().send_request(self.reply.clone(), request).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                Err(BusError::away(&self.consumer, &"its server is away, or it was removed"))
            }
            Err(error) => Err(self.bus.explain(BusError::away(&self.consumer, &error))),
        }
    }
}
