//! The state of the destination, and its verdict.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::set::{Set, hash};

/// The faults of a destination, in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Files whose content, mode or times no version has.
    pub wrong: Vec<String>,
    /// Missing entries.
    pub lost: Vec<String>,
    /// Temporary names.
    pub leftovers: Vec<PathBuf>,
    pub journals: Vec<PathBuf>,
}

impl Verdict {
    fn wrong(&mut self, path: &Path, why: &str) {
        self.wrong.push(format!("{}: {why}", path.display()));
    }

    fn lost(&mut self, path: &Path, why: &str) {
        self.lost.push(format!("{}: {why}", path.display()));
    }

    /// Records a name that is carrack's own; returns true if it is.
    fn is_carracks(&mut self, path: &Path) -> bool {
        let name = path.file_name().map_or(&b""[..], |name| name.as_bytes());
        let has_mark = name.starts_with(b".") && name.windows(9).any(|part| part == b".carrack-");
        match (has_mark, name.ends_with(b".journal")) {
            (true, true) => self.journals.push(path.to_owned()),
            (true, false) => self.leftovers.push(path.to_owned()),
            _ => {}
        }
        has_mark
    }
}

/// Checks a destination at any time: every name has its old content or a complete version of the set's, and
/// no old file is gone.
pub fn between(set: &Set, sink: &Path) -> io::Result<Verdict> {
    let mut verdict = Verdict::default();
    for path in everything(sink)? {
        let Ok(metadata) = fs::symlink_metadata(sink.join(&path)) else { continue };
        if verdict.is_carracks(&path) || !metadata.is_file() {
            continue;
        }
        let Some(there) = unless_gone(hash(&sink.join(&path)))? else { continue };
        let is_old = set.old.get(&path) == Some(&there);
        let is_version = || set.files.get(&path).is_some_and(|all| all.iter().any(|one| one.hash == there));
        if !is_old && !is_version() {
            verdict.wrong(&path, &format!("neither old nor complete, {} bytes", metadata.len()));
        }
    }
    for path in set.old.keys().filter(|path| !sink.join(path).exists()) {
        verdict.lost(path, "was there before");
    }
    Ok(verdict)
}

/// Checks a destination after attempt `last` has succeeded: all of the set is there as at the source.
pub fn after(set: &Set, sink: &Path, last: usize) -> io::Result<Verdict> {
    let mut verdict = between(set, sink)?;
    for path in everything(&set.root)? {
        let source = fs::symlink_metadata(set.root.join(&path))?;
        match unless_gone(fs::symlink_metadata(sink.join(&path)))? {
            Some(copy) => compare(set, sink, &path, (&source, &copy), last, &mut verdict)?,
            None => verdict.lost(&path, "is at the source"),
        }
    }
    Ok(verdict)
}

fn compare(
    set: &Set,
    sink: &Path,
    path: &Path,
    (source, copy): (&Metadata, &Metadata),
    last: usize,
    verdict: &mut Verdict,
) -> io::Result<()> {
    if source.file_type() != copy.file_type() {
        verdict.wrong(path, "another kind");
    } else if source.is_symlink() {
        if fs::read_link(set.root.join(path))? != fs::read_link(sink.join(path))? {
            verdict.wrong(path, "leads elsewhere");
        }
    } else {
        if source.mode() != copy.mode() {
            verdict.wrong(path, &format!("mode {:o} in the place of {:o}", copy.mode(), source.mode()));
        }
        let mtime = (copy.mtime(), copy.mtime_nsec());
        if source.is_file() {
            let there = hash(&sink.join(path))?;
            if !set.recent(path, last).iter().any(|version| version.hash == there && version.mtime == mtime) {
                verdict.wrong(path, "not the content or time that it has at the source");
            }
        } else if mtime != (source.mtime(), source.mtime_nsec()) && set.renamed_in.get(path) != Some(&last) {
            verdict.wrong(path, "another modification time");
        }
    }
    Ok(())
}

/// Returns all paths below a directory, without itself.
fn everything(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        // A live end may remove its own entries meanwhile.
        let Some(entries) = unless_gone(fs::read_dir(&directory))? else { continue };
        for entry in entries {
            let entry = entry?;
            if unless_gone(entry.file_type())?.is_some_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
            found.push(entry.path().strip_prefix(root).expect("it is beneath").to_owned());
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
