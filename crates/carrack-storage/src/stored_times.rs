//! The granularity and range of modification times on destination file systems, learned from stored times.
//!
//! A file system with coarse times (Lustre, FAT, SMB, NFS servers, ext4 with 128-byte inodes) stores a
//! rounded time. A stored time counts as equal to the source's if it is that rounded time. Times that are
//! equal to the nanosecond need no check; otherwise the file system is probed once, with a temporary file.
//! Times that few file systems can't store are probed one by one.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_model::{ModifyWindow, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags, fstat, futimens, openat, statx, unlinkat};
use rustix::io::Errno;

use crate::link_time_support::LinkTimeSupport;
use crate::small_file_placement::{both_times, create_flags};
use crate::status::{ctime_of, mtime_of};
use crate::{FileStamp, ScratchNames, preserve_times};

const SECOND: i128 = 1_000_000_000;

/// The coarsest granularity, FAT's. Times that are further apart differ on every file system.
const COARSEST: i128 = 2 * SECOND;

/// Granularities of file systems in nanoseconds: SMB and NTFS, sshfs and others, exFAT, ext3, FAT.
const GRANULARITIES: [i128; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, SECOND, COARSEST];

/// Seconds that every file system can store: FAT starts in 1980, signed 32-bit times end in 2038; a day less,
/// for the time zone.
const ORDINARY_SECONDS: std::ops::Range<i64> = 315_619_200..2_147_400_000;

/// An odd second with a fraction that distinguishes all granularities.
const PROBE: Timestamp = Timestamp { seconds: 1_234_567_891, nanoseconds: 987_654_321 };

/// Bound of the cache of extraordinary times of one file system.
const EXTRAORDINARY_MAX: usize = 64;

/// The stored form of times on the file systems beneath a destination. Any number of threads may call it.
#[derive(Debug)]
pub struct DestinationTimePrecision {
    window: ModifyWindow,
    /// Temporary names of the probes, if there are no nameless files. Without it, existing files are
    /// examined.
    scratch: Option<Arc<ScratchNames>>,
    file_systems: Mutex<HashMap<u64, FileSystemTimes>>,
    is_refused: AtomicBool,
}

/// The knowledge of one file system.
#[derive(Debug, Default)]
struct FileSystemTimes {
    /// The result of storing [`PROBE`].
    storage: Option<TimeStorage>,
    extraordinary: HashMap<Timestamp, Timestamp>,
    link_times: Option<LinkTimeSupport>,
}

/// The handling of an ordinary time by a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeStorage {
    /// It is rounded to a multiple of this.
    Stored(TimeGranularity),
    /// It is refused for this user, or ignored.
    Refused,
}

