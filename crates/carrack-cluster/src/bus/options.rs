//! The servers, and the credentials for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ConnectOptions;

use crate::error::BusError;
use crate::subjects::PREFIX;

/// Interval of pings. A connection without a reply to three of them is replaced: well before chunks are
/// redelivered, so that an isolated mover notices it before another mover has its chunks.
const PING_EVERY: Duration = Duration::from_secs(2);

/// Timeout of requests: more than the round trip of any path, less than the lease of a mover.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Longest pause between attempts to reconnect: servers that are back are used at once.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);

/// A process's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsLogin {
    /// None (or only its certificate).
    #[default]
    None,
    /// A `.creds` file: JWT and seed.
    Credentials(PathBuf),
    /// A file with an nkey's seed.
    Seed(PathBuf),
    /// A user's name, and a file with the password in its first line.
    Password {
        /// The name.
        user: String,
        /// The file.
        file: PathBuf,
    },
    /// A file with a token in its first line.
    Token(PathBuf),
}

/// TLS options, for servers that need more than a URL with `tls://`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// True if the connection fails without TLS.
    pub required: bool,
    /// Certificates of the CAs that sign the servers', PEM, in place of the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Options of [`Bus::connect`](super::NatsBus::connect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusOptions {
    /// `nats://host:port` or `tls://host:port`; one reachable server is enough.
    pub servers: Vec<String>,
    /// The credentials.
    pub login: NatsLogin,
    /// TLS.
    pub tls: NatsTls,
    /// The JetStream domain of the fleet, if it is not the server's own.
    pub domain: Option<String>,
    /// The prefix of all names: a fleet's own.
    pub prefix: String,
    /// Prefix of inboxes (`_INBOX`): with one for each user, no user can read the answers to others.
    pub inbox: Option<String>,
    /// The client's name for the server's operator.
    pub name: String,
}

impl Default for BusOptions {
    fn default() -> BusOptions {
        BusOptions {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            login: NatsLogin::None,
            tls: NatsTls::default(),
            domain: None,
            prefix: PREFIX.to_owned(),
            inbox: None,
            name: "carrack".to_owned(),
        }
    }
}

impl BusOptions {
    /// Converts the options to those of async-nats.
    pub(super) fn to_connect(&self) -> Result<ConnectOptions, BusError> {
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .ping_interval(PING_EVERY)
            .request_timeout(Some(ANSWER_WITHIN))
            .connection_timeout(ANSWER_WITHIN)
            .max_reconnects(None)
            .reconnect_delay_callback(reconnect_delay)
            .require_tls(self.tls.required);
        if let Some(ca) = &self.tls.ca {
            options = options.add_root_certificates(check_readable(ca)?);
        }
        if let Some((certificate, key)) = &self.tls.identity {
            options = options.add_client_certificate(check_readable(certificate)?, check_readable(key)?);
        }
        if let Some(inbox) = &self.inbox {
            if !inbox.split('.').all(crate::transfer_records::is_name) {
                return Err(BusError::BadName(inbox.clone()));
            }
            options = options.custom_inbox_prefix(inbox);
        }
        Ok(match &self.login {
            NatsLogin::None => options,
            NatsLogin::Credentials(path) => {
                options.credentials(&read(path)?).map_err(|error| unusable_file_error(path, &error))?
            }
            NatsLogin::Seed(path) => options.nkey(first_line(path)?),
            NatsLogin::Password { user, file } => options.user_and_password(user.clone(), first_line(file)?),
            NatsLogin::Token(path) => options.token(first_line(path)?),
        })
    }
}

/// The first attempt, at the start or after a loss, has no delay.
fn reconnect_delay(tries: usize) -> Duration {
    match tries {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_millis(50).saturating_mul(1 << tries.min(8)).min(RECONNECT_WITHIN),
    }
}

fn read(path: &Path) -> Result<String, BusError> {
    std::fs::read_to_string(path).map_err(|error| unusable_file_error(path, &error))
}

fn first_line(path: &Path) -> Result<String, BusError> {
    let text = read(path)?;
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(unusable_file_error(path, &"it is empty")),
    }
}

/// Checks that a file can be read: async-nats reports a missing one only as "TLS error".
fn check_readable(path: &Path) -> Result<PathBuf, BusError> {
    std::fs::File::open(path).map_err(|error| unusable_file_error(path, &error))?;
    Ok(path.to_owned())
}

fn unusable_file_error(path: &Path, reason: &dyn std::fmt::Display) -> BusError {
    BusError::Material { path: path.display().to_string(), reason: reason.to_string() }
}
