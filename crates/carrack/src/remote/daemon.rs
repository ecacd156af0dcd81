//! The connection to a daemon: TCP, TLS on it, and the messages for failures of either.
//!
//! The trusted authorities come from the options and files of `DaemonConnectionArgs`; the check of the
//! daemon's name can't be turned off.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use carrack_engine::{AbortHandle, PeerChannel, RetryChance, TlsHandshakeError};
use carrack_model::escape;
use carrack_transport::{TlsChannel, resolve};
use carrack_trust::{client_config, handshake_hint, speaks_carrack};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error as Distrust};
use socket2::{SockRef, TcpKeepalive};

use crate::options::DaemonConnectionArgs;
use crate::remote::far_end::UnreachedFarEnd;
use crate::remote::location::DaemonAddress;
use crate::user_error::UserError;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Interval of keepalive probes; a daemon that vanished is noticed after a few of them.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects, and returns when the daemon has proved its name; `None` if the user ended it.
///
/// The wait for a silent daemon ends after `stall`, however long `--connect-timeout` is.
pub fn connect(
    daemon: &DaemonAddress,
    args: &DaemonConnectionArgs,
    stall: Duration,
    abort: &AbortHandle,
) -> Result<Option<PeerChannel>, UnreachedFarEnd> {
    let token = args.token()?;
    let config = client_config(&args.trust()?).map_err(|error| UserError::explained(&error, error.hint()))?;
    let name = ServerName::try_from(daemon.name.clone()).map_err(|_| {
        UserError::new(format!("{} is not a name that a certificate could hold", daemon.name))
    })?;
    let patience = args.connect_timeout.min(stall);
    let Some(socket) = dial(daemon, patience, abort)? else { return Ok(None) };
    let address = socket.peer_addr().map_err(|error| retryable_soon(unreachable_error(daemon, &error)))?.ip();
    let channel = TlsChannel::client(socket, config, name, Instant::now() + patience).map_err(|error| {
        UnreachedFarEnd {
            trouble: explain(daemon, &error),
            // A failed connection may mean that the daemon is busy or about to end; a refused certificate
            // stays refused.
            again: if matches!(error, TlsHandshakeError::Io(_)) {
                RetryChance::Always
            } else {
                RetryChance::Never
            },
        }
    })?;
    if !speaks_carrack(channel.protocol()) {
        return Err(UserError::new(format!("{daemon} speaks TLS, but is not a carrack"))
            .hint("the port may be another program's: write carrack://host:PORT/EXPORT/path")
            .into());
    }
    // Data connections go to the address that answered.
    let host = address.to_canonical().to_string();
    Ok(Some(PeerChannel::over_tls(channel, host, token)))
}

/// Tries the addresses one after the other, and returns the first connection.
fn dial(
    daemon: &DaemonAddress,
    patience: Duration,
    abort: &AbortHandle,
) -> Result<Option<TcpStream>, UnreachedFarEnd> {
    let mut failure = None;
    let addresses = resolve(&daemon.name, daemon.port, patience);
    let addresses = addresses.map_err(|error| unresolved_host(daemon, &error.to_string()))?;
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        if abort.is_set() {
            return Ok(None);
        }
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => {
                // Without keepalive, only the wait for a daemon that vanished is longer.
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
                let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
                return Ok(Some(socket));
            }
            // The first address is the most likely; its failure is the most useful message.
            Err(error) => _ = failure.get_or_insert(error),
        }
    }
    match failure {
        Some(error) => Err(retryable_soon(unreachable_error(daemon, &error))),
        None => Err(unresolved_host(daemon, "it has no address")),
    }
}

fn unresolved_host(daemon: &DaemonAddress, reason: &str) -> UnreachedFarEnd {
    UnreachedFarEnd { trouble: unknown_host_error(daemon, reason), again: RetryChance::OnceMet }
}

/// Networks and daemons come back: the error may be retried soon.
fn retryable_soon(trouble: UserError) -> UnreachedFarEnd {
    UnreachedFarEnd { trouble, again: RetryChance::Soon }
}

