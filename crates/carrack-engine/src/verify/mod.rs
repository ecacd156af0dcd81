//! Comparing what is at a destination with what should be there: a source's tree, or a manifest.
//!
//! The caller holds both ends ([`Examiner`]) and asks each for the same things; neither end knows the other. First what stands at the
//! names is compared, then files of equal size are read at both ends: small ones as a whole, larger ones as 1 MiB pieces, ranges of 256 MiB at a
//! time. A piece that differs is read again as pieces of 1 KiB. So nothing is read where a look suffices, and an
//! answer is bounded however large a file is. Metadata come with the look, as far as a copy was to keep them. What is open at a time is bounded ([`crate::examine`]): memory is, too.

mod batch;
mod comparing;
mod examiner;
mod file_check;
mod finding;
mod item;
mod judge;
mod kept;
mod metadata;

pub use comparing::{ManifestEntry, Verifying};
pub use examiner::{Examination, Examiner};
pub use finding::{Difference, Finding, Verified};
pub use kept::{Kept, KeptError};
pub use metadata::{MetadataChecks, MetadataDifference};
