//! The register of transfers: their records, and the operations by which users submit, list, watch and change
//! them, in the queue of one machine or in a fleet.
//!
//! The storage of records is elsewhere: `carrack-service` has SQLite and HTTP, `carrack-cluster` has NATS.

pub mod transfer_operations;
pub mod transfer_records;
