//! A data set: the files, all versions of each, and the old contents of the destination.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::chance::Chance;
use super::fault::Edit;
use super::plan::{Plan, Shape};

pub type Hash = [u8; 32];

/// A version of a file's content.
#[derive(Clone, Debug)]
pub struct Version {
    pub hash: Hash,
    pub bytes: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// The attempt in which it was made; 0 for before all.
    pub attempt: usize,
}

/// Paths are relative to the set's root.
pub struct Set {
    pub root: PathBuf,
    /// The directory in which a replacing inode is prepared.
    spare: PathBuf,
    pub files: BTreeMap<PathBuf, Vec<Version>>,
    /// The old files of the destination, also those that the set does not have.
    pub old: BTreeMap<PathBuf, Hash>,
    /// The directories in which names changed, each with the last attempt of a change.
    pub renamed_in: BTreeMap<PathBuf, usize>,
    /// Bytes of all versions.
    pub bytes: u64,
}

impl Set {
    /// Plants the set at `root`, and older contents of some of its files at `sink`.
    pub fn plant(
        root: &Path,
        spare: &Path,
        sink: &Path,
        plan: &Plan,
        chance: &mut Chance,
    ) -> io::Result<Set> {
        fs::create_dir_all(root)?;
        let mut set = Set {
            root: root.to_owned(),
            spare: spare.to_owned(),
            files: BTreeMap::new(),
            old: BTreeMap::new(),
            renamed_in: BTreeMap::new(),
            bytes: 0,
        };
        for (path, bytes) in shapes(plan, chance) {
            set.add(path, bytes, chance)?;
        }
        symlink("d0/f0", root.join("link"))?;
        symlink("nowhere", root.join("dangling"))?;
        fs::create_dir(root.join("empty"))?;
        set.plant_old(sink, chance)?;
        set.settle_directories(chance)?;
        Ok(set)
    }

    fn add(&mut self, path: PathBuf, bytes: usize, chance: &mut Chance) -> io::Result<()> {
        let file = self.root.join(&path);
        fs::create_dir_all(file.parent().expect("a file is in a directory"))?;
        fs::write(&file, chance.bytes(bytes))?;
        fs::set_permissions(&file, Permissions::from_mode(chance.one_of(&[0o644, 0o600, 0o755, 0o440])))?;
        let time = SystemTime::UNIX_EPOCH
            + Duration::new(chance.within(1..=1_700_000_000), chance.within(0..=999_999_999) as u32);
        File::open(&file)?.set_times(FileTimes::new().set_modified(time))?;
        self.note(&path, 0)
    }

    /// Records a new version of a file.
    fn note(&mut self, path: &Path, attempt: usize) -> io::Result<()> {
        let file = self.root.join(path);
        let metadata = fs::metadata(&file)?;
        let version = Version {
            hash: hash(&file)?,
            bytes: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            attempt,
        };
        self.bytes += version.bytes;
        self.files.entry(path.to_owned()).or_default().push(version);
        Ok(())
    }

    fn plant_old(&mut self, sink: &Path, chance: &mut Chance) -> io::Result<()> {
        let paths: Vec<PathBuf> = self.files.keys().filter(|_| chance.happens(0.2)).cloned().collect();
        for path in paths.into_iter().chain([PathBuf::from("only here"), PathBuf::from("d0/only here")]) {
            let file = sink.join(&path);
            fs::create_dir_all(file.parent().expect("a file is in a directory"))?;
            let bytes = chance.within(0..=10_000) as usize;
            fs::write(&file, chance.bytes(bytes))?;
            self.old.insert(path, hash(&file)?);
        }
        Ok(())
    }

    fn settle_directories(&self, chance: &mut Chance) -> io::Result<()> {
        let directories: BTreeSet<&Path> = self.files.keys().filter_map(|path| path.parent()).collect();
        for directory in directories {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(chance.within(1..=1_700_000_000));
            File::open(self.root.join(directory))?.set_times(FileTimes::new().set_modified(time))?;
        }
        Ok(())
    }

