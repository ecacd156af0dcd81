//! The names of a fleet's subjects, streams and buckets on NATS. `docs/formats/fleet.md` is their table.

use crate::error::BusError;
use crate::transfer_records::is_name;

/// The default prefix of all names.
pub const PREFIX: &str = "carrack";

/// A bucket, with the present value of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatsBucketName {
    /// Present movers, by ID.
    Movers,
    /// Owners of transfers, by the transfer's ID.
    Leases,
    /// All transfers, by ID.
    Transfers,
    /// The order of submission, by ID.
    Submitted,
    /// Pairs, by `SOURCE-MOVER.TRANSFER.NUMBER`.
    Pairs,
    /// Results of the tuner, by pair of sites.
    Curves,
}

impl NatsBucketName {
    /// All of them.
    pub const ALL: [NatsBucketName; 6] = [
        NatsBucketName::Movers,
        NatsBucketName::Leases,
        NatsBucketName::Transfers,
        NatsBucketName::Submitted,
        NatsBucketName::Pairs,
        NatsBucketName::Curves,
    ];

    fn as_str(self) -> &'static str {
        match self {
            NatsBucketName::Movers => "movers",
            NatsBucketName::Leases => "leases",
            NatsBucketName::Transfers => "transfers",
            NatsBucketName::Submitted => "submitted",
            NatsBucketName::Pairs => "pairs",
            NatsBucketName::Curves => "curves",
        }
    }
}

/// A transfer's work, by kind: a part of the subject of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetWorkKind {
    /// Scans.
    Scan,
    /// Items for movers: chunks, and others.
    Chunk,
    /// The directories, for the end.
    Dirs,
    /// Large files' entries, for their ends.
    Large,
}

impl FleetWorkKind {
    fn as_str(self) -> &'static str {
        match self {
            FleetWorkKind::Scan => "scan",
            FleetWorkKind::Chunk => "chunk",
            FleetWorkKind::Dirs => "dirs",
            FleetWorkKind::Large => "large",
        }
    }
}

/// The names, and the subjects of JetStream's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSubjectNames {
    prefix: String,
    domain: Option<String>,
}

impl NatsSubjectNames {
    /// Creates the names under `prefix`, in the JetStream domain `domain`; by default in that of the server.
    ///
    /// # Errors
    /// If one of them can't be a part of a subject.
    pub fn new(prefix: &str, domain: Option<&str>) -> Result<NatsSubjectNames, BusError> {
        for name in [Some(prefix), domain].into_iter().flatten() {
            if !is_name(name) {
                return Err(BusError::BadName(name.to_owned()));
            }
        }
        Ok(NatsSubjectNames { prefix: prefix.to_owned(), domain: domain.map(str::to_owned) })
    }

