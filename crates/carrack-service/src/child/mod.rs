//! A session's process: it speaks TLS with one client, authenticates it, and serves it as the daemon's
//! configuration allows.
//!
//! It begins with the daemon's rights and one thread. Before it touches the client's paths it has become the
//! user that the configuration names, and has entered the sandbox that the kernel supports ([`sandbox`]).

mod access_policy;
pub(crate) mod account;
mod guard;
mod sandbox;

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_engine::{AbortHandle, ControlChannel, SessionError, TransferOutcome, serve};
use carrack_model::text_without_errno;
use carrack_transport::{TlsChannel, TlsHandshakeError};
use carrack_trust::{
    AuthorizedKeys, IdentityError, ProvedIdentity, handshake_hint, server_config, speaks_carrack,
};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;
use thiserror::Error;

use crate::audit::AuditedOutcome;
use crate::config::DaemonConfig;
use crate::log::DaemonLog;
use crate::session_messages::{
    SessionConnectionFacts, SessionProcessMessage, SessionProcessSetup, SessionReport, receive, send,
    shortened,
};
use access_policy::ExportAccessPolicy;

/// Lowest descriptor for the connection and the parent's socket, above any that code expects as a standard
/// stream.
const FIRST_FD: i32 = 10;

/// Timeout of the parent's answers: it has one loop, and may be busy.
const PARENT_TIMEOUT: Duration = Duration::from_secs(30);

/// An error before the session began.
#[derive(Debug, Error)]
enum SessionStartFailure {
    #[error("{what}: {error}")]
    System { what: &'static str, error: io::Error },
    #[error("the daemon's configuration: {0}")]
    Config(#[from] crate::config::ConfigError),
    #[error(transparent)]
    Trust(#[from] carrack_trust::TlsConfigError),
    #[error(transparent)]
    Tokens(#[from] carrack_trust::TokenKeysError),
    #[error(transparent)]
    Handshake(#[from] TlsHandshakeError),
    #[error("the client speaks TLS, and not carrack's protocol")]
    OtherProtocol,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

fn system_error(what: &'static str) -> impl FnOnce(io::Error) -> SessionStartFailure {
    move |error| SessionStartFailure::System { what, error }
}

/// Serves the session that this process was started for: standard input is the client's connection, standard
/// output the socket to the parent. Returns true if it succeeded.
pub fn serve_session() -> bool {
    let mut log = DaemonLog::default();
    let mut peer = None;
    match run(&mut log, &mut peer) {
        Ok(went_well) => went_well,
        Err(error) => {
            let whose = peer.map_or(String::new(), |peer| format!("{peer}: "));
            match &error {
                // Handshakes of strangers fail here; such failures are no trouble of the daemon's.
                SessionStartFailure::Handshake(_)
                | SessionStartFailure::OtherProtocol
                | SessionStartFailure::Identity(_) => {
                    log.detail(|| format!("{whose}{error}{}", hint(&error)));
                }
                _ => log.warn(format!("{whose}{error}")),
            }
            false
        }
    }
}

fn hint(error: &SessionStartFailure) -> String {
    match error {
        SessionStartFailure::Handshake(TlsHandshakeError::Tls(error)) => {
            handshake_hint(error).map_or(String::new(), |hint| format!(" ({hint})"))
        }
        _ => String::new(),
    }
}

fn run(log: &mut DaemonLog, peer: &mut Option<std::net::SocketAddr>) -> Result<bool, SessionStartFailure> {
    sandbox::restrict_at_start().map_err(system_error("closing the process off"))?;
    let (connection, mut parent) = take_standard_streams().map_err(system_error("taking the connection"))?;
    parent.set_read_timeout(Some(PARENT_TIMEOUT)).map_err(system_error("the parent"))?;
    let charge: SessionProcessSetup = receive(&mut parent).map_err(system_error("the parent"))?;
    let errand: SessionConnectionFacts = receive(&mut parent).map_err(system_error("the parent"))?;
    *log = DaemonLog(charge.verbosity);
    *peer = Some(errand.peer);
    let config = DaemonConfig::parse(&charge.config)?;

    let trust = charge.material.trust(&mut Vec::new());
    let keys = trust.public_keys.clone();
    let deadline = Instant::now() + config.limits.handshake_timeout();
    let channel = TlsChannel::server(connection, server_config(&trust)?, deadline)?;
    let who = identity(&channel, &keys).inspect_err(|error| report_handshake_refusal(&mut parent, error))?;
    send(&mut parent, &SessionProcessMessage::Known(who.clone())).map_err(system_error("the parent"))?;

    let token_keys = charge.material.token_keys(&config)?;
    let abort = AbortHandle::new().map_err(system_error("preparing the session"))?;
    let speaking = parent.try_clone().map_err(system_error("the parent"))?;
    let access_policy =
        ExportAccessPolicy::new(Arc::new(config), errand, who, token_keys, speaking, abort.clone(), *log);
    let outcome = serve(ControlChannel::Tls(Box::new(channel)), &access_policy, &abort);
    let report = report(&outcome, access_policy.is_admitted());
    let went_well = report.ending == AuditedOutcome::Ok;
    // It fails only if the parent is dead.
    let _ = send(&mut parent, &SessionProcessMessage::Done(report));
    Ok(went_well)
}

/// Returns the identity of the TLS peer; `None` if a token will tell it.
fn identity(
    channel: &TlsChannel,
    keys: &AuthorizedKeys,
) -> Result<Option<ProvedIdentity>, SessionStartFailure> {
    if !speaks_carrack(channel.protocol()) {
        return Err(SessionStartFailure::OtherProtocol);
    }
    Ok(channel.peer_certificates().map(|chain| ProvedIdentity::of_peer(chain, keys)).transpose()?)
}

/// Reports for the audit log that TLS was established, and nothing more.
fn report_handshake_refusal(parent: &mut UnixStream, error: &SessionStartFailure) {
    let reason = shortened(&text_without_errno(&error));
    let report = SessionReport { ending: AuditedOutcome::Refused, reason, bytes: 0, files: 0, failed: 0 };
    // It fails only if the parent is dead.
    let _ = send(parent, &SessionProcessMessage::Known(None))
        .and_then(|()| send(parent, &SessionProcessMessage::Done(report)));
}

/// Takes the connection and the socket to the parent; `/dev/null` and stderr replace them.
fn take_standard_streams() -> io::Result<(TcpStream, UnixStream)> {
    let connection: OwnedFd = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_FD)?;
    let parent: OwnedFd = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_FD)?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok((connection.into(), parent.into()))
}

fn report(outcome: &TransferOutcome, is_admitted: bool) -> SessionReport {
    let summary = &outcome.summary;
    let ending = match &outcome.result {
        Ok(()) if summary.entries_failed == 0 => AuditedOutcome::Ok,
        Ok(()) => AuditedOutcome::Partial,
        Err(SessionError::Refused { .. } | SessionError::Later { .. }) if !is_admitted => {
            AuditedOutcome::Refused
        }
        Err(_) => AuditedOutcome::Error,
    };
    SessionReport {
        ending,
        reason: outcome
            .result
            .as_ref()
            .err()
            .map_or(String::new(), |error| shortened(&text_without_errno(&error))),
        bytes: summary.bytes_done,
        files: summary.files_done,
        failed: summary.entries_failed,
    }
}
