//! Names in one block of memory: the subdirectories that wait while their parent is suspended.
//!
//! Needs no allocation for each name. Used by one thread.

use std::ffi::CStr;

/// A queue of names, first in first out.
#[derive(Debug, Default)]
pub(super) struct PackedNames {
    /// The names, each followed by a NUL.
    bytes: Vec<u8>,
    /// The offset of the first name.
    start: usize,
}

impl PackedNames {
    pub fn push(&mut self, name: &CStr) {
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
    }

    /// The first name.
    pub fn first(&self) -> Option<&[u8]> {
        let rest = &self.bytes[self.start..];
        let end = rest.iter().position(|&b| b == 0)?;
        Some(&rest[..end])
    }

    /// Drops the first name, and frees the memory after the last one.
    pub fn drop_first(&mut self) {
        let Some(first) = self.first() else { return };
        self.start += first.len() + 1;
        if self.is_empty() {
            *self = PackedNames::default();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Bytes of the waiting names.
    pub fn byte_count(&self) -> usize {
        self.bytes.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_names_in_order_and_frees_its_memory() {
        let mut names = PackedNames::default();
        assert!(names.is_empty() && names.first().is_none());
        names.push(c"a\n");
        names.push(c"\xff");
        assert_eq!(names.byte_count(), 5);
        assert_eq!(names.first(), Some(&b"a\n"[..]));
        names.drop_first();
        names.push(c"b");
        assert_eq!(names.first(), Some(&b"\xff"[..]));
        names.drop_first();
        assert_eq!(names.first(), Some(&b"b"[..]));
        names.drop_first();
        assert!(names.is_empty() && names.bytes.capacity() == 0);
        names.drop_first();
    }
}
