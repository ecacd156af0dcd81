//! Control messages as protocol buffers, so that a peer skips fields it does not know.
//!
//! The names follow LADS (L4) where it has them. `docs/formats/wire.md` lists every field with its unit.

use prost::Message as _;

pub use crate::sync_message::{
    DeletionDoneMessage, PruneMessage, SourceExistenceQuery, SourceExistenceReply,
};
pub use crate::verify_message::{
    ExaminedAttribute, ExaminedEntriesMessage, ExaminedMetadata, ExaminedOwner, HashPiecesRequest,
    LookRequest, PieceDigestsMessage, VerifyDoneMessage, VerifyEntryMessage, VerifyOpenMessage, WalkRequest,
    WalkedNamesMessage,
};

/// Reasons why bytes are not a control message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not decodable.
    #[error("a control message that can't be read: {0}")]
    Malformed(String),
    /// A message without a body, or of a kind newer than this build.
    #[error("a control message of a kind that is not known here")]
    Unknown,
    /// A field out of range.
    #[error("a control message with {0} out of range")]
    OutOfRange(&'static str),
}

#[derive(Clone, PartialEq, prost::Message)]
struct SessionControlEnvelope {
    #[prost(
        oneof = "ControlMessage",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49"
    )]
    body: Option<ControlMessage>,
}

