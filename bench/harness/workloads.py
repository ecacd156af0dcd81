"""The input sets, made by testbed/input."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import verify

INPUT = Path(__file__).resolve().parents[2] / "testbed" / "input"

# name: (what peers' settings are chosen by, arguments of testbed/input, in words)
KNOWN = {
    "big": ("big", ["big", "4", "1G"], "4 files of 1 GiB, incompressible"),
    "mib": ("mib", ["mib", "2000"], "2,000 files of 1 MiB in 20 directories, incompressible"),
    "linux": ("linux", ["linux"], "the Linux 6.1 source tree of Debian's package"),
    "small": ("linux", ["small", "100000"], "100,000 files of 0 to 4 KiB"),
    "mixed": ("mib", ["mixed", "1000"], "1,000 files with the size distribution of the LADS paper"),
    "big-quick": ("big", ["big", "2", "128M"], "2 files of 128 MiB: to try the harness, not to compare"),
    "mib-quick": ("mib", ["mib", "100"], "100 files of 1 MiB: to try the harness, not to compare"),
}


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


def make(name, parent):
    """Makes the set below `parent` (unless it is there)."""
    kind, arguments, words = KNOWN[name]
    command = [str(INPUT), "--into", str(parent), *arguments]
    source = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    return Workload(name, kind, words, source, verify.list_tree(source))
