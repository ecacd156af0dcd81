//! The error that ends a session.

use std::io;
use std::time::Duration;

use carrack_journal::JournalError;
use carrack_machine::{PoolError, SpillLogCreationError};
use carrack_model::text_without_errno;
use carrack_transport::{TlsHandshakeError, TransportError};
use carrack_wire::message::{MessageError, RefuseMessage};
use carrack_wire::{ArrivalLedgerError, EntryTableDecodeError, PreambleError};

use crate::role::SessionRole;

/// The operation in the error when the system refuses a thread.
pub(crate) const STARTING_A_THREAD: &str = "starting a thread";

/// The reason why a transfer ended before everything was tried. Failures of single entries are events
/// instead.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The user interrupted it, at this end or at the other.
    #[error("interrupted")]
    Interrupted,
    /// The process at this end must end, as a daemon that is stopped; the user still wants the transfer.
    #[error("it was told to end the session")]
    Dismissed,
    /// It can't begin: nothing was changed.
    #[error("{message}")]
    Refused {
        /// The problem.
        message: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// It can't begin now: the other end has no room, or is about to end. Nothing was changed.
    #[error("{message}")]
    Later {
        /// The problem.
        message: String,
        /// Advice for the user.
        hint: Option<String>,
        /// The wait that the other end suggests.
        after: Option<Duration>,
    },
    /// The other end could not be reached, so that no session began.
    #[error("{message}")]
    Unreachable {
        /// The problem.
        message: String,
        /// Advice for the user.
        hint: Option<String>,
        /// The prospect of another try, if no process listens yet for example.
        again: RetryChance,
    },
    /// The other end closed the control channel before its first message.
    #[error("the other end said nothing")]
    PeerSilent,
    /// The other end printed something, but no carrack answered.
    #[error("no carrack answered at the other end; it printed: {0}")]
    NotCarrack(String),
    /// The ends have no common version.
    #[error("{0}")]
    Version(#[source] PreambleError),
    /// The connection to the other end was cut.
    #[error("the connection to the other end was cut")]
    PeerGone,
    /// The other end was silent for too long.
    #[error("the other end has been silent for {0} s")]
    PeerStalled(u64),
    /// The process at this end was stopped while other sessions carry the transfer.
    #[error("it was stopped for {0} s, and others may have taken over its files: it writes nothing more")]
    Superseded(u64),
    /// The other end is alive, but objects neither arrive nor are acked.
    #[error("nothing has moved on the data connections for {0} s")]
    Stalled(u64),
    /// The two ends of the control channel don't trust each other.
    #[error("{0}")]
    Tls(TlsHandshakeError),
    /// The other end is alive, but nothing has moved for too long.
    #[error("nothing has moved for {0} s")]
    Idle(u64),
    /// The other end gave up and sent its reason.
    #[error("the other end gave up: {message}")]
    PeerAborted {
        /// Its message.
        message: String,
        /// Its hint.
        hint: Option<String>,
        /// True if its storage is full.
        is_full: bool,
    },
    /// The other end gave up for a reason that may pass: a failed network, from its view, or the end of its
    /// process.
    #[error("the other end gave up: {message}")]
    PeerLeft {
        /// Its message.
        message: String,
        /// Its hint.
        hint: Option<String>,
        /// True if nothing moved on the data connections, from its view.
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
        /// The path of the entry, escaped for people.
        path: String,
        /// The system's message.
        detail: String,
    },
    /// Written data could not be made durable: data without a journal record may be lost.
    #[error("{path}: {detail}")]
    NotDurable {
        /// The path of the entry, escaped for people.
        path: String,
        /// The system's message.
        detail: String,
    },
    /// The destination's storage on another host failed, as after the eviction of its client: data without a
    /// journal record may be lost, and another session writes it anew.
    #[error("{message}")]
    StorageFault {
        /// The path and the system's message.
        message: String,
        /// True if the other end has reported it.
        is_peers: bool,
    },
    /// The journal can't be used.
    #[error("{path}: {error}")]
    Journal {
        /// Its path, escaped for people.
        path: String,
        /// The problem.
        #[source]
        error: JournalError,
    },
    /// An operation of this host failed that does not concern a single entry.
    #[error("{what}: {error}")]
    Local {
        /// The operation.
        what: &'static str,
        /// The system's message.
        error: io::Error,
    },
    /// The error of one of two far ends before it had agreed to anything.
    #[error("the {}: {error}", if *role == SessionRole::Source { "source" } else { "sink" })]
    At {
        /// The end.
        role: SessionRole,
        /// Its error.
        error: Box<SessionError>,
    },
    /// A passing error of a session whose objects went over a fabric.
    #[error("over {provider}: {error}")]
    Over {
        /// libfabric's name of the provider.
        provider: String,
        /// True if the user wants this provider and no other transport.
        is_forced: bool,
        /// The error.
        error: Box<SessionError>,
    },
    /// This lane ended because another lane of the session failed.
    #[error("another lane of the session failed")]
    OtherLane,
    /// A bug.
    #[error("a thread of carrack failed; this is a bug")]
    Internal,
}

/// The prospect of another session after a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryChance {
    /// It would fail in the same way.
    Never,
    /// It may succeed if this run has met the other end before. Otherwise its name may be wrong, or it
    /// refuses this user.
    OnceMet,
    /// As before, but a daemon may be restarting, so that no process listens: a new run tries for a few
    /// seconds.
    Soon,
    /// It may succeed.
    Always,
}

