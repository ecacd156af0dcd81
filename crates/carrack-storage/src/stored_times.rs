//! How destination file systems store modification times: their granularity and range, learned from what they store.
//!
//! A file system with coarse times (Lustre, FAT, SMB, NFS servers, ext4 with 128-byte inodes) stores another time than it is told. Such a
//! time is equal to the told one if it is what the file system makes of that. Times that are equal to the nanosecond cost nothing; else a
//! file system is probed once, with a temporary file. Times that few file systems refuse are probed one by one.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{ModifyWindow, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags, fstat, futimens, openat, statx, unlinkat};
use rustix::io::Errno;

use crate::link_times::LinkTimes;
use crate::sink_file::{both_times, create_flags};
use crate::status::{changed_of, mtime_of};
use crate::{FileStamp, ScratchNames, keep_times};

const SECOND: i128 = 1_000_000_000;

/// The coarsest granularity, FAT's. Times that are further apart differ on every file system.
const COARSEST: i128 = 2 * SECOND;

/// Granularities of file systems in nanoseconds: SMB and NTFS, sshfs and others, exFAT, ext3, FAT.
const GRANULARITIES: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, SECOND, COARSEST];

/// Seconds that every file system can store: FAT begins in 1980, 32 bits with a sign end in 2038; a day less, for the time zone.
const ORDINARY_SECONDS: std::ops::Range<i64> = 315_619_200..2_147_400_000;

/// An odd second with a fraction by which all granularities are told apart.
const PROBE: Timestamp = Timestamp { seconds: 1_234_567_891, nanoseconds: 987_654_321 };

/// Extraordinary times of one file system whose stored form is remembered.
const EXTRAORDINARY_MAX: usize = 64;

/// How the file systems beneath a destination store times. Any number of threads may ask.
#[derive(Debug)]
pub struct StoredTimes {
    window: ModifyWindow,
    /// Names of the files to probe with, where there are no nameless ones. Without them what is there already is looked at.
    scratch: Option<Arc<ScratchNames>>,
    file_systems: Mutex<HashMap<u64, Known>>,
    is_refused: AtomicBool,
}

/// What is known of one file system.
#[derive(Debug, Default)]
struct Known {
    /// What it makes of [`PROBE`].
    storage: Option<Storage>,
    extraordinary: HashMap<Timestamp, Timestamp>,
    link_times: Option<LinkTimes>,
}

/// What a file system makes of an ordinary time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// A multiple of this.
    Stored(Granularity),
    /// It does not let this user set it, or ignores it.
    Refused,
}

impl StoredTimes {
    /// `scratch` names the temporary files to probe with; a dry run makes none that have a name.
    pub fn new(window: ModifyWindow, scratch: Option<Arc<ScratchNames>>) -> StoredTimes {
        StoredTimes { window, scratch, file_systems: Mutex::default(), is_refused: AtomicBool::new(false) }
    }

    /// Whether `found` is the time `told`, as the file system of `directory` stores it or within the user's window.
    pub fn is_same(&self, told: Timestamp, found: Timestamp, directory: BorrowedFd<'_>) -> bool {
        if told == found {
            return true;
        }
        match self.window {
            ModifyWindow::Exact => false,
            ModifyWindow::Within { nanoseconds } if are_within(told, found, nanoseconds) => true,
            ModifyWindow::Within { .. } | ModifyWindow::Stored => self.is_stored(told, found, directory),
        }
    }

    /// Whether `found` is what the file system of `directory` stores of the time `told`, which this run or an earlier one set.
    pub fn is_stored(&self, told: Timestamp, found: Timestamp, directory: BorrowedFd<'_>) -> bool {
        if told == found {
            return true;
        }
        let apart = distance(told, found);
        match is_ordinary(told) {
            // Where no time can be set, a file is as old as its copy.
            true if apart >= COARSEST => {
                told < found && self.known(directory) == Some(Storage::Refused) && self.tell_refused()
            }
            true => self.granularity(directory, found).is_some_and(|known| known.explains(told, found)),
            false => match self.extraordinary(directory, told) {
                Some(stored) if stored == found || !is_out_of_range(told, stored) => stored == found,
                _ => self.known(directory) == Some(Storage::Refused) && self.tell_refused(),
            },
        }
    }

