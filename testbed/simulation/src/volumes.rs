//! File systems in memory, with the log from which a power cut is computed (the storage double's
//! `power_cut`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;

use crate::change::{Attributes, Change, Entry};
use crate::image::{Contents, Image, Ino, Name, Node, ROOT};
use crate::pages::Pages;
use crate::power_cut;

/// The root's volume, which holds the directories of the others.
pub const TOP: usize = 0;
/// The source's volume, `/source`.
pub const SOURCE: usize = 1;
/// The sink's volume, `/there`.
pub const SINK: usize = 2;
/// A second volume of the sink, mounted on a directory of the destination.
pub const BRANCH: usize = 3;

/// Symbolic links that one path may lead over.
const LINKS_MAX: u32 = 40;

/// Returns true for the sink's volumes.
pub fn is_at_sink(volume: usize) -> bool {
    volume == SINK || volume == BRANCH
}

/// A file, directory or link of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRef {
    /// The volume.
    pub volume: usize,
    /// The inode.
    pub ino: Ino,
}

/// The result of following a path.
#[derive(Clone, Debug)]
pub struct WalkedPath {
    /// The directory that has, or would have, the last name.
    pub parent: NodeRef,
    /// The last name; empty for a path that ends in a directory itself.
    pub name: Name,
    /// The node, if there is one.
    pub node: Option<NodeRef>,
}

/// Rules of following a path (`openat2`).
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkRules {
    /// A link as the last name is followed.
    pub follows: bool,
    /// Never above the start.
    pub is_beneath: bool,
    /// Links are refused.
    pub refuses_links: bool,
}

/// One file system.
pub struct MemoryVolume {
    /// The contents that system calls see.
    pub live: Image,
    /// The contents that are durable at the begin of the log.
    base: Image,
    log: Vec<Entry>,
    records: bool,
    next_ino: Ino,
    dirty: BTreeSet<Ino>,
    /// The number of its type, as `statfs` says it.
    pub magic: i64,
    /// Files without a name can be made (`O_TMPFILE`).
    pub has_tmpfile: bool,
}

/// The simulated time as the system's clock shows it.
pub fn system_time(now_ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_nanos(now_ns)
}

impl MemoryVolume {
    /// An empty one.
    pub fn new() -> MemoryVolume {
        let live = Image::new(system_time(0));
        MemoryVolume {
            base: live.clone(),
            live,
            log: Vec::new(),
            records: false,
            next_ino: ROOT + 1,
            dirty: BTreeSet::new(),
            magic: 0xEF53,
            has_tmpfile: true,
        }
    }

    /// Everything is durable, and the log begins.
    pub fn record(&mut self) {
        self.base = self.live.clone();
        self.log.clear();
        self.dirty.clear();
        self.records = true;
    }

    /// The power fails: what was not durable is there or not, as the seed says.
    pub fn cut_power(&mut self, seed: u64) {
        self.live = power_cut::image_after(&self.base, &self.log, seed);
        self.record();
    }

    /// Applies a change, and logs it.
    pub fn change(&mut self, change: Change) {
        if self.records {
            match &change {
                Change::Names { removes, sets, .. } => {
                    self.dirty.extend(removes.iter().chain(sets).map(|(directory, ..)| *directory));
                }
                Change::Write { ino, .. }
                | Change::Resize { ino, .. }
                | Change::Zero { ino, .. }
                | Change::Attributes { ino, .. } => {
                    self.dirty.insert(*ino);
                }
                Change::Synced { ino, data_only: false } => {
                    self.dirty.remove(ino);
                }
                Change::Synced { .. } | Change::SyncFailed { .. } => {}
            }
            self.log.push(Entry::new(&self.live, String::new(), change.clone()));
        }
        self.live.apply(&change);
    }

    /// Makes everything durable (`syncfs`).
    pub fn sync_all(&mut self) {
        for ino in std::mem::take(&mut self.dirty) {
            self.change(Change::Synced { ino, data_only: false });
        }
    }

