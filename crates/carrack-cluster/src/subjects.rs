//! The names of everything that a fleet has on NATS. `docs/formats/fleet.md` is their table.

use crate::error::BusError;
use crate::records::is_name;

/// The prefix of all names unless the options say another one.
pub const PREFIX: &str = "carrack";

/// A bucket: what is known of each key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketName {
    /// Movers that are there, by id.
    Movers,
    /// Who owns which transfer, by the transfer's id.
    Leases,
    /// All transfers, by id.
    Transfers,
    /// In what order they were submitted, by id.
    Submitted,
    /// Who sends to whom, by `SOURCE-MOVER.TRANSFER.NUMBER`.
    Pairs,
    /// What the tuner has learnt, by pair of sites.
    Curves,
}

impl BucketName {
    /// All of them.
    pub const ALL: [BucketName; 6] = [
        BucketName::Movers,
        BucketName::Leases,
        BucketName::Transfers,
        BucketName::Submitted,
        BucketName::Pairs,
        BucketName::Curves,
    ];

    fn word(self) -> &'static str {
        match self {
            BucketName::Movers => "movers",
            BucketName::Leases => "leases",
            BucketName::Transfers => "transfers",
            BucketName::Submitted => "submitted",
            BucketName::Pairs => "pairs",
            BucketName::Curves => "curves",
        }
    }
}

/// A transfer's work, by kind: a part of the subject of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Scans.
    Scan,
    /// What movers move: chunks, and what belongs to them.
    Chunk,
    /// The directories, for the end.
    Dirs,
    /// Large files' entries, for their ends.
    Large,
}

impl WorkKind {
    fn word(self) -> &'static str {
        match self {
            WorkKind::Scan => "scan",
            WorkKind::Chunk => "chunk",
            WorkKind::Dirs => "dirs",
            WorkKind::Large => "large",
        }
    }
}

/// Names, and where JetStream is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
    domain: Option<String>,
}

impl Names {
    /// Names under `prefix`, in the JetStream domain `domain`; where there is none, in that of the server.
    ///
    /// # Errors
    /// If one of them can't be a part of a subject.
    pub fn new(prefix: &str, domain: Option<&str>) -> Result<Names, BusError> {
        for name in [Some(prefix), domain].into_iter().flatten() {
            if !is_name(name) {
                return Err(BusError::BadName(name.to_owned()));
            }
        }
        Ok(Names { prefix: prefix.to_owned(), domain: domain.map(str::to_owned) })
    }

    /// Where JetStream's requests go.
    pub fn api(&self) -> String {
        match &self.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        }
    }

    /// A bucket's name.
    pub fn bucket(&self, bucket: BucketName) -> String {
        format!("{}_{}", self.prefix, bucket.word())
    }

    /// The stream that a bucket is made of.
    pub fn bucket_stream(&self, bucket: BucketName) -> String {
        format!("KV_{}", self.bucket(bucket))
    }

    /// The subject of a bucket's key (or of several, with wildcards) as the stream has it.
    pub fn key(&self, bucket: BucketName, key: &str) -> String {
        format!("$KV.{}.{key}", self.bucket(bucket))
    }

    /// Where a bucket's key is written: across domains it is the domain's API that passes it on.
    pub fn key_to_write(&self, bucket: BucketName, key: &str) -> String {
        match &self.domain {
            Some(domain) => format!("$JS.{domain}.API.{}", self.key(bucket, key)),
            None => self.key(bucket, key),
        }
    }

    /// The stream of the work of all transfers.
    pub fn work(&self) -> String {
        format!("{}_work", self.prefix)
    }

    /// Everything in [`Names::work`], or all of one transfer's.
    pub fn work_of(&self, transfer: Option<&str>) -> String {
        match transfer {
            Some(transfer) => format!("{}.work.{transfer}.>", self.prefix),
            None => format!("{}.work.>", self.prefix),
        }
    }

    /// What all subjects of work begin with, up to the transfer's id.
    pub(crate) fn work_prefix(&self) -> String {
        format!("{}.work.", self.prefix)
    }

    /// The work of all transfers whose subjects end so.
    pub(crate) fn work_of_all(&self, end: &str) -> String {
        format!("{}*.{end}", self.work_prefix())
    }

    /// A transfer's work of one kind. A chunk's subject has a 0 behind it, a large file's its attempt and number.
    pub fn work_kind(&self, transfer: &str, kind: WorkKind) -> String {
        format!("{}.work.{transfer}.{}", self.prefix, kind.word())
    }

    /// Chunks. The 0 is what permissions and the queues of earlier versions have there.
    pub fn chunks(&self, transfer: &str) -> String {
        format!("{}.0", self.work_kind(transfer, WorkKind::Chunk))
    }

    /// The entry of one large file.
    pub fn large(&self, transfer: &str, attempt: u32, file: u64) -> String {
        format!("{}.{attempt}.{file}", self.work_kind(transfer, WorkKind::Large))
    }

    /// Who has failed an item of work, by a name of the item.
    pub fn tried(&self, transfer: &str, item: &str) -> String {
        format!("{}.work.{transfer}.tried.{item}", self.prefix)
    }

    /// The stream of the logs of all transfers.
    pub fn log(&self) -> String {
        format!("{}_log", self.prefix)
    }

    /// A transfer's log; all logs with `*`.
    pub fn log_of(&self, transfer: &str) -> String {
        format!("{}.log.{transfer}", self.prefix)
    }

    /// Questions to a mover.
    pub fn ask(&self, mover: &str) -> String {
        format!("{}.ask.{mover}", self.prefix)
    }

    /// Requests for a site's storage targets.
    pub fn grants(&self, site: &str) -> String {
        format!("{}.grants.{site}", self.prefix)
    }

    /// Questions about a site's storage targets, who has them and who waits.
    pub fn targets(&self, site: &str) -> String {
        format!("{}.targets.{site}", self.prefix)
    }

    /// Reports of a transfer's pairs.
    pub fn report(&self, transfer: &str) -> String {
        format!("{}.report.{transfer}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_document() {
        let names = Names::new(PREFIX, None).unwrap();
        assert_eq!(names.bucket(BucketName::Movers), "carrack_movers");
        assert_eq!(names.key_to_write(BucketName::Pairs, "m.t.0"), "$KV.carrack_pairs.m.t.0");
        assert_eq!(names.chunks("t"), "carrack.work.t.chunk.0");
        assert_eq!(names.large("t", 1, 9), "carrack.work.t.large.1.9");
        assert_eq!(names.grants("alcf"), "carrack.grants.alcf");
        assert_eq!(names.targets("alcf"), "carrack.targets.alcf");
        let far = Names::new("dtn", Some("alcf")).unwrap();
        assert_eq!(far.key_to_write(BucketName::Leases, "t"), "$JS.alcf.API.$KV.dtn_leases.t");
        assert_eq!((far.api().as_str(), far.log_of("t").as_str()), ("$JS.alcf.API", "dtn.log.t"));
    }

    #[test]
    fn a_name_that_would_be_more_than_one_token_is_refused() {
        for bad in ["", "a.b", "a b", "*", ">", "a\n"] {
            assert!(Names::new(bad, None).is_err(), "{bad:?}");
            assert!(Names::new(PREFIX, Some(bad)).is_err(), "{bad:?}");
        }
    }
}
