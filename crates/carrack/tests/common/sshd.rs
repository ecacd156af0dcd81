//! A private sshd of `testbed/sshd`, one for each test, so that its children are that test's sessions.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rustix::process::Pid;

use super::{CARRACK, process, skip};

/// Time after which an sshd ends on its own, if a test program was killed.
const LIFETIME_S: &str = "600";

/// A running sshd, which ends on drop, with its sessions.
pub struct Sshd {
    directory: tempfile::TempDir,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let down = testbed("down", self.directory.path());
        // A second panic would hide the first.
        if !std::thread::panicking() {
            assert!(down.is_ok_and(|output| output.status.success()), "sshd does not end");
        }
    }
}

impl Sshd {
    /// Starts an sshd; `None`, with a printed reason, where there is no sshd that accepts its user.
    #[track_caller]
    pub fn start() -> Option<Sshd> {
        static USABLE: OnceLock<Result<(), String>> = OnceLock::new();
        let usable = USABLE.get_or_init(|| Sshd::up()?.let_in());
        match usable.clone().and_then(|()| Sshd::up()) {
            Ok(sshd) => Some(sshd),
            Err(reason) => {
                skip(&reason);
                None
            }
        }
    }

    fn up() -> Result<Sshd, String> {
        let sshd = Sshd { directory: tempfile::tempdir().unwrap() };
        succeed(testbed("up", sshd.directory.path())).map(|_| sshd)
    }

    fn let_in(&self) -> Result<(), String> {
        succeed(self.shell("true")).map(drop)
    }

    /// Returns the ssh command that leads to it, for a shell.
    pub fn ssh(&self) -> String {
        let config = self.directory.path().join("ssh_config");
        shell_words::join(["ssh", "-F", config.to_str().unwrap()])
    }

    fn shell(&self, script: &str) -> io::Result<Output> {
        let config = self.directory.path().join("ssh_config");
        Command::new("ssh").arg("-F").arg(config).args(["carrack-test", script]).stdin(Stdio::null()).output()
    }

    /// Returns the directory of a remote shell.
    pub fn home(&self) -> String {
        succeed(self.shell("pwd")).unwrap().trim_end().to_owned()
    }

    /// Returns true if it listens on `::1` too, as `carrack-test6`.
    pub fn has_ipv6(&self) -> bool {
        let config = fs::read_to_string(self.directory.path().join("ssh_config")).unwrap();
        config.contains("Host carrack-test6")
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        let config = fs::read_to_string(self.directory.path().join("ssh_config")).unwrap();
        let port = config.lines().find_map(|line| line.trim().strip_prefix("Port "));
        port.unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> i32 {
        let pid = fs::read_to_string(self.directory.path().join("pid")).unwrap();
        pid.trim().parse().unwrap()
    }

    /// Returns the `carrack session` that it serves, if there is one.
    pub fn session(&self) -> Option<Pid> {
        let is_session = |pid: &u32| arguments(*pid).is_some_and(|words| words == [CARRACK, "session"]);
        let session = descendants(self.pid() as u32).into_iter().find(is_session)?;
        Pid::from_raw(session as i32)
    }

    /// Waits until there is a session.
    #[track_caller]
    pub fn wait_for_session(&self) -> Pid {
        process::wait_for("a session", || self.session())
    }

    /// Waits until there is no session.
    #[track_caller]
    pub fn wait_for_no_session(&self) {
        process::wait_for("the end of the session", || self.session().is_none().then_some(()));
    }
}

fn testbed(action: &str, directory: &Path) -> io::Result<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/sshd");
    let mut command = Command::new(script);
    command.arg(action).arg(directory).stdin(Stdio::null()).env("CARRACK_SSHD_LIFETIME_S", LIFETIME_S);
    command.output()
}

/// Returns the output; if the command failed, its error.
fn succeed(output: io::Result<Output>) -> Result<String, String> {
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(format!("no sshd to test with: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("no sshd to test with: {error}")),
    }
}

/// Returns the processes below a process, from `/proc`; a process that ends meanwhile has none.
fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let below: Vec<u32> = children.iter().flat_map(|&child| descendants(child)).collect();
    [children, below].concat()
}

fn arguments(pid: u32) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.strip_suffix(b"\0")?.split(|&byte| byte == 0);
    Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}
