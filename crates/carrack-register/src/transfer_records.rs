//! The records on NATS and in the API: JSON, in which unknown fields are ignored and new fields have
//! defaults.
//!
//! A record of another version that this version can't use has another `version` ([`RECORD_VERSION`]).

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

pub use carrack_options::TransferOptions;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Version of all records but those of [`OPTIONS_VERSION`] and [`DELETION_VERSION`].
pub const RECORD_VERSION: u32 = 1;

/// Version of a transfer with options, which have the names of the command line. Readers of version 1 would
/// ignore them. A reader refuses newer versions.
pub const OPTIONS_VERSION: u32 = 2;

/// Version of a fleet's transfer with `--delete`: a reader of version 2 would finish it without the deletion.
pub const DELETION_VERSION: u32 = 3;

/// A path at a site, as users write it: `alcf:/projects/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SiteLocation {
    /// The site's name.
    pub site: String,
    /// The absolute path, as typed: a trailing slash means the contents of a directory.
    pub path: String,
}

/// The reason why a location is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSiteLocation {
    /// There is no colon.
    #[error("{0:?} names no site (write SITE:/path)")]
    NoSite(String),
    /// The site's name is invalid.
    #[error("{0:?} can't be a site's name: letters, digits, '-' and '_' can, up to 64")]
    BadSite(String),
    /// The path does not begin with a slash.
    #[error("{0:?} is not an absolute path (write SITE:/path)")]
    Relative(String),
    /// The path has `..` or a NUL byte.
    #[error("{0:?} has a part that is refused: '..' or a NUL byte")]
    BadPath(String),
}

/// Returns true if `name` is a valid name of a site, mover or manager: it becomes a part of subjects and
/// keys.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl FromStr for SiteLocation {
    type Err = BadSiteLocation;

    fn from_str(text: &str) -> Result<SiteLocation, BadSiteLocation> {
        let (site, path) = text.split_once(':').ok_or_else(|| BadSiteLocation::NoSite(text.into()))?;
        if !is_name(site) {
            return Err(BadSiteLocation::BadSite(site.into()));
        }
        if !path.starts_with('/') {
            return Err(BadSiteLocation::Relative(path.into()));
        }
        if path.contains('\0') || path.split('/').any(|part| part == "..") {
            return Err(BadSiteLocation::BadPath(path.into()));
        }
        Ok(SiteLocation { site: site.into(), path: path.into() })
    }
}

impl TryFrom<String> for SiteLocation {
    type Error = BadSiteLocation;

    fn try_from(text: String) -> Result<SiteLocation, BadSiteLocation> {
        text.parse()
    }
}

impl fmt::Display for SiteLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.site, self.path)
    }
}

impl From<SiteLocation> for String {
    fn from(location: SiteLocation) -> String {
        location.to_string()
    }
}

/// A user's request for a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Submission))]
pub struct TransferSubmission {
    /// The source: a file, or a directory with all of its contents; `SITE:/path`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "local:/data/run7/"))]
    pub source: SiteLocation,
    /// The destination, with the meaning that `carrack cp -r` gives it; `SITE:/path`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "local:/backup/run7"))]
    pub destination: SiteLocation,
    /// The options of the transfer.
    #[serde(default)]
    pub options: TransferOptions,
    /// 0 to 9, by default 5. The share of a transfer is half as large again for each step.
    #[serde(default = "middle_priority")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: u8,
    /// A label of the user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The earliest start, in milliseconds since 1970: a year ahead at most. By default at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// The permission bits that new entries at the destination don't get, in octal digits as for umask(1).
    /// They apply where modes are not kept. One machine's queue copies with this umask, by default the
    /// daemon's; the movers of a fleet have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, pattern = "^[0-7]{1,4}$", example = "0027"))]
    pub umask: Option<Umask>,
}

/// Permission bits that new files and directories don't get (umask(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Umask(u16);

/// A text that is not a umask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no umask: octal digits are, from 0 to 0777")]
pub struct BadUmask(String);

impl Umask {
    /// The umask in the bits of a mode.
    pub fn from_bits(bits: u32) -> Umask {
        Umask((bits & 0o777) as u16)
    }

    /// The bits as the kernel has them.
    pub fn bits(self) -> u32 {
        self.0.into()
    }
}

impl FromStr for Umask {
    type Err = BadUmask;

    fn from_str(text: &str) -> Result<Umask, BadUmask> {
        let are_digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let bits = u16::from_str_radix(text, 8).ok().filter(|&bits| are_digits && bits <= 0o777);
        bits.map(Umask).ok_or_else(|| BadUmask(text.into()))
    }
}

impl TryFrom<String> for Umask {
    type Error = BadUmask;

