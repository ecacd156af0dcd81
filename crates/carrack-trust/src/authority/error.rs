//! What keeps an authority from doing what was asked.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::certificate::CertificateError;
use crate::name::NameError;
use crate::pem::PemError;
use crate::token::MintError;

/// Why nothing was made, or revoked.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// A file is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// There is no authority in this directory.
    #[error("there is no authority in {}", .0.display())]
    Missing(PathBuf),
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file of the authority's can't be understood.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// `ca-key.pem` is not the key of `ca.pem`.
    #[error("ca.pem and ca-key.pem are not a pair")]
    NoPair,
    /// The authority's own time is over.
    #[error("the authority itself has expired")]
    Over,
    /// Files can't have this name.
    #[error(
        "{0:?} can't be the name of files: letters, digits, '.', '-', '_' and '@', not one of the authority's own"
    )]
    FileName(String),
    /// A server's name.
    #[error("{0:?} is no host name or address")]
    HostName(String),
    /// A server without any.
    #[error("a server needs at least one host name or address")]
    NoHostName,
    /// Whom a certificate is about.
    #[error("the subject: {0}")]
    Subject(#[from] NameError),
    /// A subject that certificates have no room for.
    #[error("a subject has at most {} bytes", super::MAX_SUBJECT_BYTES)]
    SubjectTooLong,
    /// A certificate of no time.
    #[error("a certificate lives at least one second")]
    Lifetime,
    /// Nothing of this name or number was issued here.
    #[error("nothing was issued here as {0:?}")]
    Unknown(String),
    /// What should be a certificate.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// What should be a certificate.
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
    /// What the user can do.
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
