//! The errors of load measurement.

use std::path::PathBuf;

use carrack_plan::forecast::CsvError;

/// The reason why Prometheus' measurements, or a history, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadMonitorError {
    /// Prometheus does not answer in time. The same may succeed later.
    #[error("Prometheus at {address}: {reason}")]
    Away {
        /// The server's address.
        address: String,
        /// The error.
        reason: String,
    },
    /// Prometheus refuses the query.
    #[error("Prometheus at {address} refuses the query {query}: {reason}")]
    Refused {
        /// The server's address.
        address: String,
        /// The query in PromQL.
        query: String,
        /// Prometheus' error text.
        reason: String,
    },
    /// An answer is longer than the limit.
    #[error("Prometheus at {address}: its answer is longer than {most} bytes")]
    TooLong {
        /// The server's address.
        address: String,
        /// The limit in bytes.
        most: usize,
    },
    /// The server is not Prometheus, or answers in an unknown form.
    #[error("{address} answers, but not as Prometheus does: {reason}")]
    Strange {
        /// The server's address.
        address: String,
        /// The problem.
        reason: String,
    },
    /// The settings have no query.
    #[error("nothing says what Prometheus is to be asked")]
    NoQuery,
    /// A file can't be read.
    #[error("{path}: {reason}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A history's text is invalid.
    #[error("{path}: {error}", path = .path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// The line and the reason.
        error: CsvError,
    },
    /// The system lacks a resource for the query.
    #[error("preparing to ask Prometheus: {0}")]
    System(String),
}

impl LoadMonitorError {
    /// Advice for an administrator.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            LoadMonitorError::Away { .. } => {
                "is it running, and does this host reach it? `curl ADDRESS/-/ready` tells"
            }
            LoadMonitorError::Refused { .. } => {
                "try the query in Prometheus' own page; docs/forecast.md has the presets'"
            }
            LoadMonitorError::TooLong { .. } => {
                "let the queries select fewer series, such as those of one file system"
            }
            LoadMonitorError::Strange { .. } => {
                "the address is that of the server's root, such as http://monitor:9090"
            }
            LoadMonitorError::NoQuery => {
                "name a preset (lustre_exporter, ceph or node_exporter), or write read_bytes and write_bytes"
            }
            LoadMonitorError::File { .. } | LoadMonitorError::Csv { .. } | LoadMonitorError::System(_) => {
                return None;
            }
        })
    }
}