    /// Returns the prefix of JetStream's requests.
    pub fn api_prefix(&self) -> String {
        match &self.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        }
    }

    /// Returns a bucket's name.
    pub fn bucket(&self, bucket: NatsBucketName) -> String {
        format!("{}_{}", self.prefix, bucket.as_str())
    }

    /// Returns the stream of a bucket.
    pub fn bucket_stream(&self, bucket: NatsBucketName) -> String {
        format!("KV_{}", self.bucket(bucket))
    }

    /// Returns the subject of a bucket's key (or of several, with wildcards) in the stream.
    pub fn key_subject(&self, bucket: NatsBucketName, key: &str) -> String {
        format!("$KV.{}.{key}", self.bucket(bucket))
    }

    /// Returns the subject for writing a bucket's key: across domains the domain's API forwards it.
    pub fn key_write_subject(&self, bucket: NatsBucketName, key: &str) -> String {
        match &self.domain {
            Some(domain) => format!("$JS.{domain}.API.{}", self.key_subject(bucket, key)),
            None => self.key_subject(bucket, key),
        }
    }

    /// Returns the stream of the work of all transfers.
    pub fn work_stream(&self) -> String {
        format!("{}_work", self.prefix)
    }

    /// Returns the subjects of [`NatsSubjectNames::work_stream`], or of one transfer's work.
    pub fn work_subjects(&self, transfer: Option<&str>) -> String {
        match transfer {
            Some(transfer) => format!("{}.work.{transfer}.>", self.prefix),
            None => format!("{}.work.>", self.prefix),
        }
    }

    /// Returns the prefix of all subjects of work, up to the transfer's ID.
    pub(crate) fn work_prefix(&self) -> String {
        format!("{}.work.", self.prefix)
    }

    /// Returns the subjects of all transfers' work with this end.
    pub(crate) fn work_subjects_ending(&self, end: &str) -> String {
        format!("{}*.{end}", self.work_prefix())
    }

    /// Returns the subject of a transfer's work of one kind. A chunk's subject has a 0 behind it, the end
    /// of a large file a 1, and a large file's entry its attempt and number.
    pub fn work_kind_subject(&self, transfer: &str, kind: FleetWorkKind) -> String {
        format!("{}.work.{transfer}.{}", self.prefix, kind.as_str())
    }

    /// Returns the subject of chunks. The 0 is there for the permissions and the queues of earlier versions.
    pub fn chunk_subject(&self, transfer: &str) -> String {
        format!("{}.0", self.work_kind_subject(transfer, FleetWorkKind::Chunk))
    }

    /// Returns the subject of the ends of large files, which do not wait behind the chunks.
    pub fn file_end_subject(&self, transfer: &str) -> String {
        format!("{}.1", self.work_kind_subject(transfer, FleetWorkKind::Chunk))
    }

    /// Returns the subject of one large file's entry.
    pub fn large_file_subject(&self, transfer: &str, attempt: u32, file: u64) -> String {
        format!("{}.{attempt}.{file}", self.work_kind_subject(transfer, FleetWorkKind::Large))
    }

    /// Returns the subject of the movers that have failed a work item, by the item's name.
    pub fn failed_movers_subject(&self, transfer: &str, item: &str) -> String {
        format!("{}.work.{transfer}.tried.{item}", self.prefix)
    }

    /// Returns the stream of the logs of all transfers.
    pub fn log_stream(&self) -> String {
        format!("{}_log", self.prefix)
    }

    /// Returns the subject of a transfer's log; of all logs with `*`.
    pub fn log_subject(&self, transfer: &str) -> String {
        format!("{}.log.{transfer}", self.prefix)
    }

    /// Returns the subject of requests to a mover.
    pub fn mover_request_subject(&self, mover: &str) -> String {
        format!("{}.ask.{mover}", self.prefix)
    }

    /// Returns the subject of requests for a site's storage targets.
    pub fn grant_subject(&self, site: &str) -> String {
        format!("{}.grants.{site}", self.prefix)
    }

    /// Returns the subject of requests for the state of a site's storage targets.
    pub fn target_state_subject(&self, site: &str) -> String {
        format!("{}.targets.{site}", self.prefix)
    }

    /// Returns the subject of reports of a transfer's pairs.
    pub fn report_subject(&self, transfer: &str) -> String {
        format!("{}.report.{transfer}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_document() {
        let names = NatsSubjectNames::new(PREFIX, None).unwrap();
        assert_eq!(names.bucket(NatsBucketName::Movers), "carrack_movers");
        assert_eq!(names.key_write_subject(NatsBucketName::Pairs, "m.t.0"), "$KV.carrack_pairs.m.t.0");
        assert_eq!(names.chunk_subject("t"), "carrack.work.t.chunk.0");
        assert_eq!(names.file_end_subject("t"), "carrack.work.t.chunk.1");
        assert_eq!(names.large_file_subject("t", 1, 9), "carrack.work.t.large.1.9");
        assert_eq!(names.grant_subject("alcf"), "carrack.grants.alcf");
        assert_eq!(names.target_state_subject("alcf"), "carrack.targets.alcf");
        let far = NatsSubjectNames::new("dtn", Some("alcf")).unwrap();
        assert_eq!(far.key_write_subject(NatsBucketName::Leases, "t"), "$JS.alcf.API.$KV.dtn_leases.t");
        assert_eq!((far.api_prefix().as_str(), far.log_subject("t").as_str()), ("$JS.alcf.API", "dtn.log.t"));
    }

    #[test]
    fn a_name_that_would_be_more_than_one_token_is_refused() {
        for bad in ["", "a.b", "a b", "*", ">", "a\n"] {
            assert!(NatsSubjectNames::new(bad, None).is_err(), "{bad:?}");
            assert!(NatsSubjectNames::new(PREFIX, Some(bad)).is_err(), "{bad:?}");
        }
    }
}