/// A control message.
#[derive(Clone, PartialEq, prost::Oneof)]
// The largest variant is sent once in a session, and few are held at a time.
#[allow(clippy::large_enum_variant)]
pub enum ControlMessage {
    /// Initiator → responder, first.
    #[prost(message, tag = "1")]
    Hello(HelloMessage),
    /// The answer to `HelloMessage`.
    #[prost(message, tag = "2")]
    Welcome(WelcomeMessage),
    /// Either way, in place of the expected message: the reason.
    #[prost(message, tag = "3")]
    Refuse(RefuseMessage),
    /// Source → sink: root of the tree at the destination.
    #[prost(message, tag = "4")]
    Place(DestinationRootMessage),
    /// Initiator → responder: dial these addresses.
    #[prost(message, tag = "5")]
    Dial(ListenAddresses),
    /// Dialing end → other end: no data connection could be made. Success needs no message.
    #[prost(message, tag = "6")]
    DialFailed(DialFailureMessage),
    /// Source → sink: large files begin (LADS: NEW_FILE).
    #[prost(message, tag = "7")]
    OpenFile(OpenFileMessage),
    /// Source → sink: all objects of the file are done; rename it (LADS: FILE_DONE).
    #[prost(message, tag = "8")]
    CommitFile(FileReference),
    /// Source → sink: the source gives the file up; none of its objects is in flight.
    #[prost(message, tag = "9")]
    AbandonFile(FileReference),
    /// Sink → source: objects written (LADS: BLOCK_DONE) or spilled; each returns its credit once.
    #[prost(message, tag = "10")]
    ObjectsDone(ObjectAcksMessage),
    /// Sink → source: the file is complete under its name.
    #[prost(message, tag = "11")]
    FileDone(FileReference),
    /// Sink → source: the file can't be written.
    #[prost(message, tag = "12")]
    FileFailed(FileReference),
    /// Either way: a failed entry.
    #[prost(message, tag = "13")]
    Failure(FailureMessage),
    /// Either way: information for the user.
    #[prost(message, tag = "14")]
    Notice(NoticeMessage),
    /// Counters, either way, twice a second.
    #[prost(message, tag = "15")]
    Counters(CountersMessage),
    /// Sink → source: a file's BLAKE3 digest.
    #[prost(message, tag = "16")]
    Digest(DigestMessage),
    /// In a dry run: an entry to copy (source → sink) or to delete (sink → source).
    #[prost(message, tag = "17")]
    WouldCopy(DryRunLine),
    /// Source → sink: everything is done but the directories' metadata.
    #[prost(message, tag = "18")]
    Finish(FinishMessage),
    /// Sink → source: the directories' metadata are set; the session is over.
    #[prost(message, tag = "19")]
    Finished(CountersMessage),
    /// Either way: the session ends unfinished.
    #[prost(message, tag = "20")]
    Abort(RefuseMessage),
    /// Either way, after a pause without other messages.
    #[prost(message, tag = "21")]
    Heartbeat(KeepaliveMessage),
    /// Sink → source: layout of a large file at the sink (LADS: FILE_ID).
    #[prost(message, tag = "22")]
    FilePlaced(SinkFileLayoutMessage),
    /// To the end that the user started: the current state of the other end's targets.
    #[prost(message, tag = "23")]
    Targets(TargetsMessage),
    /// Initiator → responder, first, in place of `HelloMessage`: no copy.
    #[prost(message, tag = "24")]
    Browse(PathOperationMessage),
    /// Responder → initiator: part of the entries that `PathOperationMessage` requested.
    #[prost(message, tag = "25")]
    Entries(BrowsedEntriesMessage),
    /// Responder → initiator: the last entry was sent.
    #[prost(message, tag = "26")]
    BrowseDone(BrowseDone),
    /// Source → sink with a journal: entries found by the scan, of which the sink picks the wanted ones.
    #[prost(message, tag = "27")]
    Offer(OfferedEntriesMessage),
    /// Sink → source: the answer to an offer.
    #[prost(message, tag = "28")]
    Wanted(WantedMessage),
    /// Sink → source, in place of `FileDone`: readback found these ranges changed.
    #[prost(message, tag = "29")]
    FileLacks(DamagedRanges),
    /// Source → sink: the transfer is complete; the sink may drop its state for later sessions.
    #[prost(message, tag = "30")]
    Leave(TransferCompleteMessage),
    /// Source → sink, in place of `CommitFile`: this session's part of the file is done; others write the
    /// rest.
    #[prost(message, tag = "31")]
    ShelveFile(FileReference),
    /// Source → sink: all objects of a chunk were answered; make them durable and record them.
    #[prost(message, tag = "32")]
    Settle(ChunkNumberMessage),
    /// Sink → source: the chunk is durable and recorded.
    #[prost(message, tag = "33")]
    Settled(ChunkNumberMessage),
    /// Source → sink that reports its slots: the tuner's new settings.
    #[prost(message, tag = "34")]
    Knobs(KnobsMessage),
    /// Source → sink, in a transfer with deletion: all entries are sent; delete those that the source does
    /// not have.
    #[prost(message, tag = "35")]
    Prune(PruneMessage),
    /// Sink → source: existence query.
    #[prost(message, tag = "36")]
    Stand(SourceExistenceQuery),
    /// Source → sink: existence reply.
    #[prost(message, tag = "37")]
    Stands(SourceExistenceReply),
    /// Sink → source: the deletion is done.
    #[prost(message, tag = "38")]
    Pruned(DeletionDoneMessage),
    /// Either way, after the data connections, if `WelcomeMessage` chose a fabric: the lanes' endpoints.
    #[prost(message, tag = "39")]
    Fabric(FabricEndpointsMessage),
    /// Initiator → responder, first, in place of `HelloMessage`: compare files.
    #[prost(message, tag = "40")]
    Verify(VerifyOpenMessage),
    /// Initiator → responder: request for the next names.
    #[prost(message, tag = "41")]
    WalkOn(WalkRequest),
    /// Responder → initiator: the next names.
    #[prost(message, tag = "42")]
    Walked(WalkedNamesMessage),
    /// Initiator → responder: query of the entries at some names.
    #[prost(message, tag = "43")]
    Look(LookRequest),
    /// Responder → initiator: the entries.
    #[prost(message, tag = "44")]
    Seen(ExaminedEntriesMessage),
    /// Initiator → responder: query of the digests of a file's pieces.
    #[prost(message, tag = "45")]
    HashPieces(HashPiecesRequest),
    /// Responder → initiator: the digests.
    #[prost(message, tag = "46")]
    Pieces(PieceDigestsMessage),
    /// Initiator → responder: the session is over.
    #[prost(message, tag = "47")]
    VerifyEnd(VerifyDoneMessage),
    /// Source → sink whose user watches: the source in detail.
    #[prost(message, tag = "48")]
    SourceDetail(SourceDetail),
    /// Source → sink that takes it: the file's bytes arrived in these ranges.
    #[prost(message, tag = "49")]
    RangesRead(ReadRanges),
}

impl ControlMessage {
    /// Encodes the body of a control frame.
    pub fn to_body(self) -> Vec<u8> {
        SessionControlEnvelope { body: Some(self) }.encode_to_vec()
    }

