//! A transfer's work and its log.

use std::time::{Duration, Instant};

use carrack_cluster::error::BusError;
use carrack_cluster::log::{FleetTransferLog, LogFollowEvent, LoggedChunkResult, TransferLogEntry};
use carrack_cluster::queue::{
    ACK_WAIT, FilePartRange, ScanWorkHeader, TransferWorkStream, WorkItemHeader, WorkItemKind,
};
use carrack_register::transfer_records::RECORD_VERSION;
use futures_util::StreamExt;

use crate::support::{PATIENCE, nats};

const AT_ONCE: Duration = Duration::ZERO;

fn files(number: u64) -> WorkItemHeader {
    WorkItemHeader::new(1, number, WorkItemKind::Files, 3, 300)
}

#[tokio::test]
async fn items_are_pulled_one_by_one_and_come_back_until_they_are_acknowledged() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    let queue = TransferWorkStream::open(&bus, "t1").await.unwrap();
    assert!(matches!(queue.pending_chunks().await, Err(BusError::Missing(_))));
    let short = Duration::from_secs(2);
    queue.create_consumers(short).await.unwrap();
    queue.create_consumers(short).await.unwrap();
    let scan = ScanWorkHeader { version: RECORD_VERSION, attempt: 1 };
    queue.publish_scan(&scan).await.unwrap();
    queue.publish_scan(&scan).await.unwrap();
    let pulled = queue.scans().next(PATIENCE).await.unwrap().unwrap();
    assert_eq!((pulled.head, pulled.delivered), (scan, 1));
    pulled.ack().await.unwrap();
    assert!(queue.scans().next(AT_ONCE).await.unwrap().is_none(), "the same scan is there once");

    let mut publisher = queue.publisher();
    let part = FilePartRange { file: 1, index: 0, count: 2, offset: 0, len: 5 };
    let heads = [files(0), WorkItemHeader::new(1, 1, WorkItemKind::Part(part), 1, 5), files(2)];
    for head in &heads {
        publisher.publish_chunk(head, vec![head.number as u8; 1000]).await.unwrap();
    }
    publisher.flush().await.unwrap();
    // The server counts what it has just taken a moment later.
    let began = Instant::now();
    while queue.pending_chunks().await.unwrap().unacknowledged() != 3 {
        assert!(began.elapsed() < PATIENCE);
    }
    let chunks = queue.chunks();
    let mut pulled = Vec::new();
    for _ in 0..3 {
        pulled.push(chunks.next(PATIENCE).await.unwrap().unwrap());
    }
    pulled.sort_by_key(|delivery| delivery.head.number);
    assert_eq!(pulled.iter().map(|delivery| delivery.head).collect::<Vec<_>>(), heads);
    assert_eq!(pulled[2].body, vec![2; 1000]);
    assert!(chunks.next(AT_ONCE).await.unwrap().is_none());
    let began = Instant::now();
    assert!(chunks.next(Duration::from_millis(300)).await.unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(250));

    // One is done, one is given back, one is kept by its mover for longer than the queue's time.
    pulled[0].ack().await.unwrap();
    pulled[1].nak(Duration::from_millis(50)).await.unwrap();
    let again = chunks.next(PATIENCE).await.unwrap().unwrap();
    assert_eq!((again.head.number, again.delivered, again.is_redelivered()), (1, 2, true));
    again.ack().await.unwrap();
    let mut extended = Instant::now();
    for _ in 0..6 {
        tokio::time::sleep(short / 4).await;
        extended = Instant::now();
        pulled[2].in_progress().await.unwrap();
    }
    assert!(chunks.next(AT_ONCE).await.unwrap().is_none(), "it was extended");
    let pending = queue.pending_chunks().await.unwrap();
    assert_eq!((pending.waiting, pending.out), (0, 1));
    // Its mover dies.
    let again = chunks.next(PATIENCE).await.unwrap().unwrap();
    assert_eq!((again.head.number, again.delivered), (2, 2));
    assert!(extended.elapsed() > short / 2, "{:?}", extended.elapsed());
    again.ack().await.unwrap();
    assert_eq!(queue.pending_chunks().await.unwrap().unacknowledged(), 0);
}

