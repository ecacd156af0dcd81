//! hwloc's XML, formats 2 and 3 (hwloc's `topology-xml.c`), as far as a transfer needs it.
//!
//! For any text, the work is bounded, and the result is a machine or an error.

use std::collections::BTreeMap;
use std::str::FromStr;

use roxmltree::{Document, Node, ParsingOptions};

use super::MachineDeviceKind;
use super::error::TopologyError;
use super::parts::{
    CpuCoreDescription, MachineDeviceFacts, NodeDistances, NumaNodeFacts, PackagePart, TopologyHardwareParts,
};
use crate::id_set::{CpuSet, IdSet, NodeSet};

/// Limit of the text: 1,024 CPUs with all their caches take about 1 MiB.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// Limit of elements, texts and comments, above the file of any machine.
const XML_NODES_MAX: u32 = 1 << 20;

/// Limit of nesting: hwloc has about 20 types of objects, and PCI bridges in bridges.
const DEPTH_MAX: usize = 64;

/// Limit of nodes, above that of any kernel (`CONFIG_NODES_SHIFT` is at most 10).
const DISTANCE_NODES_MAX: usize = 1_024;

/// Bits in a word of hwloc's bitmaps.
const WORD_BITS: u32 = 32;

/// Words of the longest bitmap: the limit of [`IdSet`].
const WORDS_MAX: usize = 2_048;

/// `HWLOC_DISTANCES_KIND_MEANS_LATENCY` (format 3: `KIND_VALUE_LATENCY`).
const MEANS_LATENCY: u32 = 1 << 2;

/// Parses the text.
pub(super) fn parse_parts(text: &str) -> Result<TopologyHardwareParts, TopologyError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TopologyError::TooLong(TEXT_BYTES_MAX));
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: XML_NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)?;
    let reader = HwlocXmlReader {
        format: HwlocXmlVersion::of(document.root_element())?,
        parts: TopologyHardwareParts::default(),
    };
    reader.read(document.root_element())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HwlocXmlVersion {
    Two,
    Three,
}

impl HwlocXmlVersion {
    fn of(root: Node<'_, '_>) -> Result<HwlocXmlVersion, TopologyError> {
        let version = root.attribute("version").filter(|_| root.has_tag_name("topology"));
        match version.and_then(|version| version.split('.').next()) {
            Some("2") => Ok(HwlocXmlVersion::Two),
            Some("3") => Ok(HwlocXmlVersion::Three),
            _ => Err(TopologyError::OtherFormat),
        }
    }

    /// Kind by `osdev_type`: a number in format 2 (`enum hwloc_obj_osdev_type_e`), flags in format 3.
    fn device_kind(self, osdev_type: u32) -> Option<MachineDeviceKind> {
        match self {
            HwlocXmlVersion::Two => match osdev_type {
                0 => Some(MachineDeviceKind::Disk),
                2 => Some(MachineDeviceKind::Nic),
                3 => Some(MachineDeviceKind::Rdma),
                _ => None,
            },
            HwlocXmlVersion::Three if osdev_type & (1 << 5) != 0 => Some(MachineDeviceKind::Rdma),
            HwlocXmlVersion::Three if osdev_type & (1 << 4) != 0 => Some(MachineDeviceKind::Nic),
            HwlocXmlVersion::Three if osdev_type & 1 != 0 => Some(MachineDeviceKind::Disk),
            HwlocXmlVersion::Three => None,
        }
    }
}

struct HwlocXmlReader {
    format: HwlocXmlVersion,
    parts: TopologyHardwareParts,
}

impl HwlocXmlReader {
    fn read(mut self, root: Node<'_, '_>) -> Result<TopologyHardwareParts, TopologyError> {
        let objects: Vec<_> = root.descendants().filter(|node| node.has_tag_name("object")).collect();
        for object in &objects {
            self.read_object(*object)?;
        }
        if self.parts.cores.is_empty() {
            let threads = objects.into_iter().filter(|object| is_type(*object, "PU"));
            self.parts.cores = threads.map(core).collect::<Result<_, _>>()?;
        }
        for element in root.children() {
            match element.tag_name().name() {
                "distances2" => self.read_distances(element)?,
                "cpukind" => self.read_cpu_kind(element)?,
                _ => {}
            }
        }
        Ok(self.parts)
    }

