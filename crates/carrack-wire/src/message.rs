//! Control messages: protocol buffers, so that fields which a peer does not know are skipped.
//!
//! The names follow LADS (L4) where it has them. `docs/formats/wire.md` lists every field with its unit.

use prost::Message as _;

pub use crate::sync_message::{Prune, Pruned, Selection, Stand, Stands, Sync};
pub use crate::verify_message::{
    HashPieces, Look, Pieces, Seen, Sight, SightAccount, SightAttribute, SightMetadata, Verify, VerifyEnd,
    WalkOn, Walked,
};

/// Why bytes are not a control message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not decodable.
    #[error("a control message that can't be read: {0}")]
    Malformed(String),
    /// A message without a body, or of a kind from the future.
    #[error("a control message of a kind that is not known here")]
    Unknown,
    /// A field out of range.
    #[error("a control message with {0} out of range")]
    OutOfRange(&'static str),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(
        oneof = "Control",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48"
    )]
    body: Option<Control>,
}

/// A control message.
#[derive(Clone, PartialEq, prost::Oneof)]
// The largest is sent once in a session; nobody keeps many.
#[allow(clippy::large_enum_variant)]
pub enum Control {
    /// Initiator → other end, first.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// The answer to `Hello`.
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    /// Either way, instead of going on: why not.
    #[prost(message, tag = "3")]
    Refuse(Refuse),
    /// Source → sink: where the tree goes.
    #[prost(message, tag = "4")]
    Place(Place),
    /// Initiator → other end: dial these addresses.
    #[prost(message, tag = "5")]
    Dial(Listening),
    /// The end that dialled → the other: no data connection could be made. If they stand, nothing is said.
    #[prost(message, tag = "6")]
    DialFailed(DialFailed),
    /// Source → sink: large files begin (LADS: NEW_FILE).
    #[prost(message, tag = "7")]
    OpenFile(OpenFile),
    /// Source → sink: every object of the file is done; rename it (LADS: FILE_DONE).
    #[prost(message, tag = "8")]
    CommitFile(FileRef),
    /// Source → sink: the file is given up; no object of it is on its way.
    #[prost(message, tag = "9")]
    AbandonFile(FileRef),
    /// Sink → source: objects written (LADS: BLOCK_DONE), or put on flash; each returns a credit once.
    #[prost(message, tag = "10")]
    ObjectsDone(ObjectsDone),
    /// Sink → source: the file is complete under its name.
    #[prost(message, tag = "11")]
    FileDone(FileRef),
    /// Sink → source: the file can't be written.
    #[prost(message, tag = "12")]
    FileFailed(FileRef),
    /// Either way: an entry failed.
    #[prost(message, tag = "13")]
    Failure(Failure),
    /// Either way: something worth knowing.
    #[prost(message, tag = "14")]
    Notice(Notice),
    /// Either way, twice a second: counters.
    #[prost(message, tag = "15")]
    Counters(Counters),
    /// Sink → source: a file's BLAKE3 digest.
    #[prost(message, tag = "16")]
    Digest(Digest),
    /// In a dry run: this would be copied (source → sink) or removed (sink → source).
    #[prost(message, tag = "17")]
    WouldCopy(WouldCopy),
    /// Source → sink: everything is done but the directories' metadata.
    #[prost(message, tag = "18")]
    Finish(Finish),
    /// Sink → source: that is done too; the session is over.
    #[prost(message, tag = "19")]
    Finished(Counters),
    /// Either way: the session ends here, unfinished.
    #[prost(message, tag = "20")]
    Abort(Refuse),
    /// Either way, when nothing else was said for a while.
    #[prost(message, tag = "21")]
    Heartbeat(Heartbeat),
    /// Sink → source: where a large file lies at the sink (LADS: FILE_ID).
    #[prost(message, tag = "22")]
    FilePlaced(FilePlaced),
    /// To the end that the user started: the targets of the other, as they are now.
    #[prost(message, tag = "23")]
    Targets(Targets),
    /// Caller → called end, first, instead of `Hello`: nothing is to be copied.
    #[prost(message, tag = "24")]
    Browse(Browse),
    /// Called end → caller: some of what `Browse` asked for.
    #[prost(message, tag = "25")]
    Entries(Entries),
    /// Called end → caller: that was all.
    #[prost(message, tag = "26")]
    BrowseDone(BrowseDone),
    /// Source → sink, where the sink has a journal: these were found; which of them are wanted?
    #[prost(message, tag = "27")]
    Offer(Offer),
    /// Sink → source: the answer to an offer.
    #[prost(message, tag = "28")]
    Wanted(Wanted),
    /// Sink → source, instead of `FileDone`: read again from the storage, these bytes are not what was written.
    #[prost(message, tag = "29")]
    FileLacks(FileLacks),
    /// Source → sink: it knows that everything is there; what was kept for another session need not be kept.
    #[prost(message, tag = "30")]
    Leave(Leave),
    /// Source → sink, instead of `CommitFile`: this session's part of the file is done; others write it too.
    #[prost(message, tag = "31")]
    ShelveFile(FileRef),
    /// Source → sink: everything of a chunk was answered; make it durable and record it.
    #[prost(message, tag = "32")]
    Settle(Mark),
    /// Sink → source: that is done.
    #[prost(message, tag = "33")]
    Settled(Mark),
    /// Source → sink that has told its slots: how the session's knobs stand from now on.
    #[prost(message, tag = "34")]
    Knobs(Knobs),
    /// Source → sink, in a sync that deletes: everything is sent; remove what is not at the source.
    #[prost(message, tag = "35")]
    Prune(Prune),
    /// Sink → source: which of these names are there?
    #[prost(message, tag = "36")]
    Stand(Stand),
    /// Source → sink: the answer.
    #[prost(message, tag = "37")]
    Stands(Stands),
    /// Sink → source: that is done.
    #[prost(message, tag = "38")]
    Pruned(Pruned),
    /// Either way, once the data connections stand, where `Welcome` chose a fabric: how the lanes are reached on it.
    #[prost(message, tag = "39")]
    Fabric(FabricLanes),
    /// Caller → called end, first, instead of `Hello`: files are to be compared.
    #[prost(message, tag = "40")]
    Verify(Verify),
    /// Caller → called end: the next names.
    #[prost(message, tag = "41")]
    WalkOn(WalkOn),
    /// Called end → caller: the answer.
    #[prost(message, tag = "42")]
    Walked(Walked),
    /// Caller → called end: what stands at these names?
    #[prost(message, tag = "43")]
    Look(Look),
    /// Called end → caller: the answer.
    #[prost(message, tag = "44")]
    Seen(Seen),
    /// Caller → called end: the digests of a file's pieces.
    #[prost(message, tag = "45")]
    HashPieces(HashPieces),
    /// Called end → caller: the answer.
    #[prost(message, tag = "46")]
    Pieces(Pieces),
    /// Caller → called end: that was all; the session is over.
    #[prost(message, tag = "47")]
    VerifyEnd(VerifyEnd),
    /// Source → sink that has said that its user watches: the source in detail.
    #[prost(message, tag = "48")]
    SourceDetail(SourceDetail),
}

