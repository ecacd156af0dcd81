"""tuner.json, and TUNER.md from it: a line for each condition."""

import json
import statistics

from . import tuner_conditions
from .pages import replace, table

JSON_NAME, REPORT_NAME = "tuner.json", "TUNER.md"

INTRODUCTION = """\
# How many readers and connections, found by itself

Written by `bench/tuner`; not edited by hand. Raw data with every decision: `tuner.json`. docs/design/tuner.md says how the tuner decides, and has the figures of
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
known chunk by chunk, in lumps: after a look of 12 s at each fixed setting (8 s of which count) the best three, and the one with the most threads of each number of pairs, are run as long as what is tuned, and from 20 to 60 s count. Goal: 95 % from 20 s on.

"""

SIMPLER_RULES = """\
## Beside simpler rules

Measured on 2026-11-23 on 2 cores of Intel(R) Xeon(R) Processor, commit 1a3c14daa096-dirty (49d0792 in the history), and not again: the rules are no part of carrack any more, only of its
tests with models (docs/design/tuner.md). `tuner.json` keeps the raw data as `rivals`.

One after another, the same program; to 20 s and from there to 60 s, as parts of the best fixed rate of that day. The rules turned one number, to which readers, streams and writers were set within the
tuner's ranges. *One more* each two seconds while that did not take anything; *rise and level*: the paper's rule (Y4), one more where the slope between the last two values was above a tenth of the
average, otherwise one less, each second.

| condition | tuner | one more | rise and level |
| --- | --- | --- | --- |
| fast disk | 108 %, 114 % | 109 %, 110 % | 112 %, 113 % |
| slow disks | 93 %, 99 % | 99 %, 98 % | 99 %, 99 % |
| far storage | 86 %, 97 % | 37 %, 81 % | 44 %, 87 % |
| pipe, 50 ms | 101 %, 100 % | 101 %, 100 % | 101 %, 100 % |
| pipe, 100 ms | 98 %, 101 % | 97 %, 99 % | 97 %, 98 % |
| lossy pipe | 99 %, 98 % | 99 %, 98 % | 98 %, 97 % |
| CPU-bound | 95 %, 103 % | 99 %, 104 % | 109 %, 111 % |
| small files | 80 %, 97 % | 40 %, 70 % | 44 %, 88 % |
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


def setting_words(one):
    """A fixed setting, of a fleet with its pairs."""
    pairs = f"{one['pairs']}: " if "pairs" in one else ""
    return f"{pairs}{one['threads']} × {one['streams']}"


def settings_words(fixed, is_files):
    """All of a grid, with their rates."""
    return "; ".join(f"{setting_words(one)}: {rate(median(one), is_files)}" for one in fixed)


def document(everything):
    """All of TUNER.md."""
    found = [everything[name] for name in tuner_conditions.NAMES if name in everything]
    grid = beside_fixed(found, "grid", GRID, "changes to 20 s; later", change_counts)
    fleet = beside_fixed(found, "fleet", FLEET, "readers × streams of each session then", session_words)
    parts = "".join(f"\n{words}" for words in (grid, fleet, SIMPLER_RULES, steps(found), shares(found)) if words)
    return INTRODUCTION + parts + "\n" + context(found)


def beside_fixed(found, key, text, last_column, last_cell):
    """Of each condition the best that was fixed, what is tuned, and what there was to choose from."""
    words = "pairs: threads × streams" if key == "fleet" else "threads × streams"
    rows, lines = [], []
    for one in found:
        if key not in one:
            continue
        measured, is_files = one[key], one["name"] == "small files"
        top = best(measured)
        whole = median(top)
        runs = measured["tuned"]
        parts = [part(statistics.median(run[time] for run in runs), whole) for time in ("first", "rest")]
        rows.append([one["name"], setting_words(top), rate(whole, is_files), *parts, last_cell(runs)])
        what = f"{measured['what']}. " if "what" in measured else ""
        shortly = f"; in 12 s: {settings_words(measured['shortly'], is_files)}" if "shortly" in measured else ""
        lines.append(f"- {one['name']}: {what}{settings_words(measured['fixed'], is_files)}{shortly}.\n")
    header = ["condition", f"best fixed, {words}", "MB/s", "tuned, to 20 s", "20 to 60 s", last_column]
    all_of = f"\n{words.capitalize()}: MB/s of all that was fixed:\n\n" + "".join(lines)
    return text + table(header, rows) + all_of if rows else ""


def change_counts(runs):
    """How often something was turned up to 20 s, and later."""
    return "; ".join(f"{statistics.median(run[key] for run in runs):.0f}" for key in ("changes", "later_changes"))


def session_words(runs):
    """What each session of a fleet had in the end."""
    return ", ".join(f"{session['readers']} × {session['streams']}" for session in runs[0]["sessions"])


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
