//! An open regular file: its layout, its objects, and its inode at the MDT, which has the size.
//!
//! All handles of the file share it. Reads and writes run in parallel; giving the file a layout, making a
//! component's objects and truncating the file exclude them.

use std::fs::File;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, fgetxattr, fsetxattr, futimens};
use rustix::io::Errno;

use crate::lov::{Layout, LovError};
use crate::targets::{ObjectFile, Targets, errno_of};

/// Name of the attribute with a file's layout at the MDT; clients don't see it under this name.
pub const LAYOUT_XATTR: &str = "trusted.lustre-double.layout";
/// The largest size of an attribute.
const XATTR_BYTES_MAX: usize = 1 << 16;

/// An open regular file.
pub struct StripedFile {
    targets: Arc<Targets>,
    /// The MDT's inode: a sparse file without data, as long as the file.
    inode: File,
    id: u64,
    state: RwLock<State>,
    /// Held while the size is read and set.
    size: Mutex<()>,
}

/// The layout and the open objects.
#[derive(Default)]
struct State {
    layout: Option<Layout>,
    /// For each component; `None` before it is initialised.
    objects: Vec<Option<Vec<ObjectFile>>>,
}

/// The outcome of a request for a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The file has the layout.
    Granted,
    /// The file had a layout before.
    Late,
}

impl StripedFile {
    /// Opens a file; `inode` is open for reading and writing, `id` is its number.
    pub fn open(targets: Arc<Targets>, inode: File, id: u64) -> Result<StripedFile, Errno> {
        let file = StripedFile { targets, inode, id, state: RwLock::default(), size: Mutex::new(()) };
        if let Some(bytes) = stored(&file.inode, LAYOUT_XATTR)? {
            let layout = Layout::decode(&bytes).map_err(|_: LovError| Errno::IO)?;
            let mut state = file.state_mut();
            for component in &layout.components {
                let objects = component.initialised.then(|| file.targets.open(component, id)).transpose()?;
                state.objects.push(objects);
            }
            state.layout = Some(layout);
            drop(state);
        }
        Ok(file)
    }

    /// Gives the file a layout, unless it has one; the first component's objects are made at once, as by an
    /// MDS.
    pub fn give_layout(&self, layout: Layout) -> Result<Wish, Errno> {
        let mut state = self.state_mut();
        if state.layout.is_some() {
            return Ok(Wish::Late);
        }
        *state = State { objects: layout.components.iter().map(|_| None).collect(), layout: Some(layout) };
        let made = self.initialise(&mut state, 0);
        if made.is_err() {
            *state = State::default();
        }
        made.map(|()| Wish::Granted)
    }

    /// Returns the bytes of its `lustre.lov`, if it has a layout.
    pub fn lov(&self) -> Option<Vec<u8>> {
        self.state().layout.as_ref().map(|layout| layout.encode(self.id))
    }

    fn initialise(&self, state: &mut State, index: usize) -> Result<(), Errno> {
        let layout = state.layout.as_mut().ok_or(Errno::BADF)?;
        let component = &mut layout.components[index];
        if component.initialised {
            return Ok(());
        }
        self.targets.initialise(component, self.id)?;
        state.objects[index] = Some(self.targets.open(component, self.id)?);
        fsetxattr(&self.inode, LAYOUT_XATTR, &layout.encode(self.id), XattrFlags::empty())
    }

    /// Returns the file's size.
    pub fn size(&self) -> Result<u64, Errno> {
        self.inode.metadata().map(|metadata| metadata.len()).map_err(errno_of)
    }

