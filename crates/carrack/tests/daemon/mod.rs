//! A daemon on this host with a site of its own: an authority, exports, clients that speak the protocol
//! directly.
#![allow(dead_code)] // Each test program uses its part.
#![allow(clippy::unwrap_used)] // Also in helpers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use carrack_engine::{
    AbortHandle, EndSettings, PeerChannel, SessionRole, TransferObserver, TransferOutcome, TransferRequest,
    copy_with_peer,
};
use carrack_model::{AgreedTransferSpec, TransferEvent};
use carrack_transport::TlsChannel;
use carrack_trust::{
    CLIENT_LIFETIME, CertificateAuthority, CertificateUse, ClientCredential, ClientTrust, IssuedTokenContent,
    KeySignatureAlgorithm, SERVER_LIFETIME, client_config,
};
use rustix::process::{Pid, Signal, kill_process};

pub const CARRACK: &str = env!("CARGO_BIN_EXE_carrack");

/// Time after which a test hangs; enough on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An authority, exports and a configuration, in a directory that is removed on drop.
pub struct Site {
    directory: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl Site {
    pub fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let authority = CertificateAuthority::init(
            &path.join("authority"),
            "a site",
            KeySignatureAlgorithm::Ed25519,
            SystemTime::now(),
        )
        .unwrap();
        for name in ["data", "other"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        let site = Site { directory, authority };
        let names = vec!["localhost".to_owned()];
        site.authority
            .issue(
                "server",
                &CertificateUse::Server { names },
                SERVER_LIFETIME,
                site.path(),
                SystemTime::now(),
            )
            .unwrap();
        site
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn audit(&self) -> PathBuf {
        self.path().join("audit.jsonl")
    }

    /// Returns the lines of the audit log, once there are this many.
    pub fn audited(&self, count: usize) -> Vec<serde_json::Value> {
        let read = || fs::read_to_string(self.audit()).unwrap_or_default();
        wait_until(&format!("{count} lines in the audit log"), || read().lines().count() >= count);
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes a configuration: special parts before and after the common part.
    pub fn write_config(&self, top: &str, exports: &str) -> PathBuf {
        let path = self.path();
        let shown = path.display();
        let text = format!(
            r#"audit = "{shown}/audit.jsonl"
{top}
[tls]
certificate = "{shown}/server.pem"
key = "{shown}/server-key.pem"
client_ca = ["{shown}/authority/ca.pem"]
revoked = ["{shown}/authority/revoked.pem"]
{exports}
"#
        );
        let text = if top.contains("listen") { text } else { format!("listen = [\"127.0.0.1:0\"]\n{text}") };
        let file = path.join("carrack.toml");
        fs::write(&file, text).unwrap();
        file
    }

    /// Returns `/data` for alice, and `/other` for carol only.
    pub fn usual_exports(&self) -> String {
        let shown = self.path().display();
        format!(
            r#"
[[export]]
name = "data"
path = "{shown}/data"
allow = [{{ identity = "alice", read = true, write = true }}, {{ identity = "bob", read = true }}]
[[export]]
name = "other"
path = "{shown}/other"
allow = [{{ identity = "carol", read = true }}]
"#
        )
    }

    /// Returns the credentials of a client of this name, which are made with the first request.
    pub fn identity(&self, name: &str) -> ClientCredential {
        let path = self.path().join(format!("{name}.pem"));
        if !path.exists() {
            let subject = name.to_owned();
            self.authority
                .issue(
                    name,
                    &CertificateUse::Client { subject },
                    CLIENT_LIFETIME,
                    self.path(),
                    SystemTime::now(),
                )
                .unwrap();
        }
        let key = fs::read(self.path().join(format!("{name}-key.pem"))).unwrap();
        ClientCredential::Certificate { chain: fs::read(path).unwrap(), key }
    }

    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    pub fn token(&self, subject: &str, scope: &str) -> String {
        let grant = IssuedTokenContent {
            subject: subject.to_owned(),
            audience: "this".to_owned(),
            scope: carrack_trust::TokenScope::parse(scope).unwrap(),
            lifetime: Duration::from_secs(600),
        };
        self.authority.token_signer().unwrap().mint(&grant, SystemTime::now()).unwrap().0
    }

    /// Connects to the daemon, and returns the control channel.
    pub fn try_connect(
        &self,
        address: SocketAddr,
        identity: Option<ClientCredential>,
    ) -> Result<TlsChannel, String> {
        let cas = Some(fs::read(self.path().join("authority/ca.pem")).unwrap());
        let config = client_config(&ClientTrust { cas, crls: Vec::new(), identity }).unwrap();
        let socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
        let name = "localhost".try_into().unwrap();
        TlsChannel::client(socket, config, name, Instant::now() + PATIENCE).map_err(|error| error.to_string())
    }

    /// Shakes hands without an application protocol; returns the outcome.
    pub fn connect_as_something_else(&self, address: SocketAddr, name: &str) -> String {
        let cas = Some(fs::read(self.path().join("authority/ca.pem")).unwrap());
        let identity = Some(self.identity(name));
        let config = client_config(&ClientTrust { cas, crls: Vec::new(), identity }).unwrap();
        let mut config = rustls::ClientConfig::clone(&config);
        config.alpn_protocols.clear();
        let socket = TcpStream::connect(address).unwrap();
        let name = "localhost".try_into().unwrap();
        format!("{:?}", TlsChannel::client(socket, Arc::new(config), name, Instant::now() + PATIENCE))
    }

    pub fn connect(&self, address: SocketAddr, name: &str) -> TlsChannel {
        self.try_connect(address, Some(self.identity(name))).unwrap()
    }

    /// Copies to or from the daemon as a user.
    pub fn copy(
        &self,
        address: SocketAddr,
        who: &str,
        role: SessionRole,
        source: &str,
        destination: &str,
    ) -> TransferOutcome {
        self.copy_with(address, Copy { who: Some(who), ..Copy::new(role, source, destination) })
    }

    pub fn copy_with(&self, address: SocketAddr, copy: Copy<'_>) -> TransferOutcome {
        let identity = copy.identity.or_else(|| copy.who.map(|who| self.identity(who)));
        let channel = self.try_connect(address, identity).unwrap();
        let peer = PeerChannel::over_tls(channel, "127.0.0.1".into(), copy.token.to_owned());
        let transfer = TransferRequest {
            spec: AgreedTransferSpec { recursive: true, ..copy.spec },
            settings: EndSettings { pool_bytes: 16 << 20, ..copy.settings },
            sources: vec![copy.source.into()],
            destination: copy.destination.into(),
            identity: None,
            source_base: carrack_storage::PathBase::Anywhere,
            feed: None,
        };
        copy_with_peer(&transfer, copy.role, peer, &Unheard, &copy.abort)
    }
}

/// A copy to run.
pub struct Copy<'a> {
    pub who: Option<&'a str>,
    /// Replaces the user's certificate.
    pub identity: Option<ClientCredential>,
    pub token: &'a str,
    pub role: SessionRole,
    pub source: &'a str,
    pub destination: &'a str,
    pub spec: AgreedTransferSpec,
    pub settings: EndSettings,
    pub abort: AbortHandle,
}

impl<'a> Copy<'a> {
    pub fn new(role: SessionRole, source: &'a str, destination: &'a str) -> Copy<'a> {
        let (spec, settings) = (AgreedTransferSpec::default(), EndSettings::default());
        Copy {
            who: None,
            identity: None,
            token: "",
            role,
            source,
            destination,
            spec,
            settings,
            abort: AbortHandle::new().unwrap(),
        }
    }
}

pub struct Unheard;

impl TransferObserver for Unheard {
    fn handle_event(&self, _: &TransferEvent) {}
}

/// Returns the refusal of a transfer; empty without one.
pub fn refusal(outcome: &TransferOutcome) -> String {
    match &outcome.result {
        Ok(()) => String::new(),
        Err(error) => format!("{error} / {}", error.hint().unwrap_or_default()),
    }
}

/// A running `carrack serve`.
pub struct Daemon {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
    pub address: SocketAddr,
}

impl Daemon {
    pub fn start(config: &Path) -> Daemon {
        Daemon::start_as(&mut Command::new(CARRACK), config)
    }

