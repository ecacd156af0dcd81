//! The data path: the way of an object from the scan at the source to its place at the sink.
//!
//! Plain threads with bounded queues; no async runtime, no command line, no printing. [`session`] connects
//! the two ends, [`source`] reads and sends, [`sink`] receives and writes, [`comm`] is the thread at each end
//! that never blocks.
#![allow(rustdoc::private_intra_doc_links)]

mod abort;
mod boot_clock;
mod chunks;
mod comm;
mod context;
mod counters;
mod error;
mod event_delivery;
mod examine;
mod first_error;
mod grant_exchange;
mod lanes;
mod leftovers;
mod mailbox;
mod object_checksum;
mod placement;
mod progress_timeout;
mod role;
mod session;
mod session_retries;
mod settings;
mod sharing;
mod sink;
mod source;
mod spill;
mod spill_settings;
mod stall;
mod storage_requests;
mod storage_retries;
mod suspension_detector;
mod thread_gate;
mod tuner_memory;
mod verify;
mod wire_layout;

pub use abort::AbortHandle;
pub use boot_clock::since_boot;
pub use carrack_storage::{BrowsedKind, ListedEntry};
pub use carrack_transport::{ControlChannel, ListenPoint, TlsHandshakeError};
pub use chunks::{ChunkFeedHandle, ChunkOfEntries, ChunkWorkKind, FILE_COSTS_BYTES, SourceChunkFeed};
pub use error::{RetryChance, SessionError};
pub use event_delivery::TransferObserver;
pub use grant_exchange::{GrantExchange, GrantExchangeHandle};
pub use leftovers::{LeftoverError, clear_shared_leftovers, remove_temporaries};
pub use role::SessionRole;
pub use session::{
    AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights, BrowseItem, FurthestSessionPoint,
    PathOperationRequest, ProcessOwnerAccessPolicy, RemotePathOperation, RemotePathOperationCounts,
    TransferOutcome, beats_tcp, check_protection, copy_between, copy_local, copy_with_peer,
    perform_local_operation, perform_remote_operation, serve, shared_journal_directory,
};
pub use session_retries::{DataPathFallback, SessionTransport, run_with_retries};
pub use settings::{
    EndSettings, FabricWanted, FarProgramSource, JournalSettings, PeerChannel, PoolReduction,
    ThirdPartyEndChannels, TransferIdentity, TransferRequest,
};
pub use spill_settings::{SpillDirectory, SpillSettings};
pub use tuner_memory::{TunerHistory, TunerMemory};
pub use verify::{
    EntryDifference, EqualEntriesFileError, EqualPairs, ManifestEntry, MetadataChecks, MetadataDifference,
    TreeVerification, VerifyEndExaminer, VerifyEndSettings, VerifyFinding, VerifyTotals,
};
