//! The choices of a seed: a tree, options, the schedule, faults.

use std::collections::BTreeMap;
use std::time::Duration;

use carrack_engine::{EndSettings, JournalSettings, TransferIdentity, TransferRequest};
use carrack_model::{
    AgreedTransferSpec, DeletionRules, DialingEnd, Durability, MetadataFidelity, ObjectChecksumAlgorithm,
    ProtectionLevel, SchedulingOptions, SinkIoMethod, SourceReadMethod, SyncRules, TransferExecutionId,
    TransferId, WriteVerification,
};

use crate::chance::SeedChance;
use crate::expectation::TreeEntry;
use crate::faults::{CallError, CallKind, FaultPlan, LostConnection, ProcessCrash};
use crate::scheduler::EndProcess;
use crate::volumes::{BRANCH, SINK, SOURCE};

/// The directory of the tree that is the sink's second volume, if it has one.
pub const BRANCH_PATH: &[u8] = b"/d0";

const SLOT_BYTES: u64 = 128 << 10;

/// The places of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionWay {
    /// Both in one process.
    Local,
    /// The source calls the sink.
    Push,
    /// The sink calls the source.
    Pull,
}

/// A run: sessions with faults, then one without.
#[derive(Clone, Debug)]
pub struct SeedScenario {
    /// The places of both ends.
    pub way: SessionWay,
    /// The source's tree, by paths below `/source/tree`.
    pub tree: BTreeMap<Vec<u8>, TreeEntry>,
    /// The destination's, by paths below `/there/copy`; nothing if that does not exist.
    pub before: Option<BTreeMap<Vec<u8>, TreeEntry>>,
    /// The options.
    pub transfer: TransferRequest,
    /// The faults of each session but the last one.
    pub sessions: Vec<FaultPlan>,
    /// Chances of the schedule: see [`crate::world::SimulatedWorld`].
    pub switch_permille: u64,
    /// See [`crate::world::SimulatedWorld`].
    pub skew: u64,
    /// See [`crate::world::SimulatedWorld`].
    pub allocation_gap: u64,
    /// See [`crate::world::SimulatedWorld`].
    pub call_ns: u64,
    /// Processors.
    pub cpus: usize,
    /// File system types of both volumes.
    pub magics: [i64; 2],
    /// The destination has a directory on a volume of its own.
    pub has_branch: bool,
    /// The sink's volumes have files without names.
    pub has_tmpfile: bool,
    /// Bytes that may be under way on a connection.
    pub connection_bytes: usize,
    /// The time that they are under way.
    pub connection_delay_ns: u64,
    /// Nothing is in the page cache.
    pub nothing_cached: bool,
}

impl SeedScenario {
    /// The one of a seed.
    pub fn of(seed: u64) -> SeedScenario {
        let chance = &mut SeedChance::new(seed ^ 0x7ee5);
        let way = chance.pick(&[
            SessionWay::Push,
            SessionWay::Push,
            SessionWay::Push,
            SessionWay::Pull,
            SessionWay::Pull,
            SessionWay::Local,
        ]);
        let tree = tree(chance);
        let before = (!chance.one_in(3)).then(|| before(chance, &tree));
        let transfer = transfer(chance, way);
        let count = chance.pick(&[1, 1, 1, 2]);
        let sessions = (0..count).map(|_| faults(chance, way, &transfer)).collect();
        let mut sessions: Vec<FaultPlan> = sessions;
        let magics = [magic(chance), magic(chance)];
        if magics[1] == MEMORY {
            // Nothing is durable in memory, and the engine does not try.
            sessions
                .iter_mut()
                .filter_map(|faults| faults.crash.as_mut())
                .for_each(|crash| crash.cuts_power = false);
        }
        let mut scenario = SeedScenario {
            way,
            tree,
            before,
            transfer,
            sessions,
            switch_permille: chance.pick(&[20, 100, 300, 700]),
            skew: chance.pick(&[1, 1, 4, 40]),
            allocation_gap: chance.pick(&[0, 500, 100]),
            call_ns: chance.pick(&[500, 5_000, 100_000]),
            cpus: chance.pick(&[1, 2, 4, 8]),
            magics,
            has_tmpfile: !chance.one_in(3),
            connection_bytes: chance.pick(&[16 << 10, 128 << 10, 1 << 20]),
            connection_delay_ns: chance.pick(&[0, 0, 50_000, 5_000_000, 80_000_000]),
            nothing_cached: chance.one_in(2),
            has_branch: false,
        };
        // The last choice, so that those above are what they were before there was a second volume.
        if chance.one_in(4) {
            scenario.mount_branch(chance);
        }
        scenario
    }

