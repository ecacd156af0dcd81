//! File access of a transfer: the parallel scan, reads at the source, writes at the sink, and path resolution
//! that is confined to a held directory.
//!
//! The crate makes plain system calls through `rustix` and runs on Linux 4.18 or newer; newer calls have
//! fallbacks. It makes no scheduling decision and knows no network. Only the scan starts threads, and it
//! joins them before it returns.

mod account_rules;
mod attribute_writer;
mod base;
mod beneath;
mod browse;
mod directory_access;
mod directory_spool;
mod durable;
mod existing_entry;
mod extras_source;
mod file_flags;
mod folded_names;
mod kept_bytes;
mod link_spool;
mod link_time_support;
mod losses;
mod modes;
mod root;
mod scan;
mod sink_error;
mod small_files;
mod source_error;
mod source_file;
mod source_pattern;
mod special;
mod status;
mod stored_times;
mod temporary_names;
pub mod typed_path;
mod uncommitted_file;
mod writeback_wait;

pub use attribute_writer::{AttributeWriter, CompletedMetadata, unknown_account};
pub use base::{EntryPlace, PathBase, PathPurpose, PathStatus};
pub use browse::{
    BrowsedKind, EntryState, ListedEntry, ListingItem, RemovalCount, RemovalEvent, RemovalResult,
    RemovalStep, Sparing, count_in, glance, link_text, remove_in,
};
pub use directory_access::{DirectoryAccess, ModeRestoreScope};
pub use directory_spool::DirectorySpool;
pub use durable::{
    CommitCare, SyncFirst, SyncMethod, device_of, holds, keep_times, read_back, sync_data, sync_directories,
    sync_directory, sync_file, sync_file_system, sync_whole,
};
pub use existing_entry::{ExistingEntry, FileTimes, digest_of, dress_file, file_times, look_at};
pub use extras_source::ExtrasReader;
pub use folded_names::{FoldedNames, FoldingDirectory};
pub use link_spool::{LinkCounts, LinkSpool, LinkWays};
pub use losses::LossCounter;
pub use modes::{ModePolicy, narrow_directory};
pub use root::{LocatedName, RootDirectory};
pub use scan::{
    BadPattern, DirectoryDoubt, ScanFilter, ScanRecord, ScanResult, ScanRoot, ScanRootScope, SourceScan,
};
pub use sink_error::SinkError;
pub use small_files::{SmallContent, clear_umask, place_small, place_symlink, users_umask};
pub use source_error::SourceError;
pub use source_file::{ExpectedState, SmallFile, SourceFile, read_small};
pub use source_pattern::NamePattern;
pub use special::{dress_special, place_special};
pub use status::{FileIdentity, FileStamp, MountIdentity};
pub use stored_times::{StoredTimes, are_within, may_be_stored, time_unit_of};
pub use temporary_names::ScratchNames;
pub use uncommitted_file::{GrowingSpec, UncommittedFile, WriteIo, can_resume};