    /// Reads at most `bytes` from `offset`, fewer only at the end of the file.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
        let end = offset.saturating_add(bytes).min(self.size()?).max(offset);
        let mut buffer = vec![0; (end - offset) as usize];
        let state = self.state();
        state.for_pieces(offset, end, |object, object_offset, file_offset, bytes| {
            let Some(object) = object else { return Ok(()) };
            let at = (file_offset - offset) as usize;
            self.targets.target_of(object).read(object, &mut buffer[at..at + bytes], object_offset)
        })?;
        drop(state);
        Ok(buffer)
    }

    /// Writes all data; without data nothing changes.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        let state = self.state_for_writing(offset, end)?;
        state.for_pieces(offset, end, |object, object_offset, file_offset, bytes| {
            let at = (file_offset - offset) as usize;
            let object = object.ok_or(Errno::IO)?;
            self.targets.target_of(object).write(object, &data[at..at + bytes], object_offset)
        })?;
        self.written_to(end)
    }

    /// Returns the state after all objects of the range were made.
    fn state_for_writing(&self, offset: u64, end: u64) -> Result<RwLockReadGuard<'_, State>, Errno> {
        loop {
            let state = self.state();
            let Some(missing) = state.missing_component(offset, end)? else { return Ok(state) };
            drop(state);
            self.initialise(&mut self.state_mut(), missing)?;
        }
    }

    fn written_to(&self, end: u64) -> Result<(), Errno> {
        let _alone = self.size.lock().expect("never poisoned: nothing panics");
        if end > self.size()? { self.set_size(end) } else { touch(&self.inode) }
    }

    fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        self.inode.set_len(bytes).map_err(errno_of)
    }

    /// Extends the file, if it is shorter.
    pub fn extend(&self, bytes: u64) -> Result<(), Errno> {
        let _alone = self.size.lock().expect("never poisoned: nothing panics");
        if bytes > self.size()? { self.set_size(bytes) } else { Ok(()) }
    }

    /// Truncates or extends the file; the new part is zeros.
    pub fn truncate(&self, bytes: u64) -> Result<(), Errno> {
        let state = self.state_mut();
        if bytes < self.size()? {
            state.truncate_objects(bytes)?;
        }
        self.set_size(bytes)
    }

    /// Syncs the file to stable storage, objects first.
    pub fn sync(&self) -> Result<(), Errno> {
        self.state().objects.iter().flatten().flatten().try_for_each(ObjectFile::sync)?;
        self.inode.sync_all().map_err(errno_of)
    }

    /// Removes its data, after its last name and handle.
    pub fn destroy(&self) -> Result<(), Errno> {
        let state = self.state_mut();
        let mut components = state.layout.iter().flat_map(|layout| &layout.components);
        components.try_for_each(|component| self.targets.destroy(component, self.id))
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("never poisoned: nothing panics")
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("never poisoned: nothing panics")
    }
}

