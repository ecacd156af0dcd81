//! `carrack topo`: the machine and the placement that is planned on it, from its arguments to its exit code.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use carrack_machine::{
    MachineDeviceKind, NumaMemoryCosts, ThreadPlacementRequest, Topology, plan_thread_placement,
};
use carrack_model::escape;
use carrack_model::limits::{IO_THREADS_MAX, LANES_MAX};
use carrack_options::PlacementSchemeName;
use clap::{Args, ValueHint};

use crate::exit::{self, ExitStatus};
use crate::user_error::UserError;
use crate::views::output::print_with_picture;
use crate::views::topo::{MeasuredMemorySpeeds, TopologyReport, default_nic};

/// I/O threads if none are given: the paper's machine was fastest with 16.
const IO_THREADS_DEFAULT: u16 = 16;

/// Longest description of a machine; real ones are shorter.
const XML_BYTES_MAX: u64 = 32 << 20;

/// Show the machine, and the placement of threads and buffers
///
/// A tree of sockets, NUMA nodes, cores, NICs and disks, with the threads and buffers that `carrack cp` would
/// put there, and the cost of the way from a device to a thread's core: 1 is the time that a byte of local
/// memory takes.
///
/// The machine is the local one, as far as the process may use it, or any other: described by `lstopo
/// FILE.xml`, or in a line. Nothing is moved or changed.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(EXAMPLES))]
pub struct TopoArgs {
    /// Another machine: a file of `lstopo FILE.xml`, or a description such as 'pack:2 numa:2 core:6 pu:1'
    #[arg(long, value_name = "FILE|DESCRIPTION", value_hint = ValueHint::FilePath)]
    topology: Option<String>,

    /// Scheme by which threads and buffers are placed
    #[arg(long, value_name = "SCHEME", value_enum, default_value_t = PlacementSchemeName::Auto)]
    placement: PlacementSchemeName,

    /// Lanes, up to 8; 0: one for each CPU socket, fewer for few threads
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=LANES_MAX as i64))]
    lanes: u16,

    /// I/O threads of all lanes together
    #[arg(long, value_name = "N", default_value_t = IO_THREADS_DEFAULT,
          value_parser = clap::value_parser!(u16).range(1..=IO_THREADS_MAX as i64))]
    threads: u16,

    /// Network interface of the connections; on this machine that of the default route if not given
    #[arg(long, value_name = "NAME")]
    nic: Option<String>,

    /// Disk that is read or written; may be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disk: Vec<String>,

    /// Measure the memory bandwidth between all nodes, and plan with that; takes some seconds
    #[arg(long, conflicts_with = "topology")]
    measure: bool,

    /// Write one JSON object to stdout
    #[arg(long)]
    json: bool,

    /// Write a picture, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// Prints the machine and the placement.
pub fn run(args: &TopoArgs) -> ExitStatus {
    let report = match args.report() {
        Ok(report) => report,
        Err((exit, trouble)) => {
            trouble.print();
            return exit;
        }
    };
    let picture = args.svg.as_deref().map(|path| (path, report.to_svg()));
    print_with_picture(|out| if args.json { report.write_json(out) } else { report.write_tree(out) }, picture)
}

impl TopoArgs {
    fn report(&self) -> Result<TopologyReport, (ExitStatus, UserError)> {
        let topology = match &self.topology {
            Some(other) => read_topology(other).map_err(|trouble| (ExitStatus::Nothing, trouble))?,
            None => Topology::this_machine(),
        };
        let request = self.request(&topology).map_err(|trouble| (ExitStatus::Usage, trouble))?;
        let measured = if self.measure {
            Some(MeasuredMemorySpeeds::measure(&topology).map_err(|trouble| (ExitStatus::Nothing, trouble))?)
        } else {
            None
        };
        let costs = match &measured {
            Some(measured) => NumaMemoryCosts::from_bandwidths(&topology, &measured.mb_per_s),
            None => NumaMemoryCosts::from_distances(&topology),
        };
        let placement = plan_thread_placement(
            &topology,
            &ThreadPlacementRequest { costs: Some(costs.clone()), ..request },
        );
        Ok(TopologyReport { topology, placement, costs, measured })
    }

