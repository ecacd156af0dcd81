//! Fleets, and the metadata that copies keep, also through a fleet.
#![allow(clippy::unwrap_used)] // Also in helpers.

#[path = "../common/mod.rs"]
mod common;
#[path = "../daemon/mod.rs"]
mod daemon;

mod fidelity;
mod fleet;
