//! Why a session ended before its time.

use std::io;
use std::time::Duration;

use carrack_journal::JournalError;
use carrack_machine::{PoolError, SpillError};
use carrack_transport::{TlsError, TransportError};
use carrack_wire::message::{MessageError, Refuse};
use carrack_wire::{LedgerError, PreambleError, TableError};

use crate::role::Role;

/// What was tried when the system gives no thread.
pub(crate) const STARTING_A_THREAD: &str = "starting a thread";

/// Why a transfer ended before everything was tried. What concerns single entries is reported as events instead.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The user interrupted it, here or at the other end.
    #[error("interrupted")]
    Interrupted,
    /// The process at this end has to go, as a daemon that is being stopped; the user wants the transfer nevertheless.
    #[error("it was told to end the session")]
    Dismissed,
    /// It can't begin: nothing was touched.
    #[error("{message}")]
    Refused {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// It can't begin now: the other end has no room, or is about to end. Nothing was touched.
    #[error("{message}")]
    Later {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// When to come again, as the other end would like it.
        after: Option<Duration>,
    },
    /// There was no way to the other end, so that no session began.
    #[error("{message}")]
    Unreachable {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// Whether it may go better another time: nobody listens yet, say.
        again: Again,
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
    /// The other end is there, and what was sent neither arrives nor is answered.
    #[error("nothing has moved on the data connections for {0} s")]
    Stalled(u64),
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
        /// Whether its storage is full.
        is_full: bool,
    },
    /// The other end gave up for a reason that may pass: the network, as it saw it, or that it has to go.
    #[error("the other end gave up: {message}")]
    PeerLeft {
        /// Its words.
        message: String,
        /// Its hint.
        hint: Option<String>,
        /// Whether nothing moved on the data connections, as it saw it.
        is_of_data: bool,
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
    /// What was written could not be made durable: what the journal does not have yet may be lost.
    #[error("{path}: {detail}")]
    NotDurable {
        /// What was written, escaped for people.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// The journal can't be used.
    #[error("{path}: {error}")]
    Journal {
        /// Where it lies, escaped for people.
        path: String,
        /// What is wrong.
        #[source]
        error: JournalError,
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
    /// What broke a session whose objects went over a fabric, and may pass.
    #[error("over {provider}: {error}")]
    Over {
        /// As libfabric names it.
        provider: String,
        /// Whether the user wants this provider and nothing else.
        is_forced: bool,
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

/// Whether another session may do better than one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would be the same again.
    Never,
    /// If this run has met the other end before. Else its name may be wrong, or who is there is not let in.
    OnceMet,
    /// Likewise, but nobody may be there because a daemon is being started again: a run that begins tries for a few seconds.
    Soon,
    /// Yes.
    Always,
}

impl SessionError {
    pub(crate) fn local(what: &'static str) -> impl FnOnce(io::Error) -> SessionError {
        move |error| SessionError::Local { what, error }
    }

    /// For `map_err`: of the journal that people know as `path`.
    pub(crate) fn journal(path: &str) -> impl FnOnce(JournalError) -> SessionError {
        move |error| SessionError::Journal { path: path.into(), error }
    }

    /// A session that can't begin, with a hint, which may be empty.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> SessionError {
        SessionError::Refused { message: message.into(), hint: Some(hint.into()).filter(|h| !h.is_empty()) }
    }

    /// A session that can't begin now, with a hint, which may be empty, and when to come again if that is known.
    pub fn later(
        message: impl Into<String>,
        hint: impl Into<String>,
        after: Option<Duration>,
    ) -> SessionError {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        SessionError::Later { message: message.into(), hint, after }
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            SessionError::Refused { hint, .. }
            | SessionError::Later { hint, .. }
            | SessionError::Unreachable { hint, .. }
            | SessionError::PeerAborted { hint, .. }
            | SessionError::PeerLeft { hint, .. } => hint.clone(),
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.hint(),
            SessionError::NotCarrack(_) => {
                Some("install carrack on the other host, or name it with --remote-carrack PATH".into())
            }
            SessionError::Version(_) => Some("install the same version of carrack on both hosts".into()),
            SessionError::NoSpace { .. } => {
                Some("make room at the destination and run the same command again".into())
            }
            SessionError::NotDurable { .. } => {
                Some("look at the storage's health, then run the same command again".into())
            }
            SessionError::Journal { error, .. } => error.hint().map(Into::into),
            SessionError::Local { what, .. } if *what == STARTING_A_THREAD => {
                let limits = "the processes (ulimit -u, pids.max of a container) or the address space (ulimit -v) are limited";
                Some(format!("{limits}: ask for less with --io-threads and --streams, or raise the limit"))
            }
            SessionError::PeerGone
            | SessionError::PeerStalled(_)
            | SessionError::Stalled(_)
            | SessionError::Transport(
                TransportError::Io(_) | TransportError::Truncated | TransportError::ClosedEarly,
            ) => Some("run the same command again; files that are complete stay".into()),
            _ => None,
        }
    }

    /// How far it is from the cause: 0 for what failed by itself, more for what is known to follow from something else.
    pub(crate) fn distance_from_cause(&self) -> u32 {
        match self {
            SessionError::PeerAborted { .. } | SessionError::PeerLeft { .. } => 1,
            SessionError::PeerGone => 2,
            SessionError::OtherLane => 3,
            _ => 0,
        }
    }

    /// Whether the connection to the other end is lost, which may be gone and come again.
    pub(crate) fn is_connection_lost(&self) -> bool {
        use TransportError::{ClosedEarly, Io, Truncated};
        matches!(
            self,
            SessionError::PeerGone
                | SessionError::PeerStalled(_)
                | SessionError::Transport(Io(_) | Truncated | ClosedEarly)
        )
    }

    /// Whether the user ended it.
    pub fn is_interrupted(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_interrupted(),
            error => matches!(error, SessionError::Interrupted),
        }
    }

    /// Whether another session may do better: the network broke, or the other end was not there, or not ready. Not so with
    /// what would be the same again, such as a full disk, with peers that don't trust each other, or break the protocol.
    pub fn again(&self) -> Again {
        use TransportError::{ClosedEarly, Io, Seal, Truncated};
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.again(),
            SessionError::Unreachable { again, .. } => *again,
            // ssh, whose own end says why.
            SessionError::PeerSilent => Again::OnceMet,
            SessionError::Later { .. }
            | SessionError::PeerGone
            | SessionError::PeerStalled(_)
            | SessionError::Stalled(_)
            | SessionError::PeerLeft { .. }
            | SessionError::Transport(Io(_) | Truncated | ClosedEarly | Seal(_)) => Again::Always,
            _ => Again::Never,
        }
    }

    /// Whether another session of a run that has met the other end may do better.
    pub fn may_pass(&self) -> bool {
        self.again() != Again::Never
    }

    /// Whether the other end is there and has no room or no time now, and nothing was begun.
    pub fn is_not_now(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_not_now(),
            SessionError::Unreachable { again, .. } => *again == Again::Always,
            error => matches!(error, SessionError::Later { .. }),
        }
    }

    /// Whether the other end has no room now, and when to come again if it has said so.
    pub(crate) fn later_than(&self) -> Option<Option<Duration>> {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.later_than(),
            SessionError::Later { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// Whether nothing moved on the data connections, while the two ends could speak with each other.
    pub(crate) fn is_of_data(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_of_data(),
            SessionError::PeerLeft { is_of_data, .. } => *is_of_data,
            SessionError::Transport(TransportError::Io(error)) => error.kind() == io::ErrorKind::TimedOut,
            error => matches!(error, SessionError::Stalled(_)),
        }
    }

    /// Whether a data connection broke: by itself, or because the other end is gone, which may come to be known later.
    pub(crate) fn has_broken_data(&self) -> bool {
        use TransportError::{ClosedEarly, Io, Truncated};
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.has_broken_data(),
            error => matches!(error, SessionError::Transport(Io(_) | Truncated | ClosedEarly)),
        }
    }

    /// Whether the other end was gone before it said anything, so that the exit status of ssh tells more.
    pub fn is_peer_silent(&self) -> bool {
        matches!(self, SessionError::PeerSilent)
    }

    /// Whether another session shall leave fabrics alone: this one went over a fabric that need not be, and broke.
    pub fn speaks_for_tcp(&self) -> bool {
        matches!(self, SessionError::Over { is_forced: false, .. })
    }

    /// Whether the destination is full, or a quota is used up.
    pub fn is_full(&self) -> bool {
        match self {
            SessionError::NoSpace { .. } | SessionError::PeerAborted { is_full: true, .. } => true,
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_full(),
            _ => false,
        }
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
            reason: self.reason() as u32,
            retry_after_ms: self.later_than().flatten().map_or(0, |after| after.as_millis() as u32),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            SessionError::Dismissed | SessionError::Later { .. } => Reason::Later,
            error if error.is_interrupted() => Reason::Interrupted,
            error if error.is_of_data() => Reason::Data,
            error if error.may_pass() => Reason::Network,
            error if error.is_full() => Reason::Full,
            _ => Reason::Final,
        }
    }

    /// What the other end told, as an end of a session that ran.
    pub(crate) fn from_abort(message: Refuse) -> SessionError {
        let Refuse { message, hint, reason, .. } = message;
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        match Reason::of(reason) {
            Reason::Interrupted => SessionError::Interrupted,
            Reason::Network | Reason::Later => SessionError::PeerLeft { message, hint, is_of_data: false },
            Reason::Data => SessionError::PeerLeft { message, hint, is_of_data: true },
            Reason::Final => SessionError::PeerAborted { message, hint, is_full: false },
            Reason::Full => SessionError::PeerAborted { message, hint, is_full: true },
        }
    }

    /// What the other end told, instead of beginning.
    pub(crate) fn from_refusal(message: Refuse) -> SessionError {
        match Reason::of(message.reason) {
            Reason::Final => SessionError::refused(message.message, message.hint),
            Reason::Later => {
                let after = Some(message.retry_after_ms).filter(|&ms| ms > 0);
                let after = after.map(|ms| Duration::from_millis(ms.into()));
                SessionError::later(message.message, message.hint, after)
            }
            _ => SessionError::from_abort(message),
        }
    }
}

