//! The targets: a directory each, which holds objects, and the choice of targets for new files.
//!
//! All threads call it; a request's thread sleeps for the target's injected delay.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::lov::{ALL_TARGETS, ANY_TARGET, Component, Layout, Object, Pattern};

/// Alignment of offsets, lengths and addresses that `O_DIRECT` may require.
const ALIGNMENT: u64 = 4096;

/// A directory of objects, with its injected delay.
pub struct Target {
    directory: PathBuf,
    direct: bool,
    /// Time to sleep before each read and write.
    pub delay_ms: AtomicU64,
    /// Bytes that were read, by which tests check the balance.
    pub bytes_read: AtomicU64,
    /// Bytes that were written.
    pub bytes_written: AtomicU64,
    /// Requests to read.
    pub reads: AtomicU64,
    /// Requests to write.
    pub writes: AtomicU64,
}

/// The striping of new files without a request.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Bytes of a stripe.
    pub stripe_bytes: u32,
    /// Targets of a file, or [`ALL_TARGETS`].
    pub stripe_count: u16,
}

/// All targets of the file system.
pub struct Targets {
    osts: Vec<Target>,
    /// Holds the contents of components on the metadata target.
    mdt: Target,
    pools: BTreeMap<String, Vec<u32>>,
    defaults: Defaults,
    next_target: AtomicUsize,
    next_id: AtomicU64,
}

impl Targets {
    /// Creates the targets. Those that the pools name must exist.
    pub fn new(
        osts: Vec<Target>,
        mdt: Target,
        pools: BTreeMap<String, Vec<u32>>,
        defaults: Defaults,
    ) -> Targets {
        // IDs are never reused, not even by the next run over the same directories.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next_id = AtomicU64::new(now.as_nanos() as u64);
        Targets { osts, mdt, pools, defaults, next_target: AtomicUsize::new(0), next_id }
    }

    /// Returns the OSTs, by index.
    pub fn osts(&self) -> &[Target] {
        &self.osts
    }

    /// Returns the layout of a file in a directory without a default.
    pub fn default_layout(&self) -> Layout {
        Layout::plain(Component {
            start: 0,
            end: crate::lov::END_OF_FILE,
            pattern: Pattern::Raid0,
            stripe_bytes: self.defaults.stripe_bytes,
            stripe_count: self.defaults.stripe_count,
            first_target: ANY_TARGET,
            wished_targets: vec![],
            pool: String::new(),
            initialised: false,
            objects: vec![],
        })
    }

    /// Returns true if this file system has all targets and pools that the layout names.
    pub fn can_have(&self, layout: &Layout) -> bool {
        layout.components.iter().all(|component| {
            let Some(members) = self.members(&component.pool) else { return false };
            let first = u32::from(component.first_target);
            let first_exists = component.first_target == ANY_TARGET || members.contains(&first);
            first_exists && component.wished_targets.iter().all(|target| members.contains(target))
        })
    }

    /// Returns a pool's targets; with an empty name, all.
    fn members(&self, pool: &str) -> Option<Vec<u32>> {
        match pool {
            "" => Some((0..self.osts.len() as u32).collect()),
            pool => self.pools.get(pool).cloned(),
        }
    }

    /// Makes a component's objects, on targets in turn without a request.
    pub fn initialise(&self, component: &mut Component, file_id: u64) -> Result<(), Errno> {
        if component.stripe_bytes == 0 {
            component.stripe_bytes = self.defaults.stripe_bytes;
        }
        if component.pattern == Pattern::Mdt {
            self.mdt.create(file_id)?;
        } else {
            for target in self.choose(component)? {
                let id = self.next_id.fetch_add(1, Relaxed);
                self.osts.get(target as usize).ok_or(Errno::INVAL)?.create(id)?;
                component.objects.push(Object { target, id });
            }
            component.stripe_count = component.objects.len() as u16;
        }
        component.initialised = true;
        Ok(())
    }

    fn choose(&self, component: &Component) -> Result<Vec<u32>, Errno> {
        if !component.wished_targets.is_empty() {
            return Ok(component.wished_targets.clone());
        }
        let members = self.members(&component.pool).filter(|members| !members.is_empty());
        let members = members.ok_or(Errno::INVAL)?;
        let wished =
            if component.stripe_count == 0 { self.defaults.stripe_count } else { component.stripe_count };
        let count = match wished {
            ALL_TARGETS => members.len(),
            count if component.pattern == Pattern::Overstriped => count.into(),
            count => members.len().min(count.into()),
        };
        let first = members.iter().position(|&member| member == u32::from(component.first_target));
        let first = first.unwrap_or_else(|| self.next_target.fetch_add(count, Relaxed));
        Ok((first..first + count).map(|turn| members[turn % members.len()]).collect())
    }

