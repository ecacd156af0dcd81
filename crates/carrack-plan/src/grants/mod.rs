//! Sharing of a file system: which clients may work on which targets, and for how long (L10, L11, L13, L15).
//!
//! One [`GrantServer`] for each file system keeps, for each target, the clients that wait for it and those
//! that may use it. Every transfer has a [`GrantClient`] at each end, next to its target queues. Client and
//! server exchange [`GrantClientReport`]es and [`GrantReply`]s, a few a second; the caller transports them.
//! `docs/design/sharing-planning.md` has the rules and the proof that no client starves.
//!
//! Nothing here knows a clock, a network or another thread.

mod client;
mod client_target;
mod clients;
mod computation_load;
mod granted_policy;
mod holding;
mod messages;
mod rate_guarantees;
mod server;
mod session_parties;
mod settings;
mod target;
mod turns;
mod view;

pub use client::{GrantClient, GrantClientSettings, GrantServerPresence};
pub use computation_load::{SHARE_MIN, TargetComputeLoad, share_left};
pub use granted_policy::{GrantGate, GrantGatedPolicy};
pub use messages::{
    GrantClientReport, GrantReply, GrantRequest, GrantUseReport, MovedBytes, TargetGrant,
    TransferDeadlineDemand,
};
pub use server::GrantServer;
pub use settings::{GrantClientClass, GrantSettings, GrantWaitBound, RESERVED_TO_FAIR};
pub use view::{SharedTargetStatus, ViewOfHolder, WaitingClientView};

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod parties_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod simulation;
