//! What lies on NATS and goes over the API: JSON, in which unknown fields are ignored and new ones have defaults.
//!
//! A record that another version wrote and this one can't use says so by its `version` ([`RECORD_VERSION`]).

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

pub use carrack_options::Options;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Version of all records but those of [`OPTIONS_VERSION`] and [`DELETION_VERSION`].
pub const RECORD_VERSION: u32 = 1;

/// Version of a transfer with options: they have the names of the command line's, which readers of version 1 would pass over. A reader refuses
/// what is newer.
pub const OPTIONS_VERSION: u32 = 2;

/// Version of a fleet's transfer that deletes (`--delete`): a reader of version 2 would call it done, and have nothing deleted.
pub const DELETION_VERSION: u32 = 3;

/// A path at a site, as users write it: `alcf:/projects/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Location {
    /// The site's name.
    pub site: String,
    /// Absolute, as typed: a trailing slash means the contents of a directory.
    pub path: String,
}

/// Why a location can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALocation {
    /// There is no colon.
    #[error("{0:?} names no site (write SITE:/path)")]
    NoSite(String),
    /// The name of the site is none.
    #[error("{0:?} can't be a site's name: letters, digits, '-' and '_' can, up to 64")]
    BadSite(String),
    /// The path does not begin with a slash.
    #[error("{0:?} is not an absolute path (write SITE:/path)")]
    Relative(String),
    /// The path has `..` or a NUL byte.
    #[error("{0:?} has a part that is refused: '..' or a NUL byte")]
    BadPath(String),
}

/// Whether `name` can name a site, a mover or a manager: it becomes a part of subjects and keys.
pub fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(is_fit)
}

impl FromStr for Location {
    type Err = NotALocation;

    fn from_str(text: &str) -> Result<Location, NotALocation> {
        let (site, path) = text.split_once(':').ok_or_else(|| NotALocation::NoSite(text.into()))?;
        if !is_name(site) {
            return Err(NotALocation::BadSite(site.into()));
        }
        if !path.starts_with('/') {
            return Err(NotALocation::Relative(path.into()));
        }
        if path.contains('\0') || path.split('/').any(|part| part == "..") {
            return Err(NotALocation::BadPath(path.into()));
        }
        Ok(Location { site: site.into(), path: path.into() })
    }
}

impl TryFrom<String> for Location {
    type Error = NotALocation;

    fn try_from(text: String) -> Result<Location, NotALocation> {
        text.parse()
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.site, self.path)
    }
}

impl From<Location> for String {
    fn from(location: Location) -> String {
        location.to_string()
    }
}

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Submission {
    /// What is copied: a file, or a directory with everything in it; `SITE:/path`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "local:/data/run7/"))]
    pub source: Location,
    /// Where to, with the meaning that `carrack cp -r` gives it; `SITE:/path`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "local:/backup/run7"))]
    pub destination: Location,
    /// How, and what of it.
    #[serde(default)]
    pub options: Options,
    /// 0 to 9; the shares of transfers with one more are half as large again. 5 if nothing is said.
    #[serde(default = "middle_priority")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: u8,
    /// A user's own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// When it may be begun, in milliseconds since 1970: a year ahead at most. At once if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// What new entries at the destination are not to allow, in octal digits, as umask(1) has it: where modes are not kept it is taken
    /// from them. One machine's queue copies with it, or with the daemon's if nothing is said; the movers of a fleet have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, pattern = "^[0-7]{1,4}$", example = "0027"))]
    pub umask: Option<Umask>,
}

/// Permission bits that new files and directories don't get (umask(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Umask(u16);

/// Why a text is no umask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no umask: octal digits are, from 0 to 0777")]
pub struct NotAUmask(String);

impl Umask {
    /// Of a mode's bits, those that count.
    pub fn of_bits(bits: u32) -> Umask {
        Umask((bits & 0o777) as u16)
    }

    /// As the kernel has it.
    pub fn bits(self) -> u32 {
        self.0.into()
    }
}

impl FromStr for Umask {
    type Err = NotAUmask;

    fn from_str(text: &str) -> Result<Umask, NotAUmask> {
        let are_digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let bits = u16::from_str_radix(text, 8).ok().filter(|&bits| are_digits && bits <= 0o777);
        bits.map(Umask).ok_or_else(|| NotAUmask(text.into()))
    }
}

impl TryFrom<String> for Umask {
    type Error = NotAUmask;

