"""Whether a copy is complete and right: names and sizes always, metadata and contents on request."""

import concurrent.futures
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field

BLOCK_BYTES = 1 << 20
# Files of one comparing job; a large file is a job of its own.
JOB_FILES = 500
JOB_BYTES = 64 << 20
# Problems named in a report; the rest is only counted.
NAMED_PROBLEMS = 5


@dataclass
class Listing:
    """What a tree holds, by path relative to its root."""

    files: dict = field(default_factory=dict)  # path: stat result
    links: dict = field(default_factory=dict)  # path: target
    directories: dict = field(default_factory=dict)  # path: stat result

    @property
    def total_bytes(self):
        """Bytes in regular files."""
        return sum(info.st_size for info in self.files.values())

    @property
    def allocated_bytes(self):
        """Bytes that the file system holds for them."""
        return sum(info.st_blocks * 512 for info in self.files.values())


def list_tree(root):
    """Lists a tree; symbolic links are not followed."""
    listing = Listing()
    todo = [""]
    while todo:
        below = todo.pop()
        with os.scandir(os.path.join(root, below)) as entries:
            for entry in entries:
                path = os.path.join(below, entry.name)
                info = entry.stat(follow_symlinks=False)
                if entry.is_symlink():
                    listing.links[path] = os.readlink(entry.path)
                elif stat.S_ISDIR(info.st_mode):
                    listing.directories[path] = info
                    todo.append(path)
                else:
                    listing.files[path] = info
    return listing


def stored_bytes(root):
    """Bytes that lie below `root` now, while somebody still writes: holes and what vanishes don't count."""
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                info = os.lstat(f"{directory}/{name}")
                total += min(info.st_size, info.st_blocks * 512)
    return total


def _named(problems):
    if len(problems) <= NAMED_PROBLEMS:
        return problems
    return [*problems[:NAMED_PROBLEMS], f"and {len(problems) - NAMED_PROBLEMS} more"]


def compare_sizes(wanted, found, follows_links=False):
    """Problems in names and sizes of regular files.

    Tools differ at symbolic links: with `follows_links` files below a link's name are no problem.
    """
    problems = []
    for path, info in wanted.files.items():
        copy = found.files.get(path)
        if copy is None:
            problems.append(f"missing: {path}")
        elif copy.st_size != info.st_size:
            problems.append(f"size {copy.st_size} instead of {info.st_size}: {path}")
    for path in found.files.keys() - wanted.files.keys():
        if not (follows_links and _is_below_link(path, wanted.links)):
            problems.append(f"not in the source: {path}")
    return _named(problems)


def _is_below_link(path, links):
    while path:
        if path in links:
            return True
        path = os.path.dirname(path)
    return False


def compare_metadata(wanted, found):
    """Problems in what carrack promises to keep: links, empty directories, modes and times in ns."""
    problems = [f"link: {path}" for path, target in wanted.links.items() if found.links.get(path) != target]
    for kind, sources, copies in (
        ("file", wanted.files, found.files),
        ("directory", wanted.directories, found.directories),
    ):
        for path, info in sources.items():
            copy = copies.get(path)
            if copy is None:
                problems.append(f"missing {kind}: {path}")
            elif stat.S_IMODE(copy.st_mode) != stat.S_IMODE(info.st_mode):
                problems.append(f"{kind} mode {copy.st_mode:o} instead of {info.st_mode:o}: {path}")
            elif copy.st_mtime_ns != info.st_mtime_ns:
                problems.append(f"{kind} time {copy.st_mtime_ns} instead of {info.st_mtime_ns}: {path}")
    return _named(problems)


def compare_contents(source, copy, listing):
    """Problems in contents; all cores compare."""
    jobs, paths, total = [], [], 0
    for path, info in listing.files.items():
        paths.append(path)
        total += info.st_size
        if len(paths) >= JOB_FILES or total >= JOB_BYTES:
            jobs.append((str(source), str(copy), paths))
            paths, total = [], 0
    jobs.append((str(source), str(copy), paths))
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        different = [path for found in pool.map(_differing, jobs) for path in found]
    return _named([f"contents differ: {path}" for path in sorted(different)])


def _differing(job):
    """The paths of one job whose contents differ."""
    source, copy, paths = job
    first, second = memoryview(bytearray(BLOCK_BYTES)), memoryview(bytearray(BLOCK_BYTES))
    return [path for path in paths if not _same(f"{source}/{path}", f"{copy}/{path}", first, second)]


def _same(source, copy, first, second):
    with open(source, "rb", buffering=0) as a, open(copy, "rb", buffering=0) as b:
        while True:
            count = a.readinto(first)
            if b.readinto(second) != count or first[:count] != second[:count]:
                return False
            if count == 0:
                return True
