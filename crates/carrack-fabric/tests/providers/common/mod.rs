//! What the tests of real providers share.

use std::io::Write;
use std::time::{Duration, Instant};

use carrack_fabric::{
    EndpointEvent, EndpointOperationLimits, FabricEndpoint, FabricInfoEntry, FabricPeer, FabricPostRefusal,
    ProviderOfferFilter, RegisteredPool, RmaTransfer, usable_offers,
};
use carrack_machine::{Slot, SlotPool};

/// Those that need no hardware.
pub const PROVIDERS: [&str; 4] = ["tcp;ofi_rxm", "net", "shm", "sockets"];

/// Long for these machines, short for people.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Says past the harness that a test has not tested.
pub fn skip(why: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Endpoints of this provider, on this host only; nothing, which is said, where it is not there.
pub fn offer(provider: &str) -> Option<FabricInfoEntry> {
    let source = (provider != "shm").then(|| "127.0.0.1".to_string());
    match usable_offers(&ProviderOfferFilter { provider: Some(provider.to_string()), source }) {
        Ok(offers) => offers.into_iter().next(),
        Err(error) => {
            skip(error);
            None
        }
    }
}

/// One after the other, so that a provider's trouble names it.
pub fn with_each_provider(test: impl Fn(&str, &FabricInfoEntry)) {
    for provider in PROVIDERS {
        if let Some(offer) = offer(provider) {
            let _ = writeln!(std::io::stderr(), "on {provider}");
            test(provider, &offer);
        }
    }
}

/// Two endpoints that know each other.
pub struct Pair {
    pub a: FabricEndpoint,
    pub b: FabricEndpoint,
    pub b_at_a: FabricPeer,
    pub a_at_b: FabricPeer,
    pub a_events: Vec<EndpointEvent>,
    pub b_events: Vec<EndpointEvent>,
}

impl Pair {
    pub fn new(offer: &FabricInfoEntry, limits: EndpointOperationLimits) -> Pair {
        let open = || FabricEndpoint::open(offer, limits).expect("an endpoint");
        let (mut a, mut b) = (open(), open());
        let b_at_a = a.add_peer(&b.name().expect("a name")).expect("a peer");
        let a_at_b = b.add_peer(&a.name().expect("a name")).expect("a peer");
        Pair { a, b, b_at_a, a_at_b, a_events: Vec::new(), b_events: Vec::new() }
    }

    /// Both ends move on once.
    pub fn turn(&mut self) {
        self.a.poll(&mut self.a_events).expect("a's queue");
        self.b.poll(&mut self.b_events).expect("b's queue");
    }

    /// Sends from a to b; a connection that is being made is waited for.
    pub fn send(&mut self, message: &[u8], tag: u64) {
        let began = Instant::now();
        while !self.a.send(self.b_at_a, message, tag).expect("sent") {
            assert!(began.elapsed() < PATIENCE, "a message is not taken");
            self.turn();
        }
    }

    /// Begins a read by a of b's memory.
    pub fn read(&mut self, region: &RegisteredPool, transfer: RmaTransfer) {
        self.begin(transfer, |pair, transfer| pair.a.read(pair.b_at_a, region, transfer));
    }

    /// Begins a write by a to b's memory.
    pub fn write(&mut self, region: &RegisteredPool, transfer: RmaTransfer, notice: Option<u64>) {
        self.begin(transfer, |pair, transfer| pair.a.write(pair.b_at_a, region, transfer, notice));
    }

    fn begin(
        &mut self,
        mut transfer: RmaTransfer,
        post: impl Fn(&mut Pair, RmaTransfer) -> Result<(), FabricPostRefusal>,
    ) {
        let RmaTransfer { at, bytes, place, tag, .. } = transfer;
        let began = Instant::now();
        loop {
            match post(self, transfer) {
                Ok(()) => return,
                Err(FabricPostRefusal::Failed(_, error)) => panic!("{error}"),
                Err(FabricPostRefusal::Full(slot)) => transfer = RmaTransfer { slot, at, bytes, place, tag },
            }
            assert!(began.elapsed() < PATIENCE, "an operation is not taken");
            self.turn();
        }
    }

    /// Until it is so; panics when that takes too long.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Pair) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?} {:?}", self.a_events, self.b_events);
            self.turn();
        }
    }
}

/// A small generator (xorshift64*), so that a failure can be had again.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }
}

/// What byte is where in a pattern.
pub fn pattern(seed: usize, at: usize) -> u8 {
    (seed.wrapping_mul(31) + at + at / 251) as u8
}

/// Fills with a pattern.
pub fn paint(bytes: &mut [u8], seed: usize) {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(seed, at));
}

pub fn pool(slots: usize, slot_bytes: usize) -> SlotPool {
    SlotPool::new((slots * slot_bytes) as u64, slot_bytes).expect("a pool")
}

/// All slots of a pool, each filled with its own canary.
pub fn leased(pool: &SlotPool) -> Vec<Slot> {
    let mut slots: Vec<Slot> = std::iter::from_fn(|| pool.try_lease()).collect();
    slots.iter_mut().for_each(|slot| slot.bytes_mut().fill(CANARY));
    slots
}

pub const CANARY: u8 = 0xC7;

pub fn is_untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == CANARY)
}