    fn try_from(text: String) -> Result<Umask, NotAUmask> {
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

/// How far ahead a start may be, in milliseconds: what is further is a mistake of the clock or of the unit.
const START_AHEAD_MAX_MS: u64 = 366 * 24 * 3600 * 1000;

impl Submission {
    /// Whether its start time can be meant.
    pub fn has_possible_start(&self, now_ms: u64) -> bool {
        self.not_before_ms.is_none_or(|start_ms| start_ms <= now_ms.saturating_add(START_AHEAD_MAX_MS))
    }
}

fn middle_priority() -> u8 {
    5
}

/// From where to where, once both ends were looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Leg {
    /// A directory at the source's site, without a trailing slash.
    pub source: String,
    /// A directory at the sink's site, which need not exist.
    pub sink: String,
    /// If only one entry of the source is copied: its name, and its name at the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<(String, String)>,
}

/// What becomes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// Nobody works on it yet.
    Queued,
    /// Somebody does.
    Running,
    /// Its user has it wait.
    Paused,
    /// Everything was tried; [`Tally::entries_failed`] tells whether all of it worked.
    Done,
    /// It could not be carried on.
    Failed,
    /// Its user has ended it.
    Cancelled,
}

impl TransferState {
    /// Nothing changes any more.
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

/// How far a transfer is. Grows only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Tally {
    /// Files and links that the scan has found so far.
    pub files_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// Whether it has found all.
    pub is_scanned: bool,
    /// Files and links that have their names at the destination.
    pub files_done: u64,
    /// Bytes that the sink has in its journals.
    pub bytes_done: u64,
    /// Bytes of objects that were sent, whatever became of them: less `bytes_done`, what was moved twice.
    pub bytes_moved: u64,
    /// Files and links that could not be copied.
    pub entries_failed: u64,
    /// Sockets, pipes and devices, which are left out.
    pub entries_skipped: u64,
    /// Entries of the destination that were deleted, as the source has them not.
    pub entries_deleted: u64,
    /// Chunks that were cut.
    pub chunks_found: u64,
    /// Chunks that are settled.
    pub chunks_done: u64,
    /// Pairs at work now.
    pub pairs: u32,
    /// Pairs that its manager would like it to have.
    pub pairs_wanted: u32,
    /// Bytes per second, of late.
    pub bytes_per_s: u64,
}

/// One entry that could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// Beneath the leg's directories, or with them where one machine has copied; what is not UTF-8 is escaped.
    pub path: String,
    /// `carrack-model`'s word for the kind.
    pub kind: String,
    /// For people.
    pub detail: String,
}

/// A socket, pipe or device, which was left out as none are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Skipped {
    /// As [`Failure::path`].
    pub path: String,
    /// What it is, such as "a socket".
    pub reason: String,
}

/// One of a transfer's sessions between two movers, while it works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionState {
    /// The mover that reads.
    pub source: String,
    /// The mover that writes.
    pub sink: String,
    /// `tcp`, or `fabric` (RMA).
    pub transport: String,
    /// I/O threads that read, as its tuner has set them.
    pub readers: u32,
    /// Connections that are used, as its tuner has set them.
    pub streams: u32,
}

/// A transfer, as it is kept and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TransferRecord {
    /// [`RECORD_VERSION`], [`OPTIONS_VERSION`] or [`DELETION_VERSION`].
    pub version: u32,
    /// 16 hexadecimal digits.
    pub id: String,
    /// What was asked for.
    pub submission: Submission,
    /// Who did.
    pub user: String,
    /// What has become of it.
    pub state: TransferState,
    /// Milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it was first worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// From where to where, once that is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg: Option<Leg>,
    /// An earlier transfer between the same places has left journals: what they have does not travel again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes: bool,
    /// What it had left at the destination when it failed or was cancelled was removed since: submitted again it begins anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leftovers_cleared: bool,
    /// How far it is.
    #[serde(default)]
    pub tally: Tally,
    /// The first of what could not be copied, [`FAILURES_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// The first of what was left out, [`FAILURES_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// What of metadata could not be kept at the destination, a line for each kind and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
    /// What stays at the destination though the source has it not, and why: a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeleted: Vec<String>,
    /// Why it failed; empty if it has not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why nothing of it is moved now, for people; empty if something is, or if nothing will be any more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    /// The manager that owns it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// In a fleet: its sessions that work now, [`SESSIONS_KEPT`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionState>,
}

impl TransferRecord {
    /// A new one, on which nobody works yet.
    pub fn queued(id: String, user: &str, submission: Submission, submitted_ms: u64) -> TransferRecord {
        let has_options = submission.options != Options::default();
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
            tally: Tally::default(),
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

    /// Whether something could not be kept, and its user takes that for a failure (`--strict`).
    pub fn has_lost_strictly(&self) -> bool {
        self.submission.options.is_strict() && !self.losses.is_empty()
    }

    /// Whether what is not at its source is to go at its destination: of a single entry nothing is.
    pub fn deletes(&self) -> bool {
        self.submission.options.deletes() && self.leg.as_ref().is_none_or(|leg| leg.only.is_none())
    }

    /// Whether it may be worked on: its start time has come, or it is to be cleared away.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.state == TransferState::Cancelled
            || self.submission.not_before_ms.is_none_or(|start_ms| start_ms <= now_ms)
    }

