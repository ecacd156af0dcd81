//! An [`AccessPolicy`] with one export, `/data`, as in a daemon.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use carrack_engine::{
    AccessPolicy, AccessRequest, AdmittedCallerRights, ListenPoint, SessionError, check_protection,
};
use carrack_model::ProtectionLevel;
use carrack_storage::{PathBase, RootDirectory};

pub struct ExportHouse {
    base: PathBase,
    protection_min: ProtectionLevel,
}

impl ExportHouse {
    pub fn new(directory: &Path, protection_min: ProtectionLevel) -> ExportHouse {
        ExportHouse { base: PathBase::beneath(RootDirectory::open(directory).unwrap()), protection_min }
    }
}

impl AccessPolicy for ExportHouse {
    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        check_protection(request.protection, self.protection_min)?;
        let beneath = |path: &&[u8]| {
            let rest =
                path.strip_prefix(b"/data").ok_or_else(|| SessionError::refused("no such export", ""))?;
            Ok(Path::new(OsStr::from_bytes(if rest.is_empty() { b"/" } else { rest })).to_path_buf())
        };
        Ok(AdmittedCallerRights {
            base: self.base.clone(),
            paths: request.paths.iter().map(beneath).collect::<Result<_, SessionError>>()?,
            settings: request.settings,
            door: ListenPoint::Ports(None),
            addresses: vec![[127, 0, 0, 1].into()],
            caller: Some([127, 0, 0, 1].into()),
        })
    }

    fn exports(&self, request: &AccessRequest<'_>) -> Result<Option<Vec<String>>, SessionError> {
        match request.token {
            "unwelcome" => Err(SessionError::refused("nothing is open to you", "")),
            _ => Ok(Some((0..1_000).map(|n| format!("export-{n}")).chain(["data".into()]).collect())),
        }
    }
}
