"""Disks that seek, with files that transfers share, and memory that the copies go to."""

import mmap
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

from .disks import MIB, Disks
from .regular import Regular

# Of each disk: a transfer has a whole number of them.
PIECES = 16
# What a file system needs beside its files.
ROOM_BYTES = 100 * MIB
# Any two files begin at different places of one noise.
SHIFT_BYTES = 4096
# Copies are looked for so often.
SWEEP_S = 0.3


class SharedDisks:
    """Disks with `PIECES` files each, one for a job that computes on it, and a directory in memory for copies."""

    def __init__(self, work_dir, count, rate_bytes_per_s, piece_bytes):
        self.array = Disks(work_dir / "disks", count, rate_bytes_per_s, "spindle")
        self.piece_bytes = piece_bytes
        self.copies = work_dir / "copies"
        self._images = work_dir / "images"
        self._noise = os.urandom(piece_bytes)

    @contextmanager
    def up(self):
        """The disks with their files, for the time of a `with`."""
        # A job's file is twice as long as a piece; five MiB of each piece are the file system's.
        size_bytes = (PIECES + 2) * (self.piece_bytes + 5 * MIB) + ROOM_BYTES
        self._images.mkdir()
        with self.array.up(self._images, size_bytes):
            with self.array.unlimited():
                for disk, path in enumerate(self.array.paths):
                    for piece in range(PIECES):
                        self._write(path / f"p{disk}-{piece:02}", self._shift(disk, piece))
                self._make_job_files()
            yield self

    @property
    def job_files(self):
        """One on each disk, of twice a piece."""
        return [path / "job" for path in self.array.paths]

    @property
    def rate_bytes_per_s(self):
        """Of all disks, if they never seek."""
        return self.array.rate_bytes_per_s * len(self.array.paths)

    def files(self, pieces):
        """These pieces of every disk."""
        return [path / f"p{disk}-{piece:02}" for piece in pieces for disk, path in enumerate(self.array.paths)]

    def part(self, transfer, count, pieces=PIECES):
        """What one of `count` transfers reads of the first `pieces`: whole files of every disk."""
        return self.files(range(transfer, pieces, count))

    def is_right(self, copy):
        """Whether a copy of a piece has its length and content."""
        disk, piece = map(int, copy.name[1:].split("-"))
        if copy.stat().st_size != self.piece_bytes:
            return False
        shift, noise = self._shift(disk, piece), memoryview(self._noise)
        with open(copy, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            with memoryview(content) as view, view[: -shift] as first, view[-shift:] as last:
                return first == noise[shift:] and last == noise[:shift]

    @contextmanager
    def empty_copies(self):
        """The directory for copies, empty and with the files' pages forgotten; it is taken away at the end."""
        shutil.rmtree(self.copies, ignore_errors=True)
        self.copies.mkdir()
        self.array.forget()
        try:
            yield self.copies
        finally:
            shutil.rmtree(self.copies, ignore_errors=True)

    def _shift(self, disk, piece):
        return SHIFT_BYTES * (disk * PIECES + piece + 1) % self.piece_bytes

    def _write(self, path, shift):
        noise = memoryview(self._noise)
        with open(path, "wb", buffering=0) as file:
            for part in (noise[shift:], noise[:shift]):
                while part:
                    part = part[file.write(part):]

    def _make_job_files(self):
        for path in self.job_files:
            with open(path, "wb") as file:
                file.write(self._noise)
                file.write(self._noise)


class Reaper(Regular):
    """Takes away what is whole, and counts it: memory holds the disks, not their copies too.

    `check` is asked of each copy before; those of which it says no are `wrong`.
    """

    def __init__(self, directory, check=None):
        super().__init__(SWEEP_S)
        self.bytes = 0
        self.files = 0
        self.wrong = []
        self._directory = Path(directory)
        self._check = check

    def look(self):
        """All that is whole now."""
        # Temporary names begin with a dot.
        with suppress(FileNotFoundError):  # a temporary name that is gone by now: the others at the next look
            for path in self._directory.rglob("p*"):
                if path.is_file():
                    if self._check and not self._check(path):
                        self.wrong.append(path.name)
                    self.bytes += path.stat().st_size
                    self.files += 1
                    path.unlink()

    def __exit__(self, *words):
        super().__exit__(*words)
        self.look()
