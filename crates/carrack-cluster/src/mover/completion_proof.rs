//! Proof of completion: another mover of the site, if there is one, confirms that files settled by a sink are
//! there.
//!
//! A chunk counts only then. A mover whose file system is not the site's writes where no other mover sees it,
//! and is detected with its first settled chunk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use carrack_model::{EntryFailure, FailureKind};
use carrack_storage::{PathBase, PathPurpose};
use carrack_wire::{EntryTableDecoder, EntryTableRecord};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::MoverContext;
use super::held_chunk::HeldChunkDelivery;
use crate::mover_requests::{CompletionProofFile, MoverReply, MoverRequest, send_mover_request};

/// Timeout of an answer: a check of a thousand files on a parallel file system takes its time.
const LOOKED_WITHIN: Duration = Duration::from_secs(15);

/// Files in one request: far below the limit of a message.
const FILES_AT_ONCE: usize = 1_000;

/// Movers that are asked before a chunk counts without a witness: movers that do not answer prove nothing.
const WITNESSES_MAX: usize = 2;

impl MoverContext {
    /// Returns the entries of a settled chunk that a witness does not see beneath `directory`.
    pub(super) async fn unconfirmed_entries(
        &self,
        held: &HeldChunkDelivery,
        site: &str,
        sink: &str,
        directory: &str,
    ) -> Vec<EntryFailure> {
        let mut others = self.movers.ready_mover_ids(site, directory);
        others.retain(|mover| mover != sink);
        // Movers in quarantine are asked last: they may not answer.
        others.sort_by_key(|mover| self.movers.get(mover).is_none_or(|mover| !mover.left_out.is_empty()));
        // Without a witness the list is not needed.
        let files = if others.is_empty() { Vec::new() } else { expected(held) };
        if files.is_empty() {
            return Vec::new();
        }
        for witness in others.into_iter().take(WITNESSES_MAX) {
            if let Some(unseen) = self.entries_unseen_by(&witness, directory, &files).await {
                return unseen;
            }
        }
        Vec::new()
    }

    /// Returns the entries that a witness does not see; `None` if it does not answer.
    async fn entries_unseen_by(
        &self,
        witness: &str,
        directory: &str,
        files: &[CompletionProofFile],
    ) -> Option<Vec<EntryFailure>> {
        let mut failures = Vec::new();
        for files in files.chunks(FILES_AT_ONCE) {
            let question = MoverRequest::Prove { directory: directory.to_owned(), files: files.to_vec() };
            let Ok(MoverReply::Unseen { files: unseen }) =
                send_mover_request(&self.bus, witness, &question, LOOKED_WITHIN).await
            else {
                return None;
            };
            failures.extend(unseen.into_iter().map(|path| EntryFailure {
                path: percent_decode_str(&path).collect::<Vec<u8>>().into(),
                kind: FailureKind::WriteError,
                detail: format!("the mover {witness}, of the same site, does not see what was written"),
            }));
        }
        Some(failures)
    }
}

/// Returns the regular files that got their names by a chunk, without failed ones.
fn expected(held: &HeldChunkDelivery) -> Vec<CompletionProofFile> {
    if !held.names_files() {
        return Vec::new();
    }
    let mut directory = Vec::new();
    let mut files = Vec::new();
    for record in EntryTableDecoder::new(held.table()).flatten() {
        match record {
            EntryTableRecord::Section { path, .. } => {
                directory.clear();
                if !path.is_root() {
                    directory.extend_from_slice(path.as_bytes());
                    directory.push(b'/');
                }
            }
            EntryTableRecord::Entry(entry) => {
                if entry.symlink_target.is_some() || entry.special.is_some() {
                    continue;
                }
                let path = [&directory[..], entry.name].concat();
                if !held.has_failed(&path) {
                    let path = percent_encode(&path, NON_ALPHANUMERIC).to_string();
                    files.push(CompletionProofFile {
                        path,
                        size: entry.size,
                        mtime_s: entry.metadata.mtime.seconds,
                    });
                }
            }
        }
    }
    files
}

/// Returns the files that a mover does not see. A file may have changed since the scan, but is not older
/// then.
pub(super) fn unseen_files(base: &PathBase, directory: &Path, files: &[CompletionProofFile]) -> Vec<String> {
    files.iter().filter(|file| !is_seen(base, directory, file)).map(|file| file.path.clone()).collect()
}

fn is_seen(base: &PathBase, directory: &Path, file: &CompletionProofFile) -> bool {
    let path: Vec<u8> = percent_decode_str(&file.path).collect();
    let looked = base.look(&directory.join(OsStr::from_bytes(&path)), PathPurpose::Browse);
    looked.is_ok_and(|looked| {
        let is_file = !looked.is_directory && !looked.is_symlink && looked.special.is_none();
        is_file && (looked.size == file.size || looked.mtime_s >= file.mtime_s)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_not_there_or_is_an_older_version_is_not_seen() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a b"), "12345").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let now_s = i64::MAX;
        let files = [("a%20b", 5, now_s), ("a%20b", 6, now_s), ("a%20b", 6, 0), ("c", 0, 0), ("d", 0, 0)];
        let files =
            files.map(|(path, size, mtime_s)| CompletionProofFile { path: path.into(), size, mtime_s });
        let unseen = unseen_files(&PathBase::Anywhere, dir.path(), &files);
        assert_eq!(unseen, ["a%20b", "c", "d"]);
    }
}
