"""tuner.json, and TUNER.md from it: a line for each condition."""

import json
import statistics

from . import tuner_conditions
from .pages import replace, table

JSON_NAME, REPORT_NAME = "tuner.json", "TUNER.md"

INTRODUCTION = """\
# How many readers and connections, found by itself

Written by `bench/tuner`; not edited by hand. Raw data with every decision: `tuner.json`. docs/tuner.md says how the tuner decides, and has the figures of
models. Here are real transfers, `carrack cp` with its defaults and nothing remembered, both ends on one machine; copies go to memory (tmpfs) and are taken
away when they are whole.
"""

GRID = """\
## Beside the best fixed setting

*Best fixed* is the best of the grid (`--tune off --io-threads N --streams M`, a run of 12 s each of which the last 8 count). The tuned transfer begins with the defaults
and runs for 60 s; the parts are those of the best fixed rate. Goal: 95 % from 20 s on.

"""

FLEET = """\
## In a fleet

One mover at each end, of four pairs; the threads of a fixed setting are each pair's. Sessions tune readers and streams while the manager tunes the number of pairs; nothing is remembered. What is done is
known by chunks. Goal: 95 % from 20 s on.

"""

RIVALS = """\
## Beside simpler rules

One after another, the same program; to 20 s and from there to 60 s, as parts of the best fixed rate above. The rules turn one number, to which readers, streams and writers are set within the
tuner's ranges. *One more* each two seconds while that does not take anything; *rise and level*: the paper's rule (Y4), one more where the slope between the last two values is above a tenth of the
average, otherwise one less, each second.

"""

STEPS = """\
## A step

What the condition has (the link's rate, the disks', the inverse of a request's time) is halved at 30 s and doubled at 52 s. Rates from ten seconds after the step until the next one, as
parts of what the best fixed setting has there.

"""

SHARES = """\
## Several on one path

Begun 10 s apart; rates from 60 s to 120 s. Goal: within 10 % of equal. Where all have the same number of streams and nothing is turned, what is not equal is the congestion control's
doing.

"""


def known(directory):
    """What was measured, by condition; nothing when there is no file yet."""
    try:
        return json.loads((directory / JSON_NAME).read_text())
    except FileNotFoundError:
        return {}


def write(directory, name, found):
    """Puts a condition into tuner.json and writes TUNER.md anew from all."""
    directory.mkdir(parents=True, exist_ok=True)
    everything = {**known(directory), name: found}
    replace(directory / JSON_NAME, json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
    replace(directory / REPORT_NAME, document(everything))


def median(fixed):
    """Of a fixed setting's rounds."""
    return statistics.median(fixed["rates"])


def best(grid):
    """The fixed setting with the highest median."""
    return max(grid["fixed"], key=median)


def rate(value, is_files):
    """MB/s, or thousands of files a second."""
    return f"{value / 1e3:.2f} k/s" if is_files else f"{value / 1e6:.0f}"


def part(value, whole):
    """Per cent."""
    return f"{100 * value / whole:.0f} %" if whole else "-"


def settings_words(fixed, is_files):
    """All of a grid: threads × streams: rate."""
    return "; ".join(f"{one['threads']} × {one['streams']}: {rate(median(one), is_files)}" for one in fixed)


def document(everything):
    """All of TUNER.md."""
    found = [everything[name] for name in tuner_conditions.NAMES if name in everything]
    text = INTRODUCTION
    text += "".join(f"\n{words}" for words in (grids(found), fleets(found), rivals(found), steps(found), shares(found)) if words)
    return text + "\n" + context(found)


def grids(found):
    """What each condition's tuned transfers have, and what there was to choose from."""
    rows, lines = [], []
    for one in found:
        if "grid" not in one:
            continue
        grid, is_files = one["grid"], one["name"] == "small files"
        top = best(grid)
        whole = median(top)
        of_tuned = {key: statistics.median(run[key] for run in grid["tuned"]) for key in ("first", "rest", "changes", "later_changes")}
        rows.append(
            [
                one["name"],
                f"{top['threads']} × {top['streams']}",
                rate(whole, is_files),
                part(of_tuned["first"], whole),
                part(of_tuned["rest"], whole),
                f"{of_tuned['changes']:.0f}; {of_tuned['later_changes']:.0f}",
            ]
        )
        lines.append(f"- {one['name']}: {grid['what']}. {settings_words(grid['fixed'], is_files)}.\n")
    header = ["condition", "best fixed, threads × streams", "MB/s", "tuned, to 20 s", "20 to 60 s", "changes to 20 s; later"]
    return GRID + table(header, rows) + "\nThreads × streams: MB/s of all that was fixed:\n\n" + "".join(lines) if rows else ""


def fleets(found):
    """Of each condition the best that was fixed in a fleet, and what is tuned."""
    rows, lines = [], []
    for one in found:
        if "fleet" not in one:
            continue
        fleet, is_files = one["fleet"], one["name"] == "small files"
        top, tuned = best(fleet), fleet["tuned"]
        whole = median(top)
        sessions = ", ".join(f"{session['readers']} × {session['streams']}" for session in tuned["sessions"])
        rows.append(
            [
                one["name"],
                f"{top['pairs']}: {top['threads']} × {top['streams']}",
                rate(whole, is_files),
                part(tuned["first"], whole),
                part(tuned["rest"], whole),
                sessions,
            ]
        )
        words = "; ".join(f"{it['pairs']}: {it['threads']} × {it['streams']}: {rate(median(it), is_files)}" for it in fleet["fixed"])
        lines.append(f"- {one['name']}: {words}.\n")
    header = ["condition", "best fixed, pairs: threads × streams", "MB/s", "tuned, to 20 s", "20 to 60 s", "readers × streams of each session then"]
    return FLEET + table(header, rows) + "\nPairs: threads × streams: MB/s of all that was fixed:\n\n" + "".join(lines) if rows else ""


def rivals(found):
    """Of each condition what the tuner and each rule bring."""
    rows = []
    for one in found:
        if "rivals" in one and "grid" in one:
            whole = median(best(one["grid"]))
            rows.append([one["name"], *(f"{part(run['first'], whole)}, {part(run['rest'], whole)}" for run in one["rivals"])])
    return RIVALS + table(["condition", "tuner", "one more", "rise and level"], rows) if rows else ""


def steps(found):
    """Before, after the halving, after the doubling."""
    rows = []
    for one in found:
        if "steps" in one:
            step = one["steps"]
            parts = [part(step["before"], step["fixed_full"]), part(step["halved"], step["fixed_halved"]), part(step["restored"], step["fixed_full"])]
            rows.append([one["name"], *parts])
    return STEPS + table(["condition", "before", "halved", "restored"], rows) if rows else ""


def shares(found):
    """Of each number of transfers the rates, and how far the worst is from an equal share."""
    rows = []
    for one in found:
        for crowd in one.get("shares", []):
            rates = crowd["rates"]
            equal = sum(rates) / len(rates)
            worst = max(abs(each - equal) / equal for each in rates)
            fixed = crowd.get("fixed")
            how = f"{fixed[1]} streams each, fixed" if fixed else "tuned"
            rows.append([one["name"], crowd["over"], crowd["transfers"], how, ", ".join(f"{each / 1e6:.1f}" for each in rates), f"{100 * worst:.0f} %"])
    return SHARES + table(["condition", "TCP", "transfers", "", "MB/s", "worst from equal"], rows) if rows else ""


def context(found):
    """When and where."""
    lines = {f"{one['told']['date']}, commit {one['told']['commit']}: {one['told']['machine']}." for one in found}
    return "\n".join(sorted(lines)) + "\n"