    fn try_from(text: String) -> Result<Umask, BadUmask> {
        text.parse()
    }
}

impl fmt::Display for Umask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl From<Umask> for String {
    fn from(umask: Umask) -> String {
        umask.to_string()
    }
}

/// The latest start from now, in milliseconds: a later one is an error of the clock or the unit.
const START_AHEAD_MAX_MS: u64 = 366 * 24 * 3600 * 1000;

impl TransferSubmission {
    /// Returns true if the start time is plausible.
    pub fn has_possible_start(&self, now_ms: u64) -> bool {
        self.not_before_ms.is_none_or(|start_ms| start_ms <= now_ms.saturating_add(START_AHEAD_MAX_MS))
    }
}

fn middle_priority() -> u8 {
    5
}

/// The directories of a transfer, after both ends were examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Leg))]
pub struct ResolvedTransferPaths {
    /// A directory at the source's site, without a trailing slash.
    pub source: String,
    /// A directory at the sink's site, which need not exist.
    pub sink: String,
    /// For a single entry of the source: its name, and its name at the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<(String, String)>,
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// The transfer waits for its start.
    Queued,
    /// The transfer is in progress.
    Running,
    /// The user has paused it.
    Paused,
    /// Everything was tried; [`TransferTally::entries_failed`] shows whether all of it succeeded.
    Done,
    /// The transfer could not be continued.
    Failed,
    /// The user has cancelled it.
    Cancelled,
}

impl TransferState {
    /// Returns true if the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, TransferState::Done | TransferState::Failed | TransferState::Cancelled)
    }
}

impl fmt::Display for TransferState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferState::Queued => "queued",
            TransferState::Running => "running",
            TransferState::Paused => "paused",
            TransferState::Done => "done",
            TransferState::Failed => "failed",
            TransferState::Cancelled => "cancelled",
        })
    }
}

/// The progress of a transfer. Its totals only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Tally))]
#[serde(default)]
pub struct TransferTally {
    /// Files and links that the scan has found so far.
    pub files_found: u64,
    /// Bytes of these files.
    pub bytes_found: u64,
    /// True if the scan is complete.
    pub is_scanned: bool,
    /// Files and links that have their names at the destination.
    pub files_done: u64,
    /// Bytes in the sink's journals.
    pub bytes_done: u64,
    /// Bytes of all objects that were sent. The difference to `bytes_done` was sent in vain.
    pub bytes_moved: u64,
    /// Files and links that could not be copied.
    pub entries_failed: u64,
    /// Sockets, pipes and devices, which are left out.
    pub entries_skipped: u64,
    /// Entries of the destination that were deleted, as the source does not have them.
    pub entries_deleted: u64,
    /// Chunks that were made.
    pub chunks_found: u64,
    /// Chunks that are finished.
    pub chunks_done: u64,
    /// Pairs at work now.
    pub pairs: u32,
    /// Pairs that the manager wants for it.
    pub pairs_wanted: u32,
    /// Recent bytes per second.
    pub bytes_per_s: u64,
}

/// An entry that could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Failure))]
pub struct EntryCopyFailure {
    /// The path below the leg's directories, or the whole path if one machine has copied it. Bytes that are
    /// not UTF-8 are escaped.
    pub path: String,
    /// The kind, by `carrack-model`'s word.
    pub kind: String,
    /// A text for people.
    pub detail: String,
}

/// A socket, pipe or device, which is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Skipped))]
pub struct SkippedEntry {
    /// As [`EntryCopyFailure::path`].
    pub path: String,
    /// The kind of entry, such as "a socket".
    pub reason: String,
}

/// A session of a transfer between two movers, while it works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = SessionState))]
pub struct MoverSessionRecord {
    /// The mover that reads.
    pub source: String,
    /// The mover that writes.
    pub sink: String,
    /// `tcp`, or `fabric` (RMA).
    pub transport: String,
    /// I/O threads that read, as set by the tuner.
    pub readers: u32,
    /// Data connections in use, as set by the tuner.
    pub streams: u32,
}

