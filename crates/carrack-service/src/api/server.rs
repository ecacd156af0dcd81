//! The server: its routes, its authentication and its listeners.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRef, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use carrack_register::transfer_operations::TransferOperations;
use tokio::sync::watch;

use super::auth::{ApiAuth, ApiPeer};
use super::grants::{self, ApiSharing};
use super::listeners::{ApiListener, ApiListenerKind};
use super::problem::ApiProblem;
use super::routes::{self, SharedTransferOperations};
use crate::sharing::MachineMetaScheduler;

/// The longest body of a request: a submission with long paths.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Time for running requests to finish when the server ends; watchers are cut off then.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The served objects.
#[derive(Clone)]
pub struct ApiServices {
    /// The transfers.
    pub control: Arc<dyn TransferOperations>,
    /// The storage targets that transfers share, if there are any.
    pub sharing: Option<Arc<MachineMetaScheduler>>,
}

impl From<Arc<dyn TransferOperations>> for ApiServices {
    fn from(control: Arc<dyn TransferOperations>) -> ApiServices {
        ApiServices { control, sharing: None }
    }
}

impl FromRef<ApiServices> for SharedTransferOperations {
    fn from_ref(services: &ApiServices) -> SharedTransferOperations {
        services.control.clone()
    }
}

impl FromRef<ApiServices> for ApiSharing {
    fn from_ref(services: &ApiServices) -> ApiSharing {
        ApiSharing(services.sharing.clone())
    }
}

/// Returns the served description, as JSON.
pub fn openapi() -> String {
    let mut description = routes::routes().merge(grants::routes());
    description = description.merge(grants::grant_routes()).merge(routes::open_routes());
    // The description is compiled in, so that its conversion can't fail.
    description.into_openapi().to_json().unwrap_or_default()
}

pub(super) fn router(services: ApiServices, auth: Arc<ApiAuth>) -> Router {
    let (known, _) = routes::routes().merge(grants::routes()).split_for_parts();
    let (granting, _) = grants::grant_routes().split_for_parts();
    let (open, _) = routes::open_routes().split_for_parts();
    known
        .route_layer(middleware::from_fn_with_state(auth, identify))
        .merge(open)
        .merge(granting)
        .fallback(unknown_path)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(Extension(Arc::<str>::from(openapi())))
        .with_state(services)
}

async fn identify(
    State(auth): State<Arc<ApiAuth>>,
    ConnectInfo(peer): ConnectInfo<ApiPeer>,
    mut request: Request,
    next: Next,
) -> Response {
    match auth.caller(&peer, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

async fn unknown_path(uri: Uri) -> ApiProblem {
    let hint = "GET /v1/openapi.json says what there is";
    ApiProblem::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), hint)
}

async fn no_method(uri: Uri) -> ApiProblem {
    let hint = "GET /v1/openapi.json says what there is";
    ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} can't be asked so", uri.path()), hint)
}

/// Serves `services` at all of `listeners` until `end`.
///
/// # Errors
/// The first error of a listener.
pub async fn serve_api(
    listeners: Vec<ApiListener>,
    services: ApiServices,
    auth: Arc<ApiAuth>,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = router(services, auth);
    let ending = watch::Sender::new(false);
    let mut serving = tokio::task::JoinSet::new();
    for listener in listeners {
        let (router, mut ended) = (router.clone(), ending.subscribe());
        let end = async move { _ = ended.wait_for(|is_ended| *is_ended).await };
        let service = router.into_make_service_with_connect_info::<ApiPeer>();
        match listener.0 {
            ApiListenerKind::Unix(listener) => {
                serving.spawn(async { axum::serve(listener, service).with_graceful_shutdown(end).await })
            }
            ApiListenerKind::Plain(listener) => {
                serving.spawn(async { axum::serve(listener, service).with_graceful_shutdown(end).await })
            }
            ApiListenerKind::Tls(listener) => {
                serving.spawn(async { axum::serve(listener, service).with_graceful_shutdown(end).await })
            }
        };
    }
    tokio::select! {
        () = end => {}
        Some(Err(error)) = join_next_listener(&mut serving) => return Err(error),
    }
    ending.send_replace(true);
    // A watcher's request has no end of its own.
    let _ = tokio::time::timeout(END_PATIENCE, async { while serving.join_next().await.is_some() {} }).await;
    Ok(())
}

async fn join_next_listener(serving: &mut tokio::task::JoinSet<io::Result<()>>) -> Option<io::Result<()>> {
    let ended = serving.join_next().await?;
    Some(ended.unwrap_or_else(|error| Err(io::Error::other(error))))
}
