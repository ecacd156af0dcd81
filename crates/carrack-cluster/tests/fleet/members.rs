//! Movers, leases, transfers, pairs, questions and reports.

use std::time::{Duration, Instant};

use carrack_cluster::bus::LEASE;
use carrack_cluster::curves::{PairCountCurveStore, PairCountRate, PairCurveRecord};
use carrack_cluster::error::BusError;
use carrack_cluster::mover_requests::{
    MoverReply, MoverRequest, MoverRequestError, PathReply, send_mover_request, serve_requests,
};
use carrack_cluster::pairs::{
    MoverPairKey, MoverPairRecord, PairAssignmentStore, PairFilter, PairRecordChange,
};
use carrack_cluster::registry::{MoverRegistration, MoverTable};
use carrack_cluster::reports::{MoverPairReport, report, subscribe_reports_confirmed};
use carrack_cluster::transfer_lease::{LeaseRenewError, TransferLeaseTable, TransferManagerLease};
use carrack_cluster::transfers::{FindError, TransferRecordWatchEvent, TransferStore, new_id};
use carrack_register::transfer_records::{MoverAvailability, RECORD_VERSION, TransferState};
use futures_util::StreamExt;

use crate::support::{PATIENCE, mover, nats, transfer, until};

#[tokio::test]
async fn movers_come_change_leave_and_are_missed() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let movers = MoverTable::follow(&far).await.unwrap();
    assert!(movers.all().is_empty());
    let one = MoverRegistration::start(&bus, mover("m1", "a")).await.unwrap();
    let two = MoverRegistration::start(&bus, mover("m2", "b")).await.unwrap();
    until("both", || movers.all().len() == 2).await;
    assert_eq!(movers.at_site("a").len(), 1);
    one.update(|record| record.state = MoverAvailability::Busy);
    until("the change", || movers.get("m1").unwrap().state == MoverAvailability::Busy).await;
    // A lease's time later they are still there, without any change.
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    assert_eq!(movers.all().len(), 2);
    assert!(one.heartbeat_age() < LEASE);
    assert_eq!(MoverTable::list(&bus).await.unwrap().len(), 2);
    // One says that it leaves, the other one does not.
    two.leave().await.unwrap();
    until("its leave", || movers.get("m2").is_none()).await;
    let dropped = Instant::now();
    drop(one);
    until("its end", || movers.get("m1").is_none()).await;
    assert!(dropped.elapsed() > Duration::from_secs(2), "{:?}", dropped.elapsed());
    assert!(MoverRegistration::start(&bus, mover("m.1", "a")).await.is_err());
}

#[tokio::test]
async fn the_map_of_movers_outlives_a_server() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let movers = MoverTable::follow(&far).await.unwrap();
    let stays = MoverRegistration::start(&bus, mover("stays", "a")).await.unwrap();
    let goes = MoverRegistration::start(&bus, mover("goes", "a")).await.unwrap();
    until("both", || movers.all().len() == 2).await;
    nats.stop(1);
    drop(goes);
    // Nobody is heard, which says nothing about anybody.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(movers.all().len(), 2);
    nats.start(1);
    let late = MoverRegistration::start(&nats.bus().await, mover("late", "b")).await.unwrap();
    until("who came", || movers.get("late").is_some()).await;
    until("who went", || movers.get("goes").is_none()).await;
    assert!(movers.get("stays").is_some());
    drop((stays, late));
}

#[tokio::test]
async fn a_transfer_has_one_owner_and_is_free_seconds_after_its_end() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let leases = TransferLeaseTable::follow(&far).await.unwrap();
    let mut one = TransferManagerLease::acquire(&bus, "t1", "manager-1").await.unwrap().unwrap();
    assert!(TransferManagerLease::acquire(&far, "t1", "manager-2").await.unwrap().is_none());
    until("the owner", || leases.owner("t1").is_some_and(|lease| lease.manager == "manager-1")).await;
    one.renew().await.unwrap();
    assert!(one.is_certainly_held());
    // Released: free at once.
    one.release().await.unwrap();
    until("its release", || leases.owner("t1").is_none()).await;
    let mut two = TransferManagerLease::acquire(&far, "t1", "manager-2").await.unwrap().unwrap();
    let renewed = Instant::now();
    two.renew().await.unwrap();
    // Not renewed: free when it has ended, and the one who slept has lost it.
    until("its end", || leases.owner("t1").is_none()).await;
    assert!(renewed.elapsed() > Duration::from_secs(3), "{:?}", renewed.elapsed());
    assert!(!two.is_certainly_held());
    let mut three = TransferManagerLease::acquire(&bus, "t1", "manager-1").await.unwrap().unwrap();
    assert!(matches!(two.renew().await, Err(LeaseRenewError::Lost(_))));
    three.renew().await.unwrap();
}

