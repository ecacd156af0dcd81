//! Temporary names, and the method of placing small files that works at the destination.
//!
//! One for each transfer at the sink, shared by its threads.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use carrack_model::KeptMetadata;
use carrack_model::limits::NAME_BYTES_MAX;
use rustix::fs::{AtFlags, CWD, Dir, Mode, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::SinkError;
use crate::beneath::PASSAGE;
use crate::special::special_of_stat;

/// `.carrack-` and eight digits.
const SUFFIX_BYTES: usize = 17;

/// Bytes of a name that every file system takes: eCryptfs's limit is 143, as it stores names encrypted. A
/// temporary name is longer only if the name itself is longer.
const COMMON_NAME_BYTES: usize = 143;

/// Bound of the attempts for one name; a second one is needed only if another process left the same number
/// behind.
const ATTEMPTS_MAX: usize = 16;

/// The method by which a complete small file gets its name, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum FinalNameMethod {
    /// The file has no name while it is written, and is linked by its descriptor. This needs
    /// `CAP_DAC_READ_SEARCH`; since Linux 6.10 the opener of the file may link it, too.
    LinkDescriptor = 0,
    /// The file has no name while it is written, and is linked by its `/proc` entry.
    LinkProc = 1,
    /// The file has a temporary name and is renamed, on file systems without `O_TMPFILE`.
    Rename = 2,
}

/// The temporary names of one transfer, and its knowledge of the destination.
///
/// The upper half of a name's number is the transfer's tag, by which a later session of the transfer finds
/// leftovers.
#[derive(Debug)]
pub struct ScratchNames {
    tag: u16,
    next: AtomicU32,
    placing: AtomicU8,
    /// The kinds of special files that may be replaced.
    replaces: KeptMetadata,
    /// `/proc/self/fd`, opened at its first use; none if `/proc` is not mounted.
    descriptors: OnceLock<Option<OwnedFd>>,
}

impl ScratchNames {
    /// Makes names with this tag, or with a random one, starting at a random number.
    ///
    /// # Errors
    /// Those of `getrandom`.
    pub fn new(tag: Option<u16>) -> io::Result<ScratchNames> {
        let mut seed = [0; 6];
        getrandom(&mut seed, GetRandomFlags::empty())?;
        let [a, b, next @ ..] = seed;
        Ok(ScratchNames {
            tag: tag.unwrap_or(u16::from_ne_bytes([a, b])),
            next: AtomicU32::new(u32::from_ne_bytes(next)),
            placing: AtomicU8::new(FinalNameMethod::LinkDescriptor as u8),
            replaces: KeptMetadata::default(),
            descriptors: OnceLock::new(),
        })
    }

    /// Permits replacing devices, pipes and sockets of the kinds in `kept`.
    pub fn with_replaceable(self, kept: KeptMetadata) -> ScratchNames {
        ScratchNames { replaces: kept, ..self }
    }

    /// Refuses to replace a device, pipe or socket of a kind that is not copied.
    pub(crate) fn check_replaced(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), SinkError> {
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        match found.and_then(|stat| special_of_stat(&stat)) {
            Some(special) if !self.replaces.keeps_special(&special) => Err(SinkError::Special(special)),
            _ => Ok(()),
        }
    }

    /// Returns a name that this process repeats only after 65,536 names for the same file.
    fn name_within(&self, name: &[u8], bytes_max: usize) -> ScratchName {
        let number = self.next.fetch_add(1, Ordering::Relaxed) & 0xffff;
        ScratchName::new(name, u32::from(self.tag) << 16 | number, bytes_max)
    }

    /// The temporary name of this version of a file in all sessions of this transfer, which write to it
    /// together.
    pub fn shared_name(&self, name: &[u8], version: u16) -> Box<[u8]> {
        let number = u32::from(self.tag) << 16 | u32::from(version);
        ScratchName::new(name, number, COMMON_NAME_BYTES).as_bytes().into()
    }

