//! Following a stream from a position on, over lost connections, restarts of servers, and dropped consumers.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use futures_util::StreamExt;
use tokio::sync::watch;

use crate::bus::NatsBus;
use crate::error::BusError;

/// Pause between attempts to follow again: short for servers that are back, long enough for others.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// The first position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailStart {
    /// The last message of each subject, also after every interruption.
    LastOfEach,
    /// This message, and after an interruption the first missing one.
    Message(u64),
}

/// A message of the stream.
pub(crate) struct StreamMessage {
    pub subject: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub seq: u64,
    /// Later messages that are already in the stream.
    pub behind: u64,
}

/// An event.
pub(crate) enum TailEvent {
    /// The start, or a new start after an interruption, with the number of present messages.
    Begun(u64),
    /// The next message.
    Next(StreamMessage),
}

/// A follower of a stream.
pub(crate) struct NatsStreamFollower {
    bus: NatsBus,
    stream: String,
    filter: String,
    from: TailStart,
    messages: Option<Ordered>,
    begun: Option<u64>,
    connected: watch::Receiver<u64>,
}

impl NatsStreamFollower {
    /// Opens the stream.
    ///
    /// # Errors
    /// If it can't be opened now. Later there are no errors, only waiting.
    pub(crate) async fn open(
        bus: &NatsBus,
        stream: String,
        filter: String,
        from: TailStart,
    ) -> Result<NatsStreamFollower, BusError> {
        let connected = bus.times_connected();
        let mut tail = NatsStreamFollower {
            bus: bus.clone(),
            stream,
            filter,
            from,
            messages: None,
            begun: None,
            connected,
        };
        tail.begin().await?;
        Ok(tail)
    }

    pub(crate) async fn next(&mut self) -> TailEvent {
        loop {
            if let Some(pending) = self.begun.take() {
                return TailEvent::Begun(pending);
            }
            let Some(messages) = self.messages.as_mut() else {
                if self.begin().await.is_err() {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                continue;
            };
            let message = tokio::select! {
                message = messages.next() => message,
                // A message published during an interruption may have expired meanwhile, without an event.
                _ = self.connected.changed() => None,
            };
            match message.and_then(|message| message.ok()).map(to_stream_message) {
                Some(Some(message)) => {
                    if let TailStart::Message(next) = &mut self.from {
                        *next = message.seq + 1;
                    }
                    return TailEvent::Next(message);
                }
                _ => self.messages = None,
            }
        }
    }

    async fn begin(&mut self) -> Result<(), BusError> {
        self.connected.borrow_and_update();
        let deliver_policy = match self.from {
            TailStart::LastOfEach => DeliverPolicy::LastPerSubject,
            TailStart::Message(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
        };
        let config = OrderedConfig {
            deliver_subject: self.bus.client().new_inbox(),
            filter_subject: self.filter.clone(),
            replay_policy: ReplayPolicy::Instant,
            deliver_policy,
            ..OrderedConfig::default()
        };
        let stream = self.bus.context().get_stream_no_info(&self.stream).await;
        let stream = stream.map_err(|error| self.bus.no_answer_error(&self.stream, &error))?;
        let consumer = stream.create_consumer(config).await;
        let consumer = consumer.map_err(|error| self.bus.no_answer_error(&self.stream, &error))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await;
        let messages = messages.map_err(|error| self.bus.no_answer_error(&self.stream, &error))?;
        (self.messages, self.begun) = (Some(messages), Some(pending));
        Ok(())
    }
}

/// Converts a message; `None` if it is not from a stream.
fn to_stream_message(message: async_nats::jetstream::Message) -> Option<StreamMessage> {
    let info = message.info().ok()?;
    let (seq, behind) = (info.stream_sequence, info.pending);
    let (message, _) = message.split();
    let headers = message.headers.unwrap_or_default();
    Some(StreamMessage {
        subject: message.subject.to_string(),
        headers,
        body: message.payload.to_vec(),
        seq,
        behind,
    })
}
