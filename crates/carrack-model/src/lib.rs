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
mod policy;
mod protection;
mod quantity;
mod range;
mod selection;
mod spec;
mod special;

pub use account_map::{AccountMap, AccountRule, BadAccountMap, Whose, account};
pub use checksum::Checksum;
pub use durability::{Durability, Verify};
pub use entry::{Directory, Entry, EntryKind, Metadata, Section, Timestamp};
pub use error::{EntryFailure, FailureKind, Retry, Scope, Side};
pub use event::{
    Arrival, Event, FileReport, Fill, LaneReport, Limiter, Nesting, Notice, Progress, SIZE_CLASSES,
    SourceReport, Summary, TargetReport, size_class,
};
pub use extras::{Account, AllTold, Attribute, BadExtra, Extras, Fidelity, Kept, NO_NUMBER, SameAs};
pub use fidelity_options::{Chown, FidelityOptions};
pub use file_flags::{APPEND_ONLY, FileFlags, IMMUTABLE, NO_DUMP};
pub use ids::{FileId, NotATransferId, ObjectId, RunToken, TargetId, TransferId};
pub use loss::{Loss, Lost};
pub use mode_change::{BadModeChange, ModeChange};
pub use partial_range::PartialRange;
pub use path::{PathProblem, RelPath, check_name, escape};
pub use policy::{PolicyChoice, PolicyProblem, Scheduling};
pub use protection::{Cipher, Protection};
pub use quantity::{parse_duration, parse_moment, parse_past_moment, parse_size};
pub use range::{ByteRange, RangeSet};
pub use selection::{LinkPolicy, NameList, Selection};
pub use spec::{
    Backup, Deletion, DialFrom, ModifyWindow, SinkIo, SourceIo, StripeChoice, Sync, TransferSpec,
};
pub use special::{DeviceNumber, Special};

/// The examples of the crate's README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_examples {}