    /// The same with what only its reader can tell: that it waits for its start time.
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

/// Now, as records have it: milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Failures that a record keeps.
pub const FAILURES_KEPT: usize = 100;

/// Sessions that a record names.
pub const SESSIONS_KEPT: usize = 16;

/// Whether a mover takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MoverState {
    /// It has no pair.
    Idle,
    /// It has pairs.
    Busy,
    /// It ends those that it has, and takes no other.
    Draining,
}

/// A mover, as it registers itself again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoverRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Unique; of host, process and start.
    pub id: String,
    /// Its site.
    pub site: String,
    /// Its host's name, for people.
    pub host: String,
    /// Where other movers reach it, `address:port`, the best first.
    pub addresses: Vec<String>,
    /// The certificate of the CA that it has made for itself, PEM: peers trust what this one has signed, and nobody else, to be it.
    pub ca_pem: String,
    /// Directories that it reaches, without trailing slashes.
    pub paths: Vec<String>,
    /// Pairs that it takes part in at most.
    pub pairs_max: u32,
    /// Pairs that it takes part in now.
    pub pairs: u32,
    /// Lanes (NUMA nodes that transfers may use).
    pub lanes: u32,
    /// carrack's version.
    pub software: String,
    /// The wire protocol's: movers pair up with those that have the same.
    pub protocol: u32,
    /// Whether it takes work.
    pub state: MoverState,
    /// Bytes per second sent, of late: in all pairs in which it reads.
    pub bytes_per_s: u64,
    /// For each of its paths the mark of the file system that is there ([`SITE_MARK`]); empty where none can be read or made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_marks: Vec<String>,
    /// Why it takes no work, as it knows itself, for people; empty if it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ill: String,
    /// Why a manager leaves it out for now, for people; empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_out: String,
}

/// The file beneath each path of a mover by which the movers of a site know that they see the same storage. It is never copied.
pub const SITE_MARK: &str = ".carrack.site";

impl MoverRecord {
    /// The directory of its own that holds a path, and the mark there; the innermost, if several do.
    pub fn reach(&self, path: &str) -> Option<(&str, &str)> {
        let holds = |(_, prefix): &(usize, &String)| Path::new(path).starts_with(prefix);
        let (index, prefix) =
            self.paths.iter().enumerate().filter(holds).max_by_key(|(_, prefix)| prefix.len())?;
        Some((prefix, self.site_marks.get(index).map_or("", |mark| mark)))
    }

    /// Whether it can read or write at a path of a site.
    pub fn reaches(&self, site: &str, path: &str) -> bool {
        self.site == site && self.reach(path).is_some()
    }

    /// Whether it is neither ending nor ill.
    pub fn takes_work(&self) -> bool {
        self.state != MoverState::Draining && self.ill.is_empty()
    }
}

/// The same movers with what only their reader can tell: which of them speak another protocol than most, and so are paired with few
/// or none.
pub fn with_protocols(mut movers: Vec<MoverRecord>) -> Vec<MoverRecord> {
    let count = |protocol: u32| movers.iter().filter(|mover| mover.protocol == protocol).count();
    let Some(most) =
        movers.iter().map(|mover| mover.protocol).max_by_key(|&protocol| (count(protocol), protocol))
    else {
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
        let location: Location = "alcf:/projects/x/".parse().unwrap();
        assert_eq!((&*location.site, &*location.path), ("alcf", "/projects/x/"));
        assert_eq!(location.to_string(), "alcf:/projects/x/");
        for bad in ["/projects", "alcf", ":/x", "a b:/x", "alcf:x", "alcf:/x/../y", "alcf:/\0"] {
            assert!(bad.parse::<Location>().is_err(), "{bad}");
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
        let mover = |protocol: u32| {
            let text = r#"{"version":1,"id":"m","site":"s","host":"h","addresses":[],"ca_pem":"","paths":[],"pairs_max":1,
                "pairs":0,"lanes":1,"software":"0.1.0","protocol":7,"state":"idle","bytes_per_s":0}"#;
            MoverRecord { protocol, ..serde_json::from_str(text).unwrap() }
        };
        let told = |protocols: &[u32]| -> Vec<bool> {
            let movers = with_protocols(protocols.iter().map(|&protocol| mover(protocol)).collect());
            movers.iter().map(|mover| !mover.left_out.is_empty()).collect()
        };
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
        assert_eq!((record.submission.priority, record.tally), (5, Tally::default()));
        let text = text.replace("b:/y", "nowhere");
        assert!(serde_json::from_str::<TransferRecord>(&text).is_err());
    }
}
