//! Whether what lies on NATS is still what it was: a stream that was removed and made again has the same name, and nothing in it
//! of what one remembers.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;

use super::Bus;
use crate::error::BusError;

/// How often one looks: seven questions.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A stream that is missing, or another one, is so a moment later too: servers that come up may not know all of theirs at once.
const SURE_AFTER: Duration = Duration::from_secs(1);

/// When each of the fleet's streams was made; `None` for one that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made(Vec<Option<i128>>);

impl Bus {
    /// # Errors
    /// If NATS does not answer, or refuses.
    pub(crate) async fn made_at(&self) -> Result<Made, BusError> {
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
                    _ => return Err(self.explain(BusError::away(&name, &error))),
                },
            });
        }
        Ok(Made(made))
    }

    /// Waits until something else lies on NATS than what was made then: looks at once after each new connection, and now and then.
    pub(crate) async fn emptied(&self, then: Made) {
        let mut connected = self.times_connected();
        connected.borrow_and_update();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = connected.changed() => {}
            }
            if self.is_other(&then).await {
                tokio::time::sleep(SURE_AFTER).await;
                if self.is_other(&then).await {
                    return;
                }
            }
        }
    }

    /// No answer says nothing.
    async fn is_other(&self, then: &Made) -> bool {
        self.made_at().await.is_ok_and(|now| now != *then)
    }
}
