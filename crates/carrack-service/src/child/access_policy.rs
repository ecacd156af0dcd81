//! Authorization of a client by the daemon: identity, export, right, token and quota, in this order.
//!
//! A client gets the same answer for a missing export as for a closed one. With the first admission the
//! process becomes the rule's user and opens the export's directory; further admissions are for the same user
//! and export.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use carrack_engine::{
    AbortHandle, AccessKind, AccessPolicy, AccessRequest, AdmittedCallerRights, EndSettings,
    GrantExchangeHandle, ListenPoint, SessionError, check_protection,
};
use carrack_machine::{CoreIsolationMode, MemoryLimit};
use carrack_model::limits::{LANES_MAX, SLOT_BYTES_DEFAULT, SLOT_COUNT_MIN};
use carrack_model::{RelPath, escape, text_without_errno};
use carrack_storage::{PathBase, RootDirectory};
use carrack_trust::{ProvedIdentity, TokenScope, TokenScopeOperation, TokenVerifier};
use carrack_wire::auth::ListenerNonce;

use super::account::SystemAccount;
use super::{guard, sandbox};
use crate::config::{AccessRule, DaemonConfig, ExportConfig};
use crate::export_path::{PathInExport, split};
use crate::log::DaemonLog;
use crate::session_messages::{
    AuditedWork, PATHS_SHOWN_MAX, SessionAdmissionAnswer, SessionConnectionFacts, SessionProcessMessage,
    receive, receive_descriptor, send, shortened,
};
use crate::sharing::GrantServerConnection;

/// Memory that must be free for a session to begin: the smallest buffers, and its process's tables and
/// stacks.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// The responder's side of a daemon's session.
pub struct ExportAccessPolicy {
    config: Arc<DaemonConfig>,
    errand: SessionConnectionFacts,
    /// Identity by TLS.
    who: Option<ProvedIdentity>,
    tokens: TokenVerifier,
    parent: RefCell<UnixStream>,
    abort: AbortHandle,
    log: DaemonLog,
    /// Set with the first admission.
    inside: RefCell<Option<BoundExport>>,
}

/// The export and user that the process is bound to.
struct BoundExport {
    export: String,
    user: Option<String>,
    root: Arc<RootDirectory>,
}

/// A client's identity, and its token's rights.
struct ClientAccessRights {
    who: ProvedIdentity,
    scope: Option<TokenScope>,
    until_s: Option<u64>,
}

impl ExportAccessPolicy {
    pub fn new(
        config: Arc<DaemonConfig>,
        errand: SessionConnectionFacts,
        who: Option<ProvedIdentity>,
        tokens: TokenVerifier,
        parent: UnixStream,
        abort: AbortHandle,
        log: DaemonLog,
    ) -> ExportAccessPolicy {
        let (parent, inside) = (RefCell::new(parent), RefCell::new(None));
        ExportAccessPolicy { config, errand, who, tokens, parent, abort, log, inside }
    }

    /// Returns true if a request was admitted.
    pub fn is_admitted(&self) -> bool {
        self.inside.borrow().is_some()
    }

    /// Returns the claim of a request. A token counts for the identity in it, independent of the client's
    /// certificate.
    fn client_rights(&self, token: &str) -> Result<ClientAccessRights, SessionError> {
        if token.is_empty() {
            let who = self.who.clone().ok_or_else(|| {
                SessionError::refused(
                    "the daemon does not know who you are",
                    "show a certificate, a key that it knows, or a token",
                )
            })?;
            return Ok(ClientAccessRights { who, scope: None, until_s: None });
        }
        let token = self.tokens.verify(token, SystemTime::now()).map_err(|error| {
            SessionError::refused(text_without_errno(&error), error.hint().unwrap_or_default())
        })?;
        let until = token.expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(ClientAccessRights {
            who: token.identity,
            scope: Some(token.scope),
            until_s: Some(until.as_secs()),
        })
    }