    /// Opens the objects of an initialised component, in the order of its stripes.
    pub fn open(&self, component: &Component, file_id: u64) -> Result<Vec<ObjectFile>, Errno> {
        if component.pattern == Pattern::Mdt {
            return Ok(vec![self.mdt.open(None, file_id)?]);
        }
        component
            .objects
            .iter()
            .map(|object| self.ost(*object)?.open(Some(object.target), object.id))
            .collect()
    }

    /// Removes a component's objects.
    pub fn destroy(&self, component: &Component, file_id: u64) -> Result<(), Errno> {
        if component.initialised && component.pattern == Pattern::Mdt {
            self.mdt.destroy(file_id)?;
        }
        component.objects.iter().try_for_each(|object| self.ost(*object)?.destroy(object.id))
    }

    fn ost(&self, object: Object) -> Result<&Target, Errno> {
        // The layout may be from an earlier run with more targets.
        self.osts.get(object.target as usize).ok_or(Errno::IO)
    }

    /// Returns the target that an open object lies on.
    pub fn target_of(&self, object: &ObjectFile) -> &Target {
        object.target.and_then(|target| self.osts.get(target as usize)).unwrap_or(&self.mdt)
    }
}

impl Target {
    /// Makes a target of a directory, which is created if it is missing; `direct` bypasses the page cache.
    pub fn new(directory: &Path, direct: bool) -> io::Result<Target> {
        fs::create_dir_all(directory)?;
        Ok(Target {
            directory: directory.to_owned(),
            direct,
            delay_ms: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id:016x}"))
    }

    fn create(&self, id: u64) -> Result<(), Errno> {
        let created =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path(id));
        created.map(drop).map_err(errno_of)
    }

    fn open(&self, target: Option<u32>, id: u64) -> Result<ObjectFile, Errno> {
        let flags = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        let file = options.open(self.path(id)).map_err(errno_of)?;
        Ok(ObjectFile { target, file, direct: self.direct, partial_blocks: Mutex::new(()) })
    }

    fn destroy(&self, id: u64) -> Result<(), Errno> {
        match fs::remove_file(self.path(id)).map_err(errno_of) {
            Err(Errno::NOENT) => Ok(()),
            answer => answer,
        }
    }

    fn sleep(&self) {
        match self.delay_ms.load(Relaxed) {
            0 => {}
            delay_ms => thread::sleep(Duration::from_millis(delay_ms)),
        }
    }

    /// Fills `buffer`; bytes that the object doesn't have are zeros.
    pub fn read(&self, object: &ObjectFile, buffer: &mut [u8], offset: u64) -> Result<(), Errno> {
        self.sleep();
        self.reads.fetch_add(1, Relaxed);
        self.bytes_read.fetch_add(buffer.len() as u64, Relaxed);
        if !object.direct {
            return fill(&object.file, buffer, offset);
        }
        with_blocks(offset, buffer.len(), |blocks, from, within| {
            fill(&object.file, blocks, from)?;
            buffer.copy_from_slice(&blocks[within..within + buffer.len()]);
            Ok(())
        })
    }

    /// Writes all of `data`.
    pub fn write(&self, object: &ObjectFile, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.sleep();
        self.writes.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(data.len() as u64, Relaxed);
        if !object.direct {
            return object.file.write_all_at(data, offset).map_err(errno_of);
        }
        let is_whole = offset.is_multiple_of(ALIGNMENT) && (data.len() as u64).is_multiple_of(ALIGNMENT);
        // The MDT has the file's size: the rest of the last block after the data is zeros.
        let _alone =
            (!is_whole).then(|| object.partial_blocks.lock().expect("never poisoned: nothing panics"));
        with_blocks(offset, data.len(), |blocks, from, within| {
            if !is_whole {
                fill(&object.file, blocks, from)?;
            }
            blocks[within..within + data.len()].copy_from_slice(data);
            object.file.write_all_at(blocks, from).map_err(errno_of)
        })
    }
}

/// An open object.
pub struct ObjectFile {
    /// The OST, or `None` on the metadata target.
    target: Option<u32>,
    file: File,
    direct: bool,
    /// Held from reading to writing a block that is written in part.
    partial_blocks: Mutex<()>,
}

