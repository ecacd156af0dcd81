//! The process of the queue and of the meta-server: its configuration, its sockets, its end. It is a child of
//! the daemon, or runs alone if the configuration has no other part.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use rustix::process::geteuid;
use sd_notify::NotifyState;
use thiserror::Error;

use super::effective_config::QueueServiceParts;
use super::reload_requests::{QueueSignalRequest, ServiceProcessSignals};
use super::{LocalQueue, QueueOpenError};
use crate::api::{ApiAuth, ApiListener, ApiServices, ListenError, RefusingTransferOperations, serve_api};
use crate::config::{LocalServicesConfig, QueueConfig};
use crate::log::DaemonLog;
use crate::parent::ServeError;
use crate::sharing::MachineMetaScheduler;

/// An error that keeps the queue from running.
#[derive(Debug, Error)]
pub enum QueueServiceError {
    /// An error of its directory or store.
    #[error(transparent)]
    Open(#[from] QueueOpenError),
    /// An error of its socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl QueueServiceError {
    /// Returns a hint for the administrator; may be empty.
    pub fn hint(&self) -> String {
        match self {
            QueueServiceError::Open(QueueOpenError::Directory { .. }) => {
                "name a directory that the daemon's user may make and write to".to_owned()
            }
            QueueServiceError::Open(QueueOpenError::NotPrivate(path)) => {
                format!("name a directory that is not there yet, or `chmod 700 {}`", path.display())
            }
            QueueServiceError::Open(QueueOpenError::InUse(_)) => {
                "end that one first, or name another directory".to_owned()
            }
            QueueServiceError::Open(QueueOpenError::Store(_)) | QueueServiceError::System { .. } => {
                String::new()
            }
            QueueServiceError::Listen(error) => error.hint().to_owned(),
        }
    }
}

pub(super) fn system_error(what: &'static str) -> impl FnOnce(io::Error) -> QueueServiceError {
    move |error| QueueServiceError::System { what, error }
}

/// The event, in addition to SIGTERM and SIGINT, that ends a queue's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueProcessStopTrigger {
    /// The end of standard input: the daemon that started it holds the other end of a pipe.
    Stdin,
    /// No other event.
    Nothing,
}

/// Keeps and carries out transfers, and grants storage targets, until it receives a request to end. On
/// SIGHUP, or on a byte of standard input with [`QueueProcessStopTrigger::Stdin`], it calls `read_again` for
/// the present configuration.
///
/// # Errors
/// [`QueueServiceError`] if it can't start or continue.
pub fn serve_local(
    config: &LocalServicesConfig,
    ends: QueueProcessStopTrigger,
    log: DaemonLog,
    read_again: impl Fn() -> Result<Option<LocalServicesConfig>, ServeError>,
) -> Result<(), QueueServiceError> {
    let queue = match &config.queue {
        Some(queue) => Some(LocalQueue::open(queue.settings(config.sharing_socket()), log)?),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(system_error("starting threads"))?;
    let served = runtime.block_on(serve(queue.as_ref(), config, ends, log, read_again));
    if let Some(queue) = &queue {
        queue.end();
    }
    // Later clients find no socket. If a file can't be removed, they find a socket without a listener.
    for path in sockets(config).iter().chain(&config.pid_file) {
        let _ = fs::remove_file(path);
    }
    // Watchers of the API may still be connected.
    runtime.shutdown_background();
    if queue.is_some() {
        log.info("the queue has ended");
    }
    served
}

/// Returns the sockets to listen on, each once.
fn sockets(config: &LocalServicesConfig) -> BTreeSet<PathBuf> {
    config.queue.as_ref().map(QueueConfig::socket).into_iter().chain(config.sharing_socket()).collect()
}

async fn serve(
    queue: Option<&LocalQueue>,
    config: &LocalServicesConfig,
    ends: QueueProcessStopTrigger,
    log: DaemonLog,
    read_again: impl Fn() -> Result<Option<LocalServicesConfig>, ServeError>,
) -> Result<(), QueueServiceError> {
    let mut wishes = ServiceProcessSignals::install(ends)?;
    let sharing = config.sharing.as_ref();
    let sharing = sharing.map(|one| Arc::new(MachineMetaScheduler::start(one.settings(), one.rules())));
    let mut served = Vec::new();
    for socket in sockets(config) {
        let (services, mode) = match queue
            .filter(|_| config.queue.as_ref().is_some_and(|q| q.socket() == socket))
        {
            // As root it serves all users of the machine: the kernel tells their identity.
            Some(queue) => (queue_services(queue, &sharing), if geteuid().is_root() { 0o666 } else { 0o600 }),
            // Users of other accounts take turns too.
            None => (
                ApiServices { control: Arc::new(RefusingTransferOperations), sharing: sharing.clone() },
                0o666,
            ),
        };
        served.push((ApiListener::unix(&socket, mode)?, services));
    }
    if let Some(queue) = queue {
        queue.start().map_err(system_error("starting a thread"))?;
    }
    let mut going_by = QueueServiceParts::begin(config, sharing.clone(), log)?;
    if let Some(path) = &config.pid_file
        && let Err(error) = fs::write(path, format!("{}\n", std::process::id()))
    {
        log.warn(format!("{}: {error}", path.display()));
    }
    if ends == QueueProcessStopTrigger::Nothing {
        // The process works without systemd as well.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }
    if let Some(queue) = &config.queue {
        log.info(format!("the queue answers at unix:{}", queue.socket().display()));
    }
    if let Some(socket) = config.sharing_socket() {
        log.info(format!("targets are granted at unix:{}", socket.display()));
    }
    let end = async move {
        while wishes.next().await == QueueSignalRequest::ReadAgain {
            going_by.reload(read_again());
        }
    };
    let (auth, end) = (Arc::new(ApiAuth::default()), end.shared());
    let serving = served
        .into_iter()
        .map(|(listener, services)| serve_api(vec![listener], services, auth.clone(), end.clone()));
    let served = try_join_all(serving).await.map(drop);
    served.map_err(system_error("serving the users of this machine"))
}

/// Returns the services at the queue's socket, with or without a meta-server.
fn queue_services(queue: &LocalQueue, sharing: &Option<Arc<MachineMetaScheduler>>) -> ApiServices {
    ApiServices { control: Arc::new(queue.clone()), sharing: sharing.clone() }
}
