//! `carrack serve`: a daemon that serves sessions on one port, and the queue of a machine.
//!
//! A small parent, one thread with one loop, accepts connections, tells control connections from data
//! connections by their first bytes, limits the load from strangers, and starts one process for each control
//! connection. The dangerous and the slow parts run in that process: TLS, authentication, and the session.
//! The two speak over a socket pair (`errand`); data connections are passed over another. The parent never
//! reads more than the first 52 bytes from a stranger; once the child knows its client, it has no more rights
//! than the client.
//!
//! The machine's queue ([`queue`]) and its meta-server ([`sharing`]) may run as well, in a process of their
//! own. They serve HTTP ([`api`]), as the server of a fleet does.

pub mod api;
mod audit;
mod child;
mod config;
mod export_path;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod material;
mod parent;
pub mod queue;
mod session_messages;
pub mod sharing;

pub use child::serve_session;
pub use config::{
    AccessRule, ConfigError, DEFAULT_PORT, DEFAULT_SHARING_SOCKET, DEFAULT_SOCKET, DaemonConfig,
    DaemonLimits, ExportConfig, MAX_CONFIG_BYTES, QueueConfig, SharingConfig,
};
pub use log::{DaemonLog, LogVerbosity};
pub use material::{CredentialMaterial, MaterialError};
pub use parent::{ServeError, ServePlan, check_config, serve, serve_local_config_file};