impl ObjectFile {
    /// Truncates the object; it may have been shorter.
    pub fn truncate(&self, bytes: u64) -> Result<(), Errno> {
        self.file.set_len(bytes).map_err(errno_of)
    }

    /// Syncs the object to stable storage.
    pub fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(errno_of)
    }
}

/// Calls `work` with a buffer for the whole blocks around a range, the blocks' offset, and the range's offset
/// in the buffer.
fn with_blocks(
    offset: u64,
    bytes: usize,
    work: impl FnOnce(&mut [u8], u64, usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    thread_local! {
        static BLOCKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let from = offset / ALIGNMENT * ALIGNMENT;
    let within = (offset - from) as usize;
    let length = (within + bytes).next_multiple_of(ALIGNMENT as usize);
    BLOCKS.with_borrow_mut(|memory| {
        if memory.len() < length + ALIGNMENT as usize {
            memory.resize(length + ALIGNMENT as usize, 0);
        }
        let start = memory.as_ptr().align_offset(ALIGNMENT as usize);
        work(&mut memory[start..start + length], from, within)
    })
}

fn fill(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno_of(error)),
        }
        // The end of an object need not be aligned, and a direct read can't continue there.
        if !filled.is_multiple_of(ALIGNMENT as usize) && filled < buffer.len() {
            break;
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}

/// Returns the kernel's number for an error of the standard library.
pub fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lov::END_OF_FILE;

    struct World {
        targets: Targets,
        _root: tempfile::TempDir,
    }

    fn world(count: u32) -> World {
        let root = tempfile::tempdir().unwrap();
        let target = |name: &str| Target::new(&root.path().join(name), false).unwrap();
        let osts = (0..count).map(|index| target(&index.to_string())).collect();
        let pools = [("flash".to_owned(), vec![1, 3])].into();
        let defaults = Defaults { stripe_bytes: 1 << 20, stripe_count: 1 };
        World { targets: Targets::new(osts, target("mdt"), pools, defaults), _root: root }
    }

    fn chosen(world: &World, change: impl FnOnce(&mut Component)) -> Vec<u32> {
        let mut component = world.targets.default_layout().components.remove(0);
        change(&mut component);
        world.targets.initialise(&mut component, 1).unwrap();
        component.objects.iter().map(|object| object.target).collect()
    }

    #[test]
    fn targets_take_turns() {
        let world = world(4);
        assert_eq!(chosen(&world, |_| {}), [0]);
        assert_eq!(chosen(&world, |component| component.stripe_count = 2), [1, 2]);
        assert_eq!(chosen(&world, |component| component.stripe_count = 3), [3, 0, 1]);
        assert_eq!(chosen(&world, |component| component.stripe_count = 9), [2, 3, 0, 1]);
    }

    #[test]
    fn wishes_are_kept() {
        let world = world(4);
        let all = |component: &mut Component| {
            (component.stripe_count, component.first_target) = (ALL_TARGETS, 2);
        };
        assert_eq!(chosen(&world, all), [2, 3, 0, 1]);
        let pool = |component: &mut Component| {
            (component.stripe_count, component.pool) = (ALL_TARGETS, "flash".into());
        };
        assert_eq!(chosen(&world, pool), [1, 3]);
        assert_eq!(chosen(&world, |component| component.wished_targets = vec![3, 1]), [3, 1]);
        let often = |component: &mut Component| {
            (component.pattern, component.stripe_count, component.first_target) =
                (Pattern::Overstriped, 5, 1);
        };
        assert_eq!(chosen(&world, often), [1, 2, 3, 0, 1]);
    }

    #[test]
    fn what_does_not_exist_can_not_be_had() {
        let world = world(4);
        let can_have = |change: fn(&mut Component)| {
            let mut layout = world.targets.default_layout();
            change(&mut layout.components[0]);
            assert_eq!(layout.components[0].end, END_OF_FILE);
            world.targets.can_have(&layout)
        };
        assert!(can_have(|component| component.first_target = 3));
        assert!(!can_have(|component| component.first_target = 4));
        assert!(can_have(|component| component.pool = "flash".into()));
        assert!(!can_have(|component| component.pool = "tape".into()));
        assert!(!can_have(|component| (component.pool, component.first_target) = ("flash".into(), 2)));
        assert!(!can_have(|component| component.wished_targets = vec![4]));
    }
}
