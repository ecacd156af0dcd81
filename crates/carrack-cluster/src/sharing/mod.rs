//! Sharing a file system's targets between transfers: the meta-server that grants them (L10, L13), and what computation does to
//! them (L11, [`health`]).
//!
//! How it decides is `carrack_plan::grants`; what is here is its clock, its lock, and the limits on what clients may ask of it. Who carries
//! the messages, and how it is known from whom they are, is not its matter: `carrack serve` does so over HTTP, and in a fleet a manager for each site
//! over NATS (`site.rs`, `over_nats.rs`; `site_targets.rs` is an operator's way to look).

pub mod health;
mod meta_server;
mod over_nats;
mod settings;
pub(crate) mod site;
mod site_targets;

pub use meta_server::{MetaServer, Refusal};
pub(crate) use over_nats::OverNats;
pub use settings::{DEFAULT_CLASS, SharingSettings, SiteSharing};
pub use site_targets::{SiteTargetsError, site_targets};
