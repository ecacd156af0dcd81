//! A fleet of real processes on hosts of its own: network namespaces, NATS servers, movers, managers, and what they carry.

#![allow(clippy::unwrap_used)] // A stage that can't be set says so.

pub mod data;
pub mod illness;
pub mod network;
pub mod old_mover;
pub mod program;
pub mod stage;
