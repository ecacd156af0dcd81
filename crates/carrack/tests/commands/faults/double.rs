//! Storage that fails on request: the double of `testbed/storage`, under one end of a run.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::CARRACK;

/// Time after which it ends on its own, if the test program was killed.
const LIFETIME_S: &str = "600";

/// A mounted double, which ends on drop.
pub struct Double {
    /// Its own directory; the mount is `mnt` in it.
    at: PathBuf,
}

impl Drop for Double {
    fn drop(&mut self) {
        // A second panic would hide the first.
        if let (Err(why), false) = (script(&["down"], &self.at, &[]), std::thread::panicking()) {
            panic!("the storage double does not end: {why}");
        }
    }
}

impl Double {
    /// Mounts a double that gets every read, also of data just written.
    pub fn mount(at: &Path) -> Result<Double, String> {
        script(&["up"], at, &["--direct"])?;
        Ok(Double { at: at.to_owned() })
    }

    /// Sends a request in the form of `docs/design/testing-faults.md`; returns the reply.
    pub fn ask(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.at.join("control")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_suffix("ok\n").unwrap_or_else(|| panic!("{line}: {answer}")).to_owned()
    }

    /// Returns the hits of its rules.
    pub fn hits(&self) -> u64 {
        let report = self.ask("rules");
        let hits = report.lines().filter_map(|line| line.rsplit_once(" hits="));
        hits.map(|(_, hits)| hits.parse::<u64>().unwrap()).sum()
    }
}

/// Returns the reason why there can't be a double, in words.
pub fn missing() -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    Double::mount(&place.path().join("double")).err()
}

fn script(action: &[&str], at: &Path, options: &[&str]) -> Result<(), String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/storage");
    let mut command = Command::new(&script);
    command.args(action).arg(at).args(options).stdin(Stdio::null());
    command.env("CARRACK_TESTBED_LIFETIME_S", LIFETIME_S);
    if std::env::var_os("CARRACK_TESTBED_STORAGE").is_none() {
        // The double is built into the command's directory.
        command.env("CARRACK_TESTBED_STORAGE", Path::new(CARRACK).with_file_name("carrack-testbed-storage"));
    }
    let output = command.output().map_err(|error| format!("{}: {error}", script.display()))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