    /// Checks that the paths are of one export and that a rule permits the action; returns both, and the rest
    /// of the paths.
    fn find_permitting_rule<'a>(
        &'a self,
        claim: &ClientAccessRights,
        request: &AccessRequest<'a>,
    ) -> Result<(&'a ExportConfig, &'a AccessRule, Vec<PathBuf>), SessionError> {
        let paths: Vec<PathInExport<'_>> = request
            .paths
            .iter()
            .map(|path| split(path).ok_or_else(|| self.no_export_error(claim)))
            .collect::<Result<_, _>>()?;
        let first = paths.first().ok_or_else(|| self.no_export_error(claim))?;
        if paths.iter().any(|path| path.export != first.export) {
            return Err(SessionError::refused(
                "the paths are of several exports",
                "copy from one export at a time",
            ));
        }
        let Some((export, rule)) = self.config.rule(first.export, &claim.who.name) else {
            let hint = "the name may be wrong, or you may have no rights there";
            return Err(SessionError::refused(
                format!("no export {} is open to you", escape(first.export.as_bytes())),
                hint,
            ));
        };
        if !rule.allows(request.deed) {
            let message = format!("{} does not let you {}", export.name, access_verb(request.deed));
            return Err(SessionError::refused(message, "ask the daemon's administrator for the right"));
        }
        check_scope(claim, request)?;
        check_protection(request.protection, export.protection)?;
        Ok((export, rule, paths.into_iter().map(|path| path.rest).collect()))
    }

    fn no_export_error(&self, claim: &ClientAccessRights) -> SessionError {
        let open: Vec<&str> = self.config.open_to(&claim.who.name).collect();
        let hint = if open.is_empty() {
            "no export is open to you".to_owned()
        } else {
            format!("exports that are open to you: {}", open.join(", "))
        };
        SessionError::refused("paths on a daemon are /EXPORT/sub/path", hint)
    }

    /// Returns the daemon's own meta-server, which sees the user that the process has become. The exchange
    /// connects with the first batch and again whenever necessary: Landlock lets a process connect to Unix
    /// sockets anywhere.
    fn grant_exchange(&self) -> Option<GrantExchangeHandle> {
        let socket = self.config.local()?.sharing_socket()?;
        Some(GrantExchangeHandle(Arc::new(GrantServerConnection::new(&socket))))
    }

    fn send_to_parent(&self, message: &SessionProcessMessage) -> Result<(), SessionError> {
        send(&mut self.parent.borrow_mut(), message)
            .map_err(|error| SessionError::Local { what: "asking the daemon", error })
    }

    /// Reports a refused request for the audit log. The refusal does not depend on it.
    fn report_refused_request(&self, who: Option<&ProvedIdentity>, work: &AuditedWork) {
        let wanted = SessionProcessMessage::Wanted { who: who.cloned(), work: work.clone() };
        if let Err(error) = self.send_to_parent(&wanted) {
            self.log.warn(error);
        }
    }

    /// Asks the parent for admission: the parent enforces the quotas.
    fn request_admission(
        &self,
        claim: &ClientAccessRights,
        work: AuditedWork,
    ) -> Result<(ListenPoint, u64), SessionError> {
        self.send_to_parent(&SessionProcessMessage::Ask {
            who: claim.who.clone(),
            work,
            until_s: claim.until_s,
        })?;
        let parent = &mut *self.parent.borrow_mut();
        match receive(parent).map_err(local_error("asking the daemon"))? {
            SessionAdmissionAnswer::Refused { message, hint, later_ms: Some(ms) } => {
                Err(SessionError::later(message, hint, Some(Duration::from_millis(ms))))
            }
            SessionAdmissionAnswer::Refused { message, hint, later_ms: None } => {
                Err(SessionError::refused(message, hint))
            }
            SessionAdmissionAnswer::Admitted { nonce, rate } => {
                let socket = receive_descriptor(parent).map_err(local_error("asking the daemon"))?;
                let nonce = ListenerNonce::new(nonce);
                Ok((ListenPoint::Handed { socket, port: self.errand.here.port(), nonce }, rate))
            }
        }
    }

    /// Becomes the rule's user and opens the export; once, as it can't be undone.
    fn enter_export(
        &self,
        export: &ExportConfig,
        rule: &AccessRule,
    ) -> Result<Arc<RootDirectory>, SessionError> {
        let mut inside = self.inside.borrow_mut();
        if let Some(inside) = &*inside {
            return if inside.export == export.name && inside.user == rule.user {
                Ok(Arc::clone(&inside.root))
            } else {
                Err(SessionError::refused("a session is for one export", "begin another one"))
            };
        }
        let account = rule
            .user
            .as_deref()
            .map(SystemAccount::look_up)
            .transpose()
            .map_err(local_error("looking up the account"))?;
        if let Some(account) = &account {
            account.apply_to_process().map_err(local_error("becoming another user"))?;
        }
        sandbox::restore_after_user_change().map_err(local_error("closing the process off"))?;
        let root = RootDirectory::open(&export.path).map_err(|error| {
            self.log.warn(format!("export {}: {}: {error}", export.name, export.path.display()));
            SessionError::refused(
                format!("{} can't be opened: {error}", export.name),
                "tell the daemon's administrator",
            )
        })?;
        let wall =
            sandbox::restrict_to_export(&root, self.config.spill.directories.iter().map(|at| &at.directory))
                .unwrap_or_else(|error| {
                    self.log.warn(format!("session {}: Landlock: {error}", self.errand.session));
                    "no wall beside openat2"
                });
        let user = account.as_ref().map_or("the daemon's own user", SystemAccount::name);
        self.log.detail(|| format!("session {}: as {user}; {wall}", self.errand.session));
        let parent = self.parent.borrow().try_clone().map_err(local_error("watching the daemon"))?;
        guard::start_guard_thread(parent, self.abort.clone()).map_err(local_error("watching the daemon"))?;
        let root = Arc::new(root);
        let held = Arc::clone(&root);
        *inside = Some(BoundExport { export: export.name.clone(), user: rule.user.clone(), root: held });
        Ok(root)
    }
}