    fn read_object(&mut self, object: Node<'_, '_>) -> Result<(), TopologyError> {
        if object.ancestors().take(DEPTH_MAX + 1).count() > DEPTH_MAX {
            return Err(TopologyError::TooDeep);
        }
        match object.attribute("type") {
            Some("Machine") => {
                self.parts.allowed.cpus = parse_optional_attribute(object, "allowed_cpuset", bitmap)?;
                self.parts.allowed.nodes = parse_optional_attribute(object, "allowed_nodeset", bitmap)?;
            }
            Some("Package") => {
                let id = number(object, "os_index")?.unwrap_or(self.parts.packages.len() as u32);
                self.parts.packages.push(PackagePart { id, cpus: cpus(object)?, nodes: nodes(object)? });
            }
            Some("NUMANode") => self.read_node(object)?,
            Some("Core") => self.parts.cores.push(core(object)?),
            Some("OSDev") => self.read_device(object)?,
            _ => {}
        }
        Ok(())
    }

    fn read_node(&mut self, object: Node<'_, '_>) -> Result<(), TopologyError> {
        let id = number(object, "os_index")?.unwrap_or(self.parts.nodes.len() as u32);
        let memory_bytes = number(object, "local_memory")?.unwrap_or(0);
        let is_special = object.attribute("subtype").is_some_and(|subtype| subtype != "DRAM");
        self.parts.nodes.push(NumaNodeFacts { id, cpus: cpus(object)?, memory_bytes, is_special });
        Ok(())
    }

    fn read_device(&mut self, object: Node<'_, '_>) -> Result<(), TopologyError> {
        let kind = number(object, "osdev_type")?.and_then(|number| self.format.device_kind(number));
        let (Some(kind), Some(name)) = (kind, object.attribute("name")) else { return Ok(()) };
        // In format 2 all kinds of memory are disks; only pmem ("NVM") counts.
        if object.attribute("subtype").is_some_and(is_no_disk) {
            return Ok(());
        }
        let place = object.ancestors().find(|node| node.has_tag_name("object") && !is_io(*node));
        let pci = object.ancestors().find(|node| is_type(*node, "PCIDev"));
        let bridge = object.ancestors().filter(|node| is_type(*node, "Bridge")).last();
        self.parts.devices.push(MachineDeviceFacts {
            name: name.to_owned(),
            kind,
            nodes: place.map(nodes).transpose()?.unwrap_or_default(),
            pci: pci.and_then(|pci| pci.attribute("pci_busid")).map(str::to_owned),
            controller: bridge.and_then(|bridge| bridge.attribute("bridge_pci")).and_then(host_bridge),
        });
        Ok(())
    }

    /// The latencies between nodes; hwloc also has other matrices, such as bandwidths between GPUs.
    fn read_distances(&mut self, element: Node<'_, '_>) -> Result<(), TopologyError> {
        let is_latency = number(element, "kind")?.is_some_and(|kind: u32| kind & MEANS_LATENCY != 0);
        let by_number = element.attribute("indexing") == Some("os");
        if !is_type(element, "NUMANode") || !is_latency || !by_number || self.parts.distances.is_some() {
            return Ok(());
        }
        let ids: Vec<u32> = numbers(element, "indexes", DISTANCE_NODES_MAX)?;
        let values: Vec<u64> = numbers(element, "u64values", ids.len() * ids.len())?;
        self.parts.distances = NodeDistances::new(ids, values);
        Ok(())
    }

    /// Speeds of cores, in any unit: the kernel's capacity, or else the frequency.
    fn read_cpu_kind(&mut self, element: Node<'_, '_>) -> Result<(), TopologyError> {
        let infos: BTreeMap<_, _> = element
            .children()
            .filter(|child| child.has_tag_name("info"))
            .filter_map(|info| Some((info.attribute("name")?, info.attribute("value")?)))
            .collect();
        let speeds = ["LinuxCapacity", "FrequencyMaxMHz"];
        let speed = speeds.iter().find_map(|name| infos.get(name)?.parse::<u32>().ok());
        if let Some(speed) = speed {
            self.parts.speeds.extend(cpus(element)?.iter().map(|cpu| (cpu, speed)));
        }
        Ok(())
    }
}

fn core(object: Node<'_, '_>) -> Result<CpuCoreDescription, TopologyError> {
    let caches = ["L3Cache", "L4Cache", "L5Cache"];
    let cache = object.ancestors().filter(|node| caches.iter().any(|name| is_type(*node, name))).last();
    Ok(CpuCoreDescription { cpus: cpus(object)?, cache: cache.map(|cache| cache.id().get()) })
}

/// "0000:[80-84]": the domain, and the buses behind the bridge.
fn host_bridge(bridge_pci: &str) -> Option<String> {
    let (domain, buses) = bridge_pci.split_once(":[")?;
    let (first, _) = buses.split_once('-')?;
    Some(format!("pci{domain}:{first}"))
}

fn is_no_disk(subtype: &str) -> bool {
    subtype.starts_with("Removable") || ["Tape", "CXLMem", "SPM"].contains(&subtype)
}

