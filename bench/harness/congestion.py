"""What `bench/congestion` does: runs movers between memory and slow disks, with other loads beside them.

The disks are `testbed/disks`. On the source side they are the source and the copy goes to tmpfs; on the sink side the
source is on tmpfs. A load moves over the disks, a few at a time, and starts before the run.
"""

import math
import shutil
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import machine, meter, reserve, rounds, servers, verify
from .disks import LOAD_DIRECTORY, MIB, Disks, loading, make_files
from .tool import Case

# The paper's load (LADS, section 5.2): four disks at a time, requests of 4 MiB, four under way.
LOAD_WIDTH = 4
LOAD = ("--block", 4 * MIB, "--depth", 4)
# A load's queue is full after this.
LEAD_S = 1.0
# The objects of the source: what the service time is measured with.
OBJECT_BYTES = MIB
# The paper has 100 files on 32 targets. Many files would fill the source's queues with those of a few directories.
FILES_PER_DISK = 3
# A file system's own blocks, its log, and what is not given back at once.
IMAGE_EXTRA_BYTES = 256 * MIB


@dataclass
class Plan:
    """The sizes of one experiment."""

    disks: int
    rate_bytes_per_s: int
    io_threads: int
    seconds: float  # of an uncongested run that keeps every I/O thread busy
    step_s: float

    def file_bytes(self, io_threads, seconds):
        """Of files that keep so many threads busy for so long, at the speed of one disk each; whole objects."""
        total_bytes = io_threads * self.rate_bytes_per_s * seconds
        objects = round(total_bytes / self.disks / FILES_PER_DISK / OBJECT_BYTES)
        return max(1, objects) * OBJECT_BYTES

    @property
    def image_bytes(self):
        """Twice the data of the largest run: a new copy does not take the old one's blocks. Images are sparse."""
        threads = max(self.disks, self.io_threads)
        return max(512 * MIB, 2 * FILES_PER_DISK * self.file_bytes(threads, self.seconds) + IMAGE_EXTRA_BYTES)


@dataclass
class Run:
    """One measured run: of the mover, and of what went on beside it."""

    bytes: int = 0
    wall_s: float = 0.0
    stored_s: float = 0.0  # until everything was on the disks
    cpu_s: float = 0.0
    busy_cores: float = 0.0  # of the whole machine, loop devices and loads included
    load_mb_per_s: float | None = None
    reader_mb_per_s: float | None = None
    problems: list = field(default_factory=list)

    @property
    def ok(self):
        """Whether the copy is complete and right."""
        return not self.problems


def check_room(directories, file_bytes):
    """Ends the program where the data and a copy don't fit into memory: everybody's programs would be in danger."""
    there = sum(path.stat().st_size for directory in directories for path in directory.glob("f*"))
    wanted_bytes = 2 * len(directories) * FILES_PER_DISK * file_bytes - there + reserve.KEEP_FREE_BYTES
    available_bytes = machine.memory_bytes("MemAvailable")
    if available_bytes < wanted_bytes:
        sys.exit(f"congestion: error: it takes {wanted_bytes >> 20} MiB of memory, there are {available_bytes >> 20} MiB")


def keep_only(directory, file_bytes):
    """Removes files of another size, before new ones take memory beside them."""
    for path in directory.iterdir():
        if path.is_file() and path.stat().st_size != file_bytes:
            path.unlink()


def interleaved(movers, count):
    """(round, mover) of all runs: every round has all movers, and begins with another one."""
    for number in range(count):
        turn = number % len(movers)
        for mover in movers[turn:] + movers[:turn]:
            yield number, mover