impl AccessPolicy for ExportAccessPolicy {
    fn admit(&self, request: AccessRequest<'_>) -> Result<AdmittedCallerRights, SessionError> {
        let work = audited_work(&request);
        let claim =
            self.client_rights(request.token).inspect_err(|_| self.report_refused_request(None, &work))?;
        let allowed = self.find_permitting_rule(&claim, &request);
        let (export, rule, paths) =
            allowed.inspect_err(|_| self.report_refused_request(Some(&claim.who), &work))?;
        if MemoryLimit::of_this_process().is_some_and(|limit| limit.free_bytes < FREE_BYTES_MIN) {
            let message = "the daemon has no memory for another session now";
            return Err(SessionError::later(
                message,
                "run the same command again",
                Some(Duration::from_secs(1)),
            ));
        }
        let (door, rate) = self.request_admission(&claim, work)?;
        let root = self.enter_export(export, rule)?;
        let base = path_base(&claim, request.deed, export, root);
        let slot_bytes = request.spec.map_or(SLOT_BYTES_DEFAULT as u32, |spec| spec.slot_bytes);
        let mut settings = limited_settings(request.settings, &self.config, slot_bytes);
        settings.recall &= export.recall;
        settings.sharing = self.grant_exchange();
        settings.scheduling.rate = least_rate(settings.scheduling.rate, rate);
        Ok(AdmittedCallerRights {
            base,
            paths,
            settings,
            door,
            addresses: vec![self.errand.here.ip().to_canonical()],
            caller: Some(self.errand.peer.ip().to_canonical()),
        })
    }

