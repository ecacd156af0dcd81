"""A job that computes on the disks that transfers share, for bench/sharing."""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from . import load_feed, sharing_run
from .regular import Regular
from .shared_disks import PIECES, Reaper

JOB = Path(__file__).resolve().parent / "steady_job.py"
COUNT = 4
# What the job wants of each disk's rate while it reads, how long a unit of its work then takes, and the time between two.
WANTS, BUSY_S, IDLE_S = 0.4, 8.0, 10.0
# Units of the job alone.
UNITS = 2
# Of the daemon's measurements: sites have minutes, and jobs hours.
EVERY_S, WINDOW_S = 1, 4
SAMPLE_S = 0.5
MOST_S = 400
WAYS = {
    "alone": "the job alone",
    "off": "transfers, `--sharing off`",
    "sharing": "transfers that share the disks out",
    "health": "the same, and the load is measured",
    "expected": "the same, and a busy hour is expected",
    "transfers": "transfers that share the disks out, no job",
}


def health(stage, url, history):
    """The daemon's section. All that is read from a disk is asked for; what transfers say that they have read is taken off."""
    return f"""[sharing.health]
prometheus = "{url}"
read_bytes = "rate({load_feed.METRIC}[$window])"
target_name = "{sharing_run.host()}/{{device}}"
every_s = {EVERY_S}
window_s = {WINDOW_S}
capacity = "{stage.disks.array.rate_bytes_per_s} B/s"
history = "{history}"
"""


