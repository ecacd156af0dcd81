//! Two endpoints of one process, on every provider that needs no hardware.

use std::time::{Duration, Instant};

use crate::common::{
    CANARY, Chance, Pair, is_untouched, leased, paint, pattern, pool, skip, with_each_provider,
};
use carrack_fabric::{
    EndpointEvent, EndpointOperationLimits, FabricEndpoint, FabricErrorScope, FabricMemoryAccess,
    FabricPostRefusal, ProviderOfferFilter, RegisteredPool, RemoteMemory, RmaTransfer, all_offers,
    load_library, usable_offers,
};
use carrack_machine::Slot;

const SLOT_BYTES: usize = 8 << 20;

#[test]
fn the_library_has_a_version_or_a_reason() {
    match load_library() {
        Ok((major, minor)) => assert!((major, minor) >= (1, 11)),
        Err(error) => {
            assert!(
                error.to_string().contains("libfabric") && error.scope == FabricErrorScope::Library,
                "{error}"
            )
        }
    }
}

#[test]
fn messages_arrive_whole() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(offer, EndpointOperationLimits::default());
        for len in [0, 1, 63, 64, 65, 1000, 4095, 4096] {
            let mut message = vec![0; len];
            paint(&mut message, len);
            pair.send(&message, len as u64);
            while !pair.b.send(pair.a_at_b, &message, len as u64).expect("sent") {
                pair.turn();
            }
            pair.until("messages", |pair| pair.a_events.len() == 2 && pair.b_events.len() == 2);
            for event in pair.a_events.drain(..).chain(pair.b_events.drain(..)) {
                match event {
                    EndpointEvent::Message(got) => assert_eq!(got, message, "{provider}"),
                    EndpointEvent::Sent { tag, result: Ok(()) } => assert_eq!(tag, len as u64),
                    other => panic!("{provider}: {other:?}"),
                }
            }
        }
        let error = pair.a.send(pair.b_at_a, &[0; 4097], 0).expect_err("too long");
        assert_eq!(error.scope, FabricErrorScope::Operation);
    });
}

#[test]
fn more_messages_than_receives_all_arrive_in_order() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(
            offer,
            EndpointOperationLimits { operations: 8, receives: 2, ..EndpointOperationLimits::default() },
        );
        let (mut sent, mut expected) = (0u64, 0u64);
        let began = Instant::now();
        while expected < 300 {
            assert!(began.elapsed() < crate::common::PATIENCE, "{provider}: {sent} sent, {expected} there");
            if sent < 300 && pair.a.send(pair.b_at_a, &sent.to_le_bytes(), sent).expect("sent") {
                sent += 1;
            }
            pair.turn();
            for event in pair.b_events.drain(..) {
                let EndpointEvent::Message(bytes) = event else { panic!("{provider}: {event:?}") };
                assert_eq!(bytes, expected.to_le_bytes(), "{provider}");
                expected += 1;
            }
        }
    });
}

/// Reads of any size from any place into any place: the bytes are there, and nothing around them has changed.
#[test]
fn reads_move_what_they_should_and_nothing_else() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(offer, EndpointOperationLimits::default());
        let (source_pool, sink_pool) = (pool(1, SLOT_BYTES), pool(3, SLOT_BYTES));
        let source = pair.b.register(&source_pool, FabricMemoryAccess::PeersRead).expect("registered");
        let sink = pair.a.register(&sink_pool, FabricMemoryAccess::Local).expect("registered");
        let mut theirs = source_pool.lease().expect("free");
        paint(theirs.bytes_mut(), 7);
        let mut slots = leased(&sink_pool);
        let mut chance = Chance(0x9E37_79B9);
        for round in 0..24 {
            let bytes = 1 + chance.below(if round % 3 == 0 { SLOT_BYTES } else { 70_000 });
            let (at, from) = (chance.below(SLOT_BYTES - bytes + 1), chance.below(SLOT_BYTES - bytes + 1));
            let place = source.remote_memory_of(&theirs).expect("its slot").plus(from as u64);
            let slot = slots.remove(1);
            pair.read(&sink, RmaTransfer { slot, at, bytes, place, tag: round });
            pair.until("a read", |pair| !pair.a_events.is_empty());
            let Some(EndpointEvent::Read { tag, mut slot, result }) = pair.a_events.pop() else {
                panic!("{provider}")
            };
            assert_eq!((tag, result), (round, Ok(())), "{provider}");
            let moved = &slot.bytes()[at..at + bytes];
            assert!(
                moved.iter().enumerate().all(|(i, &byte)| byte == pattern(7, from + i)),
                "{provider}: {bytes}"
            );
            assert!(
                is_untouched(&slot.bytes()[..at]) && is_untouched(&slot.bytes()[at + bytes..]),
                "{provider}"
            );
            assert!(
                slots.iter().all(|slot| is_untouched(slot.bytes())),
                "{provider}: a neighbour was changed"
            );
            slot.bytes_mut()[at..at + bytes].fill(CANARY);
            slots.insert(1, slot);
        }
    });
}

