//! Sharing a file system's targets between transfers: the meta-server that grants them (L10, L13), and what computation does to
//! them (L11, [`health`]).
//!
//! How it decides is `carrack_plan::grants`; what is here is its clock, its lock, and the limits on what clients may ask of it. Who carries
//! the messages, and how it is known from whom they are, is not its matter: `carrack serve` does so over HTTP (`carrack-service`), and in a
//! fleet a manager for each site over NATS (`carrack-cluster`).

pub mod health;
mod meta_server;
mod settings;

pub use meta_server::{MetaServer, Refusal};
pub use settings::{DEFAULT_CLASS, SharingSettings, SiteSharing};
