//! `carrack topo --svg`: sockets, their nodes, cores in the colours of their lanes, memory with buffers,
//! devices at their nodes; below it the legend, and the reasons.

use std::collections::BTreeSet;

use carrack_machine::{LanePlacement, TopologyDevice};

use super::TopologyReport;
use super::core_threads::{self, CoreOccupant, ThreadRole};
use super::tree::kind_name;
use crate::size;
use crate::views::canvas::{
    CanvasArea, CanvasPoint, INK, SvgBoxStyle, SvgCanvas, SvgTextFont, TEXT, TextAnchor, width_of,
};

const MARGIN: f64 = 20.0;
const GAP: f64 = 8.0;
const CORE_SIDE: f64 = 34.0;
const MEMORY_HEIGHT: f64 = 18.0;
const CHIP_HEIGHT: f64 = 20.0;
const HEAD_HEIGHT: f64 = 20.0;
const LINE_HEIGHT: f64 = 17.0;

/// Cores side by side in a node.
const CORES_PER_ROW: usize = 8;

const PALE: &str = "#8a8a8a";
const PANEL: &str = "#f2f3f5";
const PAPER: &str = "#ffffff";

/// Colours that colour-blind people can tell apart (after Okabe and Ito, dark enough for white words); lanes
/// take them in turn.
const LANE_COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#3b9ad6", "#a87800", "#7d5fb2", "#5f5f5f"];

/// Cores with I/O threads only are paler than those with Comm or Master.
const IO_OPACITY: f64 = 0.35;

const SMALL: SvgTextFont<'static> = SvgTextFont { size: 9.0, ..TEXT };

impl TopologyReport {
    /// Returns the picture.
    pub fn to_svg(&self) -> String {
        let mut drawing = TopologyDrawing {
            report: self,
            occupants: core_threads::threads_by_core(&self.topology, &self.placement),
            canvas: SvgCanvas::default(),
        };
        drawing.draw();
        drawing.canvas.finish(MARGIN)
    }
}

struct TopologyDrawing<'a> {
    report: &'a TopologyReport,
    occupants: Vec<Vec<CoreOccupant<'a>>>,
    canvas: SvgCanvas,
}

/// A node's share of a socket: one with its memory, or cores whose memory lies elsewhere.
struct NumaNodeTile {
    node: usize,
    has_memory: bool,
    cores: Vec<usize>,
    width: f64,
    height: f64,
}

