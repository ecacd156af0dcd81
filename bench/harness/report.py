"""RESULTS.md from the sections of results.json."""

from . import figures, meter, network, rounds

METHOD = """\
Every round runs all tools one after the other, starting with another one each time. Source and
destination are on tmpfs; the destination is fresh for every run; file count and every size are checked each
time, all contents (and links, modes and times where a tool keeps them) in the first round. Wall time is from
the client's start to the end of both ends; servers run before the clock starts, ssh's start-up is inside.
CPU seconds are of all processes of both ends (by process accounting, where no control group can be made,
without what a server's unwaited children did), without the emulation of a network. A run starts on an idle
machine whose memory copies at its usual rate, with touched memory in reserve; one during which others took more
than {foreign:.0%} of a core is repeated (up to {attempts} tries). A tool that takes very long runs in one round
only (column n), and is ended at a limit. A difference under 10 % means nothing here.
"""
NONE = "–"


def document(sections):
    """All of RESULTS.md."""
    latest = max(sections.values(), key=lambda section: section["date"])
    method = METHOD.format(foreign=rounds.FOREIGN_CORES, attempts=rounds.ATTEMPTS)
    lines = [
        "# carrack beside other movers",
        "",
        "Written by `bench/compare` and `bench/wan`; not edited by hand. Raw data: `results.json`. Each section says",
        "when, of which commit and by which command it was measured; where nothing else is said there:",
        "",
        f"Machine: {latest['machine']}.",
        f"Versions: {latest['versions']}.",
        "",
        *cliffs(sections),
        *slowest(sections),
        "## Method",
        "",
        method,
    ]
    return "\n".join(lines) + "\n" + "\n".join(section_text(section, latest) for section in sections.values())


def median_wall_s(section, name):
    """The tool's median wall time, or None without a good run."""
    runs = figures.good(section["tools"].get(name, {}).get("runs", []))
    return figures.median(runs, "wall_s") if runs else None


def time_limit_s(section, name):
    """How long a tool was given that didn't end by then, or None."""
    runs = section["tools"].get(name, {}).get("runs", [])
    return max((run["wall_s"] for run in runs if run.get("timed_out")), default=None)


def is_carrack(name):
    """Whether the tool is one of carrack's ways of working."""
    return name.startswith("carrack")


def is_peer(section, name):
    """Whether it is another program that moves data from one end to another."""
    return not is_carrack(name) and section["tools"][name]["security"] != "local"


def link_of(section):
    """The network of a section, or None for loopback."""
    return network.Link(**section["link"]) if section["link"] else None


def where(section):
    """`small`, `big over 1000 Mbit/s × …`."""
    link = link_of(section)
    return f"{section['workload']} over {link.words}" if link else section["workload"]


def gb_per_s(section, wall_s):
    """The rate of a whole run."""
    return section["bytes"] / wall_s / 1e9


# --- the summary -----------------------------------------------------------------------------------


def against(section, peer):
    """carrack's median wall time over the peer's, as (number or None, words).

    One that logs in by ssh is compared with `carrack-ssh`, where that ran: both have ssh's start-up inside.
    """
    ours = "carrack"
    if section["tools"].get(peer, {}).get("over_ssh") and median_wall_s(section, "carrack-ssh"):
        ours = "carrack-ssh"
    ours_s, peer_s, limit_s = median_wall_s(section, ours), median_wall_s(section, peer), time_limit_s(section, peer)
    if peer not in section["tools"] or not ours_s:
        return None, NONE
    if peer_s:
        return ours_s / peer_s, f"{ours_s / peer_s:.2f}"
    return None, f"< {ours_s / limit_s:.2f}" if limit_s else "failed"


def peer_names(sections):
    """All peers of all sections, in their order."""
    return list({name: 0 for section in sections.values() for name in section["tools"] if is_peer(section, name)})


def cliffs(sections):
    """How carrack stands against each peer on each workload."""
    peers = peer_names(sections)
    lines = [
        "## Where carrack stands",
        "",
        "carrack's median wall time over the peer's: below 1, carrack is faster. `carrack` is the way without ssh,",
        "against tools that log in by ssh it is `carrack-ssh` where that was run. “<”: the peer was ended at its limit.",
        "",
        _row(["workload", "carrack GB/s", "best peer", *peers]),
        _row(["---"] * (len(peers) + 3)),
    ]
    for section in sections.values():
        wall_s = median_wall_s(section, "carrack")
        rate = f"{gb_per_s(section, wall_s):.3f}" if wall_s else NONE
        ratios = [against(section, peer)[1] for peer in peers]
        lines.append(_row([where(section), rate, best_peer(section, peers), *ratios]))
    return [*lines, ""]


def best_peer(section, peers):
    """The peer that is nearest to carrack, or ahead of it by most."""
    measured = [(against(section, peer), peer) for peer in peers if against(section, peer)[0]]
    if not measured:
        return NONE
    (_ratio, words), name = max(measured)
    return f"{name} {words}"


