//! Hosts on one machine: a network namespace for each, with a bridge between them, and a file system in
//! memory that all of them see.
//!
//! No name outlives the test. Namespaces, links and the file system live as long as the processes that hold
//! them, and these die with the thread that started them, however it ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The network of all addresses; no other network is reachable.
const NET: &str = "10.77.0.0/16";

/// The address of the bridge, and of users' commands and managers.
const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// A process that only holds namespaces. It is killed on drop.
struct Holder {
    child: Child,
    /// Its stdout must stay open.
    _out: BufReader<ChildStdout>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Holder {
    /// Enters new namespaces and runs `script` in them; an error has its output.
    fn start(unshare: Command, script: &str, words: &[&str]) -> Result<Holder, String> {
        let script = format!("{script} && echo ready && exec sleep infinity");
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 2>&1"#]).arg(unshare.get_program()).args(unshare.get_args());
        command.args(["sh", "-c", &script]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while let Ok(1..) = out.read_line(&mut said) {
            if said.ends_with("ready\n") {
                return Ok(Holder { child, _out: out });
            }
        }
        let _ = child.kill().and_then(|()| child.wait());
        Err(format!("no namespaces of one's own: {}", said.trim_end()))
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn namespace(&self, option: &str, name: &str) -> String {
        format!("--{option}=/proc/{}/ns/{name}", self.pid())
    }
}

/// Returns a command that is killed when the thread that starts it ends.
fn mortal() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    command
}

/// A host: a network namespace with one link, and a name.
pub struct Host {
    pub name: String,
    pub address: Ipv4Addr,
    holder: Holder,
}

/// The bridge, and the hosts' file system.
pub struct Network {
    /// Path of the mount, as seen from outside.
    directory: PathBuf,
    hub: Holder,
}

impl Network {
    /// Mounts a file system of this size at `directory`, for hosts only; an error where namespaces can't be
    /// made.
    pub fn new(directory: &Path, bytes: u64) -> Result<Network, String> {
        let mut unshare = mortal();
        unshare.args(["unshare", "--net", "--mount"]);
        let script = r#"mount -t tmpfs -o "size=$1,mode=755" carrack-fleet "$0""#;
        let hub = Holder::start(unshare, script, &[directory.to_str().unwrap(), &bytes.to_string()])?;
        let network = Network { directory: directory.to_owned(), hub };
        network.ip(&[
            "link set lo up".into(),
            "link add br0 type bridge".into(),
            "link set br0 up".into(),
            format!("addr add {HUB}/{} dev br0", NET.split_once('/').unwrap().1),
        ])?;
        Ok(network)
    }

    /// Adds a host.
    pub fn host(&self, name: &str, address: Ipv4Addr) -> Host {
        let mut unshare = self.inside(&self.hub);
        unshare.args(["unshare", "--net", "--uts"]);
        let holder = Holder::start(unshare, r#"hostname "$0""#, &[name]).unwrap();
        let host = Host { name: name.to_owned(), address, holder };
        let pid = host.holder.pid();
        self.ip(&[
            format!("link add {name} type veth peer name eth0 netns {pid}"),
            format!("link set {name} master br0 up"),
        ])
        .unwrap();
        let own =
            ["link set lo up".into(), "link set eth0 up".into(), format!("addr add {address}/16 dev eth0")];
        ip(self.inside(&host.holder), &own).unwrap();
        host
    }

    fn inside(&self, holder: &Holder) -> Command {
        let mut command = mortal();
        command.arg("nsenter").arg(holder.namespace("net", "net")).arg(holder.namespace("uts", "uts"));
        command.arg(self.hub.namespace("mount", "mnt")).arg("--");
        command
    }

    /// Returns a program on a host.
    pub fn on(&self, host: &Host, program: &str) -> Command {
        let mut command = self.inside(&host.holder);
        command.arg(program);
        command
    }

    /// Returns a program at the bridge.
    pub fn beside(&self, program: &str) -> Command {
        let mut command = self.inside(&self.hub);
        command.arg(program);
        command
    }

    /// Returns the file of the bridge's network namespace.
    pub fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.hub.pid()))
    }

    /// Returns the path by which this process reaches a hosts' path.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.hub.pid()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// Returns the path of the file system, for the hosts.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes a host's link down, or up again.
    pub fn set_link(&self, host: &Host, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        self.ip(&[format!("link set {} {state}", host.name)]).unwrap();
    }

    /// Returns the bytes that each link has carried towards its host.
    pub fn received(&self) -> BTreeMap<String, u64> {
        let table = fs::read_to_string(format!("/proc/{}/net/dev", self.hub.pid())).unwrap();
        let rows = table.lines().filter_map(|line| line.split_once(':'));
        // The ninth number has the bytes that this end has sent.
        let sent = |numbers: &str| numbers.split_whitespace().nth(8).unwrap().parse().unwrap();
        rows.map(|(name, numbers)| (name.trim().to_owned(), sent(numbers))).collect()
    }

    fn ip(&self, lines: &[String]) -> Result<(), String> {
        ip(self.inside(&self.hub), lines)
    }
}

/// Runs lines of `ip` in a host's network.
fn ip(mut inside: Command, lines: &[String]) -> Result<(), String> {
    inside.args(["ip", "-batch", "-"]);
    let piped = inside.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = piped.map_err(|error| error.to_string())?;
    // An error of the program shows in its exit status.
    let _ = child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes());
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
    }
}
