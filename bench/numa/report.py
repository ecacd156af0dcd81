"""numa.json, and NUMA.md from it."""

import json
import os
import statistics

from . import counting

JSON_NAME, REPORT_NAME = "numa.json", "NUMA.md"
NONE = "–"

INTRODUCTION = """\
Written by `bench/numa/count`; not edited by hand. Raw data: `numa.json`.

{about}

An emulated machine with 2 sockets of 2 NUMA nodes of 2 CPUs each; both ends of a transfer run on it, in two network namespaces. The
emulator sees every load and store of every CPU, the kernel's included. Counted is

- *traffic*: what passes a cache of {cache_kib} KiB that each CPU has for itself (lines of 64 bytes, 8 ways; lines that another CPU has
  stored to are fetched again), by the node of the physical page: *own node*, *same socket* (its other node), *other socket*;
- and, in the last tables, what instructions *loaded* and *stored*, as if there were no caches.

What the idle machine does in the same time is taken off: the emulator is slow, timers are not. Figures are bytes per byte of payload, both ends together, mean of the rounds; in brackets the lowest and highest round.

Whose memory it is: *slots* are the engine's buffers; *input* and *output files* are their pages in the page cache; *socket memory* is
what the kernel copies from or to and is neither; the *rest* are programs' stacks, heaps and constants, and the kernel's own data.

The engine chooses its slots, its threads and thereby its sockets' memory, not where a file's pages lie:

- input `disk`: files on an NVMe disk, not in the page cache. The disk writes by itself (which is no CPU's store) to pages that the kernel takes from the
  reading thread's node, as with the paper's NFS and cold caches.
- input `memory`: files on a tmpfs whose pages lie on all nodes in turn. A quarter of them is on a thread's own node, a quarter on
  the socket's other, half on the other socket, whatever the engine does.
- output: a tmpfs whose pages lie where they are first written.
"""

# What the paper reports over its baseline, by scheme; figure 2 (a) and its text.
PAPER = {"single": "about 23 %", "mmb": "13–35 %", "mts": "22–44 %"}
WORDS = {
    "off": "single buffer, unbound",
    "single": "single buffer, bound",
    "mmb": "MMB: a buffer for each socket",
    "mts": "MTS: and bound threads",
}

ASSUMPTIONS = """\
What is predicted: the time that the counted traffic takes per byte of payload, at the rates of the paper's table 1 (own node {own:.0f},
same socket {socket:.0f}, other socket {other:.0f} MB/s), of the unbound case ÷ of this case − 1. It assumes that

- memory is the only limit, and a CPU's accesses come one after the other;
- no controller or interconnect is saturated. The paper's baseline has one controller serving all threads; what spreading
  the buffer over controllers brings is not in this model, so that what it says of MMB and MTS is a lower bound;
- a line comes from the memory of its node, also where another CPU's cache has it; a socket's CPUs share no cache;
- both ends are on one such machine, and what they copy to each other through veth stands for what a NIC would move.

All traffic on the own node instead of a quarter there, a quarter on the socket's other and half on the other socket gives {most:.0%} by
this model, and that is the most it can say; the paper's figures above that come from what it leaves out.
"""

# What is wanted: MTS's share of the unbound case's other-socket bytes.
SHARE_GOAL = 0.05


def write(directory, results):
    """Writes both files."""
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / JSON_NAME, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    _replace(directory / REPORT_NAME, document(results))


def _replace(path, text):
    """The file is the old one or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)


# --- figures ----------------------------------------------------------------------------------------


def tables(results, workload, kind):
    """{scheme: its rounds' tables} of one workload and input, less what the machine does by itself."""
    found = {}
    for row in results["rows"]:
        if (row["workload"], row["input"]) == (workload, kind):
            found.setdefault(row["scheme"], []).append(counting.without(row["table"], row["idle"]))
    return found


def other_socket(table, kinds):
    """Traffic to the other socket, in bytes per byte of payload."""
    return counting.per_distance(table, kinds)[counting.OTHER]


def accesses_to_far_slots(table):
    """Bytes of slots on the other socket that were loaded or stored, whatever a cache would do."""
    ways = [counting.LOADED, counting.STORED]
    return counting.per_distance(table, counting.SLOTS, ways)[counting.OTHER]


def mean(of_rounds, figure):
    """The mean of a figure of each round."""
    return statistics.mean(figure(table) for table in of_rounds)


def ratio(of_schemes, scheme, kinds):
    """A scheme's other-socket bytes ÷ the unbound case's, or None where there are none."""
    base = mean(of_schemes["off"], lambda table: other_socket(table, kinds))
    return mean(of_schemes[scheme], lambda table: other_socket(table, kinds)) / base if base else None


def gain(of_schemes, scheme):
    """The predicted gain over the unbound case."""
    return mean(of_schemes["off"], counting.time_per_byte) / mean(of_schemes[scheme], counting.time_per_byte) - 1


# --- words ------------------------------------------------------------------------------------------


def spread(of_rounds, figure):
    """mean (lowest–highest)"""
    values = [figure(table) for table in of_rounds]
    return f"{statistics.mean(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def percent(value):
    """A share, or that there is none."""
    return NONE if value is None else f"{value:.1%}"


def rows_of(head, lines):
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines]) + "\n"


