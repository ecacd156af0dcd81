//! Two sites and the processes that join them: NATS servers, movers and managers, each mover and server on a
//! host of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_register::transfer_records::{MoverRecord, TransferRecord};
use tempfile::TempDir;

use super::network::{Host, Network};
use super::program::Program;
use crate::common::process::{run, talk, wait_at_most, wait_for};
use crate::common::{CARRACK, skip};

/// Data goes from the first to the second.
pub const SITES: [&str; 2] = ["east", "west"];

/// Most pairs of one mover.
const PAIRS: &str = "4";

const PORT: u16 = 4222;

/// Many times the time in which a fleet recovers from a fault, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Only one fleet runs at a time: the machine is small.
static ALONE: Mutex<()> = Mutex::new(());

/// The whole environment, for the life of the thread that started it. Processes are dropped before their
/// hosts.
pub struct Stage {
    programs: BTreeMap<String, Program>,
    hosts: BTreeMap<String, Host>,
    pub network: Network,
    /// Configurations and logs.
    private: PathBuf,
    nats: PathBuf,
    servers: u8,
    /// Each with a network's number: its index here, from 1.
    sites: Vec<String>,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// The special way in which a mover is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner<'a> {
    /// A command before it, in a mount namespace of its own, where `$1` is the mover's directory; ends with
    /// `&&`.
    pub first: &'a str,
    /// The program that starts it.
    pub through: &'a str,
    pub options: &'a [&'a str],
}

impl Stage {
    /// Starts this number of servers, without movers; `None`, with a printed reason, where that is not
    /// possible.
    #[track_caller]
    pub fn start(servers: u8, bytes: u64) -> Option<Stage> {
        match Stage::try_start(servers, bytes) {
            Ok(stage) => Some(stage),
            Err(reason) => {
                skip(&format!("no hosts for a fleet: {reason}"));
                None
            }
        }
    }

    fn try_start(servers: u8, bytes: u64) -> Result<Stage, String> {
        let nats = server_program()?;
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new().prefix("carrack-fleet").tempdir().unwrap();
        let (private, shared) = (directory.path().join("private"), directory.path().join("shared"));
        fs::create_dir(&private).unwrap();
        fs::create_dir(&shared).unwrap();
        let network = Network::new(&shared, bytes)?;
        let mut stage = Stage {
            programs: BTreeMap::new(),
            hosts: BTreeMap::new(),
            network,
            private,
            nats,
            servers,
            sites: Vec::new(),
            _directory: directory,
            _alone: alone,
        };
        SITES.iter().for_each(|site| stage.add_site(site));
        (1..=servers).for_each(|number| stage.start_server(number));
        for number in 1..=servers {
            stage.program(&server(number)).wait_for_words("Server is ready");
        }
        if servers > 1 {
            // Before that its JetStream does not reply.
            wait_for("the servers' choice of a leader", || {
                let mut said = (1..=servers).map(|number| stage.programs[&server(number)].said());
                said.any(|said| said.contains("JetStream cluster new metadata leader")).then_some(())
            });
        }
        Ok(stage)
    }

    fn start_server(&mut self, number: u8) {
        let host = self.network.host(&server(number), server_address(number));
        let routes: Vec<String> =
            (1..=self.servers).map(|other| format!("nats://{}:6222", server_address(other))).collect();
        let cluster = match self.servers {
            1 => String::new(),
            _ => format!(
                "cluster {{ name: carrack, listen: \"{}:6222\", routes: [ {} ] }}\n",
                host.address,
                routes.join(", ")
            ),
        };
        let store = self.network.directory().join(&host.name);
        let config = format!(
            "server_name: {}\nlisten: \"{}:{PORT}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n{cluster}",
            host.name,
            host.address,
            store.display()
        );
        let path = self.private.join(format!("{}.conf", host.name));
        fs::write(&path, config).unwrap();
        let mut command = self.network.on(&host, self.nats.to_str().unwrap());
        command.arg("-c").arg(path);
        self.run(&server(number), &mut command);
        self.hosts.insert(host.name.clone(), host);
    }

    fn run(&mut self, name: &str, command: &mut Command) {
        command.env("CARRACK_NATS", self.urls());
        let program = Program::start(name, command, self.private.join(format!("{name}.log")));
        self.programs.insert(name.to_owned(), program);
    }

