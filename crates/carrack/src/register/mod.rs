//! The state that carrack keeps for its user between commands: the register of copies, and the history of
//! tuners.
//!
//! Submitted transfers are in registers of their own, of a machine's queue or of a fleet
//! (`carrack-register`); the commands that list and follow transfers show both.

pub mod background;
pub mod copies;
pub mod home_directory;
pub mod process;
pub mod state_directory;
mod status_recorder;
pub mod transfer_id;
pub mod tuner_store;

pub use copies::{CopyProgressRecord, CopyStore, LocalCopyRecord, NotedCopy, no_register_error};
pub use status_recorder::{CopyLogFile, CopyStatusRecorder};
