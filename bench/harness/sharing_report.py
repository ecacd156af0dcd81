"""sharing.json, and SHARING.md from it: a section for each part of bench/sharing."""

import json
import statistics

from . import load_feed, pages, sharing_classes, sharing_faults, sharing_foreground
from .disks import MIB
from .shared_disks import PIECES

JSON_NAME, REPORT_NAME = "sharing.json", "SHARING.md"
# What the medium of the modelled drive moves, in bytes per second (SPINDLE.md).
DRIVE_BYTES_PER_S = 107.5e6

INTRODUCTION = """\
# Sharing storage targets

Written by `bench/sharing`; not edited by hand. Raw data: `sharing.json`. Each part says its command; `bench/sharing --parts NAME` measures it anew.

The disks are those of `testbed/disks --by spindle` ([SPINDLE.md](SPINDLE.md): the model and its sources), with {pieces} files on each. A transfer is a
process, `carrack cp`, that reads whole files of all disks past the page cache and writes them to memory (tmpfs). Its defaults: 8 I/O
threads, so with 8 disks about one request of 1 MiB at each. Transfers and disks share this machine's cores. "With" is a daemon with `[sharing]`
and its defaults, which the transfers ask; "without" is `--sharing off`.
"""


def load(directory):
    """All sections, none when there is no file yet."""
    try:
        return json.loads((directory / JSON_NAME).read_text())["sections"]
    except FileNotFoundError:
        return {}


def write(directory, new):
    """Puts new sections into sharing.json and writes SHARING.md anew from all."""
    directory.mkdir(parents=True, exist_ok=True)
    sections = {**load(directory), **new}
    pages.replace(directory / JSON_NAME, json.dumps({"sections": sections}, indent=1, ensure_ascii=False) + "\n")
    pages.replace(directory / REPORT_NAME, document(sections))


def document(sections):
    """All of SHARING.md."""
    text = INTRODUCTION.format(pieces=PIECES)
    for name, (title, words) in PARTS.items():
        if name in sections:
            text += f"\n## {title}\n\n{told(sections[name])}\n\n{words(sections[name])}"
    return text


def told(section):
    """Where it comes from, and the disks."""
    scale = DRIVE_BYTES_PER_S / (int(section["rate"].removesuffix("M")) * MIB)
    return (
        f"{section['date']}, commit {section['commit']}, `{section['command']}`: {section['disks']} disks of {section['rate']}iB/s (everything on them, seeks\n"
        f"too, is {scale:.1f} times slower than on the drive that is modelled: a burst of 500 ms is one of {500 / scale:.0f} ms there), files of {section['piece']} MiB.\n"
        f"Machine: {section['machine']}."
    )


def mb(bytes_per_s, digits=0):
    """MB/s."""
    return f"{bytes_per_s / 1e6:.{digits}f}"


def transfers(section):
    """Together, without and with."""
    without = {row["transfers"]: row["together"] for row in section["rows"] if row["way"] == "without"}
    rows = [
        [row["transfers"], row["way"], mb(row["together"]), f"{row['together'] / without[row['transfers']]:.2f}",
         f"{row['fairness']:.4f}", f"{row['spread']:.2f}", len(row["runs"])]
        for row in section["rows"]
    ]
    gains = ", ".join(
        f"{(row['together'] / without[row['transfers']] - 1) * 100:+.0f} % with {row['transfers']}"
        for row in section["rows"] if row["way"] == "with"
    )
    absent = f" Not installed here: {', '.join(section['absent'])}." if section["absent"] else ""
    return (
        f"In short: {gains}.\n\n"
        + pages.table(["transfers", "", "MB/s together", "÷ without", "fairness (Jain)", "last ÷ first", "runs"], rows)
        + f"""
N transfers have an Nth of the files each and begin together (one alone, and other tools, read half of the files). Medians of the runs; without and with
alternate. MB/s together is all bytes by the last transfer's end; fairness is Jain's index of the transfers' mean rates; last ÷ first compares the times
at which they ended. Other tools run once, with a process for each transfer and disk, through the page cache.{absent}
"""
    )


