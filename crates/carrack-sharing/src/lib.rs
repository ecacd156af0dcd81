//! Sharing a file system's targets between transfers: the meta-scheduler's server, which grants them (L10,
//! L13), and the load of computation on them (L11, [`health`]).
//!
//! `carrack_plan::grants` decides. This crate adds the clock, the lock, and limits on the requests of
//! clients. It neither carries messages nor authenticates clients: `carrack serve` does so over HTTP
//! (`carrack-service`), and in a fleet a manager for each site over NATS (`carrack-cluster`).

pub mod health;
mod meta_scheduler;
mod settings;

pub use meta_scheduler::{BatchRefusal, MetaSchedulerServer};
pub use settings::{DEFAULT_CLASS, SharingSettings, SiteSharing};
