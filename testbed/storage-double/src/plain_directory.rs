//! Reads images from directories of a real file system, and writes them there.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timestamps};

use crate::change::{Attributes, Change};
use crate::image::{Contents, Image, Ino, Name, Node, ROOT};
use crate::mount::timespec;
use crate::pages::Pages;

/// Reads the files, directories and links below a directory, with their names and times.
pub fn read(directory: &Path) -> io::Result<Image> {
    let mut reading = Reading { image: Image::new(SystemTime::now()), known: HashMap::new(), last: ROOT };
    let root = reading.node(directory, &fs::symlink_metadata(directory)?)?;
    reading.enter(directory, ROOT)?;
    let attributes = Attributes {
        mode: Some(root.mode),
        uid: Some(root.uid),
        gid: Some(root.gid),
        atime: Some(root.atime),
        mtime: Some(root.mtime),
        time: Some(root.ctime),
    };
    attributes.apply(reading.image.node_mut(ROOT)?);
    Ok(reading.image)
}

struct Reading {
    image: Image,
    /// The inodes by device and number, so that hard links are kept.
    known: HashMap<(u64, u64), Ino>,
    last: Ino,
}

impl Reading {
    fn enter(&mut self, path: &Path, directory: Ino) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name().into_vec();
            let id = (metadata.dev(), metadata.ino());
            if let Some(&ino) = self.known.get(&id) {
                self.name(directory, name, ino, None)?;
                continue;
            }
            self.last += 1;
            let (ino, node) = (self.last, self.node(&entry.path(), &metadata)?);
            self.known.insert(id, ino);
            let mtime = node.mtime;
            self.name(directory, name, ino, Some(node))?;
            if metadata.is_dir() {
                self.enter(&entry.path(), ino)?;
                self.image.node_mut(ino)?.mtime = mtime;
            }
        }
        Ok(())
    }

    fn name(&mut self, directory: Ino, name: Name, ino: Ino, made: Option<Node>) -> io::Result<()> {
        let made = made.map(|node| Box::new((ino, node)));
        let sets = vec![(directory, name, ino)];
        self.image.apply(&Change::Names { made, removes: vec![], sets, time: SystemTime::now() });
        Ok(())
    }

    fn node(&self, path: &Path, metadata: &Metadata) -> io::Result<Node> {
        let contents = match metadata.file_type() {
            kind if kind.is_dir() => Contents::Directory(BTreeMap::new()),
            kind if kind.is_symlink() => Contents::Link(fs::read_link(path)?.into_os_string().into_vec()),
            kind if kind.is_file() => Contents::File(pages(path, metadata.len())?),
            _ => Contents::Special(metadata.rdev() as u32),
        };
        let owner = (metadata.uid(), metadata.gid());
        let node = Node::new(contents, metadata.mode(), owner, SystemTime::now());
        Ok(Node { mtime: metadata.modified()?, atime: metadata.accessed()?, ..node })
    }
}

fn pages(path: &Path, bytes: u64) -> io::Result<Pages> {
    let mut pages = Pages::default();
    let data = fs::read(path)?;
    pages.write(0, &data);
    pages.resize(bytes);
    Ok(pages)
}

/// Writes an image's tree to an empty directory, which gets the root's attributes.
pub fn write(image: &Image, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if fs::read_dir(directory)?.next().is_some() {
        return Err(io::Error::other(format!("{} is not empty", directory.display())));
    }
    Writing { image, written: HashMap::new() }.directory(ROOT, directory)
}

struct Writing<'a> {
    image: &'a Image,
    /// The first path of each inode.
    written: HashMap<Ino, PathBuf>,
}

impl Writing<'_> {
    fn directory(&mut self, directory: Ino, path: &Path) -> io::Result<()> {
        self.written.insert(directory, path.to_owned());
        for (name, &ino) in self.image.names(directory)? {
            let path = path.join(std::ffi::OsStr::from_bytes(name));
            self.entry(ino, &path)?;
        }
        set_attributes(path, self.image.node(directory)?)
    }

    fn entry(&mut self, ino: Ino, path: &Path) -> io::Result<()> {
        let node = self.image.node(ino)?;
        if let Some(first) = self.written.get(&ino) {
            // A directory has one place; after half a rename on the disk, the first that is found.
            return if node.kind() == FileType::Directory { Ok(()) } else { fs::hard_link(first, path) };
        }
        match &node.contents {
            Contents::Directory(_) => {
                fs::create_dir(path)?;
                return self.directory(ino, path);
            }
            Contents::File(pages) => write_pages(&File::create_new(path)?, pages)?,
            Contents::Link(target) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), path)?;
            }
            Contents::Special(device) => {
                rustix::fs::mknodat(CWD, path, node.kind(), Mode::RUSR, (*device).into())?;
            }
        }
        self.written.insert(ino, path.to_owned());
        set_attributes(path, node)
    }
}

/// Writes a file with its holes.
fn write_pages(file: &File, pages: &Pages) -> io::Result<()> {
    file.set_len(pages.bytes())?;
    pages.filled().try_for_each(|(offset, data)| file.write_all_at(data, offset))
}

fn set_attributes(path: &Path, node: &Node) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(node.uid), Some(node.gid))?;
    if node.kind() == FileType::Symlink {
        let times = Timestamps { last_access: timespec(node.atime), last_modification: timespec(node.mtime) };
        return Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?);
    }
    fs::set_permissions(path, Permissions::from_mode(node.mode & 0o7777))?;
    let times = FileTimes::new().set_accessed(node.atime).set_modified(node.mtime);
    match node.kind() {
        FileType::RegularFile | FileType::Directory => File::open(path)?.set_times(times),
        _ => Ok(()),
    }
}
