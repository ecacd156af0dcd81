//! The conformance suite of all transports. Each test gets a fresh pair of connected endpoints.
//!
//! The suite is a public function, so that other crates can run it on their own transports too.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use carrack_machine::{Slot, SlotPool};
use carrack_model::{FileId, ObjectId};
use carrack_wire::{FrameHeader, FrameKind};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::endpoint_interface::{
    EndpointWaitLimit, IncomingObject, ObjectPayload, OutgoingObject, ReceiveEndpoint, ReceiveResult,
    SenderReadiness, SendfileSourceFile, TransportSendEndpoint,
};

/// Both ends of one connection.
pub type TestEndpointPair = (Box<dyn TransportSendEndpoint>, Box<dyn ReceiveEndpoint>);

const SLOT_BYTES: usize = 64 << 10;

/// Runs the whole suite on pairs that `make` connects. Panics if a transport fails a test.
pub fn run(make: &dyn Fn() -> TestEndpointPair) {
    objects_arrive_whole_and_in_order(make());
    an_empty_object_arrives(make());
    a_full_endpoint_gives_the_object_back(make());
    without_patience_nothing_waits(make());
    patience_ends(make());
    finishing_is_seen_after_the_last_object(make());
    a_vanished_sender_is_noticed(make());
    a_vanished_receiver_is_noticed(make());
    slots_return_to_their_pool(make());
    extents_are_sent_or_given_back(make());
    a_file_that_shrinks_spoils_its_extent_only(make());
}

fn pool(slots: usize) -> SlotPool {
    SlotPool::new((slots * SLOT_BYTES) as u64, SLOT_BYTES).expect("a small pool")
}

fn header(id: u64, offset: u64, len: usize) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Object,
        body_len: len as u32,
        object: ObjectId(id),
        file: FileId(1),
        offset,
        table_len: 0,
        lane: 0,
        check: [id as u8; 32],
    }
}

fn object(slot: Slot, id: u64, len: usize) -> OutgoingObject {
    let mut slot = slot;
    slot.bytes_mut()[..len].fill(id as u8);
    OutgoingObject { header: header(id, id * 10, len), payload: ObjectPayload::Slot(slot) }
}

/// Posts an object and drives it until it has left. The receiver must live until then: a closed receiver is
/// an error.
fn send(sender: &mut dyn TransportSendEndpoint, mut outgoing: OutgoingObject) {
    loop {
        match sender.post(outgoing) {
            Ok(()) => break,
            Err(back) => outgoing = back,
        }
        sender.advance(EndpointWaitLimit::Brief).expect("the connection stands");
    }
    while sender.advance(EndpointWaitLimit::Brief).expect("the connection stands") == SenderReadiness::Busy {}
}

fn receive(receiver: &mut dyn ReceiveEndpoint, slots: &SlotPool) -> Option<IncomingObject> {
    loop {
        match receiver.advance(EndpointWaitLimit::Brief, slots).expect("the connection stands") {
            ReceiveResult::Object(incoming) => return Some(incoming),
            ReceiveResult::Pending => {}
            ReceiveResult::Closed => return None,
        }
    }
}

fn objects_arrive_whole_and_in_order((mut sender, mut receiver): TestEndpointPair) {
    let sending = thread::spawn(move || {
        let slots = pool(2);
        for id in 1..=200 {
            let slot = slots.lease().expect("the pool is open");
            send(&mut *sender, object(slot, id, (id as usize * 331) % SLOT_BYTES));
        }
        sender.finish().expect("idle");
    });
    let slots = pool(2);
    for id in 1..=200u64 {
        let incoming = receive(&mut *receiver, &slots).expect("200 objects");
        assert_eq!(incoming.header.object, ObjectId(id));
        assert_eq!(incoming.header.offset, id * 10);
        assert_eq!(incoming.header.check, [id as u8; 32]);
        assert_eq!(incoming.body().len(), (id as usize * 331) % SLOT_BYTES);
        assert!(incoming.body().iter().all(|&b| b == id as u8), "object {id} is damaged");
    }
    assert!(receive(&mut *receiver, &slots).is_none());
    sending.join().expect("the sender is content");
}

fn an_empty_object_arrives((mut sender, mut receiver): TestEndpointPair) {
    let slots = pool(2);
    send(&mut *sender, object(slots.lease().expect("open"), 7, 0));
    let incoming = receive(&mut *receiver, &slots).expect("an object");
    assert_eq!((incoming.header.object, incoming.body().len()), (ObjectId(7), 0));
}

fn a_full_endpoint_gives_the_object_back((mut sender, mut receiver): TestEndpointPair) {
    let slots = pool(400);
    let mut posted = 0u64;
    let refused = loop {
        let outgoing = object(slots.lease().expect("open"), posted + 1, SLOT_BYTES);
        match sender.post(outgoing) {
            Ok(()) => posted += 1,
            Err(back) => break back,
        }
        let _ = sender.advance(EndpointWaitLimit::None).expect("the connection stands");
        assert!(posted < 300, "an endpoint that is never full would need unbounded memory");
    };
    assert_eq!(refused.header.object, ObjectId(posted + 1), "the same object comes back");
    let receiving = thread::spawn(move || {
        let slots = pool(400);
        let ids = (0..=posted).map(|_| receive(&mut *receiver, &slots).expect("an object").header.object.0);
        (ids.collect::<Vec<_>>(), receiver)
    });
    send(&mut *sender, refused);
    let (received, _receiver) = receiving.join().expect("the receiver is content");
    assert_eq!(received, (1..=posted + 1).collect::<Vec<_>>());
}

