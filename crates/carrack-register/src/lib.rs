//! Submitted transfers, whoever carries them out: the queue of one machine or a fleet. Their records, and the verbs by which users
//! submit, list, watch and change them.
//!
//! Nothing here knows where the records are kept: `carrack-service` has SQLite and HTTP, `carrack-cluster` has NATS.

pub mod control;
pub mod records;