    fn new_ino(&mut self) -> Ino {
        self.next_ino += 1;
        self.next_ino
    }

    /// Makes a node with a name, or without one.
    pub fn make(&mut self, at: Option<(Ino, &[u8])>, contents: Contents, mode: u32, now: u64) -> Ino {
        let time = system_time(now);
        let kind = match &contents {
            Contents::File(_) => FileType::RegularFile.as_raw_mode(),
            Contents::Directory(_) => FileType::Directory.as_raw_mode(),
            Contents::Link(_) => FileType::Symlink.as_raw_mode(),
            Contents::Special(_) => mode & libc::S_IFMT,
        };
        let ino = self.new_ino();
        let node = Node::new(contents, kind | (mode & 0o7777), (0, 0), time);
        let sets = at.map(|(directory, name)| (directory, name.to_vec(), ino)).into_iter().collect();
        self.change(Change::Names { made: Some(Box::new((ino, node))), removes: vec![], sets, time });
        ino
    }

    /// Writes to a file.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8], now: u64) {
        let data: Arc<[u8]> = data.into();
        self.change(Change::Write { ino, offset, data, time: system_time(now) });
    }

    /// Sets a file's size.
    pub fn resize(&mut self, ino: Ino, bytes: u64, now: u64) {
        self.change(Change::Resize { ino, bytes, time: system_time(now) });
    }

    /// Sets attributes.
    pub fn set_attributes(&mut self, ino: Ino, set: Attributes) {
        self.change(Change::Attributes { ino, set });
    }

    /// A file's bytes.
    pub fn pages(&self, ino: Ino) -> Option<&Pages> {
        self.live.file(ino).ok()
    }
}

/// All volumes of the simulation, as one tree.
pub struct VolumeTree {
    all: [MemoryVolume; 4],
    /// The directory that each volume is mounted on.
    mounts: [Option<NodeRef>; 4],
}

impl VolumeTree {
    /// Two empty ones, `/source` and `/there`.
    pub fn new() -> VolumeTree {
        let mut all = std::array::from_fn(|_| MemoryVolume::new());
        let mut mounts = [None; 4];
        for (volume, name) in [(SOURCE, "source"), (SINK, "there")] {
            let directory = Contents::Directory(Default::default());
            let ino = all[TOP].make(Some((ROOT, name.as_bytes())), directory, 0o755, 0);
            mounts[volume] = Some(NodeRef { volume: TOP, ino });
        }
        let mut directory = ROOT;
        for name in ["proc", "sys", "kernel", "random"] {
            let contents = Contents::Directory(Default::default());
            directory = all[TOP].make(Some((directory, name.as_bytes())), contents, 0o755, 0);
        }
        let file = Contents::File(Pages::default());
        let boot_id = all[TOP].make(Some((directory, b"boot_id")), file, 0o444, 0);
        all[TOP].write(boot_id, 0, b"00000000-0000-4000-8000-000000000001\n", 0);
        VolumeTree { all, mounts }
    }

    /// Mounts [`BRANCH`] on a directory.
    pub fn mount_branch(&mut self, directory: NodeRef) {
        self.mounts[BRANCH] = Some(directory);
    }

    /// A volume.
    pub fn get(&mut self, volume: usize) -> &mut MemoryVolume {
        &mut self.all[volume]
    }

    /// A node's inode.
    pub fn node(&self, at: NodeRef) -> Result<&Node, i32> {
        self.all[at.volume].live.node(at.ino).map_err(|_| libc::ESTALE)
    }

    /// A name in a directory.
    pub fn lookup(&self, directory: NodeRef, name: &[u8]) -> Result<Option<NodeRef>, i32> {
        let image = &self.all[directory.volume].live;
        let names = image.names(directory.ino).map_err(|errno| errno.raw_os_error())?;
        let found = names.get(name).map(|&ino| NodeRef { volume: directory.volume, ino });
        Ok(found.map(|node| self.crossed(node)))
    }

