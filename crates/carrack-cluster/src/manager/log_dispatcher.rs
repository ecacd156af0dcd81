//! Distribution of new entries of all transfers' logs: one consumer follows the stream for the whole manager,
//! and each entry goes to the task of its transfer.
//!
//! It reads no earlier entries. A transfer that this manager begins has no log yet and is followed here; the
//! log of a transfer that another manager began is replayed by a consumer of its own
//! ([`FleetTransferLog::replay_and_follow`](crate::log::FleetTransferLog::replay_and_follow)).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;

use crate::bus::NatsBus;
use crate::error::BusError;
use crate::log::{LogFollowEvent, read_entry};
use crate::store::{NatsStreamFollower, StreamMessage, TailEvent, TailStart};

/// Entries that may wait for the task of one transfer: more than arrive during one of its steps. Beyond it
/// the subscription ends.
const WAITING_MAX: usize = 16 * 1024;

type Subscribers = Mutex<HashMap<String, mpsc::Sender<LogFollowEvent>>>;

/// The consumer and the subscribers. Ends with its owner.
pub(super) struct TransferLogSubscriptions {
    subscribers: Arc<Subscribers>,
    task: JoinHandle<()>,
}

impl Drop for TransferLogSubscriptions {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TransferLogSubscriptions {
    /// Follows the stream from its present end.
    ///
    /// # Errors
    /// If NATS refuses, or does not answer. Later interruptions are waited out.
    pub async fn start(bus: &NatsBus) -> Result<TransferLogSubscriptions, BusError> {
        let (stream, prefix) = (bus.names().log_stream(), bus.names().log_subject(""));
        let found = bus.context().get_stream(&stream).await;
        let found = found.map_err(|error| bus.no_answer_error(&stream, &error))?;
        let begin = TailStart::Message(found.cached_info().state.last_sequence + 1);
        let mut tail = NatsStreamFollower::open(bus, stream, bus.names().log_subject("*"), begin).await?;
        let subscribers: Arc<Subscribers> = Arc::default();
        let dispatching = Arc::clone(&subscribers);
        let task = tokio::spawn(async move {
            loop {
                if let TailEvent::Next(message) = tail.next().await {
                    dispatch(&dispatching, &prefix, &message);
                }
            }
        });
        Ok(TransferLogSubscriptions { subscribers, task })
    }

    /// Subscribes to the entries that are appended to the log of this transfer from now on.
    pub fn subscribe(&self, transfer: &str) -> LogSubscription {
        let (sender, entries) = mpsc::channel(WAITING_MAX);
        lock(&self.subscribers).insert(transfer.to_owned(), sender.clone());
        let (transfer, subscribers) = (transfer.to_owned(), Arc::clone(&self.subscribers));
        LogSubscription { transfer, subscribers, sender: sender.downgrade(), entries }
    }
}

fn lock(
    subscribers: &Subscribers,
) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::Sender<LogFollowEvent>>> {
    subscribers.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dispatch(subscribers: &Subscribers, prefix: &str, message: &StreamMessage) {
    let transfer = message.subject.strip_prefix(prefix).unwrap_or_default();
    let mut subscribers = lock(subscribers);
    let Some(subscriber) = subscribers.get(transfer) else { return };
    let logged = LogFollowEvent::Entry { seq: message.seq, entry: read_entry(&message.body) };
    if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = subscriber.try_send(logged) {
        subscribers.remove(transfer);
    }
}

/// The new entries of one log, in their order. It ends only if its owner was too slow: then entries are
/// missing, and the log must be replayed.
pub(super) struct LogSubscription {
    transfer: String,
    subscribers: Arc<Subscribers>,
    sender: mpsc::WeakSender<LogFollowEvent>,
    entries: mpsc::Receiver<LogFollowEvent>,
}

impl Stream for LogSubscription {
    type Item = LogFollowEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LogFollowEvent>> {
        self.entries.poll_recv(context)
    }
}

impl Drop for LogSubscription {
    fn drop(&mut self) {
        let mut subscribers = lock(&self.subscribers);
        // Not the sender of a later subscription to the same log.
        if let Some(sender) = subscribers.get(&self.transfer)
            && self.sender.upgrade().is_some_and(|own| own.same_channel(sender))
        {
            subscribers.remove(&self.transfer);
        }
    }
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderMap;
    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::log::TransferLogEntry;

    fn dispatcher() -> TransferLogSubscriptions {
        TransferLogSubscriptions { subscribers: Arc::default(), task: tokio::spawn(async {}) }
    }

    fn note(transfer: &str, seq: u64) -> StreamMessage {
        let body = br#"{"version":1,"what":"note","by":"m","text":"t"}"#.to_vec();
        StreamMessage {
            subject: format!("p.log.{transfer}"),
            headers: HeaderMap::new(),
            body,
            seq,
            behind: 0,
        }
    }

    fn next_seq(subscription: &mut LogSubscription) -> Option<Option<u64>> {
        subscription.next().now_or_never().map(|logged| match logged {
            Some(LogFollowEvent::Entry { seq, entry: TransferLogEntry::Note { .. } }) => Some(seq),
            _ => None,
        })
    }

    #[tokio::test]
    async fn entries_go_to_the_latest_subscriber_of_their_transfer() {
        let dispatcher = dispatcher();
        let (first, mut other) = (dispatcher.subscribe("a"), dispatcher.subscribe("b"));
        let mut second = dispatcher.subscribe("a");
        drop(first);
        for (transfer, seq) in [("a", 1), ("b", 2), ("c", 3)] {
            dispatch(&dispatcher.subscribers, "p.log.", &note(transfer, seq));
        }
        assert_eq!((next_seq(&mut second), next_seq(&mut other)), (Some(Some(1)), Some(Some(2))));
        assert_eq!((next_seq(&mut second), next_seq(&mut other)), (None, None));
        drop((second, other));
        assert!(lock(&dispatcher.subscribers).is_empty());
    }

    #[tokio::test]
    async fn a_subscriber_that_is_too_slow_is_told_so_by_an_end() {
        let dispatcher = dispatcher();
        let mut subscription = dispatcher.subscribe("a");
        for seq in 1..=WAITING_MAX as u64 + 2 {
            dispatch(&dispatcher.subscribers, "p.log.", &note("a", seq));
        }
        for expected in 1..=WAITING_MAX as u64 {
            let Some(LogFollowEvent::Entry { seq, .. }) = subscription.next().await else {
                panic!("no {expected}")
            };
            assert_eq!(seq, expected);
        }
        assert!(subscription.next().await.is_none());
    }
}