impl DestinationTimePrecision {
    /// `scratch` names the temporary probe files; a dry run creates none with a name.
    pub fn new(window: ModifyWindow, scratch: Option<Arc<ScratchNames>>) -> DestinationTimePrecision {
        DestinationTimePrecision {
            window,
            scratch,
            file_systems: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Returns true if `found` is the time `told` as the file system of `directory` stores it, or within the
    /// user's window.
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

    /// Returns true if `found` is the stored form of the time `told` on the file system of `directory`, set
    /// by this or an earlier run.
    pub fn is_stored(&self, told: Timestamp, found: Timestamp, directory: BorrowedFd<'_>) -> bool {
        if told == found {
            return true;
        }
        if !is_ordinary(told) {
            return match self.stored_extraordinary_time(directory, told) {
                Some(stored) if stored == found || !is_out_of_range(told, stored) => stored == found,
                _ => self.time_storage(directory) == Some(TimeStorage::Refused) && self.record_refusal(),
            };
        }
        if distance(told, found) >= COARSEST {
            // If times can't be set, a copy is younger than its source.
            return told < found
                && self.time_storage(directory) == Some(TimeStorage::Refused)
                && self.record_refusal();
        }
        self.granularity(directory, found).is_some_and(|known| known.explains(told, found))
    }

    /// The same for a symbolic link. Returns true if the file system keeps no times of links, as many in user
    /// space.
    pub fn is_same_link(&self, told: Timestamp, found: Timestamp, directory: BorrowedFd<'_>) -> bool {
        self.is_same(told, found, directory) || self.ignores_links(directory)
    }

    fn ignores_links(&self, directory: BorrowedFd<'_>) -> bool {
        let (Ok(stat), Some(scratch)) = (fstat(directory), &self.scratch) else { return false };
        if let Some(known) = self.file_systems().get(&stat.st_dev).and_then(|known| known.link_times) {
            return !known.are_kept();
        }
        let found = LinkTimeSupport::detect(directory, scratch);
        self.file_systems().entry(stat.st_dev).or_default().link_times = Some(found);
        !found.are_kept()
    }

    fn record_refusal(&self) -> bool {
        self.is_refused.store(true, Relaxed);
        true
    }

    /// Returns true if a later time at the destination was accepted because a file system refuses to set
    /// times.
    pub fn has_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// The granularity of the file system of `directory` for reports; none if it stores nanoseconds.
    pub fn coarse_granularity(&self, directory: BorrowedFd<'_>) -> Option<String> {
        let granularity = self.granularity(directory, Timestamp::default())?;
        (granularity != TimeGranularity(1)).then(|| granularity.to_string())
    }

    fn file_systems(&self) -> MutexGuard<'_, HashMap<u64, FileSystemTimes>> {
        self.file_systems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granularity(&self, directory: BorrowedFd<'_>, found: Timestamp) -> Option<TimeGranularity> {
        match self.time_storage(directory) {
            Some(TimeStorage::Stored(granularity)) => Some(granularity),
            Some(TimeStorage::Refused) => None,
            None => Some(TimeGranularity::from_observed(&fstat(directory).ok()?, found)),
        }
    }

    /// The handling of an ordinary time; none if no file can be made in the directory.
    fn time_storage(&self, directory: BorrowedFd<'_>) -> Option<TimeStorage> {
        let device = fstat(directory).ok()?.st_dev;
        if let Some(known) = self.file_systems().get(&device).and_then(|known| known.storage) {
            return Some(known);
        }
        let storage = match self.probe(directory, PROBE)? {
            Some(stored) if !is_out_of_range(PROBE, stored) => {
                TimeStorage::Stored(TimeGranularity::of(PROBE, stored))
            }
            _ => TimeStorage::Refused,
        };
        self.file_systems().entry(device).or_default().storage = Some(storage);
        Some(storage)
    }

    fn stored_extraordinary_time(&self, directory: BorrowedFd<'_>, told: Timestamp) -> Option<Timestamp> {
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

    /// The stored form of a time on the file system of `directory`. The inner option is none if it refuses
    /// the time, the outer one if no file can be made there.
    fn probe(&self, directory: BorrowedFd<'_>, told: Timestamp) -> Option<Option<Timestamp>> {
        let mode = Mode::RUSR | Mode::WUSR;
        match openat(directory, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
            Ok(file) => {
                let stored = futimens(&file, &both_times(told)).and_then(|()| fstat(&file));
                Some(stored.ok().map(|stat| mtime_of(&stat)))
            }
            Err(_) => {
                preserve_times(directory, || probe_by_rename(directory, self.scratch.as_deref()?, told).ok())
            }
        }
    }
}

/// The stored time of a file after a rename, as each placed file is renamed: encfs rounds the time then.
fn probe_by_rename(
    directory: BorrowedFd<'_>,
    scratch: &ScratchNames,
    told: Timestamp,
) -> Result<Option<Timestamp>, Errno> {
    let (file, temporary) = scratch.create(b"times", |free| create_probe(directory, free))?;
    let (other, renamed) = scratch.create(b"times", |free| create_probe(directory, free))?;
    drop(other);
    let set = futimens(&file, &both_times(told));
    drop(file);
    let stored = set.and_then(|()| {
        temporary.rename(directory, renamed.as_bytes())?;
        uncached_mtime(directory, renamed.as_bytes())
    });
    let _ = unlinkat(directory, temporary.as_bytes(), AtFlags::empty());
    unlinkat(directory, renamed.as_bytes(), AtFlags::empty())?;
    Ok(stored.ok())
}

fn create_probe(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(directory, name, create_flags(), Mode::RUSR | Mode::WUSR)
}

/// The modification time of the file system itself, past the kernel's cache.
fn uncached_mtime(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Timestamp, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let time = statx(directory, name, flags, StatxFlags::MTIME)?.stx_mtime;
    Ok(Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec })
}

/// A unit in nanoseconds; a file system stores multiples of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimeGranularity(i128);

impl TimeGranularity {
    /// The finest unit that stores `told` as `stored`.
    fn of(told: Timestamp, stored: Timestamp) -> TimeGranularity {
        let finest = GRANULARITIES.into_iter().find(|unit| TimeGranularity(*unit).stores(told, stored));
        TimeGranularity(finest.unwrap_or(1))
    }

    /// The coarsest unit of the times of a directory and of an entry in it. A change time comes from the
    /// clock of the kernel or server, so it has a fraction if one can be stored.
    fn from_observed(directory: &Stat, found: Timestamp) -> TimeGranularity {
        TimeGranularity::coarsest_unit_of([mtime_of(directory), ctime_of(directory), found])
    }

    /// The coarsest unit of these times.
    fn coarsest_unit_of<const N: usize>(seen: [Timestamp; N]) -> TimeGranularity {
        let coarsest = GRANULARITIES
            .into_iter()
            .rev()
            .find(|unit| seen.iter().all(|time| nanoseconds(*time) % unit == 0));
        TimeGranularity(coarsest.unwrap_or(1))
    }

    /// Returns true if this or a finer unit stores `told` as `found`: encfs rounds times of files, but not of
    /// links and directories.
    fn explains(self, told: Timestamp, found: Timestamp) -> bool {
        let finer = GRANULARITIES.into_iter().filter(|granularity| *granularity <= self.0);
        finer.map(TimeGranularity).any(|granularity| granularity.stores(told, found))
    }

    /// Returns true if `found` is `told` rounded down or up to this unit.
    fn stores(self, told: Timestamp, found: Timestamp) -> bool {
        told == found || nanoseconds(found) % self.0.min(SECOND) == 0 && distance(told, found) < self.0
    }
}

impl std::fmt::Display for TimeGranularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ns if ns >= SECOND => write!(f, "{} s", ns / SECOND),
            ns if ns >= 1_000_000 => write!(f, "{} ms", ns / 1_000_000),
            ns if ns >= 1_000 => write!(f, "{} µs", ns / 1_000),
            ns => write!(f, "{ns} ns"),
        }
    }
}

