//! The plan of one run, all from its seed: a way of copying, a data set, options, and faults with their
//! moments.

use std::fmt;

use super::chance::Chance;
use super::fault::{Fault, Ill, Kind};
use super::promises::{RESUMES, RETRIES};

/// The places of the ends. The far one is another directory of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Local,
    SshPush,
    SshPull,
    DaemonPush,
    DaemonPull,
}

impl Way {
    pub const ALL: [Way; 5] = [Way::Local, Way::SshPush, Way::SshPull, Way::DaemonPush, Way::DaemonPull];

    pub fn is_ssh(self) -> bool {
        matches!(self, Way::SshPush | Way::SshPull)
    }

    pub fn is_daemon(self) -> bool {
        matches!(self, Way::DaemonPush | Way::DaemonPull)
    }

    pub fn is_far(self) -> bool {
        self != Way::Local
    }

    pub fn pushes(self) -> bool {
        matches!(self, Way::SshPush | Way::DaemonPush)
    }
}

/// The sizes of a set's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Small,
    Big,
    Mixed,
}

/// The moment of a fault.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// This number of milliseconds after the command's start.
    Start(u64),
    /// After this part of the expected time, counted from the first sign of an established session.
    Time(f64),
    /// After this part of the set's bytes have passed through the network.
    Bytes(f64),
}

/// The limits of a campaign's runs.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    pub ssh: bool,
    /// True if small file systems can be mounted.
    pub mount: bool,
    /// True if there is storage that fails on request.
    pub double: bool,
    /// True for larger sets and longer pauses.
    pub long: bool,
}

#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub way: Way,
    pub shape: Shape,
    /// Approximate size of the set.
    pub bytes: u64,
    /// `--bwlimit`, bytes a second.
    pub rate: u64,
    pub options: Vec<String>,
    pub faults: Vec<(Fault, Moment)>,
    /// True if the next command starts before the last one's far end is gone.
    pub hurries: bool,
    /// `--buffer`.
    pub buffer_bytes: u64,
}

impl Plan {
    pub fn new(seed: u64, abilities: Abilities) -> Plan {
        let mut chance = Chance::new(seed);
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|&kind| is_possible(kind, abilities)).collect();
        let first = kinds[(seed % kinds.len() as u64) as usize];
        let ways: Vec<Way> = Way::ALL
            .into_iter()
            .filter(|&way| first.can_meet(way) && (abilities.ssh || !way.is_ssh()))
            .collect();
        let way = chance.one_of(&ways);
        let shape = chance.one_of(&[Shape::Small, Shape::Big, Shape::Mixed]);
        let bytes = set_bytes(shape, abilities.long, &mut chance);
        let seconds =
            if abilities.long { chance.within(10..=40) } else { chance.within(6..=11) } as f64 / 10.0;
        // This is `--stall-timeout`; pauses of processes and of the network are longer.
        let stall_s = if abilities.long { 2 } else { 1 };
        let (object_kib, slots) = (128_u64 << chance.within(0..=3), chance.within(4..=16));
        let faults = faults(first, way, &kinds, stall_s, &mut chance);
        let buffer_bytes = slots * object_kib * 1024;
        let options = options(way, object_kib, buffer_bytes, stall_s, &mut chance);
        let hurries = RESUMES && RETRIES && chance.happens(0.5);
        let rate = (bytes as f64 / seconds) as u64;
        Plan { seed, way, shape, bytes, rate, options, faults, hurries, buffer_bytes }
    }

    /// Returns the duration of a copy without faults, from the first sign of an established session.
    pub fn expected_s(&self) -> f64 {
        self.bytes as f64 / self.rate as f64
    }

    /// Returns true if the sink is on storage that fails on request, false if the source is; `None` for
    /// neither.
    pub fn has_ill_sink(&self) -> Option<bool> {
        self.faults.iter().find_map(|(fault, _)| match fault {
            Fault::Storage(ill) => Some(!matches!(ill, Ill::Read(_))),
            _ => None,
        })
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.iter().any(|(planned, _)| *planned == fault)
    }
}