impl Control {
    /// The body of a control frame.
    pub fn to_body(self) -> Vec<u8> {
        Envelope { body: Some(self) }.encode_to_vec()
    }

    /// Reads the body of a control frame.
    pub fn from_body(body: &[u8]) -> Result<Control, MessageError> {
        let envelope = Envelope::decode(body).map_err(|e| MessageError::Malformed(e.to_string()))?;
        envelope.body.ok_or(MessageError::Unknown)
    }
}

/// Who calls, with what.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// The caller's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// The session key, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub session_key: Vec<u8>,
    /// What is to be done.
    #[prost(message, optional, tag = "3")]
    pub spec: Option<Spec>,
    /// The caller is the source: this destination is meant.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub destination: Option<Vec<u8>>,
    /// The caller is the sink: these sources are meant.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub sources: Vec<Vec<u8>>,
    /// The caller is the sink: what it is like.
    #[prost(message, optional, tag = "6")]
    pub sink: Option<SinkState>,
    /// The caller listens for data connections.
    #[prost(message, optional, tag = "7")]
    pub listening: Option<Listening>,
    /// Local settings that the caller passes on to the other end.
    #[prost(message, optional, tag = "8")]
    pub settings: Option<Settings>,
    /// The lanes that the caller would like.
    #[prost(message, optional, tag = "9")]
    pub lanes: Option<Lanes>,
    /// What the caller may, where a daemon asks: a bearer token; empty for none.
    #[prost(string, tag = "10")]
    pub token: String,
    /// The caller only controls: the data goes between the end that is called and a third one, to which the caller told
    /// the same session key.
    #[prost(bool, tag = "11")]
    pub third_party: bool,
    /// Which transfer it is, so that an earlier session's journal is found again.
    #[prost(message, optional, tag = "12")]
    pub transfer: Option<TransferRef>,
    /// The caller would have the objects go over a fabric (RMA).
    #[prost(message, optional, tag = "13")]
    pub fabric: Option<FabricWish>,
}

/// Fabrics that the caller can use.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricWish {
    /// The best first.
    #[prost(message, repeated, tag = "1")]
    pub networks: Vec<FabricNetwork>,
    /// It has to be one of them.
    #[prost(bool, tag = "2")]
    pub is_forced: bool,
    /// The same for two processes that can read each other's memory; opaque, empty where that is not known.
    #[prost(bytes = "vec", tag = "3")]
    pub host: Vec<u8>,
}

/// A network of a libfabric provider.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricNetwork {
    /// The provider, as libfabric names it.
    #[prost(string, tag = "1")]
    pub provider: String,
    /// The network, as libfabric names it; empty where that is the same for all.
    #[prost(string, tag = "2")]
    pub network: String,
}

/// What the called end chose.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricChoice {
    /// One of the wish; nothing for TCP.
    #[prost(message, optional, tag = "1")]
    pub network: Option<FabricNetwork>,
    /// Why it is TCP.
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// An end's endpoints on the fabric.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricLanes {
    /// The name of each lane's, as libfabric gives it (`fi_getname`).
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub names: Vec<Vec<u8>>,
    /// Why there are none; then it is TCP for both ends.
    #[prost(string, tag = "2")]
    pub problem: String,
}

