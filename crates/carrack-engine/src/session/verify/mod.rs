//! Sessions in which files are compared: the initiator asks, the responder reads and answers with digests. No data
//! connections; the bench of [`crate::examine`] reads.

mod initiator;
mod message;
mod polling;
mod responder;

pub(crate) use initiator::FarExaminer;
pub(crate) use polling::wait;
pub(super) use responder::answer;