    /// Returns the URLs of NATS, for hosts.
    pub fn urls(&self) -> String {
        let urls = (1..=self.servers).map(|number| format!("nats://{}:{PORT}", server_address(number)));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Adds a site, with a directory of its own.
    pub fn add_site(&mut self, name: &str) {
        fs::create_dir(self.seen(name)).unwrap();
        self.sites.push(name.to_owned());
    }

    /// Starts a mover on a host of its own, such as `east1`; it may not be registered yet.
    pub fn start_mover(&mut self, site: &str, number: u8) {
        self.start_mover_so(site, number, Manner::default());
    }

    /// Starts a mover in a special way.
    pub fn start_mover_so(&mut self, site: &str, number: u8, manner: Manner<'_>) {
        let Manner { first, through, options } = manner;
        let name = format!("{site}{number}");
        let net = 1 + self.sites.iter().position(|other| other == site).unwrap() as u8;
        let host = self.network.host(&name, Ipv4Addr::new(10, 77, net, number));
        let mut command = self.network.on(&host, "unshare");
        let script = format!("{first} directory=$1; shift; exec {through} \"$@\" --path \"$directory\"");
        command.args(["-m", "sh", "-c", &script, "sh"]).arg(self.network.directory().join(site));
        command.args([&*carrack(), "mover", "--site", site]);
        if !options.contains(&"--pairs") {
            command.args(["--pairs", PAIRS]);
        }
        command.args(["--listen", &format!("{}:0", host.address)]).args(options);
        self.run(&name, &mut command);
        self.hosts.insert(name, host);
    }

    /// Injects errors into system calls of a mover by strace, such as `pread64:error=EIO`.
    pub fn inject(&mut self, mover: &str, fault: &str) {
        let calls = fault.split(':').next().unwrap();
        let mut command = self.network.beside("strace");
        command.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={fault}"), "-p", &self.programs[mover].pid().to_string()]);
        let tracer = tracer(mover);
        self.run(&tracer, &mut command);
        self.program(&tracer).wait_for_words("attached");
    }

    /// Kills a program.
    pub fn kill(&mut self, name: &str) {
        self.programs.remove(&tracer(name));
        self.program(name).kill();
        self.programs.remove(name);
        self.hosts.remove(name);
    }

    /// Starts a manager, and waits until it works.
    pub fn start_manager(&mut self, name: &str) {
        let command = &mut self.network.beside(&carrack());
        self.run(name, command.arg("manager"));
        let copies = format!(", {} copies", self.servers);
        self.program(name).wait_for_words(&copies);
    }

    /// Starts a user's command that runs for a while.
    pub fn start_command(&mut self, name: &str, words: &[&str]) {
        let command = &mut self.network.beside(&carrack());
        self.run(name, command.args(words));
    }

    /// Returns a program that was started.
    pub fn program(&mut self, name: &str) -> &mut Program {
        self.programs.get_mut(name).unwrap()
    }

    /// Returns the host of a mover or a server.
    pub fn host(&self, name: &str) -> &Host {
        &self.hosts[name]
    }

    /// Runs a user's command at the bridge.
    pub fn ask(&self, words: &[&str]) -> Output {
        run(self.network.beside(&carrack()).args(words).env("CARRACK_NATS", self.urls()))
    }

    /// Returns the output of a command that succeeds.
    #[track_caller]
    pub fn asked(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {}", talk(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Returns the output of a command that only reads. Servers that choose a leader, and busy machines, may
    /// not reply the first time.
    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        wait_at_most(PATIENCE, "an answer", || {
            let output = self.ask(words);
            let is_away = !output.status.success() && talk(&output).contains("no answer from NATS");
            assert!(is_away || output.status.success(), "{}", talk(&output));
            (!is_away).then(|| String::from_utf8(output.stdout).unwrap())
        })
    }

    /// Returns a transfer's record.
    #[track_caller]
    pub fn record(&self, id: &str) -> TransferRecord {
        serde_json::from_str(&self.told(&["status", "--json", id])).unwrap()
    }

    /// Returns the registered movers.
    #[track_caller]
    pub fn movers(&self) -> Vec<MoverRecord> {
        self.told(&["movers", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until this number of movers is registered.
    #[track_caller]
    pub fn wait_for_movers(&self, count: usize) {
        wait_for(&format!("{count} movers"), || (self.movers().len() == count).then_some(()));
    }

    /// Waits until all started movers are registered; returns them.
    #[track_caller]
    pub fn movers_are_there(&self) -> Vec<MoverRecord> {
        let is_server = |name: &&String| (1..=self.servers).any(|number| server(number) == **name);
        let names: Vec<&String> = self.hosts.keys().filter(|name| !is_server(name)).collect();
        wait_at_most(PATIENCE, "all movers", || {
            let movers = self.movers();
            let is_there = |name: &&&String| movers.iter().any(|mover| mover.host == ***name);
            (names.iter().filter(is_there).count() == names.len()).then_some(movers)
        })
    }

    /// Returns all transfers.
    #[track_caller]
    pub fn records(&self) -> Vec<TransferRecord> {
        let listed = self.told(&["transfers", "--json", "--limit", "1000"]);
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns a path below a site's directory, as `carrack submit` takes it.
    pub fn location(&self, site: &str, path: &str) -> String {
        format!("{site}:{}/{path}", self.network.directory().join(site).display())
    }

    /// Returns a path below the directory of all sites, for this process.
    pub fn seen(&self, path: impl AsRef<Path>) -> PathBuf {
        self.network.seen(&self.network.directory().join(path))
    }
}

/// Returns the program under test.
fn carrack() -> String {
    std::env::var("CARRACK_BIN").unwrap_or_else(|_| CARRACK.to_owned())
}

/// Returns the name of the program that injects faults into a mover. By its name it is the first to be
/// dropped: a traced process can't end while it is stopped.
fn tracer(mover: &str) -> String {
    format!("calls-of-{mover}")
}

/// Returns the name of a server and of its host.
pub fn server(number: u8) -> String {
    format!("nats{number}")
}

fn server_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + number)
}

/// Returns a nats-server for a fleet, which is built if there is none.
fn server_program() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/nats");
    let output = Command::new(script).arg("binary").output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
