//! The access policy of a mover for other movers: they may write beneath its directories.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use carrack_engine::{
    AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights, EndSettings, GrantExchangeHandle,
    SessionError, SpillSettings, check_protection,
};
use carrack_model::{ProtectionLevel, text_without_errno};
use carrack_transport::ListenPoint;

use super::directory_confinement::ReachableRoots;
use super::session_name::SessionName;

/// The policy for one session.
pub(super) struct MoverAccessPolicy<'a> {
    pub reach: &'a ReachableRoots,
    /// The lowest protection level for data.
    pub protection_min: ProtectionLevel,
    /// True if it gives files to other users, makes devices, and sets attributes that give rights.
    pub keep_owners: bool,
    /// True if objects may be transferred over a fabric.
    pub allows_fabric: bool,
    /// Ports for data connections; `None` for any.
    pub ports: Option<RangeInclusive<u16>>,
    /// The local address of the caller's connection.
    pub here: IpAddr,
    pub caller: IpAddr,
    /// The exchange for shared targets.
    pub sharing: Option<GrantExchangeHandle>,
    /// The mover's own spill directories; the caller can't name others.
    pub spill: SpillSettings,
    /// The session's name, once the caller has sent it.
    pub name: OnceLock<SessionName>,
}

impl AccessPolicy for MoverAccessPolicy<'_> {
    fn allows_fabric(&self) -> bool {
        self.allows_fabric
    }

    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        if request.deed != AccessKind::Write {
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
            SessionError::refused(text_without_errno(&error), "give the mover this directory with --path")
        })?;
        Ok(AdmittedCallerRights {
            base,
            paths: vec![path.to_path_buf()],
            door: ListenPoint::Ports(self.ports.clone()),
            settings: EndSettings {
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
