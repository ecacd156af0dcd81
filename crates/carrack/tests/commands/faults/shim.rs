//! What is loaded into the processes under test (`shim.c`): their way into the campaign's network, and their clock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library, built once for a campaign.
pub struct Shim {
    directory: tempfile::TempDir,
}

impl Shim {
    /// Why there is none, in words.
    pub fn build() -> Result<Shim, String> {
        let shim = Shim { directory: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/faults/shim.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(shim.library()).arg(source).arg("-ldl");
        let output = cc.stdin(Stdio::null()).output().map_err(|error| format!("no cc: {error}"))?;
        match output.status.success() {
            true => Ok(shim),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub fn library(&self) -> PathBuf {
        self.directory.path().join("shim.so")
    }
}

/// A clock's error, in a file that the library maps.
pub struct Clock {
    pub file: PathBuf,
}

impl Clock {
    pub fn new(file: PathBuf) -> io::Result<Clock> {
        let clock = Clock { file };
        clock.jump(0)?;
        Ok(clock)
    }

    /// By so many seconds from the true time.
    pub fn jump(&self, seconds: i64) -> io::Result<()> {
        let bytes = (seconds * 1_000_000_000).to_ne_bytes();
        // Never truncated: who has mapped it would end.
        let file = fs::File::options().write(true).create(true).truncate(false).open(&self.file)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)
    }
}
