//! One end of a comparison: questions about entries beneath a path, and answers in the same order.
//!
//! It only reads, on its own threads ([`ExaminerThreads`]), which share the work of all open questions: one
//! large file keeps all of them busy as well as many small files do. Must not know which files are compared,
//! nor the reason.

mod examine_root;
mod examiner_threads;
mod metadata;
mod question;
mod task;
mod tools;
mod walk;

pub(crate) use examine_root::ExamineRoot;
pub(crate) use examiner_threads::ExaminerThreads;
pub(crate) use metadata::{
    ACCOUNT_NAME_BYTES_MAX, ATTRIBUTE_DIGEST_BYTES, ATTRIBUTES_MAX, AttributeDigest, ComparedEntryMetadata,
};
pub(crate) use question::{
    ComparisonAnswer, ExamineQuestion, ExaminedEntryFacts, ExaminedEntryKind, NAMES_MAX, PIECE_BYTES_MAX,
    PIECE_BYTES_MIN, PIECES_MAX, PieceDigestRequest, QUESTIONS_MAX, WHOLE_BYTES_MAX, WalkStep,
};
pub(crate) use tools::ExamineThreadSettings;
