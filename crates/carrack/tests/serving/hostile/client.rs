//! A client that the test plays: TLS as carrack's own, and then whatever the test wants to say.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_model::{Checksum, FileId, Metadata, ObjectId, RelPath, TransferSpec};
use carrack_transport::seal::{EXPORTER_LABEL, SessionKeys};
use carrack_wire::auth::{PROOF_BYTES, SessionKey};
use carrack_wire::message::{self, Control, DialFailed, Hello, Leave, Place, SinkState, Welcome};
use carrack_wire::to_json;
use carrack_wire::{
    FrameHeader, FrameKind, HEADER_BYTES, PREAMBLE_BYTES, Preamble, TableWriter, agreed_terms,
};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::arena::Arena;

/// Where all attackers are: not where the others are, so that what strangers may do is counted apart.
pub const ATTACKER: [u8; 4] = [127, 0, 0, 66];

/// Longer than the daemon's own limits of time; what lasts as long did not end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What every attacker says the session's key is.
pub const SESSION_KEY: [u8; 32] = [7; 32];

/// How something ended, as the other end of it saw it.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Without a word.
    Closed,
    /// With an alert of TLS.
    Alert(String),
    /// The session was refused, and why.
    Refused(String),
    /// It was aborted, and why.
    Aborted(String),
    /// It came to its end, with so many entries that failed.
    Finished(u64),
    /// It had not ended when patience was over.
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

/// A TCP connection of an attacker.
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

/// How a plain connection ends; what was said on it does not matter.
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

/// What came from the daemon.
#[allow(clippy::large_enum_variant)]
pub enum Heard {
    Control(Control),
    Object(ObjectId),
    Ended(End),
}

pub struct Client {
    pub tls: StreamOwned<ClientConnection, TcpStream>,
    /// A `Finish` counts them.
    objects_sent: u64,
    /// When patience is over, whatever heartbeats come.
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

    /// Past the preambles, as somebody whom the daemon knows.
    pub fn greeted(arena: &Arena, who: &str) -> Result<Client, End> {
        let mut client = Client::connect(arena.address(), arena.config_of(who))?;
        client.preambles()?;
        Ok(client)
    }

    pub fn preambles(&mut self) -> Result<(), End> {
        self.raw(&Preamble::OURS.encode());
        Ok(self.tls.read_exact(&mut [0; PREAMBLE_BYTES])?)
    }

    /// Bytes as they are; false if nobody takes them.
    pub fn raw(&mut self, bytes: &[u8]) -> bool {
        self.tls.write_all(bytes).and_then(|()| self.tls.flush()).is_ok()
    }

