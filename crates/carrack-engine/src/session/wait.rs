//! Waiting for something at this end while the other end waits for this one: the user is told why, and the other end that this
//! one lives.

use std::time::{Duration, Instant};

use carrack_model::{Event, Notice};
use carrack_transport::Link;
use carrack_wire::message::{Control, Heartbeat};

use super::handshake::say;
use crate::abort::Abort;
use crate::error::SessionError;
use crate::report::{Observer, deliver};

/// One pause: short against what the user notices.
const PAUSE: Duration = Duration::from_millis(50);

/// How often the other end hears of this one.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(500);

/// Whom to tell while this end waits.
pub(crate) struct Wait<'a> {
    /// The way to the other end, if that is another process.
    pub(super) link: Option<&'a mut Link>,
    /// The one who watches, if the user started this end.
    pub(super) observer: Option<&'a dyn Observer>,
    pub(super) abort: &'a Abort,
    /// When the other end heard of this one last.
    pub(super) said: Option<Instant>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(
        link: Option<&'a mut Link>,
        observer: Option<&'a dyn Observer>,
        abort: &'a Abort,
    ) -> Wait<'a> {
        Wait { link, observer, abort, said: None }
    }

    /// Waits a moment. The first time the user is told for what.
    pub(super) fn pause(&mut self, reason: &str) -> Result<(), SessionError> {
        let is_first = self.said.is_none();
        let mut messages = Vec::new();
        if is_first {
            let event = Event::Notice(Notice::Text(reason.to_owned()));
            deliver(event, self.observer, |message| messages.push(message));
        }
        if self.said.is_none_or(|said| said.elapsed() >= HEARTBEAT_EVERY) {
            self.said = Some(Instant::now());
            messages.push(Control::Heartbeat(Heartbeat {}));
        }
        if let Some(link) = &mut self.link {
            messages.into_iter().try_for_each(|message| say(link, message))?;
        }
        if self.abort.wait(PAUSE) { Err(self.abort.error()) } else { Ok(()) }
    }
}
