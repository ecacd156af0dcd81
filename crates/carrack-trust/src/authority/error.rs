//! The errors of an authority.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::certificate::CertificateError;
use crate::name::IdentityNameError;
use crate::pem::PemError;
use crate::token::MintError;

/// The reason why nothing was issued or revoked.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// A file already exists.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The directory has no authority.
    #[error("there is no authority in {}", .0.display())]
    Missing(PathBuf),
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file of the authority can't be read.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// `ca-key.pem` is not the key of `ca.pem`.
    #[error("ca.pem and ca-key.pem are not a pair")]
    NoPair,
    /// The authority has expired.
    #[error("the authority itself has expired")]
    Over,
    /// The name is not usable for files.
    #[error(
        "{0:?} can't be the name of files: letters, digits, '.', '-', '_' and '@', not one of the authority's own"
    )]
    FileName(String),
    /// The name is not a server's name.
    #[error("{0:?} is no host name or address")]
    HostName(String),
    /// A server's certificate without a name.
    #[error("a server needs at least one host name or address")]
    NoHostName,
    /// The subject is not a valid name.
    #[error("the subject: {0}")]
    Subject(#[from] IdentityNameError),
    /// The subject is longer than certificates allow.
    #[error("a subject has at most {} bytes", super::MAX_SUBJECT_BYTES)]
    SubjectTooLong,
    /// The lifetime is zero.
    #[error("a certificate lives at least one second")]
    Lifetime,
    /// Nothing with this name or number was issued here.
    #[error("nothing was issued here as {0:?}")]
    Unknown(String),
    /// The file is not a certificate.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The certificate can't be read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Making keys, certificates or lists failed.
    #[error("the certificate or the list could not be made: {0}")]
    Making(#[from] rcgen::Error),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The authority's key for tokens can't be used.
    #[error("the key for tokens: {0}")]
    Token(#[from] MintError),
}

impl AuthorityError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            AuthorityError::Exists(_) => "move it away first, or choose another name or directory",
            AuthorityError::Missing(_) => {
                "make one with `carrack keys init`, or name its directory with --dir"
            }
            AuthorityError::Over => "make a new one with `carrack keys init` in another directory",
            AuthorityError::NoPair => "restore both from a backup",
            AuthorityError::Unknown(_) => "`carrack keys show FILE` prints a certificate's number",
            _ => return None,
        })
    }

    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AuthorityError {
        let path = path.into();
        |error| AuthorityError::Io { path, error }
    }

    pub(super) fn damaged(path: impl Into<PathBuf>, why: impl ToString) -> AuthorityError {
        AuthorityError::Damaged { path: path.into(), why: why.to_string() }
    }
}