/// A transfer, as stored and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransferRecord {
    /// [`RECORD_VERSION`], [`OPTIONS_VERSION`] or [`DELETION_VERSION`].
    pub version: u32,
    /// 16 hexadecimal digits.
    pub id: String,
    /// The user's request.
    pub submission: TransferSubmission,
    /// The user who submitted it.
    pub user: String,
    /// The transfer's state.
    pub state: TransferState,
    /// Milliseconds since 1970.
    pub submitted_ms: u64,
    /// The time of the first work on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// The time of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The directories of the transfer, once both ends were examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg: Option<ResolvedTransferPaths>,
    /// True if an earlier transfer between the same directories has left journals: their objects are not sent
    /// again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes: bool,
    /// True if the files that it left at the destination when it failed or was cancelled were removed since:
    /// if submitted again, it starts from the beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leftovers_cleared: bool,
    /// The transfer's progress.
    #[serde(default)]
    pub tally: TransferTally,
    /// The first entries that could not be copied, [`FAILURES_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<EntryCopyFailure>,
    /// The first entries that were left out, [`FAILURES_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedEntry>,
    /// The metadata that could not be kept at the destination, a line for each kind and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
    /// The entries that stay at the destination though the source does not have them, a line each with the
    /// reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeleted: Vec<String>,
    /// The reason of the failure; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason why it moves nothing now, for people; empty if it moves data or is finished.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    /// The manager that owns it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// In a fleet: its working sessions, [`SESSIONS_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<MoverSessionRecord>,
}

impl TransferRecord {
    /// Returns true for an ended transfer that may be tried again: it failed, or some of its entries did.
    pub fn has_left_something(&self) -> bool {
        let has_failures = self.tally.entries_failed > 0;
        self.state == TransferState::Failed || self.state == TransferState::Done && has_failures
    }

    /// A new record in the state queued.
    pub fn queued(
        id: String,
        user: &str,
        submission: TransferSubmission,
        submitted_ms: u64,
    ) -> TransferRecord {
        let has_options = submission.options != TransferOptions::default();
        TransferRecord {
            version: if has_options { OPTIONS_VERSION } else { RECORD_VERSION },
            id,
            submission,
            user: user.to_owned(),
            state: TransferState::Queued,
            submitted_ms,
            started_ms: None,
            ended_ms: None,
            leg: None,
            resumes: false,
            leftovers_cleared: false,
            tally: TransferTally::default(),
            failures: Vec::new(),
            skipped: Vec::new(),
            losses: Vec::new(),
            undeleted: Vec::new(),
            reason: String::new(),
            waits_for: String::new(),
            manager: String::new(),
            sessions: Vec::new(),
        }
    }

    /// Returns true if metadata was lost and the user counts that as a failure (`--strict`).
    pub fn violates_strict(&self) -> bool {
        self.submission.options.is_strict() && !self.losses.is_empty()
    }

    /// Returns true if it deletes entries that the source does not have. A transfer of a single entry deletes
    /// nothing.
    pub fn deletes(&self) -> bool {
        self.submission.options.deletes() && self.leg.as_ref().is_none_or(|leg| leg.only.is_none())
    }

    /// Returns true if it may be worked on: its start time has come, or its cleanup is due.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.state == TransferState::Cancelled
            || self.submission.not_before_ms.is_none_or(|start_ms| start_ms <= now_ms)
    }

    /// The record with a note if it waits for its start time, which depends on the reader's clock.
    pub fn with_start_wait(mut self, now_ms: u64) -> TransferRecord {
        if self.state == TransferState::Queued && !self.is_due(now_ms) {
            let start_s = self.submission.not_before_ms.unwrap_or(0) / 1000;
            let moment = OffsetDateTime::from_unix_timestamp(i64::try_from(start_s).unwrap_or(i64::MAX));
            let moment = moment.ok().and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_default();
            self.waits_for = format!("its start time, {moment}");
        }
        self
    }
}

/// The current time in records: milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The most failures in a record.
pub const FAILURES_KEPT: usize = 100;

/// The most sessions in a record.
pub const SESSIONS_KEPT: usize = 16;

/// The availability of a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = MoverState))]
#[serde(rename_all = "lowercase")]
pub enum MoverAvailability {
    /// It has no pair.
    Idle,
    /// It has pairs.
    Busy,
    /// It finishes its pairs, and takes no new ones.
    Draining,
}

/// The record by which a mover registers itself periodically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoverRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The unique ID, made of host, process and start.
    pub id: String,
    /// Its site.
    pub site: String,
    /// Its host's name, for people.
    pub host: String,
    /// The addresses for other movers, `address:port`, the best first.
    pub addresses: Vec<String>,
    /// The certificate of the mover's own CA, PEM. Peers accept this mover only with certificates that the CA
    /// has signed.
    pub ca_pem: String,
    /// The directories that it reaches, without trailing slashes.
    pub paths: Vec<String>,
    /// The most pairs that it takes part in.
    pub pairs_max: u32,
    /// The pairs that it takes part in now.
    pub pairs: u32,
    /// Lanes (NUMA nodes that transfers may use).
    pub lanes: u32,
    /// carrack's version.
    pub software: String,
    /// The version of the wire protocol: only movers with the same version are paired.
    pub protocol: u32,
    /// The mover's availability.
    pub state: MoverAvailability,
    /// Recent bytes per second sent, in all pairs in which it reads.
    pub bytes_per_s: u64,
    /// For each of its paths the mark of the file system there ([`SITE_MARK`]); empty where no mark can be
    /// read or made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_marks: Vec<String>,
    /// The reason why it takes no work, as it knows itself, for people; empty if it takes work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ill: String,
    /// The reason why a manager excludes it for now, for people; empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_out: String,
}

