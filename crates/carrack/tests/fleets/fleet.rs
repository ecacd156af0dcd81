//! A fleet of real processes on hosts of its own, some of which die while it carries two transfers; and its
//! commands over NATS.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CARRACK_FLEET_GIB` | GiB of all large files; 8 by default. Less lowers the rates, not the chunks |
//! | `CARRACK_ILL` | only the kinds of ill movers whose names contain this |
//! | `CARRACK_BIN` | the program under test, in the place of this build's |
//!
//! It needs root, `ip` (iproute2), `unshare`, `nsenter` and `setpriv` (util-linux), a nats-server as
//! testbed/nats finds it, and memory for the files.

pub mod data;
pub mod illness;
pub mod network;
pub mod old_mover;
pub mod program;
pub mod stage;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use carrack_register::transfer_records::{TransferRecord, TransferState};

use crate::common;
use crate::common::process::{assert_exit, assert_says, wait_at_most, wait_for};
use crate::common::tree::{assert_same, temporary_names};
use data::{Planted, assert_no_holes, plant_large, plant_tree};
use illness::{ILLNESSES, LOOK_EVERY, Patient};
use stage::{Manner, PATIENCE, SITES, Stage, server};

const MIB: u64 = 1 << 20;

/// Bytes of the slots of each pair.
const BUFFER_BYTES: u64 = 16 * MIB;

/// Bytes of the large files' chunks, for each GiB: a 256th.
const CHUNK_BYTES_A_GIB: u64 = 4 * MIB;

/// Bytes of the tree's chunks.
const TREE_CHUNK_BYTES: u64 = MIB;

/// Bytes per second of each pair, for each GiB of the large files: slow enough for all faults to happen
/// meanwhile.
const RATE_A_GIB: u64 = 6 * MIB;
const TREE_RATE: u64 = 3 * MIB / 4;

/// Small files in the tree.
const TREE_FILES: u64 = 12_000;

/// Movers at each site when the transfers begin.
const MOVERS: u8 = 4;

/// GiB of memory besides the large files: the tree twice, the servers' data, and the movers.
const BESIDE_GIB: u64 = 3;

/// Prints past the test harness, which captures the output of passing tests.
fn say(words: &str) {
    let _ = writeln!(io::stderr(), "fleet: {words}");
}

/// Returns the GiB of large files: as asked for, or as the memory allows; `None` if there is hardly any.
fn large_gib() -> Option<u64> {
    let asked = std::env::var("CARRACK_FLEET_GIB").map_or(8, |text| text.parse().unwrap());
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let free_gib = free.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 20;
    let most = free_gib.saturating_sub(BESIDE_GIB);
    if asked > most {
        common::skip(&format!("no fleet carries {asked} GiB: there is memory for {most}"));
    }
    Some(asked.min(most)).filter(|gib| *gib > 0)
}

/// Two running transfers, and the faults of their movers.
struct Campaign {
    stage: Stage,
    /// The IDs of the large files' and the tree's transfer.
    ids: [String; 2],
    began: Instant,
    chunk_bytes: u64,
    /// Most bytes that killed movers had taken and no journal had.
    in_flight: u64,
}

impl Campaign {
    fn records(&self) -> [TransferRecord; 2] {
        self.ids.each_ref().map(|id| self.stage.record(id))
    }

    /// Returns both records, while both transfers run.
    #[track_caller]
    fn running(&self) -> [TransferRecord; 2] {
        let records = self.records();
        for record in &records {
            assert_eq!(record.state, TransferState::Running, "{record:#?}");
        }
        records
    }

    /// Injects a fault between two moments at which both transfers complete chunks.
    #[track_caller]
    fn hit(&mut self, what: &str, fault: impl FnOnce(&mut Stage)) {
        self.settle_more();
        let at = self.began.elapsed().as_secs_f32();
        fault(&mut self.stage);
        let done = self
            .running()
            .map(|record| format!("{} of {} chunks", record.tally.chunks_done, record.tally.chunks_found));
        say(&format!("{at:5.1} s: {what}, after {}", done.join(" and ")));
        self.settle_more();
    }

    /// Waits until enough chunks are complete that some of them were begun meanwhile.
    #[track_caller]
    fn settle_more(&self) {
        let before = self.running();
        wait_at_most(PATIENCE, "chunks are settled", || {
            thread::sleep(Duration::from_millis(200));
            let now = self.running();
            let more = |which: usize| now[which].tally.chunks_done - before[which].tally.chunks_done;
            (more(0) >= 4 && more(1) >= 1).then_some(())
        });
    }

