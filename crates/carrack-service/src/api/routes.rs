//! The routes, one for each command. `utoipa` makes the served description from them.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use carrack_register::transfer_operations::{
    TransferControlOrder, TransferOperationError, TransferOperations,
};
use carrack_register::transfer_records::{MoverRecord, TransferRecord, TransferSubmission};
use carrack_trust::TransferApiRight;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, OpenApi, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::ApiCaller;
use super::problem::ApiProblem;
use super::server::ApiServices;
use super::sse;

/// Transfers in a list by default, and at most.
const LISTED: usize = 100;
const LISTED_MAX: usize = 10_000;

/// The transfers, for the routes.
pub(super) type SharedTransferOperations = Arc<dyn TransferOperations>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "carrack",
        description = "Transfers: submitting, watching and ending them; the storage targets that they share. Every error is a problem (RFC 9457) with a hint.",
        license(name = "Apache-2.0 OR MIT")
    ),
    modifiers(&OpenApiTokenScheme)
)]
struct ApiDescription;

struct OpenApiTokenScheme;

impl utoipa::Modify for OpenApiTokenScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
        let mut bearer = Http::new(HttpAuthScheme::Bearer);
        bearer.bearer_format = Some("JWT".to_owned());
        bearer.description = Some("Not needed on a Unix socket".to_owned());
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// The routes for authenticated callers, with their description.
pub(super) fn routes() -> OpenApiRouter<ApiServices> {
    OpenApiRouter::with_openapi(ApiDescription::openapi())
        .routes(routes!(submit, transfers))
        .routes(routes!(transfer))
        .routes(routes!(cancel))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(events))
        .routes(routes!(all_events))
        .routes(routes!(movers))
}

/// The routes without authentication.
pub(super) fn open_routes() -> OpenApiRouter<ApiServices> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(description))
}

type ApiResult<T> = Result<Json<T>, ApiProblem>;

