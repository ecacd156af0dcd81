//! Waiting at this end while the other end waits for it: the user learns the reason, and the other end gets
//! heartbeats.

use std::time::{Duration, Instant};

use carrack_model::{TransferEvent, UserNotice};
use carrack_transport::SessionControlLink;
use carrack_wire::message::{ControlMessage, KeepaliveMessage};

use super::handshake::send_message;
use crate::abort::AbortHandle;
use crate::error::SessionError;
use crate::event_delivery::{TransferObserver, deliver};

/// One pause: too short for the user to notice.
const PAUSE: Duration = Duration::from_millis(50);

/// The interval of heartbeats to the other end.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(500);

/// The recipients of messages while this end waits.
pub(crate) struct WaitHeartbeatRecipients<'a> {
    /// The link to the other end, if that is another process.
    pub(super) link: Option<&'a mut SessionControlLink>,
    /// The observer, if the user started this end.
    pub(super) observer: Option<&'a dyn TransferObserver>,
    pub(super) abort: &'a AbortHandle,
    /// The time of the last heartbeat.
    pub(super) said: Option<Instant>,
}

impl<'a> WaitHeartbeatRecipients<'a> {
    pub(super) fn new(
        link: Option<&'a mut SessionControlLink>,
        observer: Option<&'a dyn TransferObserver>,
        abort: &'a AbortHandle,
    ) -> WaitHeartbeatRecipients<'a> {
        WaitHeartbeatRecipients { link, observer, abort, said: None }
    }

    /// Waits a moment. The first call reports the reason to the user.
    pub(super) fn pause(&mut self, reason: &str) -> Result<(), SessionError> {
        let is_first = self.said.is_none();
        let mut messages = Vec::new();
        if is_first {
            let event = TransferEvent::Notice(UserNotice::Text(reason.to_owned()));
            deliver(event, self.observer, |message| messages.push(message));
        }
        if self.said.is_none_or(|said| said.elapsed() >= HEARTBEAT_EVERY) {
            self.said = Some(Instant::now());
            messages.push(ControlMessage::Heartbeat(KeepaliveMessage {}));
        }
        if let Some(link) = &mut self.link {
            messages.into_iter().try_for_each(|message| send_message(link, message))?;
        }
        if self.abort.wait(PAUSE) { Err(self.abort.error()) } else { Ok(()) }
    }
}
