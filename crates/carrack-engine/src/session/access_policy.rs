//! The access policy of a responder. Over ssh it allows everything that the user may do; a daemon's depends
//! on the caller and the request.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_model::{AgreedTransferSpec, ProtectionLevel};
use carrack_storage::PathBase;
use carrack_transport::ListenPoint;

use crate::error::SessionError;
use crate::grant_exchange::GrantExchangeHandle;
use crate::settings::EndSettings;
use crate::tuner_memory::TunerHistory;

/// An operation on paths that a caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Read files and directories.
    Read,
    /// Create and replace files and directories.
    Write,
    /// List names, sizes and times.
    List,
    /// Create a directory.
    MakeDirectory,
    /// Remove files or directories.
    Remove,
    /// Read files, and send only their digests.
    Verify,
}

/// A caller's request.
#[derive(Debug)]
pub struct AccessRequest<'a> {
    /// The operation.
    pub deed: AccessKind,
    /// Its paths, as the caller wrote them.
    pub paths: Vec<&'a [u8]>,
    /// A bearer token; empty for none.
    pub token: &'a str,
    /// The protection of the data; `None` if only the control channel carries data.
    pub protection: Option<ProtectionLevel>,
    /// The specification on which both ends agree, if data is moved.
    pub spec: Option<&'a AgreedTransferSpec>,
    /// The caller's settings for this end.
    pub settings: EndSettings,
}

/// The rights of an admitted caller.
#[derive(Debug)]
pub struct AdmittedCallerRights {
    /// The start of paths.
    pub base: PathBase,
    /// The paths, as this end knows them.
    pub paths: Vec<PathBuf>,
    /// The settings that this end accepts of the caller's.
    pub settings: EndSettings,
    /// The way in which data connections arrive.
    pub door: ListenPoint,
    /// Further addresses of this host, the most promising first.
    pub addresses: Vec<IpAddr>,
    /// The caller's address, if it is known.
    pub caller: Option<IpAddr>,
}

/// Decides about requests of callers.
pub trait AccessPolicy {
    /// Admits the caller, or returns the reason of a refusal.
    ///
    /// # Errors
    /// [`SessionError::Refused`], which is sent to the caller.
    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError>;

    /// The names that the caller may see at the top, if those are exports; `None` if `/` is an ordinary
    /// directory. Called when the caller lists `/`.
    ///
    /// # Errors
    /// As [`AccessPolicy::admit`].
    fn exports(&self, request: &AccessRequest<'_>) -> Result<Option<Vec<String>>, SessionError> {
        let _ = request;
        Ok(None)
    }

    /// Returns true if the caller's objects may be moved over a fabric, whose endpoints authenticate no one.
    fn allows_fabric(&self) -> bool {
        false
    }
}

/// The policy of the user who started this process: everything is allowed that the system allows.
#[derive(Debug)]
pub struct ProcessOwnerAccessPolicy {
    protection_min: ProtectionLevel,
    /// The addresses of the ssh connection, which are known to work between the two hosts.
    caller: Option<IpAddr>,
    here: Option<IpAddr>,
    sharing: Option<GrantExchangeHandle>,
    history: Option<TunerHistory>,
}

impl ProcessOwnerAccessPolicy {
    /// Creates the policy of a process that ssh started (`SSH_CONNECTION`, see ssh(1)). Data is protected by
    /// `protection_min` or better; less must be allowed by the user at this end too.
    pub fn over_ssh(protection_min: ProtectionLevel) -> ProcessOwnerAccessPolicy {
        let value = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let words: Vec<&str> = value.split(' ').collect();
        let [caller, here] = [0, 2].map(|place| words.get(place).and_then(|word| word.parse().ok()));
        ProcessOwnerAccessPolicy { protection_min, caller, here, sharing: None, history: None }
    }

    /// Adds the meta-scheduler for targets that others use too.
    pub fn with_sharing(self, sharing: Option<GrantExchangeHandle>) -> ProcessOwnerAccessPolicy {
        ProcessOwnerAccessPolicy { sharing, ..self }
    }

    /// Adds the history from which sources begin with the results of earlier ones.
    pub fn with_history(self, history: Option<TunerHistory>) -> ProcessOwnerAccessPolicy {
        ProcessOwnerAccessPolicy { history, ..self }
    }

    /// Returns the caller's address, from ssh.
    pub fn caller(&self) -> Option<IpAddr> {
        self.caller
    }
}

impl AccessPolicy for ProcessOwnerAccessPolicy {
    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        check_protection(request.protection, self.protection_min)?;
        Ok(AdmittedCallerRights {
            base: PathBase::Anywhere,
            paths: request.paths.iter().map(|path| home_relative_path(path)).collect(),
            door: ListenPoint::Ports(request.settings.ports.clone()),
            settings: EndSettings {
                sharing: self.sharing.clone(),
                history: self.history.clone(),
                ..request.settings
            },
            addresses: self.here.into_iter().collect(),
            caller: self.caller,
        })
    }

    fn allows_fabric(&self) -> bool {
        true
    }
}

/// Refuses data with less protection than `least`.
pub fn check_protection(wanted: Option<ProtectionLevel>, least: ProtectionLevel) -> Result<(), SessionError> {
    match wanted {
        Some(wanted) if wanted < least => Err(SessionError::refused(
            format!("the other end does not let data travel {wanted}: at least {least}"),
            "leave --protection out, or have it allowed there too",
        )),
        _ => Ok(()),
    }
}

/// Under ssh a path is relative to the home directory, where the session starts; an empty path is that
/// directory.
fn home_relative_path(bytes: &[u8]) -> PathBuf {
    if bytes.is_empty() { PathBuf::from(".") } else { Path::new(OsStr::from_bytes(bytes)).to_path_buf() }
}
