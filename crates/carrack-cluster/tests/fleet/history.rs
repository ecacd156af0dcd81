//! What is over is remembered for a while, and then nothing of it is left on NATS.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use carrack_cluster::bus::NatsBus;
use carrack_cluster::log::{FleetTransferLog, TransferLogEntry};
use carrack_cluster::pairs::{MoverPairRecord, PairAssignmentStore, PairFilter};
use carrack_cluster::queue::{ScanWorkHeader, TransferWorkStream};
use carrack_cluster::transfers::TransferStore;
use carrack_register::transfer_operations::{TransferOperationError, TransferOperations};
use carrack_register::transfer_records::{RECORD_VERSION, TransferOptions, TransferState, now_ms};
use futures_util::TryStreamExt;

use crate::support::{PATIENCE, transfer};
use crate::whole::Fleet;

/// Everything that a transfer can have on NATS, but for its record.
async fn leave_work(bus: &NatsBus, id: &str) {
    let queue = TransferWorkStream::open(bus, id).await.unwrap();
    queue.create_consumers(Duration::from_secs(30)).await.unwrap();
    queue.publish_scan(&ScanWorkHeader { version: RECORD_VERSION, attempt: 1 }).await.unwrap();
    let mut publisher = queue.publisher();
    publisher.publish_large(1, 0, b"large".to_vec()).await.unwrap();
    publisher.flush().await.unwrap();
    let note = TransferLogEntry::Note { by: "m".into(), text: "late".into() };
    FleetTransferLog::open(bus, id).unwrap().append(&note).await.unwrap();
    let (source, sink) = ("m1".to_owned(), "m2".to_owned());
    let pair = MoverPairRecord { version: RECORD_VERSION, transfer: id.into(), number: 0, source, sink };
    PairAssignmentStore::open(bus).await.unwrap().put(&pair).await.unwrap();
}

/// Messages of a transfer, its queues and its pairs.
async fn left(bus: &NatsBus, url: &str, id: &str) -> (u64, usize, usize) {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
    let mut messages = 0;
    for (stream, filter) in
        [("carrack_work", format!("carrack.work.{id}.>")), ("carrack_log", format!("carrack.log.{id}"))]
    {
        let stream = context.get_stream(stream).await.unwrap();
        let subjects: Vec<_> = stream.info_with_subjects(filter).await.unwrap().try_collect().await.unwrap();
        messages += subjects.iter().map(|(_, count)| *count as u64).sum::<u64>();
    }
    let work = context.get_stream("carrack_work").await.unwrap();
    let consumers: Vec<String> = work.consumer_names().try_collect().await.unwrap();
    let pairs = PairAssignmentStore::open(bus).await.unwrap().list(PairFilter::Transfer(id)).await.unwrap();
    (messages, consumers.iter().filter(|name| name.starts_with(id)).count(), pairs.len())
}

