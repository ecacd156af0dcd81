//! Names that the destination does not distinguish, as in directories that ignore case: each belongs to one
//! entry of the session.
//!
//! I/O threads claim them; [`FoldedNames`] owns the lock.

use std::os::fd::BorrowedFd;

use carrack_model::RelPath;
use carrack_storage::{CaseFoldingDirectory, FoldedNames, SinkError};

/// The names of a session; `None` in a dry run, which claims none.
pub(super) struct NameClaims(Option<FoldedNames>);

impl NameClaims {
    pub(super) fn new(names: Option<FoldedNames>) -> NameClaims {
        NameClaims(names)
    }

    /// Returns the folding of names in a directory, if it does not distinguish all of them.
    pub(super) fn folding(&self, held: BorrowedFd<'_>, path: &RelPath) -> Option<CaseFoldingDirectory> {
        self.0.as_ref().and_then(|names| names.folding_of(held, path))
    }

    /// Returns the same, and claims the directory for its path.
    pub(super) fn claim_directory_folding(
        &self,
        held: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<Option<CaseFoldingDirectory>, SinkError> {
        let folding = self.folding(held, path);
        self.claim_directory(folding.as_ref(), path)?;
        Ok(folding)
    }

    /// Claims a directory that does not distinguish all names for its path.
    pub(super) fn claim_directory(
        &self,
        folding: Option<&CaseFoldingDirectory>,
        path: &RelPath,
    ) -> Result<(), SinkError> {
        assert!(folding.is_none() || self.0.is_some(), "nothing is claimed in a dry run");
        match (&self.0, folding) {
            (Some(names), Some(folding)) => names.claim_directory(folding, path),
            _ => Ok(()),
        }
    }

    /// Returns true if an entry of this run has that name, in a directory that does not distinguish all
    /// names.
    pub(super) fn is_taken(&self, held: BorrowedFd<'_>, path: &RelPath, name: &[u8]) -> bool {
        let folding = self.0.as_ref().and_then(|names| Some((names, names.folding_of(held, path)?)));
        folding.is_some_and(|(names, folding)| names.is_taken(&folding, path, name))
    }

    /// Claims a name in a directory that does not distinguish all names.
    pub(super) fn claim(
        &self,
        folding: Option<&CaseFoldingDirectory>,
        held: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
    ) -> Result<(), SinkError> {
        assert!(folding.is_none() || self.0.is_some(), "nothing is claimed in a dry run");
        match (&self.0, folding) {
            (Some(names), Some(folding)) => names.claim(folding, held, path, name),
            _ => Ok(()),
        }
    }
}