    /// Starts the daemon with another command in front, such as prlimit.
    pub fn start_as(command: &mut Command, config: &Path) -> Daemon {
        let mut process = command
            .args(["serve", "--verbose", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let into = lines.clone();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        let mut daemon = Daemon { process, lines, address: ([127, 0, 0, 1], 0).into() };
        let said = daemon.wait_for("listening on ");
        daemon.address = said.rsplit(' ').next().unwrap().parse().unwrap();
        daemon
    }

    pub fn log(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns the first line that contains `text`, once there is one.
    pub fn wait_for(&self, text: &str) -> String {
        let find = || self.log().into_iter().find(|line| line.contains(text));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = find() {
                return line;
            }
            assert!(Instant::now() < deadline, "waited in vain for {text:?}: {:#?}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the daemon goes on: {:#?}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns its children, each with true if it is a zombie.
    pub fn children(&self) -> Vec<(i32, bool)> {
        let own = self.process.id().to_string();
        let mut children = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some((pid, rest)) = stat.split_once(' ') else { continue };
            let mut words = rest.rsplit(')').next().unwrap().split_whitespace();
            let (state, parent) = (words.next().unwrap(), words.next().unwrap());
            if parent == own {
                children.push((pid.parse().unwrap(), state == "Z"));
            }
        }
        children
    }

    /// Returns its resident memory, in KiB.
    pub fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("{:#?}", self.log());
        }
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns bytes that differ everywhere.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