fn unknown_host_error(daemon: &DaemonAddress, why: &str) -> UserError {
    UserError::new(format!("the host {} can't be found: {why}", daemon.name)).hint("check its name")
}

fn unreachable_error(daemon: &DaemonAddress, error: &io::Error) -> UserError {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            UserError::new(format!("nobody listens at {}, port {}", daemon.name, daemon.port)).hint(
                "`carrack serve` has to run there; for another port write carrack://host:PORT/EXPORT/path",
            )
        }
        ErrorKind::TimedOut => {
            UserError::new(format!("{} does not answer at port {}", daemon.name, daemon.port))
                .hint("a firewall may be in between; --connect-timeout waits longer")
        }
        _ => UserError::new(format!("{daemon} can't be reached: {error}")),
    }
}

/// Explains a TLS failure, at the handshake or, where the daemon does not accept this end, after it.
pub fn explain(daemon: &DaemonAddress, error: &TlsHandshakeError) -> UserError {
    match error {
        TlsHandshakeError::Io(error) if error.kind() == ErrorKind::TimedOut => {
            UserError::new(format!("{daemon} does not answer in TLS"))
                .hint("it may be busy, or not be a carrack; --connect-timeout waits longer")
        }
        TlsHandshakeError::Io(error) => {
            UserError::new(format!("{daemon} closed the connection during the handshake: {error}"))
                .hint("it may be busy: try again; or it is not a carrack")
        }
        TlsHandshakeError::Tls(distrust) => explain_distrust(daemon, distrust),
    }
}

fn explain_distrust(daemon: &DaemonAddress, distrust: &Distrust) -> UserError {
    let message = match distrust {
        Distrust::InvalidCertificate(refusal) => {
            format!("{daemon} can't prove who it is: {}", certificate_in_words(refusal))
        }
        Distrust::AlertReceived(alert) => format!("{daemon} does not accept you: {}", alert_in_words(*alert)),
        Distrust::InvalidMessage(_) => format!("{daemon} does not speak TLS"),
        other => format!("{daemon}: {}", escape(other.to_string().as_bytes())),
    };
    let hint = match distrust {
        Distrust::AlertReceived(AlertDescription::CertificateRequired) => {
            Some("name a certificate or an ssh key with --identity, or a token with --token-file")
        }
        Distrust::InvalidMessage(_) => {
            Some("the port may be another program's: write carrack://host:PORT/EXPORT/path")
        }
        other => handshake_hint(other),
    };
    UserError::explained(message, hint)
}

fn certificate_in_words(refusal: &rustls::CertificateError) -> String {
    use rustls::CertificateError as Refusal;
    match refusal {
        Refusal::UnknownIssuer => "its certificate is of an authority that is not known here".into(),
        Refusal::Expired | Refusal::ExpiredContext { .. } => "its certificate has expired".into(),
        Refusal::NotValidYet | Refusal::NotValidYetContext { .. } => {
            "its certificate is not valid yet".into()
        }
        Refusal::Revoked => "its certificate is revoked".into(),
        Refusal::NotValidForName | Refusal::NotValidForNameContext { .. } => {
            "its certificate is for another name".into()
        }
        Refusal::InvalidPurpose | Refusal::InvalidPurposeContext { .. } => {
            "its certificate is not a server's".into()
        }
        other => escape(other.to_string().as_bytes()),
    }
}

fn alert_in_words(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it wants to know who you are".into(),
        AlertDescription::UnknownCA => "it knows neither your key nor who signed your certificate".into(),
        AlertDescription::CertificateExpired => "your certificate has expired".into(),
        AlertDescription::CertificateRevoked => "your certificate is revoked".into(),
        AlertDescription::NoApplicationProtocol | AlertDescription::ProtocolVersion => {
            "it is not a carrack, or one of another version".into()
        }
        other => format!("{other:?}"),
    }
}

