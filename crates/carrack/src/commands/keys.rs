//! `carrack keys`: a small CA for sites that have none, from its arguments to its exit code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs};

use carrack_model::escape;
use carrack_trust::{
    AuthorityError, AuthorizedKeys, CLIENT_LIFETIME, Certificate, CertificateAuthority, CertificateStatus,
    CertificateUse, IssuedTokenContent, KeySignatureAlgorithm, ProvedIdentity, RevokedCertificateSelector,
    SERVER_LIFETIME, TokenScope, certificates_in,
};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::lifetime;
use crate::user_error::UserError;
use crate::views::keys::CertificateReport;
use crate::views::output::{StdoutReportWriter, stdout_error};

/// Make and manage the keys of a site: a small certificate authority
///
/// For sites that have no authority of their own. It is a directory with a key that signs certificates for
/// daemons and for people, and a list of revoked ones. Daemons get `ca.pem` and `revoked.pem`, clients
/// `ca.pem`; keep `ca-key.pem` to yourself: its holder can pose as anyone.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,

    /// The authority's directory [default: ~/.config/carrack/authority]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    Init(AuthorityInitArgs),
    Issue(CertificateIssueArgs),
    Show(KeysShowArgs),
    Revoke(CertificateRevokeArgs),
    Token(MakeTokenArgs),
}

/// Make a new authority, for ten years
#[derive(Debug, Args)]
struct AuthorityInitArgs {
    /// Its name; `carrack at HOST` if not given
    #[arg(long)]
    name: Option<String>,

    /// The kind of its keys, and of those that it makes for others
    #[arg(long, value_enum, default_value_t = KeyAlgorithm::Ed25519)]
    key: KeyAlgorithm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeyAlgorithm {
    /// Short and fast
    Ed25519,
    /// ECDSA on P-256, for software that knows no Ed25519
    P256,
}

/// Make a key and a certificate: NAME.pem and NAME-key.pem
///
/// Without `--server` it is a client's. Files that are there stay as they are.
#[derive(Debug, Args)]
struct CertificateIssueArgs {
    /// The name of the files, and of the client if `--subject` doesn't say
    name: String,

    /// It is for a daemon, which clients call by this host name or address; may be given several times
    #[arg(long, value_name = "HOST", value_delimiter = ',', conflicts_with = "subject")]
    server: Vec<String>,

    /// The identity that the client is for daemons
    #[arg(long)]
    subject: Option<String>,

    /// Time for which it is valid, but not longer than the authority [default: 397d for daemons, 90d for
    /// clients]
    #[arg(long, value_name = "TIME", value_parser = lifetime::parse)]
    lifetime: Option<Duration>,

    /// Directory for the files; the authority's directory if not given
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

/// Show the contents of certificates, and whether they are revoked
#[derive(Debug, Args)]
struct KeysShowArgs {
    /// Files with certificates; the first one in each is shown
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Write one JSON object a line for each file to stdout
    #[arg(long)]
    json: bool,
}

/// Revoke certificates, and write the list of revoked ones anew
///
/// A daemon refuses them once it has the new `revoked.pem`.
#[derive(Debug, Args)]
struct CertificateRevokeArgs {
    /// The NAME that it was issued by (all of that name), its number, or its file: a path with a `/` or of
    /// `.pem`
    #[arg(value_name = "NAME|SERIAL|FILE")]
    what: String,
}

/// Make a bearer token, which grants its holder the rights that it names
///
/// Prints it to stdout. A daemon that has `token.pem` and the authority's name accepts it.
#[derive(Debug, Args)]
struct MakeTokenArgs {
    /// The identity that it stands for
    #[arg(long)]
    subject: String,

    /// The daemon that it is for, as its configuration says
    #[arg(long)]
    audience: String,

    /// A right that it grants: storage.stat, .read, .create or .modify and a path, such as
    /// `storage.read:/EXPORT/path`; may be given several times
    #[arg(long, required = true, value_name = "PERMISSION:PATH")]
    scope: Vec<String>,

    /// Time for which it is valid, up to 24h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lifetime::parse)]
    lifetime: Duration,
}

/// Runs the command.
pub fn run(args: &KeysArgs) -> ExitStatus {
    let Some(directory) = args.dir.clone().or_else(default_directory) else {
        UserError::new("HOME is not set").hint("name the authority's directory with --dir").print();
        return ExitStatus::Usage;
    };
    let done = match &args.command {
        KeysCommand::Init(init) => init.run(&directory),
        KeysCommand::Issue(issue) => issue.run(&directory),
        KeysCommand::Show(show) => return show.run(&directory, args.dir.is_some()),
        KeysCommand::Revoke(revoke) => revoke.run(&directory),
        KeysCommand::Token(token) => token.run(&directory),
    };
    ExitStatus::of_command_result(done.map(|()| ExitStatus::Complete))
}

fn default_directory() -> Option<PathBuf> {
    let home = env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".config/carrack/authority"))
}

