//! The state of the connection: the time since its loss, and the server's recent refusals.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{Event, ServerError};
use tokio::sync::watch;

/// Age at which a refusal no longer explains a request without an answer.
const REFUSAL_COUNTS: Duration = Duration::from_secs(10);

/// Updated by async-nats' events.
pub(super) struct NatsConnectionMonitor {
    state: Mutex<NatsConnectionState>,
    /// Number of connections made: a watcher reads its keys again when it grows.
    times_connected: watch::Sender<u64>,
}

#[derive(Default)]
struct NatsConnectionState {
    lost: Option<Instant>,
    refused: Option<(Instant, String)>,
}

impl NatsConnectionMonitor {
    pub(super) fn new() -> NatsConnectionMonitor {
        NatsConnectionMonitor { state: Mutex::default(), times_connected: watch::Sender::new(0) }
    }

    pub(super) fn handle_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.with(|state| state.lost = None);
                self.times_connected.send_modify(|times| *times += 1);
            }
            Event::Disconnected | Event::Closed => self.with(|state| {
                state.lost.get_or_insert_with(Instant::now);
            }),
            Event::ServerError(ServerError::Other(text)) => {
                self.with(|state| state.refused = Some((Instant::now(), text.clone())));
            }
            _ => {}
        }
    }

    pub(super) fn disconnected_for(&self) -> Option<Duration> {
        self.with(|state| state.lost.map(|lost| lost.elapsed()))
    }

    /// Returns the server's last error, if it is recent. A request without permission gets no other answer.
    pub(super) fn recent_server_error(&self) -> Option<String> {
        self.with(|state| match &state.refused {
            Some((at, text)) if at.elapsed() < REFUSAL_COUNTS => Some(text.clone()),
            _ => None,
        })
    }

    pub(super) fn times_connected(&self) -> watch::Receiver<u64> {
        self.times_connected.subscribe()
    }

    fn with<T>(&self, change: impl FnOnce(&mut NatsConnectionState) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
