//! Metadata that could not be kept, counted by kind and reason and reported once each. The entries don't
//! fail, as their contents are right.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use carrack_model::{MetadataLoss, MetadataLossKind, Timestamp};
use rustix::fs::{Stat, Timestamps};
use rustix::io::Errno;

use crate::ScratchNames;
use crate::link_time_support::LinkTimeSupport;
use crate::modes::SET_IDS;
use crate::small_file_placement::{both_times, times};
use crate::status::{ctime_of, mtime_of};
use crate::stored_times::{is_ordinary, is_out_of_range};

/// The bits that chmod(2) sets.
const MODE_BITS: u32 = 0o7777;

/// Bound of the pairs of kind and reason; further ones are counted together.
const KINDS_MAX: usize = 64;

/// Counts losses. Any number of threads may count.
#[derive(Debug, Default)]
pub struct MetadataLossCounter {
    counts: Mutex<BTreeMap<(MetadataLossKind, String), u64>>,
    /// True for each mode that entries show after it was set; there are at most 4,096 modes.
    shown_modes: Mutex<BTreeMap<u32, bool>>,
    /// A [`TimeSettingMethod`].
    time_way: AtomicU8,
    link_times: OnceLock<LinkTimeSupport>,
    /// Set after a time with a fraction was read back.
    has_read_fraction: AtomicBool,
    /// Set if the file system cut the fraction.
    cuts_times: AtomicBool,
    /// Set if a time differs from the source's.
    lost_times: AtomicBool,
}

/// The call that sets a modification time on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum TimeSettingMethod {
    /// Not known yet: a time is read back after it was set.
    Unknown = 0,
    /// Without the access time.
    Alone = 1,
    /// With the access time, as the file system ignores calls with only one.
    Both = 2,
}

impl MetadataLossCounter {
    /// Counts one more entry whose `what` could not be kept, with the `reason`.
    pub fn count(&self, what: &str, reason: &str) {
        self.count_many(what, reason, 1);
    }

    /// Counts `count` more such entries.
    pub(crate) fn count_many(&self, what: &str, reason: &str, count: u64) {
        self.add(MetadataLossKind::Part(what.to_owned()), reason, count);
    }

    /// Counts one more `what`, of which an entry may have several.
    pub fn count_several(&self, what: &str, reason: &str) {
        self.add(MetadataLossKind::Several(what.to_owned()), reason, 1);
    }

    /// Counts one more `noun` that could not be made, with the `reason`.
    pub fn count_whole(&self, noun: &str, reason: &str) {
        self.add(MetadataLossKind::Whole(noun.to_owned()), reason, 1);
    }