impl AuthorityInitArgs {
    fn run(&self, directory: &Path) -> Result<(), UserError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = self.name.clone().unwrap_or_else(|| format!("carrack at {host}"));
        let kind = match self.key {
            KeyAlgorithm::Ed25519 => KeySignatureAlgorithm::Ed25519,
            KeyAlgorithm::P256 => KeySignatureAlgorithm::P256,
        };
        let made = CertificateAuthority::init(directory, &name, kind, SystemTime::now())
            .map_err(authority_user_error)?;
        let until = lifetime::format_moment(made.certificate().not_after_s);
        print_message(&format!(
            "made the authority '{name}' in {}, valid until {until}",
            escaped_path(directory)
        ));
        print_message(
            "give ca.pem and revoked.pem to daemons and ca.pem to clients; keep ca-key.pem for yourself",
        );
        Ok(())
    }
}

impl CertificateIssueArgs {
    fn run(&self, directory: &Path) -> Result<(), UserError> {
        let authority = CertificateAuthority::open(directory).map_err(authority_user_error)?;
        let (purpose, usual) = self.use_and_lifetime();
        let lifetime = self.lifetime.unwrap_or(usual);
        let out = self.out.as_deref().unwrap_or(directory);
        let now = SystemTime::now();
        let issued =
            authority.issue(&self.name, &purpose, lifetime, out, now).map_err(authority_user_error)?;
        let until = lifetime::format_moment(issued.certificate.not_after_s);
        print_message(&format!(
            "made {} and {}, valid until {until}",
            escaped_path(&issued.chain),
            escaped_path(&issued.key)
        ));
        Ok(())
    }

    fn use_and_lifetime(&self) -> (CertificateUse, Duration) {
        if self.server.is_empty() {
            let subject = self.subject.as_ref().unwrap_or(&self.name).clone();
            return (CertificateUse::Client { subject }, CLIENT_LIFETIME);
        }
        (CertificateUse::Server { names: self.server.clone() }, SERVER_LIFETIME)
    }
}

impl KeysShowArgs {
    /// Prints the certificates. An authority that was named must exist; without an authority, the revoked
    /// certificates are unknown.
    fn run(&self, directory: &Path, is_named: bool) -> ExitStatus {
        let authority = match CertificateAuthority::open(directory) {
            Ok(authority) => Some(authority),
            Err(AuthorityError::Missing(_)) if !is_named => None,
            Err(error) => {
                authority_user_error(error).print();
                return ExitStatus::Nothing;
            }
        };
        let mut reports = StdoutReportWriter::new(self.json);
        for file in &self.files {
            if reports.is_over {
                break;
            }
            match self.report(file, authority.as_ref()) {
                Ok(report) => {
                    reports.write(
                        |out| if self.json { report.write_json(out) } else { report.write_table(out) },
                    );
                }
                Err(trouble) => reports.report_failure(&trouble),
            }
        }
        reports.into_exit_status()
    }

    fn report(
        &self,
        file: &Path,
        authority: Option<&CertificateAuthority>,
    ) -> Result<CertificateReport, UserError> {
        let name = escaped_path(file);
        let pem = fs::read(file).map_err(|error| file_error(&name, &error))?;
        let chain = certificates_in(&pem).map_err(|error| file_error(&name, &error))?;
        let certificate = Certificate::parse(&chain[0]).map_err(|error| file_error(&name, &error))?;
        let standing: Option<CertificateStatus> = authority
            .map(|authority| authority.standing(&chain[0]))
            .transpose()
            .map_err(authority_user_error)?;
        let identity = ProvedIdentity::of_peer(&chain, &AuthorizedKeys::default()).ok();
        let identity = identity.filter(|_| certificate.uses.client);
        Ok(CertificateReport::new(&name, &certificate, identity.as_ref(), standing, lifetime::now_s()))
    }
}