    /// Returns the exports with a rule for the caller; with a token, only those that it covers completely.
    fn exports(&self, request: &AccessRequest<'_>) -> Result<Option<Vec<String>>, SessionError> {
        let work = audited_work(request);
        let claim =
            self.client_rights(request.token).inspect_err(|_| self.report_refused_request(None, &work))?;
        self.report_refused_request(Some(&claim.who), &work);
        let mut exports: Vec<String> = self.config.open_to(&claim.who.name).map(str::to_owned).collect();
        exports.retain(|name| is_in_scope(&claim, AccessKind::List, &[format!("/{name}").as_bytes()]));
        Ok(Some(exports))
    }
}

/// Checks the token's scope. Writing needs the right to modify, as it may replace files.
fn check_scope(claim: &ClientAccessRights, request: &AccessRequest<'_>) -> Result<(), SessionError> {
    if is_in_scope(claim, request.deed, &request.paths) {
        return Ok(());
    }
    let message = format!("the token does not let you {} there", access_verb(request.deed));
    Err(SessionError::refused(message, "ask for a token with that right for these paths"))
}

/// For `map_err`: adds the operation.
fn local_error(what: &'static str) -> impl FnOnce(io::Error) -> SessionError {
    move |error| SessionError::Local { what, error }
}

fn is_in_scope(claim: &ClientAccessRights, deed: AccessKind, paths: &[&[u8]]) -> bool {
    let Some(scope) = &claim.scope else { return true };
    paths.iter().all(|path| operations_for(deed).iter().any(|&operation| scope.allows(operation, path)))
}

/// Returns the operations of which a token needs one.
fn operations_for(deed: AccessKind) -> &'static [TokenScopeOperation] {
    match deed {
        AccessKind::Read | AccessKind::Verify => &[TokenScopeOperation::Read],
        AccessKind::List => &[TokenScopeOperation::Stat, TokenScopeOperation::Read],
        AccessKind::MakeDirectory => &[TokenScopeOperation::Create, TokenScopeOperation::Modify],
        AccessKind::Write | AccessKind::Remove => &[TokenScopeOperation::Modify],
    }
}

/// Returns the base of path resolution: the export, or with a token the directories of its scope. So neither
/// a link nor any path outside of the checked ones leads out of them.
fn path_base(
    claim: &ClientAccessRights,
    deed: AccessKind,
    export: &ExportConfig,
    root: Arc<RootDirectory>,
) -> PathBase {
    let Some(scope) = &claim.scope else { return PathBase::Beneath(root) };
    let parts = scope.allowed_paths_beneath(export.name.as_bytes(), operations_for(deed));
    if parts.iter().any(Vec::is_empty) {
        return PathBase::Beneath(root);
    }
    // A path over the length limit exists nowhere.
    let parts = parts.iter().filter_map(|part| RelPath::new(part).ok()).collect();
    PathBase::scoped(&root, parts)
}

fn access_verb(deed: AccessKind) -> &'static str {
    match deed {
        AccessKind::Read | AccessKind::Verify => "read",
        AccessKind::Write => "write",
        AccessKind::List => "list",
        AccessKind::MakeDirectory => "make directories",
        AccessKind::Remove => "remove",
    }
}

/// Describes a request for the audit log.
fn audited_work(request: &AccessRequest<'_>) -> AuditedWork {
    let deed = match request.deed {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::List => "list",
        AccessKind::MakeDirectory => "make_directory",
        AccessKind::Remove => "remove",
        AccessKind::Verify => "verify",
    };
    AuditedWork {
        deed: deed.to_owned(),
        export: request.paths.first().and_then(|path| split(path)).map(|path| shortened(path.export)),
        paths: request.paths.iter().take(PATHS_SHOWN_MAX).map(|path| shortened(&escape(path))).collect(),
        path_count: request.paths.len(),
        protection: request.protection.map(|protection| protection.to_string()),
        cipher: request.protection.and(request.spec).map(|spec| spec.cipher.to_string()),
    }
}

