"""Medians, ratios, RESULTS.md and results.json."""

import dataclasses
import json
import statistics

from . import rounds

METHOD = """\
Every round runs all tools one after the other, starting with another one each time. Source and
destination are on tmpfs; the destination is fresh for every run; file count and every size are checked each
time, all contents (and links, modes and times where a tool keeps them) in the first round. Wall time is from
the client's start to the end of both ends; servers run before the clock starts, ssh's start-up is inside.
CPU seconds are of all processes of both ends (by process accounting, where no control group can be made,
without what a server's unwaited children did). A run starts on an idle
machine whose memory copies at its usual rate, with touched memory in reserve; one during which others took more
than {foreign:.0%} of a core is repeated (up to {attempts} tries). A difference under 10 % means nothing here.
"""


def _spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _median(measurements, key):
    return statistics.median(getattr(measurement, key) for measurement in measurements)


def _peaks(measurements):
    """Peak memory of each role in MiB, the largest of all rounds."""
    roles = {}
    for measurement in measurements:
        for role, peak in measurement.peak_rss.items():
            roles[role] = max(peak, roles.get(role, 0))
    return ", ".join(f"{role} {peak / (1 << 20):.0f}" for role, peak in sorted(roles.items())) or "–"


class WorkloadReport:
    """One workload's part of the report."""

    def __init__(self, workload, tools, results, missing):
        self.workload = workload
        self._tools = tools
        self.results = results
        self._missing = missing

    def _good(self, name):
        return [measurement for measurement in self.results[name] if measurement.ok]

    def _carracks(self):
        return [t.name for t in self._tools if t.name.startswith("carrack") and self._good(t.name)]

    def markdown(self):
        """The table, fastest first, and what failed."""
        listing = self.workload.listing
        title = f"## {self.workload.name}: {len(listing.files):,} files, {listing.total_bytes / 1e9:.3f} GB"
        ratios = self._carracks()
        header = ["tool", "security", "wall s: median (min–max)", "GB/s", "files/s", "CPU s", "user+sys"]
        header += ["cores busy", "CPU s/GB", "peak RSS MiB", *[f"{name} ÷ this" for name in ratios], "n"]
        lines = [title, "", self.workload.words + ".", "", _row(header), _row(["---"] * len(header))]
        measured = [tool for tool in self._tools if self._good(tool.name)]
        for tool in sorted(measured, key=lambda tool: _median(self._good(tool.name), "wall_s")):
            lines.append(self._tool_row(tool, ratios))
        return "\n".join([*lines, "", *self._notes(), ""])

    def _tool_row(self, tool, ratios):
        good = self._good(tool.name)
        wall_s, cpu_s = _median(good, "wall_s"), _median(good, "cpu_s")
        gigabytes = self.workload.listing.total_bytes / 1e9
        disturbed = sum(rounds.is_disturbed(measurement) for measurement in good)
        cells = [
            tool.name,
            tool.security,
            _spread([measurement.wall_s for measurement in good]),
            f"{gigabytes / wall_s:.3f}",
            f"{len(self.workload.listing.files) / wall_s:,.0f}",
            f"{cpu_s:.2f}",
            f"{_median(good, 'user_s'):.2f}+{_median(good, 'system_s'):.2f}",
            f"{cpu_s / wall_s:.2f}",
            f"{cpu_s / gigabytes:.3f}",
            _peaks(good),
            *[f"{_median(self._good(name), 'wall_s') / wall_s:.2f}" for name in ratios],
            f"{len(good)}" + (f" ({disturbed} disturbed)" if disturbed else ""),
        ]
        return _row(cells)

    def _notes(self):
        notes = []
        for tool in self._tools:
            notes.append(f"- `{tool.name}`: `{tool.settings(self.workload.kind)}`")
            for number, measurement in enumerate(self.results[tool.name], 1):
                if not measurement.ok:
                    notes.append(f"- **{tool.name} failed** in round {number}: {'; '.join(measurement.problems)}")
        return notes + [f"- `{name}` left out: {reason}" for name, reason in self._missing.items()]

    def as_json(self):
        """All of it."""
        return {
            "files": len(self.workload.listing.files),
            "bytes": self.workload.listing.total_bytes,
            "words": self.workload.words,
            "missing": self._missing,
            "tools": {
                tool.name: {
                    "security": tool.security,
                    "settings": tool.settings(self.workload.kind),
                    "runs": [dataclasses.asdict(measurement) for measurement in self.results[tool.name]],
                }
                for tool in self._tools
            },
        }


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def write(out_dir, context, reports):
    """Writes RESULTS.md and results.json; `context` says of what machine, when and how."""
    method = METHOD.format(foreign=rounds.FOREIGN_CORES, attempts=rounds.ATTEMPTS)
    head = [
        "# carrack beside other movers",
        "",
        f"Written by `{context['command']}`; not edited by hand. Raw data: `results.json`.",
        "",
        f"{context['date']}, commit {context['commit']}, {context['rounds']} rounds.",
        f"Machine: {context['machine']}. CPU time by {context['cpu_by']}.",
        f"Versions: {context['versions']}.",
        "",
        "“carrack ÷ this” is carrack's median wall time over the row's: below 1, carrack is faster.",
        "",
        method,
    ]
    out_dir.mkdir(parents=True, exist_ok=True)
    text = "\n".join(head) + "\n" + "\n".join(report.markdown() for report in reports)
    (out_dir / "RESULTS.md").write_text(text)
    data = {**context, "workloads": {report.workload.name: report.as_json() for report in reports}}
    (out_dir / "results.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return text
