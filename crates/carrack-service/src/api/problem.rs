//! Errors of the API: RFC 9457, with a hint.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use carrack_model::text_without_errno;
use carrack_register::transfer_operations::TransferOperationError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ApiProblem {
    /// The HTTP status.
    pub status: u16,
    /// The kind of the error; the same words for the same kind.
    pub title: String,
    /// This error's details.
    pub detail: String,
    /// A hint for the caller, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl ApiProblem {
    /// Creates an error with the status's reason phrase as its title.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>, hint: impl Into<String>) -> ApiProblem {
        let title = status.canonical_reason().unwrap_or("Error").to_owned();
        ApiProblem {
            status: status.as_u16(),
            title,
            detail: text_without_errno(&detail.into()),
            hint: hint.into(),
        }
    }

    /// Converts a command's error; `refused` is the status of a refusal.
    pub(super) fn of(error: TransferOperationError, refused: StatusCode) -> ApiProblem {
        let detail = error.to_string();
        match error {
            TransferOperationError::Unknown(_) => {
                ApiProblem::new(StatusCode::NOT_FOUND, detail, "GET /v1/transfers lists those that are known")
            }
            TransferOperationError::Refused { message, hint } => ApiProblem::new(refused, message, hint),
            TransferOperationError::Forbidden(_) => ApiProblem::new(StatusCode::FORBIDDEN, detail, ""),
            TransferOperationError::Away(_) => {
                ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, detail, "try again in a while")
            }
        }
    }

    /// Converts back, for the client.
    pub(super) fn into_error(self, id: &str) -> TransferOperationError {
        match self.status {
            404 if !id.is_empty() => TransferOperationError::Unknown(id.to_owned()),
            401 if self.hint.is_empty() => TransferOperationError::Forbidden(self.detail),
            401 => TransferOperationError::Forbidden(format!("{}; {}", self.detail, self.hint)),
            403 => TransferOperationError::Forbidden(self.detail),
            400..=499 => TransferOperationError::Refused { message: self.detail, hint: self.hint },
            _ => TransferOperationError::Away(self.detail),
        }
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
