//! The fleet's parts on NATS, with real servers (`testbed/nats`). Where there is none and none can be built,
//! the tests say so and are skipped.

#![allow(clippy::unwrap_used)]

mod bus;
mod chunks;
mod deleting;
mod emptied;
mod history;
mod logins;
mod members;
mod samples;
mod sharing;
mod support;
mod telling;
mod waiting;
mod whole;
