//! The messages of a session in which files are compared: questions about names, and answers in their order.
//!
//! Nothing but digests travels. `docs/formats/wire.md` lists every field with its unit.

/// What is to be examined.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Verify {
    /// The caller's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// As typed: a file, a link, or the directory where the paths of the questions begin.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// What the caller may, where a daemon asks: a bearer token; empty for none.
    #[prost(string, tag = "3")]
    pub token: String,
    /// Files are read past the page cache where the file system can.
    #[prost(bool, tag = "4")]
    pub past_cache: bool,
    /// A link that leads to a directory is followed, as a destination's is; else only with a trailing slash.
    #[prost(bool, tag = "5")]
    pub is_destination: bool,
    /// Threads that the caller would like; 0 to choose.
    #[prost(uint32, tag = "6")]
    pub threads: u32,
}

/// Asks for what comes next on a walk through everything.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WalkOn {
    /// Where the walk begins; the same in every one of them until it is over.
    #[prost(bytes = "vec", tag = "1")]
    pub beneath: Vec<u8>,
    /// Devices, pipes and sockets are names too; else they are told as skipped.
    #[prost(bool, tag = "2")]
    pub specials: bool,
}

/// Some names of one directory, or something that is none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Walked {
    /// Beneath where the session's paths begin.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// Files, links and what else was asked for, 257 at most; an empty one first where the directory itself is met.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub names: Vec<Vec<u8>>,
    /// Something that can't be looked at.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<super::message::Failure>,
    /// A pipe, socket or device; its path as this end knows it, and what it is.
    #[prost(message, optional, tag = "4")]
    pub skipped: Option<super::message::Failure>,
    /// That was all; nothing else is told.
    #[prost(bool, tag = "5")]
    pub is_over: bool,
}

/// Asks what stands at names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Look {
    /// Beneath where the session's paths begin.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// 257 at most; an empty one means the directory's own path.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub names: Vec<Vec<u8>>,
    /// Files of 1 MiB at most are read.
    #[prost(bool, tag = "3")]
    pub digests: bool,
    /// Metadata are told.
    #[prost(bool, tag = "4")]
    pub metadata: bool,
    /// Which of those that cost a system call are told: bits as in `Settings.kept`.
    #[prost(uint32, tag = "5")]
    pub kept: u32,
}

/// What stands there, in the order of the names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Seen {
    /// As many as names.
    #[prost(message, repeated, tag = "1")]
    pub sights: Vec<Sight>,
}

/// What stands at one name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sight {
    /// 0 something else, 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 device; 8 nothing, 9 it can't be read.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Bytes of a file.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// Another one after every change that the file system tells of; of no other meaning.
    #[prost(fixed64, tag = "3")]
    pub stamp: u64,
    /// BLAKE3 of a file that was read, or of a link's text; else empty.
    #[prost(bytes = "vec", tag = "4")]
    pub digest: Vec<u8>,
    /// Why it can't be read, 200 bytes at most.
    #[prost(string, tag = "5")]
    pub detail: String,
    /// What a device, pipe or socket is, see `carrack_model::Special`; else empty, as from one that does not tell.
    #[prost(bytes = "vec", tag = "6")]
    pub special: Vec<u8>,
    /// Where metadata were asked for, and something stands there.
    #[prost(message, optional, tag = "7")]
    pub metadata: Option<SightMetadata>,
}

/// The metadata of an entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SightMetadata {
    /// Permission bits, at most `07777`.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    /// Modification time, seconds since 1970.
    #[prost(int64, tag = "2")]
    pub mtime_s: i64,
    /// And nanoseconds.
    #[prost(uint32, tag = "3")]
    pub mtime_ns: u32,
    /// Nanoseconds of which the file system seems to store multiples.
    #[prost(uint32, tag = "4")]
    pub time_unit_ns: u32,
    /// Names that the file has.
    #[prost(uint32, tag = "5")]
    pub names: u32,
    /// Which file it is: the same number under each of its names, in this session.
    #[prost(fixed64, tag = "6")]
    pub identity: u64,
    /// Bytes that the storage holds of it.
    #[prost(uint64, tag = "7")]
    pub allocated_bytes: u64,
    /// Whose it is, if owners were asked for.
    #[prost(message, optional, tag = "8")]
    pub user: Option<SightAccount>,
    /// Its group, if groups were asked for.
    #[prost(message, optional, tag = "9")]
    pub group: Option<SightAccount>,
    /// Its attributes and ACLs, if they were asked for.
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<SightAttribute>,
    /// Why not all of them can be read, 200 bytes at most; empty if they could.
    #[prost(string, tag = "11")]
    pub attributes_problem: String,
    /// Attributes that only root may set are among them.
    #[prost(bool, tag = "12")]
    pub has_privileged: bool,
    /// File flags, see `carrack_model::FileFlags`; empty if they were not asked for, or there are none to tell.
    #[prost(bytes = "vec", tag = "13")]
    pub flags: Vec<u8>,
}

/// A user or group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SightAccount {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Its name, 64 bytes at most; empty for none, and for root.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

/// An extended attribute or ACL; or, under a name such as `user.*`, all that an entry with very many has in one name space.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SightAttribute {
    /// With its name space.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// The first 16 bytes of the BLAKE3 of its value.
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

/// Asks for the digests of pieces of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HashPieces {
    /// Beneath where the session's paths begin.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// As in `Look`.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Bytes of the file, which has to have as many.
    #[prost(uint64, tag = "3")]
    pub file_size: u64,
    /// Where the range begins, a multiple of 1 MiB.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// Its bytes.
    #[prost(uint64, tag = "5")]
    pub len: u64,
    /// Bytes of a piece: a power of two from 1 KiB to 1 MiB, such that there are 1,024 pieces at most.
    #[prost(uint32, tag = "6")]
    pub piece_bytes: u32,
    /// It is of a part of a file: that may be longer than `file_size` and the range begins anywhere; each piece is hashed by itself.
    #[prost(bool, tag = "7")]
    pub by_itself: bool,
}

/// The digests, or why there are none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pieces {
    /// 32 bytes for each piece: its subtree's value in the file's BLAKE3 tree, or its BLAKE3 by itself.
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
    /// Why the file can't be read; empty if it was.
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// Nothing else will be asked.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct VerifyEnd {}
