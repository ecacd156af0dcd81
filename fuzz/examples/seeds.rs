//! Writes the seeds: real encoded examples for every target, to `seeds/TARGET/` of this directory.
//!
//!     cargo run --manifest-path fuzz/Cargo.toml --example seeds
//!
//! Run it again when the format changes, and commit what it wrote.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use carrack_engine::SessionRole;
use carrack_fuzz::far_end::Ground;
use carrack_fuzz::layouts::{LovWriter, gpfs_answer};
use carrack_fuzz::site::Site;
use carrack_journal::{FileDigestBuilder, hash_subtrees};
use carrack_layout::formats::{GpfsBlocks, LovComponent, LovFile, LovStripes};
use carrack_model::{ObjectChecksumAlgorithm, FileId, Metadata, ObjectId, RelPath, Timestamp, AgreedTransferSpec};
use carrack_trust::{ClientCredential, ClientTrust, IssuedTokenContent, TokenScope, TokenSigner, client_config};
use carrack_wire::auth::{ListenerNonce, DialerResponse, SessionKey, StreamIndex};
use carrack_wire::message::*;
use carrack_wire::{FrameHeader, FrameKind, Preamble, EntryTableEncoder, to_json};

fn main() {
    write("frame_header", "control", &[&[20], &FrameHeader::control(9).encode()]);
    write("frame_header", "object", &[&[20], &object_header(1, 1, 0, 4096).encode()]);
    let announcing = FrameHeader { table_len: 100, ..object_header(1, FileId::FIRST_BY_ITSELF.0, 0, 4096) };
    write("frame_header", "announcing_object", &[&[20], &announcing.encode()]);
    write("frame_header", "bundle", &[&[20], &bundle_header(2, 4096, 100, [0; 32]).encode()]);

    let (content, table) = (b"abc", table(b"a/b", 3));
    write("entry_table", "three_records", &[&[3, 0], content, &table]);
    write("entry_table", "digests", &[&[3, 0], content, &digest_table(content)]);
    write("entry_table", "open_file", &[&[0, 0], &open_table(b"large", 4096)]);

    for (name, message) in messages() {
        write("control_message", name, &[&message.to_body()]);
    }

    write("preamble", "ours", &[&Preamble::OURS.encode()]);
    write("preamble", "greeting", &[b"Welcome!\r\n", &Preamble { version_min: 1, version_max: 4 }.encode()]);
    write("preamble", "future", &[&Preamble { version_min: 3, version_max: 9 }.encode()]);

    for name in ["one-node", "shared-nodes", "different-sockets", "memory-without-cpus", "mdtm-4x6"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/carrack-machine/tests/fixtures");
        let text = fs::read(path.join(name).with_extension("xml")).expect("the machine is there");
        write("hwloc_xml", name, &[&text]);
    }

    auth();

    // Two files open; objects in both orders, one rejected and sent again; commit, give up, abandon.
    write(
        "ledger",
        "honest",
        &[&[4], &[0, 1, 10, 0, 1, 1, 5, 5, 1, 1, 0, 5, 4, 1, 0, 5, 1, 1, 0, 5, 6, 1, 0, 0]],
    );
    write(
        "ledger",
        "given_up",
        &[&[4], &[0, 1, 9, 0, 5, 1, 0, 0, 1, 1, 0, 9, 7, 1, 0, 0, 0, 2, 0, 0, 6, 2, 0, 0]],
    );
    write(
        "ledger",
        "lies",
        &[&[1], &[0, 2, 9, 0, 0, 1, 9, 0, 1, 2, 8, 2, 3, 2, 0, 2, 6, 2, 0, 0, 1, 2, 0, 1]],
    );

    let halves = [0, 0, 40, 0, 8, 2, 8, 2, 2, 0, 8, 2];
    write("file_digest", "halves", &[&halves]);
    write("file_digest", "with_tail", &[&[0, 100, 20, 4, 0, 0, 0, 4, 2]]);
    let huge = [u64::MAX, 0, 1 << 63, 1 << 63, (1 << 63) - 1].map(u64::to_le_bytes).concat();
    write("file_digest", "huge", &[&[1], &huge]);

    journal();

    layouts();

    trust();

    service();

    sessions();
}

