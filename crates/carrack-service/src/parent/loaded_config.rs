//! A checked configuration with all files that it names: the daemon starts with one, and changes to another
//! on SIGHUP.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytesize::ByteSize;
use carrack_machine::MemoryLimit;
use nix::unistd::User;
use rustix::process::geteuid;
use thiserror::Error;

use crate::config::{
    AccessRule, ConfigError, DaemonConfig, ExportConfig, LocalServicesConfig, MAX_CONFIG_BYTES,
};
use crate::log::LogVerbosity;
use crate::material::{CredentialMaterial, MaterialError};
use crate::queue::QueueServiceError;
use crate::session_messages::{SessionProcessSetup, frame};

/// An error that keeps the daemon from running.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration can't be read.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// The configuration file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The configuration is wrong.
    #[error("{path}: {error}", path = .path.display())]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// The error in the configuration.
        error: ConfigError,
    },
    /// Files that the configuration names are missing or wrong.
    #[error(transparent)]
    Material(#[from] MaterialError),
    /// An export can't be served as configured.
    #[error("export {export}: {message}")]
    Export {
        /// The export's name.
        export: String,
        /// The error.
        message: String,
        /// A hint for the administrator.
        hint: &'static str,
    },
    /// The queue can't start.
    #[error(transparent)]
    Queue(#[from] QueueServiceError),
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl ServeError {
    /// Returns a hint for the administrator; may be empty.
    pub fn hint(&self) -> String {
        match self {
            ServeError::File { .. } => "packaging/carrack.toml is one to begin with".to_owned(),
            ServeError::Config { error, .. } => error.hint().to_owned(),
            ServeError::Material(error) => error.hint(),
            ServeError::Export { hint, .. } => (*hint).to_owned(),
            ServeError::Queue(error) => error.hint(),
            ServeError::System { .. } => String::new(),
        }
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
        move |error| ServeError::System { what, error }
    }
}

/// Memory of a session with few buffers: its process, stacks, sockets and page cache.
const SESSION_BYTES: u64 = 32 << 20;

/// A configuration that can be served.
#[derive(Debug)]
pub struct ServePlan {
    /// The parsed configuration.
    pub config: DaemonConfig,
    text: String,
    material: CredentialMaterial,
    /// Notices for the administrator that keep nothing from working.
    pub notices: Vec<String>,
}

impl ServePlan {
    /// Reads a configuration and all files that it names, and checks that sessions could start with them.
    ///
    /// # Errors
    /// [`ServeError`] if no session could.
    pub fn load(path: &Path) -> Result<ServePlan, ServeError> {
        let text = read(path)?;
        let mut config = DaemonConfig::parse(&text)
            .map_err(|error| ServeError::Config { path: path.to_path_buf(), error })?;
        let material = CredentialMaterial::read(&config)?;
        let mut notices = material.check(&config)?;
        for export in &config.exports {
            check_export(export, &mut notices)?;
        }
        notices.extend(fit_memory(&mut config));
        notices.extend(memory_notice(&config));
        Ok(ServePlan { config, text, material, notices })
    }

    /// Returns the message that every session's process gets first: the configuration and its files.
    pub(super) fn setup_message(&self, verbosity: LogVerbosity) -> io::Result<Arc<[u8]>> {
        frame(&SessionProcessSetup { config: self.text.clone(), material: self.material.clone(), verbosity })
    }

    /// Describes for people how the daemon would run.
    pub fn describe(&self) -> Vec<String> {
        let config = &self.config;
        let limits = &config.limits;
        let mut lines: Vec<String> =
            config.listen.iter().map(|address| format!("listen on {address}")).collect();
        let audit =
            config.audit.as_ref().map_or("standard error".to_owned(), |path| path.display().to_string());
        lines.push(format!("audit log: {audit}"));
        lines.push(format!(
            "up to {} sessions, {} of one identity, each with {} of buffers and {} I/O threads",
            limits.sessions,
            limits.sessions_per_identity,
            ByteSize(limits.buffer).display().iec(),
            limits.io_threads
        ));
        for export in &config.exports {
            lines.push(format!(
                "/{} is {}, data travels {} at least",
                export.name,
                export.path.display(),
                export.protection
            ));
            lines.extend(export.allow.iter().map(describe_rule));
        }
        lines.extend(config.local().iter().flat_map(LocalServicesConfig::describe));
        lines
    }
}

/// Returns the part for this machine's users, if the configuration has no other part.
pub(super) fn read_local_only_config(path: &Path) -> Result<Option<LocalServicesConfig>, ServeError> {
    let text = read(path)?;
    DaemonConfig::local_alone(&text).map_err(|error| ServeError::Config { path: path.to_path_buf(), error })
}

fn describe_rule(rule: &AccessRule) -> String {
    let rights = [(rule.read, "read"), (rule.write, "write"), (rule.list || rule.read, "list")];
    let rights: Vec<&str> = rights.into_iter().filter_map(|(has, right)| has.then_some(right)).collect();
    let mut line = format!("  {}: {}", rule.identity, rights.join(", "));
    if let Some(user) = &rule.user {
        line.push_str(&format!(", as {user}"));
    }
    if let Some(sessions) = rule.sessions {
        line.push_str(&format!(", {sessions} sessions"));
    }
    if rule.rate.is_some() {
        line.push_str(&format!(", {}/s for each", ByteSize(rule.session_rate()).display().si()));
    }
    line
}

/// Reads a configuration's text. Of a text over the limit it returns more than the limit, so that parsing
/// fails.
pub(crate) fn read(path: &Path) -> Result<String, ServeError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text))
        .map_err(|error| ServeError::File { path: path.to_path_buf(), error })?;
    Ok(text)
}

