//! The environment of one run: directories that stand for two hosts, the network between them, an sshd or a
//! daemon, and the command as a user would type it. All ends on drop.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use super::double::Double;
use super::fault::Part;
use super::network::{Carries, Network};
use super::plan::{Plan, Way};
use super::processes;
use super::shim::{Clock, Shim};
use crate::common::sshd::Sshd;
use crate::daemon::{Daemon, Site};

/// Ports for data connections: as many listeners as any session has, and some more.
const DATA_PORTS: u16 = 4;

/// Returns the program under test: `CARRACK_BIN`, such as a release build, or this build's.
pub fn program() -> PathBuf {
    let named = std::env::var_os("CARRACK_BIN").map(PathBuf::from);
    fs::canonicalize(named.unwrap_or_else(|| crate::common::CARRACK.into())).unwrap()
}

pub struct Stage {
    way: Way,
    program: PathBuf,
    shim: PathBuf,
    pub clock: Clock,
    /// Used between hosts only.
    pub network: Network,
    /// The shim's map of ports.
    dial: Option<String>,
    /// Arguments of the command that depend on the environment.
    words: Vec<String>,
    environment: Vec<(String, String)>,
    sshd: Option<Sshd>,
    daemon: Option<Service>,
    small: Option<SmallFileSystem>,
    /// A storage double under one of the ends.
    pub double: Option<Double>,
    source_name: &'static str,
    sink_name: &'static str,
    // The last field is dropped last.
    directory: Option<tempfile::TempDir>,
}

/// A daemon with the data to start it again.
struct Service {
    site: Site,
    port: u16,
    daemon: Option<Daemon>,
}

impl Stage {
    pub fn set_up(plan: &Plan, shim: &Shim) -> Stage {
        let parent = std::env::var_os("CARRACK_FAULT_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = tempfile::Builder::new().prefix("carrack-faults-").tempdir_in(parent).unwrap();
        for name in ["near", "far", "near/home"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let clock = Clock::new(directory.path().join("clock")).unwrap();
        let mut stage = Stage {
            way: plan.way,
            program: program(),
            shim: shim.library(),
            clock,
            network: Network::new(),
            dial: None,
            words: Vec::new(),
            environment: Vec::new(),
            sshd: None,
            daemon: None,
            small: None,
            double: None,
            source_name: if plan.has_ill_sink() == Some(false) { "double/mnt/set" } else { "set" },
            sink_name: if plan.has_ill_sink() == Some(true) { "double/mnt/copy" } else { "copy" },
            directory: Some(directory),
        };
        if let Some(is_sink) = plan.has_ill_sink() {
            let end = if is_sink { stage.sink() } else { stage.source() };
            let at = end.parent().and_then(Path::parent).expect("it is in the mount");
            stage.double = Some(Double::mount(at).unwrap());
        }
        fs::create_dir(stage.sink()).unwrap();
        match plan.way {
            Way::Local => {}
            Way::SshPush | Way::SshPull => stage.set_up_ssh(),
            Way::DaemonPush | Way::DaemonPull => stage.set_up_daemon(),
        }
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().expect("kept at the end only").path().join(name)
    }

    /// Returns the set's directory.
    pub fn source(&self) -> PathBuf {
        self.path(if self.way.is_far() && !self.way.pushes() { "far" } else { "near" }).join(self.source_name)
    }

    /// Returns the destination's directory, which exists from the beginning.
    pub fn sink(&self) -> PathBuf {
        self.path(if self.way.pushes() { "far" } else { "near" }).join(self.sink_name)
    }

    fn set_up_ssh(&mut self) {
        let sshd = Sshd::start().expect("campaigns with ssh have looked for it");
        let ports = free_ports(2 * DATA_PORTS);
        let control = self.network.lead(0, sshd.port(), Carries::Control).unwrap();
        for number in 0..DATA_PORTS {
            self.network.lead(ports + DATA_PORTS + number, ports + number, Carries::Data).unwrap();
        }
        let last = ports + DATA_PORTS - 1;
        self.dial = Some(format!("{ports}-{last}:{}", ports + DATA_PORTS));
        let far = self.far_carrack();
        self.words =
            ["--remote-carrack", &far, "--ports", &format!("{ports}-{last}")].map(str::to_owned).into();
        self.environment = vec![("CARRACK_SSH".into(), format!("{} -o Port={control}", sshd.ssh()))];
        self.sshd = Some(sshd);
    }

    /// Returns carrack as the far host has it: in the same network, with the same clock.
    fn far_carrack(&self) -> String {
        let path = self.path("far-carrack");
        let mut script = "#!/bin/sh\n".to_owned();
        for (name, value) in self.shim_environment() {
            script.push_str(&format!("{name}='{value}'; export {name}\n"));
        }
        script.push_str(&format!("exec '{}' \"$@\"\n", self.program.display()));
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn shim_environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("LD_PRELOAD", self.shim.display().to_string()),
            ("CARRACK_FAULT_CLOCK", self.clock.file.display().to_string()),
        ];
        environment.extend(self.dial.iter().map(|dial| ("CARRACK_FAULT_DIAL", dial.clone())));
        environment
    }

    fn set_up_daemon(&mut self) {
        let (site, port) = (Site::new(), free_ports(1));
        let far = self.path("far");
        let export = format!(
            "[[export]]\nname = \"data\"\npath = \"{}\"\nprotection = \"clear\"\n\
             allow = [{{ identity = \"alice\", read = true, write = true }}]\n",
            far.display()
        );
        site.write_config(&format!("listen = [\"127.0.0.1:{port}\"]"), &export);
        site.identity("alice");
        let led = self.network.lead(0, port, Carries::Both).unwrap();
        self.dial = Some(format!("{port}-{port}:{led}"));
        self.words = ["--identity".into(), site.path().join("alice.pem").display().to_string()].into();
        let ca = site.path().join("authority/ca.pem").display().to_string();
        self.environment = vec![("CARRACK_CA".into(), ca)];
        let mut service = Service { site, port, daemon: None };
        service.start(&self.program);
        self.daemon = Some(service);
    }

    /// Returns the command, which can be run again and again.
    pub fn command(&self, plan: &Plan) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["cp", "-r", "--perms", "--json", "--bwlimit", &plan.rate.to_string()]);
        command
            .args(&plan.options)
            .args(&self.words)
            .arg(self.address(self.source_name, false))
            .arg(self.address(self.sink_name, true));
        command
            .current_dir(self.path("near"))
            .env("HOME", self.path("near/home"))
            .env_remove("CARRACK_TOKEN");
        command.envs(self.shim_environment()).envs(self.environment.iter().cloned());
        command
    }

    fn address(&self, name: &str, is_sink: bool) -> String {
        let is_far = self.way.is_far() && is_sink == self.way.pushes();
        match (&self.daemon, is_far) {
            (_, false) => format!("{name}/"),
            (Some(service), true) => format!("carrack://localhost:{}/data/{name}/", service.port),
            (None, true) => format!("carrack-test:{}/", self.path("far").join(name).display()),
        }
    }

    /// Returns the processes of a role, the newest last.
    pub fn processes(&self, part: Part, caller: i32) -> Vec<i32> {
        match part {
            Part::Caller => vec![caller],
            Part::Far => self.far_processes(),
            Part::Daemon => self.daemon_pid().into_iter().collect(),
            Part::Ssh => {
                let mut below = processes::descendants(caller);
                below.retain(|&pid| processes::name(pid) == "ssh");
                below
            }
        }
    }

    fn far_processes(&self) -> Vec<i32> {
        let root = self.sshd.as_ref().map(Sshd::pid).or_else(|| self.daemon_pid());
        let mut below = root.map(processes::descendants).unwrap_or_default();
        below.retain(|&pid| processes::runs(pid, &self.program));
        below.sort_unstable();
        below
    }

    fn daemon_pid(&self) -> Option<i32> {
        let daemon = self.daemon.as_ref()?.daemon.as_ref()?;
        Some(daemon.pid().as_raw_nonzero().get())
    }

    /// Starts the daemon again after its end.
    pub fn restart_daemon(&mut self) {
        if let Some(service) = &mut self.daemon {
            service.start(&self.program);
        }
    }

    /// Mounts a file system of that size at the destination, which must be empty.
    pub fn shrink_sink(&mut self, bytes: u64) -> Result<(), String> {
        self.small = Some(SmallFileSystem::mount(&self.sink(), bytes)?);
        Ok(())
    }

    pub fn enlarge_sink(&self, bytes: u64) -> Result<(), String> {
        self.small.as_ref().map_or(Ok(()), |small| small.resize(bytes))
    }

    /// Returns true if next to nothing is free there.
    pub fn sink_is_full(&self) -> bool {
        rustix::fs::statvfs(self.sink()).is_ok_and(|stat| stat.f_bavail * stat.f_frsize < 1 << 20)
    }

    /// Leaves the directory for inspection; returns its path.
    pub fn keep(mut self) -> PathBuf {
        if let Some(daemon) = self.daemon.as_ref().and_then(|service| service.daemon.as_ref()) {
            // A log that can't be kept is missed without consequences.
            let _ = fs::write(self.path("daemon.log"), daemon.log().join("\n"));
        }
        self.directory.take().map(tempfile::TempDir::keep).unwrap_or_default()
    }
}

