//! Far ends, whichever way leads there: how each is reached, left, and explained when something went wrong.

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

/// How long ssh may take to end after the session has: the far side may still be removing temporary names.
const SSH_PATIENCE: Duration = Duration::from_secs(10);

/// The same after a signal, when somebody waits for the prompt; the far side cleans up without ssh's help.
const SSH_PATIENCE_INTERRUPTED: Duration = Duration::from_secs(1);

/// A far end that a session may be held with.
pub enum Reached<'a> {
    /// Over a running ssh.
    Ssh(Remote<'a>),
    /// Over TLS.
    Daemon(&'a Daemon),
}

/// A far end that was left: what is known of why it never spoke, or of what TLS has against it.
pub enum Left<'a> {
    /// ssh's own end tells.
    Ssh(Trouble),
    /// Nobody else does.
    Daemon(&'a Daemon),
}

/// How a far end is gone to.
#[derive(Clone, Copy, Debug)]
pub struct Approach<'a> {
    /// What the user said of the way.
    pub args: &'a FarArgs,
    /// Data may travel so.
    pub protection: Protection,
    /// Whether the far end asks for storage targets that are shared out there; a daemon decides that by itself.
    pub shares: bool,
    /// Silence after which the far end counts as dead.
    pub stall: Duration,
}

impl<'a> Approach<'a> {
    /// Where nothing is copied.
    pub fn plain(args: &'a FarArgs) -> Approach<'a> {
        let stall = Duration::from_millis(STALL_MS_DEFAULT.into());
        Approach { args, protection: Protection::default(), shares: true, stall }
    }
}

/// Why a far end was not reached.
#[derive(Debug)]
pub struct Unreached {
    /// In words.
    pub trouble: Trouble,
    /// Whether it may go better another time.
    pub again: Again,
}

impl From<Trouble> for Unreached {
    /// What is wrong here stays wrong.
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

/// Goes there. Nothing if the user ended it.
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
    /// After the session, when the channel is closed. A far end of which it is known that it `hangs` is not waited for.
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

/// Has `act` go to a far end and do what is to be done there, again while that end says "not now": for commands that move no data. Beside
/// the error comes what `act` gave with it.
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

/// Tells of warnings only.
struct Warnings;

impl Observer for Warnings {
    fn event(&self, event: &Event) {
        if let Event::Notice(Notice::Warning(text)) = event {
            warn(text);
        }
    }
}

/// Whether a session ended because the far end hangs.
pub fn hangs(outcome: &Outcome) -> bool {
    matches!(&outcome.result, Err(SessionError::Unreachable { .. } | SessionError::PeerStalled(_)))
}

/// A daemon that ends the connection without a word is busy, or about to end; of ssh its own end tells.
pub fn of_daemon(outcome: Outcome, far: &FarEnd) -> Outcome {
    match (far, outcome.result) {
        (FarEnd::Daemon(daemon), Err(SessionError::PeerSilent)) => {
            let silent = Unreached { trouble: daemon::silent(daemon), again: Again::Always };
            Outcome { result: Err(silent.into()), ..outcome }
        }
        (_, result) => Outcome { result, ..outcome },
    }
}

/// The same for a session between two far ends.
pub fn explain_between(error: &SessionError, source: Left<'_>, sink: Left<'_>) -> Trouble {
    match error {
        SessionError::At { role: Role::Source, error } => explain(error, Some(source)),
        SessionError::At { role: Role::Sink, error } => explain(error, Some(sink)),
        error => explain(error, None),
    }
}

/// What ended a session, for people; `left` is the far end if there was one.
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