fn is_possible(kind: Kind, abilities: Abilities) -> bool {
    match kind {
        Kind::KillSsh => abilities.ssh,
        Kind::Full => abilities.mount,
        kind => abilities.double || !kind.is_of_the_storage(),
    }
}

fn set_bytes(shape: Shape, long: bool, chance: &mut Chance) -> u64 {
    let mib = match (shape, long) {
        (Shape::Small, false) => 2..=4,
        (Shape::Small, true) => 3..=12,
        (_, false) => 12..=24,
        (_, true) => 24..=128,
    };
    chance.within(mib) << 20
}

/// Returns one to three faults; those of the storage only as the first, as they exist from the beginning.
fn faults(first: Kind, way: Way, kinds: &[Kind], stall_s: u64, chance: &mut Chance) -> Vec<(Fault, Moment)> {
    let others: Vec<Kind> =
        kinds.iter().copied().filter(|&kind| kind.can_meet(way) && !kind.is_of_the_storage()).collect();
    let mut faults = vec![first.fault(stall_s, chance)];
    for _ in 0..chance.one_of(&[0, 0, 1, 2]) {
        let another = chance.one_of(&others).fault(stall_s, chance);
        if !faults.contains(&another) {
            faults.push(another);
        }
    }
    let together = chance.happens(0.3).then(|| moment(way, chance));
    // The campaign reads the files that it edits: errors of reading are for carrack alone.
    if faults.iter().any(|fault| matches!(fault, Fault::Storage(Ill::Read(_)))) {
        faults.retain(|fault| !matches!(fault, Fault::Source(_)));
    }
    faults.into_iter().map(|fault| (fault, together.unwrap_or_else(|| moment(way, chance)))).collect()
}

fn moment(way: Way, chance: &mut Chance) -> Moment {
    let part = 0.02 + 0.9 * chance.fraction();
    match chance.within(0..=9) {
        0 => Moment::Start(chance.within(0..=400)),
        1..=4 if way.is_far() => Moment::Bytes(part),
        _ => Moment::Time(part),
    }
}

fn options(way: Way, object_kib: u64, buffer_bytes: u64, stall_s: u64, chance: &mut Chance) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut add = |name: &str, value: &str| options.extend([name.to_owned(), value.to_owned()]);
    add("--object-size", &format!("{object_kib}KiB"));
    add("--buffer", &buffer_bytes.to_string());
    add("--streams", &chance.within(1..=4).to_string());
    let checksum = chance.one_of(&["", "xxh3", "blake3"]);
    if !checksum.is_empty() {
        add("--checksum", checksum);
    }
    if way.is_far() {
        add("--protection", chance.one_of(&["private", "private", "safe", "clear"]));
        add("--cipher", chance.one_of(&["aes-256-gcm", "aes-128-gcm"]));
    }
    if way.is_ssh() {
        add("--connect-from", chance.one_of(&["either", "source", "sink"]));
    }
    if RESUMES {
        add("--durability", chance.one_of(&["each", "group", "group", "end"]));
    }
    if RETRIES {
        add("--stall-timeout", &stall_s.to_string());
        add("--retry", chance.one_of(&["0", "5", "10"]));
    }
    options
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes >> 20;
        write!(f, "{:?} {:?} {mib} MiB in {:.1} s:", self.way, self.shape, self.expected_s())?;
        for (fault, moment) in &self.faults {
            match moment {
                Moment::Start(ms) => write!(f, " {fault:?} at {ms} ms;")?,
                Moment::Time(part) => write!(f, " {fault:?} after {part:.2} of the time;")?,
                Moment::Bytes(part) => write!(f, " {fault:?} after {part:.2} of the bytes;")?,
            }
        }
        write!(f, " {}", self.options.join(" "))
    }
}