    /// Decodes the body of a control frame.
    pub fn from_body(body: &[u8]) -> Result<ControlMessage, MessageError> {
        let envelope =
            SessionControlEnvelope::decode(body).map_err(|e| MessageError::Malformed(e.to_string()))?;
        envelope.body.ok_or(MessageError::Unknown)
    }
}

/// The initiator's first message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HelloMessage {
    /// The initiator's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// The session key, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub session_key: Vec<u8>,
    /// The transfer specification: [`carrack_model::AgreedTransferSpec`] as JSON. (Field 3 was a message of
    /// its own until version 11.)
    #[prost(string, tag = "14")]
    pub spec: String,
    /// Destination, if the initiator is the source.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub destination: Option<Vec<u8>>,
    /// Sources, if the initiator is the sink.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub sources: Vec<Vec<u8>>,
    /// State of the sink, if the initiator is the sink.
    #[prost(message, optional, tag = "6")]
    pub sink: Option<SinkHandshakeFacts>,
    /// Addresses, if the initiator listens for data connections.
    #[prost(message, optional, tag = "7")]
    pub listening: Option<ListenAddresses>,
    /// The initiator's settings as JSON, used by the responder in place of its defaults. (Field 8 until
    /// version 11.)
    #[prost(string, tag = "15")]
    pub settings: String,
    /// Wanted lanes.
    #[prost(message, optional, tag = "9")]
    pub lanes: Option<LaneCountProposal>,
    /// Bearer token for a daemon that requires one; empty otherwise.
    #[prost(string, tag = "10")]
    pub token: String,
    /// The initiator only controls: the data flows between the responder and a third end that has the same
    /// session key.
    #[prost(bool, tag = "11")]
    pub third_party: bool,
    /// The transfer, by which an earlier session's journal is found.
    #[prost(message, optional, tag = "12")]
    pub transfer: Option<TransferIdentityMessage>,
    /// Fabrics for the objects (RMA).
    #[prost(message, optional, tag = "13")]
    pub fabric: Option<InitiatorFabricList>,
    /// Largest slots that the responder may choose in place of `slot_bytes` in `spec`; 0 if it may not.
    #[prost(uint32, tag = "16")]
    pub slot_bytes_max: u32,
    /// Size of objects that suits the source's storage, if the initiator is the source; 0 for any.
    #[prost(uint32, tag = "17")]
    pub object_bytes: u32,
    /// The user chose the size of objects: those of large files have `slot_bytes` on all storage.
    #[prost(bool, tag = "18")]
    pub has_chosen_object_size: bool,
}

/// Fabrics that the initiator can use.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InitiatorFabricList {
    /// In order of preference.
    #[prost(message, repeated, tag = "1")]
    pub networks: Vec<FabricNetwork>,
    /// TCP is no alternative.
    #[prost(bool, tag = "2")]
    pub is_forced: bool,
    /// Equal for two processes that can read each other's memory; opaque, empty if unknown.
    #[prost(bytes = "vec", tag = "3")]
    pub host: Vec<u8>,
}

/// A network of a libfabric provider.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricNetwork {
    /// The provider's name in libfabric.
    #[prost(string, tag = "1")]
    pub provider: String,
    /// The network's name in libfabric; empty if the provider has a single one.
    #[prost(string, tag = "2")]
    pub network: String,
}

/// The responder's choice of a fabric.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricChoice {
    /// One of the initiator's networks; none for TCP.
    #[prost(message, optional, tag = "1")]
    pub network: Option<FabricNetwork>,
    /// Reason for TCP.
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// An end's endpoints on the fabric.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FabricEndpointsMessage {
    /// Name of each lane's endpoint from `fi_getname`.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub names: Vec<Vec<u8>>,
    /// Reason why there are none; both ends then use TCP.
    #[prost(string, tag = "2")]
    pub problem: String,
}

impl HelloMessage {
    /// Encoded bytes, without a few of the envelope.
    pub fn byte_count(&self) -> usize {
        self.encoded_len()
    }
}

/// A transfer, which several sessions may carry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TransferIdentityMessage {
    /// 16 bytes, equal for equal sources and destination.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// 16 random bytes for each run of the command.
    #[prost(bytes = "vec", tag = "2")]
    pub run: Vec<u8>,
    /// The sources as typed, for people.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub sources: Vec<Vec<u8>>,
    /// The destination as typed, for people.
    #[prost(bytes = "vec", tag = "4")]
    pub destination: Vec<u8>,
    /// Several sessions carry the transfer at the same time, each with its own journal.
    #[prost(bool, tag = "5")]
    pub shared: bool,
}

