//! What could not be kept of entries: counted by kind and reason, and told once each. No failure: the contents are right.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use carrack_model::{Loss, Lost, Timestamp};
use rustix::fs::{Stat, Timestamps};
use rustix::io::Errno;

use crate::ScratchNames;
use crate::link_times::LinkTimes;
use crate::modes::SET_IDS;
use crate::sink_file::{both_times, times};
use crate::status::{changed_of, mtime_of};
use crate::stored_times::{is_ordinary, is_out_of_range};

/// What chmod(2) sets.
const MODE_BITS: u32 = 0o7777;

/// Kinds and reasons that are counted; what comes beyond them is counted together.
const KINDS_MAX: usize = 64;

/// Any number of threads count.
#[derive(Debug, Default)]
pub struct Losses {
    counts: Mutex<BTreeMap<(Lost, String), u64>>,
    /// Whether entries with a mode show it; there are 4,096 at most.
    shown_modes: Mutex<BTreeMap<u32, bool>>,
    /// A [`TimeWay`].
    time_way: AtomicU8,
    link_times: OnceLock<LinkTimes>,
    /// Whether a time with a fraction was read back.
    has_read_fraction: AtomicBool,
    /// Whether the file system cut it.
    cuts_times: AtomicBool,
    /// Whether a time is another than the told one.
    lost_times: AtomicBool,
}

/// How a file system is told a time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum TimeWay {
    /// Not known yet: what was set is read back.
    Unknown = 0,
    /// Without the time of last access.
    Alone = 1,
    /// With the time of last access, as it ignores one of the two alone.
    Both = 2,
}

impl Losses {
    /// `what` of one more entry could not be kept, because of `reason`.
    pub fn count(&self, what: &str, reason: &str) {
        self.count_many(what, reason, 1);
    }

    /// The same of `count` entries.
    pub(crate) fn count_many(&self, what: &str, reason: &str, count: u64) {
        self.add(Lost::Part(what.to_owned()), reason, count);
    }

    /// One more of `what`, of which an entry may have several, could not be kept.
    pub fn count_several(&self, what: &str, reason: &str) {
        self.add(Lost::Several(what.to_owned()), reason, 1);
    }

    /// One more `noun` could not be made, because of `reason`.
    pub fn count_whole(&self, noun: &str, reason: &str) {
        self.add(Lost::Whole(noun.to_owned()), reason, 1);
    }

    fn add(&self, lost: Lost, reason: &str, count: u64) {
        if count == 0 {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (lost, reason.to_owned());
        let key = match counts.len() < KINDS_MAX || counts.contains_key(&key) {
            true => key,
            false => (Lost::Part("other metadata".to_owned()), "various reasons".to_owned()),
        };
        *counts.entry(key).or_default() += count;
    }

    /// Whether an entry shows the mode that was set, a file system may ignore the call or show the same mode of everything. `look` is asked once
    /// for each mode, and always where set-ID bits are in it, which belong to an owner and a group.
    pub(crate) fn shows_mode(&self, mode: u32, look: impl Fn() -> Result<Stat, Errno>) -> bool {
        let looked = || look().map_or(true, |found| found.st_mode & MODE_BITS == mode & MODE_BITS);
        if mode & SET_IDS != 0 {
            return looked();
        }
        let mut shown = self.shown_modes.lock().unwrap_or_else(PoisonError::into_inner);
        *shown.entry(mode).or_insert_with(looked)
    }

    /// Sets the time `told` by `set`, and reads it back by `look` where that tells something of the file system. `before` is the
    /// time of an entry that was there already.
    pub(crate) fn set_time(
        &self,
        told: Timestamp,
        before: Option<Timestamp>,
        set: impl Fn(&Timestamps) -> Result<(), Errno>,
        look: impl Fn() -> Result<Stat, Errno>,
    ) -> Result<(), Errno> {
        let is_both = self.time_way.load(Relaxed) == TimeWay::Both as u8;
        set(&if is_both { both_times(told) } else { times(told) })?;
        // One that was right before tells nothing.
        if before.is_none_or(|before| is_out_of_range(told, before))
            && self.reads_back(told, is_both)
            && let Ok(found) = look()
        {
            let set_both = || set(&both_times(told)).and_then(|()| look());
            self.note_time(told, &found, (!is_both).then_some(set_both));
        }
        Ok(())
    }

    /// Whether it is known how the file system takes times.
    pub(crate) fn knows_times(&self) -> bool {
        self.time_way.load(Relaxed) != TimeWay::Unknown as u8
    }

    /// Whether a time that was set is to be read back: the first ones, which show how the file system takes them, and all that it may
    /// have no room for.
    fn reads_back(&self, told: Timestamp, is_both: bool) -> bool {
        (self.time_way.load(Relaxed) != TimeWay::Alone as u8 && !is_both)
            || told.nanoseconds != 0 && !self.has_read_fraction.load(Relaxed)
            || !is_ordinary(told)
    }

    /// A time was set, and `found` read back; `set_both` sets it together with the time of last access, and reads back too: nothing
    /// where that was done. Another thread may have learned meanwhile how the file system takes times.
    fn note_time(
        &self,
        told: Timestamp,
        found: &Stat,
        set_both: Option<impl FnOnce() -> Result<Stat, Errno>>,
    ) {
        let mut stored = mtime_of(found);
        if let Some(set_both) = set_both.filter(|_| self.time_way.load(Relaxed) != TimeWay::Alone as u8) {
            let both = is_out_of_range(told, stored).then(set_both).and_then(Result::ok);
            match both.map(|found| mtime_of(&found)).filter(|both| *both != stored) {
                Some(both) => {
                    stored = both;
                    self.time_way.fetch_max(TimeWay::Both as u8, Relaxed);
                }
                // Whether a file system ignored a time that is nearly now shows its fraction alone.
                None if is_ordinary(told) && is_told_from_now(told, stored, changed_of(found)) => {
                    self.time_way.fetch_max(TimeWay::Alone as u8, Relaxed);
                }
                None => {}
            }
        }
        let is_ignored = is_ordinary(told);
        if is_out_of_range(told, stored) {
            self.lost_time();
            let why =
                if is_ignored { "the file system ignores it" } else { "the file system has no room for it" };
            self.count("the time", why);
            return;
        }
        self.has_read_fraction.fetch_or(told.nanoseconds != 0, Relaxed);
        self.cuts_times.fetch_or(told != stored, Relaxed);
    }

    /// How the file system of `directory` takes times of symbolic links, learned once.
    pub(crate) fn link_times(&self, directory: BorrowedFd<'_>, scratch: &ScratchNames) -> LinkTimes {
        *self.link_times.get_or_init(|| LinkTimes::of(directory, scratch))
    }

    /// A time is another than the told one.
    pub(crate) fn lost_time(&self) {
        self.lost_times.store(true, Relaxed);
    }

    /// Whether any time is another than the told one, beyond what the file system's granularity makes of it.
    pub fn has_lost_times(&self) -> bool {
        self.lost_times.load(Relaxed)
    }

    /// Whether a file system that stores coarse times was seen.
    pub fn cuts_times(&self) -> bool {
        self.cuts_times.load(Relaxed)
    }

    /// One for each kind and reason, and nothing is counted any more.
    pub fn take(&self) -> Vec<Loss> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        counts.into_iter().map(|((lost, reason), count)| Loss { lost, reason, count }).collect()
    }

