//! Errors between a process and NATS, with hints.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};

/// An error of NATS.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No server accepts the client.
    #[error("no NATS server of {urls} can be used: {reason}")]
    Connect {
        /// The tried addresses.
        urls: String,
        /// The reason.
        reason: String,
        /// A hint.
        hint: &'static str,
    },
    /// A file with credentials or certificates is invalid.
    #[error("{path}: {reason}")]
    Material {
        /// Its path.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A name can't be a part of subjects.
    #[error("{0:?} can't be a name on NATS: letters, digits, '-' and '_' can, up to 64")]
    BadName(String),
    /// The server is too old.
    #[error("the NATS server {name} is version {version}, and a fleet needs 2.11 or newer")]
    Old {
        /// The server's name.
        name: String,
        /// Its version, as far as known.
        version: String,
    },
    /// There is no JetStream in this place.
    #[error("{place} has no JetStream for this account: {reason}")]
    NoJetStream {
        /// The server, or the domain.
        place: String,
        /// The server's reason.
        reason: String,
    },
    /// A bucket or a stream is missing.
    #[error("{0} is not there")]
    Missing(String),
    /// An existing bucket or stream is foreign, or of another version.
    #[error("{name} can't be used: {reason}")]
    Foreign {
        /// Its name.
        name: String,
        /// The difference.
        reason: String,
    },
    /// NATS refuses; a retry will not help.
    #[error("{what}: NATS refuses it: {reason}")]
    Refused {
        /// The attempted action.
        what: String,
        /// The server's words.
        reason: String,
    },
    /// NATS does not answer. A retry may succeed later.
    #[error("{what}: no answer from NATS ({reason})")]
    Away {
        /// The attempted action.
        what: String,
        /// The observed error.
        reason: String,
    },
    /// A record is unreadable.
    #[error("{place} can't be read: {reason}")]
    Unreadable {
        /// The bucket or stream, and the key.
        place: String,
        /// The reason.
        reason: String,
    },
    /// Data are too large for one message.
    #[error("{what} has {bytes} bytes, and {max} fit")]
    TooLarge {
        /// The data.
        what: String,
        /// Their size.
        bytes: usize,
        /// The size limit.
        max: usize,
    },
    /// The key to create exists already.
    #[error("{0} is there already")]
    Exists(String),
    /// Another process has changed the key meanwhile.
    #[error("{0} was changed by somebody else at the same time")]
    Conflict(String),
}

impl BusError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            BusError::Connect { hint, .. } => (*hint).to_owned(),
            BusError::Old { .. } => "install nats-server 2.11 or newer: `go install \
                 github.com/nats-io/nats-server/v2@v2.15.2`; distributions' packages are often older"
                .to_owned(),
            BusError::NoJetStream { .. } => {
                "give the server a `jetstream { … }` block (docs/examples/nats has samples), and the account \
                 `jetstream: enabled`; name the domain if it has one"
                    .to_owned()
            }
            BusError::Missing(_) => "start a manager: it makes what the fleet needs".to_owned(),
            BusError::Foreign { .. } => {
                "give this fleet another prefix, or remove what is there: movers find \
                 what was moved in their journals"
                    .to_owned()
            }
            BusError::Refused { .. } => {
                "docs/formats/fleet.md says which subjects each role needs".to_owned()
            }
            BusError::Unreadable { .. } => "a newer carrack may have written it: update this one".to_owned(),
            _ => return None,
        })
    }

    /// Returns true if a retry may succeed later without any other action.
    pub fn is_transient(&self) -> bool {
        matches!(self, BusError::Away { .. } | BusError::Conflict(_))
    }

    pub(crate) fn of_publish(what: &str, error: &PublishError) -> BusError {
        match error.kind() {
            PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => {
                BusError::Conflict(what.to_owned())
            }
            PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending => {
                BusError::no_answer(what, error)
            }
            // No responders: the stream was never created, or its servers are away; these cases can't be
            // distinguished.
            PublishErrorKind::StreamNotFound => BusError::no_answer(what, error),
            _ => BusError::refused(what, error),
        }
    }

    pub(crate) fn no_answer(what: &str, reason: &dyn std::fmt::Display) -> BusError {
        BusError::Away { what: what.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn refused(what: &str, reason: &dyn std::fmt::Display) -> BusError {
        BusError::Refused { what: what.to_owned(), reason: reason.to_string() }
    }
}