def classes(section):
    """What was guaranteed, and had."""
    rows = []
    for one in section["runs"]:
        sure = one["guaranteed"]
        rows.append([
            f"{one['share']:.0%}: {mb(sure, 1)}" if sure else "nothing",
            mb(one["got"], 1), f"{one['got'] / sure:.1%}" if sure else "", mb(one["worst"], 1),
            f"{mb(statistics.mean(one['others']), 1)} ({mb(min(one['others']), 1)}–{mb(max(one['others']), 1)})",
            mb(one["together"]), f"{one['seconds']:.0f}",
        ])
    header = ["guaranteed, MB/s", "it had", "of its guarantee", f"worst {sharing_classes.WINDOW_S:.0f} s", "each of the others: mean (least–most)",
              "together", "measured s"]
    return pages.table(header, rows) + f"""
One transfer of a class with a `min_rate` and {sharing_classes.OTHERS} of none, on all disks. What is guaranteed is a part of what all had together when nothing was. Measured while
all nine run, from {sharing_classes.SETTLE_S:.0f} s after their beginning on, one run each: what the kernel says that each process has read from the disks (`/proc/PID/io`). The
worst {sharing_classes.WINDOW_S:.0f} s are those in which it had the least. Goal: 95 % of what is guaranteed, on average. Not shown: several guaranteed ones, and guarantees that the
disks can't keep.
"""


def spread(values, digits=2):
    """median (longest), and how many never came."""
    came = [value for value in values if value is not None]
    never = f", {len(values) - len(came)} never" if len(came) < len(values) else ""
    return f"{statistics.median(came):.{digits}f} ({max(came):.{digits}f}){never}" if came else f"–{never}"


def faults(section):
    """What happened, and how long it took until all was as before."""
    rows = []
    for kind, words in sharing_faults.KINDS.items():
        runs = [one for one in section["runs"] if one["kind"] == kind]
        every = {name: [value for one in runs for value in one[name]] for name in ("alone_s", "managed_s", "held_s", "dead_s")}
        worst = {name: max(one[name] for one in runs) for name in runs[0] if name.startswith("pause")}
        bad = sum(one["failed"] for one in runs)
        rows.append([
            words, f"{statistics.median(one['away_s'] for one in runs):.2f}",
            spread(every["alone_s"]), spread(every["managed_s"]), spread(every["held_s"]), spread(every["dead_s"]),
            f"{worst['pause_after_s']:.2f} ({worst['pause_before_s']:.2f})",
            f"{worst['pause_of_one_after_s']:.2f} ({worst['pause_of_one_before_s']:.2f})",
            f"{sum(one['copies'] for one in runs)}, {sum(one['wrong'] for one in runs)} wrong" + (f", **{bad} transfers failed**" if bad else ""),
            len(runs),
        ])
    header = ["fault", "server away", "until transfers go on alone", "until they keep to grants again", "until each target is had again",
              "until the dead one's are had by others", "nothing was read for (before)", "one read nothing for (before)", "copies", "runs"]
    return pages.table(header, rows) + f"""
{sharing_faults.COUNT} transfers run; after {sharing_faults.BEFORE_S:.0f} s comes the fault. Seconds: median (longest) over transfers, or targets, and runs. Going on alone counts from the
fault, by the transfer's own warning; keeping to grants again and having targets count from when there is a server that answers again
(for a dead transfer: from its death), by the transfer's word, which it gives with its counters every 0.5 s, so that these two figures are up to 0.5 s too
long, and by `GET /v1/targets`, asked every {sharing_faults.POLL_S * 1000:.0f} ms. "–" is a warning that nobody gave: a server that was back within a second was not missed. Pauses are the longest ones from the fault until the first transfer's end; in brackets those between
{sharing_faults.SETTLE_S:.1f} s after the beginning and the fault, when nothing was wrong. A transfer that waits its turn everywhere reads nothing either. At the end every copy is
compared with its source, also those of the transfer that was killed, which was started once more and went on where it was.
Not shown: faults of the network between hosts, and of a fleet's NATS.
"""


