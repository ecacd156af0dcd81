"""congestion.json, and CONGESTION.md from it."""

import json

from . import figures, pages

JSON_NAME, REPORT_NAME = "congestion.json", "CONGESTION.md"
NONE = "–"
# Medians of the same program differ by so much.
NOISE = 0.03

INTRODUCTION = """\
Written by `bench/congestion`; not edited by hand. Raw data: `congestion.json`. Each section says when, of which commit and
by which command it was measured; where nothing else is said there:

{common}

The proportions are those of the LADS paper (section 5.2), in small: 32 targets, 8 I/O threads at each end, a load of direct
reads of 4 MiB at depth four on four targets, which goes on to the next four after a fifth of the time of an
uncongested run. The targets are XFS on disks of one rate with one queue, first come, first served (`testbed/disks`); the
other end is on tmpfs. So on a congested target an object of 1 MiB waits for 16 MiB of others. While the load moves on,
eight disks serve it: its rate is above that of four.

Every run's copy is checked: names and sizes each time, contents in the first round. Caches are cold. Rounds are
interleaved, and the load begins with other disks in each. A difference under {noise:.0%} means nothing. Cores busy are of the whole machine, with what makes the
disks, the load, and anybody else.
"""

# What is wanted: (words, comparison, goal).
GOALS = [
    ("adaptive's run under source congestion ÷ round-robin's", "≤", 0.65),
    ("adaptive's run under source congestion ÷ the best threshold's", "≤", 1.00),
    ("adaptive's run under sink congestion ÷ round-robin's, both with --sink-io auto", "≤", 0.75),
    ("adaptive's run without congestion ÷ round-robin's", "≤", 1.03),
    ("the fastest file-at-a-time tool's run ÷ carrack's", "≥", 4.0),
    ("rate of as many threads as targets ÷ (that of one × threads)", "≥", 0.80),
    ("another reader's rate beside carrack --nice ÷ alone", "≥", 0.80),
]


def load(directory):
    """All sections, none when there is no file yet."""
    try:
        return json.loads((directory / JSON_NAME).read_text())["sections"]
    except FileNotFoundError:
        return {}


def write(directory, order, new):
    """Puts new sections into congestion.json and writes CONGESTION.md anew from all."""
    directory.mkdir(parents=True, exist_ok=True)
    merged = {**load(directory), **new}
    sections = {name: merged[name] for name in order if name in merged}
    pages.replace(directory / JSON_NAME, json.dumps({"sections": sections}, indent=1, ensure_ascii=False) + "\n")
    pages.replace(directory / REPORT_NAME, document(sections))


# --- figures ----------------------------------------------------------------------------------------


def median(section, name, key="wall_s", rows="rows"):
    """The median of a row's good runs, or None."""
    runs = figures.good(section[rows].get(name, {}).get("runs", [])) if section else []
    return figures.median(runs, key) if runs else None


def quotient(a, b):
    """a ÷ b, or None where one of them is missing."""
    return a / b if a and b else None


def best_row(section, prefix="", key="wall_s", without=()):
    """The name of the fastest row that begins with `prefix`, or None."""
    names = [name for name in section["rows"] if name.startswith(prefix) and name not in without]
    timed = [(median(section, name, key), name) for name in names if median(section, name, key)]
    return min(timed)[1] if timed else None


def _best(section, prefix, key="wall_s", without=()):
    name = best_row(section, prefix, key, without) if section else None
    return median(section, name, key) if name else None


def measured_goals(sections):
    """A figure for each of GOALS, None where it was not measured."""
    at = sections.get
    # The threshold's best setting runs in `source` too; the one round of the grid is not taken against three.
    source, sink, files, threads, reader = (at(name) for name in ("source", "sink", "files", "threads", "reader"))
    return [
        quotient(median(source, "adaptive"), median(source, "round-robin")),
        quotient(median(source, "adaptive"), median(source, "threshold")),
        quotient(median(sink, "adaptive, auto", "stored_s"), median(sink, "round-robin, auto", "stored_s")),
        quotient(median(at("uncongested"), "adaptive"), median(at("uncongested"), "round-robin")),
        quotient(_best(files, "", without=("adaptive", "plain")), _best(files, "adaptive") or _best(files, "plain")),
        scaling(threads),
        quotient(median(reader, "nice", "reader_mb_per_s"), reader["alone_mb_per_s"]) if reader else None,
    ]