impl CertificateRevokeArgs {
    fn run(&self, directory: &Path) -> Result<(), UserError> {
        let authority = CertificateAuthority::open(directory).map_err(authority_user_error)?;
        let revoked = authority
            .revoke(&self.revocation_selector(&authority)?, SystemTime::now())
            .map_err(authority_user_error)?;
        for one in &revoked {
            let before = if one.was_before { " (it was before)" } else { "" };
            print_message(&format!("revoked '{}', number {}{before}", one.name, one.serial));
        }
        let list = escaped_path(&directory.join("revoked.pem"));
        print_message(&format!("wrote {list}: give it to the daemons"));
        Ok(())
    }

    fn revocation_selector(
        &self,
        authority: &CertificateAuthority,
    ) -> Result<RevokedCertificateSelector, UserError> {
        if self.what.contains('/') || self.what.ends_with(".pem") {
            let pem = fs::read(&self.what)
                .map_err(|error| UserError::new(format!("{}: {error}", escape(self.what.as_bytes()))))?;
            return Ok(RevokedCertificateSelector::Certificate(pem));
        }
        let is_serial = authority.has_issued(&self.what).map_err(authority_user_error)?;
        Ok(if is_serial {
            RevokedCertificateSelector::Serial(self.what.clone())
        } else {
            RevokedCertificateSelector::Name(self.what.clone())
        })
    }
}

impl MakeTokenArgs {
    fn run(&self, directory: &Path) -> Result<(), UserError> {
        let authority = CertificateAuthority::open(directory).map_err(authority_user_error)?;
        let scope = TokenScope::parse(&self.scope.join(" ")).map_err(|error| {
            UserError::new(format!("--scope: {error}")).hint("such as --scope storage.read:/EXPORT/path")
        })?;
        let grant = IssuedTokenContent {
            subject: self.subject.clone(),
            audience: self.audience.clone(),
            scope,
            lifetime: self.lifetime,
        };
        let now = SystemTime::now();
        let signer = authority.token_signer().map_err(authority_user_error)?;
        let (token, id) = signer.mint(&grant, now).map_err(|error| UserError::new(error.to_string()))?;
        writeln!(io::stdout(), "{token}").map_err(|error| stdout_error(&error))?;
        let until = lifetime::format_moment(lifetime::now_s() + self.lifetime.as_secs() as i64);
        print_message(&format!("made token {id} of issuer '{}', good until {until}", authority.name()));
        Ok(())
    }
}

fn file_error(name: &str, error: &dyn std::fmt::Display) -> UserError {
    UserError::new(format!("{name}: {error}"))
}

fn authority_user_error(error: AuthorityError) -> UserError {
    UserError::explained(&error, error.hint())
}

/// Prints a message on stderr; a failed write can't be reported.
fn print_message(words: &str) {
    let _ = writeln!(io::stderr(), "carrack: {words}");
}

fn escaped_path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

const EXAMPLES: &str = "\
Examples:
  carrack keys init                              an authority
  carrack keys issue dtn1 --server dtn1.site.org a daemon's certificate
  carrack keys issue alice                       a client's
  carrack keys show alice.pem                    what does it say?
  carrack keys revoke alice                      it no longer counts
  (umask 077; carrack keys token --subject robot \\
      --audience dtn1.site.org --scope storage.read:/data/run7 \\
      --lifetime 30m >token)

";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<KeysArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn options_are_read() {
        let args =
            parse(&["issue", "--dir", "/d", "dtn1", "--server", "a,b", "--server", "c", "--lifetime", "7d"]);
        let KeysArgs { command: KeysCommand::Issue(issue), dir } = args.unwrap() else { panic!("not issue") };
        assert_eq!((dir, issue.lifetime), (Some("/d".into()), Some(Duration::from_secs(7 * 24 * 3600))));
        assert_eq!(
            issue.use_and_lifetime(),
            (CertificateUse::Server { names: ["a", "b", "c"].map(String::from).to_vec() }, SERVER_LIFETIME)
        );
        for words in [
            &[][..],
            &["issue"],
            &["issue", "a", "--server", "h", "--subject", "s"],
            &["issue", "a", "--lifetime", "forever"],
            &["init", "--key", "rsa"],
            &["show"],
            &["revoke"],
            &["token", "--subject", "a", "--audience", "b"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_subject_is_the_name_if_nobody_says() {
        for (words, subject) in
            [(&["issue", "alice"][..], "alice"), (&["issue", "a", "--subject", "b@c"], "b@c")]
        {
            let KeysCommand::Issue(issue) = parse(words).unwrap().command else { panic!("not issue") };
            assert_eq!(
                issue.use_and_lifetime(),
                (CertificateUse::Client { subject: subject.into() }, CLIENT_LIFETIME)
            );
        }
    }
}
