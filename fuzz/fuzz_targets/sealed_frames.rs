//! A data connection whose bytes somebody changes: what comes out is a beginning of what went in. Input: level and cipher (1
//! byte), then operations of 4 bytes (what, where as u16, value) on the sealed stream of a few objects.
#![no_main]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;

use carrack_fuzz::Input;
use carrack_machine::SlotPool;
use carrack_model::{SealCipher, FileId, ObjectId, ProtectionLevel};
use carrack_transport::seal::{ConnectionCipherState, TrafficSecret};
use carrack_transport::{EndpointWaitLimit, ReceiveEndpoint, ReceiveResult, TcpReceiver};
use carrack_wire::{FrameHeader, FrameKind, HEADER_BYTES};
use libfuzzer_sys::fuzz_target;

const SLOT_BYTES: u32 = 4096;

/// Lengths of the objects' bodies.
const BODIES: [usize; 5] = [1, 300, 64, 4096, 17];

/// A stream is this long at most, however much is repeated: it has to fit into a socket.
const STREAM_BYTES_MAX: usize = 32 << 10;

static POOL: LazyLock<SlotPool> =
    LazyLock::new(|| SlotPool::new(4 * u64::from(SLOT_BYTES), SLOT_BYTES as usize).expect("a small pool"));

static LISTENER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind("127.0.0.1:0").expect("a port of this host"));

fn seal(protection: ProtectionLevel, cipher: SealCipher) -> Option<ConnectionCipherState> {
    ConnectionCipherState::new(TrafficSecret::new([5; 32]), protection, cipher)
}

fn object(index: usize) -> (FrameHeader, Vec<u8>) {
    let body: Vec<u8> = (0..BODIES[index]).map(|at| (at * 7 + index) as u8).collect();
    let header = FrameHeader {
        kind: FrameKind::Object,
        body_len: body.len() as u32,
        object: ObjectId(index as u64 + 1),
        file: FileId(1),
        offset: index as u64 * 8192,
        table_len: 0,
        lane: 0,
        check: [index as u8; 32],
    };
    (header, body)
}

/// The frames as they are on the wire.
fn sealed(protection: ProtectionLevel, cipher: SealCipher) -> Vec<Vec<u8>> {
    let mut seal = seal(protection, cipher).expect("a level that seals");
    let frame = |index| {
        let (header, mut body) = object(index);
        let header = header.encode();
        let tag = seal.seal(&header, &mut body);
        [&header[..], &tag, &body].concat()
    };
    (0..BODIES.len()).map(frame).collect()
}

/// What an attacker makes of it.
fn changed(frames: &[Vec<u8>], mut input: Input<'_>) -> Vec<u8> {
    let mut frames = frames.to_vec();
    let mut bytes_changed = Vec::new();
    while let Some([what, low, high, value]) = input.take() {
        let at = usize::from(u16::from_le_bytes([low, high]));
        let (here, there) = (at % frames.len().max(1), usize::from(value) % frames.len().max(1));
        match what % 6 {
            _ if frames.is_empty() => {}
            0 => bytes_changed.push((at, value)),
            1 => frames.swap(here, there),
            2 if frames.iter().map(Vec::len).sum::<usize>() < STREAM_BYTES_MAX / 2 => {
                frames.insert(here, frames[there].clone());
            }
            3 => drop(frames.remove(here)),
            4 => frames[here].truncate(usize::from(value) * 20),
            _ => frames[here].extend(std::iter::repeat_n(value, 1 + at % 200)),
        }
    }
    let mut stream = frames.concat();
    stream.truncate(STREAM_BYTES_MAX);
    for (at, value) in bytes_changed {
        let len = stream.len().max(1);
        if let Some(byte) = stream.get_mut(at % len) {
            *byte ^= value;
        }
    }
    stream
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let choice = input.byte();
    let protection = if choice & 1 == 0 { ProtectionLevel::Private } else { ProtectionLevel::Safe };
    let cipher =
        [SealCipher::Aes256Gcm, SealCipher::Aes128Gcm, SealCipher::ChaCha20Poly1305][usize::from(choice >> 1) % 3];
    let frames = sealed(protection, cipher);
    let stream = changed(&frames, input);

    let mut sending = TcpStream::connect(LISTENER.local_addr().expect("an address")).expect("a connection");
    let (receiving, _) = LISTENER.accept().expect("a connection");
    sending.write_all(&stream).expect("it fits into the socket");
    drop(sending);
    let mut receiver = TcpReceiver::with_seal(receiving, SLOT_BYTES, seal(protection, cipher));
    let mut count = 0;
    let is_whole = loop {
        match receiver.advance(EndpointWaitLimit::Brief, &POOL) {
            Ok(ReceiveResult::Object(incoming)) => {
                let (header, body) = object(count);
                assert_eq!((incoming.header, incoming.body()), (header, &body[..]), "not what was sent");
                count += 1;
            }
            Ok(ReceiveResult::Pending) => {}
            Ok(ReceiveResult::Closed) => break true,
            Err(_) => break false,
        }
    };
    // As far as the bytes are those that were sent, the objects are.
    let sent = frames.concat();
    let same = stream.iter().zip(&sent).take_while(|(one, other)| one == other).count();
    let ends = frames.iter().scan(0, |end, frame| {
        *end += frame.len();
        Some(*end)
    });
    let expected = ends.take_while(|&end| end <= same).count();
    assert_eq!(count, expected, "of {} frames; a header has {HEADER_BYTES} bytes", frames.len());
    if is_whole {
        assert_eq!(stream, sent[..stream.len().min(sent.len())], "an end that is none");
    }
    drop(receiver);
    assert_eq!(POOL.free_count(), 4, "slots come back");
});