fn export_error(export: &ExportConfig, message: String, hint: &'static str) -> Result<(), ServeError> {
    Err(ServeError::Export { export: export.name.clone(), message, hint })
}

fn check_export(export: &ExportConfig, notices: &mut Vec<String>) -> Result<(), ServeError> {
    match std::fs::metadata(&export.path) {
        Ok(metadata) if !metadata.is_dir() => {
            return export_error(
                export,
                format!("{} is no directory", export.path.display()),
                "name a directory",
            );
        }
        // It may be mounted later, or only be visible to the rule's user.
        Err(error) => notices.push(format!("export {}: {}: {error}", export.name, export.path.display())),
        Ok(_) => {}
    }
    let is_root = geteuid().is_root();
    for rule in &export.allow {
        match &rule.user {
            Some(user) => match User::from_name(user) {
                Ok(Some(account)) if account.uid.is_root() => {
                    return export_error(
                        export,
                        format!("sessions of {} would be root's", rule.identity),
                        "name another account",
                    );
                }
                Ok(Some(account)) if !is_root && account.uid.as_raw() != geteuid().as_raw() => {
                    let message =
                        format!("sessions of {} can't become {user}: the daemon is not root", rule.identity);
                    return export_error(
                        export,
                        message,
                        "start it as root, or take user out: then sessions are the daemon's own user",
                    );
                }
                Ok(Some(_)) => {}
                _ => {
                    return export_error(
                        export,
                        format!("there is no account {user}"),
                        "make it, or correct the name",
                    );
                }
            },
            None if is_root => {
                notices.push(format!(
                    "export {}: sessions of {} run as root; give the rule a user",
                    export.name, rule.identity
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// Lowers the number of sessions to the limit of memory: the kernel would kill more of them. Clients beyond
/// the number try again.
fn fit_memory(config: &mut DaemonConfig) -> Option<String> {
    let limit = MemoryLimit::of_this_process()?;
    let (most, wanted) = ((limit.limit_bytes / SESSION_BYTES).max(1), config.limits.sessions);
    (most < wanted).then(|| {
        config.limits.sessions = most;
        format!("{most} sessions, not {wanted}: {} is {} MiB", limit.origin, limit.limit_bytes >> 20)
    })
}

/// Returns a notice if the buffers of all sessions may exceed the machine's memory.
fn memory_notice(config: &DaemonConfig) -> Option<String> {
    let info = rustix::system::sysinfo();
    let there = info.totalram.saturating_mul(info.mem_unit.into());
    let most = config.limits.buffer.saturating_mul(config.limits.sessions);
    (most > there).then(|| {
        format!(
            "{} sessions may have buffers of {} in all, the machine has {}",
            config.limits.sessions,
            ByteSize(most).display().iec(),
            ByteSize(there).display().iec()
        )
    })
}
