//! The calls of an endpoint's fast path.

use std::ffi::c_int;

use carrack_machine::Slot;

use crate::core::FabricEndpointResources;
use crate::error::{EAGAIN, FabricError, FabricErrorScope};
use crate::event::FabricPostRefusal;
use crate::ffi;
use crate::pending_operations::FabricOperationKind;

#[allow(unsafe_code)]
pub(crate) fn post_operation(
    core: &FabricEndpointResources,
    kind: FabricOperationKind,
    post: &ffi::RawFabricPost,
) -> c_int {
    let call = match kind {
        FabricOperationKind::Send => ffi::cf_send,
        FabricOperationKind::Receive => ffi::cf_receive,
        FabricOperationKind::Read => ffi::cf_read,
        FabricOperationKind::Write => ffi::cf_write,
    };
    // SAFETY: the buffer lies in a slot and the context in the table. The table holds both until the
    // completion or, if the endpoint is dropped first, the core until everything is closed. The peer belongs
    // to this endpoint.
    unsafe { call(core.raw(), post) }
}

pub(crate) fn refusal(kind: FabricOperationKind, rc: c_int, slot: Slot) -> FabricPostRefusal {
    match rc {
        rc if rc == -EAGAIN => FabricPostRefusal::Full(slot),
        rc => FabricPostRefusal::Failed(
            slot,
            FabricError::of_call(kind.name(), rc, FabricErrorScope::Operation),
        ),
    }
}

#[allow(unsafe_code)]
pub(crate) fn read_completions(
    core: &FabricEndpointResources,
    batch: &mut [ffi::RawCompletion],
) -> Result<usize, FabricError> {
    // SAFETY: the call writes at most `batch.len()` completions.
    match unsafe { ffi::cf_poll(core.raw(), batch.as_mut_ptr(), batch.len() as c_int) } {
        rc if rc < 0 => Err(FabricError::of_call("fi_cq_read", rc, FabricErrorScope::Endpoint)),
        count => Ok(count as usize),
    }
}
