"""The input sets, made by testbed/input."""

import dataclasses
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import machine, network, reserve, verify

INPUT = network.ROOT / "testbed" / "input"
MIB = 1 << 20
GIB = 1 << 30
SMALLEST_FILE_BYTES = MIB
# What tmpfs takes for directories, inodes and the last page of a file.
ROOM_FACTOR = 1.03


@dataclass(frozen=True)
class Spec:
    """What a set is made of. `count` and `bytes_each` (of memory, about) say how large it gets."""

    kind: str  # what peers' settings are chosen by: big, mib or linux
    input: str  # testbed/input's kind
    words: str
    count: int
    bytes_each: int

    def scaled(self, scale):
        """The same with less in it, to try the harness: smaller files, or fewer."""
        if scale == 1:
            return self
        if self.input == "big":
            return dataclasses.replace(self, bytes_each=max(SMALLEST_FILE_BYTES, int(self.bytes_each * scale)))
        count = max(1, int(self.count * scale))
        if self.input == "linux":  # a part of the tree would take as long to unpack as all of it
            return dataclasses.replace(KNOWN["small"], count=count)
        return dataclasses.replace(self, count=count)

    @property
    def arguments(self):
        """testbed/input's."""
        return {"linux": [], "big": [str(self.count), str(self.bytes_each)]}.get(self.input, [str(self.count)])

    @property
    def title(self):
        """The words, with the numbers in them."""
        return self.words.format(count=f"{self.count:,}", size=binary_size(self.bytes_each))

    @property
    def room_bytes(self):
        """Memory that the set and a copy of it take, and that the tools have to have beside."""
        return int(2 * self.count * self.bytes_each * ROOM_FACTOR) + reserve.KEEP_FREE_BYTES


KNOWN = {
    "big": Spec("big", "big", "{count} files of {size}, incompressible", 4, GIB),
    "one8g": Spec("big", "big", "{count} file of {size}, incompressible", 1, 8 * GIB),
    "mib": Spec("mib", "mib", "{count} files of {size} in 20 directories, incompressible", 2000, MIB),
    "mixed": Spec("mib", "mixed", "{count} files with the size distribution of the LADS paper", 2000, 2_300_000),
    "linux": Spec("linux", "linux", "the Linux 6.1 source tree of Debian's package", 78_579, 20_000),
    "small": Spec("linux", "small", "{count} files of 0 to 4 KiB, 100 in a directory", 300_000, 6_000),
}


class NoRoom(Exception):
    """The machine's memory can't hold the set and its copy."""


@dataclass
class Workload:
    """One input set on disk."""

    name: str
    kind: str
    words: str
    source: Path
    listing: verify.Listing = field(repr=False)

    @property
    def allocated_bytes(self):
        """Memory that a copy of it takes on tmpfs."""
        return self.listing.allocated_bytes


def binary_size(size):
    """1 GiB, 2.5 MiB."""
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB")
    return f"{size / unit:.4g} {name}"


@contextmanager
def made(name, parent, scale=1.0):
    """The set below `parent`, for the time of a `with`."""
    spec = KNOWN[name].scaled(scale)
    available_bytes = machine.memory_bytes("MemAvailable")
    if available_bytes < spec.room_bytes:
        raise NoRoom(f"it takes {binary_size(spec.room_bytes)} of memory, there are {binary_size(available_bytes)}")
    command = [str(INPUT), "--into", str(parent), spec.input, *spec.arguments]
    source = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    try:
        yield Workload(name, spec.kind, spec.title, source, verify.list_tree(source))
    finally:
        shutil.rmtree(source)