/// Limits the caller's settings to those of the daemon. Each lane takes at least the smallest number of
/// slots, so that large slots allow few lanes.
fn limited_settings(wished: EndSettings, config: &DaemonConfig, slot_bytes: u32) -> EndSettings {
    let limits = &config.limits;
    let io_threads_max = limits.io_threads as usize;
    let lane_bytes = u64::from(slot_bytes) * SLOT_COUNT_MIN as u64;
    let lanes_max = (limits.buffer / lane_bytes).clamp(1, LANES_MAX as u64) as usize;
    EndSettings {
        pool_bytes: wished.pool_bytes.min(limits.buffer),
        // 0 lets the storage choose, which may come to 64.
        io_threads: if wished.io_threads == 0 && io_threads_max >= 64 {
            0
        } else {
            wished.io_threads.clamp(1, io_threads_max)
        },
        ports: None,
        target_sets: Vec::new(),
        spill: config.spill.settings(),
        lanes: if wished.lanes == 0 && lanes_max == LANES_MAX { 0 } else { wished.lanes.clamp(1, lanes_max) },
        zone: CoreIsolationMode::Off,
        special_modes: false,
        idle: Some(limits.idle_timeout()),
        ..wished
    }
}

/// Returns the lower of two rates; 0 means no limit.
fn least_rate(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, rate) | (rate, 0) => rate,
        _ => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use carrack_engine::{SpillDirectory, SpillSettings};

    use super::*;

    fn config(more: &str) -> DaemonConfig {
        let text = "[tls]\ncertificate='/c'\nkey='/k'\n[[export]]\nname='d'\npath='/d'\nallow=[{identity='*',read=true}]\n";
        DaemonConfig::parse(&format!("{text}{more}")).unwrap()
    }

    #[test]
    fn wishes_are_tempered() {
        let small = config(
            "[limits]\nbuffer='64MiB'\nio_threads=4\n[spill]\ndirectories=['/nvme:1GiB']\nbudget='1TiB'\n",
        );
        let chosen = SpillDirectory { directory: "/tmp".into(), bytes: 1 };
        let greedy = EndSettings {
            pool_bytes: u64::MAX,
            io_threads: 9,
            ports: Some(1..=2),
            target_sets: vec!["/".into()],
            lanes: 8,
            zone: CoreIsolationMode::Hard,
            spill: SpillSettings {
                sink: vec![chosen.clone()],
                source: vec![chosen],
                ..SpillSettings::default()
            },
            ..EndSettings::default()
        };
        let settings = limited_settings(greedy.clone(), &small, 1 << 20);
        assert_eq!((settings.pool_bytes, settings.io_threads, settings.lanes), (64 << 20, 4, 8));
        assert_eq!(
            (settings.ports.clone(), settings.target_sets.len(), settings.zone),
            (None, 0, CoreIsolationMode::Off)
        );
        assert_eq!(settings.spill, small.spill.settings());
        assert!(settings.spill.may_lack && settings.spill.budget == Some(1 << 40));
        assert_eq!(limited_settings(greedy.clone(), &small, 8 << 20).lanes, 2);
        assert_eq!(limited_settings(greedy.clone(), &small, 64 << 20).lanes, 1);
        let modest = limited_settings(
            EndSettings { io_threads: 2, lanes: 0, ..EndSettings::default() },
            &small,
            1 << 20,
        );
        assert_eq!((modest.io_threads, modest.lanes), (2, 0));
        let roomy = config("");
        let free = limited_settings(EndSettings::default(), &roomy, 1 << 20);
        let own = EndSettings {
            special_modes: false,
            idle: Some(roomy.limits.idle_timeout()),
            spill: roomy.spill.settings(),
            ..EndSettings::default()
        };
        assert_eq!(free, own, "nobody wishes for these");
        assert_eq!(
            limited_settings(greedy.clone(), &roomy, 1 << 20).spill.sink,
            [],
            "no client chooses a directory"
        );
        assert_eq!(
            [(0, 0), (0, 3), (3, 0), (2, 3), (3, 2)].map(|(one, other)| least_rate(one, other)),
            [0, 3, 3, 2, 2]
        );
    }
}