    /// Has the first directory on a volume of its own: then objects wait in queues of their targets, and
    /// several threads commit. Faults meet either volume.
    fn mount_branch(&mut self, chance: &mut SeedChance) {
        let Some(before) = self.before.as_mut().filter(|_| self.tree.contains_key(BRANCH_PATH)) else {
            return;
        };
        self.has_branch = true;
        before.insert(BRANCH_PATH.to_vec(), TreeEntry::Directory);
        let scheduling = &mut self.transfer.settings.scheduling;
        scheduling.in_flight_max = scheduling.in_flight_max.max(chance.pick(&[1, 3]));
        for faults in &mut self.sessions {
            let errors = faults.errors.iter_mut().map(|error| &mut error.volume);
            let slow = faults.slow.iter_mut().map(|(volume, ..)| volume);
            for volume in errors.chain(slow).filter(|volume| **volume == SINK) {
                *volume = chance.pick(&[SINK, BRANCH]);
            }
        }
    }
}

/// The type of a file system in memory.
const MEMORY: i64 = 0x0102_1994;

/// The number of a file system's type: ext4, tmpfs, NFS, FUSE.
fn magic(chance: &mut SeedChance) -> i64 {
    chance.pick(&[0xEF53, 0xEF53, MEMORY, 0x6969, 0x6573_5546])
}

fn noise(chance: &mut SeedChance, bytes: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        data.extend_from_slice(&chance.next().to_le_bytes());
    }
    data.truncate(bytes);
    data
}

fn file(chance: &mut SeedChance, bytes: usize) -> TreeEntry {
    let mut data = noise(chance, bytes);
    // Holes: pages of zeros, which the tree does not store.
    if bytes > 3 * 4096 && chance.one_in(4) {
        let from = chance.below(bytes as u64 / 4096) as usize * 4096;
        let to = (from + (1 + chance.below(40) as usize) * 4096).min(bytes);
        data[from..to].fill(0);
    }
    TreeEntry::File(data, 1_600_000_000 + chance.below(1_000_000))
}

fn tree(chance: &mut SeedChance) -> BTreeMap<Vec<u8>, TreeEntry> {
    let mut tree = BTreeMap::from([(Vec::new(), TreeEntry::Directory)]);
    let mut directories = vec![Vec::new()];
    for index in 0..chance.below(4) {
        let mut path = chance.pick(&directories);
        path.extend_from_slice(format!("/d{index}").as_bytes());
        directories.push(path.clone());
        tree.insert(path, TreeEntry::Directory);
    }
    let at = |chance: &mut SeedChance, name: String| {
        let mut path = chance.pick(&directories);
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
        path
    };
    for index in 0..chance.pick(&[0, 1, 3, 8, 30]) {
        let bytes = chance.spread(0, 40_000) as usize;
        let path = at(chance, format!("small{index}"));
        tree.insert(path, file(chance, bytes));
    }
    for index in 0..chance.pick(&[0, 1, 1, 2, 3]) {
        let bytes = chance.spread(SLOT_BYTES / 2, 6 * SLOT_BYTES) as usize;
        let bytes = if chance.one_in(4) { bytes.next_multiple_of(SLOT_BYTES as usize) } else { bytes };
        let path = at(chance, format!("large{index}"));
        tree.insert(path, file(chance, bytes));
    }
    for index in 0..chance.below(3) {
        let path = at(chance, format!("link{index}"));
        tree.insert(path, TreeEntry::Link(chance.pick(&[&b"large0"[..], b"/nowhere", b"../d0"]).to_vec()));
    }
    tree
}

