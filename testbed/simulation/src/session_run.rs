//! One seed's run: sessions with faults, then one without, and what has to hold in between and at the end.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;

use carrack_engine::{
    AbortHandle, ControlChannel, PeerChannel, ProcessOwnerAccessPolicy, SessionRole, TransferObserver,
    TransferOutcome, TransferRequest, copy_local, copy_with_peer, serve,
};
use carrack_model::{Durability, ProtectionLevel, TransferEvent, TransferExecutionId, UserNotice};

use crate::descriptors::{DescriptorKind, OpenDescription};
use crate::expectation::{ExpectedTree, TreeEntry};
use crate::faults::{CallKind, FaultPlan};
use crate::image::{Contents, ROOT};
use crate::memory;
use crate::pages::{PAGE_BYTES, Pages};
use crate::scenario::{BRANCH_PATH, SeedScenario, SessionWay};
use crate::scheduler::{self, EndProcess, WaitCondition};
use crate::volumes::{BRANCH, NodeRef, SINK, SOURCE, TOP, WalkRules, system_time};
use crate::world::{SimulatedWorld, TIME_MAX_NS, install, world};

/// In all temporary names of the transfer while it has a journal, whose ID they begin with.
const OWN_TAG: &[u8] = b".carrack-0707";

/// Heap memory of both ends together, at most.
const HEAP_BYTES_MAX: usize = 64 << 20;

/// Mapped memory beside the pools: pools for control messages.
const MAPPED_BESIDE_MAX: usize = 1 << 20;

/// Files of this size and more get their names when they are durable.
const LARGE_BYTES: usize = 256 << 10;

/// The result of one seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOutline {
    /// The fingerprint of everything that happened.
    pub digest: u64,
    /// Calls.
    pub steps: u64,
}

/// The words of one end.
#[derive(Default)]
struct EndReport {
    outcome: Mutex<Option<TransferOutcome>>,
    failed: Mutex<Vec<Vec<u8>>>,
    words: Mutex<Vec<String>>,
}

impl TransferObserver for EndReport {
    fn handle_event(&self, event: &TransferEvent) {
        match event {
            TransferEvent::Failed(failure) => {
                let word = format!("failed: {failure}");
                self.failed.lock().expect("no panic under it").push(failure.path.to_vec());
                self.words.lock().expect("no panic under it").push(word);
            }
            TransferEvent::Notice(UserNotice::Warning(text)) => {
                let word = format!("warning: {text}");
                self.words.lock().expect("no panic under it").push(word);
            }
            _ => {}
        }
    }
}

/// The ends of a session, after it.
struct SessionEnd {
    initiator: Arc<EndReport>,
    responder: Arc<EndReport>,
}

impl SessionEnd {
    fn result_of(told: &EndReport) -> Result<(), String> {
        match told.outcome.try_lock().ok().and_then(|mut outcome| outcome.take()) {
            Some(outcome) => outcome.result.map_err(|error| error.to_string()),
            None => Err("no outcome: it was killed".into()),
        }
    }
}

/// Runs a seed; ends the process if anything is wrong.
pub fn run(seed: u64, traces: bool) -> RunOutline {
    scheduler_off(|| run_inside(seed, traces))
}

/// The calling thread becomes the control process of a simulation.
fn scheduler_off(work: impl FnOnce() -> RunOutline) -> RunOutline {
    let _inside = scheduler::InsideGuard::enter();
    let outline = work();
    scheduler::end();
    outline
}