/// The same with writes, and with a notice where the provider has them.
#[test]
fn writes_move_what_they_should_and_nothing_else() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(offer, EndpointOperationLimits::default());
        let source_pool = pool(1, SLOT_BYTES);
        let source = pair.a.register(&source_pool, FabricMemoryAccess::Local).expect("registered");
        let window = pair.b.open_window(SLOT_BYTES).expect("a window");
        let mut slot = source_pool.lease().expect("free");
        paint(slot.bytes_mut(), 9);
        let mut model = vec![0u8; SLOT_BYTES];
        let mut seen = vec![0u8; SLOT_BYTES];
        let mut chance = Chance(0xDEAD_BEEF);
        let has_notices = offer.description.notice_bytes >= 8;
        for round in 0..24u64 {
            let bytes = 1 + chance.below(if round % 3 == 0 { SLOT_BYTES } else { 70_000 });
            let (at, to) = (chance.below(SLOT_BYTES - bytes + 1), chance.below(SLOT_BYTES - bytes + 1));
            let transfer = RmaTransfer { slot, at, bytes, place: window.remote_memory_at(to), tag: round };
            let notice = has_notices.then_some(round << 40 | 5);
            pair.write(&source, transfer, notice);
            pair.until("a write", |pair| {
                pair.a_events.len() == 1 && pair.b_events.len() == usize::from(has_notices)
            });
            let event = pair.a_events.pop();
            let Some(EndpointEvent::Written { tag, slot: back, result }) = event else {
                panic!("{provider}: {event:?}")
            };
            assert_eq!((tag, result), (round, Ok(())), "{provider}");
            if let Some(event) = pair.b_events.pop() {
                assert!(
                    matches!(event, EndpointEvent::PeerWrote(data) if Some(data) == notice),
                    "{provider}: {event:?}"
                );
            }
            slot = back;
            model[to..to + bytes].copy_from_slice(&slot.bytes()[at..at + bytes]);
            window.copy_to(0, &mut seen);
            assert!(seen == model, "{provider}: {bytes} bytes to {to}");
        }
    });
}

const MANY: u64 = 600;
const MANY_BYTES: usize = 64 << 10;
const MANY_AT_ONCE: usize = 16;

/// Each of many operations of all kinds ends once, whatever is in flight beside it.
#[test]
fn every_operation_ends_once() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(
            offer,
            EndpointOperationLimits { operations: MANY_AT_ONCE, ..EndpointOperationLimits::default() },
        );
        let (ours, theirs) = (pool(32, MANY_BYTES), pool(1, MANY_BYTES));
        let local = pair.a.register(&ours, FabricMemoryAccess::Local).expect("registered");
        let remote = pair.b.register(&theirs, FabricMemoryAccess::PeersRead).expect("registered");
        let window = pair.b.open_window(MANY_BYTES).expect("a window");
        let from = remote.remote_memory_of(&theirs.lease().expect("free")).expect("its slot");
        let places = [from, window.remote_memory_at(0)];
        let (mut chance, mut next, mut full, mut messages) = (Chance(42), 0, 0, 0);
        let mut ends = vec![0; MANY as usize];
        let began = Instant::now();
        while ends.iter().sum::<usize>() < MANY as usize {
            assert!(began.elapsed() < crate::common::PATIENCE, "{provider}: {next} begun");
            while next < MANY && chance.below(8) != 0 {
                if !begin_any(&mut pair, &mut chance, &local, places, ours.try_lease(), next) {
                    full += 1;
                    break;
                }
                next += 1;
            }
            assert!(pair.a.operations_under_way() <= MANY_AT_ONCE, "{provider}");
            pair.turn();
            pair.a_events.drain(..).for_each(|event| ends[end_of(event) as usize] += 1);
            messages +=
                pair.b_events.drain(..).filter(|event| matches!(event, EndpointEvent::Message(_))).count();
        }
        (0..1000).for_each(|_| pair.turn());
        assert!(ends.iter().all(|&count| count == 1) && pair.a_events.is_empty(), "{provider}: {ends:?}");
        assert!(full > 0, "{provider}: the limit was never met");
        assert!(messages > 0 && ours.free_count() == 32 && pair.a.operations_under_way() == 0, "{provider}");
    });
}

/// A message, a read or a write, as it comes; false when the endpoint is full or there is no slot.
fn begin_any(
    pair: &mut Pair,
    chance: &mut Chance,
    local: &RegisteredPool,
    [from, to]: [RemoteMemory; 2],
    slot: Option<Slot>,
    tag: u64,
) -> bool {
    let (kind, bytes) = (chance.below(3), 1 + chance.below(MANY_BYTES));
    let Some(slot) = slot.filter(|_| kind > 0) else {
        return kind == 0 && pair.a.send(pair.b_at_a, &tag.to_le_bytes(), tag).expect("sent");
    };
    match kind {
        1 => is_begun(pair.a.read(pair.b_at_a, local, RmaTransfer { slot, at: 0, bytes, place: from, tag })),
        _ => is_begun(pair.a.write(
            pair.b_at_a,
            local,
            RmaTransfer { slot, at: 0, bytes, place: to, tag },
            None,
        )),
    }
}

