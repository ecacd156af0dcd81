//! The calls of an endpoint's fast path.

use std::ffi::c_int;

use carrack_machine::Slot;

use crate::core::Core;
use crate::error::{EAGAIN, FabricError, Scope};
use crate::event::Refused;
use crate::ffi;
use crate::operations::Kind;

#[allow(unsafe_code)]
pub(crate) fn post_it(core: &Core, kind: Kind, post: &ffi::Post) -> c_int {
    let call = match kind {
        Kind::Send => ffi::cf_send,
        Kind::Receive => ffi::cf_receive,
        Kind::Read => ffi::cf_read,
        Kind::Write => ffi::cf_write,
    };
    // SAFETY: the buffer lies in a slot and the context in the table; both are held by the table until the completion,
    // and then, if the endpoint is dropped first, by the core until all is closed. The peer is of this endpoint.
    unsafe { call(core.raw(), post) }
}

pub(crate) fn refusal(kind: Kind, rc: c_int, slot: Slot) -> Refused {
    match rc {
        rc if rc == -EAGAIN => Refused::Full(slot),
        rc => Refused::Failed(slot, FabricError::of_call(kind.name(), rc, Scope::Operation)),
    }
}

#[allow(unsafe_code)]
pub(crate) fn read_queue(core: &Core, batch: &mut [ffi::Completion]) -> Result<usize, FabricError> {
    // SAFETY: writes at most as many as fit.
    match unsafe { ffi::cf_poll(core.raw(), batch.as_mut_ptr(), batch.len() as c_int) } {
        rc if rc < 0 => Err(FabricError::of_call("fi_cq_read", rc, Scope::Endpoint)),
        count => Ok(count as usize),
    }
}