impl Service {
    fn start(&mut self, program: &Path) {
        // The previous daemon must be gone.
        self.daemon = None;
        let config = self.site.path().join("carrack.toml");
        self.daemon = Some(Daemon::start_as(&mut Command::new(program), &config));
    }
}

/// Returns the first of this number of consecutive free ports, below the kernel's range for outgoing
/// connections.
fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 10_000 + (std::process::id() % 500) as u16 * 16;
    for _ in 0..500 {
        let first = begin + NEXT.fetch_add(count, Ordering::Relaxed) % 2_000;
        let ports: Vec<_> = (first..first + count)
            .map_while(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok())
            .collect();
        if ports.len() == usize::from(count) {
            return first;
        }
    }
    panic!("no free ports from {begin}")
}

/// A small tmpfs, which is unmounted on drop.
struct SmallFileSystem {
    at: PathBuf,
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        // The unmount is lazy: processes that still use it don't prevent it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).stdin(Stdio::null()).status();
    }
}

impl SmallFileSystem {
    fn mount(at: &Path, bytes: u64) -> Result<SmallFileSystem, String> {
        let options = format!("size={bytes},mode=755");
        mount(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "carrack-faults"]).arg(at))?;
        Ok(SmallFileSystem { at: at.to_owned() })
    }

    fn resize(&self, bytes: u64) -> Result<(), String> {
        mount(Command::new("mount").args(["-o", &format!("remount,size={bytes}")]).arg(&self.at))
    }
}

fn mount(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Returns true if small file systems can be mounted here.
pub fn can_mount() -> bool {
    let place = tempfile::tempdir().unwrap();
    SmallFileSystem::mount(place.path(), 1 << 20).is_ok()
}
