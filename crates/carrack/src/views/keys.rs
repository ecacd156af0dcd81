//! The report of `carrack keys show` on one certificate: a paragraph for people, a JSON object for programs.

use std::io::{self, Write};

use carrack_model::escape;
use carrack_trust::{Certificate, CertificateStatus, ProvedIdentity};
use serde::Serialize;

use crate::lifetime::format_moment;
use crate::views::json::write_line;
use crate::views::table::write_facts;

/// A certificate.
#[derive(Debug, Serialize)]
pub struct CertificateReport {
    file: String,
    subject: String,
    issuer: String,
    names: Vec<String>,
    r#use: String,
    identity: Option<String>,
    valid_from: String,
    valid_until: String,
    is_valid_now: bool,
    serial: String,
    fingerprint: String,
    standing: &'static str,
    revoked_since: Option<String>,
}

impl CertificateReport {
    /// Creates the report on a certificate, the identity that a daemon would take its holder for, and its
    /// standing with the local authority, if there is one.
    pub fn new(
        file: &str,
        certificate: &Certificate,
        identity: Option<&ProvedIdentity>,
        standing: Option<CertificateStatus>,
        now_s: i64,
    ) -> CertificateReport {
        CertificateReport {
            file: file.to_owned(),
            subject: escaped_text(&certificate.subject),
            issuer: escaped_text(&certificate.issuer),
            names: certificate.names.iter().map(|name| escaped_text(&name.to_string())).collect(),
            r#use: certificate.uses.to_string(),
            identity: identity.map(|identity| identity.name.clone()),
            valid_from: format_moment(certificate.not_before_s),
            valid_until: format_moment(certificate.not_after_s),
            is_valid_now: (certificate.not_before_s..=certificate.not_after_s).contains(&now_s),
            serial: certificate.serial.clone(),
            fingerprint: certificate.fingerprint.to_string(),
            standing: status_word(standing),
            revoked_since: if let Some(CertificateStatus::Revoked { since_s }) = standing {
                Some(format_moment(since_s))
            } else {
                None
            },
        }
    }

    /// Writes the report for programs.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    /// Writes the report for people.
    pub fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let validity = if self.is_valid_now { "" } else { " (NOT VALID NOW)" };
        writeln!(out, "{}", self.file)?;
        let facts = [
            ("subject", self.subject.clone()),
            ("issuer", self.issuer.clone()),
            ("names", self.names.join(", ")),
            ("use", self.r#use.clone()),
            ("identity", self.identity.clone().unwrap_or_default()),
            ("valid", format!("{} to {}{validity}", self.valid_from, self.valid_until)),
            ("serial", self.serial.clone()),
            ("fingerprint", self.fingerprint.clone()),
            ("standing", self.standing_in_words()),
        ];
        write_facts(&facts, out)
    }

    fn standing_in_words(&self) -> String {
        match (self.standing, &self.revoked_since) {
            (_, Some(since)) => format!("REVOKED since {since}"),
            ("unknown", _) => "unknown: there is no authority here to ask".to_owned(),
            ("foreign", _) => "unknown: it is not of the authority here".to_owned(),
            ("own", _) => "the authority here".to_owned(),
            _ => "not revoked".to_owned(),
        }
    }
}

fn status_word(standing: Option<CertificateStatus>) -> &'static str {
    match standing {
        None => "unknown",
        Some(CertificateStatus::Foreign) => "foreign",
        Some(CertificateStatus::Own) => "own",
        Some(CertificateStatus::Good) => "good",
        Some(CertificateStatus::Revoked { .. }) => "revoked",
    }
}

/// Escapes text of a certificate, which may hold any character: none may move the terminal's cursor.
fn escaped_text(text: &str) -> String {
    escape(text.as_bytes())
}