    fn crossed(&self, node: NodeRef) -> NodeRef {
        match (SOURCE..=BRANCH).find(|&volume| self.mounts[volume] == Some(node)) {
            Some(volume) => NodeRef { volume, ino: ROOT },
            None => node,
        }
    }

    /// The directory above.
    pub fn above(&self, node: NodeRef) -> NodeRef {
        let inner = if node.ino == ROOT { self.mounts[node.volume] } else { Some(node) };
        let Some(inner) = inner else { return NodeRef { volume: TOP, ino: ROOT } };
        let ino = self.node(inner).map_or(ROOT, |found| found.home.0);
        NodeRef { volume: inner.volume, ino }
    }

    /// A path of the node.
    pub fn path(&self, node: NodeRef) -> Vec<u8> {
        let path = self.path_below_root(node);
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    fn path_below_root(&self, node: NodeRef) -> Vec<u8> {
        let mount = self.mounts[node.volume];
        let mut path = mount.map_or_else(Vec::new, |mount| self.path_below_root(mount));
        let inner = self.all[node.volume].live.path(node.ino);
        if !inner.is_empty() {
            path.push(b'/');
            path.extend_from_slice(inner.as_bytes());
        }
        path
    }

    /// Follows a path.
    pub fn walk(&self, start: NodeRef, path: &[u8], rules: WalkRules) -> Result<WalkedPath, i32> {
        let mut links = 0;
        self.walk_on(start, path, rules, &mut links)
    }

    fn walk_on(
        &self,
        start: NodeRef,
        path: &[u8],
        rules: WalkRules,
        links: &mut u32,
    ) -> Result<WalkedPath, i32> {
        if path.is_empty() {
            return Err(libc::ENOENT);
        }
        let mut at = start;
        if path[0] == b'/' {
            if rules.is_beneath {
                return Err(libc::EXDEV);
            }
            at = NodeRef { volume: TOP, ino: ROOT };
        }
        let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
        let needs_directory = path.ends_with(b"/");
        if parts.is_empty() {
            return Ok(WalkedPath { parent: self.above(at), name: Name::new(), node: Some(at) });
        }
        let mut depth = 0i64;
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            if !matches!(self.node(at)?.contents, Contents::Directory(_)) {
                return Err(libc::ENOTDIR);
            }
            if part.len() > 255 {
                return Err(libc::ENAMETOOLONG);
            }
            if *part == b"." || *part == b".." {
                if *part == b".." {
                    depth -= 1;
                    if rules.is_beneath && depth < 0 {
                        return Err(libc::EXDEV);
                    }
                    at = self.above(at);
                }
                if is_last {
                    return Ok(WalkedPath { parent: self.above(at), name: Name::new(), node: Some(at) });
                }
                continue;
            }
            let found = self.lookup(at, part)?;
            let Some(node) = found else {
                return if is_last {
                    Ok(WalkedPath { parent: at, name: part.to_vec(), node: None })
                } else {
                    Err(libc::ENOENT)
                };
            };
            let follows = !is_last || rules.follows || needs_directory;
            if let Contents::Link(target) = &self.node(node)?.contents
                && follows
            {
                *links += 1;
                if rules.refuses_links || *links > LINKS_MAX {
                    return Err(libc::ELOOP);
                }
                let inner = WalkRules { follows: true, ..rules };
                let walked = self.walk_on(at, target, inner, links)?;
                match (walked.node, is_last) {
                    (node, true) => return Ok(WalkedPath { node, ..walked }),
                    (Some(node), false) => at = node,
                    (None, false) => return Err(libc::ENOENT),
                }
                depth += 1;
                continue;
            }
            if is_last {
                let is_directory = matches!(self.node(node)?.contents, Contents::Directory(_));
                if needs_directory && !is_directory {
                    return Err(libc::ENOTDIR);
                }
                return Ok(WalkedPath { parent: at, name: part.to_vec(), node: Some(node) });
            }
            depth += 1;
            at = node;
        }
        Err(libc::ENOENT)
    }
}
