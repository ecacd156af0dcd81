//! Servers, and records to put into them.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_register::transfer_records::{
    MoverAvailability, MoverRecord, RECORD_VERSION, TransferOptions, TransferRecord, TransferSubmission,
};
use tempfile::TempDir;

/// Servers of `testbed/nats`, ended with this.
pub struct Nats {
    dir: TempDir,
    pub urls: Vec<String>,
}

/// `None`, with a word about it, where there are no servers to be had.
pub fn nats(servers: u32) -> Option<Nats> {
    server_program()?;
    let dir = tempfile::Builder::new().prefix("carrack-nats").tempdir().unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    let urls = testbed(&["up", "--servers", &servers.to_string(), "--dir", &path]).expect("servers start");
    Some(Nats { dir, urls: urls.split(',').map(str::to_owned).collect() })
}

impl Nats {
    pub fn options(&self) -> BusOptions {
        BusOptions { servers: self.urls.clone(), ..BusOptions::default() }
    }

    /// Connected to it, with everything made.
    pub async fn bus(&self) -> NatsBus {
        let bus = NatsBus::connect(&self.options()).await.unwrap();
        bus.create_missing_streams(None).await.unwrap();
        bus
    }

    pub fn stop(&self, server: u32) {
        testbed(&["stop", self.dir.path().to_str().unwrap(), &server.to_string()]).unwrap();
    }

    /// Of a server that is stopped: nothing that it kept is left.
    pub fn empty(&self, server: u32) {
        std::fs::remove_dir_all(self.dir.path().join(format!("n{server}"))).unwrap();
    }

    pub fn start(&self, server: u32) {
        testbed(&["start", self.dir.path().to_str().unwrap(), &server.to_string()]).unwrap();
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        testbed(&["down", self.dir.path().to_str().unwrap()]);
    }
}

/// The server's program; found once for all tests, as it may have to be built.
pub fn server_program() -> Option<&'static PathBuf> {
    static PROGRAM: std::sync::OnceLock<Option<PathBuf>> = std::sync::OnceLock::new();
    let program = PROGRAM.get_or_init(|| testbed(&["binary"]).map(PathBuf::from)).as_ref();
    if program.is_none() {
        eprintln!(
            "SKIPPED: there is no nats-server 2.11 or newer, and none could be built (testbed/nats binary)"
        );
    }
    program
}

fn testbed(arguments: &[&str]) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/nats");
    let command =
        Command::new(script).args(arguments).env("CARRACK_TESTBED_LIFETIME_S", "600").output().unwrap();
    if !command.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&command.stderr));
        return None;
    }
    Some(String::from_utf8(command.stdout).unwrap().trim().to_owned())
}

/// One server with a configuration of its own.
pub struct Server(Child);

impl Server {
    pub fn start(config: &Path, environment: &[(&str, &str)], port: u16) -> Server {
        let log = config.with_extension("log");
        let spawn = || {
            let mut command = Command::new(server_program().unwrap());
            command.arg("-c").arg(config).envs(environment.iter().copied());
            let said = std::fs::File::create(&log).unwrap();
            Server(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap())
        };
        let mut server = spawn();
        let began = Instant::now();
        while !greets(port) {
            assert!(began.elapsed() < PATIENCE, "{}", std::fs::read_to_string(&log).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
            // Somebody looked whether the port is free when the server wanted it.
            if server.0.try_wait().unwrap().is_some() {
                server = spawn();
            }
        }
        server
    }
}

/// Whether it is a NATS server that answers there, and not who looks whether the port is free.
fn greets(port: u16) -> bool {
    let mut first = [0; 4];
    let read = std::net::TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.read_exact(&mut first)
    });
    read.is_ok() && &first == b"INFO"
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ports that nothing uses and that the kernel gives to nobody: below those of outgoing connections. No two
/// calls give the same.
pub fn free_ports(count: usize) -> Vec<u16> {
    const PORTS: std::ops::Range<u32> = 10_000..25_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = || {
        let number = std::process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Relaxed));
        (PORTS.start + number % (PORTS.end - PORTS.start)) as u16
    };
    std::iter::repeat_with(next)
        .filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .take(count)
        .collect()
}

pub fn mover(id: &str, site: &str) -> MoverRecord {
    MoverRecord {
        version: RECORD_VERSION,
        id: id.into(),
        site: site.into(),
        host: "h".into(),
        addresses: vec!["127.0.0.1:1".into()],
        ca_pem: "PEM".into(),
        paths: vec!["/data".into()],
        pairs_max: 4,
        pairs: 0,
        lanes: 1,
        software: "0.1.0".into(),
        protocol: 1,
        state: MoverAvailability::Idle,
        bytes_per_s: 0,
        site_marks: Vec::new(),
        ill: String::new(),
        left_out: String::new(),
    }
}

pub fn transfer(id: &str, submitted_ms: u64) -> TransferRecord {
    let submission = TransferSubmission {
        source: "a:/x".parse().unwrap(),
        destination: "b:/y".parse().unwrap(),
        options: TransferOptions::default(),
        priority: 5,
        label: String::new(),
        not_before_ms: None,
        umask: None,
    };
    TransferRecord::queued(id.into(), "alice", submission, submitted_ms)
}

/// Many times what anything here takes on a slow machine that others use too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