/// The file beneath each path of a mover that shows the movers of a site that they have the same storage. It
/// is never copied.
pub const SITE_MARK: &str = ".carrack.site";

impl MoverRecord {
    /// The mover's directory that contains a path, with its mark; of several the innermost.
    pub fn directory_containing(&self, path: &str) -> Option<(&str, &str)> {
        let (index, prefix) = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, prefix)| Path::new(path).starts_with(prefix))
            .max_by_key(|(_, prefix)| prefix.len())?;
        Some((prefix, self.site_marks.get(index).map_or("", |mark| mark)))
    }

    /// Returns true if it can read or write at a path of a site.
    pub fn can_access(&self, site: &str, path: &str) -> bool {
        self.site == site && self.directory_containing(path).is_some()
    }

    /// Returns true if it is neither draining nor ill.
    pub fn takes_work(&self) -> bool {
        self.state != MoverAvailability::Draining && self.ill.is_empty()
    }
}

/// The movers with a note for each that speaks another protocol than most, which only their reader can tell:
/// it is paired with few others or none.
pub fn with_protocol_notes(mut movers: Vec<MoverRecord>) -> Vec<MoverRecord> {
    let protocols: Vec<u32> = movers.iter().map(|mover| mover.protocol).collect();
    let Some(most) = protocols.iter().copied().max_by_key(|&protocol| {
        let count = protocols.iter().filter(|&&other| other == protocol).count();
        (count, protocol)
    }) else {
        return movers;
    };
    for mover in movers.iter_mut().filter(|mover| mover.protocol != most) {
        if mover.ill.is_empty() && mover.left_out.is_empty() {
            mover.left_out = format!(
                "it speaks protocol {} (carrack {}), most speak {most}: only movers of the same protocol are paired",
                mover.protocol, mover.software
            );
        }
    }
    movers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_they_are_shown() {
        let location: SiteLocation = "alcf:/projects/x/".parse().unwrap();
        assert_eq!((&*location.site, &*location.path), ("alcf", "/projects/x/"));
        assert_eq!(location.to_string(), "alcf:/projects/x/");
        for bad in ["/projects", "alcf", ":/x", "a b:/x", "alcf:x", "alcf:/x/../y", "alcf:/\0"] {
            assert!(bad.parse::<SiteLocation>().is_err(), "{bad}");
        }
    }

    #[test]
    fn umasks_are_read_as_they_are_shown() {
        for (text, bits, shown) in [("0", 0, "0000"), ("027", 0o027, "0027"), ("0777", 0o777, "0777")] {
            let umask: Umask = text.parse().unwrap();
            assert_eq!((umask.bits(), &*umask.to_string()), (bits, shown));
        }
        for bad in ["", "8", "1000", "00027", "+27", "-1", "u=rwx"] {
            assert!(bad.parse::<Umask>().is_err(), "{bad}");
        }
    }

    #[test]
    fn movers_of_another_protocol_than_most_are_told() {
        fn told(protocols: &[u32]) -> Vec<bool> {
            let text = r#"{"version":1,"id":"m","site":"s","host":"h","addresses":[],"ca_pem":"","paths":[],"pairs_max":1,
                "pairs":0,"lanes":1,"software":"0.1.0","protocol":7,"state":"idle","bytes_per_s":0}"#;
            let mover: MoverRecord = serde_json::from_str(text).unwrap();
            let movers = protocols.iter().map(|&protocol| MoverRecord { protocol, ..mover.clone() });
            with_protocol_notes(movers.collect()).iter().map(|mover| !mover.left_out.is_empty()).collect()
        }
        assert_eq!(told(&[9, 8, 9]), [false, true, false]);
        assert_eq!(told(&[8, 9]), [true, false], "of as many the newer ones are right");
        assert_eq!(told(&[9, 9]), [false, false]);
        assert_eq!(told(&[]), [false; 0]);
    }

    #[test]
    fn a_record_of_a_later_minor_version_is_read() {
        let text = r#"{"version":1,"id":"0123456789abcdef","submission":{"source":"a:/x","destination":"b:/y","mood":"good"},
            "user":"alice","state":"queued","submitted_ms":7,"weather":"fine"}"#;
        let record: TransferRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.submission.priority, record.tally), (5, TransferTally::default()));
        let text = text.replace("b:/y", "nowhere");
        assert!(serde_json::from_str::<TransferRecord>(&text).is_err());
    }
}
