//! The fault campaign: real processes, a network that breaks, and what has to be true after every fault.

#![allow(clippy::unwrap_used)] // A campaign that can't go on says so with its seed.

pub mod attempt;
pub mod campaign;
pub mod chance;
pub mod double;
pub mod fault;
pub mod injector;
pub mod network;
pub mod plan;
pub mod processes;
pub mod promises;
pub mod set;
pub mod shim;
pub mod stage;
pub mod verdict;