    /// The same of a symbolic link, whose time few file systems in user space keep. What they don't keep is no difference.
    pub fn is_same_link(&self, told: Timestamp, found: Timestamp, directory: BorrowedFd<'_>) -> bool {
        self.is_same(told, found, directory) || self.ignores_links(directory)
    }

    fn ignores_links(&self, directory: BorrowedFd<'_>) -> bool {
        let (Ok(stat), Some(scratch)) = (fstat(directory), &self.scratch) else { return false };
        if let Some(known) = self.file_systems().get(&stat.st_dev).and_then(|known| known.link_times) {
            return !known.are_kept();
        }
        let found = LinkTimes::of(directory, scratch);
        self.file_systems().entry(stat.st_dev).or_default().link_times = Some(found);
        !found.are_kept()
    }

    fn tell_refused(&self) -> bool {
        self.is_refused.store(true, Relaxed);
        true
    }

    /// Whether times were taken as equal because a file system lets none be set, and the destination's was later.
    pub fn has_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// What the file system of `directory` stores times to, for people; nothing if it stores nanoseconds.
    pub fn coarse(&self, directory: BorrowedFd<'_>) -> Option<String> {
        let granularity = self.granularity(directory, Timestamp::default())?;
        (granularity != Granularity(1)).then(|| granularity.to_string())
    }

    fn file_systems(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.file_systems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granularity(&self, directory: BorrowedFd<'_>, found: Timestamp) -> Option<Granularity> {
        match self.known(directory) {
            Some(Storage::Stored(granularity)) => Some(granularity),
            Some(Storage::Refused) => None,
            None => Some(Granularity::seen_in(&fstat(directory).ok()?, found)),
        }
    }

    /// Nothing if no file can be made in the directory.
    fn known(&self, directory: BorrowedFd<'_>) -> Option<Storage> {
        let device = fstat(directory).ok()?.st_dev;
        if let Some(known) = self.file_systems().get(&device).and_then(|known| known.storage) {
            return Some(known);
        }
        let storage = match self.probe(directory, PROBE)? {
            Some(stored) if !is_out_of_range(PROBE, stored) => {
                Storage::Stored(Granularity::of(PROBE, stored))
            }
            _ => Storage::Refused,
        };
        self.file_systems().entry(device).or_default().storage = Some(storage);
        Some(storage)
    }

    fn extraordinary(&self, directory: BorrowedFd<'_>, told: Timestamp) -> Option<Timestamp> {
        let device = fstat(directory).ok()?.st_dev;
        let known =
            self.file_systems().get(&device).and_then(|known| known.extraordinary.get(&told).copied());
        known.or_else(|| {
            let stored = self.probe(directory, told)??;
            let mut file_systems = self.file_systems();
            let known = &mut file_systems.entry(device).or_default().extraordinary;
            if known.len() < EXTRAORDINARY_MAX {
                known.insert(told, stored);
            }
            Some(stored)
        })
    }

    /// What the file system of `directory` makes of a time: nothing if it refuses it, and nothing at all if no file can be made there.
    fn probe(&self, directory: BorrowedFd<'_>, told: Timestamp) -> Option<Option<Timestamp>> {
        let mode = Mode::RUSR | Mode::WUSR;
        match openat(directory, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(file) => {
                let stored = futimens(&file, &both_times(told)).and_then(|()| fstat(&file));
                Some(stored.ok().map(|stat| mtime_of(&stat)))
            }
            Err(_) => keep_times(directory, || store_named(directory, self.scratch.as_deref()?, told).ok()),
        }
    }
}

/// What is stored of the time of a file that is renamed afterwards, as every file that is placed: encfs cuts the time then.
fn store_named(
    directory: BorrowedFd<'_>,
    scratch: &ScratchNames,
    told: Timestamp,
) -> Result<Option<Timestamp>, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let create = |free: &[u8]| openat(directory, free, create_flags(), mode);
    let (file, temporary) = scratch.create(b"times", create)?;
    let (other, renamed) = scratch.create(b"times", create)?;
    drop(other);
    let set = futimens(&file, &both_times(told));
    drop(file);
    let stored = set.and_then(|()| {
        temporary.rename(directory, renamed.as_bytes())?;
        look_anew(directory, renamed.as_bytes())
    });
    let _ = unlinkat(directory, temporary.as_bytes(), AtFlags::empty());
    unlinkat(directory, renamed.as_bytes(), AtFlags::empty())?;
    Ok(stored.ok())
}

