//! The common types of carrack: IDs, units, ranges, limits, entries, errors, the transfer specification and
//! the events of a transfer.
//!
//! Every other crate uses them. No code here does I/O, reads a clock or starts a thread.

mod account_map;
mod checksum;
mod congestion_control;
mod durability;
mod entry;
mod error;
mod error_text;
mod event;
mod extras;
mod fidelity_options;
mod file_flags;
mod ids;
pub mod json_bytes;
pub mod limits;
mod loss;
mod mode_change;
mod partial_range;
mod path;
mod protection;
mod quantity;
mod range;
mod scheduling_policy;
mod selection;
mod spec;
mod special;

pub use account_map::{BadAccountMap, FileOwnerMap, FileOwnerRule, MappedAccounts, account};
pub use checksum::ObjectChecksumAlgorithm;
pub use congestion_control::{BadCongestionControlName, CongestionControlChoice};
pub use durability::{Durability, WriteVerification};
pub use entry::{CopiedDirectoryPaths, DirectorySection, Entry, EntryKind, Metadata, Timestamp};
pub use error::{EntryFailure, FailureKind, FailureScope, FailureSide, RetryAdvice};
pub use error_text::text_without_errno;
pub use event::{
    LaneReport, LargeFileProgress, LimitingStage, RepeatEffect, ResolvedDestination, SIZE_CLASSES,
    SourceReport, StageFill, StorageDelay, TargetReport, TransferEvent, TransferProgress, TransferSummary,
    UserNotice, size_class,
};
pub use extras::{
    CompleteAttributeKinds, ExtendedAttribute, ExtraMetadata, ExtraMetadataError, HardLinkTarget,
    KeptMetadata, MetadataFidelity, NO_NUMBER, UserOrGroup,
};
pub use fidelity_options::{ChownOption, FidelityOptions};
pub use file_flags::{APPEND_ONLY, FileFlags, IMMUTABLE, NO_DUMP};
pub use ids::{FileId, NotATransferId, ObjectId, ServerId, TargetId, TransferExecutionId, TransferId};
pub use loss::{MetadataLoss, MetadataLossKind};
pub use mode_change::{BadModeChange, ModeChange};
pub use partial_range::PartialCopyRange;
pub use path::{PathProblem, RelPath, check_name, escape};
pub use protection::{ProtectionLevel, SealCipher};
pub use quantity::{parse_duration, parse_moment, parse_past_moment, parse_size};
pub use range::{ByteRange, RangeSet};
pub use scheduling_policy::{SchedulingOptions, SchedulingPolicyChoice, UnknownSchedulingPolicy};
pub use selection::{FilterLanguage, LinkPolicy, ScanSelection, SelectedPaths};
pub use spec::{
    AgreedTransferSpec, DeletionBackup, DeletionRules, DialingEnd, ModifyWindow, SinkIoMethod,
    SourceReadMethod, StripeChoice, SyncRules,
};
pub use special::{DeviceNumber, SpecialFile};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
