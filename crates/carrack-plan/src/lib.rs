//! Scheduling of a transfer: layouts, cutting into objects and bundles, and target queues.
//!
//! A file lies on storage targets ([`Layout`]); a [`FileCursor`] cuts it into objects on stripe edges (L1), a
//! [`Bundler`] gathers small files into bundles (M7), and [`TargetQueues`] hands both out, target by target
//! (L2). [`fleet`] has the decisions of a fleet of movers, [`grants`] the sharing of a file system's targets,
//! [`forecast`] the expected load of targets, and [`tuner`] the number of threads and streams of a session.
//!
//! Everything here is pure: no I/O, no clock, no threads, no chance. The simulator runs the same code.

mod backoff;
mod bundle;
mod congestion_control;
mod cut;
pub mod fleet;
pub mod forecast;
pub mod grants;
mod layout;
mod pace;
mod policy;
mod spill;
mod target_queues;
mod timetable;
pub mod tuner;

pub use backoff::Backoff;
pub use bundle::{
    Bundle, BundleLimits, BundleOrLargeFile, Bundler, entry_table_bytes, extras_table_bytes,
    section_table_bytes,
};
pub use congestion_control::{BbrConnections, CongestionControlTrial, ConnectionSample};
pub use cut::{FileCursor, ObjectExtent};
pub use layout::{BlockMapLayout, CompositeLayout, Extent, Layout, SingleTarget, StripedLayout};
pub use pace::{RateCaps, RateLimits, RatePacer};
pub use policy::{
    AdaptivePolicy, IoQueueArrivalPattern, RoundRobinPolicy, SchedulingPolicy, StorageRequestTiming,
    TargetCongestion, TargetState, ThresholdPolicy, create_policy, slow_targets,
};
pub use spill::{SpillGate, SpillVerdict, SpillWindowSample};
pub use target_queues::TargetQueues;
pub use timetable::{RateTimetable, ScheduledRateLimits, TimetableProblem, minute_of};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