/// An end's bounds on the number of lanes; see `docs/formats/wire.md` for the agreement.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LaneCountProposal {
    /// Lanes that the machine has room for.
    #[prost(uint32, tag = "1")]
    pub wanted: u32,
    /// Lanes that storage and memory keep busy.
    #[prost(uint32, tag = "2")]
    pub most: u32,
}

/// A striping, without its targets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StripingMessage {
    /// Number of targets; 2^32-1 for all, 0 for the default.
    #[prost(uint32, tag = "1")]
    pub count: u32,
    /// Bytes of a stripe; 0 for the default.
    #[prost(uint64, tag = "2")]
    pub stripe_bytes: u64,
    /// Pool of targets; empty for the default.
    #[prost(string, tag = "3")]
    pub pool: String,
    /// Components in the order of their starts, if the fields above are not all of it: they are those of the
    /// widest one.
    #[prost(message, repeated, tag = "4")]
    pub components: Vec<ComponentStripingMessage>,
    /// Replicas of the file; 0 if unknown.
    #[prost(uint32, tag = "5")]
    pub mirrors: u32,
}

/// The striping of a range of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ComponentStripingMessage {
    /// First byte.
    #[prost(uint64, tag = "1")]
    pub start: u64,
    /// Byte behind the last one; 2^64-1 for the end of the file.
    #[prost(uint64, tag = "2")]
    pub end: u64,
    /// As in [`StripingMessage`].
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// As in [`StripingMessage`].
    #[prost(uint64, tag = "4")]
    pub stripe_bytes: u64,
    /// As in [`StripingMessage`].
    #[prost(string, tag = "5")]
    pub pool: String,
    /// 0 stripes, 1 overstriped, 2 on the metadata target, 3 stripes in a part that grows.
    #[prost(uint32, tag = "6")]
    pub pattern: u32,
}

impl StripingMessage {
    /// Encodes the striping that a directory gives to new files, for an entry table.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Decodes the bytes from [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`MessageError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<StripingMessage, MessageError> {
        StripingMessage::decode(bytes).map_err(|error| MessageError::Malformed(error.to_string()))
    }
}

/// The responder's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WelcomeMessage {
    /// The responder's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// State of the sink, if the responder is the sink.
    #[prost(message, optional, tag = "2")]
    pub sink: Option<SinkHandshakeFacts>,
    /// Root of the tree, if the responder is the source.
    #[prost(message, optional, tag = "3")]
    pub place: Option<DestinationRootMessage>,
    /// Addresses, if the responder listens for data connections.
    #[prost(message, optional, tag = "4")]
    pub listening: Option<ListenAddresses>,
    /// The lanes of the session.
    #[prost(uint32, tag = "5")]
    pub lanes: u32,
    /// Metadata that the responder sends as source, beyond mode and time: bits of
    /// `carrack_model::KeptMetadata`.
    #[prost(uint32, tag = "6")]
    pub kept: u32,
    /// The choice among the initiator's fabrics.
    #[prost(message, optional, tag = "8")]
    pub fabric: Option<FabricChoice>,
    /// The session's slots, in place of `slot_bytes` in `spec`; 0 for those.
    #[prost(uint32, tag = "9")]
    pub slot_bytes: u32,
}