impl TopologyDrawing<'_> {
    fn draw(&mut self) {
        let corner = CanvasPoint { x: MARGIN, y: MARGIN };
        let head = SvgTextFont { size: 17.0, is_bold: true, ..TEXT };
        self.canvas.text(corner.moved(0.0, 14.0), head, &self.report.title());
        let summary =
            format!("{}; placement {}", self.report.component_counts(), self.report.placement.scheme);
        self.canvas.text(corner.moved(0.0, 34.0), TEXT, &summary);
        let mut below = self.draw_sockets(corner.moved(0.0, 48.0));
        below = self.draw_shared_devices(below);
        below = self.draw_legend(below.moved(0.0, LINE_HEIGHT));
        self.draw_reasons(below);
    }

    /// Draws the sockets in a grid; returns the point below.
    fn draw_sockets(&mut self, at: CanvasPoint) -> CanvasPoint {
        let sockets: Vec<Vec<NumaNodeTile>> =
            (0..self.report.topology.sockets.len()).map(|socket| self.tiles(socket)).collect();
        let sizes: Vec<(f64, f64)> = sockets.iter().map(|tiles| socket_size(tiles)).collect();
        let columns = columns_for(sockets.len());
        let (width, height) = largest(&sizes);
        for (position, tiles) in sockets.iter().enumerate() {
            let (row, column) = (position / columns, position % columns);
            let at = at.moved(column as f64 * (width + GAP * 2.0), row as f64 * (height + GAP * 2.0));
            self.draw_socket(position, tiles, CanvasArea { at, width, height });
        }
        at.moved(0.0, sockets.len().div_ceil(columns) as f64 * (height + GAP * 2.0))
    }

    fn tiles(&self, socket: usize) -> Vec<NumaNodeTile> {
        let topology = &self.report.topology;
        let tiles = (0..topology.nodes.len()).map(|node| {
            let cores = topology.cores.iter().enumerate();
            let cores = cores.filter(|(_, core)| core.socket == socket && core.node == node);
            let cores = cores.map(|(position, _)| position);
            self.tile(node, topology.nodes[node].socket == socket, cores.collect())
        });
        tiles.filter(|tile| tile.has_memory || !tile.cores.is_empty()).collect()
    }

    fn tile(&self, node: usize, has_memory: bool, cores: Vec<usize>) -> NumaNodeTile {
        let rows = cores.len().div_ceil(CORES_PER_ROW) as f64;
        let columns = cores.len().clamp(4, CORES_PER_ROW) as f64;
        let devices = if has_memory { self.devices_of(node) } else { Vec::new() };
        let chips = devices.iter().map(|device| chip_width(device)).fold(0.0, f64::max);
        let head = width_of(&self.node_text(node), TEXT.size);
        let memory = if has_memory { MEMORY_HEIGHT + GAP } else { 0.0 };
        NumaNodeTile {
            node,
            has_memory,
            cores,
            width: (columns * CORE_SIDE).max(chips).max(head) + 2.0 * GAP,
            height: HEAD_HEIGHT
                + memory
                + rows * CORE_SIDE
                + devices.len() as f64 * (CHIP_HEIGHT + 4.0)
                + 2.0 * GAP,
        }
    }

    fn node_text(&self, node: usize) -> String {
        let node = &self.report.topology.nodes[node];
        match node.memory_bytes {
            0 => format!("node {}", node.id),
            bytes => format!("node {}, {}", node.id, size::format_size(bytes)),
        }
    }

    fn devices_of(&self, node: usize) -> Vec<&TopologyDevice> {
        self.report.topology.devices.iter().filter(|device| device.nodes == [node]).collect()
    }

    fn draw_socket(&mut self, position: usize, tiles: &[NumaNodeTile], area: CanvasArea) {
        self.canvas.rectangle(area, panel(PANEL), "");
        let name = format!("socket {}", self.report.topology.sockets[position].id);
        self.canvas.text(area.at.moved(GAP, 16.0), SvgTextFont { is_bold: true, ..TEXT }, &name);
        // A node takes all the room that it has, so that nodes of all sockets are in line.
        let columns = columns_for(tiles.len());
        let rows = tiles.len().div_ceil(columns).max(1);
        let width = (area.width - GAP) / columns as f64 - GAP;
        let height = (area.height - HEAD_HEIGHT - GAP) / rows as f64 - GAP;
        for (index, tile) in tiles.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let at = area
                .at
                .moved(GAP + column as f64 * (width + GAP), HEAD_HEIGHT + GAP + row as f64 * (height + GAP));
            self.draw_node(tile, CanvasArea { at, width, height });
        }
    }

    fn draw_node(&mut self, tile: &NumaNodeTile, area: CanvasArea) {
        self.canvas.rectangle(area, panel(PAPER), "");
        let text = if tile.has_memory {
            self.node_text(tile.node)
        } else {
            format!("next to node {}", self.report.topology.nodes[tile.node].id)
        };
        self.canvas.text(area.at.moved(GAP, 15.0), TEXT, &text);
        let mut at = area.at.moved(GAP, HEAD_HEIGHT + 2.0);
        if tile.has_memory {
            self.draw_memory(
                tile.node,
                CanvasArea { at, width: area.width - 2.0 * GAP, height: MEMORY_HEIGHT },
            );
            at = at.moved(0.0, MEMORY_HEIGHT + GAP);
        }
        for (index, &core) in tile.cores.iter().enumerate() {
            let (row, column) = (index / CORES_PER_ROW, index % CORES_PER_ROW);
            self.draw_core(core, at.moved(column as f64 * CORE_SIDE, row as f64 * CORE_SIDE));
        }
        at = at.moved(0.0, tile.cores.len().div_ceil(CORES_PER_ROW) as f64 * CORE_SIDE + 4.0);
        if tile.has_memory {
            let devices: Vec<TopologyDevice> = self.devices_of(tile.node).into_iter().cloned().collect();
            for (index, device) in devices.iter().enumerate() {
                self.draw_device(device, at.moved(0.0, index as f64 * (CHIP_HEIGHT + 4.0)));
            }
        }
    }

    /// Draws the node's memory; each lane whose buffer lies there has a part.
    fn draw_memory(&mut self, node: usize, area: CanvasArea) {
        let lanes = core_threads::lanes_on(&self.report.placement, self.report.topology.nodes[node].id);
        if lanes.is_empty() {
            self.canvas.rectangle(area, frame(PAPER, 1.0, PALE), "no buffer");
            self.canvas.text(area.at.moved(5.0, 12.5), SvgTextFont { colour: PALE, ..SMALL }, "memory");
            return;
        }
        let width = area.width / lanes.len() as f64;
        for (index, &lane) in lanes.iter().enumerate() {
            let at = area.at.moved(index as f64 * width, 0.0);
            let text = format!("buffer of lane {lane}");
            self.canvas.rectangle(CanvasArea { at, width, ..area }, frame(colour_of(lane), 1.0, INK), &text);
            let shown = if lanes.len() > 2 { format!("{lane}") } else { text };
            self.canvas.text(at.moved(5.0, 12.5), SvgTextFont { colour: PAPER, ..SMALL }, &shown);
        }
    }

    fn draw_core(&mut self, position: usize, at: CanvasPoint) {
        let core = &self.report.topology.cores[position];
        let occupants = &self.occupants[position];
        let hint: Vec<String> = std::iter::once(format!("CPU {}", core.cpus))
            .chain(occupants.iter().map(|who| format!("lane {}: {}", who.lane, who.text())))
            .collect();
        let side = CORE_SIDE - 4.0;
        let area = CanvasArea { at, width: side, height: side };
        let (look, ink) = core_style(occupants);
        self.canvas.rectangle(area, look, &hint.join("; "));
        let middle = at.moved(side / 2.0, 0.0);
        let word = SvgTextFont { size: 11.0, is_bold: true, colour: ink, anchor: TextAnchor::Middle };
        self.canvas.text(middle.moved(0.0, 14.0), word, &label_of(occupants));
        let cpu = core.cpus.first().map(|cpu| cpu.to_string()).unwrap_or_default();
        let ink = if occupants.is_empty() { PALE } else { ink };
        self.canvas.text(
            middle.moved(0.0, 25.0),
            SvgTextFont { colour: ink, anchor: TextAnchor::Middle, ..SMALL },
            &cpu,
        );
    }

    /// Draws a device. A NIC in use has a dark frame, a disk the colour of its lane.
    fn draw_device(&mut self, device: &TopologyDevice, at: CanvasPoint) {
        let lanes = &self.report.placement.lanes;
        let reader = lanes.iter().position(|lane| lane.disks.contains(&device.name));
        let is_nic = lanes.iter().any(|lane| lane.nic.as_ref() == Some(&device.name));
        let (stroke, stroke_width) = match reader {
            Some(lane) => (colour_of(lane), 2.5),
            None if is_nic => (INK, 2.5),
            None => (PALE, 1.0),
        };
        let area = CanvasArea { at, width: chip_width(device), height: CHIP_HEIGHT };
        let place = device.pci.as_deref().unwrap_or("place on the PCI bus not known");
        self.canvas.rectangle(
            area,
            SvgBoxStyle { stroke_width, radius: 9.0, ..frame(PAPER, 1.0, stroke) },
            place,
        );
        self.canvas.text(at.moved(8.0, 14.0), SvgTextFont { size: 10.5, ..TEXT }, &chip_text(device));
    }

    /// Draws devices without a node of their own; returns the point below.
    fn draw_shared_devices(&mut self, at: CanvasPoint) -> CanvasPoint {
        let devices: Vec<TopologyDevice> =
            self.report.topology.devices.iter().filter(|device| device.nodes.len() != 1).cloned().collect();
        if devices.is_empty() {
            return at;
        }
        self.canvas.text(at.moved(0.0, 12.0), TEXT, "next to several nodes:");
        let mut right = at.moved(160.0, -2.0);
        for device in &devices {
            self.draw_device(device, right);
            right = right.moved(chip_width(device) + GAP, 0.0);
        }
        at.moved(0.0, CHIP_HEIGHT + GAP)
    }

    /// Draws the meaning of the marks, and the lanes.
    fn draw_legend(&mut self, mut at: CanvasPoint) -> CanvasPoint {
        let marks = "C: comm, M: master, number: I/O threads, below: the core's first CPU; white: free";
        self.canvas.text(at, TEXT, marks);
        for (lane, placement) in self.report.placement.lanes.iter().enumerate() {
            at = at.moved(0.0, LINE_HEIGHT + 3.0);
            let area = CanvasArea { at: at.moved(0.0, -11.0), width: 22.0, height: 14.0 };
            self.canvas.rectangle(area, frame(colour_of(lane), 1.0, INK), "");
            self.canvas.text(at.moved(30.0, 0.0), TEXT, &self.lane_text(lane, placement));
        }
        at.moved(0.0, LINE_HEIGHT + GAP)
    }

    fn lane_text(&self, lane: usize, placement: &LanePlacement) -> String {
        let place = if placement.memory.is_empty() {
            "not bound".to_owned()
        } else {
            let socket = self.report.topology.sockets[placement.socket].id;
            format!("socket {socket}, buffer on {}", placement.memory)
        };
        let nic = placement.nic.iter().map(|nic| format!(", NIC {nic}"));
        let disks = placement.disks.iter().map(|disk| format!(", {disk}"));
        let comm = placement.comm.cost.iter().map(|cost| format!(", comm at cost {cost:.2}"));
        let rest: String = nic.chain(disks).chain(comm).collect();
        format!("lane {lane}: {place}, {} I/O threads{rest}", placement.io.len())
    }

    fn draw_reasons(&mut self, at: CanvasPoint) {
        for (index, reason) in self.report.placement.reasons.iter().enumerate() {
            let font = SvgTextFont { size: 11.0, colour: "#555555", ..TEXT };
            self.canvas.text(at.moved(0.0, index as f64 * LINE_HEIGHT), font, reason);
        }
    }
}