/// The name of a large file that is whole does not wait for all other files.
#[tokio::test]
async fn the_end_of_a_file_does_not_wait_behind_chunks() {
    let Some(nats) = nats(1) else { return };
    let queue = TransferWorkStream::open(&nats.bus().await, "t1").await.unwrap();
    queue.create_consumers(ACK_WAIT).await.unwrap();
    let mut publisher = queue.publisher();
    for number in 0..3 {
        publisher.publish_chunk(&files(number), Vec::new()).await.unwrap();
    }
    publisher.flush().await.unwrap();
    let kinds = [WorkItemKind::Finish { file: 1 }, WorkItemKind::Discard { file: 2 }];
    for (kind, file) in kinds.into_iter().zip(1..) {
        publisher.publish_chunk(&WorkItemHeader::new(1, file, kind, 1, 0), Vec::new()).await.unwrap();
        publisher.flush().await.unwrap();
    }
    let ends = queue.file_ends();
    for kind in kinds {
        let delivery = ends.next(PATIENCE).await.unwrap().unwrap();
        assert_eq!(delivery.head.kind, kind);
        delivery.ack().await.unwrap();
    }
    assert!(ends.next(AT_ONCE).await.unwrap().is_none());
    assert_eq!(queue.pending_file_ends().await.unwrap().unacknowledged(), 0);
    assert_eq!((queue.trim_file_ends().await.unwrap(), queue.trim().await.unwrap()), (2, 0));
    for number in 0..3 {
        assert_eq!(queue.chunks().next(PATIENCE).await.unwrap().unwrap().head.number, number);
    }
}

#[tokio::test]
async fn what_is_done_is_trimmed_and_what_is_for_the_end_stays() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    let queue = TransferWorkStream::open(&bus, "t1").await.unwrap();
    let other = TransferWorkStream::open(&bus, "t2").await.unwrap();
    for queue in [&queue, &other] {
        queue.create_consumers(ACK_WAIT).await.unwrap();
        let mut publisher = queue.publisher();
        publisher.publish_dirs(1, 0, b"dead".to_vec()).await.unwrap();
        publisher.publish_dirs(2, 0, b"d0".to_vec()).await.unwrap();
        publisher.flush().await.unwrap();
        for number in 0..200 {
            publisher.publish_chunk(&files(number), vec![0; 10]).await.unwrap();
        }
        publisher.publish_large(2, 7, b"entry".to_vec()).await.unwrap();
        publisher.flush().await.unwrap();
        publisher.publish_dirs(2, 1, b"d1".to_vec()).await.unwrap();
        publisher.flush().await.unwrap();
    }
    let chunks = queue.chunks();
    let mut held = None;
    for number in 0..150 {
        let delivery = chunks.next(PATIENCE).await.unwrap().unwrap();
        if number == 100 { held = Some(delivery) } else { delivery.ack().await.unwrap() }
    }
    assert_eq!(queue.trim().await.unwrap(), 100, "to the first that is not acknowledged");
    assert_eq!(queue.pending_chunks().await.unwrap().unacknowledged(), 51);
    held.unwrap().ack().await.unwrap();
    assert_eq!(queue.trim().await.unwrap(), 50);
    assert_eq!(queue.trim().await.unwrap(), 0);
    for _ in 0..50 {
        chunks.next(PATIENCE).await.unwrap().unwrap().ack().await.unwrap();
    }

    let mut dirs = queue.dirs(2);
    let mut tables = Vec::new();
    while let Some(some) = dirs.next().await.unwrap() {
        tables.extend(some);
    }
    assert_eq!(tables, [b"d0".to_vec(), b"d1".to_vec()]);
    assert_eq!(queue.read_large(2, 7).await.unwrap().unwrap(), b"entry");
    assert_eq!(queue.read_large(1, 7).await.unwrap(), None);
    let huge = queue.publisher().publish_dirs(2, 2, vec![0; 2 << 20]).await.unwrap_err();
    assert!(matches!(huge, BusError::TooLarge { .. }), "{huge}");

    queue.remove().await.unwrap();
    assert!(matches!(queue.pending_chunks().await, Err(BusError::Missing(_))));
    assert_eq!(queue.read_large(2, 7).await.unwrap(), None);
    assert_eq!(other.pending_chunks().await.unwrap().unacknowledged(), 200, "another's work stays");
}

