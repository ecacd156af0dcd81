//! The queries for the usual exporters. `docs/forecast.md` has them in a table.

use serde::Deserialize;

/// A known exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExporterPreset {
    /// The Lustre exporters whose server metrics are named `lustre_…_total`, with labels `component` and
    /// `target`.
    LustreExporter,
    /// Ceph's own exporters: the manager's module `prometheus`, or `ceph-exporter`.
    Ceph,
    /// `node_exporter`: the disks of hosts.
    NodeExporter,
}

/// Queries in PromQL, each for series of rates per second. `$window` stands for the window of the rates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrometheusQueries {
    /// Bytes read.
    pub read_bytes: Option<String>,
    /// Bytes written.
    pub write_bytes: Option<String>,
    /// Requests that read.
    pub reads: Option<String>,
    /// Requests that wrote.
    pub writes: Option<String>,
    /// The template of target names from a series' labels.
    pub target_name: String,
}

impl ExporterPreset {
    /// All presets.
    pub const ALL: [ExporterPreset; 3] =
        [ExporterPreset::LustreExporter, ExporterPreset::Ceph, ExporterPreset::NodeExporter];

    /// The name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExporterPreset::LustreExporter => "lustre_exporter",
            ExporterPreset::Ceph => "ceph",
            ExporterPreset::NodeExporter => "node_exporter",
        }
    }

    /// The preset's queries.
    pub fn queries(self) -> PrometheusQueries {
        let (metrics, selector, target_name) = match self {
            ExporterPreset::LustreExporter => (
                [
                    "lustre_read_bytes_total",
                    "lustre_write_bytes_total",
                    "lustre_read_samples_total",
                    "lustre_write_samples_total",
                ],
                "{component=\"ost\"}",
                "{target:path}",
            ),
            ExporterPreset::Ceph => (
                ["ceph_osd_op_r_out_bytes", "ceph_osd_op_w_in_bytes", "ceph_osd_op_r", "ceph_osd_op_w"],
                "",
                "ceph/{ceph_daemon}",
            ),
            ExporterPreset::NodeExporter => (
                [
                    "node_disk_read_bytes_total",
                    "node_disk_written_bytes_total",
                    "node_disk_reads_completed_total",
                    "node_disk_writes_completed_total",
                ],
                // Devices on top of other disks would count twice.
                "{device!~\"(loop|ram|zram|dm-|md|sr|fd).*\"}",
                "{instance:host}/{device}",
            ),
        };
        let [read_bytes, write_bytes, reads, writes] =
            metrics.map(|metric| Some(format!("rate({metric}{selector}[$window])")));
        PrometheusQueries { read_bytes, write_bytes, reads, writes, target_name: target_name.to_owned() }
    }
}

impl std::str::FromStr for ExporterPreset {
    type Err = String;

    fn from_str(text: &str) -> Result<ExporterPreset, String> {
        let found = ExporterPreset::ALL.into_iter().find(|preset| preset.name() == text);
        found.ok_or_else(|| format!("{text:?} is no preset: those are lustre_exporter, ceph, node_exporter"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the table of the manual up to date.
    #[test]
    fn the_manual_has_every_query() {
        // A table has a backslash before a bar.
        let manual = include_str!("../../../../docs/forecast.md").replace("\\|", "|");
        for preset in ExporterPreset::ALL {
            let queries = preset.queries();
            let all = [queries.read_bytes, queries.write_bytes, queries.reads, queries.writes];
            for text in all.into_iter().flatten().chain([queries.target_name]) {
                assert!(manual.contains(&text), "docs/forecast.md lacks {text}");
            }
            assert_eq!(preset.name().parse(), Ok(preset));
        }
    }
}