@contextmanager
def job(stage):
    """The job, for the time of a `with`; yields a list that has its units afterwards."""
    rate = WANTS * stage.disks.array.rate_bytes_per_s
    options = ["--rate", rate, "--busy", BUSY_S, "--idle", IDLE_S, *stage.disks.job_files]
    units = []
    with subprocess.Popen([sys.executable, JOB, *map(str, options)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield units
        finally:
            process.terminate()
        units += json.loads(process.stdout.read())


class Loads(Regular):
    """Notes what the daemon says of each target's load, for the time of a `with`."""

    def __init__(self, socket):
        super().__init__(SAMPLE_S)
        self.seen = []  # (monotonic time, {target: (load, expected)})
        self._socket = socket

    def look(self):
        """What it says now."""
        targets = sharing_run.targets_of(self._socket) or []
        self.seen.append((time.monotonic(), {one["target"]: (one.get("load"), one.get("load_expected")) for one in targets}))


def mean(values):
    """None of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None


def told(seen, units, until_s):
    """The mean load and expected load of all targets while the job read, and while it did not. A measurement is the mean of the
    last seconds: those after each change are left out."""
    busy, idle = [], []
    for place, unit in enumerate(units):
        next_s = units[place + 1]["begun_s"] if place + 1 < len(units) else until_s
        of_unit = sharing_run.between(seen, unit["begun_s"] + WINDOW_S + 2 * EVERY_S, unit["ended_s"])
        of_rest = sharing_run.between(seen, unit["ended_s"] + WINDOW_S + 2 * EVERY_S, min(next_s, until_s))
        busy += [load for _, targets in of_unit for load in targets.values()]
        idle += [load for _, targets in of_rest for load in targets.values()]
    known = {target for _, targets in seen for target, (load, _) in targets.items() if load is not None}
    found = {
        name: {"load": mean(load for load, _ in part if load is not None), "expected": mean(late for _, late in part if late is not None)}
        for name, part in (("busy", busy), ("idle", idle))
    }
    return {**found, "unknown": sorted({target for _, targets in seen for target in targets} - known)}


def percentile(values, part):
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def of_units(units):
    """What the job had."""
    services_s = [service_s for unit in units for service_s in unit["services_s"]]
    if not units:
        return {"units_s": []}
    return {
        "units_s": [unit["ended_s"] - unit["begun_s"] for unit in units],
        "median_ms": percentile(services_s, 0.5) * 1e3,
        "p99_ms": percentile(services_s, 0.99) * 1e3,
    }


def alone(stage):
    """The job, and nothing else."""
    with job(stage) as units:
        time.sleep(UNITS * (BUSY_S + IDLE_S) - IDLE_S / 2)
    if not units:
        raise OSError("the disks are too slow for the job alone")
    return of_units(units)


def beside(stage, sharing, has_job=True, is_told=False):
    """Transfers of all files, and the job meanwhile; and what the daemon is told of load, if it is."""
    copies = stage.disks.copies
    parts = [stage.disks.part(number, COUNT, PIECES) for number in range(COUNT)]
    commands = [[sharing_run.copy_command(stage.carrack, part, copies, sharing, "--quiet")] for part in parts]
    with stage.disks.empty_copies(), (job(stage) if has_job else nullcontext([])) as units:
        loads = Loads(sharing) if is_told else nullcontext()
        with Reaper(copies) as reaper, loads as watched, sharing_run.crowd(commands) as started:
            begun_s = time.monotonic()
            if not sharing_run.wait_until(lambda: not any(one.runs() for one in started), MOST_S, 0.1):
                raise OSError(f"a transfer has not ended within {MOST_S} s")
    ended_s = max(one.end_s for one in started)
    if any(any(one.codes) for one in started) or reaper.bytes != len(stage.disks.files(range(PIECES))) * stage.disks.piece_bytes:
        raise OSError(f"transfers failed: exit codes {[one.codes for one in started]}, {reaper.bytes} bytes")
    units = [unit for unit in units if unit["ended_s"] <= ended_s]
    found = {"seconds": ended_s - begun_s, "together": reaper.bytes / (ended_s - begun_s)}
    if has_job:
        found.update(of_units(units))
    if watched:
        found["told"] = told(watched.seen, units, ended_s)
        if unknown := found["told"]["unknown"]:
            # Prometheus has other names for them than transfers.
            raise OSError(f"the load of {', '.join(unknown)} was never told")
    return found


def with_daemon(stage, directory, more, has_job=True):
    """Beside a daemon of this configuration."""
    with sharing_run.Daemon(stage.carrack, directory, more).up() as daemon:
        return beside(stage, daemon.socket, has_job)


def with_health(stage, directory, port, history=None, device=None):
    """Beside a daemon that hears of load; and what `carrack forecast` says of a device, if there is a past."""
    with load_feed.prometheus(directory, port, WINDOW_S, history) as url:
        more = health(stage, url, "prometheus" if history else "none")
        with sharing_run.Daemon(stage.carrack, directory, more).up() as daemon:
            foretold = forecast(stage, daemon.config, device) if history else None
            return beside(stage, daemon.socket, is_told=True), foretold


def forecast(stage, config, device):
    """`carrack forecast`, without what it expects of each hour."""
    command = [stage.carrack, "forecast", f"{sharing_run.host()}/{device}", "--config", config, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"carrack forecast: {done.stderr.strip()}")
    told_all = json.loads(done.stdout)
    return {name: told_all[name] for name in ("name", "capacity", "history", "methods", "errors")}


def measure(stage, say):
    """Each way once."""
    if missing := load_feed.missing():
        raise OSError(missing)
    devices = [load_feed.device_of(path) for path in stage.disks.array.paths]
    found = {}

    def note(way, one):
        found[way] = one
        say(f"foreground, {WAYS[way]}: {words(one)}")

    note("alone", alone(stage))
    note("off", beside(stage, "off"))
    with tempfile.TemporaryDirectory(prefix="carrack-sharing-") as name, load_feed.exporter(devices) as port:
        directory = Path(name)
        note("transfers", with_daemon(stage, directory, "", has_job=False))
        note("sharing", with_daemon(stage, directory, ""))
        note("health", with_health(stage, directory, port)[0])
        history = directory / "history"
        load_feed.write_history(history, devices, stage.disks.array.rate_bytes_per_s, int(time.time()))
        one, foretold = with_health(stage, directory, port, history, devices[0])
        note("expected", one)
    return {"ways": found, "forecast": foretold}


def words(one):
    """A run in a line."""
    parts = [f"transfers {one['seconds']:.1f} s"] if "seconds" in one else []
    if one.get("units_s") == []:
        parts += ["no unit of the job's work was completed meanwhile"]
    elif "units_s" in one:
        units = ", ".join(f"{seconds:.1f}" for seconds in one["units_s"])
        parts += [f"units {units} s; requests {one['median_ms']:.0f} ms, 99 % within {one['p99_ms']:.0f} ms"]
    for part, words_of_part in (("busy", "while it reads"), ("idle", "while it does not")) if "told" in one else ():
        load, expected = (one["told"][part][name] for name in ("load", "expected"))
        parts.append(f"load {percent(load)} {words_of_part}, expected {percent(expected)}")
    return "; ".join(parts)


def percent(part):
    """Of one, if there is any."""
    return "–" if part is None else f"{part:.0%}"
