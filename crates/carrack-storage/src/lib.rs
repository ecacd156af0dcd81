//! File access of a transfer: the parallel scan, reads at the source, writes at the sink, and path resolution
//! that is confined to a held directory.
//!
//! The crate makes plain system calls through `rustix` and runs on Linux 4.18 or newer; newer calls have
//! fallbacks. It makes no scheduling decision and knows no network. Only the scan starts threads, and it
//! joins them before it returns.

mod account_names;
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
mod filter_rules;
mod folded_names;
mod link_spool;
mod link_time_support;
mod losses;
mod modes;
mod root;
mod scan;
mod sink_error;
mod small_file_placement;
mod source_error;
mod source_file;
mod source_owner_maps;
mod source_pattern;
mod special;
mod status;
mod stored_times;
mod surrounding_bytes;
mod temporary_names;
pub mod typed_path;
mod uncommitted_file;
mod writeback_wait;

pub use attribute_writer::{AttributeWriter, MetadataToSet, unknown_account};
pub use base::{EntryPlace, PathBase, PathPurpose, PathStatResult};
pub use browse::{
    BrowsedKind, EntryStatResult, ListedEntry, ListingItem, RemovalEvent, RemovalExclusion,
    RemovalPreviewCount, RemovalStep, TreeRemovalResult, count_removable, link_text, read_entry_state,
    remove_in,
};
pub use directory_access::{ChangedDirectoryModes, RestoredDirectorySelection};
pub use directory_spool::DirectoryMetadataSpool;
pub use durable::{
    CommitCare, FsyncBeforeCommit, FsyncMethod, device_of, preserve_times, read_back, readback_matches,
    sync_all, sync_data, sync_directories, sync_directory, sync_file, sync_file_system,
};
pub use existing_entry::{
    ExistingEntry, ExistingFileTimes, digest_of, file_times, read_existing_entry, set_file_metadata,
};
pub use extras_source::ExtraMetadataReader;
pub use filter_rules::{
    DirectoryRules, OwnDirectoryRules, RsyncMergeRule, RsyncRule, RsyncRuleError, rule_lines,
};
pub use folded_names::{CaseFoldingDirectory, FoldedNames};
pub use link_spool::{HardLinkCreationContext, LinkCreationCounts, LinkSpool};
pub use losses::MetadataLossCounter;
pub use modes::{ModePolicy, narrow_directory};
pub use root::{DirectoryRelativeName, RootDirectory};
pub use scan::{
    AbsenceProofFailure, BadPattern, DeletionCircumstances, FilteredDirectory, ScanFilter, ScanListingProof,
    ScanRetries, ScanRoot, ScanRootScope, ScannedItem, SourceScan,
};
pub use sink_error::SinkError;
pub use small_file_placement::{SmallContent, clear_umask, place_small, place_symlink, users_umask};
pub use source_error::SourceError;
pub use source_file::{ScannedFileState, SmallFile, SourceFile, read_small};
pub use source_pattern::SourceNameWildcard;
pub use special::{place_special, set_special_metadata};
pub use status::{FileIdentity, FileStamp, MountIdentity};
pub use stored_times::{DestinationTimePrecision, are_within, may_be_stored, time_unit_of};
pub use temporary_names::ScratchNames;
pub use uncommitted_file::{CommitRename, NewLargeFileSpec, UncommittedFile, WriteIoMethod, can_resume};