fn run_inside(seed: u64, traces: bool) -> RunOutline {
    let scenario = SeedScenario::of(seed);
    install(SimulatedWorld::new(seed, traces));
    let world = world();
    scheduler::begin(world);
    prepare(world, &scenario);
    memory::begin(scenario.allocation_gap);
    for (index, faults) in scenario.sessions.iter().enumerate() {
        let ended = session(&scenario, faults.clone(), index as u8 + 1);
        check_session(&scenario, faults, ended);
    }
    let world = crate::world::world();
    world.stage = "the session without faults";
    let calm = FaultPlan::default();
    let ended = session(&scenario, calm.clone(), 100);
    check_session(&scenario, &calm, ended);
    check_complete(&scenario);
    memory::end();
    let world = crate::world::world();
    let (peak, mapped) = (memory::peak_bytes(), world.mapped_peak);
    if peak > HEAP_BYTES_MAX {
        world.fail(&format!("{peak} bytes of heap memory"));
    }
    let pools = scenario.transfer.settings.slot_count_for(&scenario.transfer) * 2;
    if mapped > pools + MAPPED_BESIDE_MAX {
        world.fail(&format!("{mapped} bytes of buffers, where two pools are {pools}"));
    }
    RunOutline { digest: world.digest, steps: world.steps }
}

/// The bytes of a pool.
trait PoolBytes {
    fn slot_count_for(&self, transfer: &TransferRequest) -> usize;
}

impl PoolBytes for carrack_engine::EndSettings {
    fn slot_count_for(&self, transfer: &TransferRequest) -> usize {
        let least = 4 * self.lanes.max(1) as u64 * u64::from(transfer.spec.slot_bytes);
        self.pool_bytes.max(least) as usize
    }
}

fn prepare(world: &mut SimulatedWorld, scenario: &SeedScenario) {
    world.switch_permille = scenario.switch_permille;
    world.skew = scenario.skew;
    world.call_ns = scenario.call_ns;
    world.cpus = scenario.cpus;
    let cuts = |faults: &FaultPlan| faults.crash.as_ref().is_some_and(|crash| crash.cuts_power);
    world.has_boot_id = !scenario.sessions.iter().any(cuts);
    world.connection_bytes = scenario.connection_bytes;
    world.connection_delay_ns = scenario.connection_delay_ns;
    world.nothing_cached = scenario.nothing_cached;
    world.description = describe(scenario);
    let [at_source, at_sink] = scenario.magics;
    for (volume, magic) in [(SOURCE, at_source), (SINK, at_sink), (BRANCH, at_sink)] {
        world.volumes.get(volume).magic = magic;
    }
    for volume in [SINK, BRANCH] {
        world.volumes.get(volume).has_tmpfile = scenario.has_tmpfile;
    }
    populate(world, SOURCE, b"tree", &scenario.tree);
    if let Some(before) = &scenario.before {
        if scenario.has_branch {
            mount_branch(world);
        }
        populate(world, SINK, b"copy", before);
    }
    for volume in [SOURCE, SINK, BRANCH] {
        world.volumes.get(volume).record();
    }
    let at_sink = |tree: &BTreeMap<Vec<u8>, TreeEntry>| {
        let path = |path: &Vec<u8>| [b"/there/copy", &path[..]].concat();
        tree.iter().map(|(name, entry)| (path(name), entry.clone())).collect()
    };
    world.expectation = ExpectedTree {
        new: at_sink(&scenario.tree),
        old: scenario.before.as_ref().map(at_sink).unwrap_or_default(),
        watches: true,
        ..ExpectedTree::default()
    };
    world.now = 1_000_000_000;
}

/// Makes the destination, with a directory that the second volume is mounted on.
fn mount_branch(world: &mut SimulatedWorld) {
    let sink = world.volumes.get(SINK);
    let directory = || Contents::Directory(BTreeMap::new());
    let copy = sink.make(Some((ROOT, b"copy")), directory(), 0o755, 0);
    let ino = sink.make(Some((copy, &BRANCH_PATH[1..])), directory(), 0o755, 0);
    world.volumes.mount_branch(NodeRef { volume: SINK, ino });
}

