//! The daemon, its sessions and its attackers; the clients are the engine within the test's own process.
#![allow(clippy::unwrap_used)] // Also in helpers.

#[path = "../common/mod.rs"]
mod common;
#[path = "../daemon/mod.rs"]
mod daemon;

mod abuse;
mod hostile;
mod race;
mod serve;
mod sharing;
