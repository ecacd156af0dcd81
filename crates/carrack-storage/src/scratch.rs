//! Names for what is not yet complete, and which way of placing a file works here.
//!
//! One for each transfer at the sink, shared by its threads.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use carrack_model::limits::NAME_BYTES_MAX;
use rustix::fs::{AtFlags, CWD, Mode, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::beneath::PASSAGE;

/// `.carrack-` and eight digits.
const SUFFIX_BYTES: usize = 17;

/// How many names are tried; a second one is needed only if another process left the same number behind.
const ATTEMPTS_MAX: usize = 16;

/// How a small file gets its name when it is complete, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Placing {
    /// It is written without a name and linked by its descriptor: allowed with `CAP_DAC_READ_SEARCH`, and since
    /// Linux 6.10 to whoever opened it.
    LinkDescriptor = 0,
    /// It is written without a name and linked by its `/proc` entry.
    LinkProc = 1,
    /// It is written under a temporary name and renamed: file systems without `O_TMPFILE`.
    Rename = 2,
}

/// Temporary names of one transfer, and what it learnt of the destination.
#[derive(Debug)]
pub struct ScratchNames {
    next: AtomicU32,
    placing: AtomicU8,
    /// `/proc/self/fd`, opened when it is needed; nothing where `/proc` is not mounted.
    descriptors: OnceLock<Option<OwnedFd>>,
}

impl ScratchNames {
    /// Starts at a random number.
    ///
    /// # Errors
    /// What `getrandom` says.
    pub fn new() -> io::Result<ScratchNames> {
        let mut seed = [0; 4];
        getrandom(&mut seed, GetRandomFlags::empty())?;
        let next = AtomicU32::new(u32::from_ne_bytes(seed));
        let placing = AtomicU8::new(Placing::LinkDescriptor as u8);
        Ok(ScratchNames { next, placing, descriptors: OnceLock::new() })
    }

    /// A name that this process gives out once in 2^32 times.
    pub(crate) fn name_for(&self, name: &[u8]) -> ScratchName {
        ScratchName::new(name, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls `create` with temporary names for `name` until one is free.
    pub(crate) fn create<T>(
        &self,
        name: &[u8],
        create: impl Fn(&[u8]) -> Result<T, Errno>,
    ) -> Result<(T, ScratchName), Errno> {
        for _ in 0..ATTEMPTS_MAX {
            let temporary = self.name_for(name);
            match create(temporary.as_bytes()) {
                Err(Errno::EXIST) => {}
                answer => return answer.map(|made| (made, temporary)),
            }
        }
        Err(Errno::EXIST)
    }

    /// The directory of this process's descriptors.
    pub(crate) fn descriptors(&self) -> Option<&OwnedFd> {
        let open = || openat(CWD, c"/proc/self/fd", PASSAGE, Mode::empty()).ok();
        self.descriptors.get_or_init(open).as_ref()
    }

    pub(crate) fn placing(&self) -> Placing {
        match self.placing.load(Ordering::Relaxed) {
            0 => Placing::LinkDescriptor,
            1 => Placing::LinkProc,
            _ => Placing::Rename,
        }
    }

    /// Remembers that the faster ways did not work and this one did.
    pub(crate) fn remember(&self, placing: Placing) {
        self.placing.fetch_max(placing as u8, Ordering::Relaxed);
    }
}

/// `.NAME.carrack-XXXXXXXX` with as much of NAME as fits; kept without an allocation.
pub(crate) struct ScratchName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl ScratchName {
    fn new(name: &[u8], number: u32) -> ScratchName {
        let kept = &name[..name.len().min(NAME_BYTES_MAX - SUFFIX_BYTES - 1)];
        let mut scratch = ScratchName { bytes: [0; NAME_BYTES_MAX], length: 0 };
        scratch.append(b".");
        scratch.append(kept);
        scratch.append(b".carrack-");
        for shift in (0..32).step_by(4).rev() {
            scratch.append(&[b"0123456789abcdef"[(number >> shift & 15) as usize]]);
        }
        scratch
    }

    fn append(&mut self, part: &[u8]) {
        self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
        self.length += part.len();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Gives what has this name its final `name`, in place of what stood there; takes it away if that fails.
    pub fn rename(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let renamed = renameat(directory, self.as_bytes(), directory, name);
        if renamed.is_err() {
            self.remove(directory);
        }
        renamed
    }

    /// Takes it away; what can't be removed stays behind under its telling name.
    pub fn remove(&self, directory: BorrowedFd<'_>) {
        let _ = unlinkat(directory, self.as_bytes(), AtFlags::empty());
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

    #[test]
    fn names_are_telling_distinct_and_never_too_long() {
        assert_eq!(ScratchName::new(b"data", 0x1234_abcd).as_bytes(), b".data.carrack-1234abcd");
        let long = ScratchName::new(&[b'x'; 255], 7);
        assert_eq!(long.as_bytes().len(), 255);
        assert!(long.as_bytes().ends_with(b"x.carrack-00000007"));
        let names = ScratchNames::new().unwrap();
        assert_ne!(names.name_for(b"a").as_bytes(), names.name_for(b"a").as_bytes());
    }

    #[test]
    fn a_taken_name_is_passed_over_a_bounded_number_of_times() {
        let names = ScratchNames::new().unwrap();
        let tried = std::cell::Cell::new(0);
        let create = |free_at| {
            tried.set(0);
            names.create(b"a", |_| {
                tried.set(tried.get() + 1);
                if tried.get() < free_at { Err(Errno::EXIST) } else { Ok(tried.get()) }
            })
        };
        assert_eq!(create(3).unwrap().0, 3);
        assert_eq!(create(1_000).unwrap_err(), Errno::EXIST);
        assert_eq!(tried.get(), ATTEMPTS_MAX);
    }

    #[test]
    fn learns_downwards_only() {
        let names = ScratchNames::new().unwrap();
        names.remember(Placing::Rename);
        names.remember(Placing::LinkProc);
        assert_eq!(names.placing(), Placing::Rename);
    }
}