    /// Adds the bytes that a mover may have in flight before a fault: two chunks for each of its pairs, and
    /// its slots.
    #[track_caller]
    fn note(&mut self, name: &str) {
        let pairs = wait_for_work(&self.stage, name);
        self.in_flight += u64::from(pairs) * (2 * self.chunk_bytes + BUFFER_BYTES);
    }

    /// Returns the bytes that the sinks' links have carried to them.
    fn received(&self) -> u64 {
        received(&self.stage)
    }
}

/// Returns the number of a mover's pairs; `None` if it is not listed.
fn pairs_of(stage: &Stage, name: &str) -> Option<u32> {
    stage.movers().iter().find(|mover| mover.host == name).map(|mover| mover.pairs)
}

/// Waits until a mover has pairs; returns their number.
#[track_caller]
fn wait_for_work(stage: &Stage, name: &str) -> u32 {
    wait_at_most(PATIENCE, &format!("{name} has work"), || pairs_of(stage, name).filter(|pairs| *pairs > 0))
}

fn received(stage: &Stage) -> u64 {
    let links = stage.network.received();
    links.iter().filter(|(name, _)| name.starts_with(SITES[1])).map(|(_, bytes)| bytes).sum()
}

/// Starts a fleet with its movers, and plants its files.
fn stage_with(gib: u64) -> Option<(Stage, [Planted; 2])> {
    let mut stage = Stage::start(3, (gib + BESIDE_GIB - 1) << 30)?;
    stage.start_manager("manager1");
    for number in 1..=MOVERS {
        SITES.iter().for_each(|site| stage.start_mover(site, number));
    }
    let planted =
        [plant_large(&stage.seen("east/large"), gib << 10), plant_tree(&stage.seen("east/tree"), TREE_FILES)];
    stage.wait_for_movers(2 * usize::from(MOVERS));
    Some((stage, planted))
}

#[test]
fn a_fleet_of_which_some_die_carries_everything() {
    let Some(gib) = large_gib() else { return };
    let Some((stage, planted)) = stage_with(gib) else { return };
    let before = received(&stage);
    let mut campaign = begin(stage, gib);
    hit_all(&mut campaign);
    let records = end(&mut campaign);
    judge(&campaign, &records, &planted, campaign.received() - before);
}

/// Submits both: the first prints its ID and is waited for by another command, the second waits itself.
fn begin(mut stage: Stage, gib: u64) -> Campaign {
    let (began, chunk_bytes) = (Instant::now(), gib * CHUNK_BYTES_A_GIB);
    let place = |name: &str| (stage.location(SITES[0], name), stage.location(SITES[1], name));
    let sizes = |chunk: u64, rate: u64| {
        let sizes = [("--chunk-size", chunk), ("--buffer", BUFFER_BYTES), ("--bwlimit", rate)];
        sizes.map(|(name, bytes)| format!("{name}={bytes}"))
    };
    let (from, to) = place("large");
    let how = sizes(chunk_bytes, gib * RATE_A_GIB);
    let large = stage.asked(&[&["submit", &from, &to][..], &how.each_ref().map(String::as_str)].concat());
    let (from, to) = place("tree");
    let how = sizes(TREE_CHUNK_BYTES, TREE_RATE);
    stage.start_command("wait", &["wait", &large]);
    stage.start_command(
        "submit",
        &[&["submit", "--wait", &from, &to][..], &how.each_ref().map(String::as_str)].concat(),
    );
    let tree = wait_for("its ID", || {
        let said = stage.program("submit").said();
        said.split_once('\n').map(|(id, _)| id.to_owned())
    });
    let campaign = Campaign { stage, ids: [large, tree], began, chunk_bytes, in_flight: 0 };
    wait_for("both are carried", || {
        let records = campaign.records();
        records.iter().all(|record| record.state == TransferState::Running).then_some(())
    });
    campaign
}