def percentiles(services_s):
    """Of service times, in milliseconds."""
    values = sorted(service_s * 1e3 for service_s in services_s)
    if not values:
        return {}
    at = {name: values[min(len(values) - 1, math.floor(share * len(values)))] for name, share in
          (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {"n": len(values), **at, "max": values[-1], "mean": statistics.fmean(values)}


class Side:
    """Disks at one end, memory at the other."""

    name = ""

    def __init__(self, plan, work_dir, timeout_s):
        self.plan = plan
        self.disks = Disks(work_dir / self.name, plan.disks, plan.rate_bytes_per_s)
        self._work_dir = work_dir
        self._timeout_s = timeout_s

    @contextmanager
    def up(self):
        """The disks, for the time of a `with`."""
        with self.disks.up(self._work_dir, self.plan.image_bytes):
            self.prepare()
            yield self

    def prepare(self):
        """What is there once."""

    def rotated(self, paths, number):
        """The same disks, from another one on for each round: a load does not always begin with the first."""
        shift = number * LOAD_WIDTH % len(paths)
        return [*paths[shift:], *paths[:shift]]

    def load_paths(self):
        """What a load reads on each disk."""
        raise NotImplementedError

    def load(self, number):
        """The paper's load, for the time of a `with`."""
        moving = ["--width", LOAD_WIDTH, "--step", self.plan.step_s]
        return loading(self.rotated(self.load_paths(), number), *LOAD, *moving)

    def make_data(self, file_bytes):
        """The files to copy, of this size each."""
        raise NotImplementedError

    def places(self):
        """(source, destination)."""
        raise NotImplementedError

    def run(self, mover, number=0, loaded=False, reader=None, with_contents=False):
        """One run of a mover. `reader` makes another load, of which only the figures are told."""
        source, destination = self.places()
        self.forget()
        scratch = self._work_dir / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        for directory in (scratch, destination):
            directory.mkdir(parents=True, exist_ok=True)
        case = Case("big", source, destination, scratch, servers.free_port())
        with ExitStack() as beside:
            load = beside.enter_context(self.load(number)) if loaded else None
            if loaded:
                time.sleep(LEAD_S)
            read = beside.enter_context(reader()) if reader else None
            busy_s, start_s = machine.busy_s(), time.monotonic()
            measured = meter.measure(mover, case, lambda: None, self._timeout_s, with_peaks=False)
            result = Run(wall_s=measured.wall_s, cpu_s=measured.cpu_s, problems=list(measured.problems))
            result.busy_cores = (machine.busy_s() - busy_s) / (time.monotonic() - start_s)
            self.wait_stored()
            result.stored_s = time.monotonic() - start_s if self.name == "sink" else measured.wall_s
        result.load_mb_per_s = _rate(load)
        result.reader_mb_per_s = _rate(read)
        self._check(mover, case, result, with_contents)
        self.clear_copy()
        return result

    def _check(self, mover, case, result, with_contents):
        wanted, found = self.listings(case)
        result.bytes = wanted.total_bytes
        if result.ok:
            result.problems = verify.compare_sizes(wanted, found)
        if with_contents and result.ok:
            with self.disks.unlimited():
                result.problems = verify.compare_contents(case.source, mover.copy_of(case), wanted)

    def listings(self, case):
        """What was to be copied and what was, without what loads work on."""
        found = verify.list_tree(case.destination)
        for path in [path for path in found.files if LOAD_DIRECTORY in path.split("/")]:
            del found.files[path]
        return verify.list_tree(case.source), found

    def forget(self):
        """Caches are cold."""

    def wait_stored(self):
        """Everything that was copied is on the disks."""

    def clear_copy(self):
        """The next run finds nothing."""


def _rate(figures):
    """Of a load that has ended, in MB/s."""
    return figures["bytes"] / figures["seconds"] / 1e6 if figures else None


class SourceSide(Side):
    """The source is on the disks, and so is what loads read."""

    name = "source"

    def places(self):
        return self.disks.directory, self._work_dir / "copy"

    def make_data(self, file_bytes):
        with self.disks.unlimited():
            for path in self.disks.paths:
                keep_only(path, file_bytes)
            self.disks.trim()
            check_room(self.disks.paths, file_bytes)
            make_files(self.disks.paths, FILES_PER_DISK, file_bytes)

    def forget(self):
        self.disks.sync()
        self.disks.forget()

    def clear_copy(self):
        shutil.rmtree(self._work_dir / "copy", ignore_errors=True)

    def load_paths(self):
        return self.disks.paths

    def reader(self, disks):
        """Somebody else who reads some disks, one request of an object's size under way on each."""
        return loading(disks, "--block", OBJECT_BYTES, "--depth", 1)


class SinkSide(Side):
    """The copy goes to the disks; loads read, as in the paper."""

    name = "sink"

    def prepare(self):
        self.disks.make_load_files()

    def places(self):
        return self._work_dir / "input", self.disks.directory

    def make_data(self, file_bytes):
        directories = [self._work_dir / "input" / path.name for path in self.disks.paths]
        check_room(directories, file_bytes)
        make_files(directories, FILES_PER_DISK, file_bytes)

    def wait_stored(self):
        self.disks.sync()

    def clear_copy(self):
        self.disks.clear()

    def load_paths(self):
        return self.disks.load_paths()


def alone(side, disks, seconds):
    """The rate of the reader with nobody beside, in MB/s."""
    with side.reader(disks) as read:
        time.sleep(seconds)
    return _rate(read)


def service_times(side, depth=1, loaded=False, disks=LOAD_WIDTH, seconds=6.0):
    """Percentiles of direct requests of an object on the first disks, as this end makes them, and the rate of each."""
    paths = side.load_paths()[:disks]
    writes = ["--write"] if side.name == "sink" else []
    with ExitStack() as stack:
        load = stack.enter_context(loading(paths, *LOAD)) if loaded else None
        time.sleep(LEAD_S)
        with loading(paths, "--block", OBJECT_BYTES, "--depth", depth, *writes) as own:
            time.sleep(seconds)
    told = {"depth": depth, "loaded": loaded, **percentiles(own["services_s"])}
    told["mb_per_s_each"] = _rate(own) / disks
    if load:
        told["load_mb_per_s_each"] = _rate(load) / disks
    return told


def say_run(section, number, name, run):
    """Progress."""
    words = f"{run.wall_s:.2f} s" if run.ok else f"FAILED: {'; '.join(run.problems)}"
    stored = f", stored after {run.stored_s:.2f} s" if run.stored_s - run.wall_s > 0.1 else ""
    load = f", load {run.load_mb_per_s:.0f} MB/s" if run.load_mb_per_s is not None else ""
    reader = f", reader {run.reader_mb_per_s:.0f} MB/s" if run.reader_mb_per_s is not None else ""
    rounds.say(f"{section} round {number + 1} {name}: {words}{stored}{load}{reader}, {run.busy_cores:.2f} cores busy")
