//! The fleet (Y1 to Y6): movers, managers and their queues on NATS JetStream.
//!
//! No payload passes through NATS, and NATS never has the only record of moved data (decision 18).

pub mod bus;
pub mod client;
pub mod curves;
pub mod destination_leftovers;
pub mod error;
pub mod log;
pub mod manager;
pub mod mover;
pub mod mover_requests;
pub mod pairs;
pub mod queue;
pub mod registry;
pub mod reports;
pub mod sharing;
mod startup_retry;
mod store;
pub mod subjects;
pub mod transfer_lease;
pub mod transfers;
mod unique_ids;

use carrack_register::{transfer_operations, transfer_records};
