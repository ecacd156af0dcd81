"""The tree that every cell copies, and snapshots of trees.

Paths are bytes, relative to the tree's root; the root itself is b"".
"""

import hashlib
import os
import random
import stat
import struct
from dataclasses import dataclass, field

NANO = 1_000_000_000
# 2026-03-04 05:06:07.123456789 UTC. The second is odd, so that FAT's two seconds show.
ORDINARY_NS = 1_772_600_767 * NANO + 123_456_789
OLD_NS = 170_000_001 * NANO + 987_654_321  # 1975
LATE_NS = 2_300_000_001 * NANO + 5  # 2042: more than 31 bits of seconds

LARGE_BYTES = 3 << 20  # several objects, a temporary file of its own
SPARSE_BYTES = 4 << 20
OTHER_USER = 1000

ODD_NAMES = [
    "with blank", "tab\there", "line\nbreak", "*?[x]", "-rf", "back\\slash", "quote'\"", "colon:here", "ümläut-é",
    "dot.", "blank ", "$HOME;`id`", "#hash~", "|<>", "carrack-like.tmp", ".hidden", "...",
]
NOT_UTF8 = b"latin-\xe4\xff"
LONG_NAME = b"n" * 255
# libfuse's names of files that are removed while they are open: they go a moment after they are closed.
HIDDEN_BY_FUSE = b".fuse_hidden"
WANTED_NAMES = [os.fsencode(name) for name in ODD_NAMES] + [NOT_UTF8, LONG_NAME]
FOLDING_NAMES = [b"folding/Makefile", b"folding/makefile"]


def acl_with_user(user):
    """system.posix_acl_access of a file of mode 0660 that USER may read too."""
    entries = [(0x01, 6, 0xFFFFFFFF), (0x02, 4, user), (0x04, 4, 0xFFFFFFFF), (0x10, 6, 0xFFFFFFFF), (0x20, 0, 0xFFFFFFFF)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def noise(count, seed):
    """COUNT bytes, the same for the same seed."""
    return random.Random(seed).randbytes(count)


def write(path, content, mode=0o644):
    """A file with this content and mode, the mode as far as the file system lets it be set."""
    with open(path, "wb") as file:
        file.write(content)
    try:
        os.chmod(path, mode)
    except OSError:
        pass


def set_attribute(path, name, value):
    """Where the file system of the source has attributes; the snapshot says whether it had."""
    try:
        os.setxattr(path, name, value)
    except OSError:
        pass


def build(root, user, foreign, held):
    """Makes the tree at ROOT for USER; with FOREIGN, some of it belongs to somebody else. HELD is what the probe says of the
    destination: what it can't hold is left out here, and is `build_unholdable`'s. Needs root."""
    root = os.fsencode(root)
    join = lambda *parts: os.path.join(root, *(os.fsencode(part) for part in parts))  # noqa: E731
    for directory in ["", "sub", "deep", "deep/a", "deep/a/b", "odd", "private", "shared", "read-only", "no-files"]:
        os.mkdir(join(directory))
    for index in range(8):
        write(join("sub", f"small-{index}"), noise(100 + 700 * index, index), [0o644, 0o600, 0o755, 0o664][index % 4])
    write(join("empty"), b"")
    write(join("large"), noise(LARGE_BYTES, 100), 0o640)
    write(join("deep/a/b/leaf"), b"leaf")
    with open(join("sparse"), "wb") as file:
        file.write(noise(65536, 101))
        file.truncate(SPARSE_BYTES)
    write(join("first-name"), b"one file, three names")
    os.link(join("first-name"), join("second-name"))
    os.link(join("first-name"), join("deep/third-name"))
    if held["symlinks"]:
        os.symlink("sub/small-0", join("link"))
        os.symlink("nothing/there", join("dangling"))
        os.symlink("a/b", join("deep/to-directory"))
    if held["fifos"]:
        os.mkfifo(join("pipe"))
    for index, name in enumerate(bytes.fromhex(name) for name in held["names"]):
        write(os.path.join(root, b"odd", name), f"odd {index}".encode())
    write(join("private/secret"), b"secret", 0o600)
    write(join("set-user-id"), b"#!/bin/true", 0o755)
    write(join("set-group-id"), b"#!/bin/true", 0o755)
    write(join("shared/member"), b"member", 0o664)
    write(join("read-only/file"), b"read only", 0o444)
    write(join("attributed"), b"attributed")
    set_attribute(join("attributed"), "user.matrix", b"value\0with zero")
    write(join("listed"), b"listed", 0o660)
    write(join("old"), b"old")
    write(join("late"), b"late")
    give(root, user)
    if foreign:
        # All of it is readable by everybody: it is for root without capabilities too.
        for name in ["set-user-id", "set-group-id", "sub/small-2", "shared", "shared/member"]:
            os.chown(join(name), OTHER_USER, OTHER_USER)
    set_attribute(join("listed"), "system.posix_acl_access", acl_with_user(OTHER_USER))
    for name, mode in [
        ("set-user-id", 0o4755), ("set-group-id", 0o2755), ("private", 0o700), ("shared", 0o2775), ("read-only", 0o555), ("sub", 0o755),
        ("odd", 0o775),
    ]:
        os.chmod(join(name), mode)
    set_times(root)


def build_unholdable(root, user):
    """A tree of names that not every file system can hold, or tell from each other, and of symbolic links."""
    root = os.fsencode(root)
    for directory in [b"", b"odd", b"folding", b"links"]:
        os.mkdir(os.path.join(root, directory))
    for index, name in enumerate(WANTED_NAMES):
        write(os.path.join(root, b"odd", name), f"odd {index}".encode())
    for name in FOLDING_NAMES:
        write(os.path.join(root, name), name)
    os.symlink("nowhere", os.path.join(root, b"links/link"))
    give(root, user)
    set_times(root)


def give(root, user):
    """Everything at ROOT to USER and his group."""
    for directory, directories, files in os.walk(root):
        for name in [b"."] + directories + files:
            os.lchown(os.path.join(directory, name), user, user)


def set_times(root):
    """A time of its own for each entry, with a fraction."""
    paths = [os.path.join(directory, name) for directory, dirs, files in os.walk(root) for name in [b"."] + dirs + files]
    for index, path in enumerate(sorted(paths, reverse=True)):
        moment = {b"old": OLD_NS, b"late": LATE_NS}.get(os.path.basename(path), ORDINARY_NS + index * 60 * NANO + index * 1_000_003)
        os.utime(path, ns=(moment, moment), follow_symlinks=False)


@dataclass
class Entry:
    """What a snapshot knows of an entry."""

    kind: str  # file, directory, symlink, fifo, other
    mode: int
    user: int
    group: int
    bytes: int
    mtime_ns: int
    held_bytes: int
    has_hole: bool  # as lseek(2) says
    identity: tuple  # device and inode, for names of one file
    content: str = ""  # a file's digest, a link's target
    attributes: dict = field(default_factory=dict)  # user.* and ACLs

    def same_content(self, other):
        """Whether both are of the same kind with the same content."""
        return (self.kind, self.content) == (other.kind, other.content)


KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
}


