//! Which servers, and who we are to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ConnectOptions;

use crate::error::BusError;
use crate::subjects::PREFIX;

/// A connection that says nothing for three of these is given up and made anew: well within the time after which chunks
/// are delivered again, so that a mover that is cut off knows it before somebody else has its chunks.
const PING_EVERY: Duration = Duration::from_secs(2);

/// No answer for so long is none. More than the round trip of any path, less than the lease of a mover.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Tries to connect again are this far apart at most: servers that are back are used at once.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How a process shows who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// It does not (or by its certificate only).
    #[default]
    None,
    /// A `.creds` file: JWT and seed.
    Credentials(PathBuf),
    /// A file with an nkey's seed.
    Seed(PathBuf),
    /// A user's name, and the file that has the password in its first line.
    Password {
        /// The name.
        user: String,
        /// The file.
        file: PathBuf,
    },
    /// The file that has a token in its first line.
    Token(PathBuf),
}

/// TLS, where the server wants more than what a URL that begins with `tls://` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Nothing is said without it.
    pub required: bool,
    /// Certificates of the CAs that sign the servers', PEM, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What [`Bus::connect`](super::Bus::connect) needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusOptions {
    /// `nats://host:port` or `tls://host:port`; any of them will do.
    pub servers: Vec<String>,
    /// Who we are.
    pub login: Login,
    /// TLS.
    pub tls: Tls,
    /// The JetStream domain that the fleet lies in, if it is not the server's own.
    pub domain: Option<String>,
    /// The prefix of all names: a fleet's own.
    pub prefix: String,
    /// What inboxes begin with (`_INBOX`): one for each user lets nobody hear the others' answers.
    pub inbox: Option<String>,
    /// What the server's operator sees us by.
    pub name: String,
}

impl Default for BusOptions {
    fn default() -> BusOptions {
        BusOptions {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            login: Login::None,
            tls: Tls::default(),
            domain: None,
            prefix: PREFIX.to_owned(),
            inbox: None,
            name: "carrack".to_owned(),
        }
    }
}

impl BusOptions {
    /// As async-nats has them.
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
            options = options.add_root_certificates(readable(ca)?);
        }
        if let Some((certificate, key)) = &self.tls.identity {
            options = options.add_client_certificate(readable(certificate)?, readable(key)?);
        }
        if let Some(inbox) = &self.inbox {
            if !inbox.split('.').all(crate::records::is_name) {
                return Err(BusError::BadName(inbox.clone()));
            }
            options = options.custom_inbox_prefix(inbox);
        }
        Ok(match &self.login {
            Login::None => options,
            Login::Credentials(path) => {
                options.credentials(&read(path)?).map_err(|error| unfit(path, &error))?
            }
            Login::Seed(path) => options.nkey(first_line(path)?),
            Login::Password { user, file } => options.user_and_password(user.clone(), first_line(file)?),
            Login::Token(path) => options.token(first_line(path)?),
        })
    }
}

/// The first try, of a process that begins or has just lost its server, is made at once.
fn reconnect_delay(tries: usize) -> Duration {
    match tries {
        0 | 1 => Duration::ZERO,
        _ => Duration::from_millis(50).saturating_mul(1 << tries.min(8)).min(RECONNECT_WITHIN),
    }
}

fn read(path: &Path) -> Result<String, BusError> {
    std::fs::read_to_string(path).map_err(|error| unfit(path, &error))
}

fn first_line(path: &Path) -> Result<String, BusError> {
    let text = read(path)?;
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(unfit(path, &"it is empty")),
    }
}

/// async-nats would say nothing but "TLS error" of a file that is not there.
fn readable(path: &Path) -> Result<PathBuf, BusError> {
    std::fs::File::open(path).map_err(|error| unfit(path, &error))?;
    Ok(path.to_owned())
}

fn unfit(path: &Path, reason: &dyn std::fmt::Display) -> BusError {
    BusError::Material { path: path.display().to_string(), reason: reason.to_string() }
}
