//! Authentication of the API's callers: by the peer credentials of a Unix socket, or by a token.

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::{HeaderMap, StatusCode, header};
use carrack_trust::{TokenVerifier, TransferApiRight};

use super::problem::ApiProblem;
use super::unproved_connections::UnprovedGuard;
use crate::queue::name_of_user;

/// The credentials that a server accepts.
#[derive(Debug, Default)]
pub struct ApiAuth {
    tokens: TokenVerifier,
}

fn unauthorized(detail: impl Into<String>, hint: &str) -> ApiProblem {
    ApiProblem::new(StatusCode::UNAUTHORIZED, detail, hint)
}

impl ApiAuth {
    /// Accepts tokens of these issuers over the network. Without any, only a Unix socket admits callers.
    pub fn new(tokens: TokenVerifier) -> ApiAuth {
        ApiAuth { tokens }
    }

    /// Returns true if callers over the network can be authenticated.
    pub fn accepts_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    pub(super) fn caller(&self, peer: &ApiPeer, headers: &HeaderMap) -> Result<ApiCaller, ApiProblem> {
        if let &ApiPeer::User(uid) = peer {
            return Ok(ApiCaller { user: name_of_user(uid), is_root: uid == 0, rights: CallerRights::All });
        }
        let wanted = "send `Authorization: Bearer TOKEN`; `carrack keys token` makes tokens";
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, token)) = header.and_then(|value| value.split_once(' ')) else {
            return Err(unauthorized("there is no token", wanted));
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(unauthorized("this is no bearer token", wanted));
        }
        let token = self.tokens.verify(token.trim(), SystemTime::now());
        let token = token.map_err(|error| {
            let hint = error.hint().unwrap_or("ask the server's administrator whose tokens it believes");
            unauthorized(error.to_string(), hint)
        })?;
        if let ApiPeer::Remote(stranger) = peer {
            stranger.mark_authenticated();
        }
        let rights = CallerRights::Token {
            read: token.scope.allows_transfers(TransferApiRight::Read),
            modify: token.scope.allows_transfers(TransferApiRight::Modify),
        };
        Ok(ApiCaller { user: token.identity.name, is_root: false, rights })
    }
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum ApiPeer {
    /// A user of this machine.
    User(u32),
    /// A client over the network.
    Remote(Arc<UnprovedGuard>),
    /// A process of this machine without peer credentials.
    Nameless,
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct ApiCaller {
    pub user: String,
    pub is_root: bool,
    rights: CallerRights,
}

#[derive(Clone, Copy, Debug)]
enum CallerRights {
    All,
    Token { read: bool, modify: bool },
}

impl ApiCaller {
    /// Checks that the token gives this right.
    pub fn check(&self, right: TransferApiRight) -> Result<(), ApiProblem> {
        let (is_allowed, word) = match (self.rights, right) {
            (CallerRights::All, _) => return Ok(()),
            (CallerRights::Token { read, .. }, TransferApiRight::Read) => (read, "transfers.read"),
            (CallerRights::Token { modify, .. }, TransferApiRight::Modify) => (modify, "transfers.modify"),
        };
        if is_allowed {
            return Ok(());
        }
        let hint = format!("ask for a token with `--scope {word}`");
        Err(ApiProblem::new(StatusCode::FORBIDDEN, format!("the token does not have {word}"), hint))
    }

    /// Returns true if the caller may see the names of a transfer's entries.
    pub fn may_see_names(&self, owner: &str) -> bool {
        self.is_root || self.user == owner || matches!(self.rights, CallerRights::Token { .. })
    }
}