fn without_patience_nothing_waits((_sender, mut receiver): TestEndpointPair) {
    let slots = pool(1);
    let began = Instant::now();
    for _ in 0..100 {
        assert!(matches!(receiver.advance(EndpointWaitLimit::None, &slots), Ok(ReceiveResult::Pending)));
    }
    // A hundred brief waits would be two seconds; a hundred system calls are not even a millisecond.
    assert!(began.elapsed() < Duration::from_millis(100 * EndpointWaitLimit::BRIEF_MS / 2));
}

fn patience_ends((_sender, mut receiver): TestEndpointPair) {
    let slots = pool(1);
    assert!(matches!(receiver.advance(EndpointWaitLimit::Brief, &slots), Ok(ReceiveResult::Pending)));
}

fn finishing_is_seen_after_the_last_object((mut sender, mut receiver): TestEndpointPair) {
    let slots = pool(2);
    send(&mut *sender, object(slots.lease().expect("open"), 1, 100));
    sender.finish().expect("idle");
    assert!(receive(&mut *receiver, &slots).is_some());
    assert!(receive(&mut *receiver, &slots).is_none());
}

fn a_vanished_sender_is_noticed((sender, mut receiver): TestEndpointPair) {
    drop(sender);
    assert!(receive(&mut *receiver, &pool(1)).is_none());
}

fn a_vanished_receiver_is_noticed((mut sender, receiver): TestEndpointPair) {
    drop(receiver);
    let slots = pool(4);
    let failed = (0..1000).any(|id| {
        let Some(slot) = slots.try_lease() else { return true };
        sender.post(object(slot, id, SLOT_BYTES)).is_err()
            || sender.advance(EndpointWaitLimit::Brief).is_err()
    });
    assert!(failed, "sending to nobody goes on for ever");
}

fn slots_return_to_their_pool((mut sender, mut receiver): TestEndpointPair) {
    let (at_source, at_sink) = (Arc::new(pool(3)), pool(3));
    for id in 1..=20 {
        send(&mut *sender, object(at_source.lease().expect("open"), id, 1000));
        drop(receive(&mut *receiver, &at_sink));
    }
    drop((sender, receiver));
    assert_eq!((at_source.free_count(), at_sink.free_count()), (3, 3));
}

/// A file in memory whose byte at each offset is the offset modulo 251.
struct PatternedFile {
    file: File,
    is_spoilt: AtomicBool,
}

fn pattern(place: usize) -> u8 {
    (place % 251) as u8
}

impl PatternedFile {
    fn new(len: usize) -> Arc<PatternedFile> {
        let file = memfd_create("patterned", MemfdFlags::CLOEXEC).expect("a file in memory");
        let mut file = File::from(file);
        let content: Vec<u8> = (0..len).map(pattern).collect();
        file.write_all(&content).expect("memory");
        Arc::new(PatternedFile { file, is_spoilt: AtomicBool::new(false) })
    }

    fn extent(self: &Arc<Self>, offset: u64, len: usize) -> OutgoingObject {
        let payload = ObjectPayload::Extent(Arc::clone(self) as Arc<dyn SendfileSourceFile>);
        OutgoingObject { header: header(offset + 1, offset, len), payload }
    }
}

impl SendfileSourceFile for PatternedFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn report_failed_extent(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }
}

fn extents_are_sent_or_given_back((mut sender, mut receiver): TestEndpointPair) {
    let file = PatternedFile::new(3 * SLOT_BYTES);
    if !sender.sends_extents() {
        assert!(sender.post(file.extent(0, SLOT_BYTES)).is_err(), "an extent that nobody can send");
        return;
    }
    // Between objects in slots, at odd offsets, with either patience.
    let offsets = [0, 1, 4_095, 2 * SLOT_BYTES as u64];
    let receiving = thread::spawn(move || {
        let slots = pool(2);
        for offset in offsets {
            let incoming = receive(&mut *receiver, &slots).expect("an extent");
            let expected = (offset as usize..).map(pattern);
            assert!(incoming.body().iter().copied().eq(expected.take(SLOT_BYTES)), "{offset}");
            assert_eq!(receive(&mut *receiver, &slots).expect("an object").body(), [9; 10]);
        }
        receiver
    });
    let slots = pool(1);
    for offset in offsets {
        let patience = if offset % 2 == 0 { EndpointWaitLimit::Brief } else { EndpointWaitLimit::None };
        sender.post(file.extent(offset, SLOT_BYTES)).expect("idle");
        while sender.advance(patience).expect("the connection stands") == SenderReadiness::Busy {
            thread::yield_now();
        }
        send(&mut *sender, object(slots.lease().expect("open"), 9, 10));
    }
    let _receiver = receiving.join().expect("the receiver is content");
    assert!(!file.is_spoilt.load(Ordering::Relaxed));
}

fn a_file_that_shrinks_spoils_its_extent_only((mut sender, mut receiver): TestEndpointPair) {
    if !sender.sends_extents() {
        return;
    }
    let file = PatternedFile::new(SLOT_BYTES);
    file.file.set_len(100).expect("a file can shrink");
    let receiving = thread::spawn(move || {
        let slots = pool(1);
        let spoilt = receive(&mut *receiver, &slots).expect("an extent");
        assert_eq!(spoilt.body().len(), SLOT_BYTES);
        assert!(spoilt.body()[100..].iter().all(|&byte| byte == 0));
        drop(spoilt);
        assert_eq!(receive(&mut *receiver, &slots).expect("an object").body(), [7; 10]);
        receiver
    });
    sender.post(file.extent(0, SLOT_BYTES)).expect("idle");
    while sender.advance(EndpointWaitLimit::Brief).expect("the connection stands") == SenderReadiness::Busy {}
    assert!(file.is_spoilt.load(Ordering::Relaxed));
    send(&mut *sender, object(pool(1).lease().expect("open"), 7, 10));
    let _receiver = receiving.join().expect("the receiver is content");
}