#[test]
fn what_was_over_long_ago_is_removed_and_what_is_needed_is_not() {
    let Some(fleet) = Fleet::new() else { return };
    let url = fleet.nats.urls[0].clone();
    let day = 24 * 3_600_000;
    // Over for 31 days, for 29 days, for a moment; one that waits, and one that nobody knows.
    let [old, young, fresh, waits, unknown] =
        ["0000000000000001", "0000000000000002", "0000000000000003", "0000000000000004", "0000000000000005"];
    let bus = fleet.runtime.block_on(async {
        let bus = fleet.nats.bus().await;
        let transfers = TransferStore::open(&bus).await.unwrap();
        for (id, ended_ms) in
            [(old, Some(now_ms() - 31 * day)), (young, Some(now_ms() - 29 * day)), (fresh, Some(now_ms()))]
        {
            let mut record = transfer(id, 1);
            (record.state, record.ended_ms) = (TransferState::Failed, ended_ms);
            transfers.create(&record).await.unwrap();
        }
        transfers.create(&transfer(waits, 1)).await.unwrap();
        for id in [old, young, fresh, waits, unknown] {
            leave_work(&bus, id).await;
            assert_eq!(left(&bus, &url, id).await, (3, 3, 1), "{id}");
        }
        bus
    });
    let known = |id: &str| fleet.runtime.block_on(fleet.control.transfer(id)).is_ok();
    let everything = |id: &str| fleet.runtime.block_on(left(&bus, &url, id));
    let manager = fleet.manager();
    let began = Instant::now();
    while known(old) {
        assert!(began.elapsed() < PATIENCE, "it stays");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(everything(old), (0, 0, 0));
    assert!(known(young) && known(fresh) && known(waits));
    // What looks needless once may be new.
    assert_ne!(everything(unknown).0, 0);
    drop(manager);
    // One that looks more often.
    let _manager = fleet.manager_with(|options| options.keep_history = Duration::from_secs(20));
    let began = Instant::now();
    while everything(unknown) != (0, 0, 0) || everything(young) != (0, 0, 0) {
        assert!(began.elapsed() < PATIENCE, "{:?} {:?}", everything(unknown), everything(young));
        thread::sleep(Duration::from_millis(200));
    }
    assert!(!known(young) && known(waits));
    assert!(everything(waits).0 >= 2, "{:?}", everything(waits));
}

#[test]
fn a_transfer_that_is_done_is_forgotten_in_time() {
    let Some(fleet) = Fleet::new() else { return };
    let _members = (
        fleet.manager_with(|options| options.keep_history = Duration::from_secs(4)),
        fleet.mover("a", 2),
        fleet.mover("b", 2),
    );
    fs::write(fleet.at("a/file"), b"content").unwrap();
    let id = fleet.submit("a/file", "b/file", TransferOptions::default()).id;
    let ended_ms = fleet.done(&id).ended_ms.unwrap();
    let began = Instant::now();
    while fleet.runtime.block_on(fleet.control.transfer(&id)).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it stays");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(now_ms() > ended_ms + 2_000, "{ended_ms}");
    let gone = fleet.runtime.block_on(fleet.control.transfer(&id));
    assert!(matches!(gone, Err(TransferOperationError::Unknown(_))), "{gone:?}");
    assert_eq!(fs::read(fleet.at("b/file")).unwrap(), b"content");
}

#[test]
fn the_order_of_submission_is_made_again_where_it_was_lost() {
    let Some(fleet) = Fleet::new() else { return };
    let ids = ["0000000000000009", "0000000000000003", "0000000000000007"];
    let url = fleet.nats.urls[0].clone();
    fleet.runtime.block_on(async {
        let bus = fleet.nats.bus().await;
        let transfers = TransferStore::open(&bus).await.unwrap();
        for (submitted_ms, id) in (1..).zip(ids) {
            transfers.create(&transfer(id, submitted_ms)).await.unwrap();
        }
        let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
        let order = context.get_stream("KV_carrack_submitted").await.unwrap();
        order.purge().await.unwrap();
        // One whose record was never made, as whoever submitted it died.
        let lost = r#"{"version":1,"submitted_ms":1}"#;
        context.publish("$KV.carrack_submitted.00000000000000ff", lost.into()).await.unwrap().await.unwrap();
    });
    let listed = || -> Vec<String> {
        let listed = fleet.runtime.block_on(fleet.control.transfers(9, None)).unwrap();
        listed.into_iter().map(|record| record.id).collect()
    };
    let places = || {
        fleet.runtime.block_on(async {
            let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
            let order = context.get_stream("KV_carrack_submitted").await.unwrap();
            let subjects = order.info_with_subjects("$KV.carrack_submitted.00000000000000ff").await.unwrap();
            let found: Vec<_> = subjects.try_collect().await.unwrap();
            let last = order.direct_get_last_for_subject("$KV.carrack_submitted.00000000000000ff").await;
            (found.len(), last.is_ok_and(|message| !message.payload.is_empty()))
        })
    };
    assert_eq!((listed(), places()), (Vec::new(), (1, true)));
    let _manager = fleet.manager_with(|options| options.keep_history = Duration::from_secs(20));
    let began = Instant::now();
    while listed() != [ids[2], ids[1], ids[0]] || places().1 {
        assert!(began.elapsed() < PATIENCE, "{:?} {:?}", listed(), places());
        thread::sleep(Duration::from_millis(100));
    }
}
