//! The errors of TLS configurations, and hints for failed handshakes.

use rustls::{AlertDescription, CertificateError as Refusal, Error};
use thiserror::Error as ThisError;

use crate::certificate::CertificateError;
use crate::pem::PemError;

/// The reason why a configuration can't be made.
#[derive(Debug, ThisError)]
pub enum TlsConfigError {
    /// Some material can't be read.
    #[error("{what}: {error}")]
    Pem {
        /// The name of the material.
        what: &'static str,
        /// The problem.
        error: PemError,
    },
    /// A certificate can't be read.
    #[error(transparent)]
    Certificate(CertificateError),
    /// A certificate among the CAs is not a CA's.
    #[error("the certificate of {subject} is not a CA's")]
    NoAuthority {
        /// The certificate's subject.
        subject: String,
    },
    /// A list of revoked certificates can't be read.
    #[error("the list of revoked certificates can't be read")]
    List,
    /// A list of revoked certificates comes from a CA that isn't trusted.
    #[error("the list of revoked certificates of {issuer} is of none of the CAs that are trusted")]
    ForeignList {
        /// The list's issuer.
        issuer: String,
    },
    /// The server's certificate is not for servers.
    #[error("the certificate of {subject} is not for servers")]
    NotForServers {
        /// The certificate's subject.
        subject: String,
    },
    /// The client's certificate is not for clients.
    #[error("the certificate of {subject} is not for clients")]
    NotForClients {
        /// The certificate's subject.
        subject: String,
    },
    /// The server would accept no client.
    #[error("neither CAs, public keys nor tokens say who may come in")]
    NobodyAdmitted,
    /// The system has no CAs, and no others are given.
    #[error("no CA is given, and the system has none: {0}")]
    NoRoots(String),
    /// The ssh key is protected by a passphrase.
    #[error("the ssh key is encrypted")]
    EncryptedKey,
    /// The ssh key has an unsupported type.
    #[error("the ssh key is of the type {0}")]
    KeyType(String),
    /// The ssh key can't be read.
    #[error("the ssh key can't be read: {0}")]
    SshKey(String),
    /// A certificate for the ssh key could not be made.
    #[error("no certificate could be made for the ssh key: {0}")]
    SelfSign(#[from] rcgen::Error),
    /// rustls refused the material.
    #[error("TLS: {0}")]
    Refused(Error),
}

impl TlsConfigError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            TlsConfigError::NoAuthority { .. } => {
                "give the certificate of the CA (ca.pem), not one that it has issued"
            }
            TlsConfigError::ForeignList { .. } => {
                "give the certificate of that CA too, or leave its list out"
            }
            TlsConfigError::NotForServers { .. } => "make one with `carrack keys issue NAME --server HOST`",
            TlsConfigError::NotForClients { .. } => "make one with `carrack keys issue NAME`",
            TlsConfigError::NobodyAdmitted => {
                "make a CA with `carrack keys init`, or list people's ssh keys in a public keys file"
            }
            TlsConfigError::NoRoots(_) => "put the server's ca.pem to ~/.config/carrack/ca.pem",
            TlsConfigError::EncryptedKey => {
                "a program can't ask for its passphrase; make a key for carrack with `ssh-keygen -t ed25519 -N ''`, \
                 or use a certificate"
            }
            TlsConfigError::KeyType(_) => "make one with `ssh-keygen -t ed25519`",
            TlsConfigError::Refused(Error::InconsistentKeys(_)) => {
                "certificate and key are not a pair; give both of one"
            }
            _ => return None,
        })
    }
}

/// Advice for a failed handshake, by rustls' error at either end.
pub fn handshake_hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidCertificate(refusal) => hint_of_refusal(refusal),
        Error::AlertReceived(alert) => hint_of_alert(*alert),
        Error::NoCertificatesPresented => Some("the other end shows no certificate, and has to"),
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
            Some("the other end is not carrack, or one of another version")
        }
        _ => None,
    }
}

fn hint_of_refusal(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::Expired | Refusal::ExpiredContext { .. } => {
            "the certificate has expired; issue a new one with `carrack keys issue`"
        }
        Refusal::NotValidYet | Refusal::NotValidYetContext { .. } => {
            "the certificate is not valid yet; check the clocks of both hosts"
        }
        Refusal::UnknownIssuer => {
            "nobody here trusts who signed it; a client finds its server's CA in ~/.config/carrack/ca.pem"
        }
        Refusal::NotValidForName | Refusal::NotValidForNameContext { .. } => {
            "use a name that the server's certificate is for, or issue one for this name"
        }
        Refusal::InvalidPurpose | Refusal::InvalidPurposeContext { .. } => {
            "servers need certificates of `carrack keys issue --server`, clients those without it"
        }
        _ => return None,
    })
}

/// Advice by the server's alert about a client's certificate.
fn hint_of_alert(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired => {
            "the server wants to know you: put identity.pem and identity-key.pem into ~/.config/carrack"
        }
        AlertDescription::UnknownCA => "the server does not know who signed your certificate, or your key",
        AlertDescription::CertificateExpired => "your certificate has expired; ask for a new one",
        AlertDescription::CertificateRevoked => "your certificate is revoked; ask for a new one",
        AlertDescription::ProtocolVersion | AlertDescription::NoApplicationProtocol => {
            "the other end is not carrack, or one of another version"
        }
        _ => return None,
    })
}
