//! Explanations of a failed connection, with hints.
//!
//! async-nats reports a failed TLS handshake as an I/O error, whose source is rustls' error.

use std::error::Error;

use async_nats::{ConnectError, ConnectErrorKind};
use rustls::{AlertDescription, Error as TlsError};

use super::{BusOptions, NatsLogin};
use crate::error::BusError;

const NOT_THERE: &str = "is a server running there, and do firewalls let its port through?";
const SERVERS: &str = "write servers as nats://host:port or tls://host:port";
const NO_LOGIN: &str =
    "the server wants to know who comes: name --nats-creds, --nats-seed, --nats-user or --nats-token-file";
const BAD_LOGIN: &str = "look at the credentials: the server knows no such user, or another secret";
const BAD_SEED: &str =
    "look at the file with the seed: a user's begins with SU, and stands in a line of its own";
const BAD_FILES: &str = "look at the files of --nats-ca, --nats-cert and --nats-key: they are PEM, and the key is the \
                         certificate's";
const UNKNOWN_CA: &str = "name the certificate of the CA that has signed the server's with --nats-ca";
const BAD_NAME: &str =
    "name the server as its certificate does: the host in --nats is not one of the certificate's";
const NO_CERTIFICATE: &str =
    "the server wants a certificate: name one with --nats-cert and its key with --nats-key";
const BAD_CERTIFICATE: &str =
    "the server does not believe the certificate of --nats-cert: its CA has to have signed it, for clients";
const TLS: &str =
    "look at the CA, the certificate and its key, and at the name that the server's certificate has";

/// Creates the error for a server that was not reached, or has rejected the client.
pub(super) fn no_connection(options: &BusOptions, error: &ConnectError) -> BusError {
    let reason = match error.source() {
        Some(source) => format!("{}: {source}", error.kind()),
        None => error.kind().to_string(),
    };
    let hint = hint(options, error.kind(), tls_error(error));
    BusError::Connect { urls: options.servers.join(", "), reason, hint }
}

fn hint(options: &BusOptions, kind: ConnectErrorKind, tls: Option<&TlsError>) -> &'static str {
    let is_tls = options.tls.required || options.servers.iter().any(|server| server.starts_with("tls:"));
    let shows_certificate = options.tls.identity.is_some();
    match (kind, tls) {
        (_, Some(error)) => hint_of_tls(error, shows_certificate),
        (ConnectErrorKind::ServerParse, _) => SERVERS,
        // This error comes from the client library and not from a server: the seed can't sign.
        (ConnectErrorKind::Authentication, _) => BAD_SEED,
        (ConnectErrorKind::AuthorizationViolation, _) if options.login == NatsLogin::None => NO_LOGIN,
        (ConnectErrorKind::AuthorizationViolation, _) => BAD_LOGIN,
        (ConnectErrorKind::Tls, _) => BAD_FILES,
        // The server's alert is lost if it closes before it has read the bytes after the handshake.
        (ConnectErrorKind::Io, _) if is_tls && !shows_certificate => {
            "is it a NATS server, and does it want a certificate (--nats-cert, --nats-key)?"
        }
        _ => NOT_THERE,
    }
}

fn hint_of_tls(error: &TlsError, shows_certificate: bool) -> &'static str {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    match error {
        TlsError::InvalidCertificate(UnknownIssuer) => UNKNOWN_CA,
        TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => BAD_NAME,
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => NO_CERTIFICATE,
        // Servers with TLS 1.2 have no better alert for this.
        TlsError::AlertReceived(AlertDescription::BadCertificate) if !shows_certificate => NO_CERTIFICATE,
        TlsError::AlertReceived(_) if shows_certificate => BAD_CERTIFICATE,
        _ => TLS,
    }
}

/// Returns rustls' error from any depth of the sources.
fn tls_error(error: &ConnectError) -> Option<&TlsError> {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        // An I/O error's source is the source of its inner error.
        let wrapped = error.downcast_ref().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
