//! Detects that the streams on NATS were replaced: a stream that was removed and created again has the same
//! name, and none of its earlier messages.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;

use super::NatsBus;
use crate::error::BusError;

/// Interval of checks, which take seven requests each.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Time after which a changed stream is checked again: servers that are starting may not know all of their
/// streams yet.
const SURE_AFTER: Duration = Duration::from_secs(1);

/// Creation time of each of the fleet's streams; `None` for a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamCreationTimes(Vec<Option<i128>>);

impl NatsBus {
    /// Returns the creation times.
    ///
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub(crate) async fn stream_creation_times(&self) -> Result<StreamCreationTimes, BusError> {
        let mut made = Vec::new();
        for name in self.streams() {
            made.push(match self.context().get_stream(&name).await {
                Ok(stream) => Some(stream.cached_info().created.unix_timestamp_nanos()),
                Err(error) => match error.kind() {
                    GetStreamErrorKind::JetStream(refusal)
                        if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                    {
                        None
                    }
                    _ => return Err(self.no_answer_error(&name, &error)),
                },
            });
        }
        Ok(StreamCreationTimes(made))
    }

    /// Waits until streams differ from those of `then`; checks at once after each new connection, and
    /// periodically.
    pub(crate) async fn wait_until_streams_recreated(&self, then: StreamCreationTimes) {
        let mut connected = self.times_connected();
        connected.borrow_and_update();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = connected.changed() => {}
            }
            if self.have_streams_changed(&then).await {
                tokio::time::sleep(SURE_AFTER).await;
                if self.have_streams_changed(&then).await {
                    return;
                }
            }
        }
    }

    /// Returns true if streams differ; false without an answer.
    async fn have_streams_changed(&self, then: &StreamCreationTimes) -> bool {
        self.stream_creation_times().await.is_ok_and(|now| now != *then)
    }
}
