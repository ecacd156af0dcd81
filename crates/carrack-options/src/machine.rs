//! Options of the machines of both ends, each of which plans for its own: lanes, the placement of threads and
//! buffers, and their cores.

use carrack_engine::EndSettings;
use carrack_machine::{CoreIsolationMode, PlacementScheme};
use carrack_model::limits::LANES_MAX;
use clap::{Args, ValueEnum};

const MACHINE: &str = "Placement (NUMA)";

// No documentation comment: clap would take it for the command's.
#[derive(Clone, Debug, Args)]
pub struct MachineUseArgs {
    /// Lanes, up to 8; 0: one for each CPU socket, fewer for a small load
    ///
    /// A lane has threads, buffers, files and data connections of its own. On a machine with one NUMA node
    /// one lane is fastest.
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=LANES_MAX as i64), help_heading = MACHINE)]
    lanes: u16,

    /// Placement of threads and buffers on machines with several NUMA nodes; `carrack topo` shows the plan
    #[arg(long, value_enum, value_name = "SCHEME", default_value_t = PlacementSchemeName::Auto, help_heading = MACHINE)]
    placement: PlacementSchemeName,

    /// Keep the cores that threads are bound to for the transfer
    #[arg(long, value_enum, value_name = "KIND", default_value_t = CoreReservationModeName::Off, num_args = 0..=1,
          default_missing_value = "auto", require_equals = true, help_heading = MACHINE)]
    zone: CoreReservationModeName,
}

/// A placement's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementSchemeName {
    /// mts where there are several NUMA nodes, off where there is one
    Auto,
    /// One buffer, nothing bound
    Off,
    /// One lane, bound to one socket
    Single,
    /// A buffer on each socket, threads not bound
    Mmb,
    /// A lane on each socket, its buffer and threads bound
    Mts,
}

/// A zone's kind on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CoreReservationModeName {
    /// Not at all
    Off,
    /// Our threads stay on them
    Soft,
    /// And others are moved away: needs root and cgroup v2
    Hard,
    /// hard where that is possible, else soft
    Auto,
}

impl From<PlacementSchemeName> for PlacementScheme {
    fn from(name: PlacementSchemeName) -> PlacementScheme {
        match name {
            PlacementSchemeName::Auto => PlacementScheme::Auto,
            PlacementSchemeName::Off => PlacementScheme::Off,
            PlacementSchemeName::Single => PlacementScheme::Single,
            PlacementSchemeName::Mmb => PlacementScheme::Mmb,
            PlacementSchemeName::Mts => PlacementScheme::Mts,
        }
    }
}

impl From<CoreReservationModeName> for CoreIsolationMode {
    fn from(name: CoreReservationModeName) -> CoreIsolationMode {
        match name {
            CoreReservationModeName::Off => CoreIsolationMode::Off,
            CoreReservationModeName::Soft => CoreIsolationMode::Soft,
            CoreReservationModeName::Hard => CoreIsolationMode::Hard,
            CoreReservationModeName::Auto => CoreIsolationMode::Auto,
        }
    }
}

impl MachineUseArgs {
    /// Returns `settings` with these values.
    pub fn apply(&self, settings: EndSettings) -> EndSettings {
        EndSettings {
            lanes: self.lanes.into(),
            placement: self.placement.into(),
            zone: self.zone.into(),
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        args: MachineUseArgs,
    }

    fn settings(words: &[&str]) -> Option<EndSettings> {
        let cp = TestCommandLine::try_parse_from([&["cp"], words].concat()).ok()?;
        Some(cp.args.apply(EndSettings::default()))
    }

    #[test]
    fn what_is_typed_is_set() {
        assert_eq!(settings(&[]), Some(EndSettings::default()));
        let all = settings(&["--lanes", "2", "--placement", "mmb", "--zone=hard"]).unwrap();
        assert_eq!((all.lanes, all.placement, all.zone), (2, PlacementScheme::Mmb, CoreIsolationMode::Hard));
        assert_eq!(settings(&["--zone"]).unwrap().zone, CoreIsolationMode::Auto);
        assert!(settings(&["--lanes", "9"]).is_none());
        assert!(settings(&["--placement", "best"]).is_none());
    }
}
