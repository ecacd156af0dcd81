//! The census of a tree: all metadata of its entries, attribute by attribute.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr};

/// The values, by the name of the attribute.
pub type Row = BTreeMap<String, String>;

/// Returns every entry below `root`, and `root` itself.
pub fn census(root: &Path) -> BTreeMap<PathBuf, Row> {
    let mut found = BTreeMap::new();
    // By inode, the names of files that have several.
    let mut names: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if metadata.is_file() && metadata.nlink() > 1 {
            names.entry(metadata.ino()).or_default().push(path.strip_prefix(root).unwrap().to_owned());
        }
        found.insert(path.strip_prefix(root).unwrap().to_owned(), row(&path, &metadata));
    }
    for mut names in names.into_values() {
        names.sort();
        for name in &names {
            let row: &mut Row = found.get_mut(name).unwrap();
            row.insert("names".to_owned(), format!("{} with {:?}", names.len(), names[0]));
        }
    }
    found
}

fn row(path: &Path, metadata: &Metadata) -> Row {
    let mut row = Row::new();
    let mut put = |name: &str, value: String| row.insert(name.to_owned(), value);
    put("mode", format!("{:o}", metadata.mode()));
    put("owner", metadata.uid().to_string());
    put("group", metadata.gid().to_string());
    put("time", format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()));
    put("contents", contents(path, metadata));
    // The size of an object on a file system in memory: smaller files travel in bundles.
    let is_large = metadata.len() >= 512 << 10;
    put("holes", (is_large && has_holes(metadata)).to_string());
    put("small holes", (!is_large && has_holes(metadata)).to_string());
    for (name, value) in attributes(path) {
        put(&name, value);
    }
    row
}

/// Returns true if the storage holds less than half of a file that is not tiny; some file systems keep tiny
/// ones with their names.
fn has_holes(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.len() > 64 << 10 && metadata.blocks() * 512 < metadata.len() / 2
}

fn contents(path: &Path, metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return format!("to {:?}", fs::read_link(path).unwrap());
    }
    if kind.is_file() {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(path).unwrap()).unwrap();
        return format!("{} bytes, {}", metadata.len(), hasher.finalize());
    }
    let is_device = kind.is_block_device() || kind.is_char_device();
    if is_device { format!("device {:x}", metadata.rdev()) } else { String::new() }
}

fn attributes(path: &Path) -> BTreeMap<String, String> {
    let mut names = vec![0; 64 << 10];
    let Ok(count) = llistxattr(path, &mut names[..]) else { return BTreeMap::new() };
    let names = names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let count = lgetxattr(path, name, &mut value[..]).unwrap();
        format!("{count} bytes, {}", blake3::hash(&value[..count]))
    };
    names.map(|name| (String::from_utf8_lossy(name).into_owned(), value(name))).collect()
}

/// Returns lines with the differences of `copy`, each with its path and the attribute.
pub fn differences(expected: &Path, copy: &Path) -> Vec<String> {
    let (expected, mut copy) = (census(expected), census(copy));
    let mut lines = Vec::new();
    for (path, row) in expected {
        let shown = path.as_os_str().as_bytes().escape_ascii().to_string();
        let Some(other) = copy.remove(&path) else {
            lines.push(format!("{shown}: missing"));
            continue;
        };
        let names = row.keys().chain(other.keys().filter(|name| !row.contains_key(*name)));
        for name in names.filter(|name| row.get(*name) != other.get(*name)) {
            lines.push(format!("{shown}: {name}: {:?} became {:?}", row.get(name), other.get(name)));
        }
    }
    lines.extend(copy.into_keys().map(|path| format!("{path:?}: was not there")));
    lines
}
