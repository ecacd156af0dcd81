//! The operations that are under way: each has a context, which is the provider's until the completion, and what it
//! works on.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Instant;

use carrack_machine::Slot;

use crate::core::Region;
use crate::ffi::CONTEXT_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Read,
    Write,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Send => "sending a message",
            Kind::Receive => "receiving a message",
            Kind::Read => "an RMA read",
            Kind::Write => "an RMA write",
        }
    }
}

/// An operation.
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) slot: Slot,
    /// That the slot lies in: registered at least until the completion.
    pub(crate) region: Region,
    pub(crate) began: Instant,
}

/// `struct fi_context2`, as an array of places.
#[repr(C, align(8))]
struct Context([u8; CONTEXT_BYTES]);

/// The contexts. Never moved, never looked into.
pub(crate) struct Contexts {
    first: NonNull<Context>,
    count: usize,
}

// SAFETY: plain memory, owned.
#[allow(unsafe_code)]
unsafe impl Send for Contexts {}

impl Contexts {
    fn new(count: usize) -> Contexts {
        let all: Box<[Context]> = (0..count).map(|_| Context([0; CONTEXT_BYTES])).collect();
        Contexts { first: NonNull::from(Box::leak(all)).cast(), count }
    }

    fn at(&self, index: usize) -> *mut c_void {
        self.first.as_ptr().wrapping_add(index).cast()
    }

    /// The place of a context; nothing for what is none of them.
    fn index_of(&self, context: *mut c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.first.addr().get())?;
        let (index, rest) = (offset / CONTEXT_BYTES, offset % CONTEXT_BYTES);
        (rest == 0 && index < self.count).then_some(index)
    }
}

impl Drop for Contexts {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let all = NonNull::slice_from_raw_parts(self.first, self.count);
        // SAFETY: from `Box::leak` of a slice of this length.
        drop(unsafe { Box::from_raw(all.as_ptr()) });
    }
}

/// A bounded number of operations.
pub(crate) struct Operations {
    contexts: Contexts,
    entries: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Operations {
    pub(crate) fn new(limit: usize) -> Operations {
        Operations {
            contexts: Contexts::new(limit),
            entries: (0..limit).map(|_| None).collect(),
            free: (0..limit).rev().collect(),
        }
    }

    /// Takes an operation in; its context, or the operation back when there are as many as there may be.
    pub(crate) fn add(&mut self, operation: Operation) -> Result<*mut c_void, Operation> {
        let Some(index) = self.free.pop() else { return Err(operation) };
        self.entries[index] = Some(operation);
        Ok(self.contexts.at(index))
    }

    /// The operation of a context, which is over; nothing if there is none.
    pub(crate) fn take(&mut self, context: *mut c_void) -> Option<Operation> {
        let index = self.contexts.index_of(context)?;
        let operation = self.entries[index].take()?;
        self.free.push(index);
        Some(operation)
    }

    /// When the oldest one was posted that waits for somebody else's doing: any but a receive.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let waiting = self.entries.iter().flatten().filter(|operation| operation.kind != Kind::Receive);
        waiting.map(|operation| operation.began).min()
    }

    /// How many of these kinds are under way.
    pub(crate) fn count(&self, is_meant: impl Fn(Kind) -> bool) -> usize {
        self.entries.iter().flatten().filter(|operation| is_meant(operation.kind)).count()
    }

    /// Everything apart: what the provider may still touch, and the regions.
    pub(crate) fn into_parts(self) -> (Contexts, Vec<Slot>, Vec<Region>) {
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
        let contexts = Contexts::new(3);
        for index in 0..3 {
            assert_eq!(contexts.index_of(contexts.at(index)), Some(index));
        }
        let odd = [contexts.at(3), contexts.at(0).wrapping_byte_add(8), std::ptr::null_mut()];
        assert!(odd.iter().all(|&context| contexts.index_of(context).is_none()));
    }
}
