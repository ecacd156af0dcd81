//! Identities: certificates and the small CA that issues them, public keys, bearer tokens, and the TLS
//! configurations of both ends of a session.
//!
//! All material is passed as bytes, so that one process can read files and another use them. Only
//! [`CertificateAuthority`], which owns its directory, and [`CredentialPaths`], which knows a client's files,
//! touch files. No sockets, no threads; the time is an argument, or rustls' clock.

mod authority;
mod certificate;
mod credential_paths;
mod name;
mod pem;
mod proved_identity;
mod public_key;
mod public_keys;
mod tls;
mod token;

pub use authority::{
    AUTHORITY_LIFETIME, AuthorityError, CLIENT_LIFETIME, CertificateAuthority, CertificateStatus,
    CertificateUse, EphemeralAuthority, IssuedCertificate, MAX_SUBJECT_BYTES, RevokedCertificate,
    RevokedCertificateSelector, SERVER_LIFETIME,
};
pub use certificate::{
    Certificate, CertificateError, CertificateFingerprint, CertificateKeyUsage, SubjectAlternativeName,
};
pub use credential_paths::{CredentialPaths, CredentialPathsError, read_secret};
pub use name::{IdentityNameError, MAX_NAME_BYTES, check_identity_name};
pub use pem::{MAX_ITEMS, PemError, certificates as certificates_in};
pub use proved_identity::{IdentityError, ProvedIdentity, ProvingCredential};
pub use public_key::{KeySignatureAlgorithm, PublicKey};
pub use public_keys::{AuthorizedKey, AuthorizedKeys, KeyLineError, KeyLineProblem, MAX_KEYS};
pub use tls::{
    ALPN, ClientCredential, ClientTrust, TlsConfigError, TlsServerCredentials, client_config,
    client_config_at, handshake_hint, server_config, server_config_at, speaks_carrack,
};
pub use token::{
    BadTokenScope, IssuedTokenContent, LEEWAY, MAX_ISSUER_KEYS, MAX_LIFETIME, MAX_PERMISSIONS,
    MAX_TOKEN_BYTES, MintError, TokenError, TokenKeysError, TokenScope, TokenScopeOperation, TokenSigner,
    TokenVerifier, TransferApiRight, ValidToken,
};
