//! The image that a power cut leaves, from a log. Pure; all chance comes from the seed.
//!
//! Synced changes are there: a file's data and size up to its last `fsync` or `fdatasync`, its mode and times
//! up to its last `fsync`, names up to the last `fsync` of their directory. Other changes may be there or
//! not, as the weather decides: writes page by page, sizes apart from the data, a rename as a whole, names
//! before the data of their files. That is the worst that POSIX allows; XFS and ext4 without `auto_da_alloc`
//! come near it.

use std::collections::HashMap;

use crate::change::{Change, Covered, Entry};
use crate::image::{Image, Ino};
use crate::pages::{PAGE_BYTES, pieces};

/// The fate of changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// None of them is there.
    Nothing,
    /// All of them are there: the programs died, the machine did not.
    Everything,
    /// All names and attributes are there, but no data: a file may have its size, and holds zeros.
    NamesOnly,
    /// Names and attributes up to some moment, in their order, and any pages: a journaling file system.
    Ordered,
    /// Any names, any attributes, any pages, in no order.
    Anything,
}

impl Weather {
    /// Returns the weather of a seed: consecutive seeds have all five.
    pub fn of(seed: u64) -> Weather {
        match seed % 5 {
            0 => Weather::Nothing,
            1 => Weather::Anything,
            2 => Weather::NamesOnly,
            3 => Weather::Ordered,
            _ => Weather::Everything,
        }
    }
}

/// Returns the image after the power failed right after the last operation of the log.
pub fn image_after(base: &Image, log: &[Entry], seed: u64) -> Image {
    let durable = durable(log);
    let chance = Chance { seed, weather: Weather::of(seed), logged: log.len() };
    let mut disk = base.clone();
    for (index, entry) in log.iter().enumerate() {
        if durable[index] {
            disk.apply(&entry.change);
        } else {
            chance.apply(&mut disk, index, &entry.change);
        }
    }
    disk.remove_all_nameless();
    disk
}

/// Returns for each operation true if a sync made it durable.
fn durable(log: &[Entry]) -> Vec<bool> {
    let mut durable = vec![false; log.len()];
    let mut waiting: HashMap<Covered, Vec<usize>> = HashMap::new();
    for (index, entry) in log.iter().enumerate() {
        for covered in &entry.covered {
            waiting.entry(*covered).or_default().push(index);
        }
        match entry.change {
            Change::Synced { ino, data_only } => {
                for covered in covered_by(ino, data_only) {
                    for earlier in waiting.remove(&covered).unwrap_or_default() {
                        durable[earlier] = true;
                    }
                }
            }
            Change::SyncFailed { ino } => {
                for covered in covered_by(ino, false) {
                    waiting.remove(&covered);
                }
            }
            _ => {}
        }
    }
    durable
}

fn covered_by(ino: Ino, data_only: bool) -> Vec<Covered> {
    let mut all = vec![Covered::Data(ino), Covered::Names(ino)];
    if !data_only {
        all.push(Covered::Attributes(ino));
    }
    all
}

/// Decides on all changes that were not synced.
struct Chance {
    seed: u64,
    weather: Weather,
    logged: usize,
}

impl Chance {
    fn apply(&self, disk: &mut Image, index: usize, change: &Change) {
        match change {
            // The inode is made even without its name: a later name finds it new.
            Change::Names { made, .. } if !self.keeps(index) => disk.make(made.as_deref()),
            Change::Names { .. } => disk.apply(change),
            Change::Attributes { .. } if self.keeps(index) => disk.apply(change),
            Change::Attributes { .. } => {}
            Change::Write { ino, offset, data, time } => {
                for piece in pieces(*offset, data.len()) {
                    let (start, part) = (piece.page * PAGE_BYTES as u64 + piece.start as u64, piece.at);
                    if self.keeps_page(index, piece.page) {
                        let data = &data[part..part + piece.bytes];
                        disk.with_file(*ino, *time, |file| file.write(start, data));
                    }
                }
                if self.keeps_size(index) {
                    let end = offset + data.len() as u64;
                    disk.with_file(*ino, *time, |file| file.resize(file.bytes().max(end)));
                }
            }
            Change::Resize { .. } | Change::Zero { .. } if self.keeps_size(index) => disk.apply(change),
            _ => {}
        }
    }