/// Journals with every kind of record: the bodies, and a whole file as the document has it.
fn journal() {
    let record = |kind: u8, body: &[u8]| {
        let body_len = u16::try_from(body.len()).expect("a short body");
        [&[kind], &body_len.to_le_bytes()[..], body].concat()
    };
    let session = |flags: u8| {
        record(1, &[&[9; 32][..], &[77, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, flags, 0, 0, 0], b"h"].concat())
    };
    let begin = |number: u64| {
        let temporary = b".large.carrack-00000001";
        let length = (temporary.len() as u32).to_le_bytes();
        record(3, &[&number.to_le_bytes()[..], &length, temporary, &open_table(b"large", 4096)].concat())
    };
    let held = |number: u64, offset: u64| {
        let counts = [1u32, 1].map(u32::to_le_bytes).concat();
        let range = [offset, 1024].map(u64::to_le_bytes).concat();
        record(4, &[&number.to_le_bytes()[..], &counts, &range, &range, &[7; 32]].concat())
    };
    let ended = |kind: u8, number: u64| record(kind, &number.to_le_bytes());
    let small = record(2, &table(b"a", 3));
    let all = [
        session(0),
        small.clone(),
        begin(1),
        held(1, 0),
        held(1, 2048),
        begin(2),
        held(2, 1024),
        ended(5, 1),
        ended(6, 2),
        session(0),
        begin(3),
        held(3, 1024),
        held(3, 0),
    ];
    write("journal", "records", &[&[1], &all.concat()]);
    write(
        "journal",
        "soft",
        &[&[1], &[session(1), small, begin(1), held(1, 0), ended(5, 1), session(0)].concat()],
    );
    let document =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats/journal.md"));
    let document = document.expect("the document");
    let (_, example) = document.split_once("\n## Example\n").expect("an example");
    let digits = example.split("```").skip(1).step_by(2).flat_map(str::split_whitespace);
    let bytes: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).expect("hexadecimal digits")).collect();
    write("journal", "example", &[&[0], &bytes]);
    write("journal", "torn", &[&[0], &bytes[..bytes.len() - 60]]);
}

/// Who is who: certificates, tokens, keys, and what travels before and under their protection.
fn trust() {
    let site = Site::new();
    for name in ["alice.pem", "server.pem", "authority/ca.pem"] {
        let der = carrack_trust::certificates_in(&site.read(name)).expect("certificates");
        write("certificate", &name.replace('/', "_"), &[&der[0]]);
    }
    let claims = br#"{"iss":"us","sub":"alice","aud":"here","exp":1700000600,"nbf":1700000000,"iat":1700000000,"jti":"1","scope":"storage.read:/data storage.modify:/data/in"}"#;
    write("token", "claims", &[&[1], claims]);
    write("token", "audiences", &[&[1], &claims.to_vec().replacen(b"\"here\"", b"[\"there\",\"here\"]")]);
    write("token", "expired", &[&[1], &claims.to_vec().replacen(b"1700000600", b"1699999000")]);
    write("token", "taken_back", &[&[1], &claims.to_vec().replacen(b"\"1\"", b"\"taken-back\"")]);
    write("token", "unsigned", &[&[0], b"eyJhbGciOiJub25lIn0.e30."]);
    let signer =
        TokenSigner::new("us", &String::from_utf8(site.read("authority/token-key.pem")).expect("PEM"));
    let grant = IssuedTokenContent {
        subject: "alice".to_owned(),
        audience: "here".to_owned(),
        scope: TokenScope::parse("storage.read:/data").expect("a scope"),
        lifetime: Duration::from_secs(600),
    };
    // Of an issuer that no run of the target knows: each has its own.
    let (foreign, _) = signer.expect("an issuer").mint(&grant, SystemTime::now()).expect("a token");
    write("token", "foreign", &[&[0], foreign.as_bytes()]);

    for (name, scope, path) in [
        ("beneath", "storage.read:/data/run7", "/data/run7/a"),
        ("beside", "storage.read:/data", "/database"),
        ("encoded", "storage.modify:/a%20b/%2e%2e storage.stat:/", "/a b/c"),
        ("others", "openid storage.create:/x//y/ offline", "//x/y"),
    ] {
        write("scope", name, &[scope.as_bytes(), &[0xff], path.as_bytes()]);
    }

    let key = Site::SSH_KEY;
    write("public_keys", "one", &[key.as_bytes()]);
    let renamed = key.replace("bob", "eve");
    write(
        "public_keys",
        "lines",
        &[b"# people\n\n", key.as_bytes(), b"no-pty ", renamed.as_bytes(), renamed.as_bytes()],
    );

    for (name, what) in [
        ("untouched", &[0][..]),
        ("safe", &[1]),
        ("a_bit", &[2, 0, 90, 0, 1]),
        ("swapped", &[0, 1, 1, 0, 2]),
        ("repeated", &[3, 2, 1, 0, 1]),
        ("left_out", &[4, 3, 2, 0, 0]),
        ("cut", &[5, 4, 3, 0, 9]),
        ("added", &[0, 5, 4, 0, 7]),
    ] {
        write("sealed_frames", name, &[what]);
    }
    // The first record of carrack's own client, and what else may stand there.
    write("tls_first_words", "client_hello", &[&[0], &client_hello(&site)]);
    write("tls_first_words", "client_hello_waits", &[&[1], &client_hello(&site)]);
    write("tls_first_words", "alert", &[&[0], b"\x15\x03\x03\x00\x02\x02\x28"]);
    write("tls_first_words", "http", &[&[0], b"GET / HTTP/1.1\r\n\r\n"]);
}