/// Explains a daemon that accepted the connection and closed it without a message.
pub fn silent_daemon_error(daemon: &DaemonAddress) -> UserError {
    UserError::new(format!("{daemon} closed the connection without a word"))
        .hint("it may have as many sessions as it takes, or be about to end: try again; its log says more")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn daemon(port: u16) -> DaemonAddress {
        DaemonAddress { name: "127.0.0.1".into(), port }
    }

    fn dialled(daemon: &DaemonAddress) -> Result<Option<TcpStream>, UserError> {
        let dialled = dial(daemon, Duration::from_secs(5), &AbortHandle::new().unwrap());
        dialled.map_err(|unreached| {
            assert!(
                matches!(unreached.again, RetryChance::Soon | RetryChance::OnceMet),
                "daemons and name servers come back"
            );
            unreached.trouble
        })
    }

    #[test]
    fn nobody_there_is_told_with_the_port() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let trouble = dialled(&daemon(port)).unwrap_err();
        assert_eq!(trouble.message, format!("nobody listens at 127.0.0.1, port {port}"));
        assert!(trouble.hint.unwrap().contains("carrack serve"));
        let nowhere = DaemonAddress { name: "nowhere.invalid".into(), port: 1 };
        assert!(dialled(&nowhere).unwrap_err().message.contains("nowhere.invalid can't be found"));
    }

    #[test]
    fn the_user_may_end_it() {
        let abort = AbortHandle::new().unwrap();
        abort.interrupt();
        assert!(dial(&daemon(1), Duration::from_secs(5), &abort).unwrap().is_none());
    }

    /// Shakes hands with a server that sends only this.
    fn shaken(said: &'static [u8], patience: Duration) -> UserError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let daemon = daemon(listener.local_addr().unwrap().port());
        let answering = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(said).unwrap();
            // The connection is held until the client has given up.
            let _ = io::copy(&mut socket, &mut io::sink());
        });
        let socket = dialled(&daemon).unwrap().unwrap();
        let ca = carrack_trust_of_nobody();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let error = TlsChannel::client(socket, ca, name, Instant::now() + patience).unwrap_err();
        answering.join().unwrap();
        explain(&daemon, &error)
    }

    fn carrack_trust_of_nobody() -> std::sync::Arc<rustls::ClientConfig> {
        use carrack_trust::{CertificateAuthority, ClientTrust, KeySignatureAlgorithm};
        let dir = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        CertificateAuthority::init(&dir.path().join("a"), "a", KeySignatureAlgorithm::Ed25519, now).unwrap();
        let cas = Some(std::fs::read(dir.path().join("a/ca.pem")).unwrap());
        client_config(&ClientTrust { cas, ..ClientTrust::default() }).unwrap()
    }

    #[test]
    fn other_programs_are_told_apart() {
        let patience = Duration::from_secs(20);
        let other = shaken(b"SSH-2.0-OpenSSH_9.9\r\n", patience);
        assert!(other.message.contains("does not speak TLS"), "{other}");
        // A TLS alert: fatal, handshake_failure.
        let alert = shaken(&[21, 3, 3, 0, 2, 2, 40], patience);
        assert!(alert.message.contains("does not accept you: HandshakeFailure"), "{alert}");
        let mute = shaken(b"", Duration::from_millis(50));
        assert!(mute.message.contains("does not answer in TLS"), "{mute}");
    }

    #[test]
    fn distrust_is_told_in_words_with_a_hint() {
        use rustls::CertificateError as Refusal;
        for (error, words) in [
            (Refusal::UnknownIssuer.into(), "an authority that is not known here"),
            (Refusal::Expired.into(), "its certificate has expired"),
            (Refusal::NotValidForName.into(), "for another name"),
            (Distrust::AlertReceived(AlertDescription::CertificateRequired), "wants to know who you are"),
            (Distrust::AlertReceived(AlertDescription::UnknownCA), "neither your key nor who signed"),
            (Distrust::AlertReceived(AlertDescription::CertificateExpired), "your certificate has expired"),
            (Distrust::AlertReceived(AlertDescription::CertificateRevoked), "your certificate is revoked"),
        ] {
            let trouble = explain(&daemon(7512), &TlsHandshakeError::Tls(error));
            assert!(trouble.message.contains(words) && trouble.hint.is_some(), "{trouble}");
        }
    }
}
