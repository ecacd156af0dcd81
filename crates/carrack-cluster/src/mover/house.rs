//! What a mover lets other movers do: write beneath its prefixes.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use carrack_engine::{
    Admission, Deed, House, Request, SessionError, Settings, Sharing, SpillSettings, check_protection,
};
use carrack_model::Protection;
use carrack_transport::Door;

use super::reach::Reach;
use super::session_name::SessionName;

/// For one session.
pub(super) struct MoverHouse<'a> {
    pub reach: &'a Reach,
    /// Data is protected so, or better.
    pub protection_min: Protection,
    /// Whether it gives files to others, makes devices, and sets what gives rights.
    pub keep_owners: bool,
    /// Whether objects may come over a fabric.
    pub allows_fabric: bool,
    /// Ports for data connections; nothing for any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Where the caller came in.
    pub here: IpAddr,
    pub caller: IpAddr,
    /// Where it asks for targets that others use too.
    pub sharing: Option<Sharing>,
    /// Its own flash: none that the caller names.
    pub spill: SpillSettings,
    /// Which session it is, once the caller has said so.
    pub name: OnceLock<SessionName>,
}

impl House for MoverHouse<'_> {
    fn allows_fabric(&self) -> bool {
        self.allows_fabric
    }

    fn admit(&self, request: Request<'_>) -> Result<Admission, SessionError> {
        if request.deed != Deed::Write {
            return Err(SessionError::refused("a mover is written to by other movers, and nothing else", ""));
        }
        if let Some(name) = SessionName::read(request.token) {
            let _ = self.name.set(name);
        }
        check_protection(request.protection, self.protection_min)?;
        let [path] = &request.paths[..] else {
            return Err(SessionError::refused("a session has one destination", ""));
        };
        let path = Path::new(OsStr::from_bytes(path));
        let base = self.reach.base_for(path).map_err(|error| {
            SessionError::refused(error.to_string(), "give the mover this directory with --path")
        })?;
        Ok(Admission {
            base,
            paths: vec![path.to_path_buf()],
            door: Door::Ports(self.ports.clone()),
            settings: Settings {
                sharing: self.sharing.clone(),
                spill: self.spill.clone(),
                special_modes: self.keep_owners,
                ..request.settings
            },
            addresses: vec![self.here],
            caller: Some(self.caller),
        })
    }
}
