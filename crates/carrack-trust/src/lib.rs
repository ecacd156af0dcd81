//! Identities: certificates and the small CA that issues them, public keys, bearer tokens, and the TLS
//! configurations of both ends of a session.
//!
//! All material is passed as bytes, so that one process can read files and another use them. Only
//! [`Authority`], which owns its directory, and [`Places`], which knows a client's files, touch files. No
//! sockets, no threads; the time is an argument, or rustls' clock.

mod authority;
mod certificate;
mod identity;
mod name;
mod pem;
mod places;
mod public_key;
mod public_keys;
mod tls;
mod token;

pub use authority::{
    AUTHORITY_LIFETIME, Authority, AuthorityError, CLIENT_LIFETIME, Issued, MAX_SUBJECT_BYTES,
    PassingAuthority, Revoked, SERVER_LIFETIME, Standing, Use, Which,
};
pub use certificate::{AlternativeName, Certificate, CertificateError, Fingerprint, Uses};
pub use identity::{How, Identity, IdentityError};
pub use name::{MAX_NAME_BYTES, NameError, check_identity_name};
pub use pem::{MAX_ITEMS, PemError, certificates as certificates_in};
pub use places::{Places, PlacesError, read_secret};
pub use public_key::{KeyKind, PublicKey};
pub use public_keys::{KeyLineError, KnownKey, LineProblem, MAX_KEYS, PublicKeys};
pub use tls::{
    ALPN, ClientIdentity, ClientTrust, ServerTrust, TlsError, client_config, client_config_at,
    handshake_hint, server_config, server_config_at, speaks_carrack,
};
pub use token::{
    Grant, LEEWAY, MAX_ISSUER_KEYS, MAX_LIFETIME, MAX_PERMISSIONS, MAX_TOKEN_BYTES, MintError, Operation,
    Scope, ScopeError, Token, TokenError, TokenKeys, TokenKeysError, TokenSigner, TransferRight,
};