fn hit_all(campaign: &mut Campaign) {
    campaign.note("east1");
    campaign.hit("a mover at the source is killed", |stage| stage.program("east1").kill());
    campaign.note("east2");
    campaign.hit("another one's cable is pulled", |stage| set_link(stage, "east2", false));
    campaign.note("west3");
    campaign.hit("a mover at the sink is killed", |stage| stage.program("west3").kill());
    campaign.stage.start_manager("manager2");
    let owners = campaign.running().map(|record| record.manager);
    campaign.hit("the manager that owns both is killed", |stage| stage.program("manager1").kill());
    for (record, owner) in campaign.running().iter().zip(owners) {
        assert_ne!(record.manager, owner, "{record:#?}");
    }
    campaign.hit("a server is killed", |stage| stage.program(&server(1)).kill());
    assert_eq!(pairs_of(&campaign.stage, "east2"), None, "its lease has ended long ago");
    campaign.hit("the cable is put in again", |stage| set_link(stage, "east2", true));
    campaign.hit("a mover joins", |stage| stage.start_mover("west", MOVERS + 1));
    for name in ["east2", "west5"] {
        wait_for_work(&campaign.stage, name);
    }
}

fn set_link(stage: &Stage, name: &str, is_up: bool) {
    stage.network.set_link(stage.host(name), is_up);
}

/// Returns both records at their end; the commands that wait end well.
fn end(campaign: &mut Campaign) -> [TransferRecord; 2] {
    for name in ["wait", "submit"] {
        let status = campaign.stage.program(name).end(Duration::from_secs(180));
        assert_eq!(status.code(), Some(0), "{name}: {}", campaign.stage.program(name).said());
    }
    say(&format!("{:5.1} s: both are over", campaign.began.elapsed().as_secs_f32()));
    campaign.records()
}

fn judge(campaign: &Campaign, records: &[TransferRecord; 2], planted: &[Planted; 2], received: u64) {
    for (record, planted) in records.iter().zip(planted) {
        assert_eq!(record.state, TransferState::Done, "{record:#?}");
        let tally = record.tally;
        assert_eq!(
            (tally.files_done, tally.bytes_done, tally.entries_failed),
            (planted.files, planted.bytes, 0)
        );
    }
    for name in ["large", "tree"] {
        assert_same(
            &campaign.stage.seen(format!("east/{name}")),
            &campaign.stage.seen(format!("west/{name}")),
        );
    }
    assert_no_holes(&campaign.stage.seen("west/large"));
    assert!(temporary_names(&campaign.stage.seen("west")).is_empty());
    let moved: u64 = records.iter().map(|record| record.tally.bytes_moved).sum();
    let bytes: u64 = planted.iter().map(|planted| planted.bytes).sum();
    let shown = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB as f64);
    say(&format!(
        "{} carried, {} moved by the records, {} by the links; at most {} were in flight at the faults",
        shown(bytes),
        shown(moved),
        shown(received),
        shown(campaign.in_flight)
    ));
    // Bytes in flight at a fault have left the source and are in no count; a sink reports its written bytes
    // at intervals.
    let untold = campaign.in_flight;
    assert!(moved + untold >= bytes, "something has moved that nobody has told of");
    assert!(moved.saturating_sub(bytes) <= campaign.in_flight, "too much has moved twice");
    let beside = received.checked_sub(moved).expect("more was moved than the links have carried");
    assert!(beside <= overhead(bytes) + untold, "more was moved than the records say");
    assert!(
        received - bytes <= overhead(bytes) + campaign.in_flight,
        "the links have carried too much twice"
    );
}

/// Returns the most bytes of headers, seals and messages to NATS.
fn overhead(bytes: u64) -> u64 {
    bytes / 50
}

