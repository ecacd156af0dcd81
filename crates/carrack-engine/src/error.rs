//! Why a session ended before its time.

use std::io;

use carrack_machine::PoolError;
use carrack_transport::{TlsError, TransportError};
use carrack_wire::message::{MessageError, Refuse};
use carrack_wire::{LedgerError, PreambleError, TableError};

use crate::settings::Role;

/// Why a transfer ended before everything was tried. What concerns single entries is reported as events instead.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The user interrupted it, here or at the other end.
    #[error("interrupted")]
    Interrupted,
    /// It can't begin: nothing was touched.
    #[error("{message}")]
    Refused {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The other end closed the control channel before it said anything.
    #[error("the other end said nothing")]
    PeerSilent,
    /// The other end printed something, but no carrack answered.
    #[error("no carrack answered at the other end; it printed: {0}")]
    NotCarrack(String),
    /// No common version.
    #[error("{0}")]
    Version(#[source] PreambleError),
    /// The other end vanished.
    #[error("the connection to the other end was cut")]
    PeerGone,
    /// The other end said nothing for too long.
    #[error("the other end has been silent for {0} s")]
    PeerStalled(u64),
    /// The two ends of the control channel don't trust each other.
    #[error("{0}")]
    Tls(TlsError),
    /// The other end is there, and nothing has moved for too long.
    #[error("nothing has moved for {0} s")]
    Idle(u64),
    /// The other end gave up and said why.
    #[error("the other end gave up: {message}")]
    PeerAborted {
        /// Its words.
        message: String,
        /// Its hint.
        hint: Option<String>,
    },
    /// A data connection broke.
    #[error("{0}")]
    Transport(#[from] TransportError),
    /// The other end broke a rule of the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The destination is full.
    #[error("{path}: {detail}")]
    NoSpace {
        /// What was being written, escaped for people.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// Something failed on this host that has nothing to do with a single entry.
    #[error("{what}: {error}")]
    Local {
        /// What was tried.
        what: &'static str,
        /// The system's words.
        error: io::Error,
    },
    /// Of two far ends, what went wrong with one of them before it had agreed to anything.
    #[error("the {}: {error}", if *role == Role::Source { "source" } else { "sink" })]
    At {
        /// Which.
        role: Role,
        /// What.
        error: Box<SessionError>,
    },
    /// This lane ended because another one of the session did.
    #[error("another lane of the session failed")]
    OtherLane,
    /// A bug.
    #[error("a thread of carrack failed; this is a bug")]
    Internal,
}

impl SessionError {
    pub(crate) fn local(what: &'static str) -> impl FnOnce(io::Error) -> SessionError {
        move |error| SessionError::Local { what, error }
    }

    /// A session that can't begin, with a hint, which may be empty.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> SessionError {
        SessionError::Refused { message: message.into(), hint: Some(hint.into()).filter(|h| !h.is_empty()) }
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            SessionError::Refused { hint, .. } | SessionError::PeerAborted { hint, .. } => hint.clone(),
            SessionError::At { error, .. } => error.hint(),
            SessionError::NotCarrack(_) => {
                Some("install carrack on the other host, or name it with --remote-carrack PATH".into())
            }
            SessionError::Version(_) => Some("install the same version of carrack on both hosts".into()),
            SessionError::NoSpace { .. } => {
                Some("make room at the destination and run the same command again".into())
            }
            SessionError::PeerGone
            | SessionError::PeerStalled(_)
            | SessionError::Transport(
                TransportError::Io(_) | TransportError::Truncated | TransportError::ClosedEarly,
            ) => Some("run the same command again; files that are complete stay".into()),
            _ => None,
        }
    }

    /// How far it is from the cause: 0 for what failed by itself, more for what is known to follow from something else.
    pub(crate) fn distance_from_cause(&self) -> u32 {
        match self {
            SessionError::PeerAborted { .. } => 1,
            SessionError::PeerGone => 2,
            SessionError::OtherLane => 3,
            _ => 0,
        }
    }

    /// Whether the user ended it.
    pub fn is_interrupted(&self) -> bool {
        match self {
            SessionError::At { error, .. } => error.is_interrupted(),
            error => matches!(error, SessionError::Interrupted),
        }
    }

    /// Whether the other end was gone before it said anything, so that the exit status of ssh tells more.
    pub fn is_peer_silent(&self) -> bool {
        matches!(self, SessionError::PeerSilent)
    }

    /// Whether the other end broke the protocol: it may be hostile.
    pub fn is_protocol_violation(&self) -> bool {
        use TransportError::{ControlOnData, Frame, NoCredit};
        matches!(
            self,
            SessionError::Protocol(_) | SessionError::Transport(Frame(_) | NoCredit | ControlOnData)
        )
    }

    /// What the other end is told.
    pub(crate) fn to_message(&self) -> Refuse {
        Refuse {
            message: self.to_string(),
            hint: self.hint().unwrap_or_default(),
            reason: u32::from(self.is_interrupted()),
        }
    }

    /// What the other end told, as an end of a session that ran.
    pub(crate) fn from_abort(message: Refuse) -> SessionError {
        match message.reason {
            1 => SessionError::Interrupted,
            _ => SessionError::PeerAborted {
                message: message.message,
                hint: Some(message.hint).filter(|hint| !hint.is_empty()),
            },
        }
    }

    /// What the other end told, instead of beginning.
    pub(crate) fn from_refusal(message: Refuse) -> SessionError {
        match message.reason {
            1 => SessionError::Interrupted,
            _ => SessionError::refused(message.message, message.hint),
        }
    }
}

impl From<LedgerError> for SessionError {
    fn from(error: LedgerError) -> Self {
        SessionError::Protocol(error.to_string())
    }
}

impl From<TableError> for SessionError {
    fn from(error: TableError) -> Self {
        SessionError::Protocol(error.to_string())
    }
}

impl From<MessageError> for SessionError {
    fn from(error: MessageError) -> Self {
        SessionError::Protocol(error.to_string())
    }
}

impl From<PoolError> for SessionError {
    fn from(error: PoolError) -> Self {
        SessionError::refused(error.to_string(), "choose another --buffer or --object-size")
    }
}
