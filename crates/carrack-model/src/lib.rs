//! The common types of carrack: IDs, units, ranges, limits, entries, errors, the transfer specification and
//! the events of a transfer.
//!
//! Every other crate uses them. No code here does I/O, reads a clock or starts a thread.

mod account_map;
mod checksum;
mod durability;
mod entry;
mod error;
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
mod plain;
mod protection;
mod quantity;
mod range;
mod scheduling_policy;
mod selection;
mod spec;
mod special;

pub use account_map::{AccountMap, AccountRule, AccountSelector, BadAccountMap, account};
pub use checksum::ObjectChecksum;
pub use durability::{Durability, WriteVerification};
pub use entry::{Directory, DirectorySection, Entry, EntryKind, Metadata, Timestamp};
pub use error::{EntryFailure, FailureKind, FailureScope, FailureSide, RetryAdvice};
pub use event::{
    DestinationName, FileReport, LaneReport, LimitingStage, RepeatEffect, SIZE_CLASSES, SourceReport,
    StageFill, TargetReport, TransferEvent, TransferNotice, TransferProgress, TransferSummary, size_class,
};
pub use extras::{
    AccountRef, BadExtra, CompleteKinds, ExtendedAttribute, ExtraMetadata, HardLinkTarget, KeptMetadata,
    MetadataFidelity, NO_NUMBER,
};
pub use fidelity_options::{ChownOption, FidelityOptions};
pub use file_flags::{APPEND_ONLY, FileFlags, IMMUTABLE, NO_DUMP};
pub use ids::{CommandToken, FileId, NotATransferId, ObjectId, TargetId, TransferId};
pub use loss::{LossKind, MetadataLoss};
pub use mode_change::{BadModeChange, ModeChange};
pub use partial_range::PartialRange;
pub use path::{PathProblem, RelPath, check_name, escape};
pub use plain::plain;
pub use protection::{ProtectionLevel, SealCipher};
pub use quantity::{parse_duration, parse_moment, parse_past_moment, parse_size};
pub use range::{ByteRange, RangeSet};
pub use scheduling_policy::{PolicyChoice, PolicyProblem, SchedulingOptions};
pub use selection::{LinkPolicy, NameList, ScanSelection};
pub use spec::{
    DeletionBackup, DeletionRules, DialFrom, ModifyWindow, SinkIo, SourceIo, StripeChoice, SyncRules,
    TransferSpec,
};
pub use special::{DeviceNumber, SpecialFile};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
