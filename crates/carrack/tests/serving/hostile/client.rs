//! A client that the test plays: TLS as carrack's own, and then any messages that the test sends.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_model::{AgreedTransferSpec, FileId, Metadata, ObjectChecksumAlgorithm, ObjectId, RelPath};
use carrack_transport::seal::{EXPORTER_LABEL, SessionKeys};
use carrack_wire::auth::{PROOF_BYTES, SessionKey};
use carrack_wire::message::{
    self, ControlMessage, DestinationRootMessage, DialFailureMessage, HelloMessage, SinkHandshakeFacts,
    TransferCompleteMessage, WelcomeMessage,
};
use carrack_wire::to_json;
use carrack_wire::{
    EntryTableEncoder, FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES, Preamble, agreed_terms,
};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::arena::Arena;

/// The address of all attackers: apart from that of the others, so that the limits for strangers are counted
/// apart.
pub const ATTACKER: [u8; 4] = [127, 0, 0, 66];

/// Longer than the daemon's own time limits; a connection that lasts as long was not ended.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The session's key that every attacker sends.
pub const SESSION_KEY: [u8; 32] = [7; 32];

/// The end of a connection or session, as the client saw it.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The connection was closed without a message.
    Closed,
    /// A TLS alert ended it.
    Alert(String),
    /// The session was refused, with the reason.
    Refused(String),
    /// The session was aborted, with the reason.
    Aborted(String),
    /// The session was complete, with this number of failed entries.
    Finished(u64),
    /// It had not ended when the time limit was over.
    Lasts,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => f.write_str("closed"),
            End::Alert(alert) => write!(f, "alert: {alert}"),
            End::Refused(why) => write!(f, "refused: {why}"),
            End::Aborted(why) => write!(f, "aborted: {why}"),
            End::Finished(failed) => write!(f, "finished, {failed} failed"),
            End::Lasts => f.write_str("it lasts"),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (alert, error.kind()) {
            (Some(rustls::Error::AlertReceived(alert)), _) => End::Alert(format!("{alert:?}")),
            (_, ErrorKind::WouldBlock | ErrorKind::TimedOut) => End::Lasts,
            _ => End::Closed,
        }
    }
}

/// Opens a TCP connection of an attacker.
pub fn dial(to: SocketAddr) -> TcpStream {
    dial_from(ATTACKER, to).expect("the daemon listens")
}

