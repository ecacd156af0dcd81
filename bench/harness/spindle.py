"""The disk that seeks (`testbed/disks --by spindle`): its model beside published measurements, and what readers get of it."""

import dataclasses
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import network
from .disks import MIB, Disks, make_files

TESTBED = network.ROOT / "testbed"
KIB = 1 << 10
SECONDS = 60
READERS = (1, 2, 4, 8, 16)
# What the readers of one run read together: some seconds.
READ_BYTES = 96 * MIB

SAVVIO = "Seagate, Savvio 10K.4 SAS product manual 100539221 rev. A, section 4.2.1"
ROUND_UP_2010 = "X-bit labs, 3.5-inch round-up of 2010, www.xbitlabs.com/articles/storage/display/hdd-2010_11.html"
ROUND_UP_EXTERNAL = "X-bit labs, external disks, xbitlabs.com/articles/storage/display/160gb-external-hdd_9.html"
CFQ = (
    "V. Goyal, io-controller tests with plain CFQ, people.redhat.com/vgoyal/others/io-controller/test-results/"
    "ioc-iot-ioband-comparision/mult-sequential-reader-vs-mlt-sequential-reader.txt"
)
STREAMS_2009 = (
    "G. Panagiotakis, M. Flouris, A. Bilas, Reducing Disk I/O Performance Sensitivity for Large Numbers of "
    "Sequential Streams, ICDCS 2009, abstract"
)


@dataclasses.dataclass(frozen=True)
class Got:
    """What streams got in a trial; rates in MB/s."""

    all: float
    slowest: float
    fastest: float
    requests_per_s: float
    without_seeks: float


class Trial:
    """The model without a clock: `testbed/spindle-trial.c`, compiled into a directory."""

    def __init__(self, directory):
        self.program = Path(directory) / "spindle-trial"
        sources = [TESTBED / "spindle-trial.c", TESTBED / "spindle.c"]
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", self.program, *sources, "-lm"], check=True)

    def __call__(self, **words):
        options = {"seconds": SECONDS, **words}
        command = [self.program, *(f"{name}={int(value)}" for name, value in options.items())]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return Got(*map(float, done.stdout.split()))


@dataclasses.dataclass(frozen=True)
class Check:
    """A published figure, and the model's; the bounds are wide: other drives than the modelled one were measured."""

    what: str
    published: str
    source: str
    low: float
    high: float
    modelled: Callable[[Trial], float]

    def holds(self, value):
        """Whether the model's figure is within the bounds."""
        return self.low <= value <= self.high


def small(trial, streams, **more):
    """The testers' streams: blocks of 64 KiB, one at a time, far from each other."""
    return trial(streams=streams, request=64 * KIB, **more).all


def slowdown(trial, streams, **more):
    """How much less all streams get together than one alone."""
    return small(trial, 1, **more) / small(trial, streams, **more)


def random_ms(trial):
    """A random read of 4 KiB."""
    return 1e3 / trial(streams=1, request=4 * KIB, random=1, gap_us=0, seconds=600).requests_per_s


def cached(trial, streams):
    """Readers through the page cache, whose read-ahead was 128 KiB then."""
    return trial(streams=streams, request=128 * KIB).all


CHECKS = [
    Check(
        "random reads, ms each (4 KiB)",
        "6.8: seek 3.8, half a turn 3.0", SAVVIO, 6.5, 7.1, random_ms,
    ),
    Check(
        "two streams' sum ÷ one stream's, drives that look ahead",
        "0.5: “slow down by half”", ROUND_UP_2010, 0.35, 0.65, lambda trial: 1 / slowdown(trial, 2),
    ),
    Check(
        "one stream's ÷ two streams' sum, the drives that cope best (--ahead 1M)",
        "below 2: “lowers less than twofold”", ROUND_UP_EXTERNAL, 1.2, 2.0,
        lambda trial: slowdown(trial, 2, ahead=MIB),
    ),
    Check(
        "the same, the drives that cope worst (--ahead 64K)",
        "6: “plummets sixfold”", ROUND_UP_EXTERNAL, 3.5, 8.0, lambda trial: slowdown(trial, 2, ahead=64 * KIB),
    ),
    Check(
        "four streams' sum ÷ two streams'",
        "about 1: “more threads don't affect … much after that”", ROUND_UP_EXTERNAL, 0.7, 1.3,
        lambda trial: small(trial, 4) / small(trial, 2),
    ),
    Check(
        "32 readers' sum ÷ 17 readers' (128 KiB)",
        "0.93: 6.739 + 6.626 against 13.705 + 0.714 MB/s", CFQ, 0.8, 1.15,
        lambda trial: cached(trial, 32) / cached(trial, 17),
    ),
    Check(
        "100 streams' sum, requests of 4 MiB ÷ of 64 KiB",
        "up to 4 by making requests larger", STREAMS_2009, 3.0, 8.0,
        lambda trial: trial(streams=100, request=4 * MIB).all / small(trial, 100),
    ),
]


def checked(trial):
    """Each check with the model's figure."""
    return [(check, check.modelled(trial)) for check in CHECKS]


def read_at_once(disks, readers):
    """MB/s that `readers` get together, each of a file of its own, 1 MiB at a time, past the page cache."""
    count = READ_BYTES // readers // MIB
    files = sorted(disks.paths[0].glob("f*"))
    chosen = [files[place * len(files) // readers] for place in range(readers)]
    disks.forget()
    commands = [["dd", f"if={file}", "of=/dev/null", "bs=1M", f"count={count}", "iflag=direct", "status=none"] for file in chosen]
    start = time.monotonic()
    programs = [subprocess.Popen(command) for command in commands]
    if any(program.wait() for program in programs):
        raise OSError("a reader failed")
    return readers * count * MIB / (time.monotonic() - start) / 1e6


def readers_of(directory, model, rate_bytes_per_s):
    """{readers: MB/s} of one disk."""
    disks = Disks(directory / model, 1, rate_bytes_per_s, model)
    with disks.up(directory / f"{model}-images", (max(READERS) + 4) * READ_BYTES):
        with disks.unlimited():
            make_files(disks.paths, max(READERS), READ_BYTES)
        return {readers: read_at_once(disks, readers) for readers in READERS}