fn describe(scenario: &SeedScenario) -> String {
    let TransferRequest { spec, settings, .. } = &scenario.transfer;
    let bytes = |tree: &BTreeMap<Vec<u8>, TreeEntry>| -> usize {
        tree.values().map(|entry| if let TreeEntry::File(data, _) = entry { data.len() } else { 0 }).sum()
    };
    format!(
        "{:?}: {} entries, {} bytes; destination {}\n\
         {:?} {:?} slots of {} KiB, pool {} KiB, streams {}, threads {}, lanes {}, {:?}, {:?}, tunes {},
             control {}\n\
         journal {} {:?} {} KiB {:?}; {:?} {:?} {:?}; stall {:?}; sync {:?}; rate {} in flight {}\n\
         types {:x?}, tmpfile {}, second volume {}, cpus {}\n{}",
        scenario.way,
        scenario.tree.len(),
        bytes(&scenario.tree),
        scenario.before.as_ref().map_or("new".into(), |before| format!("with {} entries", before.len())),
        spec.checksum,
        spec.protection,
        spec.slot_bytes >> 10,
        settings.pool_bytes >> 10,
        spec.streams,
        settings.io_threads,
        settings.lanes,
        spec.dial_from,
        settings.scheduling.policy,
        settings.tunes,
        settings.over_control,
        settings.journal.is_on,
        settings.journal.durability,
        settings.journal.group_bytes >> 10,
        settings.journal.group_time,
        settings.verify,
        settings.source_io,
        settings.sink_io,
        settings.stall,
        spec.sync,
        settings.scheduling.rate,
        settings.scheduling.in_flight_max,
        scenario.magics,
        scenario.has_tmpfile,
        scenario.has_branch,
        scenario.cpus,
        scenario.sessions.iter().map(|faults| format!("{faults:?}")).collect::<Vec<_>>().join("\n"),
    )
}

fn populate(world: &mut SimulatedWorld, volume: usize, top: &[u8], tree: &BTreeMap<Vec<u8>, TreeEntry>) {
    for (path, entry) in tree {
        let full = [top, &path[..]].concat();
        let (parent, name) = match full.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (full[..slash].to_vec(), full[slash + 1..].to_vec()),
            None => (b".".to_vec(), full.clone()),
        };
        let root = NodeRef { volume, ino: ROOT };
        let walked = world.volumes.walk(root, &parent, WalkRules::default());
        let Some(directory) = walked.ok().and_then(|walked| walked.node) else { continue };
        // The destination and the directory of a mount are there already.
        if matches!(entry, TreeEntry::Directory)
            && matches!(world.volumes.lookup(directory, &name), Ok(Some(_)))
        {
            continue;
        }
        let at = Some((directory.ino, &name[..]));
        let volume = world.volumes.get(directory.volume);
        match entry {
            TreeEntry::Directory => drop(volume.make(at, Contents::Directory(BTreeMap::new()), 0o755, 0)),
            TreeEntry::Link(target) => drop(volume.make(at, Contents::Link(target.clone()), 0o777, 0)),
            TreeEntry::File(data, time) => {
                let ino = volume.make(at, Contents::File(Pages::default()), 0o644, 0);
                for (index, page) in data.chunks(PAGE_BYTES).enumerate() {
                    if page.iter().any(|&byte| byte != 0) {
                        volume.write(ino, (index * PAGE_BYTES) as u64, page, 0);
                    }
                }
                volume.resize(ino, data.len() as u64, 0);
                let mtime = Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(*time));
                let time = Some(system_time(0));
                volume.set_attributes(ino, crate::change::Attributes { mtime, time, ..Default::default() });
            }
        }
    }
}