impl State {
    /// Calls `work` for each run of bytes of one object: the object (`None` in a component that is not
    /// initialised), the offset in the object and in the file, and the number of bytes.
    fn for_pieces(
        &self,
        offset: u64,
        end: u64,
        mut work: impl FnMut(Option<&ObjectFile>, u64, u64, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let components = self.layout.iter().flat_map(|layout| &layout.components);
        for (component, objects) in components.zip(&self.objects) {
            let (start, end) = (component.start.max(offset), component.end.min(end));
            match (component.cut(), objects) {
                _ if start >= end => {}
                (Some(cut), Some(objects)) => cut.pieces(start, end).try_for_each(|piece| {
                    let object = objects.get(piece.stripe);
                    work(object, piece.object_offset, piece.file_offset, piece.bytes as usize)
                })?,
                _ => work(None, 0, start, (end - start) as usize)?,
            }
        }
        Ok(())
    }

    /// Returns the first component of a range that has no objects yet.
    fn missing_component(&self, offset: u64, end: u64) -> Result<Option<usize>, Errno> {
        // Lustre's error for a file without layout (`lov_io_init_empty`), such as a file opened with
        // O_LOV_DELAY_CREATE.
        let layout = self.layout.as_ref().ok_or(Errno::BADF)?;
        let mut at = offset;
        while at < end {
            // A composite layout may end before the file does.
            let index = layout.component_at(at).ok_or(Errno::NODATA)?;
            if !layout.components[index].initialised {
                return Ok(Some(index));
            }
            at = layout.components[index].end;
        }
        Ok(None)
    }

    fn truncate_objects(&self, bytes: u64) -> Result<(), Errno> {
        let components = self.layout.iter().flat_map(|layout| &layout.components);
        for (component, objects) in components.zip(&self.objects) {
            let (Some(cut), Some(objects)) = (component.cut(), objects) else { continue };
            for (stripe, object) in objects.iter().enumerate() {
                // An object has no data beyond its component's end.
                object.truncate(cut.object_bytes(stripe, bytes.min(component.end)))?;
            }
        }
        Ok(())
    }
}

/// Returns an attribute's value, if it exists.
pub fn stored(file: &File, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; XATTR_BYTES_MAX];
    match fgetxattr(file, name, &mut value) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn touch(file: &File) -> Result<(), Errno> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(file, &Timestamps { last_access: omit, last_modification: now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lov::{Component, END_OF_FILE, Pattern};
    use crate::targets::{Defaults, Target};
    use proptest::prelude::*;

    const SMALLEST_STRIPE: u32 = 1 << 16;

    struct World {
        targets: Arc<Targets>,
        root: tempfile::TempDir,
    }

    fn world(direct: bool) -> World {
        let root = tempfile::tempdir().unwrap();
        let target = |name: &str| Target::new(&root.path().join(name), direct).unwrap();
        let osts = (0..3).map(|index| target(&index.to_string())).collect();
        let defaults = Defaults { stripe_bytes: SMALLEST_STRIPE, stripe_count: 2 };
        let targets = Targets::new(osts, target("mdt"), [].into(), defaults);
        World { targets: Arc::new(targets), root }
    }

    impl World {
        /// Returns a file; `None` if this user may not set the MDT's attributes.
        fn file(&self, name: &str) -> Option<StripedFile> {
            let path = self.root.path().join(name);
            let inode =
                File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
            let may = fsetxattr(&inode, "trusted.lustre-double.probe", b"", XattrFlags::empty()).is_ok();
            may.then(|| StripedFile::open(self.targets.clone(), inode, 7).unwrap())
        }

        fn composite(&self) -> Layout {
            let part = |start, end, pattern, stripe_count| {
                let component = self.targets.default_layout().components.remove(0);
                Component { start, end, pattern, stripe_count, ..component }
            };
            let edge = u64::from(SMALLEST_STRIPE);
            let components = vec![
                part(0, edge, Pattern::Mdt, 0),
                part(edge, 3 * edge, Pattern::Raid0, 1),
                part(3 * edge, END_OF_FILE, Pattern::Raid0, 3),
            ];
            Layout { composite: true, components }
        }
    }

    #[test]
    fn without_a_layout_nothing_can_be_written() {
        let world = world(false);
        let Some(file) = world.file("f") else { return };
        assert_eq!(file.lov(), None);
        assert_eq!(file.write(0, b"x"), Err(Errno::BADF));
        assert_eq!(file.give_layout(world.targets.default_layout()), Ok(Wish::Granted));
        assert_eq!(file.give_layout(world.targets.default_layout()), Ok(Wish::Late));
        assert_eq!(file.write(0, b"x"), Ok(()));
    }

    #[test]
    fn components_are_made_when_they_are_written_to() {
        let world = world(false);
        let Some(file) = world.file("f") else { return };
        file.give_layout(world.composite()).unwrap();
        let initialised = || {
            let layout = Layout::decode(&file.lov().unwrap()).unwrap();
            layout.components.iter().map(|component| component.initialised).collect::<Vec<_>>()
        };
        assert_eq!(initialised(), [true, false, false]);
        file.write(u64::from(SMALLEST_STRIPE) - 1, b"xy").unwrap();
        assert_eq!(initialised(), [true, true, false]);
        assert_eq!(world.file("f").unwrap().read(u64::from(SMALLEST_STRIPE) - 2, 9), Ok(b"\0xy".to_vec()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { offset: usize, length: usize },
        Truncate(usize),
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let offset = prop_oneof![0..400_000usize, (0..100usize).prop_map(|block| block * 4096)];
        let length = prop_oneof![0..200_000usize, (0..50usize).prop_map(|block| block * 4096)];
        let step = prop_oneof![
            4 => (offset, length).prop_map(|(offset, length)| Step::Write { offset, length }),
            1 => (0..500_000usize).prop_map(Step::Truncate),
            1 => Just(Step::Reopen),
        ];
        prop::collection::vec(step, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn it_is_a_file_like_any_other(steps in steps(), direct: bool, composite: bool) {
            let world = world(direct);
            let Some(mut file) = world.file("f") else { return Ok(()) };
            let layout = if composite { world.composite() } else { world.targets.default_layout() };
            match file.give_layout(layout) {
                // Some file systems have no direct I/O.
                Err(Errno::INVAL) if direct => return Ok(()),
                given => prop_assert_eq!(given, Ok(Wish::Granted)),
            }
            let mut expected: Vec<u8> = Vec::new();
            for (index, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write { offset, length } => {
                        let data: Vec<u8> = (0..length).map(|at| (at * 7 + index) as u8 | 1).collect();
                        file.write(offset as u64, &data).unwrap();
                        if length > 0 {
                            expected.resize(expected.len().max(offset + length), 0);
                            expected[offset..offset + length].copy_from_slice(&data);
                        }
                    }
                    Step::Truncate(bytes) => {
                        file.truncate(bytes as u64).unwrap();
                        expected.resize(bytes, 0);
                    }
                    Step::Reopen => file = world.file("f").unwrap(),
                }
                prop_assert_eq!(file.size().unwrap(), expected.len() as u64);
                prop_assert!(file.read(0, 1 << 20).unwrap() == expected);
            }
            file.destroy().unwrap();
            for target in world.targets.osts() {
                prop_assert_eq!(std::fs::read_dir(target.directory()).unwrap().count(), 0);
            }
        }
    }
}