fn client_hello(site: &Site) -> Vec<u8> {
    let cas = Some(site.read("authority/ca.pem"));
    let identity =
        ClientCredential::Certificate { chain: site.read("alice.pem"), key: site.read("alice-key.pem") };
    let trust = ClientTrust { cas, crls: Vec::new(), identity: Some(identity) };
    let config = client_config(&trust).expect("a configuration");
    let name = "localhost".try_into().expect("a name");
    let mut hello = Vec::new();
    let mut connection = rustls::ClientConnection::new(config, name).expect("a client");
    connection.write_tls(&mut hello).expect("memory");
    hello
}

/// Replaces the first place where a piece of bytes stands.
trait Replace {
    fn replacen(self, from: &[u8], to: &[u8]) -> Vec<u8>;
}

impl Replace for Vec<u8> {
    fn replacen(self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let at = self.windows(from.len()).position(|window| window == from).expect("it stands there");
        [&self[..at], to, &self[at + from.len()..]].concat()
    }
}

/// What a daemon's parent reads: its configuration, first bytes of strangers, words of its sessions.
fn service() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/carrack.toml");
    let sample = fs::read(sample).expect("the sample is there");
    write("config", "sample", &[&sample]);
    let small = b"[tls]\ncertificate='/c'\nkey='/k'\n[limits]\nbuffer='64MiB'\n[[export]]\nname='d'\npath='/d'\nprotection='safe'\nallow=[{identity='a*',read=true,rate='1 GB/s'},{identity='*',list=true}]\n";
    write("config", "small", &[small]);

    write("first_bytes", "tls", &[&[255], b"\x16\x03\x01\x00\x40", &[1; 64]]);
    write("first_bytes", "tls_not_whole", &[&[0], b"\x16\x03\x01\x02\x00\x01\x00"]);
    write("first_bytes", "data", &[&[64], b"carrackd\x03\x00", &[7; 42]]);
    write("first_bytes", "http", &[&[0], b"GET / HTTP/1.1\r\n\r\n"]);

    let frame = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let who = r#"{"name":"alice","how":"certificate","serial":"01","fingerprint":"SHA256:00"}"#;
    let work = r#"{"deed":"write","export":"data","paths":["/data/x"],"path_count":1,"protection":"private","cipher":"aes-256-gcm"}"#;
    let known = frame(&format!(r#"{{"Known":{who}}}"#));
    let ask = frame(&format!(r#"{{"Ask":{{"who":{who},"work":{work},"until_s":1700000000}}}}"#));
    let wanted = frame(&format!(r#"{{"Wanted":{{"who":null,"work":{work}}}}}"#));
    let done = frame(r#"{"Done":{"ending":"ok","reason":"","bytes":1,"files":2,"failed":0}}"#);
    write("errand", "session", &[&[0, 255], &known, &ask, &done]);
    write("errand", "refused", &[&[0, 3], &frame(r#"{"Known":null}"#), &wanted, &done]);
    write("errand", "too_long", &[&[0, 0], &known, &u32::MAX.to_be_bytes()]);
    let errand = frame(r#"{"session":7,"peer":"127.0.0.1:1","here":"[::1]:7512"}"#);
    write("errand", "parent", &[&[1, 0], &errand, &errand]);
}

fn write(target: &str, name: &str, parts: &[&[u8]]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&directory).expect("the directory of seeds");
    fs::write(directory.join(name), parts.concat()).expect("a seed");
}

/// A session that keeps to the rules: it must come to its end, if not at once: the pauses are short for a busy machine.
fn write_session(role: SessionRole, checksum: ObjectChecksumAlgorithm, name: &str, parts: &[&[u8]]) {
    let target = if role == SessionRole::Sink { "sink_session" } else { "source_session" };
    write(target, name, parts);
    let ground = Ground::new();
    // Behind the byte that says the checksum.
    let said = &parts.concat()[1..];
    let reaches_end = || {
        let result = ground.run(role, checksum, said).result;
        ground.tidy();
        result.inspect_err(|error| eprintln!("{target}/{name}: {error}")).is_ok()
    };
    assert!((0..5).any(|_| reaches_end()), "{target}/{name} never came to its end");
}

fn metadata(mode: u32) -> Metadata {
    Metadata { mode, mtime: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } }
}

fn path(path: &[u8]) -> RelPath {
    RelPath::new(path).expect("a path")
}

/// A directory with a file of `size` bytes and a link.
fn table(directory: &[u8], size: u64) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&path(directory), Some(&metadata(0o755)));
    writer.add_regular(b"f", size, &metadata(0o644), 7, None);
    writer.add_symlink(b"l", b"../f", &metadata(0o777), 8);
    table
}

/// Two directories, a file with its digest in each.
fn digest_table(content: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    for (directory, content) in [(&b"a"[..], content), (b"b", b"")] {
        writer.begin_section(&path(directory), None);
        let digest = blake3::hash(content);
        writer.add_regular(b"f", content.len() as u64, &metadata(0o600), 9, Some(digest.as_bytes()));
    }
    table
}

fn open_table(name: &[u8], size: u64) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&path(b"d"), None);
    writer.add_regular(name, size, &metadata(0o640), 0, None);
    table
}

fn object_header(object: u64, file: u64, offset: u64, body_len: u32) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Object,
        body_len,
        object: ObjectId(object),
        file: FileId(file),
        offset,
        table_len: 0,
        lane: 0,
        check: [0; 32],
    }
}

fn bundle_header(object: u64, body_len: usize, table_len: usize, check: [u8; 32]) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Bundle,
        body_len: body_len as u32,
        object: ObjectId(object),
        file: FileId(0),
        offset: 0,
        table_len: table_len as u32,
        lane: 0,
        check,
    }
}

