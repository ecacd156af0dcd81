//! Two processes: this test program starts itself as the peer.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{is_untouched, leased, offer, paint, pattern, pool, with_each_provider};
use carrack_fabric::{
    EndpointEvent, EndpointOperationLimits, FabricEndpoint, FabricError, FabricInfoEntry, FabricMemoryAccess,
    FabricPeer, FabricPostRefusal, RdmaWritableMemory, RemoteMemory, RmaTransfer,
};

const BYTES: usize = 1 << 20;
const PROVIDER: &str = "CARRACK_FABRIC_TEST_PROVIDER";
const SOCKET: &str = "CARRACK_FABRIC_TEST_SOCKET";

fn put(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).expect("the other process listens");
    stream.write_all(bytes).expect("the other process listens");
}

fn get(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).expect("the other process speaks");
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).expect("the other process speaks");
    bytes
}

fn place_to_bytes(place: RemoteMemory) -> Vec<u8> {
    [place.address.to_le_bytes(), place.key.to_le_bytes()].concat()
}

fn place_from_bytes(bytes: &[u8]) -> RemoteMemory {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    RemoteMemory { address: word(0), key: word(8) }
}

/// The peer: a slot to read from, a window to write to; it says what it gets by messages until it is ended.
#[test]
fn the_peer_process() {
    let (Ok(provider), Ok(path)) = (std::env::var(PROVIDER), std::env::var(SOCKET)) else { return };
    let mut stream = UnixStream::connect(path).expect("the parent listens");
    let mut endpoint =
        FabricEndpoint::open(&offer(&provider).expect("there"), EndpointOperationLimits::default())
            .expect("an endpoint");
    let slots = pool(1, BYTES);
    let region = endpoint.register(&slots, FabricMemoryAccess::PeersRead).expect("registered");
    let window = endpoint.open_window(BYTES).expect("a window");
    let mut slot = slots.try_lease().expect("free");
    paint(slot.bytes_mut(), 5);
    put(&mut stream, &endpoint.name().expect("a name"));
    put(&mut stream, &place_to_bytes(region.remote_memory_of(&slot).expect("its slot")));
    put(&mut stream, &place_to_bytes(window.remote_memory_at(0)));
    let parent = endpoint.add_peer(&get(&mut stream)).expect("a peer");
    stream.set_nonblocking(true).expect("a socket");
    // Ends with the parent: a read then says 0 bytes.
    while !matches!(stream.read(&mut [0; 1]), Ok(0)) {
        answer(&mut endpoint, parent, &window);
    }
}

/// Each message with the sum of the bytes in the window.
fn answer(endpoint: &mut FabricEndpoint, parent: FabricPeer, window: &RdmaWritableMemory) {
    let (mut events, mut seen) = (Vec::new(), vec![0; BYTES]);
    let _ = endpoint.poll(&mut events);
    for event in events {
        let EndpointEvent::Message(text) = event else { continue };
        window.copy_to(0, &mut seen);
        let answer = [text, seen.iter().map(|&b| u64::from(b)).sum::<u64>().to_le_bytes().to_vec()].concat();
        while !endpoint.send(parent, &answer, 0).expect("sent") {
            let _ = endpoint.poll(&mut Vec::new());
        }
    }
}

/// A started peer and an endpoint that knows it.
struct Session {
    child: Child,
    endpoint: FabricEndpoint,
    peer: FabricPeer,
    theirs: RemoteMemory,
    window: RemoteMemory,
    stream: UnixStream,
    peer_name: Vec<u8>,
    directory: std::path::PathBuf,
}

impl Session {
    fn start(provider: &str, offer: &FabricInfoEntry) -> Session {
        let unique = format!("carrack-fabric-{}-{:?}", std::process::id(), std::thread::current().id());
        let directory = std::env::temp_dir().join(unique.replace(['(', ')'], ""));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("socket");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "processes::the_peer_process", "--nocapture", "--test-threads", "1"])
            .env(PROVIDER, provider)
            .env(SOCKET, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a process");
        let (mut stream, _) = listener.accept().expect("the peer comes");
        let mut endpoint =
            FabricEndpoint::open(offer, EndpointOperationLimits::default()).expect("an endpoint");
        let peer_name = get(&mut stream);
        let peer = endpoint.add_peer(&peer_name).expect("a peer");
        let (theirs, window) = (place_from_bytes(&get(&mut stream)), place_from_bytes(&get(&mut stream)));
        put(&mut stream, &endpoint.name().expect("a name"));
        Session { child, endpoint, peer, theirs, window, stream, peer_name, directory }
    }

    /// A message there and its answer.
    fn ask(&mut self, text: &[u8]) -> u64 {
        let (mut events, began) = (Vec::new(), Instant::now());
        let mut is_sent = false;
        loop {
            assert!(began.elapsed() < crate::common::PATIENCE, "no answer: {events:?}");
            is_sent = is_sent || self.endpoint.send(self.peer, text, 0).expect("sent");
            self.endpoint.poll(&mut events).expect("the queue");
            for event in events.drain(..) {
                if let EndpointEvent::Message(answer) = event {
                    let (head, sum) = answer.split_at(answer.len() - 8);
                    assert_eq!(head, text);
                    return u64::from_le_bytes(sum.try_into().expect("8 bytes"));
                }
            }
        }
    }
}