pub fn dial_from(address: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((address, 0)).into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns the end of a plain connection, independent of its data.
pub fn end_of(mut stream: &TcpStream) -> End {
    let mut said = [0; 4096];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return End::Closed,
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

/// A message of the daemon.
#[allow(clippy::large_enum_variant)]
pub enum Heard {
    Control(ControlMessage),
    Object(ObjectId),
    Ended(End),
}

pub struct Client {
    pub tls: StreamOwned<ClientConnection, TcpStream>,
    /// Number of objects, for `Finish`.
    objects_sent: u64,
    /// End of the time limit, which heartbeats don't extend.
    until: Instant,
}

impl Client {
    pub fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Client, End> {
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(config, name).expect("a configuration");
        let mut tls = StreamOwned::new(connection, dial(address));
        while tls.conn.is_handshaking() || tls.conn.wants_write() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Client { tls, objects_sent: 0, until: Instant::now() + PATIENCE })
    }

    /// Connects and exchanges preambles, as a known user.
    pub fn greeted(arena: &Arena, who: &str) -> Result<Client, End> {
        let mut client = Client::connect(arena.address(), arena.config_of(who))?;
        client.preambles()?;
        Ok(client)
    }

    pub fn preambles(&mut self) -> Result<(), End> {
        self.raw(&Preamble::OURS.encode());
        Ok(self.tls.read_exact(&mut [0; PREAMBLE_BYTES])?)
    }

    /// Sends bytes unchanged; returns false if the connection is closed.
    pub fn raw(&mut self, bytes: &[u8]) -> bool {
        self.tls.write_all(bytes).and_then(|()| self.tls.flush()).is_ok()
    }

    pub fn say(&mut self, mut message: ControlMessage) -> bool {
        if let ControlMessage::Finish(finish) = &mut message {
            finish.objects_sent = self.objects_sent;
        }
        self.say_body(&message.to_body())
    }

    pub fn say_body(&mut self, body: &[u8]) -> bool {
        self.frame(&(FrameHeader::control(body.len() as u32), body.to_vec()))
    }

    pub fn frame(&mut self, (header, body): &(FrameHeader, Vec<u8>)) -> bool {
        self.objects_sent += u64::from(header.kind != FrameKind::Control);
        self.raw(&[&header.encode()[..], body].concat())
    }

    /// Returns the next message except heartbeats and counters.
    pub fn hear(&mut self) -> Heard {
        loop {
            match self.hear_any() {
                Ok(_) if Instant::now() > self.until => return Heard::Ended(End::Lasts),
                Ok(Heard::Control(ControlMessage::Heartbeat(_) | ControlMessage::Counters(_))) => {}
                Ok(heard) => return heard,
                Err(error) => return Heard::Ended(error.into()),
            }
        }
    }

    fn hear_any(&mut self) -> io::Result<Heard> {
        let mut raw = [0; HEADER_BYTES];
        self.tls.read_exact(&mut raw)?;
        let header = FrameHeader::decode(&raw, 64 << 20).expect("the daemon keeps to the protocol");
        let mut body = vec![0; header.body_len as usize];
        self.tls.read_exact(&mut body)?;
        Ok(match header.kind {
            FrameKind::Control => Heard::Control(ControlMessage::from_body(&body).expect("a message")),
            FrameKind::Object | FrameKind::Bundle => Heard::Object(header.object),
        })
    }

    /// Returns the next message; an error if the end comes first.
    pub fn message(&mut self) -> Result<ControlMessage, End> {
        match self.hear() {
            Heard::Control(ControlMessage::Refuse(why)) => {
                Err(End::Refused(format!("{} / {}", why.message, why.hint)))
            }
            Heard::Control(ControlMessage::Abort(why)) => {
                Err(End::Aborted(format!("{} / {}", why.message, why.hint)))
            }
            Heard::Control(message) => Ok(message),
            Heard::Object(_) => self.message(),
            Heard::Ended(end) => Err(end),
        }
    }

    /// Receives messages until the daemon closes the connection.
    pub fn end(&mut self) -> End {
        let mut finished = None;
        loop {
            match self.message() {
                Ok(ControlMessage::Finished(counters)) => {
                    finished = Some(End::Finished(counters.entries_failed));
                    // A source sends this too: otherwise the daemon waits for it.
                    self.say(ControlMessage::Leave(TransferCompleteMessage {}));
                }
                Ok(_) => {}
                Err(End::Closed) => return finished.unwrap_or(End::Closed),
                Err(end) => return end,
            }
        }
    }

    /// Sends `Finish`; returns the daemon's reaction.
    pub fn finish(&mut self) -> End {
        self.say(finish());
        self.end()
    }

    /// Waits for any reply to an object; an error once the session is over.
    pub fn answer(&mut self) -> Result<(), End> {
        while !matches!(self.message()?, ControlMessage::ObjectsDone(_)) {}
        Ok(())
    }

    /// Returns the keys for the proofs of this session's data connections.
    pub fn keys(&self, spec: &AgreedTransferSpec, lanes: u32) -> SessionKeys {
        let exporter = self.tls.conn.export_keying_material([0; 32], EXPORTER_LABEL, None);
        let terms = agreed_terms(spec, lanes);
        SessionKeys::derive(&SessionKey::new(SESSION_KEY), Some(&exporter.expect("TLS stands")), &terms)
    }
}

/// Returns a source that writes to a directory of the export, before its first object. Objects go over the
/// control channel.
pub fn source(arena: &Arena) -> Result<Client, End> {
    source_with(arena, &spec())
}

pub fn source_with(arena: &Arena, spec: &AgreedTransferSpec) -> Result<Client, End> {
    let (mut client, _) = calling_source(arena, spec, b"/data/in", 0)?;
    client.say(ControlMessage::DialFailed(DialFailureMessage { problem: "a test".into() }));
    Ok(client)
}

/// Returns the same, before the choice of data connections.
pub fn calling_source(
    arena: &Arena,
    spec: &AgreedTransferSpec,
    destination: &[u8],
    root: u32,
) -> Result<(Client, WelcomeMessage), End> {
    let mut client = Client::greeted(arena, "mallory")?;
    client
        .say(ControlMessage::Hello(HelloMessage { destination: Some(destination.to_vec()), ..hello(spec) }));
    let ControlMessage::Welcome(welcome) = client.message()? else { panic!("no welcome") };
    client.say(ControlMessage::Place(DestinationRootMessage { root, ..DestinationRootMessage::default() }));
    Ok((client, welcome))
}

/// Returns a sink that reads from the export.
pub fn sink(arena: &Arena, sources: &[&[u8]], credits: u32) -> Result<Client, End> {
    let mut client = Client::greeted(arena, "mallory")?;
    client.say(ControlMessage::Hello(reading(sources, credits)));
    let ControlMessage::Welcome(_) = client.message()? else { panic!("no welcome") };
    client.say(ControlMessage::DialFailed(DialFailureMessage { problem: "a test".into() }));
    Ok(client)
}

pub fn spec() -> AgreedTransferSpec {
    AgreedTransferSpec {
        recursive: true,
        checksum: ObjectChecksumAlgorithm::None,
        slot_bytes: 128 << 10,
        streams: 2,
        ..AgreedTransferSpec::default()
    }
}

pub fn hello(spec: &AgreedTransferSpec) -> HelloMessage {
    HelloMessage {
        software: "a test".into(),
        session_key: SESSION_KEY.to_vec(),
        spec: to_json(spec),
        settings: r#"{"pool_bytes":1048576,"lanes":1}"#.into(),
        ..HelloMessage::default()
    }
}

pub fn writing(destination: &[u8]) -> HelloMessage {
    HelloMessage { destination: Some(destination.to_vec()), ..hello(&spec()) }
}

pub fn reading(sources: &[&[u8]], credits: u32) -> HelloMessage {
    let sink = SinkHandshakeFacts {
        destination: 1,
        name: b"dst".to_vec(),
        host: b"another".to_vec(),
        credits,
        ..SinkHandshakeFacts::default()
    };
    let sources = sources.iter().map(|path| path.to_vec()).collect();
    HelloMessage { sources, sink: Some(sink), ..hello(&spec()) }
}

/// Returns the proof on a data connection, or its end.
pub fn proof_on(mut stream: &TcpStream) -> Result<[u8; PROOF_BYTES], End> {
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof)?;
    Ok(proof)
}