    fn request(&self, topology: &Topology) -> Result<ThreadPlacementRequest, UserError> {
        let nic = match &self.nic {
            Some(name) => {
                Some(checked_device_name(topology, name, &[MachineDeviceKind::Nic, MachineDeviceKind::Rdma])?)
            }
            None if self.topology.is_none() => default_nic(topology),
            None => None,
        };
        let disks =
            self.disk.iter().map(|name| checked_device_name(topology, name, &[MachineDeviceKind::Disk]));
        let disks = disks.collect::<Result<_, _>>()?;
        Ok(ThreadPlacementRequest {
            scheme: self.placement.into(),
            lanes: (self.lanes > 0).then_some(self.lanes.into()),
            io_threads: self.threads.into(),
            nic,
            disks,
            ..ThreadPlacementRequest::default()
        })
    }
}

/// Returns the device's name. An unknown name is most likely misspelt.
fn checked_device_name(
    topology: &Topology,
    name: &str,
    kinds: &[MachineDeviceKind],
) -> Result<String, UserError> {
    let mut names =
        topology.devices.iter().filter(|device| kinds.contains(&device.kind)).map(|device| &*device.name);
    if names.clone().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let trouble =
        UserError::new(format!("no such device has a place on this machine: {}", escape(name.as_bytes())));
    Err(match names.next() {
        None => trouble.hint("none of this kind has"),
        Some(first) => {
            let all: Vec<String> =
                std::iter::once(first).chain(names).map(|name| escape(name.as_bytes())).collect();
            trouble.hint(format!("those are {}", all.join(", ")))
        }
    })
}

/// Reads a file if there is one with this name, or it looks like the name of a file; parses a description
/// otherwise.
fn read_topology(text: &str) -> Result<Topology, UserError> {
    let path = Path::new(text);
    let shown = escape(text.as_bytes());
    let is_file = path.exists() || text.ends_with(".xml") || text.contains('/');
    let topology = if is_file {
        let xml = read(path).map_err(|error| UserError::new(format!("{shown}: {error}")))?;
        Topology::from_xml(&xml, text)
    } else {
        Topology::from_synthetic(text)
    };
    topology.map_err(|error| {
        UserError::explained(format!("{shown}: {}", escape(error.to_string().as_bytes())), error.hint())
    })
}

fn read(path: &Path) -> io::Result<String> {
    match fs::metadata(path)?.len() {
        length if length > XML_BYTES_MAX => {
            Err(io::Error::new(ErrorKind::FileTooLarge, "too long for a machine"))
        }
        _ => fs::read_to_string(path),
    }
}

const EXAMPLES: &str = "\
Examples:
  carrack topo                         this machine, and the plan
  carrack topo --measure --svg m.svg   memory measured, and a picture
  carrack topo --topology 'pack:2 numa:4 core:8 pu:2' --threads 32
  carrack topo --topology dtn.xml --nic ens1 --disk nvme0n1,nvme1n1

";

#[cfg(test)]
mod tests {
    use carrack_machine::PlacementScheme;
    use clap::ValueEnum;

    use super::*;

    fn parse(words: &[&str]) -> Result<TopoArgs, clap::Error> {
        crate::options::tests::parse(words)
    }

    #[test]
    fn options_are_read() {
        let args = parse(&["--topology", "x", "--placement", "mmb", "--disk", "a,b", "--disk", "c"]).unwrap();
        assert_eq!((args.placement, args.threads, args.lanes), (PlacementSchemeName::Mmb, 16, 0));
        assert_eq!(args.disk, ["a", "b", "c"]);
        for words in [
            &["--measure", "--topology", "x"][..],
            &["--lanes", "9"],
            &["--threads", "257"],
            &["--placement", "best"],
            &["x"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn every_scheme_has_the_name_that_is_printed() {
        for name in PlacementSchemeName::value_variants() {
            let printed = PlacementScheme::from(*name).to_string();
            assert_eq!(name.to_possible_value().unwrap().get_name(), printed);
        }
    }

    #[test]
    fn what_can_not_be_read_is_told() {
        for (text, words) in
            [("/nowhere/x.xml", "No such file"), ("/", "directory"), ("x.xml", "x.xml: No such")]
        {
            let trouble = read_topology(text).unwrap_err();
            assert!(trouble.message.contains(words), "{trouble}");
        }
    }
}
