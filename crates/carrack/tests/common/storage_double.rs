//! Storage that loses power and fails: the double of `testbed/storage`, and what it is asked past its mount.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::file_system::FileSystem;

/// A mounted double; dropped, it is unmounted and ends.
pub struct StorageDouble {
    file_system: FileSystem,
}

impl StorageDouble {
    /// Starts one, its memory and the plain directories beside it on a tmpfs if there is one; nothing, with a printed
    /// reason, where that can't be had. `plant` makes what is in it at first.
    #[track_caller]
    pub fn start(options: &[&str], plant: impl Fn(&Path)) -> Option<StorageDouble> {
        let root = in_memory();
        let first = root.path().join("first");
        std::fs::create_dir(&first).unwrap();
        plant(&first);
        let options = [&["--from", first.to_str().unwrap()], options].concat();
        let file_system = FileSystem::start_in(root, "storage", &options)?;
        Some(StorageDouble { file_system })
    }

    /// A path in it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.file_system.path(path)
    }

    /// A path on this host's own file system.
    pub fn local(&self, path: &str) -> PathBuf {
        self.file_system.local(path)
    }

    /// Tells it what to do, in the words of `docs/design/testing-faults.md`; its answer.
    #[track_caller]
    pub fn ask(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.file_system.beneath("control")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        match answer.strip_suffix("ok\n") {
            Some(answer) => answer.to_owned(),
            None => panic!("{line}: {answer}"),
        }
    }

    /// Mounts the file system in an image, a file, at [`disk`](Self::disk); an error if it can't be.
    pub fn attach(&self, image: &Path) -> Result<(), String> {
        self.file_system.script(&["attach"], &[image.to_str().unwrap()]).map(drop)
    }

    /// Unmounts that.
    #[track_caller]
    pub fn detach(&self) {
        self.file_system.script(&["detach"], &[]).unwrap();
    }

    /// A path in the image that is attached.
    pub fn disk(&self, path: &str) -> PathBuf {
        self.file_system.beneath("disk").join(path)
    }

    /// What was done to it since it was told to record, an operation a line.
    pub fn log(&self) -> Vec<String> {
        self.ask("log").lines().map(str::to_owned).collect()
    }

    /// How often each rule hit.
    pub fn hits(&self) -> Vec<u64> {
        let report = self.ask("rules");
        let hits = report.lines().filter_map(|line| line.rsplit_once(" hits="));
        hits.map(|(_, hits)| hits.parse().unwrap()).collect()
    }
}

/// A directory on a tmpfs, where there is one.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
