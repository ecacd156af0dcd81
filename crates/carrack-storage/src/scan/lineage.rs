//! The ancestors of a directory in the walk, if links are followed: entering one of them again would never
//! end. And the other state that a directory inherits.

use std::sync::Arc;

use crate::FileIdentity;
use crate::filter_rules::DirectoryRules;

/// The state that a directory hands on to its subdirectories.
#[derive(Clone, Default)]
pub(super) struct InheritedDirectoryState {
    /// The directory and its ancestors in the walk, if links are followed.
    pub lineage: Option<Arc<DirectoryLineage>>,
    /// The filter rules of its own files of rules and those above, if it has any.
    pub rules: Option<Arc<DirectoryRules>>,
}

/// A directory and its ancestors in the walk.
pub(super) struct DirectoryLineage {
    identity: FileIdentity,
    above: Option<Arc<DirectoryLineage>>,
}

impl DirectoryLineage {
    /// Adds a directory that is entered from `above`; none if it is one of these already.
    pub fn enter(
        identity: FileIdentity,
        above: Option<Arc<DirectoryLineage>>,
    ) -> Option<Arc<DirectoryLineage>> {
        let mut next = above.as_deref();
        while let Some(lineage) = next {
            if lineage.identity == identity {
                return None;
            }
            next = lineage.above.as_deref();
        }
        Some(Arc::new(DirectoryLineage { identity, above }))
    }
}

impl Drop for DirectoryLineage {
    /// Drops the ancestors in a loop, as a recursion as deep as the tree would overflow a thread's stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut last) = above.and_then(Arc::into_inner) {
            above = last.above.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_not_entered_from_itself() {
        fn identity(ino: u64) -> FileIdentity {
            FileIdentity { dev: 1, ino }
        }
        let one = DirectoryLineage::enter(identity(1), None).unwrap();
        let two = DirectoryLineage::enter(identity(2), Some(Arc::clone(&one))).unwrap();
        assert!(DirectoryLineage::enter(identity(1), Some(Arc::clone(&two))).is_none());
        assert!(DirectoryLineage::enter(identity(2), Some(two)).is_none());
        assert!(DirectoryLineage::enter(identity(2), Some(one)).is_some());
    }

    #[test]
    fn deep_ones_are_dropped() {
        let mut above = None;
        for ino in 0..20_000 {
            above = Some(Arc::new(DirectoryLineage { identity: FileIdentity { dev: 1, ino }, above }));
        }
        drop(above);
    }
}