def rate(section, name):
    """Of a row, in MB/s, from the medians."""
    runs = figures.good(section["rows"][name]["runs"])
    return runs[0]["bytes"] / figures.median(runs, "wall_s") / 1e6 if runs else None


def scaling(section):
    """How much of a linear gain the largest number of threads has, or None."""
    if not section:
        return None
    names = sorted(section["rows"], key=int)
    most = quotient(rate(section, names[-1]), rate(section, names[0]))
    return quotient(most, int(names[-1]) / int(names[0]))


def is_reached(value, comparison, goal):
    """Whether a goal is met, to the digits that are told."""
    return round(value, 2) <= goal if comparison == "≤" else round(value, 2) >= goal


# --- tables -----------------------------------------------------------------------------------------


def table(header, rows):
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines] + [""]


def number(value, digits=2):
    """With so many digits; a dash for None."""
    return NONE if value is None else f"{value:.{digits}f}"


def document(sections):
    """All of CONGESTION.md."""
    latest = max(sections.values(), key=lambda section: section["date"])
    introduction = INTRODUCTION.format(common="\n".join(common(latest)), noise=NOISE)
    lines = ["# carrack where storage targets are congested", "", introduction, "## Goals", ""]
    goals = zip(GOALS, measured_goals(sections), strict=True)
    rows = [
        [words, f"{comparison} {goal:.2f}", number(value), _answer(value, comparison, goal)]
        for (words, comparison, goal), value in goals
    ]
    lines += table(["figure", "goal", "measured", "reached"], rows)
    for name, section in sections.items():
        lines += [f"## {TITLES[name]}", "", told(section, latest), "", *TABLES[name](section), *notes(section)]
    return "\n".join(lines)


def _answer(value, comparison, goal):
    if value is None:
        return "not measured"
    if is_reached(value, comparison, goal):
        return "yes"
    return "by less than the noise not" if abs(value / goal - 1) < NOISE else "**no**"


def common(section):
    """What is mostly the same for all sections."""
    plan = section["plan"]
    return [
        f"Disks: {plan['disks']} of {plan['rate_bytes_per_s'] / (1 << 20):g} MiB/s; {plan['io_threads']} I/O threads; an"
        f" uncongested run takes {plan['seconds']:g} s; the load goes on after {plan['step_s']:g} s.",
        f"Machine: {section['machine']}.",
        f"Versions: {section['versions']}.",
    ]


def told(section, latest):
    """Where a section comes from."""
    words = f"{section['date']}, commit {section['commit']}, `{section['command']}`."
    differs = [line for line, usual in zip(common(section), common(latest)) if line != usual]
    return " ".join([words, *differs])


def notes(section):
    """What did not go well, and what was left out."""
    lines = [
        f"- **{name} failed** in round {place}: {'; '.join(run['problems'])}"
        for rows in ("rows", "quiet_rows")
        for name, row in section.get(rows, {}).items()
        for place, run in enumerate(row["runs"], 1)
        if run["problems"]
    ]
    lines += [f"- `{name}` left out: {reason}" for name, reason in section.get("missing", {}).items()]
    return [*lines, ""] if lines else []


def _run_cells(row, key="wall_s"):
    """What all tables of runs have."""
    good = figures.good(row["runs"])
    if not good:
        return ["failed", NONE, NONE, NONE]
    wall_s = figures.median(good, key)
    cells = [figures.spread([run[key] for run in good]), f"{good[0]['bytes'] / wall_s / 1e6:.0f}"]
    return [*cells, number(figures.median(good, "cpu_s")), number(figures.median(good, "busy_cores"))]


RUN_HEADER = ["wall s: median (min–max)", "MB/s", "CPU s", "cores busy"]


def _load_cell(row):
    loads = [run["load_mb_per_s"] for run in figures.good(row["runs"]) if run["load_mb_per_s"] is not None]
    return figures.spread(loads, digits=0) if loads else NONE