// Messages of a source. All checks are zeros, as in a session without checksum.

pub const METADATA: Metadata =
    Metadata { mode: 0o644, mtime: carrack_model::Timestamp { seconds: 1_000_000_000, nanoseconds: 0 } };

pub fn finish() -> ControlMessage {
    ControlMessage::Finish(message::FinishMessage::default())
}

/// Returns a table of regular files in one directory.
pub fn table(directory: &str, files: &[(&[u8], u64)]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(directory.as_bytes()).expect("a path"), None);
    files.iter().for_each(|(name, size)| writer.add_regular(name, *size, &METADATA, 0, None));
    table
}

/// Returns a table whose directory is any bytes.
pub fn table_in(directory: &[u8], files: &[(&[u8], u64)]) -> Vec<u8> {
    let stand_in = "x".repeat(directory.len());
    let mut table = table(&stand_in, files);
    let at = table.windows(directory.len()).position(|window| window == stand_in.as_bytes());
    let at = at.expect("its place");
    table[at..at + directory.len()].copy_from_slice(directory);
    table
}

/// Returns a table of one symbolic link.
pub fn link_table(name: &str, target: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = EntryTableEncoder::new(&mut table);
    writer.begin_section(&RelPath::new(b"").expect("a path"), None);
    writer.add_symlink(name.as_bytes(), target, &METADATA, 0);
    table
}

pub fn bundle(object: u64, content: &[u8], table: &[u8]) -> (FrameHeader, Vec<u8>) {
    let body = [content, table].concat();
    let header = FrameHeader {
        kind: FrameKind::Bundle,
        body_len: body.len() as u32,
        object: ObjectId(object),
        table_len: table.len() as u32,
        ..FrameHeader::control(0)
    };
    (header, body)
}

pub fn object(object: u64, file: u64, offset: u64, body: &[u8]) -> (FrameHeader, Vec<u8>) {
    let header = FrameHeader {
        kind: FrameKind::Object,
        body_len: body.len() as u32,
        object: ObjectId(object),
        file: FileId(file),
        offset,
        ..FrameHeader::control(0)
    };
    (header, body.to_vec())
}

pub fn open(id: u64, table: Vec<u8>) -> ControlMessage {
    ControlMessage::OpenFile(message::OpenFileMessage { id, table, ..message::OpenFileMessage::default() })
}
