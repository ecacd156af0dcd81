"""`testbed/disks` for benchmarks: disks with files on them, caches that are cold, and the loads beside a run."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import network

DISKS = network.ROOT / "testbed" / "disks"
LOAD = Path(__file__).resolve().parent / "disk_load.py"
MIB = 1 << 20
# At the sink, what a load reads lies beside the copy.
LOAD_DIRECTORY = "load"
LOAD_BYTES = 16 * MIB
# Incompressible, and every file has another part of it.
NOISE_BYTES = 64 * MIB
# Waits for a word, or for the end of who would say it, however that comes: 32 disks that nobody takes down hold gigabytes.
WATCHER = """
read -r word || true
tries=0
until "$0" down "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || exit 1
    sleep 1
done
[ "$word" = done ] || rm -rf --one-file-system "$2"
"""


class Disks:
    """Disks below one directory, while they are up.

    `model` is what `testbed/disks --by` takes, `more` are options of its `up` beside those that are made here.
    """

    def __init__(self, directory, count, rate_bytes_per_s, model="queue", more=()):
        self.directory = Path(directory)
        self.paths = [self.directory / f"d{number:02}" for number in range(count)]
        self.rate_bytes_per_s = rate_bytes_per_s
        self.model = model
        self.more = list(more)

    @staticmethod
    def missing():
        """Why there can be no disks here, or None."""
        if os.geteuid() != 0:
            return "it needs root"
        if not Path("/dev/fuse").exists():
            return "there is no /dev/fuse"
        absent = [program for program in ("losetup", "mkfs.xfs", "fstrim", "cc") if not shutil.which(program)]
        return f"not installed: {', '.join(absent)}" if absent else None

    def _call(self, verb, *words):
        subprocess.run([DISKS, verb, self.directory, *map(str, words)], check=True)

    @contextmanager
    def up(self, images, size_bytes):
        """The disks, for the time of a `with`."""
        options = {
            "--count": len(self.paths),
            "--size": size_bytes,
            "--rate": self.rate_bytes_per_s,
            "--by": self.model,
            "--images": images,
        }
        # A session of its own: what ends this program from the terminal doesn't end the watcher.
        command = ["sh", "-c", WATCHER, DISKS, self.directory, images]
        watcher = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        try:
            self._call("up", *(word for option in options.items() for word in option), *self.more)
            yield self
        finally:
            watcher.communicate("done\n")
            if watcher.returncode:
                raise OSError(f"the disks at {self.directory} are not down")

    @contextmanager
    def unlimited(self):
        """No limits for the time of a `with`: to make data, or to compare it."""
        self._call("rate", "all", 0)
        try:
            yield
            self.sync()
        finally:
            self._call("rate", "all", self.rate_bytes_per_s)

    def sync(self):
        """Everything that was written is on the disks; all work at the same time."""
        with ThreadPoolExecutor(len(self.paths)) as pool:
            list(pool.map(_syncfs, self.paths))

    def clear(self):
        """Takes away what was copied here; the images give the memory back."""
        with self.unlimited():
            for path in self.paths:
                for entry in path.iterdir():
                    if entry.name != LOAD_DIRECTORY:
                        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            self.trim()

    def trim(self):
        """The images give back the memory of what was removed."""
        self.sync()
        for path in self.paths:
            subprocess.run(["fstrim", path], check=True)

    def forget(self):
        """The page cache holds none of the files."""
        for path in self.paths:
            for name in path.rglob("*"):
                if name.is_file():
                    _forget(name)

    def make_load_files(self):
        """What a load reads where there are no other files."""
        with self.unlimited():
            for path in self.paths:
                (path / LOAD_DIRECTORY).mkdir()
                (path / LOAD_DIRECTORY / "blocks").write_bytes(bytes(LOAD_BYTES))

    def load_paths(self):
        """The directories of `make_load_files`."""
        return [path / LOAD_DIRECTORY for path in self.paths]


def make_files(directories, count, file_bytes):
    """`count` files in each directory and no others, incompressible; those that are there already stay."""
    noise = os.urandom(NOISE_BYTES)
    for place, directory in enumerate(directories):
        wanted = {f"f{number:03}": number for number in range(count)}
        directory.mkdir(parents=True, exist_ok=True)
        for entry in directory.iterdir():
            if entry.is_file() and entry.name not in wanted:
                entry.unlink()
        for name, number in wanted.items():
            path = directory / name
            if not path.exists() or path.stat().st_size != file_bytes:
                start = (place * 7919 + number * 104729) % (NOISE_BYTES - 1)
                _write(path, noise, start, file_bytes)


def _write(path, noise, start, size_bytes):
    with open(path, "wb", buffering=0) as file:
        while size_bytes:
            part = noise[start : start + size_bytes]
            file.write(part)
            size_bytes -= len(part)
            start = 0


@contextmanager
def loading(paths, *options):
    """A load of `disk_load.py` beside what runs in the `with`; yields a dictionary that has its figures afterwards."""
    command = [sys.executable, str(LOAD), *map(str, options), *map(str, paths)]
    figures = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline().strip() != "ready":
                raise OSError("the load does not start")
            yield figures
        finally:
            process.terminate()
        figures.update(json.loads(process.stdout.read()))


def _forget(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _syncfs(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs", str(path))
    finally:
        os.close(descriptor)