def foreground(section):
    """What the job and the transfers had of each other, what the daemon was told, and what was foretold."""
    ways, job = section["ways"], sharing_foreground
    alone_s = statistics.mean(ways["alone"]["units_s"])
    rows = []
    for way, words in job.WAYS.items():
        one = ways[way]
        units = one.get("units_s")
        rows.append([
            words, ", ".join(f"{seconds:.1f}" for seconds in units) if units else "none completed" if units == [] else "", f"{statistics.mean(units) / alone_s:.2f}" if units else "",
            f"{one['median_ms']:.0f}" if units else "", f"{one['p99_ms']:.0f}" if units else "",
            f"{one['seconds']:.1f}" if "seconds" in one else "", mb(one["together"]) if "together" in one else "",
        ])
    header = ["", "units of work, s each", "÷ alone", "a request, ms: median", "99 % within", "transfers, s", "MB/s"]
    return (
        f"""The job reads {job.WANTS:.0%} of each disk's rate, in requests of 1 MiB past the page cache, one at a time on each disk; a unit of its work takes {job.BUSY_S:.0f} s if the disks keep
up, then it reads nothing for {job.IDLE_S:.0f} s. {job.COUNT} transfers move all files meanwhile and begin with it; units that ended before them count.

"""
        + pages.table(header, rows)
        + f"""
"The load is measured": a Prometheus (`testbed/prometheus`) reads the kernel's counters of the disks each second, which contain what transfers read; the daemon
asks it every {job.EVERY_S} s for the rate over {job.WINDOW_S} s and takes off what transfers told (`[sharing.health]`, `history = "none"`). "A busy hour is expected": Prometheus knows {load_feed.HISTORY_DAYS} days
of a job with a daily pattern, whose day is now. What the daemon showed (`carrack targets`), means of all disks from {job.WINDOW_S + 2 * job.EVERY_S} s after the job began or ended to read:

"""
        + loads(ways)
        + "\n"
        + foretold(section["forecast"])
        + f"""
Not shown: jobs that write; jobs and windows of minutes. Measurements over {job.WINDOW_S} s come some seconds late, against which units of {job.BUSY_S:.0f} s are short; and as transfers
tell what they have read at other moments than counters are read, a part of it is taken for the job's. Each way ran once.
"""
    )


def loads(ways):
    """What was told, in percent."""
    rows = [
        [sharing_foreground.WAYS[way], *(sharing_foreground.percent(ways[way]["told"][part][name]) for part in ("busy", "idle") for name in ("load", "expected"))]
        for way in ("health", "expected")
    ]
    return pages.table(["", "load while it reads", "expected then", "load while it does not", "expected then"], rows)


def foretold(forecast):
    """How far off the ways of looking ahead would have been."""
    chosen, capacity = forecast["methods"], forecast["capacity"]
    rows = []
    for error in sorted(forecast["errors"], key=lambda error: error["horizon"], reverse=True):
        name = f"**{error['method']}** (chosen)" if error["method"] == chosen[error["horizon"]] else error["method"]
        rows.append([f"the next {error['horizon']}", name, mb(error["mae"], 2),
                     f"{error['mae'] / capacity:.1%}", mb(error["rmse"], 2)])
    return (
        f"""`carrack forecast` of these {forecast['history']['days']:.0f} days, of one disk. The past is made: {load_feed.BUSY:.0%} of each disk for {load_feed.BUSY_HOURS} hours a day that begin up to {load_feed.LATE_S // 60} min
earlier or later, else {load_feed.IDLE:.0%}, each five minutes up to {load_feed.NOISE:.0%} more or less. So the errors show that a pattern is found where there is one, and not how regular jobs are.

"""
        + pages.table(["over", "way", "MAE, MB/s", "of what a disk bears", "RMSE, MB/s"], rows)
    )


PARTS = {
    "transfers": ("Transfers at the same time", transfers),
    "classes": ("A guarantee among others", classes),
    "faults": ("When something fails", faults),
    "foreground": ("A job that computes on the disks", foreground),
}
