//! What goes wrong between a process and NATS, and what to do about it.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};

/// Why something could not be done with NATS.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No server lets us in.
    #[error("no NATS server of {urls} can be used: {reason}")]
    Connect {
        /// The addresses that were tried.
        urls: String,
        /// What came of it.
        reason: String,
        /// What to look at.
        hint: &'static str,
    },
    /// A file with credentials or certificates can't be used.
    #[error("{path}: {reason}")]
    Material {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// A name can't be a part of subjects.
    #[error("{0:?} can't be a name on NATS: letters, digits, '-' and '_' can, up to 64")]
    BadName(String),
    /// The server is too old.
    #[error("the NATS server {name} is version {version}, and a fleet needs 2.11 or newer")]
    Old {
        /// As the server calls itself.
        name: String,
        /// Its version; what is known of it.
        version: String,
    },
    /// There is no JetStream where it was looked for.
    #[error("{place} has no JetStream for this account: {reason}")]
    NoJetStream {
        /// The server, or the domain.
        place: String,
        /// What the server says.
        reason: String,
    },
    /// A bucket or a stream is not there.
    #[error("{0} is not there")]
    Missing(String),
    /// A bucket or a stream is there, but none of ours, or of another version.
    #[error("{name} can't be used: {reason}")]
    Foreign {
        /// Which.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// NATS says no; trying again will not help.
    #[error("{what}: NATS refuses it: {reason}")]
    Refused {
        /// What was tried.
        what: String,
        /// The server's words.
        reason: String,
    },
    /// NATS does not answer. The same may work later.
    #[error("{what}: no answer from NATS ({reason})")]
    Away {
        /// What was tried.
        what: String,
        /// How it showed.
        reason: String,
    },
    /// A record can't be used.
    #[error("{place} can't be read: {reason}")]
    Unreadable {
        /// The bucket or stream, and the key.
        place: String,
        /// Why.
        reason: String,
    },
    /// Something is too large for one message.
    #[error("{what} has {bytes} bytes, and {max} fit")]
    TooLarge {
        /// What.
        what: String,
        /// Its size.
        bytes: usize,
        /// What fits.
        max: usize,
    },
    /// What was to be made is there already.
    #[error("{0} is there already")]
    Exists(String),
    /// Somebody else has changed it meanwhile.
    #[error("{0} was changed by somebody else at the same time")]
    Conflict(String),
}

impl BusError {
    /// What a user can do about it.
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

    /// Whether the same may work later, with nobody doing anything about it.
    pub fn may_pass(&self) -> bool {
        matches!(self, BusError::Away { .. } | BusError::Conflict(_))
    }

    pub(crate) fn of_publish(what: &str, error: &PublishError) -> BusError {
        match error.kind() {
            PublishErrorKind::WrongLastSequence | PublishErrorKind::WrongLastMessageId => {
                BusError::Conflict(what.to_owned())
            }
            PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending => {
                BusError::away(what, error)
            }
            // Nobody listens: the stream was never made, or its servers are away; which one can't be told apart.
            PublishErrorKind::StreamNotFound => BusError::away(what, error),
            _ => BusError::refused(what, error),
        }
    }

    pub(crate) fn away(what: &str, reason: &dyn std::fmt::Display) -> BusError {
        BusError::Away { what: what.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn refused(what: &str, reason: &dyn std::fmt::Display) -> BusError {
        BusError::Refused { what: what.to_owned(), reason: reason.to_string() }
    }
}