impl Hello {
    /// Bytes that its message takes, but for a few of the envelope's.
    pub fn byte_count(&self) -> usize {
        self.encoded_len()
    }
}

/// A transfer, over the sessions that carry it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TransferRef {
    /// 16 bytes, the same for the same sources and destination.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// 16 random bytes of one run of the command.
    #[prost(bytes = "vec", tag = "2")]
    pub run: Vec<u8>,
    /// The sources as typed, for people.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub sources: Vec<Vec<u8>>,
    /// The destination as typed, for people.
    #[prost(bytes = "vec", tag = "4")]
    pub destination: Vec<u8>,
    /// Several sessions carry it at the same time, each with a journal of its own.
    #[prost(bool, tag = "5")]
    pub shared: bool,
}

/// What an end says of the number of lanes; see `docs/formats/wire.md` for how they agree.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Lanes {
    /// As many as its machine has places for.
    #[prost(uint32, tag = "1")]
    pub wanted: u32,
    /// As many as its storage and memory keep busy.
    #[prost(uint32, tag = "2")]
    pub most: u32,
}

/// Settings of the caller that the other end takes over, as far as it has none of its own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Settings {
    /// Bytes of the slot pool; 0 for the default.
    #[prost(uint64, tag = "1")]
    pub pool_bytes: u64,
    /// I/O threads; 0 for the default.
    #[prost(uint32, tag = "2")]
    pub io_threads: u32,
    /// First port to listen on; 0 for any.
    #[prost(uint32, tag = "3")]
    pub port_first: u32,
    /// Last port to listen on.
    #[prost(uint32, tag = "4")]
    pub port_last: u32,
    /// How the source reads: 0 auto, 1 buffered, 2 direct.
    #[prost(uint32, tag = "5")]
    pub source_io: u32,
    /// How the sink writes: 0 auto, 1 buffered, 2 direct, 3 writeback.
    #[prost(uint32, tag = "6")]
    pub sink_io: u32,
    /// Policy: 0 adaptive, 1 round-robin, 2 threshold, 3 adaptive and nice.
    #[prost(uint32, tag = "7")]
    pub policy: u32,
    /// Threshold: the window W in ms.
    #[prost(uint32, tag = "8")]
    pub window_ms: u32,
    /// Threshold: T in ms.
    #[prost(uint32, tag = "9")]
    pub threshold_ms: u32,
    /// Threshold: M.
    #[prost(uint32, tag = "10")]
    pub skips: u32,
    /// Bytes a second over all targets; 0 for no limit.
    #[prost(uint64, tag = "11")]
    pub rate: u64,
    /// Bytes a second for each target; 0 for no limit.
    #[prost(uint64, tag = "12")]
    pub target_rate: u64,
    /// Requests to one target at a time; 0 for the storage's own.
    #[prost(uint32, tag = "13")]
    pub in_flight_max: u32,
    /// Directories whose mounts are a target each.
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub target_sets: Vec<Vec<u8>>,
    /// Whether files that were released to an archive are read, which recalls them.
    #[prost(bool, tag = "15")]
    pub recall: bool,
    /// Lanes; 0 to choose.
    #[prost(uint32, tag = "16")]
    pub lanes: u32,
    /// Placement: 0 auto, 1 off, 2 single, 3 MMB, 4 MTS.
    #[prost(uint32, tag = "17")]
    pub placement: u32,
    /// Core zone: 0 off, 1 soft, 2 hard, 3 auto.
    #[prost(uint32, tag = "18")]
    pub zone: u32,
    /// Silence, or a data path on which nothing moves, after which the session ends, in ms; 0 for the default.
    #[prost(uint32, tag = "19")]
    pub stall_ms: u32,
    /// When data is made durable: 0 in groups, 1 each object, 2 at the end.
    #[prost(uint32, tag = "20")]
    pub durability: u32,
    /// No journal is kept.
    #[prost(bool, tag = "21")]
    pub no_journal: bool,
    /// The sink's directory for journals; empty for beside the destination.
    #[prost(bytes = "vec", tag = "22")]
    pub journal_dir: Vec<u8>,
    /// What was written is read again from the storage.
    #[prost(bool, tag = "23")]
    pub readback: bool,
    /// Bytes of a group that is made durable together; 0 for the default.
    #[prost(uint64, tag = "24")]
    pub group_bytes: u64,
    /// Milliseconds after which it is at the latest; 0 for the default.
    #[prost(uint32, tag = "25")]
    pub group_ms: u32,
    /// The class of the transfer where targets are shared out; empty for none.
    #[prost(string, tag = "26")]
    pub class: String,
    /// When the transfer has to be done, in milliseconds since 1970; 0 for whenever.
    #[prost(uint64, tag = "27")]
    pub deadline_ms: u64,
    /// Where the source puts objects that can't leave.
    #[prost(message, repeated, tag = "28")]
    pub spill: Vec<SpillDirectory>,
    /// Bytes that may be written there, all together; 0 for any number.
    #[prost(uint64, tag = "29")]
    pub spill_budget: u64,
    /// Whether threads and connections stay as they are at the start.
    #[prost(bool, tag = "30")]
    pub no_tune: bool,
    /// What the source tells beyond mode and time: bits, see `carrack_model::Kept`.
    #[prost(uint32, tag = "31")]
    pub kept: u32,
    /// Owners are told by their numbers only.
    #[prost(bool, tag = "32")]
    pub numeric_ids: bool,
    /// Whose everything becomes.
    #[prost(message, optional, tag = "33")]
    pub user: Option<Account>,
    /// The group that everything gets.
    #[prost(message, optional, tag = "34")]
    pub group: Option<Account>,
    /// Which entries the source takes; all if nothing is said.
    #[prost(message, optional, tag = "35")]
    pub selection: Option<Selection>,
    /// Whose entries become, by whose they are: rules as `carrack_model::AccountMap` reads them; empty for none. A source knows of
    /// it that says `maps_owners` in its `Welcome`.
    #[prost(string, tag = "36")]
    pub user_map: String,
    /// Likewise for groups.
    #[prost(string, tag = "37")]
    pub group_map: String,
    /// Every entry gets the mode that it has at the source; else what is there keeps its mode, and what is new is made by the umask of
    /// the sink.
    #[prost(bool, tag = "50")]
    pub perms: bool,
    /// What the sink changes in the modes of the source: clauses as `carrack_model::ModeChange` reads them; empty for nothing. A sink
    /// knows of it that says `changes_modes` in its `SinkState`.
    #[prost(string, tag = "51")]
    pub mode_change: String,
    /// The sink sets no modification times; likewise.
    #[prost(bool, tag = "52")]
    pub omit_times: bool,
    /// It sets none of directories; likewise.
    #[prost(bool, tag = "53")]
    pub omit_dir_times: bool,
    /// Where the sink puts objects that its storage does not take.
    #[prost(message, repeated, tag = "40")]
    pub sink_spill: Vec<SpillDirectory>,
    /// The largest segments of the data connections, either way (TCP_MAXSEG); 0 for the system's choice.
    #[prost(uint32, tag = "48")]
    pub segment_bytes: u32,
}

