//! Scheduling in virtual time: one machine's queues, the grants' messages, whole fleets.

mod congestion;
mod fleet;
mod grants;
