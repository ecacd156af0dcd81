//! Sessions of the engine: both ends in one process, over every kind of channel, with peers that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Also in helpers.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod browse;
mod by_itself;
mod chunks;
mod copy;
mod data_connections;
mod hostile_peer;
mod lanes;
mod protection;
mod resume;
mod retry;
mod scheduling;
mod sharing;
mod specials;
mod third_party;
mod tls;
mod verify;
