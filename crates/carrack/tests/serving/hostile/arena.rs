//! A daemon with a transfer that must not be disturbed, and files outside its exports, which must not change.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use carrack_engine::{EndSettings, SessionRole};
use carrack_model::SchedulingOptions;
use carrack_trust::{
    CLIENT_LIFETIME, CertificateUse, ClientCredential, ClientTrust, IssuedTokenContent,
    RevokedCertificateSelector, TokenScope, TokenSigner, client_config,
};
use rustls::ClientConfig;

use crate::daemon::{Copy, Daemon, Site, noise, refusal};

/// Time for a handshake. It is short, as some attacks wait for it; a busy machine must complete its own
/// handshakes in it.
pub const HANDSHAKE_SECONDS: u64 = 3;

/// The daemon's limits for a session.
const LIMITS: &str =
    "[limits]\nhandshake_seconds = 3\nbuffer = \"32 MiB\"\nio_threads = 4\nsessions_per_identity = 8\n";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Bytes of the file that the good transfers move.
const GOOD_BYTES: usize = 3_000_000;

pub struct Arena {
    pub site: Site,
    pub daemon: Daemon,
    /// A site that signs as an untrusted issuer of the same name.
    pub foreign: Site,
    before: BTreeMap<PathBuf, String>,
}

impl Arena {
    pub fn new() -> Arena {
        let (site, foreign) = (Site::new(), Site::new());
        lay_out(site.path());
        issue_unusual(&site);
        let config = configuration(&site);
        let daemon = Daemon::start(&site.write_config("", &config));
        let before = outside(site.path());
        Arena { site, daemon, foreign, before }
    }

    pub fn address(&self) -> SocketAddr {
        self.daemon.address
    }

    /// Returns the TLS configuration of a user with a certificate of the site's authority.
    pub fn config_of(&self, who: &str) -> Arc<ClientConfig> {
        self.config_with(Some(self.site.identity(who)))
    }

    pub fn config_with(&self, identity: Option<ClientCredential>) -> Arc<ClientConfig> {
        let cas = Some(fs::read(self.site.path().join("authority/ca.pem")).expect("a CA"));
        client_config(&ClientTrust { cas, crls: Vec::new(), identity }).expect("a configuration")
    }

    /// Returns a token of the site for mallory, as of `now`.
    pub fn token(&self, audience: &str, scope: &str, lifetime: Duration, now: SystemTime) -> String {
        let signer = self.site.authority().token_signer().expect("an issuer");
        mint(&signer, audience, scope, lifetime, now).0
    }

    /// Checks that files outside the exports, and an administrator's files in them, are unchanged.
    pub fn assert_unharmed(&self, after: &str) {
        assert_eq!(outside(self.site.path()), self.before, "after {after}");
    }

    /// Checks that a good client is let in.
    pub fn assert_alive(&self, after: &str) {
        let shaken = self.site.try_connect(self.address(), Some(self.site.identity("alice")));
        assert!(shaken.is_ok(), "after {after}: {shaken:?}");
    }

    /// Returns the largest number of threads of a session's process.
    pub fn most_threads_of_a_session(&self) -> u64 {
        self.largest_of_sessions("Threads:")
    }

    /// Returns the largest memory of a session's process, in KiB.
    pub fn largest_session_kib(&self) -> u64 {
        self.largest_of_sessions("VmHWM:")
    }

