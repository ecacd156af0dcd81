//! A session's process: it speaks TLS with one client, authenticates it, and serves it as the daemon's
//! configuration allows.
//!
//! It begins with the daemon's rights and one thread. Before it touches the client's paths it has become the
//! user that the configuration names, and has entered the sandbox that the kernel supports ([`House`]).

pub(crate) mod account;
mod guard;
mod house;
mod walls;

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_engine::{Abort, Channel, Outcome, SessionError, serve};
use carrack_transport::{TlsChannel, TlsError};
use carrack_trust::{Identity, IdentityError, PublicKeys, handshake_hint, server_config, speaks_carrack};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;
use thiserror::Error;

use crate::audit::Ending;
use crate::config::Config;
use crate::errand::{Charge, Errand, Report, ToParent, receive, send, shortened};
use crate::log::Log;
use house::ExportHouse;

/// Lowest descriptor for the connection and the parent's socket, above any that code expects as a standard
/// stream.
const FIRST_FD: i32 = 10;

/// Timeout of the parent's answers: it has one loop, and may be busy.
const PARENT_TIMEOUT: Duration = Duration::from_secs(30);

/// An error before the session began.
#[derive(Debug, Error)]
enum NoSession {
    #[error("{what}: {error}")]
    System { what: &'static str, error: io::Error },
    #[error("the daemon's configuration: {0}")]
    Config(#[from] crate::config::ConfigError),
    #[error(transparent)]
    Trust(#[from] carrack_trust::TlsError),
    #[error(transparent)]
    Tokens(#[from] carrack_trust::TokenKeysError),
    #[error(transparent)]
    Handshake(#[from] TlsError),
    #[error("the client speaks TLS, and not carrack's protocol")]
    OtherProtocol,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> NoSession {
    move |error| NoSession::System { what, error }
}

/// Serves the session that this process was started for: standard input is the client's connection, standard
/// output the socket to the parent. Returns true if it succeeded.
pub fn serve_session() -> bool {
    let mut log = Log::default();
    let mut peer = None;
    match run(&mut log, &mut peer) {
        Ok(went_well) => went_well,
        Err(error) => {
            let whose = peer.map_or(String::new(), |peer| format!("{peer}: "));
            match &error {
                // Handshakes of strangers fail here; such failures are no trouble of the daemon's.
                NoSession::Handshake(_) | NoSession::OtherProtocol | NoSession::Identity(_) => {
                    log.detail(|| format!("{whose}{error}{}", hint(&error)));
                }
                _ => log.warn(format!("{whose}{error}")),
            }
            false
        }
    }
}

fn hint(error: &NoSession) -> String {
    match error {
        NoSession::Handshake(TlsError::Tls(error)) => {
            handshake_hint(error).map_or(String::new(), |hint| format!(" ({hint})"))
        }
        _ => String::new(),
    }
}

fn run(log: &mut Log, peer: &mut Option<std::net::SocketAddr>) -> Result<bool, NoSession> {
    walls::at_start().map_err(system("closing the process off"))?;
    let (connection, mut parent) = take_standard_streams().map_err(system("taking the connection"))?;
    parent.set_read_timeout(Some(PARENT_TIMEOUT)).map_err(system("the parent"))?;
    let charge: Charge = receive(&mut parent).map_err(system("the parent"))?;
    let errand: Errand = receive(&mut parent).map_err(system("the parent"))?;
    *log = Log(charge.verbosity);
    *peer = Some(errand.peer);
    let config = Config::parse(&charge.config)?;

    let trust = charge.material.trust(&mut Vec::new());
    let keys = trust.public_keys.clone();
    let deadline = Instant::now() + config.limits.handshake();
    let channel = TlsChannel::server(connection, server_config(&trust)?, deadline)?;
    let who = identity(&channel, &keys).inspect_err(|error| tell_refused(&mut parent, error))?;
    send(&mut parent, &ToParent::Known(who.clone())).map_err(system("the parent"))?;

    let token_keys = charge.material.token_keys(&config)?;
    let abort = Abort::new().map_err(system("preparing the session"))?;
    let speaking = parent.try_clone().map_err(system("the parent"))?;
    let house = ExportHouse::new(Arc::new(config), errand, who, token_keys, speaking, abort.clone(), *log);
    let outcome = serve(Channel::Tls(Box::new(channel)), &house, &abort);
    let report = report(&outcome, house.is_admitted());
    let went_well = report.ending == Ending::Ok;
    // It fails only if the parent is dead.
    let _ = send(&mut parent, &ToParent::Done(report));
    Ok(went_well)
}

/// Returns the identity of the TLS peer; `None` if a token will tell it.
fn identity(channel: &TlsChannel, keys: &PublicKeys) -> Result<Option<Identity>, NoSession> {
    if !speaks_carrack(channel.protocol()) {
        return Err(NoSession::OtherProtocol);
    }
    Ok(channel.peer_certificates().map(|chain| Identity::of_peer(chain, keys)).transpose()?)
}

/// Reports for the audit log that TLS was established, and nothing more.
fn tell_refused(parent: &mut UnixStream, error: &NoSession) {
    let reason = shortened(&error.to_string());
    let report = Report { ending: Ending::Refused, reason, bytes: 0, files: 0, failed: 0 };
    // It fails only if the parent is dead.
    let _ = send(parent, &ToParent::Known(None)).and_then(|()| send(parent, &ToParent::Done(report)));
}

/// Takes the connection and the socket to the parent; `/dev/null` and stderr replace them.
fn take_standard_streams() -> io::Result<(TcpStream, UnixStream)> {
    let connection: OwnedFd = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_FD)?;
    let parent: OwnedFd = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_FD)?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok((connection.into(), parent.into()))
}

fn report(outcome: &Outcome, is_admitted: bool) -> Report {
    let summary = &outcome.summary;
    let ending = match &outcome.result {
        Ok(()) if summary.entries_failed == 0 => Ending::Ok,
        Ok(()) => Ending::Partial,
        Err(SessionError::Refused { .. } | SessionError::Later { .. }) if !is_admitted => Ending::Refused,
        Err(_) => Ending::Error,
    };
    Report {
        ending,
        reason: outcome.result.as_ref().err().map_or(String::new(), |error| shortened(&error.to_string())),
        bytes: summary.bytes_done,
        files: summary.files_done,
        failed: summary.entries_failed,
    }
}