    /// Returns true if a change of names or attributes is there.
    fn keeps(&self, index: usize) -> bool {
        match self.weather {
            Weather::Nothing => false,
            Weather::Everything | Weather::NamesOnly => true,
            Weather::Ordered => index < self.draw(0, 0) as usize % (self.logged + 1),
            Weather::Anything => self.coin(index, 0),
        }
    }

    fn keeps_page(&self, index: usize, page: u64) -> bool {
        match self.weather {
            Weather::Nothing | Weather::NamesOnly => false,
            Weather::Everything => true,
            Weather::Ordered | Weather::Anything => self.coin(index, page + 2),
        }
    }

    fn keeps_size(&self, index: usize) -> bool {
        match self.weather {
            Weather::Nothing => false,
            Weather::Everything => true,
            Weather::NamesOnly | Weather::Ordered | Weather::Anything => self.coin(index, 1),
        }
    }

    fn coin(&self, index: usize, part: u64) -> bool {
        self.draw(index as u64 + 1, part) & 1 == 1
    }

    /// Returns the same number for the same seed and operation, independent of the cut.
    fn draw(&self, index: u64, part: u64) -> u64 {
        mix(mix(mix(self.seed) ^ index) ^ part)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of the number.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::double::Double;
    use crate::faults::Operation;
    use crate::image::{Contents, ROOT};
    use crate::pages::Pages;
    use proptest::prelude::*;
    use rustix::fs::FileType;
    use std::time::SystemTime;

    const SEEDS: u64 = 200;
    const OLD: &[u8] = &[1; 2 * PAGE_BYTES];
    const NEW: &[u8] = &[2; 3 * PAGE_BYTES];

    /// Returns a directory with an old file `f`, and an empty log.
    fn double() -> Double {
        let double = Double::new(Image::new(SystemTime::UNIX_EPOCH));
        write_file(&double, b"f", OLD);
        double.record();
        double
    }

    fn create(double: &Double, name: &[u8]) -> Ino {
        let new = (Contents::File(Pages::default()), FileType::RegularFile.as_raw_mode() | 0o600);
        double.make(Operation::Create, (ROOT, name), new, (0, 0)).unwrap().0
    }

    fn write_file(double: &Double, name: &[u8], data: &[u8]) -> Ino {
        let ino = create(double, name);
        double.write(ino, 0, data).unwrap();
        ino
    }

    /// Returns the possible contents of `name` after a power cut at the end; `None` if it may be missing.
    fn outcomes(double: &Double, name: &[u8]) -> BTreeSet<Option<Vec<u8>>> {
        let read = |image: &Image| {
            let ino = image.lookup(ROOT, name).ok()?;
            Some(image.file(ino).unwrap().read(0, usize::MAX))
        };
        let operations = double.log().len();
        (0..SEEDS).map(|seed| read(&double.image(operations, seed).unwrap())).collect()
    }

    fn only(contents: Option<&[u8]>) -> BTreeSet<Option<Vec<u8>>> {
        BTreeSet::from([contents.map(<[u8]>::to_vec)])
    }

    #[test]
    fn what_was_synced_is_there_and_nothing_else_for_certain() {
        let double = double();
        let ino = write_file(&double, b"g", NEW);
        let torn = outcomes(&double, b"g");
        assert!(torn.contains(&None) && torn.contains(&Some(NEW.to_vec())) && torn.contains(&Some(vec![])));
        assert!(torn.contains(&Some(vec![0; NEW.len()])) && torn.len() > 6, "{}", torn.len());

        double.sync(Operation::Sync, ino, true).unwrap();
        assert_eq!(outcomes(&double, b"g"), BTreeSet::from([None, Some(NEW.to_vec())]));
        double.sync(Operation::SyncDirectory, ROOT, false).unwrap();
        assert_eq!(outcomes(&double, b"g"), only(Some(NEW)));
    }

    #[test]
    fn a_rename_is_whole_and_may_come_before_the_data() {
        let double = double();
        let ino = write_file(&double, b"t", NEW);
        double.rename((ROOT, b"t"), (ROOT, b"f"), 0).unwrap();
        let unsynced = outcomes(&double, b"f");
        assert!(unsynced.contains(&Some(OLD.to_vec())) && unsynced.contains(&Some(vec![0; NEW.len()])));
        assert!(!unsynced.contains(&None));

        double.sync(Operation::Sync, ino, true).unwrap();
        assert_eq!(outcomes(&double, b"f"), BTreeSet::from([Some(OLD.to_vec()), Some(NEW.to_vec())]));
        double.sync(Operation::SyncDirectory, ROOT, false).unwrap();
        assert_eq!(outcomes(&double, b"f"), only(Some(NEW)));
        assert_eq!(outcomes(&double, b"t"), only(None));
    }

    #[test]
    fn after_a_failed_sync_a_successful_one_promises_nothing() {
        let double = double();
        let ino = double.lookup(ROOT, b"f").unwrap().0;
        double.write(ino, 0, NEW).unwrap();
        double.faults.add("EIO:sync".parse().unwrap());
        double.sync(Operation::Sync, ino, false).unwrap_err();
        double.sync(Operation::Sync, ino, false).unwrap();
        assert!(outcomes(&double, b"f").contains(&Some(OLD.to_vec())));
        double.write(ino, 0, NEW).unwrap();
        double.sync(Operation::Sync, ino, false).unwrap();
        assert_eq!(outcomes(&double, b"f"), only(Some(NEW)));
    }

    #[test]
    fn times_and_modes_take_a_whole_sync() {
        let double = double();
        let ino = double.lookup(ROOT, b"f").unwrap().0;
        let old = SystemTime::UNIX_EPOCH;
        let set = crate::change::Attributes { mtime: Some(old), ..Default::default() };
        double.set_attributes(ino, set).unwrap();
        let mtimes = || -> BTreeSet<SystemTime> {
            let operations = double.log().len();
            let image = |seed| double.image(operations, seed).unwrap();
            (0..SEEDS).map(|seed| image(seed).node(ino).unwrap().mtime).collect()
        };
        double.sync(Operation::Sync, ino, true).unwrap();
        assert_eq!(mtimes().len(), 2);
        double.sync(Operation::Sync, ino, false).unwrap();
        assert_eq!(mtimes(), BTreeSet::from([old]));
    }

    proptest! {
        /// After any steps, the image of a cut with everything on disk is the live image, and all link counts
        /// are right.
        #[test]
        fn every_weather_leaves_a_file_system(steps in proptest::collection::vec((0..8u8, 0..4u8, 0..4u8), 1..60), seed in 0..1_000u64) {
            let double = double();
            for (step, one, other) in steps {
                do_something(&double, step, &[b'a' + one], &[b'a' + other]);
            }
            let operations = double.log().len();
            let everything = double.image(operations, 4).unwrap();
            prop_assert_eq!(tree(&everything), tree(&double.live()));
            for operations in 0..=operations {
                let image = double.image(operations, seed).unwrap();
                let names = image.names(ROOT).unwrap();
                for &ino in names.values() {
                    let links = names.values().filter(|&&other| other == ino).count();
                    prop_assert_eq!(image.node(ino).unwrap().links as usize, links);
                }
            }
        }
    }

    fn do_something(double: &Double, step: u8, one: &[u8], other: &[u8]) {
        let found = double.lookup(ROOT, one).map(|(ino, _)| ino);
        // Steps that fail change nothing.
        let _ = match (step, found) {
            (0, Err(_)) => double.sync(Operation::Sync, create(double, one), true),
            (1, Ok(ino)) => double.write(ino, 5_000, NEW),
            (2, Ok(ino)) => double.resize(ino, 3),
            (3, Ok(ino)) => double.link(ino, ROOT, other).map(drop),
            (4, Ok(_)) => double.rename((ROOT, one), (ROOT, other), 0),
            (5, Ok(_)) => double.remove(Operation::Unlink, ROOT, one),
            (6, Ok(ino)) => double.sync(Operation::Sync, ino, false),
            (7, _) => double.sync(Operation::SyncDirectory, ROOT, false),
            _ => Ok(()),
        };
    }

    fn tree(image: &Image) -> Vec<(Vec<u8>, Vec<u8>)> {
        let names = image.names(ROOT).unwrap().iter();
        names.map(|(name, &ino)| (name.clone(), image.file(ino).unwrap().read(0, usize::MAX))).collect()
    }
}
