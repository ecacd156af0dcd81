//! The wire protocol of carrack: frames, messages, versions and the rules that a peer must keep.
//!
//! Encodes and decodes bytes: no sockets, no files, no clock. `docs/formats/wire.md` has the byte tables; the
//! tests of this crate encode its examples. All input comes from a peer that may lie: lengths are checked
//! before use, and no allocation follows a number that only the peer vouches for.

mod arrival_ledger;
pub mod auth;
mod entry_table;
mod frame;
pub mod message;
mod preamble;
mod ranges;
mod sync_message;
mod terms;
mod verify_message;

pub use arrival_ledger::{ArrivalLedger, ArrivalLedgerError, ArrivedObjectAction};
pub use entry_table::{
    EntryTableDecodeError, EntryTableDecoder, EntryTableEncoder, EntryTableItem, EntryTableRecord,
    decode_section, holes_table_bytes,
};
pub use frame::{FRAME_VERSION, FrameError, FrameHeader, FrameKind, HEADER_BYTES};
pub use preamble::{PREAMBLE_BYTES, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Preamble, PreambleError};
pub use ranges::{ranges_from_message, ranges_to_message};
pub use terms::{agreed_terms, from_json, spec_from_json, to_json};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