/// The destination: some of the files with other contents, and others that the source does not have.
fn before(chance: &mut SeedChance, tree: &BTreeMap<Vec<u8>, TreeEntry>) -> BTreeMap<Vec<u8>, TreeEntry> {
    let mut before = BTreeMap::from([(Vec::new(), TreeEntry::Directory)]);
    for (path, entry) in tree {
        if !chance.one_in(2) {
            continue;
        }
        let parent = path.iter().rposition(|&byte| byte == b'/').map_or(&[][..], |slash| &path[..slash]);
        if !before.contains_key(parent) {
            continue;
        }
        let old = match entry {
            TreeEntry::File(data, time) if chance.one_in(3) => TreeEntry::File(data.clone(), *time),
            TreeEntry::File(data, _) => {
                let other = chance.spread(0, 200_000) as usize;
                let bytes = chance.pick(&[data.len(), other]);
                TreeEntry::File(noise(chance, bytes), 1_500_000_000 + chance.below(1000))
            }
            other => other.clone(),
        };
        before.insert(path.clone(), old);
    }
    for index in 0..chance.below(4) {
        before.insert(
            format!("/extra{index}").into_bytes(),
            TreeEntry::File(noise(chance, 100), 1_500_000_000),
        );
    }
    before
}

fn transfer(chance: &mut SeedChance, way: SessionWay) -> TransferRequest {
    let checksum = chance.pick(&[
        ObjectChecksumAlgorithm::Xxh3,
        ObjectChecksumAlgorithm::Xxh3,
        ObjectChecksumAlgorithm::Blake3,
        ObjectChecksumAlgorithm::None,
    ]);
    let protection = if chance.one_in(8) {
        chance.pick(&[ProtectionLevel::Safe, ProtectionLevel::Private])
    } else {
        ProtectionLevel::Clear
    };
    let deletion = chance.one_in(2).then(|| DeletionRules {
        first: chance.one_in(3),
        by_empty_sources: true,
        ..DeletionRules::default()
    });
    let sync = chance.one_in(3).then(|| SyncRules {
        by_contents: chance.one_in(3),
        deletion,
        ..SyncRules::default()
    });
    let spec = AgreedTransferSpec {
        recursive: true,
        no_target_directory: true,
        checksum,
        slot_bytes: SLOT_BYTES as u32 * chance.pick(&[1, 1, 2]),
        streams: chance.pick(&[0, 1, 2, 3]),
        dial_from: chance.pick(&[
            DialingEnd::Either,
            DialingEnd::Either,
            DialingEnd::Source,
            DialingEnd::Sink,
        ]),
        protection,
        sync,
        ..AgreedTransferSpec::default()
    };
    let settings = EndSettings {
        pool_bytes: u64::from(spec.slot_bytes) * chance.pick(&[4, 4, 5, 8, 16]),
        io_threads: chance.pick(&[0, 1, 2, 3, 4]),
        scan_threads: chance.pick(&[0, 1, 2]),
        source_io: chance.pick(&[
            SourceReadMethod::Auto,
            SourceReadMethod::Buffered,
            SourceReadMethod::Direct,
        ]),
        sink_io: chance.pick(&[
            SinkIoMethod::Auto,
            SinkIoMethod::Buffered,
            SinkIoMethod::Direct,
            SinkIoMethod::Writeback,
        ]),
        lanes: chance.pick(&[0, 1, 1, 2]),
        scheduling: SchedulingOptions {
            rate: if chance.one_in(8) { 5_000_000 } else { 0 },
            in_flight_max: chance.pick(&[0, 0, 0, 1, 3]),
            ..SchedulingOptions::default()
        },
        journal: JournalSettings {
            is_on: !chance.one_in(5),
            directory: None,
            durability: chance.pick(&[
                Durability::Group,
                Durability::Group,
                Durability::Each,
                Durability::End,
            ]),
            group_bytes: chance.pick(&[64 << 10, 1 << 20, 64 << 20]),
            group_time: Duration::from_millis(chance.pick(&[5, 100, 500])),
        },
        verify: chance.pick(&[
            WriteVerification::Object,
            WriteVerification::Object,
            WriteVerification::Readback,
        ]),
        stall: Duration::from_secs(chance.pick(&[5, 20, 60])),
        fidelity: MetadataFidelity { perms: chance.one_in(2), ..MetadataFidelity::default() },
        tunes: !chance.one_in(3),
        over_control: way != SessionWay::Local && chance.one_in(8),
        ..EndSettings::default()
    };
    TransferRequest {
        spec,
        settings,
        sources: vec!["/source/tree".into()],
        source_base: carrack_storage::PathBase::Anywhere,
        destination: "/there/copy".into(),
        identity: Some(TransferIdentity {
            id: TransferId([7; 16]),
            run: TransferExecutionId([0; 16]),
            sources: vec![b"/source/tree".to_vec()],
            destination: b"/there/copy".to_vec(),
            is_shared: false,
        }),
        feed: None,
    }
}