    fn largest_of_sessions(&self, key: &str) -> u64 {
        let number_of = |(pid, _): (i32, bool)| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let value = status.lines().find_map(|line| line.strip_prefix(key))?;
            value.trim().trim_end_matches(" kB").parse().ok()
        };
        self.daemon.children().into_iter().filter_map(number_of).max().unwrap_or(0)
    }

    /// Copies up and down at the same time, slowly, again and again, as long as `during` takes; each copy
    /// ends well.
    pub fn with_good_transfers(&self, during: impl FnOnce()) -> u64 {
        let source = self.site.path().join("good");
        fs::write(&source, noise(GOOD_BYTES)).expect("a file");
        fs::write(self.site.path().join("data/good"), noise(GOOD_BYTES)).expect("a file");
        let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let running = [SessionRole::Source, SessionRole::Sink].map(|role| {
                scope.spawn({
                    let (over, count) = (&over, &count);
                    move || {
                        // The two alternate, so that there is always a running copy.
                        thread::sleep(Duration::from_millis(if role == SessionRole::Sink { 700 } else { 0 }));
                        while !over.load(Ordering::Relaxed) {
                            self.good_transfer(role);
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            });
            self.daemon.wait_for("alice on data");
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
            over.store(true, Ordering::Relaxed);
            running.into_iter().for_each(|thread| thread.join().expect("the good transfers"));
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        count.into_inner()
    }

    fn good_transfer(&self, role: SessionRole) {
        let shown = self.site.path().display();
        let (from, to, lies_in) = match role {
            SessionRole::Source => (format!("{shown}/good"), "/data/pushed".to_owned(), "data/pushed"),
            SessionRole::Sink => ("/data/good".to_owned(), format!("{shown}/pulled"), "pulled"),
        };
        let scheduling = SchedulingOptions { rate: 2_000_000, ..SchedulingOptions::default() };
        let settings = EndSettings { scheduling, ..EndSettings::default() };
        let copy = Copy { who: Some("alice"), settings, ..Copy::new(role, &from, &to) };
        let outcome = self.site.copy_with(self.address(), copy);
        assert_eq!(refusal(&outcome), "", "{role:?}");
        assert_eq!(outcome.summary.entries_failed, 0, "{role:?}");
        let copied = fs::read(self.site.path().join(lies_in)).expect("the copy");
        assert!(copied == noise(GOOD_BYTES), "{role:?}: the copy is another");
        fs::remove_file(self.site.path().join(lies_in)).expect("the copy");
    }
}

/// Returns mallory's token of an issuer, and its ID.
pub fn mint(
    signer: &TokenSigner,
    audience: &str,
    scope: &str,
    lifetime: Duration,
    now: SystemTime,
) -> (String, String) {
    let scope = TokenScope::parse(scope).expect("a scope");
    let grant = IssuedTokenContent { subject: "mallory".into(), audience: audience.into(), scope, lifetime };
    signer.mint(&grant, now).expect("a token")
}

/// Plants two exports, files that no client may touch, and links that lead there.
fn lay_out(path: &Path) {
    for directory in ["database", "outside/deep", "data/in", "data/tree"] {
        fs::create_dir_all(path.join(directory)).expect("a directory");
    }
    for (name, content) in [
        ("outside/secret", &b"secret"[..]),
        ("outside/deep/secret", b"deeper"),
        ("outside/linked", b"linked"),
        ("database/rows", b"rows"),
        ("data/tree/file", b"a file"),
    ] {
        fs::write(path.join(name), content).expect("a file");
    }
    fs::write(path.join("data/tree/large"), noise(600_000)).expect("a file");
    symlink("../outside", path.join("data/out")).expect("a link");
    symlink("../../outside", path.join("data/in/out")).expect("a link");
    symlink(path.join("outside"), path.join("data/in/absolute")).expect("a link");
    fs::hard_link(path.join("outside/linked"), path.join("data/in/hard")).expect("a link");
    fs::hard_link(path.join("outside/linked"), path.join("data/in/hard-large")).expect("a link");
    fs::set_permissions(path.join("outside/secret"), fs::Permissions::from_mode(0o600)).expect("its mode");
}

/// Issues certificates that are no longer, or not yet, valid.
fn issue_unusual(site: &Site) {
    let now = SystemTime::now();
    let issue = |name: &str, lifetime, at| {
        let purpose = CertificateUse::Client { subject: "mallory".into() };
        let issued = site.authority().issue(name, &purpose, lifetime, site.path(), at);
        issued.unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    issue("expired", DAY, now - 3 * DAY);
    issue("early", CLIENT_LIFETIME / 2, now + 3 * DAY);
    issue("taken-back", CLIENT_LIFETIME, now);
    site.authority().revoke(&RevokedCertificateSelector::Name("taken-back".into()), now).expect("a list");
    // The identities are made now, so that threads need not make them at the same time.
    for name in ["alice", "mallory", "stranger"] {
        site.identity(name);
    }
    let (_, id) = revoked_token(site);
    fs::write(site.path().join("revoked-tokens"), format!("{id}\n")).expect("a list");
}

/// Returns a token that was revoked before the daemon began, and its ID.
fn revoked_token(site: &Site) -> (String, String) {
    let signer = site.authority().token_signer().expect("an issuer");
    let (token, id) =
        mint(&signer, "this", "storage.modify:/data", Duration::from_secs(600), SystemTime::now());
    fs::write(site.path().join("revoked-token"), &token).expect("a file");
    (token, id)
}

fn configuration(site: &Site) -> String {
    let shown = site.path().display();
    format!(
        r#"[tokens]
issuers = [{{ name = "a site", audience = "this", key = "{shown}/authority/token.pem" }}]
max_lifetime_seconds = 3600
revoked = "{shown}/revoked-tokens"
{LIMITS}
[[export]]
name = "data"
path = "{shown}/data"
allow = [{{ identity = "alice", read = true, write = true }}, {{ identity = "mallory", read = true, write = true }}]
[[export]]
name = "database"
path = "{shown}/database"
allow = [{{ identity = "carol", read = true }}, {{ identity = "mallory", read = true }}]
[[export]]
name = "closed"
path = "{shown}/other"
allow = [{{ identity = "carol", read = true }}]
"#
    )
}

/// Returns all entries in `outside` and `database`, and the link to them: name, kind, owner, mode, links,
/// size, time, content.
fn outside(path: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![path.join("outside"), path.join("database"), path.join("data/out")];
    while let Some(at) = pending.pop() {
        let status = fs::symlink_metadata(&at).expect("it stands");
        let mut said =
            format!("{:o} {} {} {}", status.mode(), status.uid(), status.len(), status.mtime_nsec());
        if status.is_dir() {
            pending
                .extend(fs::read_dir(&at).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else if status.is_symlink() {
            said += &format!(" {:?}", fs::read_link(&at).expect("a link"));
        } else {
            said += &format!(" {:?}", fs::read(&at).expect("a file"));
        }
        found.insert(at, said);
    }
    found
}