/// State of the sink that the source needs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SinkHandshakeFacts {
    /// Entry at the destination: 0 none, 1 a directory, 2 other.
    #[prost(uint32, tag = "1")]
    pub destination: u32,
    /// The user wrote the destination with a trailing slash.
    #[prost(bool, tag = "2")]
    pub wants_directory: bool,
    /// The destination's last name, for a file under that name; empty if it has none.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    /// Equal if both ends are on one host; opaque.
    #[prost(bytes = "vec", tag = "4")]
    pub host: Vec<u8>,
    /// Device and inode of the destination (or of its parent while it does not exist) and of every directory
    /// above.
    #[prost(uint64, repeated, tag = "5")]
    pub ancestors: Vec<u64>,
    /// Free slots: objects that the source may have in flight.
    #[prost(uint32, tag = "6")]
    pub credits: u32,
    /// The sink writes to several targets, and reports the layout of each large file.
    #[prost(bool, tag = "7")]
    pub has_targets: bool,
    /// The sink has a journal of this transfer: the source offers the entries it finds.
    #[prost(bool, tag = "8")]
    pub resumes: bool,
    /// Metadata that the sink keeps beyond mode and time: bits of `carrack_model::KeptMetadata`.
    #[prost(uint32, tag = "9")]
    pub kept: u32,
    /// Large files that may be open at a time, by the process's limit on descriptors; 0 for the protocol's
    /// limit.
    #[prost(uint32, tag = "21")]
    pub open_files: u32,
    /// Size of objects that suits the sink's storage; 0 for any.
    #[prost(uint32, tag = "22")]
    pub object_bytes: u32,
    /// The sink knows `OpenFileMessage.confirms` and `RangesRead`.
    #[prost(bool, tag = "23")]
    pub takes_confirmations: bool,
}

/// Root of the tree at the destination.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DestinationRootMessage {
    /// Root of all paths: 0 the destination, an existing directory; 1 the destination, to be created; 2 its
    /// parent.
    #[prost(uint32, tag = "1")]
    pub root: u32,
    /// Name of the only source within the destination, if it has one.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub name: Option<Vec<u8>>,
    /// Effect of repeating the command: 0 the same, 1 a directory nests in an existing one, 2 it would nest
    /// next time.
    #[prost(uint32, tag = "3")]
    pub nesting: u32,
}

/// Addresses of a listening end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListenAddresses {
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

/// The dialing end made no data connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DialFailureMessage {
    /// The reason. (Field 1 had another meaning in version 1.)
    #[prost(string, tag = "2")]
    pub problem: String,
}

/// A reason to end the session, with a hint.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RefuseMessage {
    /// The problem.
    #[prost(string, tag = "1")]
    pub message: String,
    /// Advice; may be empty.
    #[prost(string, tag = "2")]
    pub hint: String,
    /// 0 the transfer is impossible, 1 the user interrupted it, 2 the network broke, 3 busy, another session
    /// may succeed; 4 no progress on the data connections.
    #[prost(uint32, tag = "3")]
    pub reason: u32,
    /// With 3, the time until another session may succeed, in milliseconds; 0 if unknown.
    #[prost(uint32, tag = "4")]
    pub retry_after_ms: u32,
}

/// Opens a large file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenFileMessage {
    /// File ID; IDs rise.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// An entry table of one section and one entry.
    #[prost(bytes = "vec", tag = "2")]
    pub table: Vec<u8>,
    /// Striping at the source, if it is preserved and known.
    #[prost(message, optional, tag = "3")]
    pub stripes: Option<StripingMessage>,
    /// Resume of an offered file: the ranges that the sink holds are not sent again.
    #[prost(bool, tag = "4")]
    pub goes_on: bool,
    /// The ranges that this session sends, where several sessions carry the transfer; the whole file if
    /// absent.
    #[prost(message, optional, tag = "5")]
    pub coming: Option<RangesToSend>,
    /// Holes, which are not sent: offset and length of each, in bytes; offsets rise, ranges don't touch. Only
    /// for a sink that supports them.
    #[prost(uint64, repeated, tag = "6")]
    pub holes: Vec<u64>,
    /// Objects may carry zeros in place of bytes that could not be read. The source sends `RangesRead` for
    /// the others; until then a later session must not take a range for the file's.
    #[prost(bool, tag = "7")]
    pub confirms: bool,
}

/// The ranges of a file that a session sends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangesToSend {
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch. Empty if the sink has
    /// the whole file.
    #[prost(uint64, repeated, tag = "1")]
    pub ranges: Vec<u64>,
    /// Other sessions send the rest: the file is shelved here, not committed.
    #[prost(bool, tag = "2")]
    pub is_part: bool,
    /// The file has holes and no ranges from earlier sessions: the sink creates it, even if no range follows.
    #[prost(bool, tag = "3")]
    pub makes_file: bool,
    /// At the end of a file in parts: its holes, as `OpenFileMessage.holes`. The sink looks whether it has
    /// the rest.
    #[prost(uint64, repeated, tag = "4")]
    pub file_holes: Vec<u64>,
}

/// A chunk of the session.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ChunkNumberMessage {
    /// Chunk number, counted by the source.
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