/// A user or a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Account {
    /// Its number; nothing if only the name is known.
    #[prost(uint32, optional, tag = "1")]
    pub number: Option<u32>,
    /// Its name; empty if only the number is known.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

/// A directory on flash.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpillDirectory {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub directory: Vec<u8>,
    /// Bytes of it that may be used.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// The values that both ends agree on; see `carrack_model::TransferSpec`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Spec {
    /// Directories are copied.
    #[prost(bool, tag = "1")]
    pub recursive: bool,
    /// Only scan.
    #[prost(bool, tag = "2")]
    pub dry_run: bool,
    /// 0 none, 1 XXH3-128, 2 BLAKE3.
    #[prost(uint32, tag = "3")]
    pub checksum: u32,
    /// Report digests.
    #[prost(bool, tag = "4")]
    pub report_digests: bool,
    /// Bytes of a slot.
    #[prost(uint32, tag = "5")]
    pub slot_bytes: u32,
    /// Data connections; 0: the end that dials chooses.
    #[prost(uint32, tag = "6")]
    pub streams: u32,
    /// 0 either, 1 the source dials, 2 the sink.
    #[prost(uint32, tag = "7")]
    pub dial_from: u32,
    /// How large files are striped at the sink: 0 by default, 1 preserve, 2 auto, 3 as `stripes` says.
    #[prost(uint32, tag = "8")]
    pub stripe: u32,
    /// With `stripe` 3.
    #[prost(message, optional, tag = "9")]
    pub stripes: Option<Stripes>,
    /// How the data is protected: 0 private, 1 safe, 2 clear.
    #[prost(uint32, tag = "10")]
    pub protection: u32,
    /// Cipher of the seals: 0 AES-256-GCM, 1 AES-128-GCM, 2 ChaCha20-Poly1305.
    #[prost(uint32, tag = "11")]
    pub cipher: u32,
    /// What the sink has already is not sent; nothing for a plain copy.
    #[prost(message, optional, tag = "12")]
    pub sync: Option<Sync>,
    /// The only source becomes the destination.
    #[prost(bool, tag = "13")]
    pub no_target_directory: bool,
    /// What is copied of the only source, a regular file; nothing for all of it.
    #[prost(message, optional, tag = "14")]
    pub part: Option<Part>,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Part {
    /// Its first byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Bytes at most, at least 1; nothing for all up to the end of the file.
    #[prost(uint64, optional, tag = "2")]
    pub length: Option<u64>,
}

impl Spec {
    /// Its bytes: the same for the same specification, at both ends.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

/// A striping without a place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stripes {
    /// Targets; 2^32-1 for all there are, 0 for the default.
    #[prost(uint32, tag = "1")]
    pub count: u32,
    /// Bytes of a stripe; 0 for the default.
    #[prost(uint64, tag = "2")]
    pub stripe_bytes: u64,
    /// Pool of targets; empty for the default.
    #[prost(string, tag = "3")]
    pub pool: String,
}