    /// The same, a line for each.
    pub fn take_lines(&self) -> Vec<String> {
        self.take().iter().map(Loss::to_string).collect()
    }
}

/// Whether `stored` can't be the moment of the call, which is about `now`, in place of the time that was told.
fn is_told_from_now(told: Timestamp, stored: Timestamp, now: Timestamp) -> bool {
    is_out_of_range(told, now) || told.nanoseconds != 0 && stored == told && now != told
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::UTIME_OMIT;

    #[test]
    fn losses_are_told_once_with_their_count() {
        let losses = Losses::default();
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
        let losses = Losses::default();
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

    /// A file of a file system that stores what `stores` makes of a time; nothing where it ignores one alone.
    fn set(
        losses: &Losses,
        told: Timestamp,
        is_alone_ignored: bool,
        stores: impl Fn(i64, u32) -> (i64, u32),
    ) -> Timestamp {
        let now = (1_900_000_000, 0);
        let stored = std::cell::Cell::new(now);
        let take = |times: &Timestamps| {
            if !is_alone_ignored || times.last_access.tv_nsec != UTIME_OMIT {
                let told = times.last_modification;
                stored.set(stores(told.tv_sec, told.tv_nsec as u32));
            }
            Ok(())
        };
        losses.set_time(told, None, take, || Ok(found(stored.get()))).unwrap();
        at(stored.get().0, stored.get().1)
    }

    #[test]
    fn one_fraction_shows_a_coarse_file_system_and_a_time_without_room_is_a_loss() {
        let losses = Losses::default();
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
        let (losses, time) = (Losses::default(), at(1_600_000_000, 0));
        assert_eq!(set(&losses, time, true, |seconds, fraction| (seconds, fraction)), time);
        assert!(!losses.has_lost_times() && !losses.reads_back(time, true));
        // A thread that began before that was known.
        assert!(losses.reads_back(time, false));
        let is_set = std::cell::Cell::new(false);
        let set_both = || {
            is_set.set(true);
            Ok(found((1_600_000_000, 0)))
        };
        losses.note_time(time, &found((1_900_000_000, 0)), Some(set_both));
        assert!(is_set.get() && !losses.has_lost_times());
        // Ignored all the same.
        let losses = Losses::default();
        set(&losses, time, true, |_, _| (1_900_000_000, 0));
        assert!(losses.has_lost_times());
        assert_eq!(losses.take_lines(), ["the time of 1 entry not kept: the file system ignores it"]);
    }

    #[test]
    fn a_time_that_was_right_before_tells_nothing() {
        let (losses, time) = (Losses::default(), at(1_600_000_000, 5));
        for before in [time, at(1_600_000_000, 0)] {
            losses.set_time(time, Some(before), |_| Ok(()), || panic!("it was read back")).unwrap();
        }
        assert_eq!(set(&losses, time, true, |seconds, fraction| (seconds, fraction)), time);
    }
}
