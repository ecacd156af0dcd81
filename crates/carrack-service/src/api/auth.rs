//! Authentication of the API's callers: by the peer credentials of a Unix socket, or by a token.

use std::sync::Arc;
use std::time::SystemTime;

use axum::http::{HeaderMap, StatusCode, header};
use carrack_trust::{TokenKeys, TransferRight};

use super::problem::Problem;
use super::strangers::Stranger;
use crate::queue::name_of_user;

/// The credentials that a server accepts.
#[derive(Debug, Default)]
pub struct ApiAuth {
    tokens: TokenKeys,
}

fn unauthorized(detail: impl Into<String>, hint: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail, hint)
}

impl ApiAuth {
    /// Accepts tokens of these issuers over the network. Without any, only a Unix socket admits callers.
    pub fn new(tokens: TokenKeys) -> ApiAuth {
        ApiAuth { tokens }
    }

    /// Returns true if callers over the network can be authenticated.
    pub fn knows_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    pub(super) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
        if let &Peer::User(uid) = peer {
            return Ok(Caller { user: name_of_user(uid), is_root: uid == 0, rights: Rights::All });
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
        if let Peer::Remote(stranger) = peer {
            stranger.is_known_now();
        }
        let rights = Rights::Token {
            read: token.scope.allows_transfers(TransferRight::Read),
            modify: token.scope.allows_transfers(TransferRight::Modify),
        };
        Ok(Caller { user: token.identity.name, is_root: false, rights })
    }
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// A user of this machine.
    User(u32),
    /// A client over the network.
    Remote(Arc<Stranger>),
    /// A process of this machine without peer credentials.
    Nameless,
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub user: String,
    pub is_root: bool,
    rights: Rights,
}

#[derive(Clone, Copy, Debug)]
enum Rights {
    All,
    Token { read: bool, modify: bool },
}

impl Caller {
    /// Checks that the token gives this right.
    pub fn check(&self, right: TransferRight) -> Result<(), Problem> {
        let (is_allowed, word) = match (self.rights, right) {
            (Rights::All, _) => return Ok(()),
            (Rights::Token { read, .. }, TransferRight::Read) => (read, "transfers.read"),
            (Rights::Token { modify, .. }, TransferRight::Modify) => (modify, "transfers.modify"),
        };
        if is_allowed {
            return Ok(());
        }
        let hint = format!("ask for a token with `--scope {word}`");
        Err(Problem::new(StatusCode::FORBIDDEN, format!("the token does not have {word}"), hint))
    }

    /// Returns true if the caller may see the names of a transfer's entries.
    pub fn may_see_names(&self, owner: &str) -> bool {
        self.is_root || self.user == owner || matches!(self.rights, Rights::Token { .. })
    }
}