/// The unit in nanoseconds of a file system's times, judged by the times of one of its files: the change time
/// comes from the clock of the kernel or server. Creates no probe file, and errs if a clock read such a
/// multiple by chance.
pub fn time_unit_of(stamp: &FileStamp) -> u32 {
    u32::try_from(TimeGranularity::coarsest_unit_of([stamp.mtime, stamp.ctime]).0).unwrap_or(1)
}

/// Returns true if a file system with times in units of `unit_ns` nanoseconds may have stored `told` as
/// `found`.
pub fn may_be_stored(told: Timestamp, found: Timestamp, unit_ns: u32) -> bool {
    TimeGranularity(unit_ns.max(1).into()).explains(told, found)
}

/// Returns true if two times differ by at most this number of nanoseconds.
pub fn are_within(told: Timestamp, found: Timestamp, nanoseconds: u64) -> bool {
    distance(told, found) <= i128::from(nanoseconds)
}

/// Returns true if every file system can store the time, except its fraction.
pub(crate) fn is_ordinary(time: Timestamp) -> bool {
    ORDINARY_SECONDS.contains(&time.seconds)
}

/// Returns true if a file system stored a time that no rounding of the source's time explains.
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
            let found = TimeGranularity::of(PROBE, stored);
            assert_eq!((found, found.to_string()), (TimeGranularity(granularity), shown.to_owned()));
        }
    }

    #[test]
    fn what_is_stored_is_a_multiple_less_than_one_granularity_away() {
        let second = TimeGranularity(SECOND);
        assert!(second.stores(at(7, 5), at(7, 0)) && second.stores(at(7, 5), at(8, 0)));
        assert!(!second.stores(at(7, 5), at(7, 4)) && !second.stores(at(7, 5), at(9, 0)));
        assert!(!second.stores(at(7, 0), at(8, 0)));
        assert!(TimeGranularity(COARSEST).stores(at(7, 5), at(6, 0)));
        assert!(!TimeGranularity(1).stores(at(7, 5), at(7, 0)));
        assert!(second.stores(at(-7, 5), at(-7, 0)));
        let (told, micros) = (at(7, 123_456_789), at(7, 123_456_000));
        assert!(second.explains(told, at(7, 0)) && second.explains(told, micros));
        assert!(!second.explains(told, at(7, 123_400_000)) && !TimeGranularity(1).explains(told, micros));
    }

    #[test]
    fn the_change_time_shows_what_a_file_system_stores() {
        fn stamp(mtime: Timestamp, ctime: Timestamp) -> FileStamp {
            FileStamp { dev: 1, ino: 1, size: 1, mtime, ctime }
        }
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
        let (told, found) = (at(1_600_000_000, 5), at(1_600_000_000, 0));
        for scratch in [Some(scratch), None] {
            for (window, told, found, is_same) in [
                (ModifyWindow::Stored, told, told, true),
                (ModifyWindow::Stored, told, found, false),
                (ModifyWindow::Stored, at(1, 5), at(1, 0), false),
                (ModifyWindow::Within { nanoseconds: 5 }, told, found, true),
                (ModifyWindow::Within { nanoseconds: 4 }, told, found, false),
                (ModifyWindow::Exact, told, found, false),
            ] {
                let times = DestinationTimePrecision::new(window, scratch.clone());
                assert_eq!(times.is_same(told, found, held.as_fd()), is_same, "{told:?} {found:?}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_named_file_tells_the_same_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        let scratch = ScratchNames::new(None).unwrap();
        assert_eq!(probe_by_rename(held.as_fd(), &scratch, PROBE), Ok(Some(PROBE)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn where_no_time_is_set_a_later_file_is_as_old_as_its_copy() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::open(dir.path()).unwrap();
        let times = DestinationTimePrecision::new(ModifyWindow::Stored, None);
        let device = fstat(&held).unwrap().st_dev;
        times.file_systems().entry(device).or_default().storage = Some(TimeStorage::Refused);
        let (old, now) = (at(1_600_000_000, 5), at(1_900_000_000, 7));
        assert!(times.is_same(old, now, held.as_fd()) && times.has_refused());
        assert!(!times.is_same(now, old, held.as_fd()));
        // Times before 1980 are refused there, too.
        let ancient = at(170_000_001, 5);
        assert!(!times.is_same(ancient, now, held.as_fd()), "this one is stored");
        times.file_systems().entry(device).or_default().extraordinary.insert(ancient, old);
        assert!(times.is_same(ancient, now, held.as_fd()));
    }
}
