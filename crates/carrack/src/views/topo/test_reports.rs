//! Reports for the tests.

use carrack_machine::{NumaMemoryCosts, ThreadPlacementRequest, Topology, plan_thread_placement};

use super::TopologyReport;

/// Two sockets: a node with two cores of two threads and a NIC; a node with two cores and a disk. A third
/// node has memory only. Some names need escapes.
const SMALL: &str = r#"<topology version="2.0">
  <object type="Machine" cpuset="0x3f" nodeset="0x7">
    <object type="Package" os_index="0" cpuset="0x0f" nodeset="0x1">
      <object type="NUMANode" os_index="0" cpuset="0x0f" nodeset="0x1" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x05" nodeset="0x1"/>
      <object type="Core" os_index="1" cpuset="0x0a" nodeset="0x1"/>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-1f]">
        <object type="PCIDev" pci_busid="0000:01:00.0"><object type="OSDev" name="eth0" osdev_type="2"/></object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x30" nodeset="0x6">
      <object type="NUMANode" os_index="1" cpuset="0x30" nodeset="0x2" local_memory="2147483648"/>
      <object type="NUMANode" os_index="2" cpuset="0x30" nodeset="0x4" subtype="HBM" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x10" nodeset="0x2"/>
      <object type="Core" os_index="1" cpuset="0x20" nodeset="0x2"/>
      <object type="PCIDev" pci_busid="0000:81:00.0"><object type="OSDev" name="&lt;d&amp;&#9;k&gt;" osdev_type="0"/></object>
    </object>
  </object>
</topology>"#;

/// Returns the machine with a lane on each socket.
pub fn small() -> TopologyReport {
    let topology = Topology::from_xml(SMALL, "small.xml").unwrap();
    let nic = Some("eth0".to_owned());
    let disks = vec!["<d&\tk>".to_owned()];
    let request = ThreadPlacementRequest { io_threads: 8, nic, disks, ..ThreadPlacementRequest::default() };
    with(topology, &request)
}

/// Returns the machine with nothing bound.
pub fn free() -> TopologyReport {
    let topology = Topology::from_xml(SMALL, "small.xml").unwrap();
    with(
        topology,
        &ThreadPlacementRequest {
            io_threads: 3,
            scheme: carrack_machine::PlacementScheme::Off,
            ..ThreadPlacementRequest::default()
        },
    )
}

fn with(topology: Topology, request: &ThreadPlacementRequest) -> TopologyReport {
    let placement = plan_thread_placement(&topology, request);
    let costs = NumaMemoryCosts::from_distances(&topology);
    TopologyReport { topology, placement, costs, measured: None }
}