fn sink_state() -> SinkHandshakeFacts {
    SinkHandshakeFacts {
        destination: 1,
        name: b"dst".to_vec(),
        ancestors: vec![1, 2, 3, 4],
        credits: 8,
        ..SinkHandshakeFacts::default()
    }
}

fn listening() -> ListenAddresses {
    ListenAddresses { port: 50_000, addresses: vec!["192.0.2.1".into(), "2001:db8::1".into()], nonce: vec![1; 32] }
}

fn counters() -> CountersMessage {
    CountersMessage { entries_found: 3, bytes_found: 1 << 40, scan_done: true, ..CountersMessage::default() }
}

/// One of each.
fn messages() -> Vec<(&'static str, ControlMessage)> {
    let file = FileReference { id: 1 };
    let refuse = RefuseMessage { message: "no".into(), hint: "later".into(), reason: 0, retry_after_ms: 500 };
    let verify =
        VerifyOpenMessage { path: b"/data".to_vec(), past_cache: true, is_destination: true, ..VerifyOpenMessage::default() };
    let names = || vec![Vec::new(), b"name".to_vec()];
    let account = || Some(ExaminedOwner { number: 7, name: b"alice".to_vec() });
    let metadata = ExaminedMetadata {
        mode: 0o644,
        mtime_s: 1,
        mtime_ns: 2,
        time_unit_ns: 1,
        names: 1,
        identity: 3,
        allocated_bytes: 4_096,
        user: account(),
        group: account(),
        attributes: vec![ExaminedAttribute { name: b"user.a".to_vec(), digest: vec![7; 16] }],
        flags: vec![0x70, 0, 0, 0, 0x40, 0, 0, 0],
        ..ExaminedMetadata::default()
    };
    let sight = VerifyEntryMessage {
        kind: 1,
        size: 7,
        stamp: 9,
        digest: vec![7; 32],
        metadata: Some(metadata),
        ..VerifyEntryMessage::default()
    };
    let pieces = HashPiecesRequest {
        directory: b"a".to_vec(),
        name: b"name".to_vec(),
        file_size: 3 << 20,
        offset: 0,
        len: 3 << 20,
        piece_bytes: 1 << 20,
        by_itself: false,
    };
    let hello = HelloMessage {
        object_bytes: 1 << 20,
        has_chosen_object_size: true,
        slot_bytes_max: 4 << 20,
        fabric: Some(InitiatorFabricList {
            networks: vec![FabricNetwork { provider: "shm".into(), network: String::new() }],
            is_forced: true,
            host: b"host".to_vec(),
        }),
        token: "a.b.c".into(),
        third_party: false,
        software: "0.1.0".into(),
        session_key: vec![7; 32],
        spec: to_json(&AgreedTransferSpec { recursive: true, ..AgreedTransferSpec::default() }),
        destination: Some(b"/data".to_vec()),
        sources: vec![b"a".to_vec(), b"b/".to_vec()],
        sink: Some(sink_state()),
        listening: Some(listening()),
        settings: r#"{"pool_bytes":268435456,"io_threads":4,"ports":{"start":50000,"end":50010},"source_io":"Direct",
            "scheduling":{"policy":{"Threshold":{"window":{"secs":1,"nanos":0},"threshold":{"secs":0,"nanos":50000000},"skips":3}},
            "rate":1,"target_rate":2,"in_flight_max":4},"target_sets":["/mnt/a",[255]],"journal":{"directory":"/journals"},
            "selection":{"patterns":["*.o","!/keep.o"],"size_min":0,"size_max":1048576,"newer":null,"one_file_system":false,
            "links":"Followed","names":["a/b"]}}"#
            .into(),
        lanes: Some(LaneCountProposal { wanted: 2, most: 8 }),
        transfer: Some(TransferIdentityMessage {
            id: vec![7; 16],
            run: vec![8; 16],
            sources: vec![b"a".to_vec()],
            destination: b"/data".to_vec(),
            shared: true,
        }),
    };
    vec![
        ("hello", ControlMessage::Hello(hello)),
        ("welcome", ControlMessage::Welcome(welcome())),
        ("fabric", ControlMessage::Fabric(FabricEndpointsMessage { names: vec![b"a name".to_vec()], problem: String::new() })),
        ("refuse", ControlMessage::Refuse(refuse.clone())),
        ("place", ControlMessage::Place(DestinationRootMessage { root: 1, ..DestinationRootMessage::default() })),
        ("dial", ControlMessage::Dial(listening())),
        ("dial_failed", ControlMessage::DialFailed(DialFailureMessage { problem: "refused".into() })),
        (
            "open_file",
            ControlMessage::OpenFile(OpenFileMessage {
                id: 1,
                table: open_table(b"large", 1 << 30),
                stripes: None,
                goes_on: true,
                coming: Some(RangesToSend {
                    ranges: vec![0, 5, 9, 1],
                    is_part: true,
                    ..RangesToSend::default()
                }),
                holes: vec![65_536, 131_072],
                confirms: true,
            }),
        ),
        ("commit_file", ControlMessage::CommitFile(file)),
        ("offer", ControlMessage::Offer(OfferedEntriesMessage { id: 1, table: open_table(b"large", 1 << 30) })),
        (
            "wanted",
            ControlMessage::Wanted(WantedMessage {
                id: 1,
                entries: vec![1],
                held: vec![HeldRanges { entry: 0, ranges: vec![0, 1 << 20, 2 << 20, 1 << 20] }],
                sections_left: vec![1],
            }),
        ),
        ("file_lacks", ControlMessage::FileLacks(DamagedRanges { id: 1, ranges: vec![0, 1 << 20] })),
        ("ranges_read", ControlMessage::RangesRead(ReadRanges { id: 1, ranges: vec![0, 1 << 20, 4 << 20, 9] })),
        ("leave", ControlMessage::Leave(TransferCompleteMessage {})),
        ("shelve_file", ControlMessage::ShelveFile(file)),
        ("settle", ControlMessage::Settle(ChunkNumberMessage { number: 7 })),
        ("settled", ControlMessage::Settled(ChunkNumberMessage { number: 7 })),
        ("prune", ControlMessage::Prune(PruneMessage { trees: vec![Vec::new(), b"a/b".to_vec()] })),
        ("stand", ControlMessage::Stand(SourceExistenceQuery { id: 1, path: b"a".to_vec(), names: vec![b"f".to_vec()] })),
        ("stands", ControlMessage::Stands(SourceExistenceReply { id: 1, kinds: vec![0, 1, 2, 3] })),
        ("pruned", ControlMessage::Pruned(DeletionDoneMessage {})),
        ("knobs", ControlMessage::Knobs(KnobsMessage { streams: 8, writers: 16 })),
        (
            "source_detail",
            ControlMessage::SourceDetail(SourceDetail {
                lanes: vec![LaneDetail { bytes_sent: 1 << 30, objects_sent: 1_024, ..LaneDetail::default() }],
                size_counts: vec![1, 0, 2],
                open: vec![LargeFileProgressMessage { path: b"a".to_vec(), bytes: 9, bytes_done: 5, open_ms: 1 }],
                slowest: Vec::new(),
            }),
        ),
        ("abandon_file", ControlMessage::AbandonFile(file)),
        (
            "objects_done",
            ControlMessage::ObjectsDone(ObjectAcksMessage {
                written: vec![1, 2, 300],
                corrupt: vec![4],
                set_aside: vec![],
            }),
        ),
        ("file_done", ControlMessage::FileDone(file)),
        ("file_failed", ControlMessage::FileFailed(file)),
        ("failure", ControlMessage::Failure(FailureMessage { path: b"a/b".to_vec(), kind: 5, detail: "full".into() })),
        (
            "notice",
            ControlMessage::Notice(NoticeMessage {
                kind: 2,
                text: "a socket".into(),
                path: b"s".to_vec(),
                count: 1,
                ..NoticeMessage::default()
            }),
        ),
        ("counters", ControlMessage::Counters(counters())),
        ("digest", ControlMessage::Digest(DigestMessage { path: b"f".to_vec(), size: 3, blake3: vec![9; 32] })),
        ("verify", ControlMessage::Verify(verify)),
        ("walk_on", ControlMessage::WalkOn(WalkRequest { beneath: b"a".to_vec(), specials: true })),
        ("walked", ControlMessage::Walked(WalkedNamesMessage { directory: b"a".to_vec(), names: names(), ..WalkedNamesMessage::default() })),
        (
            "look",
            ControlMessage::Look(LookRequest {
                directory: b"a".to_vec(),
                names: names(),
                digests: true,
                metadata: true,
                kept: 15,
            }),
        ),
        ("seen", ControlMessage::Seen(ExaminedEntriesMessage { sights: vec![sight] })),
        ("hash_pieces", ControlMessage::HashPieces(pieces)),
        ("pieces", ControlMessage::Pieces(PieceDigestsMessage { values: vec![7; 96], problem: String::new() })),
        ("verify_end", ControlMessage::VerifyEnd(VerifyDoneMessage {})),
        ("would_copy", ControlMessage::WouldCopy(DryRunLine { path: b"f".to_vec(), size: 3, goes: false })),
        ("finish", ControlMessage::Finish(FinishMessage { counters: Some(counters()), objects_sent: 3, closes: false })),
        ("finished", ControlMessage::Finished(counters())),
        ("abort", ControlMessage::Abort(refuse)),
        ("heartbeat", ControlMessage::Heartbeat(KeepaliveMessage {})),
        (
            "file_placed",
            ControlMessage::FilePlaced(SinkFileLayoutMessage { id: 1, block_bytes: 1 << 20, targets: vec![3, 1, 2] }),
        ),
    ]
}