/// Entries found by the scan.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OfferedEntriesMessage {
    /// Offer ID, counted from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// An entry table: some sections, 512 entries at most.
    #[prost(bytes = "vec", tag = "2")]
    pub table: Vec<u8>,
}

/// The wanted entries of an offer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WantedMessage {
    /// Offer ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// A bit for each entry, the first in the lowest bit of the first byte; 1 if wanted.
    #[prost(bytes = "vec", tag = "2")]
    pub entries: Vec<u8>,
    /// Wanted files that the sink has ranges of.
    #[prost(message, repeated, tag = "3")]
    pub held: Vec<HeldRanges>,
    /// A bit for each section, as for entries; 1 if the directory itself is not wanted. Empty if all are.
    #[prost(bytes = "vec", tag = "4")]
    pub sections_left: Vec<u8>,
}

/// The ranges of an offered file that the sink holds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeldRanges {
    /// Index of the entry in the offer, from 0.
    #[prost(uint32, tag = "1")]
    pub entry: u32,
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch.
    #[prost(uint64, repeated, tag = "2")]
    pub ranges: Vec<u64>,
}

/// The ranges of a file that readback found changed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DamagedRanges {
    /// File ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch.
    #[prost(uint64, repeated, tag = "2")]
    pub ranges: Vec<u64>,
}

/// Ranges of a file that the source read without an error, and the sink acked.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRanges {
    /// File ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Offset and length, in bytes, of each range; offsets rise, ranges don't touch.
    #[prost(uint64, repeated, tag = "2")]
    pub ranges: Vec<u64>,
}

/// A reference to a file of the session.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FileReference {
    /// File ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// Layout of a large file at the sink.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SinkFileLayoutMessage {
    /// File ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Bytes of a block; each block lies on one target.
    #[prost(uint64, tag = "2")]
    pub block_bytes: u64,
    /// Target numbers of the blocks from the file's start; the pattern repeats behind the last one.
    #[prost(uint64, repeated, tag = "3")]
    pub targets: Vec<u64>,
}

/// State of one end's targets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TargetsMessage {
    /// The targets that were used.
    #[prost(message, repeated, tag = "1")]
    pub targets: Vec<TargetReportMessage>,
}

/// State of one target; see `carrack_model::TargetReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TargetReportMessage {
    /// Name of the target.
    #[prost(string, tag = "1")]
    pub label: String,
    /// Bytes moved.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Waiting items.
    #[prost(uint64, tag = "3")]
    pub waiting: u64,
    /// Requests in flight.
    #[prost(uint32, tag = "4")]
    pub in_flight: u32,
    /// Limit of requests in flight; 0 for none.
    #[prost(uint32, tag = "5")]
    pub limit: u32,
    /// Normal service time of a 1 MiB object, in microseconds; 0 if unknown.
    #[prost(uint64, tag = "6")]
    pub normal_us: u64,
    /// Recent service time, in the same unit.
    #[prost(uint64, tag = "7")]
    pub recent_us: u64,
    /// The scheduling policy avoids the target at the moment.
    #[prost(bool, tag = "8")]
    pub is_avoided: bool,
    /// Number of times that congestion was found.
    #[prost(uint64, tag = "9")]
    pub avoided_count: u64,
    /// Name of its server.
    #[prost(string, optional, tag = "10")]
    pub server: Option<String>,
}

/// Objects whose processing has ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectAcksMessage {
    /// Written, or dropped with their file.
    #[prost(uint64, repeated, tag = "1")]
    pub written: Vec<u64>,
    /// Failed the check: the source reads them again.
    #[prost(uint64, repeated, tag = "2")]
    pub corrupt: Vec<u64>,
    /// Spilled: each returns its credit now, and not when it is answered again.
    #[prost(uint64, repeated, tag = "3")]
    pub set_aside: Vec<u64>,
}

/// An entry that failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FailureMessage {
    /// The entry's path at the failing end.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// `carrack_model::FailureKind`.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Description.
    #[prost(string, tag = "3")]
    pub detail: String,
}

