//! `carrack fabric`: the providers of libfabric on this host, from its arguments to its exit code.

use std::io::{self, Write};

use carrack_engine::beats_tcp;
use carrack_machine::{ThreadPlacementRequest, Topology, plan_thread_placement};
use carrack_transport::fabric::{FabricProviderDomain, library_version, offers};
use clap::Args;
use serde::Serialize;

use crate::exit::{self, ExitStatus};
use crate::user_error::UserError;
use crate::views::json::write_line;
use crate::views::output::{print, write_outcome};
use crate::views::table::TextTable;

/// List the RMA providers of this host, for `carrack cp --fabric`
///
/// A line for each device of each provider of libfabric: its network, PCI address and NUMA node, whether an
/// endpoint can be opened on it, whether --fabric=auto takes it, and which lanes would, by their NUMA nodes.
/// Nothing is opened.
#[derive(Debug, Args)]
#[command(after_long_help = exit::help(""))]
pub struct FabricListArgs {
    /// Write one JSON object to stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct FabricReport {
    /// The version; `None` where libfabric is absent.
    libfabric: Option<String>,
    /// The reason for an absent list.
    problem: Option<String>,
    offers: Vec<FabricLine>,
}

#[derive(Debug, Serialize)]
struct FabricLine {
    provider: String,
    network: String,
    domain: String,
    pci: Option<String>,
    numa_node: Option<u32>,
    /// True if an endpoint can be opened on it.
    usable: bool,
    /// True if `--fabric=auto` takes it where the other end has it too.
    auto: bool,
    /// The lanes that are nearest to it.
    lanes: Vec<usize>,
}

/// Lists the providers.
pub fn run(args: &FabricListArgs) -> ExitStatus {
    let report = FabricReport::of_this_machine();
    let printed = print(|out| if args.json { write_line(&report, out) } else { report.write(out) });
    if let Err(trouble) = write_outcome(printed) {
        trouble.print();
        return ExitStatus::Nothing;
    }
    match report.problem {
        Some(problem) => {
            let trouble = UserError::new(format!("there is no fabric here: {problem}"));
            trouble.hint("carrack cp goes over TCP").print();
            ExitStatus::Nothing
        }
        None => ExitStatus::Complete,
    }
}

impl FabricReport {
    fn of_this_machine() -> FabricReport {
        let listed = library_version().and_then(|version| Ok((version, offers()?)));
        let nodes = lane_nodes();
        match listed {
            Ok(((major, minor), offers)) => FabricReport {
                libfabric: Some(format!("{major}.{minor}")),
                problem: None,
                offers: offers.into_iter().map(|offer| FabricLine::of(offer, &nodes)).collect(),
            },
            Err(problem) => FabricReport { libfabric: None, problem: Some(problem), offers: Vec::new() },
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(version) = &self.libfabric else { return Ok(()) };
        writeln!(out, "libfabric {version}")?;
        let mut table = TextTable::new("<<<");
        self.offers.iter().for_each(|line| table.row(&[&line.provider, &line.domain, &line.description()]));
        table.write("", out)
    }
}

impl FabricLine {
    fn of(offer: FabricProviderDomain, lane_nodes: &[Vec<u32>]) -> FabricLine {
        let auto = beats_tcp(&offer);
        let near = lane_nodes.iter().enumerate().filter(|(_, nodes)| {
            let is_near = offer.numa_node.is_none_or(|node| nodes.is_empty() || nodes.contains(&node));
            offer.is_usable && is_near
        });
        let lanes = near.map(|(lane, _)| lane).collect();
        let FabricProviderDomain { provider, network, domain, pci, numa_node, is_usable } = offer;
        FabricLine { provider, network, domain, pci, numa_node, usable: is_usable, auto, lanes }
    }

    fn description(&self) -> String {
        let mut words = vec![format!("network {}", self.network)];
        words.extend(self.pci.iter().map(|pci| format!("PCI {pci}")));
        words.extend(self.numa_node.map(|node| format!("NUMA node {node}")));
        words.push(match (self.usable, self.auto) {
            (false, _) => "no endpoint for objects".to_owned(),
            (true, false) => "with --fabric by its name".to_owned(),
            (true, true) => "with --fabric=auto".to_owned(),
        });
        if self.usable {
            let lanes: Vec<String> = self.lanes.iter().map(usize::to_string).collect();
            words.push(format!(
                "lanes {}",
                if lanes.is_empty() { "of other nodes".to_owned() } else { lanes.join(", ") }
            ));
        }
        words.join(", ")
    }
}

/// Returns the NUMA nodes of each lane's memory, as in a transfer with default options.
fn lane_nodes() -> Vec<Vec<u32>> {
    let lanes = plan_thread_placement(&Topology::this_machine(), &ThreadPlacementRequest::default()).lanes;
    lanes.iter().map(|lane| lane.memory.iter().collect()).collect()
}
