//! `carrack serve`: a daemon that answers sessions on one port.
//!
//! A small parent, one thread with one loop, accepts connections, tells control connections from data connections by
//! their first bytes, bounds what strangers may do, and starts one process for each control connection. That process
//! does what is dangerous or slow: TLS, finding out who is there, and the session. The two speak over a socket pair
//! (`errand`); data connections are handed on over another. The parent never reads what a stranger says beyond the
//! first 52 bytes; the child never has more rights than its client once it knows who that is.

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

pub use child::serve_session;
pub use config::{Config, ConfigError, DEFAULT_PORT, Export, Limits, MAX_CONFIG_BYTES, Rule};
pub use log::Verbosity;
pub use material::{Material, MaterialError};
pub use parent::{Plan, ServeError, serve};
