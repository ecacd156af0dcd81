//! Messages of a transfer with deletion.

/// The source has sent everything and met no failure: the sink may delete entries that the source does not
/// have.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PruneMessage {
    /// Paths of the directories in which deletion is allowed.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub trees: Vec<Vec<u8>>,
}

/// An existence query: names of one directory at the destination.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceExistenceQuery {
    /// Query ID, counted from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The names' directory.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// 512 at most.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub names: Vec<Vec<u8>>,
}

/// The reply to an existence query.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceExistenceReply {
    /// Query ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A byte for each name: 0 proven absent, 1 an entry that is no directory, 2 a directory, 3 unknown or
    /// not scanned.
    #[prost(bytes = "vec", tag = "2")]
    pub kinds: Vec<u8>,
}

/// The deletion is done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct DeletionDoneMessage {}
