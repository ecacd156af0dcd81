//! Further names of files (hard links), which are made when every file has its first name.
//!
//! Memory is bounded: beyond [`SPOOL_BYTES_MAX`] the records go to an unlinked file at the destination. One thread at a time.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use carrack_model::{EntryFailure, RelPath, SameAs, Timestamp};
use rustix::fs::{AtFlags, FileType, Stat, linkat, statat};
use rustix::io::Errno;

use crate::directory_spool::nameless_file;
use crate::status::{mtime_of, size_of};
use crate::{Root, ScratchNames, SinkError};

/// Records kept in memory: about 40,000 names.
const SPOOL_BYTES_MAX: usize = 4 << 20;

/// A record: bytes of the directory (2), of the name (2), of the first name (2), seconds (8), nanoseconds (4), size (8), all in
/// little-endian order; then the three.
const HEAD_BYTES: usize = 26;

/// Names to be made, see the module's comment.
#[derive(Debug)]
pub struct LinkSpool {
    root: Arc<Root>,
    checks_times: bool,
    records: Vec<u8>,
    spilled: Option<(File, u64)>,
}

/// A name and whose it is.
struct Link {
    directory: RelPath,
    name: Box<[u8]>,
    first: RelPath,
    mtime: Timestamp,
    size: u64,
}

impl LinkSpool {
    /// For names beneath `root`.
    pub fn new(root: Arc<Root>) -> LinkSpool {
        LinkSpool { root, checks_times: true, records: Vec::new(), spilled: None }
    }

    /// For first names that don't get the time of the source.
    pub fn without_times(self) -> LinkSpool {
        LinkSpool { checks_times: false, ..self }
    }