def entry(path):
    """The one at PATH."""
    status = os.lstat(path)
    kind = KINDS.get(stat.S_IFMT(status.st_mode), "other")
    result = Entry(
        kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_size if kind == "file" else 0,
        status.st_mtime_ns, status.st_blocks * 512, False, (status.st_dev, status.st_ino),
    )
    if kind == "file":
        with open(path, "rb") as file:
            result.content = hashlib.file_digest(file, "sha256").hexdigest() if status.st_size else "empty"
            result.has_hole = has_hole(file.fileno(), status.st_size)
    elif kind == "symlink":
        result.content = os.fsdecode(os.readlink(path))
    if kind in ("file", "directory"):
        result.attributes = attributes(path)
    return result


def has_hole(file, size):
    """Whether the file system tells of a hole."""
    try:
        return size > 0 and os.lseek(file, 0, os.SEEK_HOLE) < size
    except OSError:
        return False


def plain_acl(value):
    """An ACL without what file systems write where an entry has no user or group: its entries, sorted."""
    entries = [struct.unpack_from("<HHI", value, offset) for offset in range(4, len(value) - 7, 8)]
    return sorted((tag, rights, owner if tag in (0x02, 0x08) else 0) for tag, rights, owner in entries)


ACCESS_ACL = "system.posix_acl_access"
ACL_MASK = 0x10  # only an ACL that says more than the mode has one


def attributes(path):
    """Those of users, and ACLs. Some file systems have an ACL that they do not list (NTFS-3G), and some make one of any mode."""
    found = {}
    try:
        names = os.listxattr(path)
        for name in names + ([] if ACCESS_ACL in names else [ACCESS_ACL]):
            if name.startswith("user."):
                found[name] = os.getxattr(path, name)
            elif name.startswith("system.posix_acl_"):
                acl = plain_acl(os.getxattr(path, name))
                if name != ACCESS_ACL or any(tag == ACL_MASK for tag, _, _ in acl):
                    found[name] = acl
    except OSError:
        pass  # no attributes there
    return found


def snapshot(root):
    """All entries beneath ROOT, by their paths; file systems that are mounted beneath are left out, and what libfuse is about to remove."""
    root = os.fsencode(root)
    found = {}
    device = os.lstat(root).st_dev

    def visit(path, relative):
        found[relative] = entry(path)
        if found[relative].kind == "directory":
            for name in sorted(os.listdir(path)):
                if name.startswith(HIDDEN_BY_FUSE):
                    continue
                below = os.path.join(path, name)
                if os.lstat(below).st_dev == device:
                    visit(below, os.path.join(relative, name))

    visit(root, b"")
    return found


def plant_canary(directory):
    """Entries that no operation may touch."""
    os.makedirs(os.path.join(directory, "neighbour/below"))
    write(os.path.join(directory, "neighbour/below/canary"), b"canary", 0o600)
    write(os.path.join(directory, "canary"), b"canary", 0o640)