impl SessionError {
    pub(crate) fn local(what: &'static str) -> impl FnOnce(io::Error) -> SessionError {
        move |error| SessionError::Local { what, error }
    }

    /// For `map_err`: adds the journal's path for people.
    pub(crate) fn journal(path: &str) -> impl FnOnce(JournalError) -> SessionError {
        move |error| SessionError::Journal { path: path.into(), error }
    }

    /// Returns the error of a session that can't begin, with a hint, which may be empty.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> SessionError {
        let message = text_without_errno(&message.into());
        SessionError::Refused { message, hint: Some(hint.into()).filter(|h| !h.is_empty()) }
    }

    /// Returns the error of a session that can't begin now, with a hint, which may be empty, and the wait
    /// before the next try if it is known.
    pub fn later(
        message: impl Into<String>,
        hint: impl Into<String>,
        after: Option<Duration>,
    ) -> SessionError {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        SessionError::Later { message: message.into(), hint, after }
    }

    /// Returns advice for the user.
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
            SessionError::NotDurable { .. } | SessionError::StorageFault { .. } => {
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

    /// Returns the distance from the cause: 0 for an error that is a cause, more for the known consequences
    /// of another error.
    pub(crate) fn distance_from_cause(&self) -> u32 {
        match self {
            SessionError::PeerAborted { .. }
            | SessionError::PeerLeft { .. }
            | SessionError::StorageFault { is_peers: true, .. } => 1,
            SessionError::PeerGone => 2,
            SessionError::OtherLane => 3,
            _ => 0,
        }
    }

    /// Returns true if the connection to the other end is lost, which may be gone and start again.
    pub(crate) fn is_connection_lost(&self) -> bool {
        use TransportError::{ClosedEarly, Io, Truncated};
        matches!(
            self,
            SessionError::PeerGone
                | SessionError::PeerStalled(_)
                | SessionError::Transport(Io(_) | Truncated | ClosedEarly)
        )
    }

    /// Returns true if the user ended it.
    pub fn is_interrupted(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_interrupted(),
            error => matches!(error, SessionError::Interrupted),
        }
    }

    /// Returns the prospect of another session: good if the network broke, or the other end was not running,
    /// or not ready. Not so after an error that would repeat, such as a full disk, or with peers that don't
    /// trust each other, or break the protocol.
    pub fn retry_chance(&self) -> RetryChance {
        use TransportError::{ClosedEarly, Io, Seal, Truncated};
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.retry_chance(),
            SessionError::Unreachable { again, .. } => *again,
            // From ssh, which reports the reason itself.
            SessionError::PeerSilent | SessionError::StorageFault { .. } => RetryChance::OnceMet,
            SessionError::Later { .. }
            | SessionError::PeerGone
            | SessionError::PeerStalled(_)
            | SessionError::Superseded(_)
            | SessionError::Stalled(_)
            | SessionError::PeerLeft { .. }
            | SessionError::Transport(Io(_) | Truncated | ClosedEarly | Seal(_)) => RetryChance::Always,
            _ => RetryChance::Never,
        }
    }

    /// Returns true if another session of a run that has met the other end may succeed.
    pub fn is_retryable(&self) -> bool {
        self.retry_chance() != RetryChance::Never
    }

    /// Returns true if the other end runs and has no room or no time now, and nothing was begun.
    pub fn is_peer_busy(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_peer_busy(),
            SessionError::Unreachable { again, .. } => *again == RetryChance::Always,
            error => matches!(error, SessionError::Later { .. }),
        }
    }

    /// Returns the suggested wait if the other end has no room now; the inner value is `None` if it named
    /// none.
    pub(crate) fn retry_after(&self) -> Option<Option<Duration>> {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.retry_after(),
            SessionError::Later { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// Returns true if nothing moved on the data connections, while the two ends could exchange messages.
    pub(crate) fn is_data_stall(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_data_stall(),
            SessionError::PeerLeft { is_of_data, .. } => *is_of_data,
            SessionError::Transport(TransportError::Io(error)) => error.kind() == io::ErrorKind::TimedOut,
            error => matches!(error, SessionError::Stalled(_)),
        }
    }

    /// Returns true if a data connection broke: itself, or because the other end is gone, which may become
    /// known later.
    pub(crate) fn is_data_connection_lost(&self) -> bool {
        use TransportError::{ClosedEarly, Io, Truncated};
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => {
                error.is_data_connection_lost()
            }
            error => matches!(error, SessionError::Transport(Io(_) | Truncated | ClosedEarly)),
        }
    }

    /// Returns true if the other end was gone before its first message, so that the exit status of ssh tells
    /// more.
    pub fn is_peer_silent(&self) -> bool {
        matches!(self, SessionError::PeerSilent)
    }

    /// Returns true if another session should use TCP: this session broke over a fabric that the user did not
    /// insist on.
    pub fn should_retry_over_tcp(&self) -> bool {
        matches!(self, SessionError::Over { is_forced: false, .. })
    }

    /// Returns true if the destination is full, or a quota is used up.
    pub fn is_destination_full(&self) -> bool {
        match self {
            SessionError::NoSpace { .. } | SessionError::PeerAborted { is_full: true, .. } => true,
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_destination_full(),
            _ => false,
        }
    }

    /// Returns true if storage on another host failed in a way that may pass.
    pub fn is_storage_fault(&self) -> bool {
        match self {
            SessionError::At { error, .. } | SessionError::Over { error, .. } => error.is_storage_fault(),
            error => matches!(error, SessionError::StorageFault { .. }),
        }
    }

    /// Returns the error of a session whose data could not be made durable.
    pub(crate) fn not_durable(path: String, detail: String, may_pass: bool) -> SessionError {
        if may_pass {
            return SessionError::StorageFault { message: format!("{path}: {detail}"), is_peers: false };
        }
        SessionError::NotDurable { path, detail }
    }

    /// Returns true if the other end broke the protocol: it may be hostile.
    pub fn is_protocol_violation(&self) -> bool {
        use TransportError::{ControlOnData, Frame, NoCredit};
        matches!(
            self,
            SessionError::Protocol(_) | SessionError::Transport(Frame(_) | NoCredit | ControlOnData)
        )
    }

    /// Returns the message for the other end.
    pub(crate) fn to_message(&self) -> RefuseMessage {
        RefuseMessage {
            message: text_without_errno(self),
            hint: self.hint().unwrap_or_default(),
            reason: self.reason() as u32,
            retry_after_ms: self.retry_after().flatten().map_or(0, |after| after.as_millis() as u32),
        }
    }

    fn reason(&self) -> RefuseReason {
        match self {
            SessionError::Dismissed | SessionError::Later { .. } => RefuseReason::Later,
            error if error.is_interrupted() => RefuseReason::Interrupted,
            error if error.is_data_stall() => RefuseReason::Data,
            error if error.is_storage_fault() => RefuseReason::Storage,
            error if error.is_retryable() => RefuseReason::Network,
            error if error.is_destination_full() => RefuseReason::Full,
            _ => RefuseReason::Final,
        }
    }

    /// Returns the error for the other end's message in a running session.
    pub(crate) fn from_abort(message: RefuseMessage) -> SessionError {
        let RefuseMessage { message, hint, reason, .. } = message;
        let hint = Some(hint).filter(|hint| !hint.is_empty());
        match RefuseReason::of(reason) {
            RefuseReason::Interrupted => SessionError::Interrupted,
            RefuseReason::Network | RefuseReason::Later => {
                SessionError::PeerLeft { message, hint, is_of_data: false }
            }
            RefuseReason::Data => SessionError::PeerLeft { message, hint, is_of_data: true },
            RefuseReason::Final => SessionError::PeerAborted { message, hint, is_full: false },
            RefuseReason::Full => SessionError::PeerAborted { message, hint, is_full: true },
            RefuseReason::Storage => SessionError::StorageFault {
                message: format!("the other end gave up: {message}"),
                is_peers: true,
            },
        }
    }

    /// Returns the error for the other end's message in place of a session.
    pub(crate) fn from_refusal(message: RefuseMessage) -> SessionError {
        match RefuseReason::of(message.reason) {
            RefuseReason::Final => SessionError::refused(message.message, message.hint),
            RefuseReason::Later => {
                let after = Some(message.retry_after_ms).filter(|&ms| ms > 0);
                let after = after.map(|ms| Duration::from_millis(ms.into()));
                SessionError::later(message.message, message.hint, after)
            }
            _ => SessionError::from_abort(message),
        }
    }
}