    /// Edits a file, large ones preferred; returns true if there was one.
    pub fn edit(&mut self, edit: Edit, attempt: usize, chance: &mut Chance) -> io::Result<bool> {
        let mut there: Vec<(u64, PathBuf)> = Vec::new();
        for path in self.files.keys() {
            match fs::symlink_metadata(self.root.join(path)) {
                Ok(metadata) if metadata.len() > 4_096 => there.push((metadata.len(), path.clone())),
                _ => {}
            }
        }
        there.sort_unstable();
        there.reverse();
        there.truncate(if chance.happens(0.7) { 4 } else { usize::MAX });
        if there.is_empty() {
            return Ok(false);
        }
        let (bytes, path) = there[chance.within(0..=there.len() as u64 - 1) as usize].clone();
        self.apply(edit, &path, bytes, attempt, chance)?;
        Ok(true)
    }

    /// Edits a file in one step, so that readers never see a state between two versions.
    fn apply(
        &mut self,
        edit: Edit,
        path: &Path,
        bytes: u64,
        attempt: usize,
        chance: &mut Chance,
    ) -> io::Result<()> {
        let file = self.root.join(path);
        match edit {
            Edit::Patch => {
                // The patch is within one page.
                let page = chance.within(0..=bytes / 4_096 - 1) * 4_096;
                File::options().write(true).open(&file)?.write_all_at(&chance.bytes(512), page)?;
            }
            Edit::Append => {
                File::options().write(true).open(&file)?.write_all_at(&chance.bytes(1_000), bytes)?;
            }
            Edit::Truncate => File::options().write(true).open(&file)?.set_len(bytes / 2)?,
            Edit::Delete => fs::remove_file(&file)?,
            Edit::Replace => self.replace(&file, bytes, chance)?,
        }
        if matches!(edit, Edit::Delete | Edit::Replace) {
            self.renamed_in.insert(path.parent().unwrap_or(Path::new("")).to_owned(), attempt);
        }
        if edit == Edit::Delete { Ok(()) } else { self.note(path, attempt) }
    }

    fn replace(&self, file: &Path, bytes: u64, chance: &mut Chance) -> io::Result<()> {
        let metadata = fs::metadata(file)?;
        fs::write(&self.spare, chance.bytes(bytes as usize))?;
        fs::set_permissions(&self.spare, metadata.permissions())?;
        File::open(&self.spare)?.set_times(FileTimes::new().set_modified(metadata.modified()?))?;
        fs::rename(&self.spare, file)
    }

    /// Returns the contents that the destination may have when attempt `last` has succeeded: that at its
    /// beginning, and later ones.
    pub fn recent(&self, path: &Path, last: usize) -> &[Version] {
        let versions = self.files.get(path).map_or(&[][..], Vec::as_slice);
        let begun = versions.iter().rposition(|version| version.attempt < last).unwrap_or(0);
        &versions[begun..]
    }
}

/// Returns names and sizes.
fn shapes(plan: &Plan, chance: &mut Chance) -> Vec<(PathBuf, usize)> {
    let (small, big) = match plan.shape {
        Shape::Small => (plan.bytes, 0),
        Shape::Big => (0, plan.bytes),
        Shape::Mixed => (plan.bytes / 8, plan.bytes / 8 * 7),
    };
    let mut files = vec![(PathBuf::from("d0/f0"), 10_000), (PathBuf::from("d0/none"), 0)];
    let mut left = small;
    while left > 0 {
        let bytes = chance.within(0..=40_000).min(left).max(1);
        let (number, directory) = (files.len(), chance.within(0..=9));
        files.push((PathBuf::from(format!("d{directory}/e{}/f{number}", directory % 3)), bytes as usize));
        left -= bytes;
    }
    let count = chance.within(1..=4);
    // The sizes end anywhere in an object.
    for number in 0..if big > 0 { count } else { 0 } {
        files.push((
            format!("big{number}").into(),
            (big / count) as usize + chance.within(0..=9_999) as usize,
        ));
    }
    files
}

/// Hashes a file's contents.
pub fn hash(path: &Path) -> io::Result<Hash> {
    Ok(*blake3::hash(&fs::read(path)?).as_bytes())
}
