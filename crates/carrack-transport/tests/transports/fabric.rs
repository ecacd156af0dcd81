//! The conformance suite on RMA, on the providers that need no hardware.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carrack_machine::{NodeSet, SlotPool};
use carrack_model::{ProtectionLevel, SealCipher};
use carrack_transport::conformance::{TestEndpointPair, run};
use carrack_transport::fabric::{
    FabricProgressEngine, FabricRequirements, FabricStreamTcpConnection, UnconnectedFabricLane, usable_offers,
};
use carrack_transport::seal::{ConnectionCipherState, TrafficSecret};
use carrack_transport::{
    EndpointWaitLimit, OutgoingObject, ReceiveEndpoint, ReceiveResult, SenderReadiness, TransportError,
    TransportSendEndpoint,
};
use rustix::event::{PollFd, Timespec, poll};

const STALL: Duration = Duration::from_secs(20);
const SLOT_BYTES: usize = 64 << 10;

fn is_there(provider: &str) -> bool {
    match usable_offers(Some(provider)) {
        Ok(_) => true,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            false
        }
    }
}

/// What a comm thread does for its lane, in a thread of its own, until this is dropped.
struct Turning {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Turning {
    /// Goes on until nothing is left to do.
    fn start(mut hub: Box<dyn FabricProgressEngine>) -> Turning {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // What is offered stays there until it is taken, or the other end says that it has gone.
            while let Ok(rest) = hub.make_progress() {
                if rest >= Duration::from_secs(1) && flag.load(Ordering::Relaxed) {
                    return;
                }
                let rest = rest.min(Duration::from_millis(20));
                let time = Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() };
                let ready = hub.readiness();
                let mut fds: Vec<_> =
                    ready.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
                let _ = poll(&mut fds, Some(&time));
            }
        });
        Turning { is_over, thread: Some(thread) }
    }
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// An end of a stream whose hub is turned as long as it lives; the end goes first.
struct Driven<E: ?Sized> {
    end: Box<E>,
    _turning: Turning,
}

impl TransportSendEndpoint for Driven<dyn TransportSendEndpoint> {
    fn post(&mut self, outgoing: OutgoingObject) -> Result<(), OutgoingObject> {
        self.end.post(outgoing)
    }
    fn advance(&mut self, patience: EndpointWaitLimit) -> Result<SenderReadiness, TransportError> {
        self.end.advance(patience)
    }
    fn readiness(&self) -> BorrowedFd<'_> {
        self.end.readiness()
    }
    fn finish(&mut self) -> Result<(), TransportError> {
        self.end.finish()
    }
}

impl ReceiveEndpoint for Driven<dyn ReceiveEndpoint> {
    fn advance(
        &mut self,
        patience: EndpointWaitLimit,
        slots: &SlotPool,
    ) -> Result<ReceiveResult, TransportError> {
        self.end.advance(patience, slots)
    }
    fn readiness(&self) -> BorrowedFd<'_> {
        self.end.readiness()
    }
}

fn connected(provider: &str, protection: ProtectionLevel) -> TestEndpointPair {
    let pool = || SlotPool::new(8 * SLOT_BYTES as u64, SLOT_BYTES).expect("a pool");
    let nodes = NodeSet::new();
    let wanted = FabricRequirements {
        provider,
        network: "",
        source: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        nodes: &nodes,
    };
    let near = UnconnectedFabricLane::open_source(&wanted, pool()).expect("an endpoint");
    let far = UnconnectedFabricLane::open_sink(&wanted, pool()).expect("an endpoint");
    let (near_name, far_name) = (near.name().to_vec(), far.name().to_vec());
    let (one, other) = UnixStream::pair().expect("two sockets");
    let aside = |socket: UnixStream| {
        let seal = ConnectionCipherState::new(TrafficSecret::new([3; 32]), protection, SealCipher::Aes256Gcm);
        vec![FabricStreamTcpConnection { socket: socket.into(), seal }]
    };
    let (source, mut senders) = near.into_source(&far_name, aside(one), STALL).expect("a hub");
    let (sink, mut receivers) = far.into_sink(&near_name, aside(other), STALL).expect("a hub");
    let sender = Driven { end: senders.remove(0), _turning: Turning::start(source) };
    let receiver = Driven { end: receivers.remove(0), _turning: Turning::start(sink) };
    (Box::new(sender), Box::new(receiver))
}

fn conforms(provider: &str) {
    if is_there(provider) {
        for protection in [ProtectionLevel::Clear, ProtectionLevel::Safe, ProtectionLevel::Private] {
            run(&|| connected(provider, protection));
        }
    }
}

#[test]
fn tcp_rxm() {
    conforms("tcp;ofi_rxm");
}

#[test]
fn shm() {
    conforms("shm");
}

#[test]
fn sockets() {
    conforms("sockets");
}
