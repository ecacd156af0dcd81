//! `carrack serve`: a daemon that answers sessions on one port, and the queue of a machine.
//!
//! A small parent, one thread with one loop, accepts connections, tells control connections from data connections by
//! their first bytes, bounds what strangers may do, and starts one process for each control connection. That process
//! does what is dangerous or slow: TLS, finding out who is there, and the session. The two speak over a socket pair
//! (`errand`); data connections are handed on over another. The parent never reads what a stranger says beyond the
//! first 52 bytes; the child never has more rights than its client once it knows who that is.
//!
//! Beside it the machine's queue ([`queue`]) and its meta-server ([`sharing`]) may run, in a process of their own. They answer over
//! HTTP ([`api`]), as the server of a fleet does.

pub mod api;
mod audit;
mod child;
mod config;
mod errand;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod material;
mod parent;
mod path;
pub mod queue;
pub mod sharing;

pub use child::serve_session;
pub use config::{
    Config, ConfigError, DEFAULT_PORT, DEFAULT_SHARING_SOCKET, DEFAULT_SOCKET, Export, Limits,
    MAX_CONFIG_BYTES, QueueConfig, Rule, SharingConfig,
};
pub use log::{Log, Verbosity};
pub use material::{Material, MaterialError};
pub use parent::{Plan, ServeError, check, serve, serve_local_of};