/// The reason that an end sends (`RefuseMessage.reason`).
#[derive(Clone, Copy)]
enum RefuseReason {
    /// Another session would fail in the same way.
    Final = 0,
    /// The user interrupted it.
    Interrupted = 1,
    /// The network broke.
    Network = 2,
    /// There is no room or no time now.
    Later = 3,
    /// Nothing moved on the data connections.
    Data = 4,
    /// Its storage is full; for older versions the same as `Final`.
    Full = 5,
    /// Its storage failed in a way that may pass; for older versions the same as `Final`.
    Storage = 6,
}

impl RefuseReason {
    /// An unknown reason of a later version counts as final.
    fn of(code: u32) -> RefuseReason {
        match code {
            1 => RefuseReason::Interrupted,
            2 => RefuseReason::Network,
            3 => RefuseReason::Later,
            4 => RefuseReason::Data,
            5 => RefuseReason::Full,
            6 => RefuseReason::Storage,
            _ => RefuseReason::Final,
        }
    }
}

impl From<ArrivalLedgerError> for SessionError {
    fn from(error: ArrivalLedgerError) -> Self {
        SessionError::Protocol(text_without_errno(&error))
    }
}

impl From<EntryTableDecodeError> for SessionError {
    fn from(error: EntryTableDecodeError) -> Self {
        SessionError::Protocol(text_without_errno(&error))
    }
}

