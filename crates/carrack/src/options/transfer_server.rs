//! The options of every command about submitted transfers: the server that holds their register.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_cluster::bus::NatsBus;
use carrack_cluster::client::FleetUserClient;
use carrack_options::SubmissionExecutorKind;
use carrack_register::transfer_operations::{TransferOperationError, TransferOperations};
use carrack_service::DEFAULT_SOCKET;
use carrack_service::api::{ApiClient, ServerAddress};
use carrack_service::queue::name_of_user;
use carrack_trust::{CredentialPaths, client_config};
use clap::{Args, ValueHint};

use super::daemon_connection::load_token;
use crate::options::nats::NatsArgs;
use crate::user_error::UserError;

/// Heading of these options in the help.
const HEADING: &str = "Server";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct ServerConnectionArgs {
    /// Server: unix:PATH, http:// or https://HOST:PORT
    ///
    /// It keeps the submitted transfers; http:// is for this host only. [default: the daemon of this machine,
    /// at $XDG_RUNTIME_DIR/carrack/queue.sock, else /run/carrack/queue.sock]
    #[arg(long, value_name = "SERVER", env = "CARRACK_SERVER", hide_env_values = true, help_heading = HEADING)]
    server: Option<ServerAddress>,

    /// Certificates of the authorities that https:// servers are trusted by [default:
    /// ~/.config/carrack/ca.pem, else /etc/carrack/ca.pem, else the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    ca: Option<PathBuf>,

    /// File with a bearer token, for http:// and https://
    ///
    /// Without it `CARRACK_TOKEN` may hold one.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    nats: NatsArgs,
}

impl ServerConnectionArgs {
    /// Returns the way in which transfers that are submitted there run: any server is assumed to be the queue
    /// of one machine.
    pub fn executor_kind(&self) -> SubmissionExecutorKind {
        if self.nats.is_given() && self.server.is_none() {
            SubmissionExecutorKind::Fleet
        } else {
            SubmissionExecutorKind::Queue
        }
    }

    /// Returns true if the default daemon may be running on this machine.
    pub fn machine_has_queue(&self) -> bool {
        matches!(local_server_address(), ServerAddress::Unix(path) if path.exists())
    }

    /// Returns true if the options name a server or a fleet.
    pub fn is_server_given(&self) -> bool {
        self.server.is_some() || self.nats.is_given()
    }
}

/// The connection to a register of submitted transfers.
pub struct TransferServerConnection {
    /// The requests that it takes.
    pub control: Arc<dyn TransferOperations>,
    /// Name of the user; empty if a server finds that out.
    pub user: String,
    runtime: tokio::runtime::Runtime,
}

impl TransferServerConnection {
    /// Waits for a reply.
    pub fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, TransferOperationError>>,
    ) -> Result<T, UserError> {
        self.runtime.block_on(answer).map_err(|error| operation_user_error(&error))
    }
}

/// Connects to the register that the options name. Sends no request yet.
pub fn connect_to_register(args: &ServerConnectionArgs) -> Result<TransferServerConnection, UserError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| UserError::new(format!("preparing the connection: {error}")))?;
    if args.nats.is_given() && args.server.is_none() {
        return connect_to_fleet(&args.nats, runtime);
    }
    let server = args.server.clone().unwrap_or_else(local_server_address);
    let is_tls = matches!(server, ServerAddress::Tcp { is_tls: true, .. });
    let token = match server {
        ServerAddress::Unix(_) => String::new(),
        ServerAddress::Tcp { .. } => load_token(args.token_file.as_deref())?,
    };
    let tls = if is_tls { Some(args.tls_client_config()?) } else { None };
    Ok(TransferServerConnection {
        control: Arc::new(ApiClient::new(server, token, tls)),
        user: String::new(),
        runtime,
    })
}

/// Connects to the fleet's NATS; no server in between authenticates the user.
fn connect_to_fleet(
    args: &NatsArgs,
    runtime: tokio::runtime::Runtime,
) -> Result<TransferServerConnection, UserError> {
    let options = args.options("user")?;
    let connected = runtime.block_on(async { FleetUserClient::new(NatsBus::connect(&options).await?).await });
    let connected = connected.map_err(|error| UserError::explained(&error, error.hint()))?;
    let user = name_of_user(rustix::process::geteuid().as_raw());
    Ok(TransferServerConnection { control: Arc::new(connected), user, runtime })
}

impl ServerConnectionArgs {
    fn tls_client_config(&self) -> Result<Arc<rustls::ClientConfig>, UserError> {
        let places = CredentialPaths::of_process();
        let ca = self.ca.clone().or_else(|| places.ca.clone());
        let trust = CredentialPaths { ca, ..places }
            .client_trust()
            .map_err(|error| UserError::explained(&error, error.hint()))?;
        // A token authenticates the user, and not the certificate.
        let trust = carrack_trust::ClientTrust { identity: None, ..trust };
        client_config(&trust).map_err(|error| UserError::explained(&error, error.hint()))
    }
}

/// Returns the user's own daemon, if there is one, else the machine's.
fn local_server_address() -> ServerAddress {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|place| Path::new(&place).join("carrack/queue.sock"));
    ServerAddress::Unix(own.filter(|path| path.exists()).unwrap_or_else(|| DEFAULT_SOCKET.into()))
}

/// Returns the message for a failed request. Text from a server may contain anything and is escaped.
pub fn operation_user_error(error: &TransferOperationError) -> UserError {
    let trouble = UserError::new(error.to_string());
    match error {
        TransferOperationError::Unknown(_) => trouble.hint("`carrack transfers` lists those that are known"),
        TransferOperationError::Refused { hint, .. } if !hint.is_empty() => trouble.hint(hint.clone()),
        TransferOperationError::Refused { .. } | TransferOperationError::Forbidden(_) => trouble,
        TransferOperationError::Away(_) => trouble.hint(
            "`carrack serve` with a [queue] has to run, or, with --nats, a fleet's servers and a manager; --server or CARRACK_SERVER names another place",
        ),
    }
    .escaped()
}