fn welcome() -> WelcomeMessage {
    WelcomeMessage {
        software: "0.1.0".into(),
        sink: Some(sink_state()),
        place: Some(DestinationRootMessage { root: 0, ..DestinationRootMessage::default() }),
        listening: Some(listening()),
        lanes: 1,
        ..WelcomeMessage::default()
    }
}

fn auth() {
    let (key, listener) = (SessionKey::new([7; 32]), ListenerNonce::new([1; 32]));
    let (place, rtt) = (StreamIndex { number: 5, count: 8 }, Duration::from_micros(100_250));
    let other = DialerResponse::new(&SessionKey::new([8; 32]), &listener, [2; 32], place, rtt);
    for (name, place, change) in
        [("changed_version", 8, 1), ("changed_reserved", 14, 255), ("changed_proof", 115, 128)]
    {
        let parts: [&[u8]; 5] =
            [key.as_bytes(), &[2; 32], listener.as_bytes(), other.as_bytes(), &[place, change]];
        write("auth", name, &parts);
    }
}

/// One of each kind that a file system writes.
fn layouts() {
    let little = LovWriter { is_big: false };
    for (name, file) in lustre_files() {
        write("lustre_lov", name, &[&little.file(&file)]);
        write("lustre_lov", &format!("{name}_big"), &[&LovWriter { is_big: true }.file(&file)]);
    }

    let offset = (5u64 << 20).to_le_bytes();
    for (name, text) in [
        ("default", "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data"),
        ("striped", "stripe_unit=1048576 stripe_count=3 object_size=4194304 pool=cdata pool_namespace=a"),
    ] {
        write("ceph_layout", name, &[&offset, text.as_bytes()]);
    }

    for (name, text) in [
        ("distributed", "(<DISTRIBUTE:v1-dht> <POSIX(/b4):vm:/b4/f>)"),
        (
            "replicated",
            "(<DISTRIBUTE:v-dht> (<REPLICATE:v-replicate-0> <POSIX(/b):h:/b/f> <POSIX(/c):i:/c/f>))",
        ),
        ("dispersed", "(<DISTRIBUTE:v-dht> (<EC:v-disperse-0> <POSIX(/b):h:/b/f> <POSIX(/c):i:/c/f>))"),
        ("directory", "((<DISTRIBUTE:v-dht> <POSIX(/b):h:/b/>) (v-dht-layout (v-client-0 0 4294967295)))"),
    ] {
        write("gluster_pathinfo", name, &[text.as_bytes()]);
    }

    let info = [&1u32.to_ne_bytes()[..], &524_288u32.to_ne_bytes(), &4u32.to_ne_bytes()].concat();
    let target = [&3u16.to_ne_bytes()[..], &101u16.to_ne_bytes(), &[0; 258]].concat();
    let buddies = [3u32, 7, 201, 202, 1, 2].map(u32::to_ne_bytes).concat();
    write("beegfs_reply", "all", &[&info, &target, &buddies]);

    let blocks = (0..5).map(|block| (block << 22, (block != 3).then_some(block as u32 % 2))).collect();
    write("gpfs_reply", "five_blocks", &[&gpfs_answer(&GpfsBlocks { block_bytes: 1 << 22, blocks })]);
}

