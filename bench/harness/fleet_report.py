"""fleet.json, and FLEET.md from it."""

import json

from . import figures, pages
from .fleet import GOODPUT, MTU

JSON_NAME, REPORT_NAME = "fleet.json", "FLEET.md"
GOAL = 0.95

INTRODUCTION = """\
# A fleet whose movers are not alike

Written by `bench/fleet`; what lies below "Notes" is kept. Raw data: `fleet.json`.

As in figures 6 and 9 of the movers' paper: four movers at each of two sites, some with faster links than others, and a
number of transfers at once, of one incompressible file each. Each mover is in a network namespace (and has a host name)
of its own; `tbf` limits what goes to it and what comes from it. The data is on tmpfs. The ratio is bytes ÷ time ÷ the
sum of the links of one site's movers; the time is from the first submission to the last transfer's end, with the scan,
the pairing and the close. Of a link's rate {goodput:.1%} can be data: headers take the rest of frames of {mtu} bytes. The
tail is from the moment at which the first source mover's link was idle for good to that of the last one's, the close
from there to the end (to half a second). A way with a size has it as `carrack submit --chunk-size`. Static striping has
a pair for each host of a site, and less data (`--static-share`), as its rate does not depend on that. It is made without a
fleet: of each file each pair has an equal part, which a `carrack cp --offset --length` of its own moves between the pair's
hosts, four at once (`--pairs`); its chunks are these parts. Sections of 2026-11-22 have it as the option of `carrack submit`
that there was at their commits: chunks of each transfer dealt to as many pairs beforehand.
"""


def load(directory):
    """All sections, none when there is no file yet."""
    try:
        return json.loads((directory / JSON_NAME).read_text())["sections"]
    except FileNotFoundError:
        return {}


def write(directory, new):
    """Puts new sections into fleet.json and writes FLEET.md anew from all, with its notes."""
    directory.mkdir(parents=True, exist_ok=True)
    sections = {**load(directory), **new}
    pages.replace(directory / JSON_NAME, json.dumps({"sections": sections}, indent=1, ensure_ascii=False) + "\n")
    pages.replace(directory / REPORT_NAME, document(sections, notes(directory / REPORT_NAME)))


def notes(path):
    """What somebody wrote under "Notes"."""
    text = path.read_text() if path.exists() else ""
    return text[text.index("## Notes\n"):] if "## Notes\n" in text else ""


def title(name, section):
    """Of the links, and what the section was called."""
    rates = section["plan"]["rates_mbit"]
    alike = "all alike" if len(set(rates)) == 1 else "not alike"
    words = f"Links of {', '.join(f'{rate:g}' for rate in rates)} Mbit/s: {alike}"
    return words if name == ",".join(f"{rate:g}" for rate in rates) else f"{words} ({name})"


def document(sections, kept=""):
    """All of FLEET.md."""
    lines = [INTRODUCTION.format(goodput=GOODPUT, mtu=MTU)]
    for name, section in sections.items():
        lines += [f"## {title(name, section)}", "", told(section), "", *table(section), *movers(section), *troubles(section)]
    return "\n".join([*lines, kept]) if kept else "\n".join(lines)


def told(section):
    """Where it comes from."""
    where = f"{section['date']}, commit {section['commit']}, `{section['command']}`."
    return f"{where} Machine: {section['machine']}."


def rows(section):
    """(transfers, way, runs)."""
    return [(row["transfers"], row["way"], row["runs"]) for row in section["rows"]]


def median(runs, key):
    """Of the good runs, or None."""
    good = figures.good(runs)
    return figures.median(good, key) if good else None


def table(section):
    """On-demand chunks and static striping, side by side."""
    header = ["transfers", "way", "GiB", "wall s: median (min–max)", "MB/s", "of the links", f"≥ {GOAL:.0%}", "tail s", "close s",
              "chunks", "MiB moved twice", "cores busy", "n"]
    lines = [header, ["---"] * len(header)]
    for transfers, way, runs in rows(section):
        good = figures.good(runs)
        if not good:
            lines.append([transfers, way, *["–"] * 3, "failed", *["–"] * 6, len(runs)])
            continue
        ratio = median(runs, "ratio")
        is_goal = way.startswith("on-demand")
        lines.append([
            transfers, way, f"{median(runs, 'bytes') / (1 << 30):.2f}", figures.spread([run["wall_s"] for run in good], 1),
            f"{median(runs, 'bytes') / median(runs, 'wall_s') / 1e6:.1f}", f"{ratio:.1%}",
            ("yes" if ratio >= GOAL else "**no**") if is_goal else "", f"{median(runs, 'tail_s'):.1f}",
            f"{median(runs, 'close_s'):.1f}",
            f"{median(runs, 'chunks'):.0f}", f"{median(runs, 'moved_twice') / (1 << 20):.0f}",
            f"{median(runs, 'busy_cores'):.2f}", len(good),
        ])
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines] + [""]


def movers(section):
    """What each source mover did in the first good run."""
    rates_mbit = section["plan"]["rates_mbit"]
    names = " | ".join(f"{rate:g} Mbit/s" for rate in rates_mbit)
    lines = [
        "Source movers in the first good run: share of the link used over the whole run, when it last worked, chunks.", "",
        f"| transfers | way | {names} | pairs |", "| --- " * (3 + len(rates_mbit)) + "|",
    ]
    for transfers, way, runs in rows(section):
        good = figures.good(runs)
        if good:
            did = good[0]["movers"].values()
            cells = [f"{one['link_use']:.0%}, {one['last_work_s']:.0f} s, {one['chunks']}" for one in did]
            kinds = pair_kinds(good[0]["pairs"], rates_mbit)
            lines.append(f"| {transfers} | {way} | {' | '.join(cells)} | {kinds} |")
    return [*lines, ""]


def pair_kinds(pairs, rates_mbit):
    """How many pairs there ever were between links of two rates."""
    counts = {}
    for name, count in pairs.items():
        rates = [rates_mbit[int(end[-1]) - 1] if end[-1].isdigit() and len(end) < 8 else 0 for end in name.split()]
        words = "→".join(f"{rate:g}" for rate in rates)
        counts[words] = counts.get(words, 0) + count
    return ", ".join(f"{count} × {words}" for words, count in sorted(counts.items(), reverse=True))


def troubles(section):
    """What did not go well."""
    lines = [
        f"- **{transfers} transfers, {way}, failed**: {'; '.join(run['problems'])}"
        for transfers, way, runs in rows(section) for run in runs if run["problems"]
    ]
    return [*lines, ""] if lines else []