fn panel(fill: &str) -> SvgBoxStyle<'_> {
    SvgBoxStyle { fill, opacity: 1.0, stroke: "#c4c7cc", stroke_width: 1.0, radius: 6.0 }
}

fn frame<'a>(fill: &'a str, opacity: f64, stroke: &'a str) -> SvgBoxStyle<'a> {
    SvgBoxStyle { fill, opacity, stroke, stroke_width: 1.0, radius: 3.0 }
}

fn colour_of(lane: usize) -> &'static str {
    LANE_COLOURS[lane % LANE_COLOURS.len()]
}

/// Returns a core's box and the colour of its words. If lanes share the core, the first fills it, the second
/// is its frame.
fn core_style(occupants: &[CoreOccupant<'_>]) -> (SvgBoxStyle<'static>, &'static str) {
    let lanes: BTreeSet<usize> = occupants.iter().map(|who| who.lane).collect();
    let mut lanes = lanes.into_iter();
    let Some(first) = lanes.next() else { return (frame(PAPER, 1.0, PALE), PALE) };
    let has_control = occupants.iter().any(|who| who.role != ThreadRole::Io);
    let (opacity, ink) = if has_control { (1.0, PAPER) } else { (IO_OPACITY, INK) };
    let look = frame(colour_of(first), opacity, lanes.next().map_or(colour_of(first), colour_of));
    (SvgBoxStyle { stroke_width: 1.5, ..look }, ink)
}

/// Returns "C", "M", "CM", "3" or "C+3".
fn label_of(occupants: &[CoreOccupant<'_>]) -> String {
    let [comm, master] = [(ThreadRole::Comm, "C"), (ThreadRole::Master, "M")]
        .map(|(role, letter)| if occupants.iter().any(|who| who.role == role) { letter } else { "" });
    let io = occupants.iter().filter(|who| who.role == ThreadRole::Io).count();
    match (comm.len() + master.len(), io) {
        (_, 0) => format!("{comm}{master}"),
        (0, io) => io.to_string(),
        (_, io) => format!("{comm}{master}+{io}"),
    }
}

fn chip_text(device: &TopologyDevice) -> String {
    format!("{} {}", kind_name(device.kind), device.name)
}

fn chip_width(device: &TopologyDevice) -> f64 {
    width_of(&chip_text(device), 10.5) + 16.0
}

/// Returns the columns of a grid: few boxes are in one row, many in a square.
fn columns_for(count: usize) -> usize {
    match count {
        0..=2 => count.max(1),
        3..=4 => 2,
        _ => (count as f64).sqrt().ceil() as usize,
    }
}

fn largest(sizes: &[(f64, f64)]) -> (f64, f64) {
    sizes.iter().fold((0.0, 0.0), |(width, height), size| (f64::max(width, size.0), f64::max(height, size.1)))
}

fn socket_size(tiles: &[NumaNodeTile]) -> (f64, f64) {
    let sizes: Vec<(f64, f64)> = tiles.iter().map(|tile| (tile.width, tile.height)).collect();
    let (width, height) = largest(&sizes);
    let columns = columns_for(tiles.len());
    let rows = tiles.len().div_ceil(columns);
    (columns as f64 * (width + GAP) + GAP, HEAD_HEIGHT + GAP + rows as f64 * (height + GAP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::topo::test_reports;

    #[test]
    fn everything_is_in_the_picture() {
        let picture = test_reports::small().to_svg();
        for words in [
            ">small.xml</text>",
            ">socket 1</text>",
            ">node 1, 2.0 GiB</text>",
            ">buffer of lane 1</text>",
            ">NIC eth0</text>",
            ">disk &lt;d&amp;\\tk&gt;</text>",
            "<title>CPU 0,2; lane 0: comm 1.20 from eth0; lane 0: I/O 3.20 from ",
            ">C+2</text>",
            ">lane 0: socket 0, buffer on 0, 4 I/O threads, NIC eth0, comm at cost 1.20</text>",
        ] {
            assert!(picture.contains(words), "{words}: {picture}");
        }
    }

    #[test]
    fn nothing_bound_is_white() {
        let picture = test_reports::free().to_svg();
        assert!(!picture.contains(&format!("fill-opacity=\"{IO_OPACITY}\"")), "{picture}");
        assert!(picture.contains(">lane 0: not bound, 3 I/O threads</text>"), "{picture}");
    }

    #[test]
    fn grids_are_square_when_there_is_much() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9, 16].map(columns_for), [1, 2, 2, 2, 3, 3, 3, 4]);
    }
}