fn lustre_files() -> Vec<(&'static str, LovFile)> {
    let stripes = |pattern, osts: &[u32], pool: Option<&str>| LovStripes {
        pattern,
        stripe_bytes: 1 << 20,
        stripe_count: osts.len() as u16,
        pool: pool.map(str::to_owned),
        osts: osts.to_vec(),
    };
    let component = |id, flags, start, end, stripes| LovComponent { id, flags, start, end, stripes };
    let (mib, init) = (1 << 20, LovComponent::INIT);
    let progressive = vec![
        component(1, init, 0, mib, Some(stripes(LovStripes::MDT, &[], None))),
        component(2, init, mib, 64 * mib, Some(stripes(1, &[3], None))),
        component(3, init, 64 * mib, 128 * mib, Some(stripes(1, &[4, 5], Some("flash")))),
        component(4, LovComponent::EXTENSION, 128 * mib, u64::MAX, Some(stripes(1, &[], None))),
    ];
    let mirrored = vec![
        component(0x1_0001, init | LovComponent::STALE, 0, u64::MAX, Some(stripes(1, &[1], None))),
        component(0x2_0002, init | LovComponent::PREFERRED, 0, u64::MAX, Some(stripes(1, &[2], None))),
        component(0x3_0003, init, 0, u64::MAX, None),
    ];
    vec![
        ("v1", LovFile::Plain(stripes(1, &[7, 8], None))),
        ("v3_overstriped", LovFile::Plain(stripes(1 | LovStripes::OVERSTRIPING, &[1, 2, 1], Some("pool")))),
        ("released", LovFile::Plain(stripes(1 | LovStripes::RELEASED, &[], None))),
        ("progressive", LovFile::Composite(progressive)),
        ("mirrored", LovFile::Composite(mirrored)),
        ("foreign", LovFile::Foreign),
    ]
}

