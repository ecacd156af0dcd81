//! Far ends, over ssh or at a daemon: how each is reached, left, and explained after an error.

use std::time::Duration;

use carrack_engine::{
    AbortHandle, FurthestSessionPoint, PeerChannel, RetryChance, SessionError, SessionRole, TransferObserver,
    TransferOutcome, run_with_retries,
};
use carrack_model::limits::{RETRIES_DEFAULT, STALL_MS_DEFAULT};
use carrack_model::{ProtectionLevel, TransferEvent, TransferSummary, UserNotice};

use crate::options::FarArgs;
use crate::remote::daemon;
use crate::remote::location::{DaemonAddress, FarEndAddress};
use crate::remote::ssh::{self, FarSessionOptions, RemoteProcess};
use crate::remote::stop_control::StopControl;
use crate::user_error::{UserError, warn};

/// The longest wait for ssh's end after a session: the far side may still be removing temporary names.
const SSH_PATIENCE: Duration = Duration::from_secs(10);

/// The same after a signal, when the user waits for the prompt; the far side cleans up without ssh's help.
const SSH_PATIENCE_INTERRUPTED: Duration = Duration::from_secs(1);

/// A far end that a session may be held with.
pub enum ReachedFarEnd<'a> {
    /// Over a running ssh process.
    Ssh(RemoteProcess<'a>),
    /// Over TLS.
    Daemon(&'a DaemonAddress),
}

/// A far end that was left: the source of an explanation if it never sent a message, or TLS failed.
pub enum FailedFarEnd<'a> {
    /// The explanation by ssh's exit status.
    Ssh(UserError),
    /// The daemon, of which no more is known.
    Daemon(&'a DaemonAddress),
}

/// The options by which a far end is reached.
#[derive(Clone, Copy, Debug)]
pub struct FarEndAccess<'a> {
    /// The user's options.
    pub args: &'a FarArgs,
    /// The lowest protection level for data.
    pub protection: ProtectionLevel,
    /// True if the far end asks its meta-scheduler for grants; a daemon decides that on its own.
    pub shares: bool,
    /// Silence after which the far end counts as dead.
    pub stall: Duration,
    /// True if only errors and warnings are to be printed.
    pub is_quiet: bool,
}

impl<'a> FarEndAccess<'a> {
    /// Creates the options of commands that copy nothing.
    pub fn without_transfer(args: &'a FarArgs) -> FarEndAccess<'a> {
        let stall = Duration::from_millis(STALL_MS_DEFAULT.into());
        FarEndAccess { args, protection: ProtectionLevel::default(), shares: true, stall, is_quiet: false }
    }
}

/// The reason why a far end was not reached.
#[derive(Debug)]
pub struct UnreachedFarEnd {
    /// The message.
    pub trouble: UserError,
    /// The kind of retry that may succeed.
    pub again: RetryChance,
}

impl From<UserError> for UnreachedFarEnd {
    /// An error on this side is permanent.
    fn from(trouble: UserError) -> UnreachedFarEnd {
        UnreachedFarEnd { trouble, again: RetryChance::Never }
    }
}

impl From<UnreachedFarEnd> for SessionError {
    fn from(unreached: UnreachedFarEnd) -> SessionError {
        let UserError { message, hint, .. } = unreached.trouble;
        SessionError::Unreachable { message, hint, again: unreached.again }
    }
}

/// Connects to a far end; `None` if the user ended it.
pub fn connect_to_far_end<'a>(
    far: &'a FarEndAddress,
    approach: FarEndAccess<'a>,
    stop_control: &StopControl,
) -> Result<Option<(ReachedFarEnd<'a>, PeerChannel)>, UnreachedFarEnd> {
    let FarEndAccess { args, protection, shares, stall, is_quiet } = approach;
    match far {
        FarEndAddress::Ssh(host) => {
            let terms = FarSessionOptions { protection, shares };
            let (remote, peer) = RemoteProcess::start(
                args.ssh_command(host)?,
                host,
                &args.remote_carrack,
                args.program_offer(host, is_quiet)?,
                terms,
                stall,
                stop_control.child_guard(),
            )?;
            Ok(Some((ReachedFarEnd::Ssh(remote), peer)))
        }
        FarEndAddress::Daemon(daemon) => {
            let peer = daemon::connect(daemon, &args.daemon, stall, &stop_control.abort)?;
            Ok(peer.map(|peer| (ReachedFarEnd::Daemon(daemon), peer)))
        }
    }
}

