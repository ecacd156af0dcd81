"""The schedule: interleaved rounds, an idle machine before each run, repeats of disturbed runs."""

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import machine, meter, network, servers, verify
from .reserve import Reserve
from .tool import Case

# Others may take this share of a core during a run; BASELINE's figure.
FOREIGN_CORES = 0.10
# A disturbed run is repeated so often at most, and then kept and marked.
ATTEMPTS = 4
# How often a slow memory probe is waited out before a run.
PROBE_TRIES = 5
PROBE_PAUSE_S = 2.0
# The reserve has to cover what a run allocates beside file contents: inodes, buffers, sockets.
RESERVE_EXTRA_BYTES = 256 << 20
RESERVE_EXTRA_PER_FILE_BYTES = 2048
# This part more is held, where there is room: every two seconds of a run the host takes some of what is still free.
RESERVE_SPARE = 0.6
# A smaller gap in the reserve decides nothing.
RESERVE_GAP_BYTES = 64 << 20


@dataclass
class Options:
    """What the command line says about how to measure."""

    rounds: int
    once_above_s: float  # a tool whose run took longer is not run again
    idle_timeout_s: float
    run_timeout_s: float
    work_dir: Path


def say(message):
    """Progress; stdout is for data."""
    print(message, file=sys.stderr, flush=True)


class Bench:
    """Runs all tools over one workload after the other."""

    def __init__(self, options, chosen_tools):
        self._options = options
        self._tools = chosen_tools
        self._network = network.LOOPBACK
        self._probe = machine.MemoryProbe()
        self._reserve = Reserve()

    def run(self, workload, between=network.LOOPBACK):
        """All rounds of one workload over one network: {tool name: [Measurement of each round]}."""
        self._network = between
        results = {tool.name: [] for tool in self._tools}
        for number in range(self._options.rounds):
            turn = number % len(self._tools)
            for tool in self._tools[turn:] + self._tools[:turn]:
                if any(run.wall_s > self._options.once_above_s for run in results[tool.name]):
                    continue
                measurement = self._run_until_undisturbed(tool, workload, first_round=number == 0)
                results[tool.name].append(measurement)
                self._report_progress(number, workload, tool, measurement)
        return results

    def _report_progress(self, number, workload, tool, measurement):
        link = self._network.link
        over = f" over {link.words}" if link else ""
        place = f"{workload.name}{over} round {number + 1}/{self._options.rounds} {tool.name}"
        if measurement.ok:
            rate = workload.listing.total_bytes / measurement.wall_s / 1e9
            flag = " (disturbed)" if is_disturbed(measurement) else ""
            say(f"{place}: {measurement.wall_s:.2f} s, {rate:.3f} GB/s, {measurement.cpu_s:.2f} CPU s{flag}")
        else:
            say(f"{place}: FAILED: {'; '.join(measurement.problems)}")

    def _run_until_undisturbed(self, tool, workload, first_round):
        for _ in range(ATTEMPTS):
            measurement = self._run_once(tool, workload, first_round)
            if not measurement.ok or not is_disturbed(measurement):
                break
        return measurement

    def _run_once(self, tool, workload, first_round):
        run_dir = self._options.work_dir / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        copy, scratch = run_dir / "copy", run_dir / "scratch"
        case = Case(workload.kind, workload.source, copy, scratch, servers.free_port(), self._network)
        for directory in (case.destination, case.scratch):
            directory.mkdir(parents=True)
        self._network.refresh()
        self._fill_reserve(workload)
        probe, slow = self._wait_for_a_quiet_moment()
        timeout_s = self._options.run_timeout_s
        measurement = meter.measure(tool, case, self._reserve.release, timeout_s, with_peaks=first_round)
        self._reserve.release()
        measurement.probe_gb_per_s, measurement.slow_probe = probe, slow
        if measurement.ok:
            measurement.problems = check(tool, workload, case, with_contents=first_round)
        shutil.rmtree(run_dir, ignore_errors=True)
        return measurement

    def _fill_reserve(self, workload):
        per_file_bytes = RESERVE_EXTRA_PER_FILE_BYTES * len(workload.listing.files)
        needed_bytes = int(workload.allocated_bytes * 1.02) + RESERVE_EXTRA_BYTES + per_file_bytes
        spare_bytes = int(needed_bytes * RESERVE_SPARE)
        gap_bytes = self._reserve.fill(needed_bytes + spare_bytes) - spare_bytes
        if gap_bytes > RESERVE_GAP_BYTES:
            say(f"{workload.name}: the reserve is {gap_bytes >> 20} MiB short: new memory may be dear in this run")

    def _wait_for_a_quiet_moment(self):
        """Idle machine, usual memory speed: (GB/s of the probe, whether it is slow all the same)."""
        if self._options.idle_timeout_s > 0:
            self._reserve.settle()
        for attempt in range(PROBE_TRIES):
            machine.wait_until_idle(self._options.idle_timeout_s)
            rate = self._probe.measure()
            if not self._probe.is_slow(rate) or self._options.idle_timeout_s == 0:
                break
            if attempt + 1 < PROBE_TRIES:
                time.sleep(PROBE_PAUSE_S)
        return rate, self._probe.is_slow(rate)


def is_disturbed(measurement):
    """Whether others took part of the machine."""
    return measurement.foreign_cores > FOREIGN_CORES or measurement.slow_probe


def check(tool, workload, case, with_contents):
    """Problems of a finished copy."""
    copy = tool.copy_of(case)
    if not copy.is_dir():
        return [f"nothing is at {copy.name}"]
    found = verify.list_tree(copy)
    problems = verify.compare_sizes(workload.listing, found, tool.follows_links)
    if tool.keeps_metadata and with_contents:
        problems += verify.compare_metadata(workload.listing, found)
    if with_contents and not problems:
        problems = verify.compare_contents(case.source, copy, workload.listing)
    return problems
