//! The library that is loaded into the processes under test (`shim.c`): it leads them into the campaign's
//! network, and sets their clock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library, built once for a campaign.
pub struct Shim {
    directory: tempfile::TempDir,
}

impl Shim {
    /// Builds the library, or returns the reason why it can't, in words.
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

    /// Sets the error to this number of seconds.
    pub fn jump(&self, seconds: i64) -> io::Result<()> {
        let bytes = (seconds * 1_000_000_000).to_ne_bytes();
        // The file is never truncated: processes that have mapped it would be killed.
        let file = fs::File::options().write(true).create(true).truncate(false).open(&self.file)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)
    }
}