impl Drop for Session {
    /// The peer ends by itself when its stream does, if it still can.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
        // shm's memory of a process that was killed stays: 16 MiB.
        let name = String::from_utf8_lossy(&self.peer_name).into_owned();
        if let Some(file) = name.trim_end_matches('\0').strip_prefix("fi_shm://") {
            let _ = std::fs::remove_file(std::path::Path::new("/dev/shm").join(file));
        }
    }
}

#[test]
fn two_processes_exchange_messages_reads_and_writes() {
    with_each_provider(|provider, offer| {
        let mut session = Session::start(provider, offer);
        assert_eq!(session.ask(b"empty?"), 0, "{provider}");
        let slots = pool(3, BYTES);
        let region = session.endpoint.register(&slots, FabricMemoryAccess::Local).expect("registered");
        let mut all = leased(&slots);
        let slot = all.remove(1);
        let (theirs, peer) = (session.theirs, session.peer);
        let transfer = RmaTransfer { slot, at: 0, bytes: BYTES, place: theirs, tag: 1 };
        assert!(session.endpoint.read(peer, &region, transfer).is_ok());
        let slot = finish_one(&mut session.endpoint);
        assert!(slot.bytes().iter().enumerate().all(|(at, &byte)| byte == pattern(5, at)), "{provider}");
        let sum: u64 = slot.bytes().iter().map(|&b| u64::from(b)).sum();
        let transfer = RmaTransfer { slot, at: 0, bytes: BYTES, place: session.window, tag: 2 };
        assert!(session.endpoint.write(peer, &region, transfer, None).is_ok());
        drop(finish_one(&mut session.endpoint));
        assert_eq!(session.ask(b"written?"), sum, "{provider}");
        assert!(all.iter().all(|slot| is_untouched(slot.bytes())), "{provider}");
    });
}

fn finish_one(endpoint: &mut FabricEndpoint) -> carrack_machine::Slot {
    let (mut events, began) = (Vec::new(), Instant::now());
    loop {
        assert!(began.elapsed() < crate::common::PATIENCE, "an operation doesn't end");
        endpoint.poll(&mut events).expect("the queue");
        for event in events.drain(..) {
            if let EndpointEvent::Read { slot, result, .. } | EndpointEvent::Written { slot, result, .. } =
                event
            {
                assert_eq!(result, Ok(()));
                return slot;
            }
        }
    }
}

/// A peer that dies in the middle of reads and writes: each operation ends with an error, or is known to be
/// overdue; then closing doesn't hang, the slots come back and stay as they are.
#[test]
fn a_peer_that_dies_is_noticed() {
    with_each_provider(|provider, offer| {
        for is_write in [false, true] {
            let mut session = Session::start(provider, offer);
            session.ask(b"connected");
            let slots = pool(64, BYTES);
            let region = session.endpoint.register(&slots, FabricMemoryAccess::Local).expect("registered");
            for slot in leased(&slots) {
                let place = if is_write { session.window } else { session.theirs };
                let transfer = RmaTransfer { slot, at: 0, bytes: BYTES, place, tag: 0 };
                let posted = match is_write {
                    true => session.endpoint.write(session.peer, &region, transfer, None),
                    false => session.endpoint.read(session.peer, &region, transfer),
                };
                assert!(matches!(posted, Ok(()) | Err(FabricPostRefusal::Full(_))), "{provider}: {posted:?}");
            }
            session.child.kill().expect("ours");
            session.child.wait().expect("ours");
            let began = Instant::now();
            let (done, failed, end) = watch(&mut session.endpoint);
            let (overdue, noticed) = (session.endpoint.operations_under_way(), began.elapsed());
            eprintln!(
                "{provider}: {}: {done} done, {failed} failed, {overdue} overdue, {end:?}, after {noticed:?}",
                if is_write { "writes" } else { "reads" }
            );
            assert!(noticed < Duration::from_secs(10), "{provider}");
            let closing = Instant::now();
            drop((session, region));
            assert!(closing.elapsed() < Duration::from_secs(10), "{provider}");
            assert_eq!(slots.free_count(), 64, "{provider}");
        }
    });
}

/// Until all operations are over, or one is overdue, or the endpoint fails: how many were done, how many
/// failed.
fn watch(endpoint: &mut FabricEndpoint) -> (usize, usize, Option<FabricError>) {
    let (mut events, mut done, mut failed) = (Vec::new(), 0, 0);
    while endpoint.oldest_operation_age().is_some_and(|age| age < Duration::from_secs(3)) {
        if let Err(error) = endpoint.poll(&mut events) {
            return (done, failed, Some(error));
        }
        for event in events.drain(..) {
            if let EndpointEvent::Read { result, .. } | EndpointEvent::Written { result, .. } = event {
                *(if result.is_ok() { &mut done } else { &mut failed }) += 1;
            }
        }
    }
    (done, failed, None)
}
