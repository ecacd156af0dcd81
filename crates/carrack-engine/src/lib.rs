//! The data path: what one object passes through, from the scan at the source to its place at the sink.
//!
//! Plain threads with bounded queues; no async runtime, no arguments, no printing. [`session`] makes the two ends meet,
//! [`source`] reads and sends, [`sink`] receives and writes, [`comm`] is the thread at each end that never blocks.
#![allow(rustdoc::private_intra_doc_links)]

mod abort;
mod check;
mod comm;
mod counters;
mod error;
mod fault;
mod ground;
mod idle;
mod lanes;
mod mailbox;
mod placed;
mod report;
mod session;
mod settings;
mod sink;
mod source;

pub use abort::Abort;
pub use carrack_storage::{Browsed, BrowsedKind};
pub use carrack_transport::{Channel, Door, TlsError};
pub use error::SessionError;
pub use report::Observer;
pub use session::{
    Admission, BrowseSummary, Browsing, Deed, Found, House, Operation, Outcome, OwnHouse, Request, browse,
    browse_here, check_protection, copy_between, copy_local, copy_with_peer, serve,
};
pub use settings::{FarEnds, Peer, Role, Settings, Transfer};
