//! Following a stream from somewhere on, for as long as anybody listens: over lost connections, servers that end, and
//! consumers that are forgotten.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use futures_util::StreamExt;
use tokio::sync::watch;

use crate::bus::Bus;
use crate::error::BusError;

/// Between two tries to follow again. Servers that are back are found at once, and those that are not aren't bothered.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// With the last message of each subject, and again so whenever it has to begin anew.
    LastOfEach,
    /// With this message, and after a break with the one that is missing.
    Message(u64),
}

/// A message of the stream.
pub(crate) struct Kept {
    pub subject: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub seq: u64,
    /// Messages behind this one that are in the stream already.
    pub behind: u64,
}

/// What happens.
pub(crate) enum Tailed {
    /// It begins (anew); so many messages are there already.
    Begun(u64),
    /// The next message.
    Next(Kept),
}

/// The one who follows.
pub(crate) struct Tail {
    bus: Bus,
    stream: String,
    filter: String,
    from: From,
    messages: Option<Ordered>,
    begun: Option<u64>,
    connected: watch::Receiver<u64>,
}

impl Tail {
    /// # Errors
    /// If it can't be begun now. Later there are no errors, only waiting.
    pub(crate) async fn open(
        bus: &Bus,
        stream: String,
        filter: String,
        from: From,
    ) -> Result<Tail, BusError> {
        let connected = bus.times_connected();
        let mut tail =
            Tail { bus: bus.clone(), stream, filter, from, messages: None, begun: None, connected };
        tail.begin().await?;
        Ok(tail)
    }

    pub(crate) async fn next(&mut self) -> Tailed {
        loop {
            if let Some(pending) = self.begun.take() {
                return Tailed::Begun(pending);
            }
            let Some(messages) = self.messages.as_mut() else {
                if self.begin().await.is_err() {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                continue;
            };
            let message = tokio::select! {
                message = messages.next() => message,
                // What was published during a break may have ended meanwhile, and nothing would tell.
                _ = self.connected.changed() => None,
            };
            match message.and_then(|message| message.ok()).map(kept) {
                Some(Some(message)) => {
                    if let From::Message(next) = &mut self.from {
                        *next = message.seq + 1;
                    }
                    return Tailed::Next(message);
                }
                _ => self.messages = None,
            }
        }
    }

    async fn begin(&mut self) -> Result<(), BusError> {
        self.connected.borrow_and_update();
        let deliver_policy = match self.from {
            From::LastOfEach => DeliverPolicy::LastPerSubject,
            From::Message(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
        };
        let config = OrderedConfig {
            deliver_subject: self.bus.client().new_inbox(),
            filter_subject: self.filter.clone(),
            replay_policy: ReplayPolicy::Instant,
            deliver_policy,
            ..OrderedConfig::default()
        };
        let away = |error: &dyn std::fmt::Display| self.bus.explain(BusError::away(&self.stream, error));
        let stream = self.bus.context().get_stream_no_info(&self.stream).await.map_err(|e| away(&e))?;
        let consumer = stream.create_consumer(config).await.map_err(|error| away(&error))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|error| away(&error))?;
        (self.messages, self.begun) = (Some(messages), Some(pending));
        Ok(())
    }
}

/// `None` if it is no message of a stream.
fn kept(message: async_nats::jetstream::Message) -> Option<Kept> {
    let info = message.info().ok()?;
    let (seq, behind) = (info.stream_sequence, info.pending);
    let (message, _) = message.split();
    let headers = message.headers.unwrap_or_default();
    Some(Kept { subject: message.subject.to_string(), headers, body: message.payload.to_vec(), seq, behind })
}
