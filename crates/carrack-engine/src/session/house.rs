//! What an end that was called allows. Over ssh that is all that the user may; a daemon looks at who asks for what.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carrack_model::{Protection, TransferSpec};
use carrack_storage::Base;
use carrack_transport::Door;

use crate::error::SessionError;
use crate::grant_exchange::Sharing;
use crate::settings::Settings;
use crate::tuner_memory::History;

/// What a caller wants to do with paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read files and directories.
    Read,
    /// Create and replace them.
    Write,
    /// Look at names, sizes and times.
    List,
    /// Make a directory.
    MakeDirectory,
    /// Remove files or directories.
    Remove,
    /// Read files and tell their digests only.
    Verify,
}

/// What a caller asks for.
#[derive(Debug)]
pub struct Request<'a> {
    /// What to do.
    pub deed: Deed,
    /// With what, as the caller wrote it.
    pub paths: Vec<&'a [u8]>,
    /// A bearer token; empty for none.
    pub token: &'a str,
    /// How the data would be protected; nothing where none travels but on the control channel.
    pub protection: Option<Protection>,
    /// What both ends are to agree on, if data is to be moved.
    pub spec: Option<&'a TransferSpec>,
    /// What the caller would like of this end.
    pub settings: Settings,
}

/// What the caller gets.
#[derive(Debug)]
pub struct Admission {
    /// Where paths begin.
    pub base: Base,
    /// The paths, as this end knows them.
    pub paths: Vec<PathBuf>,
    /// What this end does of what the caller would like.
    pub settings: Settings,
    /// How data connections come in.
    pub door: Door,
    /// Where, most promising first, beside this host's addresses.
    pub addresses: Vec<IpAddr>,
    /// Where the caller is, if that is known.
    pub caller: Option<IpAddr>,
}

/// Decides about callers.
pub trait House {
    /// Admits the caller, or says why not.
    ///
    /// # Errors
    /// [`SessionError::Refused`], which the caller is told.
    fn admit(&self, request: Request<'_>) -> Result<Admission, SessionError>;

    /// The names of what the caller may see at the top, where that is a list of exports; nothing where `/` is a directory
    /// as others are. Asked when the caller lists `/`.
    ///
    /// # Errors
    /// As [`House::admit`].
    fn exports(&self, request: &Request<'_>) -> Result<Option<Vec<String>>, SessionError> {
        let _ = request;
        Ok(None)
    }

    /// Whether the caller may have its objects moved over a fabric: endpoints are opened for it here that ask nobody who he is.
    fn allows_fabric(&self) -> bool {
        false
    }
}

/// The house of the user who started this process, where everything is allowed that the system allows.
#[derive(Debug)]
pub struct OwnHouse {
    protection_min: Protection,
    /// The addresses of the ssh connection: the ones that are known to work between the two hosts.
    caller: Option<IpAddr>,
    here: Option<IpAddr>,
    sharing: Option<Sharing>,
    history: Option<History>,
}

impl OwnHouse {
    /// Of a process that ssh started (`SSH_CONNECTION`, see ssh(1)). Data is protected as `protection_min` says, or better;
    /// less needs the user's word at this end too.
    pub fn over_ssh(protection_min: Protection) -> OwnHouse {
        let value = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let mut words = value.split(' ');
        let mut address = |skipped| words.nth(skipped).and_then(|word| word.parse().ok());
        let (caller, here) = (address(0), address(1));
        OwnHouse { protection_min, caller, here, sharing: None, history: None }
    }

    /// The same that asks for targets which others use too.
    pub fn with_sharing(self, sharing: Option<Sharing>) -> OwnHouse {
        OwnHouse { sharing, ..self }
    }

    /// The same whose sources begin from what earlier ones have found out.
    pub fn with_history(self, history: Option<History>) -> OwnHouse {
        OwnHouse { history, ..self }
    }

    /// Who called, by the address that ssh tells.
    pub fn caller(&self) -> Option<IpAddr> {
        self.caller
    }
}

impl House for OwnHouse {
    fn admit(&self, request: Request<'_>) -> Result<Admission, SessionError> {
        check_protection(request.protection, self.protection_min)?;
        Ok(Admission {
            base: Base::Anywhere,
            paths: request.paths.iter().map(|path| own_path(path)).collect(),
            door: Door::Ports(request.settings.ports.clone()),
            settings: Settings {
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

/// Refuses data that would be less protected than `least`.
pub fn check_protection(wanted: Option<Protection>, least: Protection) -> Result<(), SessionError> {
    match wanted {
        Some(wanted) if wanted < least => Err(SessionError::refused(
            format!("the other end does not let data travel {wanted}: at least {least}"),
            "leave --protection out, or have it allowed there too",
        )),
        _ => Ok(()),
    }
}

/// Under ssh a path is relative to the home directory, where the session starts; empty means that directory.
fn own_path(bytes: &[u8]) -> PathBuf {
    if bytes.is_empty() { PathBuf::from(".") } else { Path::new(OsStr::from_bytes(bytes)).to_path_buf() }
}
