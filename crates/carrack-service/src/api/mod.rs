//! The verbs over HTTP: one server for the queue of a machine and for a fleet, and the client that goes with it.
//!
//! Who asks is known by the Unix socket's peer credentials or by a token ([`ApiAuth`]). All that is decided here is who that is
//! and whether the token goes so far; what may be done with a transfer is the matter of the [`Control`] behind it.
//!
//! [`Control`]: carrack_register::control::Control

mod auth;
mod client;
mod grants;
mod listeners;
mod metrics;
mod no_queue;
mod plan;
mod problem;
mod routes;
mod server;
mod sse;
mod strangers;
#[cfg(test)]
mod tests;
mod watching;

pub use auth::ApiAuth;
pub use client::{ApiClient, NotAServer, Server};
pub use listeners::{ApiListener, ListenError};
pub use no_queue::NoQueue;
pub use plan::{ApiIssuer, ApiPlan, ApiPlanError};
pub use problem::Problem;
pub use server::{Services, openapi, serve_api};