/// Information for the user.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NoticeMessage {
    /// 0 text, 1 warning, 2 a skipped entry, 3 a decision of the tuner, 4 metadata that the destination could
    /// not keep, 5 a storage target that does not answer, or answers again.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Description.
    #[prost(string, tag = "2")]
    pub text: String,
    /// Path of the entry concerned, if any.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// Number of lost items, or of requests that have not returned.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// Kind of loss: 1 an item that an entry has once, 2 an item that it has any number of, 3 whole entries.
    #[prost(uint32, tag = "5")]
    pub lost: u32,
    /// Name of the lost items, or of the storage target.
    #[prost(string, tag = "6")]
    pub what: String,
    /// Reason of the loss.
    #[prost(string, tag = "7")]
    pub reason: String,
    /// Age of the oldest request, or the time after which the target answers again.
    #[prost(uint64, tag = "8")]
    pub seconds: u64,
}

/// One end's counters since the start, and the time use of its I/O threads.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct CountersMessage {
    /// Source: entries found.
    #[prost(uint64, tag = "1")]
    pub entries_found: u64,
    /// Source: bytes in the entries found.
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
    /// Nanoseconds of waiting for work (source: the scan; sink: arrivals).
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
    /// Sink: I/O threads in storage calls, and objects that wait for an I/O thread. Source: threads that send
    /// straight from a file, which may have to be read first. If it is not 0, storage may limit the transfer.
    #[prost(uint32, tag = "17")]
    pub storage_busy: u32,
    /// Sink: bytes that arrived on the data connections, including those of incomplete objects.
    #[prost(uint64, tag = "18")]
    pub bytes_arrived: u64,
    /// Sink: objects that wait for an I/O thread.
    #[prost(uint32, tag = "20")]
    pub write_waiting: u32,
    /// Sink: slots of all lanes, each for one object. A sink that reports none does not support
    /// `KnobsMessage`.
    #[prost(uint32, tag = "21")]
    pub write_slots: u32,
    /// Sink: initial number of concurrent writers, if objects wait for their targets.
    #[prost(uint32, tag = "22")]
    pub write_threads: u32,
    /// Sink: deleted entries.
    #[prost(uint64, tag = "23")]
    pub entries_deleted: u64,
    /// Sink: its user watches the source in detail. A sink without this field does not support
    /// `SourceDetail`.
    #[prost(bool, tag = "24")]
    pub watches: bool,
    /// Source: only the user's rate limit holds the transfer back.
    #[prost(bool, tag = "33")]
    pub held_by_rate: bool,
    /// Source: bytes of objects that were read.
    #[prost(uint64, tag = "25")]
    pub bytes_read: u64,
    /// Source: bytes of objects that were sent.
    #[prost(uint64, tag = "26")]
    pub bytes_sent: u64,
    /// Source: entries that wait for an I/O thread.
    #[prost(uint64, tag = "27")]
    pub read_waiting: u64,
    /// Source: limit of waiting entries; 0 from a source that does not report it.
    #[prost(uint64, tag = "28")]
    pub read_room: u64,
    /// Source: objects read and not yet passed to the kernel.
    #[prost(uint64, tag = "29")]
    pub send_waiting: u64,
    /// Source: limit of these objects; 0 from a source that does not report it.
    #[prost(uint64, tag = "30")]
    pub send_room: u64,
}

/// Details of the source beyond its counters; see `carrack_model::SourceReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceDetail {
    /// Details of each lane.
    #[prost(message, repeated, tag = "1")]
    pub lanes: Vec<LaneDetail>,
    /// Regular files found, counted by the number of bits of their sizes, from 0; 65 at most.
    #[prost(uint64, repeated, tag = "2")]
    pub size_counts: Vec<u64>,
    /// Large files in progress, longest open first.
    #[prost(message, repeated, tag = "3")]
    pub open: Vec<LargeFileProgressMessage>,
    /// Completed large files, slowest first.
    #[prost(message, repeated, tag = "4")]
    pub slowest: Vec<LargeFileProgressMessage>,
}

/// One lane of the source.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct LaneDetail {
    /// Bytes of objects sent on the lane.
    #[prost(uint64, tag = "1")]
    pub bytes_sent: u64,
    /// Objects sent on the lane.
    #[prost(uint64, tag = "2")]
    pub objects_sent: u64,
    /// Objects read and not yet passed to the kernel.
    #[prost(uint64, tag = "3")]
    pub send_waiting: u64,
    /// Limit of these objects.
    #[prost(uint64, tag = "4")]
    pub send_room: u64,
    /// I/O threads that read.
    #[prost(uint32, tag = "5")]
    pub readers: u32,
    /// Connections in use.
    #[prost(uint32, tag = "6")]
    pub streams: u32,
}

