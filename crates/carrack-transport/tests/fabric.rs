//! The conformance suite on RMA, on the providers that need no hardware.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carrack_fabric::{Endpoint, Filter, Limits, Offer, usable_offers};
use carrack_machine::SlotPool;
use carrack_transport::conformance::{Pair, run};
use carrack_transport::fabric::{FabricSink, FabricSource};
use carrack_transport::{
    Outgoing, Patience, ReceiveEndpoint, Received, SendEndpoint, SendState, TransportError,
};

const STALL: Duration = Duration::from_secs(20);

fn offer(provider: &str) -> Option<Offer> {
    let source = (provider != "shm").then(|| "127.0.0.1".to_string());
    match usable_offers(&Filter { provider: Some(provider.to_string()), source }) {
        Ok(offers) => offers.into_iter().next(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
    }
}

/// What a comm thread does for its lane, in a thread of its own, until this is dropped.
struct Turning {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a hub's turn has come to.
type Turned = Result<(bool, bool), TransportError>;

impl Turning {
    /// `turn` says whether anything happened and whether all is done.
    fn start(mut turn: impl FnMut() -> Turned + Send + 'static) -> Turning {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // What is offered stays there until it is taken, or the other end says that it has gone.
            while let Ok((has_moved, is_done)) = turn() {
                if is_done && !has_moved && flag.load(Ordering::Relaxed) {
                    return;
                }
                if !has_moved {
                    thread::sleep(Duration::from_micros(50));
                }
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

impl SendEndpoint for Driven<dyn SendEndpoint> {
    fn post(&mut self, outgoing: Outgoing) -> Result<(), Outgoing> {
        self.end.post(outgoing)
    }
    fn advance(&mut self, patience: Patience) -> Result<SendState, TransportError> {
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
    fn advance(&mut self, patience: Patience, slots: &SlotPool) -> Result<Received, TransportError> {
        self.end.advance(patience, slots)
    }
    fn readiness(&self) -> BorrowedFd<'_> {
        self.end.readiness()
    }
}

fn connected(offer: &Offer) -> Pair {
    let open = || Endpoint::open(offer, Limits::default()).expect("an endpoint");
    let (near, far) = (open(), open());
    let (near_name, far_name) = (near.name().expect("a name"), far.name().expect("a name"));
    let slots = SlotPool::new(8 * (64 << 10), 64 << 10).expect("a pool");
    let (mut source, mut senders) = FabricSource::new(near, &far_name, 1, STALL).expect("a hub");
    let (mut sink, mut receivers) = FabricSink::new(far, &near_name, 1, slots, STALL).expect("a hub");
    let _turning = Turning::start(move || Ok((source.turn()?, source.is_done())));
    let sender = Driven { end: senders.remove(0), _turning };
    let _turning = Turning::start(move || Ok((sink.turn()?, true)));
    let receiver = Driven { end: receivers.remove(0), _turning };
    (Box::new(sender), Box::new(receiver))
}

fn conforms(provider: &str) {
    if let Some(offer) = offer(provider) {
        run(&|| connected(&offer));
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
