//! The data path: the way of an object from the scan at the source to its place at the sink.
//!
//! Plain threads with bounded queues; no async runtime, no command line, no printing. [`session`] connects
//! the two ends, [`source`] reads and sends, [`sink`] receives and writes, [`comm`] is the thread at each end
//! that never blocks.
#![allow(rustdoc::private_intra_doc_links)]

mod abort;
mod check;
mod chunks;
mod comm;
mod context;
mod counters;
mod error;
mod examine;
mod fault;
mod gate;
mod grant_exchange;
mod idle;
mod lanes;
mod leftovers;
mod mailbox;
mod placed;
mod placement;
mod presence;
mod report;
mod role;
mod run;
mod session;
mod settings;
mod sharing;
mod sink;
mod source;
mod spill;
mod spill_settings;
mod stall;
mod tuner_memory;
mod verify;

pub use abort::Abort;
pub use carrack_storage::{Browsed, BrowsedKind};
pub use carrack_transport::{Channel, Door, TlsError};
pub use chunks::{Chunk, ChunkFeed, ChunkWork, FILE_COSTS_BYTES, Feed};
pub use error::{Again, SessionError};
pub use grant_exchange::{GrantExchange, Sharing};
pub use leftovers::{LeftoverError, clear_shared_leftovers, remove_temporaries};
pub use report::Observer;
pub use role::Role;
pub use run::{DataWay, Way, persist};
pub use session::{
    Admission, Advance, BrowseSummary, Browsing, Deed, Found, House, Operation, Outcome, OwnHouse, Request,
    beats_tcp, browse, browse_here, check_protection, copy_between, copy_local, copy_with_peer, serve,
    shared_journals,
};
pub use settings::{
    FabricWanted, FarEnds, JournalSettings, Peer, PoolShare, Settings, Transfer, TransferIdentity,
};
pub use spill_settings::{SpillDirectory, SpillSettings};
pub use tuner_memory::{History, TunerMemory};
pub use verify::{
    Difference, Examination, Examiner, Finding, Kept, KeptError, ManifestEntry, MetadataChecks,
    MetadataDifference, Verified, Verifying,
};
