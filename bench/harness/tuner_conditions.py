"""What transfers meet in bench/tuner: storage and networks of which each likes another number of readers or connections."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import network
from .disks import DISKS, MIB, Disks
from .shared_disks import Reaper

STORAGE = network.ROOT / "testbed" / "storage"
WAN = network.ROOT / "testbed" / "wan"

# Content that files share by links: a transfer reads each of them.
CONTENT_FILES = 8
CONTENT_BYTES = 128 * MIB
# Enough for the fastest condition's time.
LINKS = 1_800

# On each disk; all of them lie in the same place.
DISK_FILES = 6
DISK_FILE_BYTES = 512 * MIB

SMALL_FILES = 240_000
SMALL_DIRECTORIES = 2_400
SMALL_BYTES = 4_096


@dataclass
class Condition:
    """What one is, while it is there."""

    name: str
    what: str
    grid: list  # of (threads, streams)
    sources: list
    options: list = field(default_factory=list)
    prefix: list = field(default_factory=list)
    shell: object = network.DIRECT_SHELL
    host: str = "here"
    counted: str = "bytes_done"
    # What a fixed number of threads reads is one target.
    is_one_target: bool = False
    # Takes a factor: what the condition has becomes so many times the first; None where nothing can change it.
    set_rate: object = None
    # Takes the name of a congestion control, which new connections have; None where there is no network.
    set_congestion_control: object = None
    # Before a run: caches are cold.
    forget: object = None
    _number: int = 0

    @contextmanager
    def fresh(self, directory):
        """A place for copies, which are taken away as soon as they are whole."""
        if self.forget:
            self.forget()
        self._number += 1
        place = directory / f"copies-{self._number}"
        try:
            with Reaper(directory):
                yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            shutil.rmtree(f"{place}-state", ignore_errors=True)


def many_files(directory):
    """Directories of links to the same few contents, in memory."""
    content = directory / "content"
    content.mkdir(parents=True)
    for number in range(CONTENT_FILES):
        (content / f"c{number}").write_bytes(os.urandom(CONTENT_BYTES))
    files = directory / "files"
    files.mkdir()
    for number in range(LINKS):
        os.link(content / f"c{number % CONTENT_FILES}", files / f"p{number:05}")
    return files


def small_files(directory):
    """A tree of small files."""
    noise = os.urandom(2 * SMALL_BYTES)
    for number in range(SMALL_DIRECTORIES):
        (directory / f"d{number:04}").mkdir(parents=True)
    for number in range(SMALL_FILES):
        name = directory / f"d{number % SMALL_DIRECTORIES:04}" / f"s{number}"
        name.write_bytes(noise[number % SMALL_BYTES :][: number % SMALL_BYTES])


@contextmanager
def memory(files, protection, name, what):
    """From memory to memory over loopback."""
    grid = [(1, 1), (2, 1), (2, 2), (2, 4), (4, 2), (4, 4)]
    yield Condition(name, what, grid, [files], ["--protection", protection])


@contextmanager
def pipe(work, files, round_trip_ms, loss_percent, name):
    """Over an emulated path of 1 Gbit/s, from memory to memory."""
    if reason := network.Wan.missing():
        raise OSError(reason)
    link = network.Link(round_trip_ms, 1000, loss_percent)
    with network.Wan(link, work / "wan").up() as wan:

        def set_rate(factor):
            subprocess.run([WAN, "rate", work / "wan", f"{link.rate_mbit * factor:g}"], check=True)

        def set_congestion_control(name):
            subprocess.run([WAN, "tcp", work / "wan", name], check=True)

        yield Condition(
            name,
            f"{link.words}, from memory to memory",
            [(2, streams) for streams in (1, 2, 4, 8, 16, 32)],
            [files],
            ["--protection", "clear"],
            prefix=wan.near([]),
            shell=wan.shell,
            host=wan.host,
            set_rate=set_rate,
            set_congestion_control=set_congestion_control,
            forget=wan.refresh,
        )


@contextmanager
def seeking_disks(work):
    """Eight disks that seek, read past the page cache."""
    count, rate = 8, 32 * MIB
    array = Disks(work / "disks", count, rate, "spindle")
    images = work / "images"
    images.mkdir()
    with array.up(images, DISK_FILE_BYTES + 200 * MIB):
        with array.unlimited():
            noise = os.urandom(DISK_FILE_BYTES)
            for path in array.paths:
                (path / "p0").write_bytes(noise)
                for number in range(1, DISK_FILES):
                    subprocess.run(["cp", "--reflink=always", path / "p0", path / f"p{number}"], check=True)

        def set_rate(factor):
            subprocess.run([DISKS, "rate", array.directory, "all", str(int(rate * factor))], check=True)

        yield Condition(
            "slow disks",
            f"{count} disks that seek, {rate // MIB} MiB/s each (`testbed/disks --by spindle`), read past the page cache",
            [(threads, 2) for threads in (2, 4, 8, 16, 32, 64)],
            array.paths,
            ["--protection", "clear", "--source-io", "direct"],
            set_rate=set_rate,
            forget=array.forget,
        )


@contextmanager
def double(work, *rules, threads):
    """The storage double with what is in `work`/served; yields its directory."""
    directory = work / "storage"
    directory.mkdir()
    words = ["--direct", "--threads", str(threads), "--from", str(work / "served")]
    for rule in rules:
        words += ["--rule", rule]
    try:
        subprocess.run([STORAGE, "up", directory, *words], check=True, stdout=subprocess.DEVNULL)
        yield directory
    finally:
        subprocess.run([STORAGE, "down", directory], check=True)


@contextmanager
def far_storage(work):
    """Storage that takes its time for each request, and serves 32 at once."""
    served = work / "served"
    served.mkdir()
    for number in range(8):
        (served / f"c{number}").write_bytes(os.urandom(CONTENT_BYTES))
    try:
        with double(work, "delay=50:read:count=all", threads=32) as directory:
            files = directory / "mnt" / "files"
            files.mkdir()
            for number in range(400):
                os.link(directory / "mnt" / f"c{number % 8}", files / f"p{number:05}")

            def set_rate(factor):
                for words in (["clear"], ["rule", f"delay={50 / factor:.0f}:read:count=all"]):
                    subprocess.run([STORAGE, "ask", directory, *words], check=True, stdout=subprocess.DEVNULL)

            yield Condition(
                "far storage",
                "storage that takes 50 ms for each read and serves 32 at once (`testbed/storage`)",
                [(threads, 2) for threads in (2, 4, 8, 16, 32, 64)],
                [files],
                ["--protection", "clear"],
                is_one_target=True,
                set_rate=set_rate,
            )
    finally:
        shutil.rmtree(served)


@contextmanager
def small(work):
    """Small files on storage that takes its time to open one."""
    served = work / "served"
    small_files(served / "tree")
    try:
        with double(work, "delay=10:open:count=all", threads=32) as directory:
            yield Condition(
                "small files",
                f"{SMALL_FILES:,} files of 0 to {SMALL_BYTES} bytes, on storage that takes 10 ms to open one and serves 32 at once; files/s",
                [(threads, 2) for threads in (2, 4, 8, 16, 32, 64)],
                [directory / "mnt" / "tree"],
                ["--protection", "clear"],
                counted="entries_done",
                is_one_target=True,
            )
    finally:
        shutil.rmtree(served)


# Each is made in a directory of its own; those of the second kind read files in memory.
WITH_STORAGE = {"disks": seeking_disks, "far": far_storage, "small": small}
FROM_MEMORY = {
    "memory": lambda _, files: memory(files, "clear", "fast disk", "from memory to memory over loopback, clear"),
    "pipe50": lambda own, files: pipe(own, files, 50, 0, "pipe, 50 ms"),
    "pipe100": lambda own, files: pipe(own, files, 100, 0, "pipe, 100 ms"),
    "lossy": lambda own, files: pipe(own, files, 20, 0.1, "lossy pipe"),
    "private": lambda _, files: memory(files, "private", "CPU-bound", "the same, sealed: both cores are busy"),
}
NAMES = ["memory", "disks", "far", "pipe50", "pipe100", "lossy", "private", "small"]


@contextmanager
def make(name, work_dir):
    """The condition of this name, and an empty directory for copies, for the time of a `with`."""
    with tempfile.TemporaryDirectory(prefix=f"carrack-tuner-{name}-", dir=work_dir) as directory:
        own, copies = Path(directory) / "own", Path(directory) / "copies"
        own.mkdir()
        copies.mkdir()
        if name in WITH_STORAGE:
            making = WITH_STORAGE[name](own)
        else:
            making = FROM_MEMORY[name](own, many_files(own / "memory"))
        with making as condition:
            yield condition, copies