/// The answer of the end that was called.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    /// Its version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// It is the sink: what it is like.
    #[prost(message, optional, tag = "2")]
    pub sink: Option<SinkState>,
    /// It is the source: where the tree goes.
    #[prost(message, optional, tag = "3")]
    pub place: Option<Place>,
    /// It listens for data connections.
    #[prost(message, optional, tag = "4")]
    pub listening: Option<Listening>,
    /// The lanes of the session.
    #[prost(uint32, tag = "5")]
    pub lanes: u32,
    /// It is the source: what it tells beyond mode and time, as bits; see `carrack_model::Kept`.
    #[prost(uint32, tag = "6")]
    pub kept: u32,
    /// It is the source, and knows of selections and of [`Sync`].
    #[prost(bool, tag = "7")]
    pub selects: bool,
    /// The answer to the caller's wish for a fabric.
    #[prost(message, optional, tag = "8")]
    pub fabric: Option<FabricChoice>,
    /// It is the source, and knows of `follows_links` and `safe_links` of a [`Selection`].
    #[prost(bool, tag = "9")]
    pub knows_links: bool,
    /// It is the source, and knows of `deletes_first` of a [`Sync`].
    #[prost(bool, tag = "10")]
    pub prunes_first: bool,
    /// It is the source, and knows of `user_map` and `group_map` of [`Settings`].
    #[prost(bool, tag = "11")]
    pub maps_owners: bool,
}

/// What the source must know of the sink.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SinkState {
    /// What stands at the destination: 0 nothing, 1 a directory, 2 something else.
    #[prost(uint32, tag = "1")]
    pub destination: u32,
    /// The destination was written with a trailing slash.
    #[prost(bool, tag = "2")]
    pub wants_directory: bool,
    /// The destination's last name, for a file that gets it; empty if it has none.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    /// Tells whether both ends are on one host; opaque.
    #[prost(bytes = "vec", tag = "4")]
    pub host: Vec<u8>,
    /// Device and inode of the destination (or of its parent while it does not exist) and of every directory above.
    #[prost(uint64, repeated, tag = "5")]
    pub ancestors: Vec<u64>,
    /// Free slots: how many objects the source may have on their way.
    #[prost(uint32, tag = "6")]
    pub credits: u32,
    /// It writes to several targets, and says of each large file where that lies.
    #[prost(bool, tag = "7")]
    pub has_targets: bool,
    /// It has a journal of this transfer: the source offers what it finds.
    #[prost(bool, tag = "8")]
    pub resumes: bool,
    /// What it keeps beyond mode and time: bits, see `carrack_model::Kept`.
    #[prost(uint32, tag = "9")]
    pub kept: u32,
    /// It takes files with holes that are told, see `OpenFile`.
    #[prost(bool, tag = "10")]
    pub takes_holes: bool,
    /// It knows of [`Sync`].
    #[prost(bool, tag = "11")]
    pub syncs: bool,
    /// It knows of `mode_change`, `omit_times` and `omit_dir_times` of [`Settings`].
    #[prost(bool, tag = "20")]
    pub changes_modes: bool,
    /// Large files that may be open here at a time, as the descriptors of the process allow; 0 for any number that the protocol does.
    #[prost(uint32, tag = "21")]
    pub open_files: u32,
}

/// Where the tree goes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Place {
    /// Paths begin at: 0 the destination, a directory that exists; 1 the destination, to be created; 2 its parent.
    #[prost(uint32, tag = "1")]
    pub root: u32,
    /// The name of the only source within the destination, if it has one.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub name: Option<Vec<u8>>,
    /// What the same command means next: 0 the same, 1 a directory goes into one that is there, 2 it would next time.
    #[prost(uint32, tag = "3")]
    pub nesting: u32,
}

/// Where an end listens.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Listening {
    /// TCP port.
    #[prost(uint32, tag = "1")]
    pub port: u32,
    /// Addresses in text form, most promising first.
    #[prost(string, repeated, tag = "2")]
    pub addresses: Vec<String>,
    /// The nonce of [`crate::auth`], 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub nonce: Vec<u8>,
}

/// The end that dialled did not get through.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DialFailed {
    /// Why. (Field 1 was another thing in version 1.)
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// A reason to end, with a hint.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refuse {
    /// What is wrong.
    #[prost(string, tag = "1")]
    pub message: String,
    /// What to do; may be empty.
    #[prost(string, tag = "2")]
    pub hint: String,
    /// 0 the transfer can't be done, 1 the user interrupted it, 2 the network broke, 3 not now: another session may do it; 4 nothing moved
    /// on the data connections.
    #[prost(uint32, tag = "3")]
    pub reason: u32,
    /// With 3, when another session may do it, in milliseconds from now; 0 if that is not known.
    #[prost(uint32, tag = "4")]
    pub retry_after_ms: u32,
}