    fn add(&self, lost: MetadataLossKind, reason: &str, count: u64) {
        if count == 0 {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (lost, reason.to_owned());
        let has_room = counts.len() < KINDS_MAX || counts.contains_key(&key);
        let key = if has_room {
            key
        } else {
            (MetadataLossKind::Part("other metadata".to_owned()), "various reasons".to_owned())
        };
        *counts.entry(key).or_default() += count;
    }

    /// Returns true if an entry shows the mode that was set. A file system may ignore the call, or show the
    /// same mode for all entries. `look` is called once for each mode, and always for modes with set-ID bits,
    /// which depend on owner and group.
    pub(crate) fn shows_mode(&self, mode: u32, look: impl Fn() -> Result<Stat, Errno>) -> bool {
        if mode & SET_IDS != 0 {
            return has_mode(look(), mode);
        }
        let mut shown = self.shown_modes.lock().unwrap_or_else(PoisonError::into_inner);
        *shown.entry(mode).or_insert_with(|| has_mode(look(), mode))
    }

    /// Sets the time `told` with `set`, and reads it back with `look` if that shows a property of the file
    /// system. `before` is the former time of an entry that existed.
    pub(crate) fn set_time(
        &self,
        told: Timestamp,
        before: Option<Timestamp>,
        set: impl Fn(&Timestamps) -> Result<(), Errno>,
        look: impl Fn() -> Result<Stat, Errno>,
    ) -> Result<(), Errno> {
        let is_both = self.time_way.load(Relaxed) == TimeSettingMethod::Both as u8;
        set(&if is_both { both_times(told) } else { times(told) })?;
        // A time that was right before shows nothing.
        if before.is_none_or(|before| is_out_of_range(told, before))
            && self.reads_back(told, is_both)
            && let Ok(found) = look()
        {
            let set_both = (!is_both).then_some(|| set(&both_times(told)).and_then(|()| look()));
            self.record_time_readback(told, &found, set_both);
        }
        Ok(())
    }

    /// Returns true if the file system's handling of times is known.
    pub(crate) fn knows_times(&self) -> bool {
        self.time_way.load(Relaxed) != TimeSettingMethod::Unknown as u8
    }

    /// Returns true if a time is read back after it was set: the first ones, which show how the file system
    /// handles times, and all that it may be unable to represent.
    fn reads_back(&self, told: Timestamp, is_both: bool) -> bool {
        (self.time_way.load(Relaxed) != TimeSettingMethod::Alone as u8 && !is_both)
            || told.nanoseconds != 0 && !self.has_read_fraction.load(Relaxed)
            || !is_ordinary(told)
    }

    /// Judges a time that was set and read back as `found`. `set_both` sets it with the access time and reads
    /// it back, unless that was done. Another thread may have learned the file system's handling of times
    /// meanwhile.
    fn record_time_readback(
        &self,
        told: Timestamp,
        found: &Stat,
        set_both: Option<impl FnOnce() -> Result<Stat, Errno>>,
    ) {
        let mut stored = mtime_of(found);
        if let Some(set_both) =
            set_both.filter(|_| self.time_way.load(Relaxed) != TimeSettingMethod::Alone as u8)
        {
            let both = is_out_of_range(told, stored).then(set_both).and_then(Result::ok);
            match both.map(|found| mtime_of(&found)).filter(|both| *both != stored) {
                Some(both) => {
                    stored = both;
                    self.time_way.fetch_max(TimeSettingMethod::Both as u8, Relaxed);
                }
                // If the time is close to now, only its fraction shows that the file system did not ignore
                // it.
                None if is_ordinary(told) && is_told_from_now(told, stored, ctime_of(found)) => {
                    self.time_way.fetch_max(TimeSettingMethod::Alone as u8, Relaxed);
                }
                None => {}
            }
        }
        let is_ignored = is_ordinary(told);
        if is_out_of_range(told, stored) {
            self.record_lost_time();
            let why =
                if is_ignored { "the file system ignores it" } else { "the file system has no room for it" };
            self.count("the time", why);
            return;
        }
        self.has_read_fraction.fetch_or(told.nanoseconds != 0, Relaxed);
        self.cuts_times.fetch_or(told != stored, Relaxed);
    }

    /// The handling of symbolic links' times by the file system of `directory`, learned once.
    pub(crate) fn link_times(&self, directory: BorrowedFd<'_>, scratch: &ScratchNames) -> LinkTimeSupport {
        *self.link_times.get_or_init(|| LinkTimeSupport::detect(directory, scratch))
    }

    /// Notes that a time differs from the source's.
    pub(crate) fn record_lost_time(&self) {
        self.lost_times.store(true, Relaxed);
    }

    /// Returns true if any time differs from the source's by more than the file system's granularity.
    pub fn has_lost_times(&self) -> bool {
        self.lost_times.load(Relaxed)
    }

    /// Returns true if a file system with coarse times was seen.
    pub fn cuts_times(&self) -> bool {
        self.cuts_times.load(Relaxed)
    }

    /// Takes the losses, one for each pair of kind and reason, and resets the counts.
    pub fn take(&self) -> Vec<MetadataLoss> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        counts.into_iter().map(|((lost, reason), count)| MetadataLoss { lost, reason, count }).collect()
    }

    /// Takes the losses as lines of text.
    pub fn take_lines(&self) -> Vec<String> {
        self.take().iter().map(MetadataLoss::to_string).collect()
    }
}

fn has_mode(found: Result<Stat, Errno>, mode: u32) -> bool {
    found.map_or(true, |found| found.st_mode & MODE_BITS == mode & MODE_BITS)
}