#[test]
fn a_fleet_is_asked_by_its_verbs() {
    let Some(mut stage) = Stage::start(1, 1 << 30) else { return };
    let (from, to) = (stage.location(SITES[0], "data/"), stage.location(SITES[1], "copy"));
    let refused = |stage: &Stage, words: &[&str], code: i32, said: &[&str]| {
        let output = stage.ask(words);
        assert_exit(&output, code);
        assert_says(&output, said);
    };
    refused(&stage, &["submit", &from, &to], 3, &["no answer from NATS", "and a manager"]);
    stage.start_manager("manager");
    assert_eq!(stage.asked(&["movers"]), "no movers");
    SITES.iter().for_each(|site| stage.start_mover(site, 1));
    let planted = plant_large(&stage.seen("east/data"), 128);
    stage.wait_for_movers(2);
    assert!(stage.asked(&["movers"]).contains("idle"));

    let slow = ["--bwlimit", "8MiB", "--chunk-size", "4MiB", "--buffer", "16MiB", "--pairs", "2"];
    let id =
        stage.asked(&[&["submit", "--priority", "7", "--label", "first", &from, &to], &slow[..]].concat());
    let until = |what: &str, is_so: &dyn Fn(&TransferRecord) -> bool| {
        wait_for(what, || Some(stage.record(&id)).filter(is_so))
    };
    let record = until("bytes move", &|record| record.tally.bytes_done > 4 * MIB);
    assert_eq!((record.state, record.submission.priority), (TransferState::Running, 7));
    assert!(stage.asked(&["movers"]).contains("busy"));
    assert!(stage.asked(&["status"]).contains(&id));

    stage.asked(&["pause", &id[..8]]);
    until("nobody works on it", &|record| record.state == TransferState::Paused && record.tally.pairs == 0);
    let paused = stage.record(&id).tally.bytes_done;
    thread::sleep(Duration::from_secs(2));
    assert_eq!(stage.record(&id).tally.bytes_done, paused);
    let twin = stage.asked(&["submit", &from, &to]);
    wait_for("the same copy waits", || stage.record(&twin).waits_for.contains(&id).then_some(()));
    stage.asked(&["cancel", &twin]);
    stage.asked(&["resume", &id]);
    until("it goes on", &|record| record.tally.bytes_done > paused + 8 * MIB);
    stage.asked(&["cancel", &id]);
    refused(&stage, &["wait", &id], 130, &["was cancelled"]);
    refused(&stage, &["resume", &id], 3, &["submit it again"]);
    refused(&stage, &["status", "ffffffffffffffff"], 3, &["hint: `carrack transfers` lists"]);
    until("it is cleared away", &|record| record.ended_ms.is_some());
    assert_eq!(stage.asked(&["status"]), "no transfers", "it is over");

    // Submitted again, it resumes.
    let again = stage.asked(&["submit", "--wait", &from, &to]);
    let record = stage.record(&again);
    assert_eq!((record.state, record.tally.files_done), (TransferState::Done, planted.files));
    assert!(record.tally.bytes_moved < planted.bytes - 8 * MIB, "{:?}", record.tally);
    assert_same(&stage.seen("east/data"), &stage.seen("west/copy"));
    let listed = stage.asked(&["transfers"]);
    let at = |id: &str| listed.find(id).unwrap();
    assert!(at(&again) < at(&id), "the latest comes first: {listed}");
    assert!(stage.asked(&["status", &again]).contains(&format!("{0} of {0}", planted.files)));

    // What failed is tried again, at the place of the first try.
    refused(&stage, &["resume", &again], 3, &["nothing left to do"]);
    fs::create_dir(stage.seen("east/linked")).unwrap();
    symlink("missing", stage.seen("east/linked/f")).unwrap();
    let [from, to] =
        [("east", "linked"), ("west", "followed")].map(|(site, name)| stage.location(site, name));
    let failed = stage.asked(&["submit", "--copy-links", &from, &to]);
    refused(&stage, &["wait", &failed], 3, &[&format!("carrack resume {failed}")]);
    fs::write(stage.seen("east/linked/missing"), "content").unwrap();
    let resumed = stage.asked(&["resume", &failed]);
    stage.asked(&["wait", &resumed]);
    assert_eq!(fs::read(stage.seen("west/followed/f")).unwrap(), b"content");
    assert!(!stage.seen("west/followed/linked").exists());
    fs::remove_dir_all(stage.seen("east/linked")).unwrap();
    let [from, to] = [("east", "none"), ("west", "some")].map(|(site, name)| stage.location(site, name));
    let failed = stage.asked(&["submit", &from, &to]);
    refused(&stage, &["wait", &failed], 3, &[&format!("carrack resume {failed}")]);
    fs::write(stage.seen("east/none"), "content").unwrap();
    let resumed = stage.asked(&["resume", &failed]);
    stage.asked(&["wait", &resumed]);
    assert_eq!(fs::read(stage.seen("west/some")).unwrap(), b"content");
}