/// The time that the file system itself has, and no cache of the kernel's.
fn look_anew(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Timestamp, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let time = statx(directory, name, flags, StatxFlags::MTIME)?.stx_mtime;
    Ok(Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec })
}

/// Nanoseconds of which a file system stores multiples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granularity(i128);

impl Granularity {
    /// The finest that makes `stored` of `told`.
    fn of(told: Timestamp, stored: Timestamp) -> Granularity {
        let fits = |granularity: &i128| Granularity(*granularity).stores(told, stored);
        Granularity(GRANULARITIES.into_iter().find(fits).unwrap_or(1))
    }

    /// The coarsest of which the times of a directory and of something in it are multiples. A change time is the kernel's or the
    /// server's clock, so it has a fraction wherever one can be stored.
    fn seen_in(directory: &Stat, found: Timestamp) -> Granularity {
        Granularity::fitting([mtime_of(directory), changed_of(directory), found])
    }

    /// The coarsest of which these times are multiples.
    fn fitting<const N: usize>(seen: [Timestamp; N]) -> Granularity {
        let fits = |granularity: &i128| seen.iter().all(|time| nanoseconds(*time) % granularity == 0);
        Granularity(GRANULARITIES.into_iter().rev().find(fits).unwrap_or(1))
    }

    /// Whether it or a finer one makes `found` of `told`: encfs cuts times of files, and not those of links and directories.
    fn explains(self, told: Timestamp, found: Timestamp) -> bool {
        let finer = GRANULARITIES.into_iter().filter(|granularity| *granularity <= self.0);
        finer.map(Granularity).any(|granularity| granularity.stores(told, found))
    }

    /// Whether it makes `found` of `told`, by rounding down or up.
    fn stores(self, told: Timestamp, found: Timestamp) -> bool {
        told == found || nanoseconds(found) % self.0.min(SECOND) == 0 && distance(told, found) < self.0
    }
}

impl std::fmt::Display for Granularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ns if ns >= SECOND => write!(f, "{} s", ns / SECOND),
            ns if ns >= 1_000_000 => write!(f, "{} ms", ns / 1_000_000),
            ns if ns >= 1_000 => write!(f, "{} µs", ns / 1_000),
            ns => write!(f, "{ns} ns"),
        }
    }
}

/// Nanoseconds of which the file system seems to store multiples, by the times of one of its files: the change time is the kernel's or the
/// server's clock. Makes no file to find it out, and is wrong where a clock happened to stand at such a multiple.
pub fn time_unit_of(stamp: &FileStamp) -> u32 {
    u32::try_from(Granularity::fitting([stamp.mtime, stamp.ctime]).0).unwrap_or(1)
}

/// Whether a file system that stores multiples of so many nanoseconds may have made `found` of the time `told`.
pub fn may_be_stored(told: Timestamp, found: Timestamp, unit_ns: u32) -> bool {
    Granularity(unit_ns.max(1).into()).explains(told, found)
}

/// Whether two times are at most so many nanoseconds apart.
pub fn are_within(told: Timestamp, found: Timestamp, nanoseconds: u64) -> bool {
    distance(told, found) <= i128::from(nanoseconds)
}

/// Whether every file system can store it, but for its fraction.
pub(crate) fn is_ordinary(time: Timestamp) -> bool {
    ORDINARY_SECONDS.contains(&time.seconds)
}

/// Whether a file system stored another time than its granularity makes of the told one.
pub(crate) fn is_out_of_range(told: Timestamp, stored: Timestamp) -> bool {
    distance(told, stored) >= COARSEST
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds)
}