    pub fn say(&mut self, mut message: Control) -> bool {
        if let Control::Finish(finish) = &mut message {
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

    /// The next thing but heartbeats and counters.
    pub fn hear(&mut self) -> Heard {
        loop {
            match self.hear_any() {
                Ok(_) if Instant::now() > self.until => return Heard::Ended(End::Lasts),
                Ok(Heard::Control(Control::Heartbeat(_) | Control::Counters(_))) => {}
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
            FrameKind::Control => Heard::Control(Control::from_body(&body).expect("a message")),
            FrameKind::Object | FrameKind::Bundle => Heard::Object(header.object),
        })
    }

    /// The next message; how it ended if that comes first.
    pub fn message(&mut self) -> Result<Control, End> {
        match self.hear() {
            Heard::Control(Control::Refuse(why)) => {
                Err(End::Refused(format!("{} / {}", why.message, why.hint)))
            }
            Heard::Control(Control::Abort(why)) => {
                Err(End::Aborted(format!("{} / {}", why.message, why.hint)))
            }
            Heard::Control(message) => Ok(message),
            Heard::Object(_) => self.message(),
            Heard::Ended(end) => Err(end),
        }
    }

    /// Listens until the daemon leaves.
    pub fn end(&mut self) -> End {
        let mut finished = None;
        loop {
            match self.message() {
                Ok(Control::Finished(counters)) => {
                    finished = Some(End::Finished(counters.entries_failed));
                    // As a source does: else the daemon waits for the word.
                    self.say(Control::Leave(Leave {}));
                }
                Ok(_) => {}
                Err(End::Closed) => return finished.unwrap_or(End::Closed),
                Err(end) => return end,
            }
        }
    }

    /// Says it is over, and how the daemon takes that.
    pub fn finish(&mut self) -> End {
        self.say(finish());
        self.end()
    }

    /// Waits for the answer to an object, whatever it is; nothing once the session is over.
    pub fn answer(&mut self) -> Result<(), End> {
        while !matches!(self.message()?, Control::ObjectsDone(_)) {}
        Ok(())
    }

    /// What the proofs of this session's data connections are made with.
    pub fn keys(&self, spec: &TransferSpec, lanes: u32) -> SessionKeys {
        let exporter = self.tls.conn.export_keying_material([0; 32], EXPORTER_LABEL, None);
        let terms = agreed_terms(spec, lanes);
        SessionKeys::derive(&SessionKey::new(SESSION_KEY), Some(&exporter.expect("TLS stands")), &terms)
    }
}

/// A source that writes to a directory of the export, as far as its first object. Objects go over the control channel.
pub fn source(arena: &Arena) -> Result<Client, End> {
    source_with(arena, &spec())
}

pub fn source_with(arena: &Arena, spec: &TransferSpec) -> Result<Client, End> {
    let (mut client, _) = calling_source(arena, spec, b"/data/in", 0)?;
    client.say(Control::DialFailed(DialFailed { problem: "a test".into() }));
    Ok(client)
}

/// The same, before it is said how the data travels.
pub fn calling_source(
    arena: &Arena,
    spec: &TransferSpec,
    destination: &[u8],
    root: u32,
) -> Result<(Client, Welcome), End> {
    let mut client = Client::greeted(arena, "mallory")?;
    client.say(Control::Hello(Hello { destination: Some(destination.to_vec()), ..hello(spec) }));
    let Control::Welcome(welcome) = client.message()? else { panic!("no welcome") };
    client.say(Control::Place(Place { root, ..Place::default() }));
    Ok((client, welcome))
}

/// A sink that reads from the export.
pub fn sink(arena: &Arena, sources: &[&[u8]], credits: u32) -> Result<Client, End> {
    let mut client = Client::greeted(arena, "mallory")?;
    client.say(Control::Hello(reading(sources, credits)));
    let Control::Welcome(_) = client.message()? else { panic!("no welcome") };
    client.say(Control::DialFailed(DialFailed { problem: "a test".into() }));
    Ok(client)
}

pub fn spec() -> TransferSpec {
    TransferSpec {
        recursive: true,
        checksum: Checksum::None,
        slot_bytes: 128 << 10,
        streams: 2,
        ..TransferSpec::default()
    }
}

pub fn hello(spec: &TransferSpec) -> Hello {
    Hello {
        software: "a test".into(),
        session_key: SESSION_KEY.to_vec(),
        spec: to_json(spec),
        settings: r#"{"pool_bytes":1048576,"lanes":1}"#.into(),
        ..Hello::default()
    }
}

pub fn writing(destination: &[u8]) -> Hello {
    Hello { destination: Some(destination.to_vec()), ..hello(&spec()) }
}

pub fn reading(sources: &[&[u8]], credits: u32) -> Hello {
    let sink = SinkState {
        destination: 1,
        name: b"dst".to_vec(),
        host: b"another".to_vec(),
        credits,
        ..SinkState::default()
    };
    let sources = sources.iter().map(|path| path.to_vec()).collect();
    Hello { sources, sink: Some(sink), ..hello(&spec()) }
}

/// Whether a data connection gets its proof, or how it ends.
pub fn proof_on(mut stream: &TcpStream) -> Result<[u8; PROOF_BYTES], End> {
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof)?;
    Ok(proof)
}

// What a source says. All checks are zeros, as a session without checksum has them.

pub const METADATA: Metadata =
    Metadata { mode: 0o644, mtime: carrack_model::Timestamp { seconds: 1_000_000_000, nanoseconds: 0 } };

pub fn finish() -> Control {
    Control::Finish(message::Finish::default())
}

/// A table of regular files in one directory.
pub fn table(directory: &str, files: &[(&[u8], u64)]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = TableWriter::new(&mut table);
    writer.section(&RelPath::new(directory.as_bytes()).expect("a path"), None);
    files.iter().for_each(|(name, size)| writer.regular(name, *size, &METADATA, 0, None));
    table
}

/// A table whose directory is any bytes.
pub fn table_in(directory: &[u8], files: &[(&[u8], u64)]) -> Vec<u8> {
    let stand_in = "x".repeat(directory.len());
    let mut table = table(&stand_in, files);
    let at = table.windows(directory.len()).position(|window| window == stand_in.as_bytes());
    let at = at.expect("its place");
    table[at..at + directory.len()].copy_from_slice(directory);
    table
}

/// A table of one symbolic link.
pub fn link_table(name: &str, target: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut writer = TableWriter::new(&mut table);
    writer.section(&RelPath::new(b"").expect("a path"), None);
    writer.symlink(name.as_bytes(), target, &METADATA, 0);
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

pub fn open(id: u64, table: Vec<u8>) -> Control {
    Control::OpenFile(message::OpenFile { id, table, ..message::OpenFile::default() })
}
