//! Confinement of the names that a source may write at the top of the destination.
//!
//! `cp host:f new` must write no other file than `new`, and `cp -r host:a host:b dir` nothing but `a` and `b`
//! into `dir` (the lesson of CVE-2019-6111 in scp).

use std::collections::HashSet;
use std::fmt;

use carrack_model::{Metadata, RelPath};
use carrack_storage::SourceNameWildcard;

use crate::error::SessionError;

/// Names that may appear at the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowedTopLevelNames {
    /// Any name: a directory's contents are copied there.
    Anything,
    /// One file or link of this name, and nothing else.
    OneFile(Vec<u8>),
    /// Trees, files and links of these names.
    Names(RequestedSourceNames),
}

/// Names that the sources may have, as typed. A name with wildcards also allows the names that match it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedSourceNames {
    names: HashSet<Vec<u8>>,
    patterns: Vec<SourceNameWildcard>,
}

impl RequestedSourceNames {
    /// Creates the set from the sources as typed.
    pub(crate) fn new(names: HashSet<Vec<u8>>) -> RequestedSourceNames {
        let patterns = names.iter().filter_map(|name| SourceNameWildcard::new(name)).collect();
        RequestedSourceNames { names, patterns }
    }

    fn contain(&self, name: &[u8]) -> bool {
        self.names.contains(name) || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

impl AllowedTopLevelNames {
    /// Returns true if a section may describe `directory`, with or without metadata for it.
    pub(crate) fn allows_section(&self, directory: &RelPath, metadata: Option<&Metadata>) -> bool {
        match (self, directory.components().next()) {
            (AllowedTopLevelNames::Anything, _) => true,
            (_, None) => metadata.is_none(),
            (AllowedTopLevelNames::OneFile(_), Some(_)) => false,
            (AllowedTopLevelNames::Names(names), Some(top)) => names.contain(top),
        }
    }

    /// Returns true if an entry may have `name` in `directory`, which was allowed before.
    pub(crate) fn allows_entry(&self, directory: &RelPath, name: &[u8]) -> bool {
        match self {
            AllowedTopLevelNames::OneFile(only) => name == only,
            AllowedTopLevelNames::Names(names) if directory.is_root() => names.contain(name),
            AllowedTopLevelNames::Names(_) | AllowedTopLevelNames::Anything => true,
        }
    }
}

/// Returns an error unless this name was requested.
pub(super) fn check_asked_for<N: fmt::Display>(
    is_allowed: bool,
    name: impl FnOnce() -> N,
) -> Result<(), SessionError> {
    if !is_allowed {
        return Err(SessionError::Protocol(format!("'{}' was not asked for", name())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::new(bytes).unwrap()
    }

    #[test]
    fn only_names_that_were_asked_for_appear_at_the_top() {
        let names =
            AllowedTopLevelNames::Names(RequestedSourceNames::new([b"a".to_vec(), b"b*".to_vec()].into()));
        assert!(names.allows_section(&path(b"a/inner"), None) && !names.allows_section(&path(b"c"), None));
        assert!(names.allows_section(&RelPath::root(), None));
        assert!(!names.allows_section(&RelPath::root(), Some(&Metadata::default())));
        assert!(names.allows_entry(&RelPath::root(), b"bcd") && !names.allows_entry(&RelPath::root(), b"c"));
        assert!(names.allows_entry(&path(b"a"), b"c"));
        let one = AllowedTopLevelNames::OneFile(b"a".to_vec());
        assert!(one.allows_entry(&RelPath::root(), b"a") && !one.allows_entry(&RelPath::root(), b"b"));
        assert!(!one.allows_section(&path(b"a"), None));
    }
}
