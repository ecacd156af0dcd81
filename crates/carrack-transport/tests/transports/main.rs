//! The conformance suite on each transport: one program, one link.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod conformance;
#[cfg(feature = "fabric")]
mod fabric;
