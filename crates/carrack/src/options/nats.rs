//! The options of every command of a fleet: the NATS servers, and the credentials for them.

use std::path::PathBuf;

use carrack_cluster::bus::{BusOptions, NatsLogin, NatsTls};
use clap::{Args, ValueHint};

use crate::user_error::UserError;

/// Heading of these options in the help.
const HEADING: &str = "NATS of the fleet";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct NatsArgs {
    /// NATS servers of the fleet, with commas between them
    ///
    /// As nats://HOST:PORT or tls://HOST:PORT.
    #[arg(long, value_name = "URLS", env = "CARRACK_NATS", hide_env_values = true, value_delimiter = ',', help_heading = HEADING)]
    nats: Vec<String>,

    /// File with NATS credentials (a JWT and its seed)
    #[arg(long, value_name = "FILE", env = "CARRACK_NATS_CREDS", hide_env_values = true, value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_creds: Option<PathBuf>,

    /// File with the seed of an nkey
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "nats_creds", help_heading = HEADING)]
    nats_seed: Option<PathBuf>,

    /// User at NATS; the password is in the first line of --nats-password-file
    #[arg(long, value_name = "NAME", env = "CARRACK_NATS_USER", requires = "nats_password_file", conflicts_with_all = ["nats_creds", "nats_seed"], help_heading = HEADING)]
    nats_user: Option<String>,

    /// File with the user's password in its first line
    #[arg(long, value_name = "FILE", env = "CARRACK_NATS_PASSWORD_FILE", hide_env_values = true, requires = "nats_user", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_password_file: Option<PathBuf>,

    /// File with a token for NATS in its first line
    #[arg(long, value_name = "FILE", env = "CARRACK_NATS_TOKEN_FILE", hide_env_values = true, conflicts_with_all = ["nats_creds", "nats_seed", "nats_user"], value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_token_file: Option<PathBuf>,

    /// Certificates of the CAs that NATS servers are trusted by, in place of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_ca: Option<PathBuf>,

    /// Certificate to show to NATS servers, with its key in --nats-key
    #[arg(long, value_name = "FILE", requires = "nats_key", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_cert: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "nats_cert", value_hint = ValueHint::FilePath, help_heading = HEADING)]
    nats_key: Option<PathBuf>,

    /// JetStream domain of the fleet, if that is another site's
    #[arg(long, value_name = "NAME", env = "CARRACK_NATS_DOMAIN", help_heading = HEADING)]
    nats_domain: Option<String>,

    /// Prefix of all names of the fleet on NATS [default: carrack]
    #[arg(long, value_name = "NAME", env = "CARRACK_NATS_PREFIX", help_heading = HEADING)]
    nats_prefix: Option<String>,

    /// Prefix of the inboxes that this user may listen at, where permissions name one [default: _INBOX]
    #[arg(long, value_name = "NAME", env = "CARRACK_NATS_INBOX", help_heading = HEADING)]
    nats_inbox: Option<String>,
}

impl NatsArgs {
    /// Returns true if a NATS server is named.
    pub fn is_given(&self) -> bool {
        !self.nats.is_empty()
    }

    /// Returns the options of the connection to NATS.
    ///
    /// # Errors
    /// If no server is named.
    pub fn options(&self, role: &str) -> Result<BusOptions, UserError> {
        if self.nats.is_empty() {
            return Err(UserError::new("no NATS server is named")
                .hint("name the fleet's with --nats or CARRACK_NATS; docs/fleet.md says how to start one"));
        }
        let login = match (&self.nats_creds, &self.nats_seed, &self.nats_user, &self.nats_password_file) {
            (Some(creds), ..) => NatsLogin::Credentials(creds.clone()),
            (None, Some(seed), ..) => NatsLogin::Seed(seed.clone()),
            (None, None, Some(user), Some(file)) => {
                NatsLogin::Password { user: user.clone(), file: file.clone() }
            }
            _ => self.nats_token_file.clone().map_or(NatsLogin::None, NatsLogin::Token),
        };
        let tls = NatsTls {
            required: self.nats_ca.is_some() || self.nats_cert.is_some(),
            ca: self.nats_ca.clone(),
            identity: self.nats_cert.clone().zip(self.nats_key.clone()),
        };
        let defaults = BusOptions::default();
        Ok(BusOptions {
            servers: self.nats.clone(),
            login,
            tls,
            domain: self.nats_domain.clone(),
            prefix: self.nats_prefix.clone().unwrap_or(defaults.prefix),
            inbox: self.nats_inbox.clone(),
            name: format!("carrack {role}"),
        })
    }
}
