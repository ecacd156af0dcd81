//! One end of a comparison: questions about entries beneath a path, and answers in the same order.
//!
//! It only reads, on its own threads ([`Bench`]), which share the work of all open questions: one large file
//! keeps all of them busy as well as many small files do. Must not know which files are compared, nor the
//! reason.

mod bench;
mod metadata;
mod question;
mod task;
mod tools;
mod top;
mod walk;

pub(crate) use bench::Bench;
pub(crate) use metadata::{
    ACCOUNT_NAME_BYTES_MAX, ATTRIBUTE_DIGEST_BYTES, ATTRIBUTES_MAX, AttributeDigest, SeenMetadata,
};
pub(crate) use question::{
    Answer, NAMES_MAX, PIECE_BYTES_MAX, PIECE_BYTES_MIN, PIECES_MAX, PieceRange, QUESTIONS_MAX, Question,
    Sight, Standing, WHOLE_BYTES_MAX, Walked,
};
pub(crate) use tools::Manners;
pub(crate) use top::Top;
