//! Far ends, over ssh or at a daemon: how each is reached, left, and explained after an error.

use std::time::Duration;

use carrack_engine::{Abort, Advance, Again, Observer, Outcome, Peer, Role, SessionError, persist};
use carrack_model::limits::{RETRIES_DEFAULT, STALL_MS_DEFAULT};
use carrack_model::{Event, Notice, Protection, Summary};

use crate::options::FarArgs;
use crate::remote::daemon;
use crate::remote::location::{Daemon, FarEnd};
use crate::remote::reins::Reins;
use crate::remote::ssh::{self, Remote, Terms};
use crate::trouble::{Trouble, warn};

/// The longest wait for ssh's end after a session: the far side may still be removing temporary names.
const SSH_PATIENCE: Duration = Duration::from_secs(10);

/// The same after a signal, when the user waits for the prompt; the far side cleans up without ssh's help.
const SSH_PATIENCE_INTERRUPTED: Duration = Duration::from_secs(1);

/// A far end that a session may be held with.
pub enum Reached<'a> {
    /// Over a running ssh process.
    Ssh(Remote<'a>),
    /// Over TLS.
    Daemon(&'a Daemon),
}

/// A far end that was left: the source of an explanation if it never sent a message, or TLS failed.
pub enum Left<'a> {
    /// The explanation by ssh's exit status.
    Ssh(Trouble),
    /// The daemon, of which no more is known.
    Daemon(&'a Daemon),
}

/// The options by which a far end is reached.
#[derive(Clone, Copy, Debug)]
pub struct Approach<'a> {
    /// The user's options.
    pub args: &'a FarArgs,
    /// The lowest protection level for data.
    pub protection: Protection,
    /// True if the far end asks its meta-scheduler for grants; a daemon decides that on its own.
    pub shares: bool,
    /// Silence after which the far end counts as dead.
    pub stall: Duration,
}

impl<'a> Approach<'a> {
    /// Creates the options of commands that copy nothing.
    pub fn plain(args: &'a FarArgs) -> Approach<'a> {
        let stall = Duration::from_millis(STALL_MS_DEFAULT.into());
        Approach { args, protection: Protection::default(), shares: true, stall }
    }
}

/// The reason why a far end was not reached.
#[derive(Debug)]
pub struct Unreached {
    /// The message.
    pub trouble: Trouble,
    /// The kind of retry that may succeed.
    pub again: Again,
}

impl From<Trouble> for Unreached {
    /// An error on this side is permanent.
    fn from(trouble: Trouble) -> Unreached {
        Unreached { trouble, again: Again::Never }
    }
}

impl From<Unreached> for SessionError {
    fn from(unreached: Unreached) -> SessionError {
        let Trouble { message, hint } = unreached.trouble;
        SessionError::Unreachable { message, hint, again: unreached.again }
    }
}

/// Connects to a far end; `None` if the user ended it.
pub fn reach<'a>(
    far: &'a FarEnd,
    approach: Approach<'a>,
    reins: &Reins,
) -> Result<Option<(Reached<'a>, Peer)>, Unreached> {
    let Approach { args, protection, shares, stall } = approach;
    match far {
        FarEnd::Ssh(host) => {
            let terms = Terms { protection, shares };
            let (remote, peer) =
                Remote::start(&args.ssh, host, &args.remote_carrack, terms, stall, reins.leash())?;
            Ok(Some((Reached::Ssh(remote), peer)))
        }
        FarEnd::Daemon(daemon) => {
            let peer = daemon::connect(daemon, &args.daemon, stall, &reins.abort)?;
            Ok(peer.map(|peer| (Reached::Daemon(daemon), peer)))
        }
    }
}

impl<'a> Reached<'a> {
    /// Leaves the far end after the session, when the channel is closed. A far end that `hangs` is not waited
    /// for.
    pub fn leave(self, reins: &Reins, hangs: bool) -> Left<'a> {
        match self {
            Reached::Daemon(daemon) => Left::Daemon(daemon),
            Reached::Ssh(remote) => {
                let is_short = hangs || reins.is_told_to_end();
                let patience = if is_short { SSH_PATIENCE_INTERRUPTED } else { SSH_PATIENCE };
                let host = remote.host();
                Left::Ssh(remote.stop(patience).unwrap_or_else(|| ssh::silent(host)))
            }
        }
    }
}

/// Runs `act`, which connects to a far end and runs an operation there, and retries while that end answers
/// "not now": for commands that move no data. An error comes with the far end that `act` returned.
pub fn in_turn<T, L>(
    abort: &Abort,
    act: &mut dyn FnMut() -> Result<T, (SessionError, Option<L>)>,
) -> Result<T, (SessionError, Option<L>)> {
    let mut ended = None;
    let outcome = persist(RETRIES_DEFAULT, &Warnings, abort, &mut |_| match act() {
        Err((error, _)) if error.is_not_now() => Outcome::failed(error),
        result => {
            ended = Some(result);
            Outcome { summary: Summary::default(), result: Ok(()), advance: Advance::Moved }
        }
    });
    match (ended, outcome.result) {
        (Some(ended), _) => ended,
        (None, result) => Err((result.err().unwrap_or(SessionError::Internal), None)),
    }
}

/// Prints warnings only.
struct Warnings;

impl Observer for Warnings {
    fn event(&self, event: &Event) {
        if let Event::Notice(Notice::Warning(text)) = event {
            warn(text);
        }
    }
}

/// Returns true if a session ended because the far end hangs.
pub fn hangs(outcome: &Outcome) -> bool {
    matches!(&outcome.result, Err(SessionError::Unreachable { .. } | SessionError::PeerStalled(_)))
}

/// Explains the end of a daemon's connection without a message: it is busy, or about to end. For ssh, the
/// exit status explains it.
pub fn of_daemon(outcome: Outcome, far: &FarEnd) -> Outcome {
    match (far, outcome.result) {
        (FarEnd::Daemon(daemon), Err(SessionError::PeerSilent)) => {
            let silent = Unreached { trouble: daemon::silent(daemon), again: Again::Always };
            Outcome { result: Err(silent.into()), ..outcome }
        }
        (_, result) => Outcome { result, ..outcome },
    }
}

/// Returns the same for a session between two far ends.
pub fn explain_between(error: &SessionError, source: Left<'_>, sink: Left<'_>) -> Trouble {
    match error {
        SessionError::At { role: Role::Source, error } => explain(error, Some(source)),
        SessionError::At { role: Role::Sink, error } => explain(error, Some(sink)),
        error => explain(error, None),
    }
}

/// Returns the message for the error that ended a session; `left` is the far end if there was one.
pub fn explain(error: &SessionError, left: Option<Left<'_>>) -> Trouble {
    match (error, left) {
        (error, Some(Left::Ssh(silence))) if error.is_peer_silent() => silence,
        (error, Some(Left::Daemon(daemon))) if error.is_peer_silent() => daemon::silent(daemon),
        (SessionError::Tls(distrust), Some(Left::Daemon(daemon))) => daemon::explain(daemon, distrust),
        (SessionError::NotCarrack(printed), Some(Left::Daemon(daemon))) => {
            Trouble::new(format!("{daemon} speaks another protocol; it said: {printed}"))
        }
        (error, _) => Trouble { message: error.to_string(), hint: error.hint() }.tamed(),
    }
}