#[tokio::test]
async fn transfers_are_made_once_and_changed_by_turns() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    let transfers = TransferStore::open(&bus).await.unwrap();
    let (old, new) = ("0a00000000000001", "0a00000000000002");
    transfers.create(&transfer(old, 1)).await.unwrap();
    assert!(matches!(transfers.create(&transfer(old, 9)).await, Err(BusError::Exists(_))));
    transfers.create(&transfer(new, 2)).await.unwrap();
    let ids = |list: Vec<carrack_register::transfer_records::TransferRecord>| -> Vec<String> {
        list.into_iter().map(|record| record.id).collect()
    };
    assert_eq!(ids(transfers.list(10, None).await.unwrap()), [new, old]);
    assert_eq!(ids(transfers.list(1, None).await.unwrap()), [new]);
    assert_eq!(transfers.find(old).await.unwrap().submitted_ms, 1);
    assert!(matches!(transfers.find("0a").await, Err(FindError::Several { count: 2, .. })));
    assert!(matches!(transfers.find("0b").await, Err(FindError::Unknown(_))));
    assert!(matches!(transfers.find("*").await, Err(FindError::Unknown(_))));

    let mut watch = std::pin::pin!(transfers.watch(Some(old)).await.unwrap());
    let Some(TransferRecordWatchEvent::All(first)) = watch.next().await else { panic!("not all at first") };
    assert_eq!(ids(first), [old]);
    // Two at the same time: none of the changes is lost.
    let count = |times: u64| {
        let transfers = transfers.clone();
        async move {
            for _ in 0..times {
                transfers.update(old, |record| record.tally.files_done += 1).await.unwrap();
            }
        }
    };
    tokio::join!(count(20), count(20));
    assert_eq!(transfers.get(old).await.unwrap().tally.files_done, 40);
    let mut seen = 0;
    while seen < 40 {
        let Some(TransferRecordWatchEvent::Put(record)) = watch.next().await else {
            panic!("another change")
        };
        assert!(record.tally.files_done > seen, "in order");
        seen = record.tally.files_done;
    }
    // Who may not follow looks again.
    let mut looks = std::pin::pin!(transfers.poll_changes(old, Duration::from_millis(20)));
    assert_eq!(looks.next().await.unwrap().unwrap().state, TransferState::Queued);
    transfers.update(old, |record| record.state = TransferState::Done).await.unwrap();
    assert_eq!(looks.next().await.unwrap().unwrap().state, TransferState::Done);
    assert!(looks.next().await.is_none());
    transfers.forget(old).await.unwrap();
    assert!(matches!(
        watch.next().await,
        Some(TransferRecordWatchEvent::Put(_) | TransferRecordWatchEvent::Gone(_))
    ));
    assert!(matches!(transfers.get(old).await, Err(FindError::Unknown(_))));
    transfers.create(&transfer(old, 3)).await.unwrap();
    assert_ne!(new_id(), new_id());
}

/// Creates transfers of these numbers, each of which is its id and when it was submitted, many at the same
/// time.
async fn create_all(transfers: &TransferStore, numbers: std::ops::Range<u64>) {
    let create = |number: u64| {
        let transfers = transfers.clone();
        async move { transfers.create(&transfer(&format!("{number:016x}"), number)).await.unwrap() }
    };
    futures_util::stream::iter(numbers).map(create).buffer_unordered(50).collect::<Vec<_>>().await;
}

/// All ids, page by page.
async fn in_pages(transfers: &TransferStore, limit: usize, mut each: impl AsyncFnMut(&str)) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    loop {
        let page = transfers.list(limit, ids.last().map(|id| &**id)).await.unwrap();
        let Some(last) = page.last() else { return ids };
        each(&last.id).await;
        ids.extend(page.into_iter().map(|record| record.id));
    }
}

#[tokio::test]
async fn each_transfer_is_listed_once_and_the_latest_first_whatever_changes_meanwhile() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    let transfers = TransferStore::open(&bus).await.unwrap();
    // More than what is read at once, of the order as of the records.
    create_all(&transfers, 0..2_100).await;
    let whole: Vec<String> =
        transfers.list(usize::MAX, None).await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(whole.iter().collect::<std::collections::HashSet<_>>().len(), 2_100);
    // Submitted fifty at a time: so far from its place is none.
    for (place, id) in whole.iter().rev().enumerate() {
        let number = usize::from_str_radix(id, 16).unwrap();
        assert!(number.abs_diff(place) < 100, "{number} at {place}");
    }
    // While one reads, records before and behind him change, and others are submitted.
    let mut late = 10_000;
    let paged = in_pages(&transfers, 150, async |id| {
        for id in [id, &*whole[0], &*whole[2_000]] {
            transfers.update(id, |record| record.tally.files_done += 1).await.unwrap();
        }
        create_all(&transfers, late..late + 10).await;
        late += 10;
    });
    assert_eq!(paged.await, whole);
    // What is forgotten leaves gaps, larger than what is read at once.
    for id in &whole[10..2_095] {
        transfers.forget(id).await.unwrap();
    }
    let left: Vec<String> = whole[..10].iter().chain(&whole[2_095..]).cloned().collect();
    let listed = in_pages(&transfers, 4, async |_| {}).await;
    assert_eq!(listed[listed.len() - 15..], left);
    assert!(matches!(transfers.list(1, Some(&whole[10])).await, Err(FindError::Unknown(_))));
    assert!(matches!(transfers.list(1, Some("*")).await, Err(FindError::Unknown(_))));
}

