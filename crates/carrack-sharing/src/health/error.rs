//! What keeps load from being known.

use std::path::PathBuf;

use carrack_plan::forecast::CsvError;

/// Why Prometheus' measurements, or a history, can't be had.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// Nobody answers, or not in time. The same may work later.
    #[error("Prometheus at {address}: {reason}")]
    Away {
        /// Where it was asked.
        address: String,
        /// How it showed.
        reason: String,
    },
    /// It answers that it can't answer.
    #[error("Prometheus at {address} refuses the query {query}: {reason}")]
    Refused {
        /// Where it was asked.
        address: String,
        /// What it was asked, in PromQL.
        query: String,
        /// Its words.
        reason: String,
    },
    /// An answer is longer than is read.
    #[error("Prometheus at {address}: its answer is longer than {most} bytes")]
    TooLong {
        /// Where it was asked.
        address: String,
        /// Bytes that are read.
        most: usize,
    },
    /// Whatever answers there is no Prometheus, or one of an unknown kind.
    #[error("{address} answers, but not as Prometheus does: {reason}")]
    Strange {
        /// Where it was asked.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// The settings say no query.
    #[error("nothing says what Prometheus is to be asked")]
    NoQuery,
    /// A file can't be used.
    #[error("{path}: {reason}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A history's text can't be used.
    #[error("{path}: {error}", path = .path.display())]
    Csv {
        /// Which.
        path: PathBuf,
        /// Where and why.
        error: CsvError,
    },
    /// What is needed to ask can't be had from the system.
    #[error("preparing to ask Prometheus: {0}")]
    System(String),
}

impl HealthError {
    /// What an administrator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            HealthError::Away { .. } => {
                "is it running, and does this host reach it? `curl ADDRESS/-/ready` tells"
            }
            HealthError::Refused { .. } => {
                "try the query in Prometheus' own page; docs/forecast.md has the presets'"
            }
            HealthError::TooLong { .. } => {
                "let the queries select fewer series, such as those of one file system"
            }
            HealthError::Strange { .. } => {
                "the address is that of the server's root, such as http://monitor:9090"
            }
            HealthError::NoQuery => {
                "name a preset (lustre_exporter, ceph or node_exporter), or write read_bytes and write_bytes"
            }
            HealthError::File { .. } | HealthError::Csv { .. } | HealthError::System(_) => return None,
        })
    }
}