fn is_type(element: Node<'_, '_>, name: &str) -> bool {
    element.attribute("type") == Some(name)
}

fn is_io(object: Node<'_, '_>) -> bool {
    ["OSDev", "PCIDev", "Bridge"].iter().any(|name| is_type(object, name))
}

fn cpus(object: Node<'_, '_>) -> Result<CpuSet, TopologyError> {
    Ok(parse_optional_attribute(object, "cpuset", bitmap)?.unwrap_or_default())
}

fn nodes(object: Node<'_, '_>) -> Result<NodeSet, TopologyError> {
    Ok(parse_optional_attribute(object, "nodeset", bitmap)?.unwrap_or_default())
}

fn number<N: FromStr>(element: Node<'_, '_>, attribute: &str) -> Result<Option<N>, TopologyError> {
    parse_optional_attribute(element, attribute, |text| text.parse().ok())
}

fn parse_optional_attribute<T>(
    element: Node<'_, '_>,
    attribute: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, TopologyError> {
    let Some(text) = element.attribute(attribute) else { return Ok(None) };
    read(text).map(Some).ok_or_else(|| bad(attribute, text))
}

fn bad(attribute: &str, text: &str) -> TopologyError {
    let value = text.chars().take(40).collect();
    TopologyError::BadAttribute { attribute: attribute.to_owned(), value }
}

/// The numbers of all children with this name, concatenated.
fn numbers<N: FromStr>(
    element: Node<'_, '_>,
    name: &'static str,
    count_max: usize,
) -> Result<Vec<N>, TopologyError> {
    let texts = element.children().filter(|child| child.has_tag_name(name)).filter_map(|child| child.text());
    let words = texts.flat_map(str::split_ascii_whitespace).take(count_max + 1);
    let numbers = words.map(|word| word.parse().map_err(|_| bad(name, word)));
    let numbers: Vec<N> = numbers.collect::<Result<_, _>>()?;
    if numbers.len() > count_max {
        return Err(bad(name, "more numbers than fit"));
    }
    Ok(numbers)
}

/// hwloc's bitmaps: words of 32 bits in hexadecimal, the highest first, empty ones for zeros: `0x1,,0xff00`.
fn bitmap<K>(text: &str) -> Option<IdSet<K>> {
    let words: Vec<&str> = text.rsplit(',').take(WORDS_MAX + 1).collect();
    if words.len() > WORDS_MAX {
        return None;
    }
    let mut set = IdSet::new();
    for (word, first) in words.iter().zip((0..).step_by(WORD_BITS as usize)) {
        let bits = match word.trim() {
            "" => 0,
            word => u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()?,
        };
        set.extend((0..WORD_BITS).filter(|bit| bits & (1 << bit) != 0).map(|bit| first + bit));
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id_set::CpuIdTypeMarker;

    #[test]
    fn bitmaps_are_read() {
        let examples = [
            ("0x00000001", "0"),
            ("0x0", ""),
            ("", ""),
            ("0x00ff00ff", "0-7,16-23"),
            ("0x00000001,,0x80000000", "31,64"),
            ("0xffffffff,0xffffffff", "0-63"),
        ];
        for (text, ids) in examples {
            assert_eq!(bitmap::<CpuIdTypeMarker>(text).unwrap().to_string(), ids, "{text}");
        }
        let long = ",".repeat(WORDS_MAX);
        for text in ["0xf...f", "1", "0x1,0x100000000", "0x", "0x-1", &long] {
            assert_eq!(bitmap::<CpuIdTypeMarker>(text), None, "{text}");
        }
    }

    #[test]
    fn devices_are_told_apart_in_both_formats() {
        use MachineDeviceKind::{Disk, Nic, Rdma};
        fn kinds(format: HwlocXmlVersion, numbers: [u32; 7]) -> [Option<MachineDeviceKind>; 7] {
            numbers.map(|number| format.device_kind(number))
        }
        let two = [Some(Disk), None, Some(Nic), Some(Rdma), None, None, None];
        assert_eq!(kinds(HwlocXmlVersion::Two, [0, 1, 2, 3, 4, 5, 99]), two);
        let three = [Some(Disk), None, None, Some(Nic), Some(Rdma), Some(Rdma), Some(Disk)];
        assert_eq!(kinds(HwlocXmlVersion::Three, [1, 2, 12, 16, 32, 48, 3]), three);
    }

    #[test]
    fn bridges_have_the_kernels_names() {
        assert_eq!(host_bridge("0000:[80-84]").as_deref(), Some("pci0000:80"));
        assert_eq!(host_bridge("0000"), None);
    }
}
