//! The double: the live image, the log of its changes since recording began, and the faults. It must not know
//! FUSE. Methods are called on all threads at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::change::{Attributes, Change, Entry};
use crate::faults::{Faults, Operation};
use crate::image::{Contents, Image, Ino, Name, Node};
use crate::power_cut;

/// `renameat2`: no entry is replaced.
pub const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: the names are exchanged.
pub const RENAME_EXCHANGE: u32 = 2;

/// The file system, mounted or not.
pub struct Double {
    state: Mutex<State>,
    /// The faults to inject.
    pub faults: Faults,
}

struct State {
    live: Image,
    next_ino: Ino,
    /// Look-ups of each inode that the kernel has not forgotten.
    lookups: HashMap<Ino, u64>,
    recording: Option<Recording>,
}

/// A recording since its begin.
struct Recording {
    /// The durable image at its begin.
    base: Image,
    log: Vec<Entry>,
}

impl State {
    fn change(&mut self, label: impl FnOnce(&Image) -> String, change: Change) {
        if let Some(recording) = &mut self.recording {
            let entry = Entry::new(&self.live, label(&self.live), change.clone());
            recording.log.push(entry);
        }
        self.live.apply(&change);
    }

    fn found(&mut self, ino: Ino) -> Result<(Ino, Node), Errno> {
        let node = self.live.node(ino)?.clone();
        *self.lookups.entry(ino).or_default() += 1;
        Ok((ino, node))
    }
}

impl Double {
    /// Creates a double over an image.
    pub fn new(image: Image) -> Double {
        let next_ino = image.last_ino() + 1;
        let state = State { live: image, next_ino, lookups: HashMap::new(), recording: None };
        Double { state: Mutex::new(state), faults: Faults::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("never poisoned: nothing panics")
    }

    // Requests from the control socket.

    /// Makes the present image durable, and begins the log.
    pub fn record(&self) {
        let state = &mut *self.state();
        state.recording = Some(Recording { base: state.live.clone(), log: Vec::new() });
    }

    /// Returns the log's operations, a line each.
    pub fn log(&self) -> Vec<String> {
        let state = self.state();
        let log = state.recording.iter().flat_map(|recording| &recording.log);
        log.map(|entry| entry.label.clone()).collect()
    }

    /// Returns the image that a power cut leaves right after this number of operations; `None` if the log is
    /// shorter.
    pub fn image(&self, operations: usize, seed: u64) -> Option<Image> {
        let (base, log) = {
            let state = self.state();
            let recording = state.recording.as_ref()?;
            (recording.base.clone(), recording.log.get(..operations)?.to_vec())
        };
        Some(power_cut::image_after(&base, &log, seed))
    }

    /// Returns the live image.
    pub fn live(&self) -> Image {
        self.state().live.clone()
    }

    /// Continues with another image, as after a power cut; nothing may be mounted. A log begins anew.
    pub fn restart(&self, image: Image) {
        let state = &mut *self.state();
        state.next_ino = state.next_ino.max(image.last_ino() + 1);
        state.recording = state.recording.take().map(|_| Recording { base: image.clone(), log: Vec::new() });
        state.live = image;
        state.lookups.clear();
    }

    /// Flips a bit of a file at rest, past log and cache.
    pub fn flip(&self, path: &str, offset: u64, bit: u8) -> Result<(), Errno> {
        let state = &mut *self.state();
        let ino = state.live.resolve(path)?;
        flip(&mut state.live, ino, offset, bit)?;
        self.faults.flipped(path, offset, bit);
        Ok(())
    }

    // Requests from the kernel.

    /// Returns an inode.
    pub fn node(&self, ino: Ino) -> Result<Node, Errno> {
        Ok(self.state().live.node(ino)?.clone())
    }

    /// Finds a name, and counts one more look-up of its inode.
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Result<(Ino, Node), Errno> {
        let path = format!("{}/{}", self.path(directory), name.escape_ascii());
        self.faults.meet(Operation::Lookup, &path, 0)?;
        let state = &mut *self.state();
        let ino = state.live.lookup(directory, name)?;
        state.found(ino)
    }

    /// Subtracts look-ups of an inode that the kernel forgets.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let state = &mut *self.state();
        let Some(left) = state.lookups.get_mut(&ino) else { return };
        *left = left.saturating_sub(lookups);
        if *left == 0 {
            state.lookups.remove(&ino);
            state.live.remove_nameless(ino);
        }
    }

    /// Returns a directory's names, with their inodes.
    pub fn list(&self, directory: Ino) -> Result<Vec<(Name, Ino, FileType)>, Errno> {
        let state = self.state();
        let names = state.live.names(directory)?;
        let listed =
            |(name, ino): (&Name, &Ino)| Some((name.clone(), *ino, state.live.node(*ino).ok()?.kind()));
        Ok(names.iter().filter_map(listed).collect())
    }

