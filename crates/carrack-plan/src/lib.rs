//! What moves next and in which pieces: layouts, cutting into objects and bundles, queues for each target.
//!
//! A file lies on storage targets ([`Layout`]); a [`FileCursor`] cuts it into objects on stripe edges (L1), a
//! [`Bundler`] gathers small files into bundles (M7), and [`TargetQueues`] hands both out, target by target (L2).
//! What a fleet of movers decides is in [`fleet`], who may use a shared file system's targets in [`grants`], what load targets are
//! expected to have in [`forecast`], how many threads and streams a session uses in [`tuner`].
//!
//! Everything here is pure: no I/O, no clock, no threads, no chance. The simulator runs the same code.

mod backoff;
mod bundle;
mod cut;
pub mod fleet;
pub mod forecast;
pub mod grants;
mod layout;
mod pace;
mod policy;
mod queue;
mod spill;
mod timetable;
pub mod tuner;

pub use backoff::Backoff;
pub use bundle::{
    Bundle, BundleLimits, Bundler, Work, entry_table_bytes, extras_table_bytes, section_table_bytes,
};
pub use cut::{FileCursor, ObjectExtent};
pub use layout::{Composite, Extent, Layout, Mapped, SingleTarget, Striped};
pub use pace::{Pace, RateLimits, Rates};
pub use policy::{Adaptive, Feed, Policy, RoundRobin, Service, TargetState, Threshold, Verdict, policy};
pub use queue::TargetQueues;
pub use spill::{SpillGate, SpillVerdict, SpillWindow};
pub use timetable::{RateSteps, Timetable, TimetableProblem, minute_of};
