//! The commands over HTTP: one server for the queue of a machine and for a fleet, and the client for it.
//!
//! A caller is authenticated by the Unix socket's peer credentials or by a token ([`ApiAuth`]). This module
//! decides about the caller's identity and the token's rights only; the [`TransferOperations`] behind it
//! decides about rights to a transfer.
//!
//! [`TransferOperations`]: carrack_register::transfer_operations::TransferOperations

mod auth;
mod client;
mod grants;
mod listeners;
mod metrics;
mod no_queue;
mod problem;
mod routes;
mod server;
mod server_config;
mod sse;
#[cfg(test)]
mod tests;
mod unproved_connections;
mod watch_client;

pub use auth::ApiAuth;
pub use client::{ApiClient, BadServerAddress, ServerAddress};
pub use listeners::{ApiListener, ListenError};
pub use no_queue::RefusingTransferOperations;
pub use problem::ApiProblem;
pub use server::{ApiServices, openapi, serve_api};
pub use server_config::{ApiIssuer, ApiPlan, ApiServerConfigError};