/// A large file begins.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenFile {
    /// Its id; ids rise.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// An entry table of one section and one entry.
    #[prost(bytes = "vec", tag = "2")]
    pub table: Vec<u8>,
    /// How it is striped at the source, where that is to be preserved and known.
    #[prost(message, optional, tag = "3")]
    pub stripes: Option<Stripes>,
    /// It is the file that was offered: what the sink said it holds of it does not come again.
    #[prost(bool, tag = "4")]
    pub goes_on: bool,
    /// Where several sessions carry the transfer: what of it comes in this one; all of it if nothing is said.
    #[prost(message, optional, tag = "5")]
    pub coming: Option<Coming>,
    /// Where it has holes, which don't come: offset and length, in bytes, of each; offsets rise, ranges don't touch. Only to a
    /// sink that takes them.
    #[prost(uint64, repeated, tag = "6")]
    pub holes: Vec<u64>,
}

/// What of a file comes in a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Coming {
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch. None if all of it is there.
    #[prost(uint64, repeated, tag = "1")]
    pub ranges: Vec<u64>,
    /// Other sessions bring the rest: it is shelved here, not committed.
    #[prost(bool, tag = "2")]
    pub is_part: bool,
    /// It has holes, and nothing that was brought before: the file is made if need be, also if nothing comes.
    #[prost(bool, tag = "3")]
    pub makes_file: bool,
}

/// A chunk of the session.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Mark {
    /// Counted by the source.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// Entries that the scan has found.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Offer {
    /// Counts from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// An entry table: some sections, 512 entries at most.
    #[prost(bytes = "vec", tag = "2")]
    pub table: Vec<u8>,
}

/// Which entries of an offer are wanted.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wanted {
    /// The offer's.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A bit for each entry, the first in the lowest bit of the first byte; 1: wanted.
    #[prost(bytes = "vec", tag = "2")]
    pub entries: Vec<u8>,
    /// Wanted files of which something is there.
    #[prost(message, repeated, tag = "3")]
    pub held: Vec<HeldRanges>,
    /// A bit for each section, as for entries; 1: the directory itself is not wanted. Empty if all are.
    #[prost(bytes = "vec", tag = "4")]
    pub sections_left: Vec<u8>,
}

/// What the sink holds of a file that was offered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeldRanges {
    /// The entry's place in the offer, from 0.
    #[prost(uint32, tag = "1")]
    pub entry: u32,
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch.
    #[prost(uint64, repeated, tag = "2")]
    pub ranges: Vec<u64>,
}

/// What of a file did not survive its way to the storage.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileLacks {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch.
    #[prost(uint64, repeated, tag = "2")]
    pub ranges: Vec<u64>,
}

/// A file of the session.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FileRef {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// Where a large file lies at the sink.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FilePlaced {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Bytes of a block, which lies on one target.
    #[prost(uint64, tag = "2")]
    pub block_bytes: u64,
    /// Numbers of the sink's targets, one for each block from the file's start; behind the last one it begins again.
    #[prost(uint64, repeated, tag = "3")]
    pub targets: Vec<u64>,
}

/// The targets of one end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Targets {
    /// Those that were used.
    #[prost(message, repeated, tag = "1")]
    pub targets: Vec<Target>,
}

/// One target as its end sees it; see `carrack_model::TargetReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Target {
    /// Its name.
    #[prost(string, tag = "1")]
    pub label: String,
    /// Bytes moved.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Items that wait.
    #[prost(uint64, tag = "3")]
    pub waiting: u64,
    /// Requests in flight.
    #[prost(uint32, tag = "4")]
    pub in_flight: u32,
    /// Most requests in flight; 0 for no limit.
    #[prost(uint32, tag = "5")]
    pub limit: u32,
    /// Normal service time of a 1 MiB object, in microseconds; 0 if it is not known.
    #[prost(uint64, tag = "6")]
    pub normal_us: u64,
    /// The same of late.
    #[prost(uint64, tag = "7")]
    pub recent_us: u64,
    /// Whether it is avoided now.
    #[prost(bool, tag = "8")]
    pub is_avoided: bool,
    /// How often it was found congested.
    #[prost(uint64, tag = "9")]
    pub avoided_count: u64,
}

/// Objects that reached their end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectsDone {
    /// Written (or dropped with their file).
    #[prost(uint64, repeated, tag = "1")]
    pub written: Vec<u64>,
    /// Failed the check: to be read again.
    #[prost(uint64, repeated, tag = "2")]
    pub corrupt: Vec<u64>,
    /// On flash: each returns its credit now, and none when it is answered once more.
    #[prost(uint64, repeated, tag = "3")]
    pub set_aside: Vec<u64>,
}

/// An entry that failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failure {
    /// Its path as the failing side knows it.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// `carrack_model::FailureKind`.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// In words.
    #[prost(string, tag = "3")]
    pub detail: String,
}

/// Something worth knowing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Notice {
    /// 0 text, 1 warning, 2 an entry was skipped, 3 what the tuner decided, 4 what the destination could not keep.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// In words.
    #[prost(string, tag = "2")]
    pub text: String,
    /// The entry, if it is about one.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// How many were not kept.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// What was not kept: 1 something that an entry has once, 2 something that it has any number of, 3 whole entries.
    #[prost(uint32, tag = "5")]
    pub lost: u32,
    /// The word for that.
    #[prost(string, tag = "6")]
    pub what: String,
    /// Why it was not kept.
    #[prost(string, tag = "7")]
    pub reason: String,
}