fn control(message: ControlMessage) -> Vec<u8> {
    let body = message.to_body();
    [&FrameHeader::control(body.len() as u32).encode()[..], &body].concat()
}

fn xxh3(body: &[u8]) -> [u8; 32] {
    let mut value = [0; 32];
    value[..16].copy_from_slice(&xxhash_rust::xxh3::xxh3_128(body).to_le_bytes());
    value
}

fn bundle(object: u64, content: &[u8], table: &[u8], check: [u8; 32]) -> Vec<u8> {
    let body = [content, table].concat();
    [&bundle_header(object, body.len(), table.len(), check).encode()[..], &body].concat()
}

fn object(object: u64, file: u64, offset: u64, body: &[u8], check: [u8; 32]) -> Vec<u8> {
    let header = FrameHeader { check, ..object_header(object, file, offset, body.len() as u32) };
    [&header.encode()[..], body].concat()
}

fn sessions() {
    let preamble = &Preamble::OURS.encode()[..];
    let body = [5; 2000];
    let large = object(1, 1, 0, &body, [0; 32]);
    let small = bundle(2, b"abc", &table(b"a/b", 3), [0; 32]);
    let ping = control(ControlMessage::Heartbeat(KeepaliveMessage {}));
    let refusal = control(ControlMessage::Refuse(RefuseMessage { message: "no".into(), ..RefuseMessage::default() }));

    write("link_frames", "frames", &[&[1, 2], &ping, &large, &ping, &small]);
    write(
        "link_frames",
        "no_credit",
        &[&[3, 4], &large, &large, &large, &large, &large, &large, &small, &small],
    );
    write("link_frames", "cut", &[&[5, 6], &large, &small[..90]]);

    write("first_words", "refusal", &[preamble, &refusal]);
    write("first_words", "no_hello", &[preamble, &ping]);
    write("first_words", "object", &[preamble, &large]);
    let browse = PathOperationMessage { operation: 1, path: b"/data".to_vec(), ..PathOperationMessage::default() };
    write("first_words", "browse", &[preamble, &control(ControlMessage::Browse(browse))]);
    let entry = BrowsedEntry { name: b"name".to_vec(), kind: 1, mode: 0o644, ..BrowsedEntry::default() };
    let entries = control(ControlMessage::Entries(BrowsedEntriesMessage { entries: vec![entry; 3] }));
    let done = control(ControlMessage::BrowseDone(BrowseDone { done: 3, failed: 0 }));
    write("browse_answers", "list", &[&[0], &entries, &ping, &done]);
    write("browse_answers", "refused", &[&[3], &refusal]);
    // Longer than the slots that are there before the agreement.
    write("first_words", "object_beyond_the_slot", &[preamble, &object(1, 1, 0, &[0; 5000], [0; 32])]);

    // A source that keeps to the rules, once with each checksum.
    let open = control(ControlMessage::OpenFile(OpenFileMessage {
        id: 1,
        table: open_table(b"large", body.len() as u64),
        stripes: None,
        goes_on: false,
        coming: None,
        holes: Vec::new(),
        confirms: false,
    }));
    let start = [
        &b"Welcome!\n"[..],
        preamble,
        &control(ControlMessage::Welcome(WelcomeMessage { sink: None, ..welcome() })),
        &control(ControlMessage::DialFailed(DialFailureMessage { problem: "a firewall".into() })),
    ]
    .concat();
    let finish =
        |objects_sent| control(ControlMessage::Finish(FinishMessage { counters: None, objects_sent, closes: false }));
    let end = [control(ControlMessage::CommitFile(FileReference { id: 1 })), finish(2)].concat();
    write_session(SessionRole::Sink, ObjectChecksumAlgorithm::None, "unchecked", &[&[0], &start, &large, &open, &small, &end]);

    let (content, digests) = (b"abc", digest_table(b"abc"));
    let checked = bundle(2, content, &table(b"", 3), xxh3(&[&content[..], &table(b"", 3)].concat()));
    write_session(
        SessionRole::Sink,
        ObjectChecksumAlgorithm::Xxh3,
        "xxh3",
        &[&[2], &start, &open, &object(1, 1, 0, &body, xxh3(&body)), &checked, &end],
    );

    // Two files that announce themselves; of one, the rest comes first.
    let by_itself = FileId::FIRST_BY_ITSELF.0;
    let announcing = |id, file, content: &[u8], table: &[u8]| {
        let body = [content, table].concat();
        let header = object_header(id, file, 0, body.len() as u32);
        let header = FrameHeader { table_len: table.len() as u32, check: xxh3(&body), ..header };
        [&header.encode()[..], &body].concat()
    };
    write_session(
        SessionRole::Sink,
        ObjectChecksumAlgorithm::Xxh3,
        "by_itself",
        &[
            &[2],
            &start,
            &object(1, by_itself, 3, b"def", xxh3(b"def")),
            &announcing(2, by_itself, b"abc", &open_table(b"two", 6)),
            &announcing(3, by_itself + 1, b"abc", &open_table(b"one", 3)),
            &finish(3),
        ],
    );

    let whole = hash_subtrees(0, &body, body.len() as u64).expect("a whole file").next().expect("its root");
    let mut digest = FileDigestBuilder::new(body.len() as u64);
    digest.add(whole).expect("the whole file");
    let check = digest.finish().expect("the whole file");
    let checked = bundle(2, content, &digests, *blake3::hash(&digests).as_bytes());
    write_session(
        SessionRole::Sink,
        ObjectChecksumAlgorithm::Blake3,
        "blake3",
        &[&[3], &start, &open, &object(1, 1, 0, &body, check), &checked, &end],
    );

    let abandon = control(ControlMessage::AbandonFile(FileReference { id: 1 }));
    write_session(
        SessionRole::Sink,
        ObjectChecksumAlgorithm::None,
        "abandoned",
        &[&[0], &start, &open, &abandon, &small, &finish(1)],
    );

    // A sink that keeps to the rules as far as can be said beforehand: one bundle, three objects of one file.
    let dial_failed = control(ControlMessage::DialFailed(DialFailureMessage::default()));
    let start =
        [preamble, &control(ControlMessage::Welcome(WelcomeMessage { place: None, ..welcome() })), &dial_failed].concat();
    let done = |id| {
        control(ControlMessage::ObjectsDone(ObjectAcksMessage { written: vec![id], corrupt: vec![], set_aside: vec![] }))
    };
    let corrupt =
        control(ControlMessage::ObjectsDone(ObjectAcksMessage { written: vec![], corrupt: vec![1], set_aside: vec![] }));
    let all: Vec<u8> = (1..=4).flat_map(done).collect();
    let ended =
        [control(ControlMessage::FileDone(FileReference { id: 1 })), control(ControlMessage::Finished(counters()))].concat();
    write_session(SessionRole::Source, ObjectChecksumAlgorithm::None, "answers", &[&[0], &start, &all, &ended]);
    // The file goes by itself, or by its messages where the scratch directory is not in memory.
    write("source_session", "by_itself", &[&[1], &start, &all, &control(ControlMessage::Finished(counters()))]);
    write("source_session", "corrupt", &[&[0], &start, &corrupt, &ended]);
    write("source_session", "by_itself_corrupt", &[&[1], &start, &corrupt, &all, &ended]);
    write("source_session", "refused", &[&[0], preamble, &refusal]);
    write("source_session", "greeting", &[&[0], b"Last login: never\r\n", &start]);
}