    /// Remembers that `name` in `directory` is another name of a file that was last changed at `mtime`.
    ///
    /// # Errors
    /// Where the records no longer fit into memory and can't be written at the destination either.
    pub fn note(
        &mut self,
        directory: &RelPath,
        name: &[u8],
        same_as: &SameAs,
        mtime: Timestamp,
    ) -> Result<(), SinkError> {
        let parts = [directory.as_bytes(), name, same_as.path.as_bytes()];
        for part in parts {
            let length = u16::try_from(part.len()).expect("PATH_BYTES_MAX is 65,535");
            self.records.extend_from_slice(&length.to_le_bytes());
        }
        self.records.extend_from_slice(&mtime.seconds.to_le_bytes());
        self.records.extend_from_slice(&mtime.nanoseconds.to_le_bytes());
        self.records.extend_from_slice(&same_as.size.to_le_bytes());
        parts.iter().for_each(|part| self.records.extend_from_slice(part));
        if self.records.len() > SPOOL_BYTES_MAX { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<(), SinkError> {
        let (file, end) = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert((nameless_file(&self.root)?, 0)),
        };
        // A block, with its length in front.
        let length = (self.records.len() as u64).to_le_bytes();
        let written =
            file.write_all_at(&length, *end).and_then(|()| file.write_all_at(&self.records, *end + 8));
        written.map_err(|error| SinkError::Write { action: "writing the list of names", error })?;
        *end += 8 + self.records.len() as u64;
        self.records.clear();
        Ok(())
    }

    /// Makes them all; returns how many there are now, and calls `failed` for each other. Where a directory has a name, `make_way`
    /// is asked, with the directory that holds it, whether it is gone.
    pub fn finish(
        self,
        scratch: &ScratchNames,
        mut make_way: impl FnMut(BorrowedFd<'_>, &RelPath, &[u8]) -> bool,
        mut failed: impl FnMut(EntryFailure),
    ) -> u64 {
        let LinkSpool { root, checks_times, records, spilled } = self;
        let mut done = 0;
        let mut make_all = |records: &[u8]| {
            let mut rest = records;
            while let Some((link, after)) = first_record(rest) {
                rest = after;
                match make(&root, &link, checks_times, scratch, &mut make_way) {
                    Ok(()) => done += 1,
                    Err(error) => failed(failure(&root, &link.directory, &link.name, &error)),
                }
            }
        };
        let mut read = Ok(());
        if let Some((file, end)) = &spilled {
            read = for_each_block(file, *end, &mut make_all);
        }
        make_all(&records);
        if let Err(error) = read {
            let error = SinkError::Write { action: "reading the list of names back", error };
            failed(failure(&root, &RelPath::root(), b"", &error));
        }
        done
    }
}

fn for_each_block(file: &File, end: u64, visit: &mut impl FnMut(&[u8])) -> std::io::Result<()> {
    let (mut at, mut block) = (0, Vec::new());
    while at < end {
        let mut length = [0; 8];
        file.read_exact_at(&mut length, at)?;
        let length = u64::from_le_bytes(length);
        block.resize(length as usize, 0);
        file.read_exact_at(&mut block, at + 8)?;
        visit(&block);
        at += 8 + length;
    }
    Ok(())
}

/// The first record and what follows it; nothing where there is none.
fn first_record(records: &[u8]) -> Option<(Link, &[u8])> {
    let (head, rest) = records.split_first_chunk::<HEAD_BYTES>()?;
    let length = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (directory, rest) = rest.split_at_checked(length(0))?;
    let (name, rest) = rest.split_at_checked(length(2))?;
    let (first, rest) = rest.split_at_checked(length(4))?;
    let number = |at: usize| head[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let nanoseconds = u32::from_le_bytes(head[14..18].try_into().ok()?);
    let link = Link {
        directory: RelPath::new(directory).ok()?,
        name: name.into(),
        first: RelPath::new(first).ok()?,
        mtime: Timestamp { seconds: number(6)? as i64, nanoseconds },
        size: number(18)?,
    };
    Some((link, rest))
}

/// The first name has to lead to what the source said: it may have failed, and an older file stand there.
fn make(
    root: &Root,
    link: &Link,
    checks_times: bool,
    scratch: &ScratchNames,
    make_way: &mut impl FnMut(BorrowedFd<'_>, &RelPath, &[u8]) -> bool,
) -> Result<(), SinkError> {
    let missing = || SinkError::naming("linking to the first name", Errno::NOENT);
    let (parent, first) = link.first.split_last().ok_or_else(missing)?;
    let from = root.open_directory(&parent).map_err(SinkError::of_directory)?;
    let found =
        look(from.as_fd(), first).map_err(|errno| SinkError::writing("linking to the first name", errno))?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    let is_older = checks_times && mtime_of(&found) != link.mtime;
    if !is_file || size_of(&found) != link.size || is_older {
        return Err(SinkError::Vanished);
    }
    let into = root.make_directory(&link.directory).map_err(SinkError::of_directory)?;
    let (from, into) = (from.as_fd(), into.as_fd());
    let place = |name: &[u8]| linkat(from, first, into, name, AtFlags::empty());
    let naming = |errno| SinkError::naming("linking", errno);
    let put = || match place(&link.name) {
        Err(Errno::EXIST) if is_same(into, &link.name, &found) => Ok(()),
        Err(Errno::EXIST) => {
            scratch.check_replaced(into, &link.name)?;
            let made = scratch.create(&link.name, place);
            made.and_then(|((), made)| made.rename(into, &link.name)).map_err(naming)
        }
        answer => answer.map_err(naming),
    };
    match put() {
        Err(SinkError::InTheWay(_)) if make_way(into, &link.directory, &link.name) => put(),
        answer => answer,
    }
}

fn look(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn is_same(directory: BorrowedFd<'_>, name: &[u8], file: &Stat) -> bool {
    look(directory, name).is_ok_and(|other| (other.st_dev, other.st_ino) == (file.st_dev, file.st_ino))
}

fn failure(root: &Root, directory: &RelPath, name: &[u8], error: &SinkError) -> EntryFailure {
    EntryFailure { path: root.full_path(directory, name), kind: error.kind(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn rel(path: &str) -> RelPath {
        RelPath::new(path.as_bytes()).unwrap()
    }

    fn fixture() -> (tempfile::TempDir, Arc<Root>, SameAs, Timestamp) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/first"), "content").unwrap();
        let found = fs::metadata(dir.path().join("a/first")).unwrap();
        let mtime = Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
        let root = Arc::new(Root::open(dir.path()).unwrap());
        (dir, root, SameAs { path: rel("a/first"), size: 7 }, mtime)
    }

    #[test]
    fn names_are_made_across_directories_over_what_stands_there_and_again() {
        let (dir, root, same_as, mtime) = fixture();
        let scratch = ScratchNames::new(None).unwrap();
        fs::write(dir.path().join("old"), "something else").unwrap();
        for _ in 0..2 {
            let mut spool = LinkSpool::new(Arc::clone(&root));
            for (directory, name) in [("", "old"), ("b/c", "new"), ("a", "beside")] {
                spool.note(&rel(directory), name.as_bytes(), &same_as, mtime).unwrap();
            }
            assert_eq!(spool.finish(&scratch, |_, _, _| false, |failure| panic!("{failure}")), 3);
            assert_eq!(fs::metadata(dir.path().join("old")).unwrap().nlink(), 4);
        }
        assert_eq!(fs::read(dir.path().join("b/c/new")).unwrap(), b"content");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing temporary stays");
    }

    #[test]
    fn what_is_not_what_the_source_said_is_not_linked_to() {
        let (dir, root, same_as, mtime) = fixture();
        let scratch = ScratchNames::new(None).unwrap();
        let mut spool = LinkSpool::new(root);
        spool.note(&rel(""), b"size", &SameAs { size: 8, ..same_as.clone() }, mtime).unwrap();
        spool.note(&rel(""), b"time", &same_as, Timestamp::default()).unwrap();
        spool.note(&rel(""), b"gone", &SameAs { path: rel("none"), ..same_as.clone() }, mtime).unwrap();
        spool.note(&rel(""), b"dir", &SameAs { path: rel("a"), ..same_as }, mtime).unwrap();
        let mut failures = 0;
        assert_eq!(spool.finish(&scratch, |_, _, _| false, |_| failures += 1), 0);
        assert_eq!((failures, fs::read_dir(dir.path()).unwrap().count()), (4, 1));
    }

    #[test]
    fn many_names_spill_and_are_made_all_the_same() {
        let (dir, root, same_as, mtime) = fixture();
        let scratch = ScratchNames::new(None).unwrap();
        let mut spool = LinkSpool::new(root);
        let mut count = 0;
        // Most of them are the same name: what is there already is fine.
        while spool.spilled.as_ref().is_none_or(|(_, end)| *end < 2 * SPOOL_BYTES_MAX as u64)
            || count % 3 != 0
        {
            spool.note(&rel(""), format!("{}", count % 100).as_bytes(), &same_as, mtime).unwrap();
            count += 1;
        }
        assert_eq!(spool.finish(&scratch, |_, _, _| false, |failure| panic!("{failure}")), count);
        assert_eq!(fs::metadata(dir.path().join("a/first")).unwrap().nlink(), 101);
    }
}