impl<'a> ReachedFarEnd<'a> {
    /// Leaves the far end after the session, when the channel is closed. A far end that `hangs` is not waited
    /// for.
    pub fn disconnect(self, stop_control: &StopControl, hangs: bool) -> FailedFarEnd<'a> {
        match self {
            ReachedFarEnd::Daemon(daemon) => FailedFarEnd::Daemon(daemon),
            ReachedFarEnd::Ssh(remote) => {
                let is_short = hangs || stop_control.is_stop_requested();
                let patience = if is_short { SSH_PATIENCE_INTERRUPTED } else { SSH_PATIENCE };
                let host = remote.host();
                FailedFarEnd::Ssh(remote.stop(patience).unwrap_or_else(|| ssh::silent_far_side_error(host)))
            }
        }
    }
}

/// Runs `act`, which connects to a far end and runs an operation there, and retries while that end answers
/// "not now": for commands that move no data. An error comes with the far end that `act` returned.
pub fn retry_while_busy<T, L>(
    abort: &AbortHandle,
    act: &mut dyn FnMut() -> Result<T, (SessionError, Option<L>)>,
) -> Result<T, (SessionError, Option<L>)> {
    let mut ended = None;
    let outcome = run_with_retries(RETRIES_DEFAULT, &WarningObserver, abort, &mut |_| match act() {
        Err((error, _)) if error.is_peer_busy() => TransferOutcome::failed(error),
        result => {
            ended = Some(result);
            TransferOutcome {
                summary: TransferSummary::default(),
                result: Ok(()),
                advance: FurthestSessionPoint::Moved,
            }
        }
    });
    match (ended, outcome.result) {
        (Some(ended), _) => ended,
        (None, result) => Err((result.err().unwrap_or(SessionError::Internal), None)),
    }
}

/// Prints warnings only.
struct WarningObserver;

impl TransferObserver for WarningObserver {
    fn handle_event(&self, event: &TransferEvent) {
        if let TransferEvent::Notice(UserNotice::Warning(text)) = event {
            warn(text);
        }
    }
}

/// Returns true if a session ended because the far end hangs.
pub fn is_far_end_hanging(outcome: &TransferOutcome) -> bool {
    matches!(&outcome.result, Err(SessionError::Unreachable { .. } | SessionError::PeerStalled(_)))
}

/// Explains the end of a daemon's connection without a message: it is busy, or about to end. For ssh, the
/// exit status explains it.
pub fn explain_silent_daemon(outcome: TransferOutcome, far: &FarEndAddress) -> TransferOutcome {
    match (far, outcome.result) {
        (FarEndAddress::Daemon(daemon), Err(SessionError::PeerSilent)) => {
            let silent =
                UnreachedFarEnd { trouble: daemon::silent_daemon_error(daemon), again: RetryChance::Always };
            TransferOutcome { result: Err(silent.into()), ..outcome }
        }
        (_, result) => TransferOutcome { result, ..outcome },
    }
}

/// Returns the same for a session between two far ends.
pub fn explain_between(error: &SessionError, source: FailedFarEnd<'_>, sink: FailedFarEnd<'_>) -> UserError {
    match error {
        SessionError::At { role: SessionRole::Source, error } => explain(error, Some(source)),
        SessionError::At { role: SessionRole::Sink, error } => explain(error, Some(sink)),
        error => explain(error, None),
    }
}

/// Returns the message for the error that ended a session; `left` is the far end if there was one.
pub fn explain(error: &SessionError, left: Option<FailedFarEnd<'_>>) -> UserError {
    match (error, left) {
        (error, Some(FailedFarEnd::Ssh(silence))) if error.is_peer_silent() => silence,
        (error, Some(FailedFarEnd::Daemon(daemon))) if error.is_peer_silent() => {
            daemon::silent_daemon_error(daemon)
        }
        (SessionError::Tls(distrust), Some(FailedFarEnd::Daemon(daemon))) => {
            daemon::explain(daemon, distrust)
        }
        (SessionError::NotCarrack(printed), Some(FailedFarEnd::Daemon(daemon))) => {
            UserError::new(format!("{daemon} speaks another protocol; it said: {printed}"))
        }
        (error, _) => UserError::explained(error, error.hint()).escaped(),
    }
}
