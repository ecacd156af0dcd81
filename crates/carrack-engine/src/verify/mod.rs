//! The comparison of a destination with its source's tree, or with a manifest.
//!
//! The caller holds both ends ([`VerifyEndExaminer`]) and sends each the same questions; neither end knows
//! the other. First the entries of the names are compared. Then files of equal size are read at both ends:
//! small ones as a whole, larger ones as 1 MiB pieces, in ranges of 256 MiB at a time. A piece that differs
//! is read again as pieces of 1 KiB. So no file is read if its metadata shows a difference, and an answer is
//! bounded for any file size. Metadata that the copy keeps is compared with the first question. The number of
//! open questions is bounded ([`crate::examine`]), and so is memory.

mod batch;
mod compared_name;
mod end_examiner;
mod equal_pairs;
mod file_check;
mod finding;
mod metadata;
mod name_verdict;
mod tree_verification;

pub use end_examiner::{VerifyEndExaminer, VerifyEndSettings};
pub use equal_pairs::{EqualEntriesFileError, EqualPairs};
pub use finding::{EntryDifference, VerifyFinding, VerifyTotals};
pub use metadata::{MetadataChecks, MetadataDifference};
pub use tree_verification::{ManifestEntry, TreeVerification};
