//! Topologies of machines and the placement of threads on them: one program, one link.

#![allow(clippy::unwrap_used)] // Also in helpers.

mod common;
mod golden_files;
mod properties;
mod topologies;