    /// Removes unfinished files of an earlier session of this transfer from `directory`, except `wanted`
    /// names. Failed removals are ignored.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn remove_leftovers(
        &self,
        directory: BorrowedFd<'_>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if self.is_own(name) && !wanted(name) {
                let _ = unlinkat(directory, entry.file_name(), AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Removes a temporary name of an earlier session. A failure is ignored.
    pub fn remove(directory: BorrowedFd<'_>, temporary: &[u8]) {
        ScratchName::from_existing(temporary).remove(directory);
    }

    /// Returns true if a name is a temporary name of this transfer.
    pub fn is_own(&self, name: &[u8]) -> bool {
        let own = format!("{:04x}", self.tag);
        split_temporary(name)
            .is_some_and(|(kept, number)| kept.len() > 1 && number.starts_with(own.as_bytes()))
    }

    /// Returns true if a name is a temporary name of any transfer: `.NAME.carrack-XXXXXXXX`.
    pub fn is_temporary(name: &[u8]) -> bool {
        split_temporary(name).is_some()
    }

    /// Calls `create` with temporary names for `name` until one is free.
    pub(crate) fn create<T>(
        &self,
        name: &[u8],
        create: impl Fn(&[u8]) -> Result<T, Errno>,
    ) -> Result<(T, ScratchName), Errno> {
        let mut bytes_max = COMMON_NAME_BYTES;
        for _ in 0..ATTEMPTS_MAX {
            let temporary = self.name_within(name, bytes_max);
            match create(temporary.as_bytes()) {
                Err(Errno::EXIST) => {}
                // The length of the name itself may be allowed.
                Err(Errno::NAMETOOLONG) if temporary.length > name.len() && bytes_max > 0 => bytes_max = 0,
                answer => return answer.map(|made| (made, temporary)),
            }
        }
        Err(Errno::EXIST)
    }

    /// The directory of this process's descriptors.
    pub(crate) fn descriptors(&self) -> Option<&OwnedFd> {
        self.descriptors.get_or_init(|| openat(CWD, c"/proc/self/fd", PASSAGE, Mode::empty()).ok()).as_ref()
    }

    pub(crate) fn final_name_method(&self) -> FinalNameMethod {
        match self.placing.load(Ordering::Relaxed) {
            0 => FinalNameMethod::LinkDescriptor,
            1 => FinalNameMethod::LinkProc,
            _ => FinalNameMethod::Rename,
        }
    }

    /// Remembers that the faster methods failed and this one works.
    pub(crate) fn record_final_name_method(&self, placing: FinalNameMethod) {
        self.placing.fetch_max(placing as u8, Ordering::Relaxed);
    }
}

/// Splits a temporary name into `.NAME` and its eight digits.
fn split_temporary(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let (kept, suffix) = name.split_at_checked(name.len().checked_sub(SUFFIX_BYTES)?)?;
    let number = suffix.strip_prefix(b".carrack-")?;
    let is_number = number.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (kept.starts_with(b".") && is_number).then_some((kept, number))
}

/// `.NAME.carrack-XXXXXXXX` with as much of NAME as fits, without a heap allocation.
pub(crate) struct ScratchName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl ScratchName {
    /// Makes a name of at most `bytes_max` bytes, or as long as `name` if that is longer.
    fn new(name: &[u8], number: u32, bytes_max: usize) -> ScratchName {
        let longest = name.len().max(bytes_max).min(NAME_BYTES_MAX);
        let kept = truncate_name(name, longest.saturating_sub(SUFFIX_BYTES + 1).max(1));
        let mut scratch = ScratchName { bytes: [0; NAME_BYTES_MAX], length: 0 };
        scratch.append(b".");
        scratch.append(kept);
        scratch.append(b".carrack-");
        for shift in (0..32).step_by(4).rev() {
            scratch.append(&[b"0123456789abcdef"[(number >> shift & 15) as usize]]);
        }
        scratch
    }

    /// A name from an earlier session, cut to the longest possible name.
    pub fn from_existing(name: &[u8]) -> ScratchName {
        let mut scratch = ScratchName { bytes: [0; NAME_BYTES_MAX], length: 0 };
        scratch.append(&name[..name.len().min(NAME_BYTES_MAX)]);
        scratch
    }

    fn append(&mut self, part: &[u8]) {
        self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Renames the file to its final `name`, replacing another file; removes it if that fails.
    pub fn rename(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let renamed = renameat(directory, self.as_bytes(), directory, name);
        if renamed.is_err() {
            self.remove(directory);
        }
        renamed
    }

    /// Removes the temporary name if it still exists after its rename, which does nothing between two names
    /// of one file. Returns true if it existed.
    pub fn remove_if_left(&self, directory: BorrowedFd<'_>) -> bool {
        unlinkat(directory, self.as_bytes(), AtFlags::empty()).is_ok()
    }

    /// Removes the temporary name. A file that can't be removed stays under that recognizable name.
    pub fn remove(&self, directory: BorrowedFd<'_>) {
        let _ = unlinkat(directory, self.as_bytes(), AtFlags::empty());
    }
}

/// The first part of a name that fits into `bytes`. UTF-8 is cut only between characters, as some file
/// systems require.
fn truncate_name(name: &[u8], bytes: usize) -> &[u8] {
    if name.len() <= bytes {
        return name;
    }
    match std::str::from_utf8(name) {
        Ok(text) => {
            let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at));
            &name[..end.unwrap_or(0)]
        }
        Err(_) => &name[..bytes],
    }
}