/// One end's counters since the start, and where its I/O threads' time went.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Counters {
    /// Source: entries found.
    #[prost(uint64, tag = "1")]
    pub entries_found: u64,
    /// Source: bytes in them.
    #[prost(uint64, tag = "2")]
    pub bytes_found: u64,
    /// Source: the scan has ended.
    #[prost(bool, tag = "3")]
    pub scan_done: bool,
    /// Sink: regular files complete.
    #[prost(uint64, tag = "4")]
    pub files_done: u64,
    /// Sink: directories complete.
    #[prost(uint64, tag = "5")]
    pub directories_done: u64,
    /// Sink: links complete.
    #[prost(uint64, tag = "6")]
    pub symlinks_done: u64,
    /// Sink: devices, pipes and sockets made.
    #[prost(uint64, tag = "31")]
    pub specials_done: u64,
    /// Sink: bytes written.
    #[prost(uint64, tag = "7")]
    pub bytes_done: u64,
    /// Entries that failed at this end.
    #[prost(uint64, tag = "8")]
    pub entries_failed: u64,
    /// Source: entries left out.
    #[prost(uint64, tag = "9")]
    pub entries_skipped: u64,
    /// Source: objects read again.
    #[prost(uint64, tag = "10")]
    pub objects_reread: u64,
    /// Nanoseconds in storage calls, all I/O threads together.
    #[prost(uint64, tag = "11")]
    pub storage_ns: u64,
    /// Nanoseconds in the network.
    #[prost(uint64, tag = "12")]
    pub network_ns: u64,
    /// Nanoseconds of waiting for work (source: the scan; sink: anything to arrive).
    #[prost(uint64, tag = "13")]
    pub idle_ns: u64,
    /// Source: nanoseconds of waiting for slots or credits.
    #[prost(uint64, tag = "14")]
    pub blocked_ns: u64,
    /// Sink: files and links that an earlier session had completed.
    #[prost(uint64, tag = "15")]
    pub entries_kept: u64,
    /// Sink: bytes that an earlier session had written.
    #[prost(uint64, tag = "16")]
    pub bytes_kept: u64,
    /// Sink: the links among `entries_kept`.
    #[prost(uint64, tag = "19")]
    pub symlinks_kept: u64,
    /// Sink: the devices, pipes and sockets among `entries_kept`.
    #[prost(uint64, tag = "32")]
    pub specials_kept: u64,
    /// Sink: I/O threads that are in storage calls now, and objects that wait for one. Source: threads that send straight
    /// from a file now, which may have to be read first. While it is not 0, the storage may be what is waited for.
    #[prost(uint32, tag = "17")]
    pub storage_busy: u32,
    /// Sink: bytes that arrived on the data connections, those of objects that are not whole included.
    #[prost(uint64, tag = "18")]
    pub bytes_arrived: u64,
    /// Sink: objects that wait for an I/O thread.
    #[prost(uint32, tag = "20")]
    pub write_waiting: u32,
    /// Sink: slots of all lanes, each for one object. A sink that tells none knows nothing of `Knobs`.
    #[prost(uint32, tag = "21")]
    pub write_slots: u32,
    /// Sink: I/O threads that write at a time at the start, where objects wait for their targets.
    #[prost(uint32, tag = "22")]
    pub write_threads: u32,
    /// Sink: entries that were removed.
    #[prost(uint64, tag = "23")]
    pub entries_deleted: u64,
    /// Sink: its user would see the source in detail. One that does not say so knows nothing of `SourceDetail`.
    #[prost(bool, tag = "24")]
    pub watches: bool,
    /// Source: something waits for a rate that the user set, and for nothing else.
    #[prost(bool, tag = "33")]
    pub held_by_rate: bool,
    /// Source: bytes of objects that were read.
    #[prost(uint64, tag = "25")]
    pub bytes_read: u64,
    /// Source: bytes of objects that have left.
    #[prost(uint64, tag = "26")]
    pub bytes_sent: u64,
    /// Source: entries that wait for an I/O thread.
    #[prost(uint64, tag = "27")]
    pub read_waiting: u64,
    /// Source: entries that can wait; 0 from one that does not tell.
    #[prost(uint64, tag = "28")]
    pub read_room: u64,
    /// Source: objects that were read and are not with the kernel.
    #[prost(uint64, tag = "29")]
    pub send_waiting: u64,
    /// Source: objects that can be so; 0 from one that does not tell.
    #[prost(uint64, tag = "30")]
    pub send_room: u64,
}

/// The source beyond its counters; see `carrack_model::SourceReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceDetail {
    /// Its lanes.
    #[prost(message, repeated, tag = "1")]
    pub lanes: Vec<LaneDetail>,
    /// Regular files found so far by the number of bits that their sizes have, from 0; 65 at most.
    #[prost(uint64, repeated, tag = "2")]
    pub size_counts: Vec<u64>,
    /// Large files on their way, those first that have been for longest.
    #[prost(message, repeated, tag = "3")]
    pub open: Vec<FileDetail>,
    /// Large files that are complete, those first that took longest.
    #[prost(message, repeated, tag = "4")]
    pub slowest: Vec<FileDetail>,
}