impl From<MessageError> for SessionError {
    fn from(error: MessageError) -> Self {
        SessionError::Protocol(text_without_errno(&error))
    }
}

impl From<SpillLogCreationError> for SessionError {
    fn from(error: SpillLogCreationError) -> Self {
        let hint = "name a directory on flash with so much space, on a file system with O_TMPFILE and O_DIRECT (ext4, XFS): \
                    --spill DIR:SIZE";
        SessionError::refused(text_without_errno(&error), hint)
    }
}

impl From<PoolError> for SessionError {
    fn from(error: PoolError) -> Self {
        SessionError::refused(text_without_errno(&error), "choose another --buffer or --object-size")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_so_and_heard_so() {
        let broken = SessionError::Transport(TransportError::Truncated);
        for error in [broken, SessionError::PeerGone, SessionError::Stalled(1), SessionError::Dismissed] {
            let told = SessionError::from_abort(error.to_message());
            assert!(
                matches!(told, SessionError::PeerLeft { .. }) && told.is_retryable(),
                "{error:?}: {told:?}"
            );
        }
        let at = SessionError::At {
            role: SessionRole::Sink,
            error: SessionError::Transport(TransportError::Truncated).into(),
        };
        assert!(
            at.retry_chance() == RetryChance::Always && at.is_data_connection_lost() && !at.is_data_stall()
        );
        assert!(SessionError::from_abort(SessionError::Stalled(1).to_message()).is_data_stall());
        assert!(!SessionError::from_abort(SessionError::PeerGone.to_message()).is_data_stall());
        let full = SessionError::NoSpace { path: "x".into(), detail: "full".into() };
        assert!(
            full.is_destination_full() && SessionError::from_abort(full.to_message()).is_destination_full()
        );
        assert!(!SessionError::from_abort(SessionError::Internal.to_message()).is_destination_full());
        let fault = SessionError::not_durable("x".into(), "lost".into(), true);
        let told = SessionError::from_abort(fault.to_message());
        assert!(told.is_storage_fault() && told.is_retryable() && told.distance_from_cause() == 1);
        assert!(!SessionError::not_durable("x".into(), "lost".into(), false).is_retryable());
        let wrong = SessionError::Protocol("x".into());
        for error in [full, wrong, SessionError::Internal, SessionError::refused("no", "")] {
            let told = SessionError::from_abort(error.to_message());
            assert!(!error.is_retryable() && !told.is_retryable(), "{error:?}: {told:?}");
        }
        let interrupted = SessionError::from_abort(SessionError::Interrupted.to_message());
        assert!(interrupted.is_interrupted() && !interrupted.is_retryable());
        for after in [None, Some(Duration::from_millis(1_500))] {
            let later = SessionError::from_refusal(SessionError::later("full", "wait", after).to_message());
            assert!(later.is_retryable() && later.hint().as_deref() == Some("wait"));
            assert_eq!(later.retry_after(), Some(after));
        }
    }
}
