//! Sessions that compare files: the initiator sends questions, the responder reads files and answers with
//! digests. There are no data connections; the bench of [`crate::examine`] reads.

mod initiator;
mod message;
mod polling;
mod responder;

pub(crate) use initiator::FarExaminer;
pub(crate) use polling::wait;
pub(super) use responder::serve_verification;
