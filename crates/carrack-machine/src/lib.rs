//! The machine's memory and waiting: slot pools and the queues in which threads wait for them.
//!
//! Knows neither files nor peers. Topology and placement will join it.

mod monitor;
mod pool;

pub use monitor::{Attempt, Closed, Monitor};
pub use pool::{PoolError, Slot, SlotPool};
