//! Storage that loses power and fails: the double of `testbed/storage`, and its control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::file_system::FileSystem;

/// A mounted double; on drop it is unmounted and ends.
pub struct StorageDouble {
    file_system: FileSystem,
}

impl StorageDouble {
    /// Starts a double, its memory and the plain directories next to it on a tmpfs if there is one; `None`,
    /// with a printed reason, where it can't run. `plant` makes its initial contents.
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

    /// Returns a path in it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.file_system.path(path)
    }

    /// Returns a path on this host's own file system.
    pub fn local(&self, path: &str) -> PathBuf {
        self.file_system.local(path)
    }

    /// Sends a request in the form of `docs/design/testing-faults.md`; returns the reply.
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

    /// Mounts the file system in an image, a file, at [`disk`](Self::disk).
    pub fn attach(&self, image: &Path) -> Result<(), String> {
        self.file_system.script(&["attach"], &[image.to_str().unwrap()]).map(drop)
    }

    /// Unmounts the image.
    #[track_caller]
    pub fn detach(&self) {
        self.file_system.script(&["detach"], &[]).unwrap();
    }

    /// Returns a path in the mounted image.
    pub fn disk(&self, path: &str) -> PathBuf {
        self.file_system.beneath("disk").join(path)
    }

    /// Returns the operations since recording began, a line each.
    pub fn log(&self) -> Vec<String> {
        self.ask("log").lines().map(str::to_owned).collect()
    }

    /// Returns the hits of each rule.
    pub fn hits(&self) -> Vec<u64> {
        let report = self.ask("rules");
        let hits = report.lines().filter_map(|line| line.rsplit_once(" hits="));
        hits.map(|(_, hits)| hits.parse().unwrap()).collect()
    }
}

/// Returns a directory on a tmpfs, if there is one.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