fn faults(chance: &mut SeedChance, way: SessionWay, transfer: &TransferRequest) -> FaultPlan {
    let mut faults = FaultPlan {
        short_one_in: chance.pick(&[0, 0, 3, 20]),
        short_stream_one_in: chance.pick(&[0, 0, 3, 20]),
        ..FaultPlan::default()
    };
    if transfer.spec.checksum != ObjectChecksumAlgorithm::None && chance.one_in(4) {
        faults.flip_one_in = chance.pick(&[4, 30]);
    }
    if chance.one_in(4) {
        let most_ns = chance.pick(&[1_000_000, 300_000_000, 3_000_000_000]);
        faults.slow = Some((chance.pick(&[SOURCE, SINK]), chance.pick(&[2, 20]), most_ns));
    }
    for _ in 0..chance.pick(&[0, 0, 1, 2]) {
        let source = [
            (CallKind::Read, libc::EIO),
            (CallKind::Open, libc::EACCES),
            (CallKind::Look, libc::EIO),
            (CallKind::List, libc::EIO),
        ];
        let sink = [
            (CallKind::Write, libc::EIO),
            (CallKind::Write, libc::ENOSPC),
            (CallKind::Sync, libc::EIO),
            (CallKind::Create, libc::ENOSPC),
            (CallKind::Create, libc::EACCES),
            (CallKind::Rename, libc::EIO),
            (CallKind::Link, libc::EIO),
            (CallKind::MakeDirectory, libc::ENOSPC),
            (CallKind::Resize, libc::ENOSPC),
            (CallKind::Attributes, libc::EPERM),
            (CallKind::Unlink, libc::EIO),
            (CallKind::Read, libc::EIO),
        ];
        let (volume, (call, errno)) =
            if chance.one_in(3) { (SOURCE, chance.pick(&source)) } else { (SINK, chance.pick(&sink)) };
        let count = chance.pick(&[1, 1, 3, 1_000_000]);
        faults.errors.push(CallError { volume, call, after: chance.spread(0, 60), count, errno });
    }
    match chance.below(5) {
        0 | 1 => {
            let process = chance.pick(&[EndProcess::Sink, EndProcess::Sink, EndProcess::Source]);
            let process = if way == SessionWay::Local { EndProcess::Sink } else { process };
            faults.crash =
                Some(ProcessCrash { process, after: chance.spread(0, 1500), cuts_power: chance.one_in(2) });
        }
        2 => {
            faults.lost = Some(LostConnection {
                after: chance.spread(0, 200),
                is_silent: chance.one_in(2),
                is_all: chance.one_in(2),
            });
        }
        _ => {}
    }
    faults
}