def slowest(sections):
    """Each tool's best and worst workload on loopback: where its rate collapses."""
    rates = {}  # tool: [(GB/s, workload)]
    for section in sections.values():
        for name in section["tools"]:
            wall_s = median_wall_s(section, name)
            if wall_s and not section["link"]:
                rates.setdefault(name, []).append((gb_per_s(section, wall_s), section["workload"]))
    rows = [(min(of_tool)[0] / max(of_tool)[0], name) for name, of_tool in rates.items() if len(of_tool) > 1]
    if not rows:
        return []
    lines = ["## Where each tool is slowest", "", "On loopback, without runs that failed or were ended.", ""]
    lines += [_row(["tool", "best", "worst", "worst ÷ best"]), _row(["---"] * 4)]
    for share, name in sorted(rows, reverse=True):
        best, worst = (f"{rate:.3f} GB/s ({place})" for rate, place in (max(rates[name]), min(rates[name])))
        lines.append(_row([name, best, worst, f"{share:.2f}"]))
    return [*lines, ""]


# --- one section -----------------------------------------------------------------------------------


def section_text(section, latest):
    """Its title, where it comes from, its table (fastest first), and notes."""
    title = f"## {where(section)}: {section['files']:,} files, {section['bytes'] / 1e9:.3f} GB"
    told = [section["words"], f"{section['date']}, commit {section['commit']}", f"`{section['command']}`"]
    told.append(f"CPU time by {section['cpu_by']}")
    told += [f"{key.capitalize()}: {section[key]}" for key in ("machine", "versions") if section[key] != latest[key]]
    ratios = [name for name in section["tools"] if is_carrack(name) and median_wall_s(section, name)]
    header = ["tool", "security", "wall s: median (min–max)", *_rate_header(section), "CPU s", "user+sys"]
    header += ["cores busy", "CPU s/GB", "peak RSS MiB", *[f"{name} ÷ this" for name in ratios], "n"]
    lines = [title, "", ". ".join(told) + ".", "", _row(header), _row(["---"] * len(header))]
    done = [name for name in section["tools"] if median_wall_s(section, name)]
    lines += [_tool_row(section, name, ratios) for name in sorted(done, key=lambda n: median_wall_s(section, n))]
    lines += [_ended_row(section, name, len(header)) for name in section["tools"] if name not in done]
    return "\n".join([*lines, "", *_notes(section), ""])


def _rate_header(section):
    return ["Mbit/s", "share of the line"] if section["link"] else ["GB/s", "files/s"]


def _rates(section, wall_s):
    link = link_of(section)
    if link:
        bytes_per_s = section["bytes"] / wall_s
        return [f"{bytes_per_s * 8 / 1e6:,.0f}", f"{bytes_per_s / link.bytes_per_s:.0%}"]
    return [f"{gb_per_s(section, wall_s):.3f}", f"{section['files'] / wall_s:,.0f}"]


def _tool_row(section, name, ratios):
    tool = section["tools"][name]
    good = figures.good(tool["runs"])
    wall_s, cpu_s = figures.median(good, "wall_s"), figures.median(good, "cpu_s")
    disturbed = sum(rounds.is_disturbed(meter.Measurement(**run)) for run in good)
    return _row([
        name,
        tool["security"],
        figures.spread([run["wall_s"] for run in good]),
        *_rates(section, wall_s),
        f"{cpu_s:.2f}",
        f"{figures.median(good, 'user_s'):.2f}+{figures.median(good, 'system_s'):.2f}",
        f"{cpu_s / wall_s:.2f}",
        f"{cpu_s / section['bytes'] * 1e9:.3f}",
        _peaks(good),
        *[f"{median_wall_s(section, other) / wall_s:.2f}" for other in ratios],
        f"{len(good)}" + (f" ({disturbed} disturbed)" if disturbed else ""),
    ])


def _ended_row(section, name, width):
    """Of a tool without a good run."""
    tool = section["tools"][name]
    words = next((run["problems"][0] for run in tool["runs"] if run.get("timed_out")), "failed")
    return _row([name, tool["security"], words, *[NONE] * (width - 4), "0"])


def _peaks(runs):
    """Peak memory of each role in MiB, the largest of all rounds."""
    roles = {}
    for run in runs:
        for role, peak in run["peak_rss"].items():
            roles[role] = max(peak, roles.get(role, 0))
    return ", ".join(f"{role} {peak / (1 << 20):.0f}" for role, peak in sorted(roles.items())) or NONE


def _notes(section):
    notes = []
    for name, tool in section["tools"].items():
        notes.append(f"- `{name}`: `{tool['settings']}`")
        for number, run in enumerate(tool["runs"], 1):
            if run["problems"]:
                fate = "was ended" if run.get("timed_out") else "failed"
                notes.append(f"- **{name} {fate}** in round {number}: {'; '.join(run['problems'])}")
    return notes + [f"- `{name}` left out: {reason}" for name, reason in section["missing"].items()]


def _row(cells):
    return "| " + " | ".join(cells) + " |"