def service_table(section):
    """Percentiles; the load's own rate on each disk."""
    header = ["end", "depth", "load", "p10 ms", "p50", "p90", "p99", "max", "MB/s each", "load MB/s each", "n"]
    rows = [
        [
            one["side"], one["depth"], "yes" if one["loaded"] else "no",
            *[number(one[key], 1) for key in ("p10", "p50", "p90", "p99", "max")],
            number(one["mb_per_s_each"], 1), number(one.get("load_mb_per_s_each"), 1), one["n"],
        ]
        for one in section["services"] if "p50" in one
    ]
    return table(header, rows)


def runs_table(section):
    """Of policies at the source."""
    base = median(section, "round-robin") or median(section, "plain")
    header = ["policy", *RUN_HEADER, "÷ round-robin", "load MB/s", "n", "options"]
    rows = [
        [name, *_run_cells(row), number(quotient(median(section, name), base)), _load_cell(row), len(row["runs"]),
         f"`{row['options']}`"]
        for name, row in section["rows"].items()
    ]
    return table(header, rows)


SINK_WORDS = [
    "Stored: `syncfs` of all disks has returned. Buffered writes end in the page cache, from which the kernel writes to all",
    "disks at once, more than there are I/O threads: as long as the data stays below its limit for dirty pages (a fifth of",
    "the free memory), as here, no thread ever waits for a disk.",
    "",
]


def sink_table(section):
    """With the time until everything was on the disks, which is what compares."""
    header = ["policy, way", "ended after s", "stored after s", "MB/s", "CPU s", "cores busy", "÷ round-robin, same way"]
    header += ["stored after s without load", "load MB/s", "n", "options"]
    rows = []
    for name, row in section["rows"].items():
        quiet = median(section, name, "stored_s", "quiet_rows")
        base = median(section, f"round-robin, {name.split(', ')[-1]}", "stored_s")
        rows.append([
            name, number(median(section, name)), *_run_cells(row, "stored_s"),
            number(quotient(median(section, name, "stored_s"), base)), number(quiet), _load_cell(row),
            len(row["runs"]), f"`{row['options']}`",
        ])
    return [*SINK_WORDS, *table(header, rows)]


def threads_table(section):
    """Rates by threads."""
    names = sorted(section["rows"], key=int)
    one = rate(section, names[0])
    header = ["I/O threads", *RUN_HEADER, "rate ÷ (one thread's × threads)", "n"]
    rows = []
    for name in names:
        share = quotient(quotient(rate(section, name), one), int(name) / int(names[0]))
        row = section["rows"][name]
        rows.append([name, *_run_cells(row), number(share), len(row["runs"])])
    return table(header, rows)


def files_table(section):
    """carrack and its peers."""
    base = _best(section, "adaptive") or _best(section, "plain")
    header = ["tool", *RUN_HEADER, "÷ carrack", "n", "options"]
    rows = [
        [name, *_run_cells(row), number(quotient(median(section, name), base)), len(row["runs"]), f"`{row['options']}`"]
        for name, row in section["rows"].items()
    ]
    return table(header, rows)


def reader_table(section):
    """What a reader keeps."""
    alone = section["alone_mb_per_s"]
    header = ["beside", "reader MB/s", "of what it has alone", "carrack's wall s", "n", "options"]
    rows = [["nobody", number(alone, 1), "1.00", NONE, NONE, NONE]]
    for name, row in section["rows"].items():
        kept = median(section, name, "reader_mb_per_s")
        wall_s = _run_cells(row)[0]
        cells = [number(kept, 1), number(quotient(kept, alone)), wall_s, len(row["runs"]), f"`{row['options']}`"]
        rows.append([f"carrack ({name})", *cells])
    return [f"It reads {section['disks']} disks, one direct request of 1 MiB under way on each.", "", *table(header, rows)]


TITLES = {
    "service": "Service times of 1 MiB",
    "uncongested": "Source, no congestion",
    "threshold": "Source congested: the threshold policy by hand",
    "source": "Source congested",
    "sink": "Sink congested",
    "threads": "More I/O threads",
    "files": "File-at-a-time tools",
    "reader": "Another reader of the same disks",
}
TABLES = {
    "service": service_table,
    "uncongested": runs_table,
    "threshold": runs_table,
    "source": runs_table,
    "sink": sink_table,
    "threads": threads_table,
    "files": files_table,
    "reader": reader_table,
}
