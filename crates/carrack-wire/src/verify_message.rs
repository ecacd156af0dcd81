//! The messages of a session that compares files: queries about names, and answers in the same order.
//!
//! Only digests and metadata travel, no contents. `docs/formats/wire.md` lists every field with its unit.

/// Opens a comparison.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VerifyOpenMessage {
    /// The caller's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// As typed: a file, a link, or the directory that the paths of the queries are relative to.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// Bearer token for a daemon that requires one; empty otherwise.
    #[prost(string, tag = "3")]
    pub token: String,
    /// Files are read past the page cache if the file system supports it.
    #[prost(bool, tag = "4")]
    pub past_cache: bool,
    /// A link to a directory is followed, as for a destination; otherwise only with a trailing slash.
    #[prost(bool, tag = "5")]
    pub is_destination: bool,
    /// Wanted number of threads; 0 lets the called end choose.
    #[prost(uint32, tag = "6")]
    pub threads: u32,
}

/// Requests the next names of a walk through the tree.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WalkRequest {
    /// First directory of the walk; the same in all requests of one walk.
    #[prost(bytes = "vec", tag = "1")]
    pub beneath: Vec<u8>,
    /// Devices, pipes and sockets count as names; otherwise they are reported as skipped.
    #[prost(bool, tag = "2")]
    pub specials: bool,
}

/// Some names of one directory, a failure, or a skipped entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WalkedNamesMessage {
    /// Relative to the session's path.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// Files, links and the other requested kinds, 257 at most; an empty name comes first for the directory
    /// itself.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub names: Vec<Vec<u8>>,
    /// An entry that can't be examined.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<super::message::FailureMessage>,
    /// A pipe, socket or device: its path at this end, and its kind.
    #[prost(message, optional, tag = "4")]
    pub skipped: Option<super::message::FailureMessage>,
    /// The walk is complete; the other fields are empty.
    #[prost(bool, tag = "5")]
    pub is_over: bool,
}

/// Queries the entries at some names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LookRequest {
    /// Relative to the session's path.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// 257 at most; an empty name is the directory itself.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub names: Vec<Vec<u8>>,
    /// Files of at most 1 MiB are read for their digests.
    #[prost(bool, tag = "3")]
    pub digests: bool,
    /// The answer includes metadata.
    #[prost(bool, tag = "4")]
    pub metadata: bool,
    /// The requested metadata that cost a system call each: bits as in `Settings.kept`.
    #[prost(uint32, tag = "5")]
    pub kept: u32,
}

/// The entries found, in the order of the names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExaminedEntriesMessage {
    /// One for each name.
    #[prost(message, repeated, tag = "1")]
    pub sights: Vec<VerifyEntryMessage>,
}

/// The entry at one name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VerifyEntryMessage {
    /// 0 other, 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 device; 8 none, 9 unreadable.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Bytes of a file.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// Differs after every change that the file system reports; has no other meaning.
    #[prost(fixed64, tag = "3")]
    pub stamp: u64,
    /// BLAKE3 of a file that was read, or of a link's text; otherwise empty.
    #[prost(bytes = "vec", tag = "4")]
    pub digest: Vec<u8>,
    /// Reason why the entry can't be read, 200 bytes at most.
    #[prost(string, tag = "5")]
    pub detail: String,
    /// Kind and number of a device, pipe or socket, see `carrack_model::SpecialFile`; otherwise empty, also
    /// from a peer without support for it.
    #[prost(bytes = "vec", tag = "6")]
    pub special: Vec<u8>,
    /// Present if metadata were requested and the entry exists.
    #[prost(message, optional, tag = "7")]
    pub metadata: Option<ExaminedMetadata>,
}

/// The metadata of an entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExaminedMetadata {
    /// Permission bits, at most `07777`.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    /// Modification time, seconds since 1970.
    #[prost(int64, tag = "2")]
    pub mtime_s: i64,
    /// Nanoseconds of the modification time.
    #[prost(uint32, tag = "3")]
    pub mtime_ns: u32,
    /// Resolution of the file system's times in nanoseconds, as a guess.
    #[prost(uint32, tag = "4")]
    pub time_unit_ns: u32,
    /// Number of hard links.
    #[prost(uint32, tag = "5")]
    pub names: u32,
    /// Identity of the file: the same for each of its names, within this session.
    #[prost(fixed64, tag = "6")]
    pub identity: u64,
    /// Allocated bytes.
    #[prost(uint64, tag = "7")]
    pub allocated_bytes: u64,
    /// Owner, if requested.
    #[prost(message, optional, tag = "8")]
    pub user: Option<ExaminedOwner>,
    /// Group, if requested.
    #[prost(message, optional, tag = "9")]
    pub group: Option<ExaminedOwner>,
    /// Extended attributes and ACLs, if requested.
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<ExaminedAttribute>,
    /// Reason why some attributes can't be read, 200 bytes at most; empty if all were read.
    #[prost(string, tag = "11")]
    pub attributes_problem: String,
    /// Attributes that only root may set are included.
    #[prost(bool, tag = "12")]
    pub has_privileged: bool,
    /// File flags, see `carrack_model::FileFlags`; empty if not requested or not supported.
    #[prost(bytes = "vec", tag = "13")]
    pub flags: Vec<u8>,
}

/// A user or group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExaminedOwner {
    /// User or group number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// User or group name, 64 bytes at most; empty if there is none, and for root.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

/// An extended attribute or ACL, or, for an entry with very many, the digest of a whole name space
/// (`user.*`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExaminedAttribute {
    /// Name with its name space.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// First 16 bytes of the BLAKE3 of the value.
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

/// Queries the digests of pieces of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HashPiecesRequest {
    /// Relative to the session's path.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// As in `LookRequest`.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Bytes that the file must have.
    #[prost(uint64, tag = "3")]
    pub file_size: u64,
    /// Start of the range, a multiple of 1 MiB.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// Bytes of the range.
    #[prost(uint64, tag = "5")]
    pub len: u64,
    /// Bytes of a piece: a power of two from 1 KiB to 1 MiB, with 1,024 pieces at most.
    #[prost(uint32, tag = "6")]
    pub piece_bytes: u32,
    /// The range belongs to a partial comparison: it begins anywhere, the file may be longer than
    /// `file_size`, and each piece has a hash of its own.
    #[prost(bool, tag = "7")]
    pub by_itself: bool,
}

/// The digests, or the reason why there are none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PieceDigestsMessage {
    /// 32 bytes for each piece: its chaining value in the file's BLAKE3 tree, or the BLAKE3 of the piece
    /// alone.
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
    /// Reason why the file can't be read; empty if it was.
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// Ends the comparison.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct VerifyDoneMessage {}