impl std::fmt::Debug for ScratchName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&carrack_model::escape(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn names_are_telling_distinct_and_never_too_long() {
        fn new(name: &[u8], number: u32) -> ScratchName {
            ScratchName::new(name, number, COMMON_NAME_BYTES)
        }
        assert_eq!(new(b"data", 0x1234_abcd).as_bytes(), b".data.carrack-1234abcd");
        assert!(new(&[b'x'; 255], 7).as_bytes().ends_with(b"x.carrack-00000007"));
        for (bytes, expected) in [(255, 255), (200, 200), (143, 143), (130, 143), (125, 143), (124, 142)] {
            assert_eq!(new(&vec![b'x'; bytes], 7).as_bytes().len(), expected, "{bytes}");
        }
        // A character is never cut.
        let cut = new("é".repeat(127).as_bytes(), 7);
        assert!(std::str::from_utf8(cut.as_bytes()).is_ok() && cut.as_bytes().len() <= 254);
        let names = ScratchNames::new(None).unwrap();
        assert_ne!(
            names.name_within(b"a", COMMON_NAME_BYTES).as_bytes(),
            names.name_within(b"a", COMMON_NAME_BYTES).as_bytes()
        );
    }

    #[test]
    fn a_taken_name_is_passed_over_a_bounded_number_of_times() {
        let names = ScratchNames::new(None).unwrap();
        for (free_at, expected, tries) in [(3, Ok(3), 3), (1_000, Err(Errno::EXIST), ATTEMPTS_MAX)] {
            let tried = std::cell::Cell::new(0);
            let created = names.create(b"a", |_| {
                tried.set(tried.get() + 1);
                if tried.get() < free_at { Err(Errno::EXIST) } else { Ok(tried.get()) }
            });
            assert_eq!(created.map(|(made, _)| made), expected);
            assert_eq!(tried.get(), tries);
        }
    }

    #[test]
    fn a_temporary_name_is_no_longer_than_the_name_where_the_file_system_wants_that() {
        let names = ScratchNames::new(None).unwrap();
        fn create(most: usize) -> impl Fn(&[u8]) -> Result<usize, Errno> {
            move |free| if free.len() > most { Err(Errno::NAMETOOLONG) } else { Ok(free.len()) }
        }
        assert_eq!(names.create(&[b'x'; 60], create(60)).unwrap().0, 60);
        assert_eq!(names.create(b"short", create(30)).unwrap().0, 23);
        assert_eq!(names.create(b"short", create(19)).unwrap().0, 19);
        assert_eq!(names.create(&[b'x'; 61], create(60)).unwrap_err(), Errno::NAMETOOLONG);
    }

    #[test]
    fn what_an_earlier_session_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let own = ScratchNames::new(Some(0xabcd)).unwrap();
        let left = own.name_within(b"data", COMMON_NAME_BYTES);
        let left = String::from_utf8(left.as_bytes().to_vec()).unwrap();
        assert!(left.starts_with(".data.carrack-abcd"));
        let others = [
            "data",
            ".data.carrack-abcd",
            ".data.carrack-abceffff",
            "data.carrack-abcd0000",
            ".data.carrack-abcd000x",
            ".carrack-abcd0000",
            ".a.carrack-abcd0001",
        ];
        others.iter().chain([&&*left]).for_each(|name| std::fs::write(dir.path().join(name), b"").unwrap());
        let held = std::fs::File::open(dir.path()).unwrap();
        own.remove_leftovers(held.as_fd(), |name| name == b".a.carrack-abcd0001").unwrap();
        assert!(!dir.path().join(&left).exists());
        others.iter().for_each(|name| assert!(dir.path().join(name).exists(), "{name}"));
    }

    #[test]
    fn a_name_that_a_rename_between_names_of_one_file_leaves_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("first"), b"").unwrap();
        std::fs::hard_link(dir.path().join("first"), dir.path().join("second")).unwrap();
        let names = ScratchNames::new(None).unwrap();
        for (name, is_left) in [(&b"second"[..], true), (b"third", false)] {
            let held = held.as_fd();
            let linked =
                names.create(name, |free| rustix::fs::linkat(held, "first", held, free, AtFlags::empty()));
            let ((), made) = linked.unwrap();
            made.rename(held, name).unwrap();
            assert_eq!(made.remove_if_left(held), is_left);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn learns_downwards_only() {
        let names = ScratchNames::new(None).unwrap();
        names.record_final_name_method(FinalNameMethod::Rename);
        names.record_final_name_method(FinalNameMethod::LinkProc);
        assert_eq!(names.final_name_method(), FinalNameMethod::Rename);
    }
}