/// The tag of an operation that went well.
fn end_of(event: EndpointEvent) -> u64 {
    let (EndpointEvent::Sent { tag, result }
    | EndpointEvent::Read { tag, result, .. }
    | EndpointEvent::Written { tag, result, .. }) = event
    else {
        panic!("{event:?}")
    };
    assert_eq!(result, Ok(()));
    tag
}

fn is_begun(posted: Result<(), FabricPostRefusal>) -> bool {
    match posted {
        Ok(()) => true,
        Err(FabricPostRefusal::Full(_)) => false,
        Err(FabricPostRefusal::Failed(_, error)) => panic!("{error}"),
    }
}

/// What safe code could do wrong is refused, and the slot comes back.
#[test]
fn operations_that_would_go_astray_are_refused() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(offer, EndpointOperationLimits::default());
        let (ours, others) = (pool(2, 4096), pool(2, 4096));
        let region = pair.a.register(&ours, FabricMemoryAccess::Local).expect("registered");
        let of_b = pair.b.register(&ours, FabricMemoryAccess::PeersRead).expect("registered");
        let place = of_b.remote_memory_of(&ours.try_lease().expect("free")).expect("its slot");
        let mut refuse = |peer, region, slot, at, bytes| {
            let refused = pair.a.read(peer, region, RmaTransfer { slot, at, bytes, place, tag: 0 });
            let Err(FabricPostRefusal::Failed(_slot, error)) = refused else {
                panic!("{provider}: {refused:?}")
            };
            assert_eq!(error.scope, FabricErrorScope::Operation);
        };
        let lease = || ours.try_lease().expect("free");
        refuse(pair.b_at_a, &region, others.try_lease().expect("free"), 0, 10);
        refuse(pair.b_at_a, &of_b, lease(), 0, 10);
        refuse(pair.a_at_b, &region, lease(), 0, 10);
        refuse(pair.b_at_a, &region, lease(), 4090, 7);
        refuse(pair.b_at_a, &region, lease(), usize::MAX, 2);
        refuse(pair.b_at_a, &region, lease(), 0, 0);
        assert_eq!((ours.free_count(), others.free_count()), (2, 2));
        assert!(pair.a.add_peer(b"x").is_err() && pair.a.add_peer(&[]).is_err());
    });
}

#[test]
fn a_sleeper_is_woken_by_a_message() {
    with_each_provider(|provider, offer| {
        let mut pair = Pair::new(offer, EndpointOperationLimits::default());
        // Connections are made by the first message.
        pair.send(b"one", 1);
        pair.until("the first message", |pair| pair.a_events.len() + pair.b_events.len() == 2);
        let has_descriptor = pair.b.readiness().is_some();
        let Pair { mut a, mut b, b_at_a, mut a_events, .. } = pair;
        let sleeping = std::thread::spawn(move || {
            let (mut events, mut turns, began) = (Vec::new(), 0, Instant::now());
            while events.is_empty() && began.elapsed() < crate::common::PATIENCE {
                b.wait(Duration::from_secs(20)).expect("poll");
                b.poll(&mut events).expect("b's queue");
                turns += 1;
            }
            (events, turns, b)
        });
        std::thread::sleep(Duration::from_millis(50));
        let sent = Instant::now();
        assert!(a.send(b_at_a, b"two", 2).expect("sent"));
        while a.poll(&mut a_events).expect("a's queue") == 0 {}
        let (events, turns, _b) = sleeping.join().expect("awake");
        assert!(
            matches!(&events[..], [EndpointEvent::Message(bytes)] if bytes == b"two"),
            "{provider}: {events:?}"
        );
        assert!(sent.elapsed() < Duration::from_secs(15), "{provider}");
        eprintln!("{provider}: descriptor: {has_descriptor}, woken {turns} times");
    });
}

#[test]
fn a_provider_without_rma_is_refused_with_the_reason() {
    let Ok(_) = load_library() else { return skip("no libfabric") };
    let filter = |provider: &str| ProviderOfferFilter { provider: Some(provider.to_string()), source: None };
    let error = usable_offers(&filter("no-such-provider")).expect_err("there is none");
    assert!(error.to_string().contains("no such provider"), "{error}");
    let offers = all_offers(&ProviderOfferFilter::default()).expect("a list");
    let Some(offer) = offers.iter().find(|offer| !offer.description.has_rma) else {
        return skip("no provider without RMA");
    };
    let error = FabricEndpoint::open(offer, EndpointOperationLimits::default()).err().expect("no RMA");
    assert!(error.to_string().contains("no reliable datagram endpoints with RMA"), "{error}");
}