def other_socket_table(of_schemes):
    """Other-socket bytes by whose memory it was."""
    head = ["", *counting.KINDS, "payload's memory", "all"]
    groups = [[kind] for kind in counting.KINDS] + [counting.PAYLOAD, counting.KINDS]
    lines = []
    for scheme, of_rounds in of_schemes.items():
        cells = [spread(of_rounds, lambda table, kinds=kinds: other_socket(table, kinds)) for kinds in groups]
        lines.append([WORDS[scheme], *cells])
    return rows_of(head, lines)


def distance_table(of_schemes, ways):
    """Bytes at each distance, by whose memory it was."""
    head = ["", "memory", *(f"{way}, {away}" for way in ways for away in counting.DISTANCES)]
    lines = []
    for scheme, of_rounds in of_schemes.items():
        for kind in counting.KINDS:
            cells = [
                f"{mean(of_rounds, lambda t, w=way, a=away: t[kind][w][a]):.2f}"
                for way in ways
                for away in counting.DISTANCES
            ]
            lines.append([WORDS[scheme], kind, *cells])
    return rows_of(head, lines)


def ratio_table(of_schemes):
    """Other-socket bytes relative to the unbound case, and the predicted gain."""
    groups = {"slots": counting.SLOTS, "slots and socket memory": counting.ENGINE, "payload's memory": counting.PAYLOAD}
    groups["all"] = counting.KINDS
    head = ["", *(f"other-socket traffic, {name}" for name in groups), "traffic in all", "predicted gain", "the paper's"]
    lines = []
    for scheme in of_schemes:
        shares = [percent(ratio(of_schemes, scheme, kinds)) for kinds in groups.values()]
        in_all = mean(of_schemes[scheme], lambda table: sum(counting.per_distance(table).values()))
        predicted = NONE if scheme == "off" else f"{gain(of_schemes, scheme):.0%}"
        lines.append([WORDS[scheme], *shares, f"{in_all:.2f}", predicted, PAPER.get(scheme, NONE)])
    return rows_of(head, lines)


def goal(results):
    """Whether MTS's other-socket bytes are few enough, for each workload and input."""
    lines = []
    for workload, kind, of_schemes in each(results):
        if not {"off", "mts"} <= of_schemes.keys():
            continue
        for name, kinds, limit in [
            ("slots and socket memory", counting.ENGINE, SHARE_GOAL),
            ("all", counting.KINDS, SHARE_GOAL),
        ]:
            share = ratio(of_schemes, "mts", kinds)
            reached = share is not None and share <= limit
            lines.append([f"{workload}, {kind}", name, f"≤ {limit:.0%}", percent(share), "yes" if reached else "**no**"])
        slots = mean(of_schemes["mts"], accesses_to_far_slots)
        cells = ["0.000 per payload byte", f"{slots:.3f}", "yes" if slots < 0.0005 else "**no**"]
        lines.append([f"{workload}, {kind}", "slots, without caches", *cells])
    return rows_of(["workload, input", "MTS's traffic to the other socket", "wanted", "counted", "reached"], lines)


def each(results):
    """(workload, input, {scheme: tables}) in their order."""
    keys = dict.fromkeys((row["workload"], row["input"]) for row in results["rows"])
    return [(workload, kind, tables(results, workload, kind)) for workload, kind in keys]


def about_words(about):
    """When, of what, how."""
    sizes = [f"{name}: {files} × {kib} KiB" for name, (files, kib) in about["workloads"].items()]
    lines = [
        f"- {about['date']}, commit {about['commit']}, `{about['command']}`; {about['emulator']}",
        f"- workloads: {'; '.join(sizes)}; options of all: `{about['options']}`",
        *(f"- {WORDS[scheme]}: `{words}`, CPUs {about['cpus'][scheme]}" for scheme, words in about["schemes"].items()),
    ]
    return "\n".join(lines)


def document(results):
    """NUMA.md."""
    rates = counting.RATES_MB_PER_S
    away = {"own": rates[counting.OWN], "socket": rates[counting.SOCKET], "other": rates[counting.OTHER]}
    most = away["own"] * (0.25 / away["own"] + 0.25 / away["socket"] + 0.5 / away["other"]) - 1
    parts = ["# Which memory a transfer uses on a NUMA machine\n", INTRODUCTION.format(about=about_words(results["about"]), cache_kib=results["about"]["cache_kib"])]
    parts += ["## What is wanted\n", goal(results), "## What it would bring\n", ASSUMPTIONS.format(**away, most=most)]
    for workload, kind, of_schemes in each(results):
        parts += [f"## {workload} files, input: {kind}\n"]
        if "off" in of_schemes:
            parts += ["Relative to the unbound case:\n", ratio_table(of_schemes)]
        parts += ["Traffic to the other socket per byte of payload:\n", other_socket_table(of_schemes)]
        parts += ["All traffic:\n", distance_table(of_schemes, counting.TRAFFIC)]
        parts += ["Without caches:\n", distance_table(of_schemes, [counting.LOADED, counting.STORED])]
    return "\n".join(parts)
