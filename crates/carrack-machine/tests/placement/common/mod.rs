//! What the tests of topology and placement share: the machines.

use std::io::Write;
use std::path::PathBuf;

use carrack_machine::{Topology, TopologyError};

/// Machines in `tests/fixtures`, whose README says what they are.
pub const FIXTURES: [&str; 9] = [
    "one-node",
    "mts-2x2x6",
    "mts-2x2x6-cpuset",
    "mts-2x2x6-node-without-memory",
    "mdtm-4x6",
    "epyc-2x64-nps4",
    "different-sockets",
    "memory-without-cpus",
    "shared-nodes",
];

/// Where a test's file lies.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The text of a machine's file.
pub fn fixture_text(name: &str) -> String {
    std::fs::read_to_string(path(&format!("fixtures/{name}.xml"))).unwrap()
}

/// A machine's topology.
pub fn fixture(name: &str) -> Topology {
    Topology::from_xml(&fixture_text(name), &format!("{name}.xml")).unwrap()
}

/// The machine of a synthetic description; nothing where libhwloc is missing, which is said past the harness.
pub fn synthetic(text: &str) -> Option<Topology> {
    match Topology::from_synthetic(text) {
        Ok(topology) => Some(topology),
        Err(error @ TopologyError::NoLibrary(_)) => {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
        Err(error) => panic!("{text}: {error}"),
    }
}