/// One lane of the source.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LaneDetail {
    /// Bytes of objects that have left on it.
    #[prost(uint64, tag = "1")]
    pub bytes_sent: u64,
    /// Objects that have left on it.
    #[prost(uint64, tag = "2")]
    pub objects_sent: u64,
    /// Objects that were read and are not with the kernel.
    #[prost(uint64, tag = "3")]
    pub send_waiting: u64,
    /// Objects that can be so.
    #[prost(uint64, tag = "4")]
    pub send_room: u64,
    /// I/O threads that read.
    #[prost(uint32, tag = "5")]
    pub readers: u32,
    /// Connections that are used.
    #[prost(uint32, tag = "6")]
    pub streams: u32,
}

/// A large file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileDetail {
    /// Its path at the source.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes of it that are sent in this session.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Those of them that are written.
    #[prost(uint64, tag = "3")]
    pub bytes_done: u64,
    /// How long it has been open, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub open_ms: u64,
}

/// What a source's tuner wants of the sink (Y5), over all lanes.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Knobs {
    /// Data connections that are used.
    #[prost(uint32, tag = "1")]
    pub streams: u32,
    /// I/O threads that write at a time, where objects wait for their targets.
    #[prost(uint32, tag = "2")]
    pub writers: u32,
}

/// A file's digest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Digest {
    /// Beneath the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// BLAKE3, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub blake3: Vec<u8>,
}

/// A line of a dry run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WouldCopy {
    /// Beneath the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// It would be removed, and the sink says so.
    #[prost(bool, tag = "3")]
    pub goes: bool,
}

/// The source is done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Finish {
    /// The source's counters at the end.
    #[prost(message, optional, tag = "1")]
    pub counters: Option<Counters>,
    /// Objects and bundles sent in all, each reading counted.
    #[prost(uint64, tag = "2")]
    pub objects_sent: u64,
    /// It was the last session of a transfer that several carry: their journals are not needed any more.
    #[prost(bool, tag = "3")]
    pub closes: bool,
}

/// What to do with one path beside copying.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Browse {
    /// The caller's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// 1 list a directory, 2 look at the path itself, 3 make a directory, 4 remove.
    #[prost(uint32, tag = "2")]
    pub operation: u32,
    /// As typed.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// Make: the directories above too, and it may be there. Remove: with everything in it.
    #[prost(bool, tag = "4")]
    pub deep: bool,
    /// What the caller may, where a daemon asks: a bearer token; empty for none.
    #[prost(string, tag = "5")]
    pub token: String,
}

/// Some entries, in the order of the file system.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entries {
    /// 256 at most.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<BrowsedEntry>,
}

/// One name and what stands there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BrowsedEntry {
    /// Empty where a directory was asked for that has none.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// 0 something else, 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 device; 7 an export, of which nothing
    /// else is told.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Seconds since 1970, may be negative.
    #[prost(int64, tag = "4")]
    pub mtime_s: i64,
    /// 0 to 999,999,999.
    #[prost(uint32, tag = "5")]
    pub mtime_ns: u32,
    /// Permission bits, at most `07777`.
    #[prost(uint32, tag = "6")]
    pub mode: u32,
    /// Number of the user.
    #[prost(uint32, tag = "7")]
    pub uid: u32,
    /// Number of the group.
    #[prost(uint32, tag = "8")]
    pub gid: u32,
}

/// It is done.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BrowseDone {
    /// Entries that were told, or removed; 1 for a directory that is there now.
    #[prost(uint64, tag = "1")]
    pub done: u64,
    /// Entries that failed, each of which was told by a `Failure`.
    #[prost(uint64, tag = "2")]
    pub failed: u64,
}

/// A farewell.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Leave {}

/// Nothing but a sign of life.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Heartbeat {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_format_document() {
        let message = Control::ObjectsDone(ObjectsDone {
            written: vec![1, 2, 300],
            corrupt: vec![],
            set_aside: vec![],
        });
        assert_eq!(message.clone().to_body(), b"\x52\x06\x0a\x04\x01\x02\xac\x02");
        assert_eq!(Control::from_body(b"\x52\x06\x0a\x04\x01\x02\xac\x02"), Ok(message));
    }

    #[test]
    fn skips_fields_from_the_future_and_names_unknown_messages() {
        let with_field_99 = b"\x52\x09\x0a\x04\x01\x02\xac\x02\x98\x06\x01";
        assert!(matches!(Control::from_body(with_field_99), Ok(Control::ObjectsDone(_))));
        assert_eq!(Control::from_body(b"\xfa\x06\x00"), Err(MessageError::Unknown));
        assert_eq!(Control::from_body(b""), Err(MessageError::Unknown));
        assert!(matches!(Control::from_body(b"\x52\xff"), Err(MessageError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Control::from_body(&bytes);
        }
    }
}