/// Submit a transfer
///
/// It is kept durably when this returns, and carried out when its turn comes.
#[utoipa::path(post, path = "/v1/transfers", operation_id = "submit", request_body = TransferSubmission,
    security(("token" = ["transfers.modify"])),
    responses((status = 201, description = "Queued", body = TransferRecord,
                headers(("Location" = String, description = "Where it is"))),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn submit(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    submission: Result<Json<serde_json::Value>, JsonRejection>,
) -> Result<Response, ApiProblem> {
    const HINT: &str = "GET /v1/openapi.json says what is wanted";
    caller.check(TransferApiRight::Modify)?;
    let Json(submission) =
        submission.map_err(|rejection| ApiProblem::new(rejection.status(), rejection.body_text(), HINT))?;
    if let Some(name) = unknown_field(&submission) {
        let detail = format!("{name} is nothing that a submission has here");
        let hint = format!("leave it out: it would be ignored; {HINT}");
        return Err(ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, detail, &hint));
    }
    let submission: TransferSubmission = serde_json::from_value(submission)
        .map_err(|error| ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string(), HINT))?;
    let submitted = control.submit(&caller.user, submission).await;
    let record = submitted.map_err(|error| ApiProblem::of(error, StatusCode::UNPROCESSABLE_ENTITY))?;
    let place = HeaderValue::try_from(format!("/v1/transfers/{}", record.id));
    let mut response = (StatusCode::CREATED, Json(record)).into_response();
    if let Ok(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// Returns a field of a submission that this version does not know. Records of a later version may have such
/// a field; for a user's request it is an error.
fn unknown_field(submission: &serde_json::Value) -> Option<String> {
    let known = fields_of::<TransferSubmission>();
    submission.as_object()?.keys().find(|name| !known.contains(name)).cloned()
}

/// Returns the fields from the description, so that the two can't differ.
fn fields_of<T: PartialSchema>() -> Vec<String> {
    match T::schema() {
        RefOr::T(Schema::Object(object)) => object.properties.into_keys().collect(),
        _ => Vec::new(),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
struct ListQuery {
    /// Upper bound of the list's length: 100 by default, 10,000 at most.
    #[param(maximum = 10000)]
    limit: Option<usize>,
    /// A whole ID: lists only transfers that were submitted before it. The last one of a list is where the
    /// next page begins.
    after: Option<String>,
}

/// List transfers, the latest submitted first
#[utoipa::path(get, path = "/v1/transfers", operation_id = "transfers", params(ListQuery),
    security(("token" = ["transfers.read"])),
    responses((status = 200, description = "They", body = Vec<TransferRecord>),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn transfers(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    listed: Result<Query<ListQuery>, QueryRejection>,
) -> ApiResult<Vec<TransferRecord>> {
    caller.check(TransferApiRight::Read)?;
    let Query(ListQuery { limit, after }) = listed.map_err(|rejection| {
        ApiProblem::new(rejection.status(), rejection.body_text(), "such as ?limit=20")
    })?;
    let limit = limit.unwrap_or(LISTED).min(LISTED_MAX);
    let listed = control.transfers(limit, after.as_deref()).await.map_err(conflict_problem)?;
    Ok(Json(listed.into_iter().map(|record| redact_for_caller(record, &caller)).collect()))
}

/// Show a transfer
#[utoipa::path(get, path = "/v1/transfers/{id}", operation_id = "transfer",
    params(("id" = String, Path, description = "Its id, or the beginning of it that no other has")),
    security(("token" = ["transfers.read"])),
    responses((status = 200, description = "It", body = TransferRecord),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn transfer(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    Path(id): Path<String>,
) -> ApiResult<TransferRecord> {
    caller.check(TransferApiRight::Read)?;
    let record = control.transfer(&id).await.map_err(conflict_problem)?;
    Ok(Json(redact_for_caller(record, &caller)))
}

/// Cancel a transfer
///
/// Files that are complete at the destination stay.
#[utoipa::path(post, path = "/v1/transfers/{id}/cancel", operation_id = "cancel",
    params(("id" = String, Path, description = "Its id, or the beginning of it that no other has")),
    security(("token" = ["transfers.modify"])),
    responses((status = 200, description = "It, which may not have ended yet", body = TransferRecord),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn cancel(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    Path(id): Path<String>,
) -> ApiResult<TransferRecord> {
    issue_order(control, caller, &id, TransferControlOrder::Cancel).await
}

/// Pause a transfer
#[utoipa::path(post, path = "/v1/transfers/{id}/pause", operation_id = "pause",
    params(("id" = String, Path, description = "Its id, or the beginning of it that no other has")),
    security(("token" = ["transfers.modify"])),
    responses((status = 200, description = "It, which may still be moving", body = TransferRecord),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn pause(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    Path(id): Path<String>,
) -> ApiResult<TransferRecord> {
    issue_order(control, caller, &id, TransferControlOrder::Pause).await
}

/// Resume a paused transfer, or try failed entries again
///
/// A fleet submits an ended transfer again: the record is the new transfer's, with an ID of its own.
#[utoipa::path(post, path = "/v1/transfers/{id}/resume", operation_id = "resume",
    params(("id" = String, Path, description = "Its id, or the beginning of it that no other has")),
    security(("token" = ["transfers.modify"])),
    responses((status = 200, description = "It", body = TransferRecord),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn resume(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    Path(id): Path<String>,
) -> ApiResult<TransferRecord> {
    issue_order(control, caller, &id, TransferControlOrder::Resume).await
}

/// Watch a transfer
///
/// Server-sent events named `transfer`, whose data is the record, now and whenever it changes. The stream
/// ends after a record in a final state. An event named `problem` has the reason for an early end.
#[utoipa::path(get, path = "/v1/transfers/{id}/events", operation_id = "events",
    params(("id" = String, Path, description = "Its id, or the beginning of it that no other has")),
    security(("token" = ["transfers.read"])),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn events(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
    Path(id): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.check(TransferApiRight::Read)?;
    // A stream that can't begin is an answer with a status.
    let record = control.transfer(&id).await.map_err(conflict_problem)?;
    Ok(sse::response(control, Some(record.id), move |record| redact_for_caller(record, &caller)))
}

/// Watch all transfers
///
/// Server-sent events named `transfer`, whose data is a record: first of each transfer that is not over, then
/// of each transfer whenever it changes, is new, or ends. An event named `problem` has the reason for an end;
/// without one the stream does not end.
#[utoipa::path(get, path = "/v1/events", operation_id = "all_events", security(("token" = ["transfers.read"])),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn all_events(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
) -> Result<Response, ApiProblem> {
    caller.check(TransferApiRight::Read)?;
    // A stream that can't begin is an answer with a status.
    control.transfers(1, None).await.map_err(conflict_problem)?;
    Ok(sse::response(control, None, move |record| redact_for_caller(record, &caller)))
}

/// List the movers of the fleet
///
/// The list is empty for the queue of one machine.
#[utoipa::path(get, path = "/v1/movers", operation_id = "movers", security(("token" = ["transfers.read"])),
    responses((status = 200, description = "They", body = Vec<MoverRecord>),
              (status = "4XX", description = "What can't be", body = ApiProblem, content_type = "application/problem+json"),
              (status = "5XX", description = "The same may work later", body = ApiProblem, content_type = "application/problem+json")))]
async fn movers(
    State(control): State<SharedTransferOperations>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Vec<MoverRecord>> {
    caller.check(TransferApiRight::Read)?;
    Ok(Json(control.movers().await.map_err(conflict_problem)?))
}

/// The server's health.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Health)]
pub struct ApiServerHealth {
    /// `well`: records of transfers can be read.
    status: String,
    /// carrack's version.
    version: String,
}

/// Check that the server can do its work
#[utoipa::path(get, path = "/v1/health", operation_id = "health",
    responses((status = 200, description = "It can", body = ApiServerHealth),
              (status = "5XX", description = "It can't", body = ApiProblem, content_type = "application/problem+json")))]
async fn health(State(control): State<SharedTransferOperations>) -> ApiResult<ApiServerHealth> {
    control.transfers(1, None).await.map_err(conflict_problem)?;
    Ok(Json(ApiServerHealth { status: "well".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }))
}

/// This description
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI", content_type = "application/json", body = Object)))]
async fn description(Extension(text): Extension<Arc<str>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response()
}

async fn issue_order(
    control: SharedTransferOperations,
    caller: ApiCaller,
    id: &str,
    order: TransferControlOrder,
) -> ApiResult<TransferRecord> {
    caller.check(TransferApiRight::Modify)?;
    let record = control.issue_order(&caller.user, id, order).await.map_err(conflict_problem)?;
    Ok(Json(redact_for_caller(record, &caller)))
}

fn conflict_problem(error: TransferOperationError) -> ApiProblem {
    ApiProblem::of(error, StatusCode::CONFLICT)
}

/// Hides names: on a machine with several users, only the transfer's own user may see those of its failed
/// entries.
fn redact_for_caller(mut record: TransferRecord, caller: &ApiCaller) -> TransferRecord {
    if !caller.may_see_names(&record.user) {
        record.failures.clear();
        record.skipped.clear();
        record.reason.clear();
        record.waits_for.clear();
    }
    record
}