fn distance(one: Timestamp, other: Timestamp) -> i128 {
    (nanoseconds(one) - nanoseconds(other)).abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    #[test]
    fn every_granularity_is_told_by_one_probe() {
        let (second, fraction) = (PROBE.seconds, PROBE.nanoseconds);
        for (stored, granularity, shown) in [
            (PROBE, 1, "1 ns"),
            (at(second, fraction / 100 * 100), 100, "100 ns"),
            (at(second, fraction / 1_000 * 1_000), 1_000, "1 µs"),
            (at(second, fraction / 1_000_000 * 1_000_000), 1_000_000, "1 ms"),
            (at(second, 980_000_000), 10_000_000, "10 ms"),
            (at(second, 0), SECOND, "1 s"),
            (at(second + 1, 0), SECOND, "1 s"),
            (at(second - 1, 0), COARSEST, "2 s"),
        ] {
            let found = Granularity::of(PROBE, stored);
            assert_eq!((found, found.to_string()), (Granularity(granularity), shown.to_owned()));
        }
    }

    #[test]
    fn what_is_stored_is_a_multiple_less_than_one_granularity_away() {
        let second = Granularity(SECOND);
        assert!(second.stores(at(7, 5), at(7, 0)) && second.stores(at(7, 5), at(8, 0)));
        assert!(!second.stores(at(7, 5), at(7, 4)) && !second.stores(at(7, 5), at(9, 0)));
        assert!(!second.stores(at(7, 0), at(8, 0)));
        assert!(Granularity(COARSEST).stores(at(7, 5), at(6, 0)));
        assert!(!Granularity(1).stores(at(7, 5), at(7, 0)));
        assert!(second.stores(at(-7, 5), at(-7, 0)));
        let (told, micros) = (at(7, 123_456_789), at(7, 123_456_000));
        assert!(second.explains(told, at(7, 0)) && second.explains(told, micros));
        assert!(!second.explains(told, at(7, 123_400_000)) && !Granularity(1).explains(told, micros));
    }

    #[test]
    fn the_change_time_shows_what_a_file_system_stores() {
        let stamp = |mtime, ctime| FileStamp { dev: 1, ino: 1, size: 1, mtime, ctime };
        let told = at(1_600_000_001, 123_456_789);
        for (found, changed, unit, is_same) in [
            (at(1_600_000_001, 0), at(1_700_000_001, 987_654_321), 1, false),
            (at(1_600_000_001, 0), at(1_700_000_001, 0), 1_000_000_000, true),
            (at(1_600_000_000, 0), at(1_700_000_002, 0), 2_000_000_000, true),
            (at(1_600_000_001, 123_456_000), at(1_700_000_001, 987_654_000), 1_000, true),
            (at(1_600_000_001, 123_455_000), at(1_700_000_001, 987_654_000), 1_000, false),
            (at(1_600_000_005, 0), at(1_700_000_001, 0), 1_000_000_000, false),
        ] {
            let seen = time_unit_of(&stamp(found, changed));
            assert_eq!((seen, may_be_stored(told, found, seen)), (unit, is_same), "{found:?}");
        }
    }

    #[test]
    fn a_fine_file_system_compares_to_the_nanosecond() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        let scratch = Arc::new(ScratchNames::new(None).unwrap());
        for scratch in [Some(scratch), None] {
            let same = |window, told, found| {
                StoredTimes::new(window, scratch.clone()).is_same(told, found, held.as_fd())
            };
            let (told, found) = (at(1_600_000_000, 5), at(1_600_000_000, 0));
            assert!(same(ModifyWindow::Stored, told, told));
            assert!(!same(ModifyWindow::Stored, told, found));
            assert!(!same(ModifyWindow::Stored, at(1, 5), at(1, 0)));
            assert!(same(ModifyWindow::Within { nanoseconds: 5 }, told, found));
            assert!(!same(ModifyWindow::Within { nanoseconds: 4 }, told, found));
            assert!(!same(ModifyWindow::Exact, told, found));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_named_file_tells_the_same_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        let scratch = ScratchNames::new(None).unwrap();
        assert_eq!(store_named(held.as_fd(), &scratch, PROBE), Ok(Some(PROBE)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn where_no_time_is_set_a_later_file_is_as_old_as_its_copy() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        let times = StoredTimes::new(ModifyWindow::Stored, None);
        let device = fstat(&held).unwrap().st_dev;
        times.file_systems().entry(device).or_default().storage = Some(Storage::Refused);
        let (old, now) = (at(1_600_000_000, 5), at(1_900_000_000, 7));
        assert!(times.is_same(old, now, held.as_fd()) && times.has_refused());
        assert!(!times.is_same(now, old, held.as_fd()));
        // Of times before 1980 none is set there either.
        let ancient = at(170_000_001, 5);
        assert!(!times.is_same(ancient, now, held.as_fd()), "this one is stored");
        times.file_systems().entry(device).or_default().extraordinary.insert(ancient, old);
        assert!(times.is_same(ancient, now, held.as_fd()));
    }
}
