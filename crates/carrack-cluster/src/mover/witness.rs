//! Completion is proved: what a sink has settled is looked for by another mover of its site, where there is one.
//!
//! A chunk counts only then. A mover that writes where nobody else looks, as its file system is not the site's, is found out by the
//! first chunk that it brings to its end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use carrack_model::{EntryFailure, FailureKind};
use carrack_storage::{Base, Purpose};
use carrack_wire::{TableReader, TableRecord};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::Mover;
use super::held::Held;
use crate::asks::{Answer, Ask, Expected, ask};

/// A look at a thousand files of a parallel file system takes its time.
const LOOKED_WITHIN: Duration = Duration::from_secs(15);

/// Files of one question: far below a message's limit.
const FILES_AT_ONCE: usize = 1_000;

/// Movers that are asked before a chunk is believed as its sink has told it: those that do not answer prove nothing.
const WITNESSES_MAX: usize = 2;

impl Mover {
    /// The entries of a settled chunk that none but its sink sees beneath `directory`.
    pub(super) async fn unseen(
        &self,
        held: &Held,
        site: &str,
        sink: &str,
        directory: &str,
    ) -> Vec<EntryFailure> {
        let mut others = self.movers.able(site, directory);
        others.retain(|mover| mover != sink);
        // Who is left out is asked last: it may not answer.
        others.sort_by_key(|mover| self.movers.get(mover).is_none_or(|mover| !mover.left_out.is_empty()));
        // Nothing is put together where nobody could look for it.
        let files = if others.is_empty() { Vec::new() } else { expected(held) };
        if files.is_empty() {
            return Vec::new();
        }
        for witness in others.into_iter().take(WITNESSES_MAX) {
            if let Some(unseen) = self.seen_by(&witness, directory, &files).await {
                return unseen;
            }
        }
        Vec::new()
    }

    /// Nothing if it does not answer.
    async fn seen_by(&self, witness: &str, directory: &str, files: &[Expected]) -> Option<Vec<EntryFailure>> {
        let mut failures = Vec::new();
        for files in files.chunks(FILES_AT_ONCE) {
            let question = Ask::Prove { directory: directory.to_owned(), files: files.to_vec() };
            let Ok(Answer::Unseen { files: unseen }) =
                ask(&self.bus, witness, &question, LOOKED_WITHIN).await
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

/// The regular files of a chunk that have their names by it, and have not failed.
fn expected(held: &Held) -> Vec<Expected> {
    if !held.names_files() {
        return Vec::new();
    }
    let mut directory = Vec::new();
    let mut files = Vec::new();
    for record in TableReader::new(held.table()).flatten() {
        match record {
            TableRecord::Section { path, .. } => {
                directory.clear();
                if !path.is_root() {
                    directory.extend_from_slice(path.as_bytes());
                    directory.push(b'/');
                }
            }
            TableRecord::Entry(entry) => {
                if entry.symlink_target.is_some() || entry.special.is_some() {
                    continue;
                }
                let path = [&directory[..], entry.name].concat();
                if !held.has_failed(&path) {
                    let path = percent_encode(&path, NON_ALPHANUMERIC).to_string();
                    files.push(Expected { path, size: entry.size, mtime_s: entry.metadata.mtime.seconds });
                }
            }
        }
    }
    files
}

/// Which of these a mover does not see. A file may have changed since it was scanned, and is no older then.
pub(super) fn prove(base: &Base, directory: &Path, files: &[Expected]) -> Vec<String> {
    let is_seen = |file: &&Expected| {
        let path: Vec<u8> = percent_decode_str(&file.path).collect();
        let looked = base.look(&directory.join(OsStr::from_bytes(&path)), Purpose::Browse);
        looked.is_ok_and(|looked| {
            let is_file = !looked.is_directory && !looked.is_symlink && looked.special.is_none();
            is_file && (looked.size == file.size || looked.mtime_s >= file.mtime_s)
        })
    };
    files.iter().filter(|file| !is_seen(file)).map(|file| file.path.clone()).collect()
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
        let file = |path: &str, size, mtime_s| Expected { path: path.into(), size, mtime_s };
        let now_s = i64::MAX;
        let files = [
            file("a%20b", 5, now_s),
            file("a%20b", 6, now_s),
            file("a%20b", 6, 0),
            file("c", 0, 0),
            file("d", 0, 0),
        ];
        let unseen = prove(&Base::Anywhere, dir.path(), &files);
        assert_eq!(unseen, ["a%20b", "c", "d"]);
    }
}