/// A file of several chunks has its name when they are there, and does not wait for other files' chunks.
#[test]
fn large_files_have_their_names_one_after_the_other() {
    let Some(mut stage) = Stage::start(1, 1 << 30) else { return };
    stage.start_manager("manager");
    SITES.iter().for_each(|site| stage.start_mover(site, 1));
    let (files, data) = (12, stage.seen("east/data"));
    fs::create_dir(&data).unwrap();
    for number in 0..files {
        fs::write(data.join(format!("{number}")), vec![number as u8 + 1; 4 * MIB as usize]).unwrap();
    }
    stage.wait_for_movers(2);
    let (from, to) = (stage.location(SITES[0], "data/"), stage.location(SITES[1], "copy"));
    let options = ["--bwlimit", "8MiB", "--chunk-size", "1MiB", "--pairs", "1"];
    let id = stage.asked(&[&["submit", &from, &to], &options[..]].concat());
    let record = wait_for("the first file", || {
        Some(stage.record(&id)).filter(|record| record.tally.files_done > 0 || record.state.is_over())
    });
    assert_eq!(record.state, TransferState::Running);
    assert!(record.tally.bytes_done <= (files - 2) * 4 * MIB, "{:?}", record.tally);
    stage.asked(&["wait", &id]);
    assert_same(&data, &stage.seen("west/copy"));
}

/// Places of the healthy movers, which are paired with every site of an ill mover.
const AT_OTHER_ENDS: &[&str] = &["--pairs", "64"];

#[test]
fn movers_that_are_ill_cost_no_transfer() {
    let Some(mut stage) = Stage::start(1, 3 << 30) else { return };
    stage.start_manager("manager");
    for (site, number) in SITES.into_iter().flat_map(|site| [(site, 8), (site, 9)]) {
        stage.start_mover_so(site, number, Manner { options: AT_OTHER_ENDS, ..Manner::default() });
    }
    let named = std::env::var("CARRACK_ILL").unwrap_or_default();
    let planted = illness::plant(&stage.seen("east/data"));
    let mut patients = Vec::new();
    for (number, illness) in ILLNESSES.into_iter().enumerate() {
        match illness.lacks() {
            _ if !illness.name.contains(&named) => {}
            Some(tool) => common::skip(&format!("nobody is ill of \"{}\": there is no {tool}", illness.name)),
            None => patients.push(Patient::admit(&mut stage, number, illness, planted)),
        }
    }
    let good = stage.movers_are_there();
    for patient in &mut patients {
        patient.fall_ill(&mut stage, &good);
    }
    stage.movers_are_there();
    patients.iter_mut().for_each(|patient| patient.submit(&mut stage));
    let mut failed = Vec::new();
    while patients.iter().any(|patient| !patient.is_over()) {
        let (movers, records) = (stage.movers(), stage.records());
        for patient in &mut patients {
            // One failure must not hide those of the others.
            let look = AssertUnwindSafe(|| patient.look(&mut stage, &movers, &records, say));
            if catch_unwind(look).is_err() {
                failed.push(patient.give_up());
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_full_destination_fails_with_the_reason_and_goes_on_when_there_is_room() {
    let Some(mut stage) = Stage::start(1, 2048 * MIB) else { return };
    stage.start_manager("manager");
    stage.start_mover("east", 1);
    let first = "mount -t tmpfs -o size=8m none \"$1\" &&";
    stage.start_mover_so("west", 1, Manner { first, ..Manner::default() });
    stage.wait_for_movers(2);
    let data = stage.seen("east/data");
    fs::create_dir(&data).unwrap();
    for number in 0..12 {
        fs::write(data.join(format!("{number}")), vec![number; MIB as usize]).unwrap();
    }
    let (from, to) = (stage.location("east", "data"), stage.location("west", "copy"));
    let id = stage.asked(&["submit", &from, &to]);
    let record =
        wait_at_most(PATIENCE, "its end", || Some(stage.record(&id)).filter(|record| record.state.is_over()));
    assert_eq!(record.state, TransferState::Failed);
    assert!(record.reason.contains("No space left"), "{}", record.reason);
    assert!(record.tally.bytes_moved <= 24 * MIB, "it is not sent again and again: {:?}", record.tally);
    // The other mover has room below its directory of that name.
    stage.kill("west1");
    stage.start_mover("west", 2);
    wait_at_most(PATIENCE, "the other mover", || {
        let there = stage.movers();
        there.iter().all(|mover| mover.site == "east" || mover.host == "west2").then_some(())
    });
    stage.asked(&["submit", "--wait", &from, &to]);
    assert_same(&data, &stage.seen("west/copy"));
}