/// What an end says of why it goes (`Refuse.reason`).
#[derive(Clone, Copy)]
enum Reason {
    /// It would be the same again.
    Final = 0,
    /// The user wants it.
    Interrupted = 1,
    /// The network broke.
    Network = 2,
    /// Not now.
    Later = 3,
    /// Nothing moved on the data connections.
    Data = 4,
    /// Its storage is full; to older ones as final as anything else.
    Full = 5,
}

impl Reason {
    /// One from the future would be the same again.
    fn of(code: u32) -> Reason {
        match code {
            1 => Reason::Interrupted,
            2 => Reason::Network,
            3 => Reason::Later,
            4 => Reason::Data,
            5 => Reason::Full,
            _ => Reason::Final,
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

impl From<SpillError> for SessionError {
    fn from(error: SpillError) -> Self {
        let hint = "name a directory on flash with so much space, on a file system with O_TMPFILE and O_DIRECT (ext4, XFS): \
                    --spill DIR:SIZE";
        SessionError::refused(error.to_string(), hint)
    }
}

impl From<PoolError> for SessionError {
    fn from(error: PoolError) -> Self {
        SessionError::refused(error.to_string(), "choose another --buffer or --object-size")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_so_and_heard_so() {
        let broken = || SessionError::Transport(TransportError::Truncated);
        for error in [broken(), SessionError::PeerGone, SessionError::Stalled(1), SessionError::Dismissed] {
            let told = SessionError::from_abort(error.to_message());
            assert!(matches!(told, SessionError::PeerLeft { .. }) && told.may_pass(), "{error:?}: {told:?}");
        }
        let at = SessionError::At { role: Role::Sink, error: Box::new(broken()) };
        assert!(at.again() == Again::Always && at.has_broken_data() && !at.is_of_data());
        assert!(SessionError::from_abort(SessionError::Stalled(1).to_message()).is_of_data());
        assert!(!SessionError::from_abort(SessionError::PeerGone.to_message()).is_of_data());
        let full = SessionError::NoSpace { path: "x".into(), detail: "full".into() };
        assert!(full.is_full() && SessionError::from_abort(full.to_message()).is_full());
        assert!(!SessionError::from_abort(SessionError::Internal.to_message()).is_full());
        let wrong = SessionError::Protocol("x".into());
        for error in [full, wrong, SessionError::Internal, SessionError::refused("no", "")] {
            let told = SessionError::from_abort(error.to_message());
            assert!(!error.may_pass() && !told.may_pass(), "{error:?}: {told:?}");
        }
        let interrupted = SessionError::from_abort(SessionError::Interrupted.to_message());
        assert!(interrupted.is_interrupted() && !interrupted.may_pass());
        for after in [None, Some(Duration::from_millis(1_500))] {
            let later = SessionError::from_refusal(SessionError::later("full", "wait", after).to_message());
            assert!(later.may_pass() && later.hint().as_deref() == Some("wait"));
            assert_eq!(later.later_than(), Some(after));
        }
    }
}