/// A large file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LargeFileProgressMessage {
    /// Path at the source.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes of the file that this session sends.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Bytes of these that are written.
    #[prost(uint64, tag = "3")]
    pub bytes_done: u64,
    /// Time since the file was opened, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub open_ms: u64,
}

/// The source tuner's settings for the sink (Y5), over all lanes.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct KnobsMessage {
    /// Data connections in use.
    #[prost(uint32, tag = "1")]
    pub streams: u32,
    /// Concurrent writers, if objects wait for their targets.
    #[prost(uint32, tag = "2")]
    pub writers: u32,
}

/// A file's digest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DigestMessage {
    /// Relative to the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// BLAKE3, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub blake3: Vec<u8>,
}

/// One line of a dry run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DryRunLine {
    /// Relative to the destination.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// The sink would delete the entry.
    #[prost(bool, tag = "3")]
    pub goes: bool,
}

/// The source's end of the session.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct FinishMessage {
    /// The source's counters at the end.
    #[prost(message, optional, tag = "1")]
    pub counters: Option<CountersMessage>,
    /// Objects and bundles sent, including repetitions.
    #[prost(uint64, tag = "2")]
    pub objects_sent: u64,
    /// The last session of a transfer that several carry: their journals are no longer needed.
    #[prost(bool, tag = "3")]
    pub closes: bool,
}

/// An operation on one path, other than a copy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PathOperationMessage {
    /// The initiator's version, for people.
    #[prost(string, tag = "1")]
    pub software: String,
    /// 1 list a directory, 2 stat the path itself, 3 make a directory, 4 remove.
    #[prost(uint32, tag = "2")]
    pub operation: u32,
    /// As typed.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// Make: with its parents, and it may exist. Remove: recursively.
    #[prost(bool, tag = "4")]
    pub deep: bool,
    /// Bearer token for a daemon that requires one; empty otherwise.
    #[prost(string, tag = "5")]
    pub token: String,
}

/// Some entries, in the order of the file system.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BrowsedEntriesMessage {
    /// 256 at most.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<BrowsedEntry>,
}

/// An entry and its name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BrowsedEntry {
    /// Empty for a directory that was requested itself and has no name.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// 0 other, 1 file, 2 directory, 3 symbolic link, 4 pipe, 5 socket, 6 device; 7 an export, without
    /// further information.
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
    /// User number.
    #[prost(uint32, tag = "7")]
    pub uid: u32,
    /// Group number.
    #[prost(uint32, tag = "8")]
    pub gid: u32,
}

/// The end of the operation.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BrowseDone {
    /// Entries listed or removed; 1 for a directory that exists now.
    #[prost(uint64, tag = "1")]
    pub done: u64,
    /// Failed entries, each reported by a `FailureMessage`.
    #[prost(uint64, tag = "2")]
    pub failed: u64,
}

/// The transfer is complete.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct TransferCompleteMessage {}

/// Keeps the connection alive.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct KeepaliveMessage {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_format_document() {
        let message = ControlMessage::ObjectsDone(ObjectAcksMessage {
            written: vec![1, 2, 300],
            corrupt: vec![],
            set_aside: vec![],
        });
        assert_eq!(message.clone().to_body(), b"\x52\x06\x0a\x04\x01\x02\xac\x02");
        assert_eq!(ControlMessage::from_body(b"\x52\x06\x0a\x04\x01\x02\xac\x02"), Ok(message));
    }

    #[test]
    fn skips_fields_from_the_future_and_names_unknown_messages() {
        let with_field_99 = b"\x52\x09\x0a\x04\x01\x02\xac\x02\x98\x06\x01";
        assert!(matches!(ControlMessage::from_body(with_field_99), Ok(ControlMessage::ObjectsDone(_))));
        assert_eq!(ControlMessage::from_body(b"\xfa\x06\x00"), Err(MessageError::Unknown));
        assert_eq!(ControlMessage::from_body(b""), Err(MessageError::Unknown));
        assert!(matches!(ControlMessage::from_body(b"\x52\xff"), Err(MessageError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = ControlMessage::from_body(&bytes);
        }
    }
}