#[tokio::test]
async fn an_acknowledgement_that_nobody_hears_is_an_error_and_the_queue_outlives_its_server() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    let queue = TransferWorkStream::open(&bus, "t1").await.unwrap();
    queue.create_consumers(Duration::from_secs(2)).await.unwrap();
    let mut publisher = queue.publisher();
    publisher.publish_chunk(&files(0), b"table".to_vec()).await.unwrap();
    publisher.flush().await.unwrap();
    let delivery = queue.chunks().next(PATIENCE).await.unwrap().unwrap();
    nats.stop(1);
    assert!(delivery.in_progress().await.is_err());
    let error = queue.chunks().next(Duration::from_millis(100)).await.err().unwrap();
    assert!(error.is_transient(), "{error}");
    // What is published meanwhile waits for the server.
    publisher.publish_chunk(&files(1), b"table".to_vec()).await.unwrap();
    nats.start(1);
    publisher.flush().await.unwrap();
    let mut numbers = Vec::new();
    let began = Instant::now();
    while numbers.len() < 2 {
        assert!(began.elapsed() < PATIENCE, "{numbers:?}");
        if let Ok(Some(delivery)) = queue.chunks().next(Duration::from_secs(1)).await {
            delivery.ack().await.unwrap();
            numbers.push(delivery.head.number);
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1]);
    // One that is removed while somebody holds an item of it.
    publisher.publish_chunk(&files(2), Vec::new()).await.unwrap();
    publisher.flush().await.unwrap();
    let delivery = queue.chunks().next(PATIENCE).await.unwrap().unwrap();
    queue.remove().await.unwrap();
    assert!(delivery.ack().await.is_err());
}

#[tokio::test]
async fn a_log_is_replayed_then_followed_over_a_servers_end() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let log = FleetTransferLog::open(&bus, "t1").unwrap();
    let done = |number| {
        TransferLogEntry::ChunkDone(LoggedChunkResult {
            attempt: 1,
            number,
            by: "m".into(),
            sink: "n".into(),
            delivered: 1,
            part: None,
            files: 1,
            bytes: 2,
            moved_bytes: 2,
            session: "s".into(),
            session_bytes: 2,
            failures: Vec::new(),
            failed_entries: 0,
        })
    };
    let empty = FleetTransferLog::open(&far, "t0").unwrap();
    let mut nothing = std::pin::pin!(empty.replay_and_follow().await.unwrap());
    assert_eq!(nothing.next().await, Some(LogFollowEvent::Current));
    for number in [0, 1, 1, 0] {
        log.append(&done(number)).await.unwrap();
    }
    let far_log = FleetTransferLog::open(&far, "t1").unwrap();
    let mut follow = std::pin::pin!(far_log.replay_and_follow().await.unwrap());
    let mut last = 0;
    for number in 0..2 {
        let Some(LogFollowEvent::Entry { seq, entry }) = follow.next().await else { panic!("no entry") };
        assert_eq!(entry, done(number), "the same entry again is not there again");
        assert!(seq > last);
        last = seq;
    }
    assert_eq!(follow.next().await, Some(LogFollowEvent::Current));
    let note = TransferLogEntry::Note { by: "m".into(), text: "hello".into() };
    log.append(&note).await.unwrap();
    assert!(matches!(follow.next().await, Some(LogFollowEvent::Entry { entry, .. }) if entry == note));
    nats.stop(1);
    nats.start(1);
    let began = Instant::now();
    while log.append(&done(2)).await.is_err() {
        assert!(began.elapsed() < PATIENCE);
    }
    let next = tokio::time::timeout(PATIENCE, follow.next()).await.unwrap();
    assert!(matches!(next, Some(LogFollowEvent::Entry { entry, .. }) if entry == done(2)));
    log.remove().await.unwrap();
    let mut gone = std::pin::pin!(log.replay_and_follow().await.unwrap());
    assert_eq!(gone.next().await, Some(LogFollowEvent::Current));
}
