//! The routes about storage targets that transfers share: asking for them, and looking who has them.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use carrack_plan::grants::{Answer, Batch, TargetView};
use carrack_sharing::Refusal;
use carrack_trust::TransferRight;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::{Caller, Peer};
use super::metrics;
use super::problem::Problem;
use super::server::Services;
use crate::sharing::SharedTargets;

/// The longest batch: all that a meta-server lets one speak of, with names of a usual length.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The targets that are shared, if any are.
#[derive(Clone)]
pub(super) struct Sharing(pub Option<Arc<SharedTargets>>);

impl Sharing {
    fn targets(&self) -> Result<&Arc<SharedTargets>, Problem> {
        self.0.as_ref().ok_or_else(|| {
            let hint = "give the configuration of `carrack serve` a [sharing]";
            Problem::new(StatusCode::NOT_FOUND, "no storage targets are shared here", hint)
        })
    }
}

/// The routes that know who asks.
pub(super) fn routes() -> OpenApiRouter<Services> {
    OpenApiRouter::new().routes(routes!(targets)).routes(routes!(metrics))
}

/// The one that is asked several times a second by each transfer. All that it wants to know is whose process that is.
pub(super) fn grant_routes() -> OpenApiRouter<Services> {
    OpenApiRouter::new().routes(routes!(grants)).layer(DefaultBodyLimit::max(BATCH_BYTES_MAX))
}

/// Ask for storage targets
///
/// A transfer's end says all that it asks for, holds and gives back, every 100 ms while it has something to say; the answer is all that it
/// has. Over a Unix socket only. Who may not use the class that the batch names counts as one who names none.
#[utoipa::path(post, path = "/v1/grants", operation_id = "grants", request_body = Batch,
    responses((status = 200, description = "What it has", body = Answer),
              (status = "4XX", description = "What can't be", body = Problem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = Problem, content_type = "application/problem+json")))]
async fn grants(
    State(sharing): State<Sharing>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    batch: Result<Json<Batch>, JsonRejection>,
) -> Result<Json<Answer>, Problem> {
    let Peer::User(uid) = peer else {
        let hint = "ask over the Unix socket of the daemon";
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "targets are granted to users of this machine",
            hint,
        ));
    };
    let Json(batch) = batch.map_err(|rejection| {
        Problem::new(rejection.status(), rejection.body_text(), "GET /v1/openapi.json says what is wanted")
    })?;
    Ok(Json(sharing.targets()?.answer(uid, batch).await.map_err(|refusal| of_refusal(&refusal))?))
}

fn of_refusal(refusal: &Refusal) -> Problem {
    let may_pass = refusal.may_pass();
    let status = if may_pass { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::UNPROCESSABLE_ENTITY };
    Problem::new(status, refusal.to_string(), refusal.hint())
}

#[derive(Debug, Deserialize, IntoParams)]
struct FileSystem {
    /// A file system's name, such as `lfs01`, or a target's; all if nothing is said.
    fs: Option<String>,
}

/// List storage targets that transfers share, with who has them and who waits
#[utoipa::path(get, path = "/v1/targets", operation_id = "targets", params(FileSystem),
    security(("token" = ["transfers.read"])),
    responses((status = 200, description = "They, by name", body = Vec<TargetView>),
              (status = "4XX", description = "What can't be", body = Problem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = Problem, content_type = "application/problem+json")))]
async fn targets(
    State(sharing): State<Sharing>,
    Extension(caller): Extension<Caller>,
    file_system: Result<Query<FileSystem>, QueryRejection>,
) -> Result<Json<Vec<TargetView>>, Problem> {
    caller.check(TransferRight::Read)?;
    let Query(FileSystem { fs }) = file_system
        .map_err(|rejection| Problem::new(rejection.status(), rejection.body_text(), "such as ?fs=lfs01"))?;
    Ok(Json(sharing.targets()?.targets(&fs.unwrap_or_default())))
}

/// The same as numbers, for Prometheus
#[utoipa::path(get, path = "/v1/metrics", operation_id = "metrics", security(("token" = ["transfers.read"])),
    responses((status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain; version=0.0.4"),
              (status = "4XX", description = "What can't be", body = Problem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = Problem, content_type = "application/problem+json")))]
async fn metrics(
    State(sharing): State<Sharing>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    caller.check(TransferRight::Read)?;
    let server = &sharing.targets()?.server;
    let text = metrics::text(&server.targets(""), &server.moved_bytes());
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