/// Runs one session to its end.
fn session(scenario: &SeedScenario, faults: FaultPlan, run: u8) -> SessionEnd {
    let world = world();
    world.stage = if run == 100 { "the session without faults" } else { "a session with faults" };
    world.faults = faults;
    world.faults.time_limit = world.now + TIME_MAX_NS;
    world.faults.killed.clear();
    world.tell(|| format!("session {run}"));
    let mut transfer = scenario.transfer.clone();
    if let Some(identity) = &mut transfer.identity {
        identity.run = TransferExecutionId([run; 16]);
    }
    let ended = SessionEnd { initiator: Arc::default(), responder: Arc::default() };
    let role = if scenario.way == SessionWay::Push { SessionRole::Source } else { SessionRole::Sink };
    let (initiator, responder) = match scenario.way {
        SessionWay::Local => (EndProcess::Sink, EndProcess::Sink),
        SessionWay::Push => (EndProcess::Source, EndProcess::Sink),
        SessionWay::Pull => (EndProcess::Sink, EndProcess::Source),
    };
    let told = Arc::clone(&ended.initiator);
    if scenario.way == SessionWay::Local {
        start(initiator, "local", move || {
            let abort = AbortHandle::new().expect("an event counter");
            let outcome = copy_local(&transfer, &*told, &abort);
            *told.outcome.lock().expect("no panic under it") = Some(outcome);
        });
    } else {
        let (here, there) = channel(initiator, responder);
        let answered = Arc::clone(&ended.responder);
        start(initiator, "initiator", move || {
            let abort = AbortHandle::new().expect("an event counter");
            let peer = PeerChannel::over_pipes(here.0, here.1, "127.0.0.1".into());
            let outcome = copy_with_peer(&transfer, role, peer, &*told, &abort);
            *told.outcome.lock().expect("no panic under it") = Some(outcome);
        });
        start(responder, "responder", move || {
            let abort = AbortHandle::new().expect("an event counter");
            let channel = ControlChannel::Pipes { input: there.0, output: there.1 };
            let outcome = serve(channel, &ProcessOwnerAccessPolicy::over_ssh(ProtectionLevel::Clear), &abort);
            *answered.outcome.lock().expect("no panic under it") = Some(outcome);
        });
    }
    scheduler::wait(WaitCondition::AllEnds, None);
    ended
}

/// Starts the first thread of a process.
fn start(process: EndProcess, name: &str, work: impl FnOnce() + Send + 'static) {
    world().spawns_for = Some(process);
    let started = scheduler::outside(|| thread::Builder::new().name(name.into()).spawn(work));
    world().spawns_for = None;
    // Nobody waits for it in this way.
    std::mem::forget(started);
}

type ChannelPair = (OwnedFd, OwnedFd);

