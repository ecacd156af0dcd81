//! The routes for shared storage targets: requests for grants, and the targets' state.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use carrack_plan::grants::{GrantClientReport, GrantReply, SharedTargetStatus};
use carrack_sharing::BatchRefusal;
use carrack_trust::TransferApiRight;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::{ApiCaller, ApiPeer};
use super::metrics;
use super::problem::ApiProblem;
use super::server::ApiServices;
use crate::sharing::MachineMetaScheduler;

/// The longest batch: the limit of targets in one batch, with names of a usual length.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The shared targets, if there are any.
#[derive(Clone)]
pub(super) struct ApiSharing(pub Option<Arc<MachineMetaScheduler>>);

impl ApiSharing {
    fn meta_scheduler(&self) -> Result<&Arc<MachineMetaScheduler>, ApiProblem> {
        self.0.as_ref().ok_or_else(|| {
            let hint = "give the configuration of `carrack serve` a [sharing]";
            ApiProblem::new(StatusCode::NOT_FOUND, "no storage targets are shared here", hint)
        })
    }
}

/// The routes for authenticated callers.
pub(super) fn routes() -> OpenApiRouter<ApiServices> {
    OpenApiRouter::new().routes(routes!(targets)).routes(routes!(metrics))
}

/// The route that each transfer calls several times a second. It needs only the UID of the calling process.
pub(super) fn grant_routes() -> OpenApiRouter<ApiServices> {
    OpenApiRouter::new().routes(routes!(grants)).layer(DefaultBodyLimit::max(BATCH_BYTES_MAX))
}

/// Ask for storage targets
///
/// A transfer's end sends all targets that it asks for, holds and gives back, every 100 ms while there are
/// any; the answer has all of its grants. Over a Unix socket only. If the user may not use the class of the
/// batch, the batch counts as one without a class.
#[utoipa::path(post, path = "/v1/grants", operation_id = "grants", request_body = GrantClientReport,
    responses((status = 200, description = "What it has", body = GrantReply),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn grants(
    State(sharing): State<ApiSharing>,
    ConnectInfo(peer): ConnectInfo<ApiPeer>,
    batch: Result<Json<GrantClientReport>, JsonRejection>,
) -> Result<Json<GrantReply>, ApiProblem> {
    let ApiPeer::User(uid) = peer else {
        let hint = "ask over the Unix socket of the daemon";
        return Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            "targets are granted to users of this machine",
            hint,
        ));
    };
    let Json(batch) = batch.map_err(|rejection| {
        ApiProblem::new(rejection.status(), rejection.body_text(), "GET /v1/openapi.json says what is wanted")
    })?;
    Ok(Json(sharing.meta_scheduler()?.answer(uid, batch).await.map_err(|refusal| refusal_problem(&refusal))?))
}

fn refusal_problem(refusal: &BatchRefusal) -> ApiProblem {
    let may_pass = refusal.is_transient();
    let status = if may_pass { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::UNPROCESSABLE_ENTITY };
    ApiProblem::new(status, refusal.to_string(), refusal.hint())
}

#[derive(Debug, Deserialize, IntoParams)]
struct TargetListQuery {
    /// A file system's name, such as `lfs01`, or a target's; all by default.
    fs: Option<String>,
}

/// List storage targets that transfers share, with their holders and the waiting transfers
#[utoipa::path(get, path = "/v1/targets", operation_id = "targets", params(TargetListQuery),
    security(("token" = ["transfers.read"])),
    responses((status = 200, description = "They, by name", body = Vec<SharedTargetStatus>),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn targets(
    State(sharing): State<ApiSharing>,
    Extension(caller): Extension<ApiCaller>,
    file_system: Result<Query<TargetListQuery>, QueryRejection>,
) -> Result<Json<Vec<SharedTargetStatus>>, ApiProblem> {
    caller.check(TransferApiRight::Read)?;
    let Query(TargetListQuery { fs }) = file_system.map_err(|rejection| {
        ApiProblem::new(rejection.status(), rejection.body_text(), "such as ?fs=lfs01")
    })?;
    Ok(Json(sharing.meta_scheduler()?.targets(&fs.unwrap_or_default())))
}

/// The same as metrics for Prometheus
#[utoipa::path(get, path = "/v1/metrics", operation_id = "metrics", security(("token" = ["transfers.read"])),
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain; version=0.0.4"),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn metrics(
    State(sharing): State<ApiSharing>,
    Extension(caller): Extension<ApiCaller>,
) -> Result<Response, ApiProblem> {
    caller.check(TransferApiRight::Read)?;
    let server = &sharing.meta_scheduler()?.server;
    let text = metrics::text(&server.targets(""), &server.moved_bytes());
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