#[tokio::test]
async fn pairs_are_seen_by_their_mover_and_their_transfer() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let pairs = PairAssignmentStore::open(&bus).await.unwrap();
    let pair = |source: &str, transfer: &str, number| MoverPairRecord {
        version: RECORD_VERSION,
        transfer: transfer.into(),
        number,
        source: source.into(),
        sink: "s".into(),
    };
    pairs.put(&pair("m1", "t1", 0)).await.unwrap();
    let far_pairs = PairAssignmentStore::open(&far).await.unwrap();
    let mut watch = std::pin::pin!(far_pairs.watch(PairFilter::Mover("m1")).await.unwrap());
    assert_eq!(watch.next().await, Some(PairRecordChange::All(vec![pair("m1", "t1", 0)])));
    pairs.put(&pair("m2", "t1", 1)).await.unwrap();
    pairs.put(&pair("m1", "t2", 0)).await.unwrap();
    assert_eq!(watch.next().await, Some(PairRecordChange::Put(pair("m1", "t2", 0))));
    let of_t1 = pairs.list(PairFilter::Transfer("t1")).await.unwrap();
    assert_eq!(of_t1, [pair("m1", "t1", 0), pair("m2", "t1", 1)]);
    assert_eq!(pairs.remove_all("t1").await.unwrap(), 2);
    assert_eq!(watch.next().await, Some(PairRecordChange::Gone(MoverPairKey::of(&pair("m1", "t1", 0)))));
    assert_eq!(pairs.list(PairFilter::Everybody).await.unwrap(), [pair("m1", "t2", 0)]);

    let curves = PairCountCurveStore::open(&bus).await.unwrap();
    assert_eq!(curves.get("a", "b").await.unwrap(), None);
    let curve = PairCurveRecord::new(vec![PairCountRate { pairs: 2, bytes_per_s: 7 }], 1);
    curves.put("a", "b", &curve).await.unwrap();
    assert_eq!(curves.get("a", "b").await.unwrap(), Some(curve));
}

#[tokio::test]
async fn questions_are_answered_refused_or_nobodys() {
    let Some(nats) = nats(1) else { return };
    let (bus, far) = (nats.bus().await, nats.bus().await);
    let look = |path: &str| MoverRequest::Look { path: path.into() };
    assert!(matches!(
        send_mover_request(&bus, "m1", &look("/x"), PATIENCE).await,
        Err(MoverRequestError::Nobody(_))
    ));
    let looked =
        PathReply { exists: true, is_directory: false, size: 7, is_link: false, parent_exists: true };
    let answer = MoverReply::Looked(looked);
    let said = answer.clone();
    let server = serve_requests(&far, "m1", move |asked| {
        let said = said.clone();
        Box::pin(async move {
            match asked {
                MoverRequest::Look { path } if path == "/slow" => std::future::pending().await,
                MoverRequest::Look { path } if path == "/bad" => MoverReply::Failed("no such disk".into()),
                MoverRequest::Look { .. } => said,
                _ => MoverReply::Noted,
            }
        })
    });
    let server = server.await.unwrap();
    assert_eq!(send_mover_request(&bus, "m1", &look("/x"), PATIENCE).await.unwrap(), answer);
    let within = Duration::from_millis(300);
    assert!(matches!(
        send_mover_request(&bus, "m1", &look("/slow"), within).await,
        Err(MoverRequestError::Silent { .. })
    ));
    let failed = send_mover_request(&bus, "m1", &look("/bad"), PATIENCE).await.unwrap_err();
    assert!(failed.to_string().contains("no such disk"));
    drop(server);

    let mut hearing = subscribe_reports_confirmed(&bus, "t1").await.unwrap();
    let said = MoverPairReport { bytes_moved: 9, ..MoverPairReport::new("m1", 3) };
    report(&far, "t1", &said).await.unwrap();
    let heard = tokio::time::timeout(PATIENCE, hearing.next()).await.unwrap();
    assert_eq!(heard, Some(said));
}