/// The channel between both ends.
fn channel(initiator: EndProcess, responder: EndProcess) -> (ChannelPair, ChannelPair) {
    let world = world();
    let (there, back) = world.descriptors.pipes(64 << 10);
    for pipe in [there, back] {
        let pipe = &mut world.descriptors.pipes[pipe];
        (pipe.is_network, pipe.delay_ns) = (true, world.connection_delay_ns);
    }
    let mut open = |process, input, output| {
        let fd =
            world.descriptors.add(process, OpenDescription::new(DescriptorKind::Stream { input, output }));
        // SAFETY: a simulated descriptor that nobody else has.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let here = (open(initiator, Some(back), None), open(initiator, None, Some(there)));
    (here, (open(responder, Some(there), None), open(responder, None, Some(back))))
}

/// Checks what has to hold after every session.
fn check_session(scenario: &SeedScenario, faults: &FaultPlan, ended: SessionEnd) {
    let world = world();
    let killed = world.faults.killed.clone();
    for process in [EndProcess::Source, EndProcess::Sink] {
        if killed.contains(&process) {
            continue;
        }
        let open = world.descriptors.of(process);
        if !open.is_empty() {
            let kinds: Vec<String> = open
                .iter()
                .map(|fd| {
                    format!("{fd}: {:?}", world.descriptors.get(*fd).map(|description| &description.kind))
                })
                .collect();
            world.fail(&format!("{process:?} has left descriptors open: {}", kinds.join(", ")));
        }
        let mapped = world.mapped.values().filter(|(_, owner)| *owner == process).count();
        if mapped > 0 {
            world.fail(&format!("{process:?} has lost slots: {mapped} pools are still mapped"));
        }
    }
    let has_crashed = !killed.is_empty();
    let (initiator, responder) =
        (SessionEnd::result_of(&ended.initiator), SessionEnd::result_of(&ended.responder));
    let words = ended.initiator.words.try_lock().map(|words| words.join("\n")).unwrap_or_default();
    world.tell(|| format!("initiator {initiator:?}, responder {responder:?}\n{words}"));
    if killed.contains(&EndProcess::Sink) {
        let cuts_power = faults.crash.as_ref().is_some_and(|crash| crash.cuts_power);
        check_after_crash(scenario, cuts_power);
        if cuts_power {
            note_present(scenario);
        }
    }
    // An end that is slow for long counts as silent.
    let stall_ns = scenario.transfer.settings.stall.as_nanos() as u64;
    let is_quick = faults.slow.is_none_or(|(_, _, most_ns)| most_ns < stall_ns / 50);
    let is_calm = is_quick && faults.errors.is_empty() && faults.lost.is_none() && faults.crash.is_none();
    let failed = match ended.initiator.failed.try_lock() {
        Ok(failed) => failed.clone(),
        Err(_) => Vec::new(),
    };
    if !has_crashed && is_calm {
        // A bit that flips in a sealed object ends the session; in another one it costs the object, in the
        // end its files.
        let flips = faults.flip_one_in > 0;
        let is_sealed = scenario.transfer.spec.protection != ProtectionLevel::Clear;
        if let Err(error) = &initiator
            && !(flips && is_sealed)
        {
            crate::world::world()
                .fail(&format!("without a fault that ends it, the initiator says: {error}\n{words}"));
        }
        if !failed.is_empty() && !flips {
            crate::world::world().fail(&format!("without a fault, entries failed:\n{words}"));
        }
    }
    if !has_crashed && initiator.is_ok() {
        check_reported(scenario, &failed, &words);
    }
}

/// Without a journal a sync does not know after a power cut which new files got their names before they were
/// durable. Unless it compares contents, those of the right size and time count as equal
/// (docs/design/resume.md). An error of the sink's storage may have kept the journal from being made, which
/// is said.
fn is_taken_for_equal(scenario: &SeedScenario) -> bool {
    let compares_times = scenario.transfer.spec.sync.as_ref().is_some_and(|sync| !sync.by_contents);
    let is_on = scenario.transfer.settings.journal.is_on;
    let cuts = |faults: &FaultPlan| faults.crash.as_ref().is_some_and(|crash| crash.cuts_power);
    let has_none = |faults: &FaultPlan| !is_on || faults.errors.iter().any(|error| error.volume == SINK);
    compares_times && scenario.sessions.iter().any(|faults| cuts(faults) && has_none(faults))
}

/// A file system that refuses times loses them, and nobody is told of each file.
fn keeps_times(scenario: &SeedScenario) -> bool {
    !scenario
        .sessions
        .iter()
        .flat_map(|faults| &faults.errors)
        .any(|error| error.call == CallKind::Attributes)
}

/// Every entry is complete or was reported.
fn check_reported(scenario: &SeedScenario, failed: &[Vec<u8>], words: &str) {
    let keeps_times = keeps_times(scenario);
    let names: Vec<&[u8]> =
        failed.iter().map(|path| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()).collect();
    let is_reported = |path: &[u8]| {
        let all = names.iter().any(|name| [&b"tree"[..], b"copy", b""].contains(name));
        all || path.split(|&byte| byte == b'/').any(|part| !part.is_empty() && names.contains(&part))
    };
    for (path, entry) in scenario.tree.iter().filter(|_| !is_taken_for_equal(scenario)) {
        if !is_reported(path)
            && let Err(what) = compare(path, entry, keeps_times)
        {
            let path = path.escape_ascii();
            let text = format!("{path} {what}, and nobody was told; reported:\n{words}");
            world().fail(&text);
        }
    }
}

fn at_sink(path: &[u8]) -> Option<NodeRef> {
    let full = [b"/there/copy", path].concat();
    let root = NodeRef { volume: TOP, ino: ROOT };
    world().volumes.walk(root, &full, WalkRules::default()).ok().and_then(|walked| walked.node)
}

fn compare(path: &[u8], entry: &TreeEntry, keeps_times: bool) -> Result<(), String> {
    let node = at_sink(path).ok_or("is missing")?;
    let found = world().volumes.node(node).map_err(|_| "is missing")?;
    if !entry.is(&found.contents) {
        let what = match &found.contents {
            Contents::File(pages) => format!("has other contents, {} bytes", pages.bytes()),
            other => format!("is something else: {other:?}"),
        };
        return Err(what);
    }
    if let TreeEntry::File(_, time) = entry
        && keeps_times
    {
        let wanted = std::time::UNIX_EPOCH + std::time::Duration::from_secs(*time);
        if found.mtime != wanted {
            return Err(format!("has another time: {:?}, not {wanted:?}", found.mtime));
        }
    }
    Ok(())
}

/// After the sink's death: old files or whole new ones.
fn check_after_crash(scenario: &SeedScenario, cuts_power: bool) {
    let is_durable = scenario.transfer.settings.journal.durability != Durability::End;
    for (path, entry) in &scenario.tree {
        let TreeEntry::File(data, _) = entry else { continue };
        let full = [b"/there/copy", &path[..]].concat();
        let world = world();
        let had = world.expectation.old.contains_key(&full);
        // New small files get their names before they are durable (docs/resume.md).
        if cuts_power && (!is_durable || (!had && data.len() < LARGE_BYTES)) {
            continue;
        }
        match at_sink(path) {
            Some(node) => crate::world::world().check_whole(&full, node),
            None if had => {
                crate::world::world().fail(&format!("{} is gone after the crash", path.escape_ascii()));
            }
            None => {}
        }
    }
}

/// After a power cut, new small files may be incomplete: until the next session replaces them, they may
/// stay so.
fn note_present(scenario: &SeedScenario) {
    for (path, _) in scenario.tree.iter().filter(|(_, entry)| matches!(entry, TreeEntry::File(..))) {
        let full = [b"/there/copy", &path[..]].concat();
        let found = at_sink(path).and_then(|node| world().volumes.node(node).ok());
        let Some(Contents::File(pages)) = found.map(|node| &node.contents) else { continue };
        let entry = TreeEntry::File(pages.read(0, usize::MAX / 2), 0);
        world().expectation.old.insert(full, entry);
    }
    world().expectation.finals.clear();
}

/// After the session without faults: everything is there, and nothing else.
fn check_complete(scenario: &SeedScenario) {
    let keeps_times = keeps_times(scenario);
    for (path, entry) in scenario.tree.iter().filter(|_| !is_taken_for_equal(scenario)) {
        if let Err(what) = compare(path, entry, keeps_times) {
            world().fail(&format!("{} {what}, at the end", path.escape_ascii()));
        }
    }
    let deletes = scenario.transfer.spec.sync.as_ref().is_some_and(|sync| sync.deletion.is_some());
    for (path, entry) in
        scenario.before.iter().flatten().filter(|(path, _)| !scenario.tree.contains_key(*path))
    {
        match (at_sink(path), deletes) {
            (Some(_), true) => world().fail(&format!("{} was not deleted", path.escape_ascii())),
            (None, false) => world().fail(&format!("{} was deleted", path.escape_ascii())),
            (Some(_), false) => {
                if let Err(what) = compare(path, entry, keeps_times) {
                    world().fail(&format!("{} {what}, which is not of the source", path.escape_ascii()));
                }
            }
            (None, true) => {}
        }
    }
    let can_remove = !scenario
        .sessions
        .iter()
        .flat_map(|faults| &faults.errors)
        .any(|error| error.call == CallKind::Unlink);
    // Without a journal the next run does not know the temporary names of an earlier one.
    if !scenario.transfer.settings.journal.is_on || !can_remove {
        return;
    }
    for directory in [&b"/there"[..], b"/there/copy", b"/there/copy/d0"] {
        let root = NodeRef { volume: TOP, ino: ROOT };
        let walked = world().volumes.walk(root, directory, WalkRules::default());
        let Some(node) = walked.ok().and_then(|walked| walked.node) else { continue };
        let Ok(found) = world().volumes.node(node) else { continue };
        let Contents::Directory(names) = &found.contents else { continue };
        if let Some(name) = names.keys().find(|name| name.windows(OWN_TAG.len()).any(|part| part == OWN_TAG))
        {
            let name = name.escape_ascii().to_string();
            world().fail(&format!("{name} is left in {}", directory.escape_ascii()));
        }
    }
}
