//! The files of a fleet's transfers: large files that take hardly any memory, and a tree of small ones like
//! an operating system's source.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::tree::noise;

const MIB: u64 = 1 << 20;

/// Bytes of data in each stretch of a large file; the rest is a hole, but too small for a copy to keep it.
const BLOCK: usize = 4096;
const STRETCH: u64 = 64 << 10;

/// Names of the tree's upper directories. Most of the files are in few of them, as in real trees.
const TOPS: [&str; 12] = [
    "drivers", "drivers", "drivers", "arch", "arch", "include", "fs", "net", "tools", "sound", "kernel",
    "doc",
];

/// The planted files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// The number of files and links.
    pub files: u64,
    /// The bytes of the files.
    pub bytes: u64,
}

/// Pseudo-random numbers that are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn time(&mut self) -> SystemTime {
        SystemTime::UNIX_EPOCH
            + Duration::new(1_000_000_000 + self.below(600_000_000), self.below(1_000_000_000) as u32)
    }
}

/// Plants files of all sizes from a 64th to a half of `mib` MiB, and a little more than that together. No two
/// of their stretches are equal.
pub fn plant_large(root: &Path, mib: u64) -> Planted {
    fs::create_dir_all(root.join("parts")).unwrap();
    let (noise, mut chance, mut planted) = (noise(1 << 20), Chance(1), Planted::default());
    let sizes = [mib / 2, mib / 8, mib / 8].into_iter().chain([mib / 64; 16]);
    for (number, mib) in sizes.enumerate() {
        let path = if number < 3 { format!("file{number}") } else { format!("parts/{number}") };
        let file = File::create(root.join(path)).unwrap();
        for at in 0..mib * MIB / STRETCH {
            let from = chance.below((noise.len() - BLOCK) as u64) as usize;
            let mut block = noise[from..from + BLOCK].to_vec();
            block[..16].copy_from_slice(&(u128::from(at) << 64 | number as u128).to_le_bytes());
            file.write_all_at(&block, at * STRETCH + chance.below(STRETCH - BLOCK as u64)).unwrap();
        }
        // Hardly any file ends at an object's end.
        let bytes = mib * MIB + 777 * number as u64;
        file.write_all_at(b"e", bytes - 1).unwrap();
        file.set_times(FileTimes::new().set_modified(chance.time())).unwrap();
        planted.files += 1;
        planted.bytes += bytes;
    }
    settle_directories(root, &mut chance);
    planted
}

/// Plants this number of small files, 12 KiB each on the average, in nested directories, with some links,
/// programs and empty ones.
pub fn plant_tree(root: &Path, files: u64) -> Planted {
    let (noise, mut chance) = (noise(2 << 20), Chance(2));
    let mut planted = Planted { files, bytes: 0 };
    let mut directory = PathBuf::new();
    for number in 0..files {
        if number % 15 == 0 {
            directory = root.join(TOPS[chance.below(TOPS.len() as u64) as usize]);
            for _ in 0..chance.below(4) {
                directory.push(format!("sub{}", chance.below(9)));
            }
            fs::create_dir_all(&directory).unwrap();
        }
        let path = directory.join(format!("file-{number}.c"));
        if number % 200 == 7 {
            symlink(format!("../file-{}.c", number - 1), path).unwrap();
            continue;
        }
        // Sizes are of all magnitudes from 512 bytes to 128 KiB, those in the middle most often.
        let magnitude = 512 << (chance.below(5) + chance.below(5));
        let bytes = if number % 100 == 3 { 0 } else { magnitude - chance.below(magnitude / 2) };
        let from = chance.below(noise.len() as u64 - bytes) as usize;
        fs::write(&path, &noise[from..from + bytes as usize]).unwrap();
        let file = File::open(&path).unwrap();
        let mode = if number % 20 == 1 {
            0o755
        } else if number % 50 == 2 {
            0o440
        } else {
            0o644
        };
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
        file.set_times(FileTimes::new().set_modified(chance.time())).unwrap();
        planted.bytes += bytes;
    }
    settle_directories(root, &mut chance);
    planted
}

fn settle_directories(root: &Path, chance: &mut Chance) {
    for path in entries_of(root).into_iter().filter(|path| path.is_dir() && !path.is_symlink()) {
        settle_directories(&path, chance);
    }
    fs::set_permissions(root, Permissions::from_mode(if chance.below(5) == 0 { 0o750 } else { 0o755 }))
        .unwrap();
    File::open(root).unwrap().set_times(FileTimes::new().set_modified(chance.time())).unwrap();
}

fn entries_of(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Checks that the files in a directory have no holes.
#[track_caller]
pub fn assert_no_holes(directory: &Path) {
    for path in entries_of(directory) {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            assert_no_holes(&path);
        } else {
            assert!(metadata.blocks() * 512 >= metadata.len(), "{} has holes", path.display());
        }
    }
}