    /// Returns a link's target.
    pub fn link_target(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        match &self.state().live.node(ino)?.contents {
            Contents::Link(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes an entry that belongs to `owner`.
    pub fn make(
        &self,
        operation: Operation,
        (directory, name): (Ino, &[u8]),
        (contents, mode): (Contents, u32),
        owner: (u32, u32),
    ) -> Result<(Ino, Node), Errno> {
        let path = self.state().live.path_in(directory, name);
        self.faults.meet(operation, &path, 0)?;
        let state = &mut *self.state();
        match state.live.lookup(directory, name) {
            Ok(_) => return Err(Errno::EXIST),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let time = SystemTime::now();
        let ino = state.next_ino;
        state.next_ino += 1;
        let made = Some(Box::new((ino, Node::new(contents, mode, owner, time))));
        let sets = vec![(directory, name.to_vec(), ino)];
        let label = format!("{} {path}", word(operation));
        state.change(|_| label, Change::Names { made, removes: vec![], sets, time });
        state.found(ino)
    }

    /// Gives an inode a further name.
    pub fn link(&self, ino: Ino, directory: Ino, name: &[u8]) -> Result<(Ino, Node), Errno> {
        let path = self.state().live.path_in(directory, name);
        self.faults.meet(Operation::Link, &path, 0)?;
        let state = &mut *self.state();
        if state.live.lookup(directory, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let sets = vec![(directory, name.to_vec(), ino)];
        let label = |image: &Image| format!("link {} to {path}", image.path(ino));
        state.change(label, Change::Names { made: None, removes: vec![], sets, time: SystemTime::now() });
        state.found(ino)
    }

    /// Removes a name; the data is removed when no handle has it open.
    pub fn remove(&self, operation: Operation, directory: Ino, name: &[u8]) -> Result<(), Errno> {
        let path = self.state().live.path_in(directory, name);
        self.faults.meet(operation, &path, 0)?;
        let state = &mut *self.state();
        let ino = state.live.lookup(directory, name)?;
        match (operation, state.live.names(ino)) {
            (Operation::RemoveDirectory, Ok(names)) if !names.is_empty() => return Err(Errno::NOTEMPTY),
            (Operation::RemoveDirectory, names) => drop(names?),
            (_, Ok(_)) => return Err(Errno::ISDIR),
            (_, Err(_)) => {}
        }
        let removes = vec![(directory, name.to_vec(), ino)];
        let label = format!("{} {path}", word(operation));
        state.change(|_| label, Change::Names { made: None, removes, sets: vec![], time: SystemTime::now() });
        state.give_up(ino);
        Ok(())
    }

    /// Renames an entry, and replaces an existing one.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<(), Errno> {
        let paths = {
            let state = self.state();
            (state.live.path_in(from.0, from.1), state.live.path_in(to.0, to.1))
        };
        self.faults.meet(Operation::Rename, &paths.1, 0)?;
        let state = &mut *self.state();
        let ino = state.live.lookup(from.0, from.1)?;
        let replaced = match state.live.lookup(to.0, to.1) {
            Ok(replaced) => Some(replaced),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if replaced == Some(ino) {
            return Ok(());
        }
        let exchanges = flags & RENAME_EXCHANGE != 0;
        match replaced {
            None if exchanges => return Err(Errno::NOENT),
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EXIST),
            Some(replaced) if !exchanges => may_replace(&state.live, ino, replaced)?,
            _ => {}
        }
        let mut sets = vec![(to.0, to.1.to_vec(), ino)];
        let mut removes = Vec::new();
        match replaced {
            Some(replaced) if exchanges => sets.push((from.0, from.1.to_vec(), replaced)),
            _ => removes.push((from.0, from.1.to_vec(), ino)),
        }
        let label = format!("rename {} to {}", paths.0, paths.1);
        state.change(|_| label, Change::Names { made: None, removes, sets, time: SystemTime::now() });
        if let Some(replaced) = replaced {
            state.give_up(replaced);
        }
        Ok(())
    }

    /// Opens a file.
    pub fn open(&self, ino: Ino, truncates: bool) -> Result<(), Errno> {
        let path = self.path(ino);
        self.faults.meet(Operation::Open, &path, 0)?;
        if truncates { self.resize(ino, 0) } else { self.node(ino).map(drop) }
    }

    /// Begins to read a directory's names, or goes on.
    pub fn read_names(&self, ino: Ino) -> Result<(), Errno> {
        self.faults.meet(Operation::List, &self.path(ino), 0).map(drop)
    }

    /// Closes a file.
    pub fn flush(&self, ino: Ino) -> Result<(), Errno> {
        self.faults.meet(Operation::Flush, &self.path(ino), 0).map(drop)
    }

    /// Reads data up to the file's end.
    pub fn read(&self, ino: Ino, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        self.faults.meet(Operation::Read, &self.path(ino), bytes as u64)?;
        Ok(self.state().live.file(ino)?.read(offset, bytes))
    }

    /// Writes all data, or none.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let path = self.path(ino);
        let fate = self.faults.meet(Operation::Write, &path, data.len() as u64)?;
        let mut stored: Arc<[u8]> = data.into();
        if let Some(place) = fate.flip
            && !data.is_empty()
        {
            let (byte, bit) = (place / 8 % data.len() as u64, (place % 8) as u8);
            Arc::get_mut(&mut stored).expect("nobody else has it yet")[byte as usize] ^= 1 << bit;
            self.faults.flipped(&path, offset + byte, bit);
        }
        let state = &mut *self.state();
        state.live.file(ino)?;
        let label = format!("write {path} {offset}+{}", data.len());
        state.change(|_| label, Change::Write { ino, offset, data: stored, time: SystemTime::now() });
        Ok(())
    }

    /// Sets the size.
    pub fn resize(&self, ino: Ino, bytes: u64) -> Result<(), Errno> {
        let path = self.path(ino);
        self.faults.meet(Operation::Resize, &path, 0)?;
        let state = &mut *self.state();
        state.live.file(ino)?;
        let label = format!("resize {path} {bytes}");
        state.change(|_| label, Change::Resize { ino, bytes, time: SystemTime::now() });
        Ok(())
    }

    /// Zeroes a range within the size.
    pub fn zero(&self, ino: Ino, offset: u64, bytes: u64) -> Result<(), Errno> {
        let path = self.path(ino);
        self.faults.meet(Operation::Write, &path, 0)?;
        let state = &mut *self.state();
        let end = state.live.file(ino)?.bytes();
        let bytes = bytes.min(end.saturating_sub(offset));
        let label = format!("zero {path} {offset}+{bytes}");
        state.change(|_| label, Change::Zero { ino, offset, bytes, time: SystemTime::now() });
        Ok(())
    }

    /// Sets attributes.
    pub fn set_attributes(&self, ino: Ino, set: Attributes) -> Result<(), Errno> {
        let path = self.path(ino);
        self.faults.meet(Operation::SetAttributes, &path, 0)?;
        let state = &mut *self.state();
        state.live.node(ino)?;
        state.change(|_| format!("setattr {path}"), Change::Attributes { ino, set });
        Ok(())
    }

    /// Makes the changes of a file or directory durable; after an error they may be lost for ever.
    pub fn sync(&self, operation: Operation, ino: Ino, data_only: bool) -> Result<(), Errno> {
        let path = self.path(ino);
        let met = self.faults.meet(operation, &path, 0).map(drop);
        let change = match met {
            Ok(()) => Change::Synced { ino, data_only },
            Err(_) => Change::SyncFailed { ino },
        };
        let word = match (operation, met) {
            (_, Err(_)) => "failed sync",
            (Operation::SyncDirectory, _) => "syncdir",
            _ if data_only => "datasync",
            _ => "sync",
        };
        let state = &mut *self.state();
        state.change(|_| format!("{word} {path}"), change);
        met
    }

    /// Returns the number of inodes, and of pages of data.
    pub fn usage(&self) -> (u64, u64) {
        self.state().live.usage()
    }

    fn path(&self, ino: Ino) -> String {
        self.state().live.path(ino)
    }
}

impl State {
    /// Removes an inode that lost its name, unless the kernel may still ask for it.
    fn give_up(&mut self, ino: Ino) {
        if !self.lookups.contains_key(&ino) {
            self.live.remove_nameless(ino);
        }
    }
}

fn may_replace(image: &Image, ino: Ino, replaced: Ino) -> Result<(), Errno> {
    match (image.names(ino), image.names(replaced)) {
        (Ok(_), Ok(names)) if !names.is_empty() => Err(Errno::NOTEMPTY),
        (Ok(_), Err(_)) => Err(Errno::NOTDIR),
        (Err(_), Ok(_)) => Err(Errno::ISDIR),
        _ => Ok(()),
    }
}

fn flip(image: &mut Image, ino: Ino, offset: u64, bit: u8) -> Result<(), Errno> {
    if offset >= image.file(ino)?.bytes() {
        return Err(Errno::INVAL);
    }
    match &mut image.node_mut(ino)?.contents {
        Contents::File(pages) => pages.flip(offset, bit),
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

/// Returns the name in rules and in the log.
fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "create",
        Operation::MakeDirectory => "mkdir",
        Operation::MakeLink => "symlink",
        Operation::Unlink => "unlink",
        Operation::RemoveDirectory => "rmdir",
        _ => "change",
    }
}
