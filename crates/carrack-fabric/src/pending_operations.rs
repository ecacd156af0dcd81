//! The operations under way. Each has its slot, its region, and a context that belongs to the provider until
//! the completion.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Instant;

use carrack_machine::Slot;

use crate::core::RegisteredPool;
use crate::ffi::CONTEXT_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricOperationKind {
    Send,
    Receive,
    Read,
    Write,
}

impl FabricOperationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FabricOperationKind::Send => "sending a message",
            FabricOperationKind::Receive => "receiving a message",
            FabricOperationKind::Read => "an RMA read",
            FabricOperationKind::Write => "an RMA write",
        }
    }
}

/// An operation under way.
pub(crate) struct PendingOperation {
    pub(crate) kind: FabricOperationKind,
    pub(crate) tag: u64,
    pub(crate) slot: Slot,
    /// The slot's region, registered at least until the completion.
    pub(crate) region: RegisteredPool,
    pub(crate) began: Instant,
}

/// `struct fi_context2`, as bytes.
#[repr(C, align(8))]
struct FabricOperationContext([u8; CONTEXT_BYTES]);

/// The contexts. Never moved or read.
pub(crate) struct FabricOperationContexts {
    first: NonNull<FabricOperationContext>,
    count: usize,
}

// SAFETY: plain memory, owned.
#[allow(unsafe_code)]
unsafe impl Send for FabricOperationContexts {}

impl FabricOperationContexts {
    fn new(count: usize) -> FabricOperationContexts {
        let all: Box<[FabricOperationContext]> =
            (0..count).map(|_| FabricOperationContext([0; CONTEXT_BYTES])).collect();
        FabricOperationContexts { first: NonNull::from(Box::leak(all)).cast(), count }
    }

    fn context_at(&self, index: usize) -> *mut c_void {
        self.first.as_ptr().wrapping_add(index).cast()
    }

    /// The index of a context; `None` for any other pointer.
    fn index_of(&self, context: *mut c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.first.addr().get())?;
        let (index, rest) = (offset / CONTEXT_BYTES, offset % CONTEXT_BYTES);
        (rest == 0 && index < self.count).then_some(index)
    }
}

impl Drop for FabricOperationContexts {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let all = NonNull::slice_from_raw_parts(self.first, self.count);
        // SAFETY: from `Box::leak` of a slice of this length.
        drop(unsafe { Box::from_raw(all.as_ptr()) });
    }
}

/// A bounded table of operations.
pub(crate) struct FabricOperationTable {
    contexts: FabricOperationContexts,
    entries: Vec<Option<PendingOperation>>,
    free: Vec<usize>,
}

impl FabricOperationTable {
    pub(crate) fn new(limit: usize) -> FabricOperationTable {
        FabricOperationTable {
            contexts: FabricOperationContexts::new(limit),
            entries: (0..limit).map(|_| None).collect(),
            free: (0..limit).rev().collect(),
        }
    }

    /// Adds an operation and returns its context. Gives the operation back if the table is full.
    pub(crate) fn add(&mut self, operation: PendingOperation) -> Result<*mut c_void, PendingOperation> {
        let Some(index) = self.free.pop() else { return Err(operation) };
        self.entries[index] = Some(operation);
        Ok(self.contexts.context_at(index))
    }

    /// Removes the completed operation of a context; `None` if there is none.
    pub(crate) fn take(&mut self, context: *mut c_void) -> Option<PendingOperation> {
        let index = self.contexts.index_of(context)?;
        let operation = self.entries[index].take()?;
        self.free.push(index);
        Some(operation)
    }

    /// The post time of the oldest operation that waits for the peer: any but a receive.
    pub(crate) fn oldest_post_time(&self) -> Option<Instant> {
        let waiting =
            self.entries.iter().flatten().filter(|operation| operation.kind != FabricOperationKind::Receive);
        waiting.map(|operation| operation.began).min()
    }

    /// The number of operations of these kinds.
    pub(crate) fn count(&self, is_meant: impl Fn(FabricOperationKind) -> bool) -> usize {
        self.entries.iter().flatten().filter(|operation| is_meant(operation.kind)).count()
    }

    /// The contexts and slots, which the provider may still touch, and the regions.
    pub(crate) fn into_parts(self) -> (FabricOperationContexts, Vec<Slot>, Vec<RegisteredPool>) {
        let apart = self.entries.into_iter().flatten().map(|operation| (operation.slot, operation.region));
        let (slots, regions) = apart.unzip();
        (self.contexts, slots, regions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contexts_are_taken_for_contexts() {
        let contexts = FabricOperationContexts::new(3);
        for index in 0..3 {
            assert_eq!(contexts.index_of(contexts.context_at(index)), Some(index));
        }
        let odd = [contexts.context_at(3), contexts.context_at(0).wrapping_byte_add(8), std::ptr::null_mut()];
        assert!(odd.iter().all(|&context| contexts.index_of(context).is_none()));
    }
}
