//! Everything on NATS can be rebuilt: what becomes of a fleet that is alive while all of it is lost.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use carrack_register::transfer_operations::{TransferOperationError, TransferOperations};
use carrack_register::transfer_records::TransferRecord;

use crate::support::PATIENCE;
use crate::whole::{Fleet, MIB, assert_same, noise, small_chunks};

/// A tree of 96 MiB, half of which is moved when this returns.
fn half_moved(fleet: &Fleet) -> TransferRecord {
    fs::create_dir(fleet.at("a/tree")).unwrap();
    for i in 0..12 {
        fs::write(fleet.at(&format!("a/tree/{i}")), noise(8 * MIB, i)).unwrap();
    }
    let slow = small_chunks().with("bwlimit", 8_000_000).with("pairs", 2);
    let id = fleet.submit("a/tree", "b/new", slow).id;
    fleet.wait(&id, |record| record.tally.bytes_done > 40 << 20)
}

/// The fleet forgets the transfer, and can be used again within the time that a lost connection takes;
/// submitted again the transfer goes on where it was.
fn goes_on(fleet: &Fleet, before: &TransferRecord) {
    let began = Instant::now();
    let (movers, submitted) = loop {
        assert!(began.elapsed() < PATIENCE, "nobody has made it again");
        let movers = fleet.runtime.block_on(fleet.control.movers()).unwrap_or_default().len();
        // Submitting before there is a bucket is refused as something that may work later.
        if movers == 4 {
            break (movers, fleet.submit("a/tree", "b/new", small_chunks()));
        }
        thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(movers, 4);
    let old = fleet.runtime.block_on(fleet.control.transfer(&before.id));
    assert!(matches!(old, Err(TransferOperationError::Unknown(_))), "{old:?}");
    let record = fleet.done(&submitted.id);
    assert_same(&fleet.at("a/tree"), &fleet.at("b/new"));
    assert!(record.resumes, "{record:#?}");
    let again = record.tally.bytes_moved;
    assert!(again < record.tally.bytes_done - (32 << 20), "{again} bytes were moved of what was there");
    assert_eq!(fleet.names_in("b"), ["new"], "no journals are left");
}

#[test]
fn a_server_that_comes_back_with_nothing_is_filled_again() {
    let Some(fleet) = Fleet::new() else { return };
    let _managers = (fleet.manager(), fleet.manager());
    let _movers = (fleet.mover("a", 2), fleet.mover("a", 2), fleet.mover("b", 2), fleet.mover("b", 2));
    let before = half_moved(&fleet);
    fleet.nats.stop(1);
    fleet.nats.empty(1);
    fleet.nats.start(1);
    goes_on(&fleet, &before);
}

#[test]
fn streams_that_are_removed_while_all_are_connected_are_made_again() {
    let Some(fleet) = Fleet::new() else { return };
    let _managers = (fleet.manager(), fleet.manager());
    let _movers = (fleet.mover("a", 2), fleet.mover("a", 2), fleet.mover("b", 2), fleet.mover("b", 2));
    let before = half_moved(&fleet);
    fleet.runtime.block_on(async {
        use futures_util::TryStreamExt;
        let client = async_nats::connect(&fleet.nats.urls[0]).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let names: Vec<String> = context.stream_names().try_collect().await.unwrap();
        assert_eq!(names.len(), 8, "{names:?}");
        for name in names {
            context.delete_stream(name).await.unwrap();
        }
    });
    goes_on(&fleet, &before);
}

/// A new fleet's processes begin at the same time: what is not there yet is waited for.
#[test]
fn a_mover_waits_for_a_bucket_that_a_manager_has_not_made_yet() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.runtime.block_on(async {
        let client = async_nats::connect(&fleet.nats.urls[0]).await.unwrap();
        async_nats::jetstream::new(client).delete_stream("KV_carrack_pairs").await.unwrap();
    });
    let mover = fleet.mover("a", 1);
    thread::sleep(Duration::from_millis(1_500));
    let _manager = fleet.manager();
    thread::sleep(Duration::from_millis(1_500));
    // It has not ended by itself.
    mover.drain();
}