/// Returns true if `stored` is the time that was set and not that of the call, which is about `now`.
fn is_told_from_now(told: Timestamp, stored: Timestamp, now: Timestamp) -> bool {
    is_out_of_range(told, now) || told.nanoseconds != 0 && stored == told && now != told
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::UTIME_OMIT;

    #[test]
    fn losses_are_told_once_with_their_count() {
        let losses = MetadataLossCounter::default();
        losses.count("the owner", "not permitted");
        losses.count("the owner", "not permitted");
        losses.count("the mode", "not supported");
        losses.count_several("ACLs", "not supported");
        losses.count_several("extended attributes", "not supported");
        losses.count_several("extended attributes", "not supported");
        losses.count_whole("device", "not permitted");
        losses.count_whole("device", "not permitted");
        losses.count_whole("socket", "not permitted");
        let told = [
            "the mode of 1 entry not kept: not supported",
            "the owner of 2 entries not kept: not permitted",
            "1 ACL not kept: not supported",
            "2 extended attributes not kept: not supported",
            "2 devices not made: not permitted",
            "1 socket not made: not permitted",
        ];
        assert_eq!(losses.take_lines(), told);
        assert!(losses.take_lines().is_empty());
    }

    #[test]
    fn there_is_a_bound_to_the_kinds() {
        let losses = MetadataLossCounter::default();
        (0..1_000).for_each(|number| losses.count(&number.to_string(), "so"));
        assert_eq!(losses.take_lines().len(), KINDS_MAX + 1);
    }

    fn found(mtime: (i64, u32)) -> Stat {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut stat = rustix::fs::fstat(file).unwrap();
        (stat.st_mtime, stat.st_mtime_nsec) = (mtime.0, mtime.1.into());
        (stat.st_ctime, stat.st_ctime_nsec) = (1_900_000_000, 0);
        stat
    }

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    /// Sets a time on a file system that stores the result of `stores`, and ignores a time alone if
    /// `is_alone_ignored`.
    fn set(
        losses: &MetadataLossCounter,
        told: Timestamp,
        is_alone_ignored: bool,
        stores: impl Fn(i64, u32) -> (i64, u32),
    ) -> Timestamp {
        let now = (1_900_000_000, 0);
        let stored = std::cell::Cell::new(now);
        let is_set = losses.set_time(
            told,
            None,
            |times| {
                if !is_alone_ignored || times.last_access.tv_nsec != UTIME_OMIT {
                    let told = times.last_modification;
                    stored.set(stores(told.tv_sec, told.tv_nsec as u32));
                }
                Ok(())
            },
            || Ok(found(stored.get())),
        );
        is_set.unwrap();
        at(stored.get().0, stored.get().1)
    }

    #[test]
    fn one_fraction_shows_a_coarse_file_system_and_a_time_without_room_is_a_loss() {
        let losses = MetadataLossCounter::default();
        let time = at(1_600_000_000, 5);
        assert!(losses.reads_back(time, false));
        set(&losses, time, false, |seconds, _| (seconds, 0));
        assert!(losses.cuts_times() && !losses.has_lost_times());
        assert!(!losses.reads_back(time, false) && !losses.reads_back(at(1_600_000_000, 0), false));
        assert!(losses.reads_back(at(5_000_000_000, 0), false));
        set(&losses, at(5_000_000_000, 0), false, |_, _| (i32::MAX.into(), 0));
        assert!(losses.has_lost_times());
        assert_eq!(losses.take_lines(), ["the time of 1 entry not kept: the file system has no room for it"]);
    }

    #[test]
    fn a_time_that_is_ignored_alone_is_set_together_with_the_other() {
        let (losses, time) = (MetadataLossCounter::default(), at(1_600_000_000, 0));
        assert_eq!(set(&losses, time, true, |seconds, fraction| (seconds, fraction)), time);
        assert!(!losses.has_lost_times() && !losses.reads_back(time, true));
        // A thread that started before the handling was known.
        assert!(losses.reads_back(time, false));
        let is_set = std::cell::Cell::new(false);
        let set_both = Some(|| {
            is_set.set(true);
            Ok(found((1_600_000_000, 0)))
        });
        losses.record_time_readback(time, &found((1_900_000_000, 0)), set_both);
        assert!(is_set.get() && !losses.has_lost_times());
        // A file system that ignores both.
        let losses = MetadataLossCounter::default();
        set(&losses, time, true, |_, _| (1_900_000_000, 0));
        assert!(losses.has_lost_times());
        assert_eq!(losses.take_lines(), ["the time of 1 entry not kept: the file system ignores it"]);
    }

    #[test]
    fn a_time_that_was_right_before_tells_nothing() {
        let (losses, time) = (MetadataLossCounter::default(), at(1_600_000_000, 5));
        for before in [time, at(1_600_000_000, 0)] {
            losses.set_time(time, Some(before), |_| Ok(()), || panic!("it was read back")).unwrap();
        }
        assert_eq!(set(&losses, time, true, |seconds, fraction| (seconds, fraction)), time);
    }
}
