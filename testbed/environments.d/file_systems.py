"""Environments that are file systems: those of the kernel, by loop mounts, and those of user space, by FUSE."""

import os
import time

from environment import FILE_SYSTEMS, SERVED, add, environment
from fixture import Skipped

EXT4 = ("mkfs.ext4", "-q", "-F", "-O", "^has_journal")


@environment("ext4", "ext4", FILE_SYSTEMS)
def ext4(fixture):
    """The ordinary case."""
    fixture.loop(64, *EXT4)


@environment("ext4-128", "ext4, inodes of 128 bytes (whole seconds, until 2038)", FILE_SYSTEMS)
def ext4_of_small_inodes(fixture):
    """No room for nanoseconds."""
    fixture.loop(64, *EXT4, "-I", "128")


@environment("ext4-casefold", "ext4 with a directory that folds case", FILE_SYSTEMS)
def ext4_casefold(fixture):
    """Names that differ by case are one."""
    fixture.loop(64, *EXT4, "-O", "casefold")
    os.mkdir(fixture.place / "folded")
    fixture.tell("chattr", "+F", fixture.place / "folded")
    fixture.parent = fixture.place / "folded/field"


@environment("btrfs-noacl", "Btrfs, noacl", FILE_SYSTEMS)
def btrfs_without_lists(fixture):
    """ext4 has had no such options since Linux 5.19: neither noacl nor nouser_xattr."""
    fixture.loop(160, "mkfs.btrfs", "-q", "-f", options="noacl")


@environment("ext2", "ext2 by the driver of ext4", FILE_SYSTEMS)
def ext2(fixture):
    """Blocks without extents."""
    fixture.loop(64, "mkfs.ext2", "-q", "-F", kind="ext2")


@environment("ext4-removable", "ext4, nosuid, nodev, noexec and sync", FILE_SYSTEMS)
def ext4_hardened(fixture):
    """As removable media are mounted."""
    fixture.loop(64, *EXT4, options="nosuid,nodev,noexec,sync")


@environment("xfs", "XFS", FILE_SYSTEMS)
def xfs(fixture):
    """XFS as mkfs makes it."""
    fixture.loop(320, "mkfs.xfs", "-q", "-f")


@environment("btrfs", "Btrfs", FILE_SYSTEMS)
def btrfs(fixture):
    """Btrfs as mkfs makes it."""
    fixture.loop(160, "mkfs.btrfs", "-q", "-f")


@environment("btrfs-compress", "Btrfs, compressed", FILE_SYSTEMS)
def btrfs_compressed(fixture):
    """Sizes on disk say nothing of holes."""
    fixture.loop(160, "mkfs.btrfs", "-q", "-f", options="compress-force=zstd")


@environment("tmpfs", "tmpfs", FILE_SYSTEMS)
def tmpfs(fixture):
    """Memory."""
    fixture.tell("mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", fixture.place)


@environment("tmpfs-casefold", "tmpfs with a directory that folds case", FILE_SYSTEMS)
def tmpfs_casefold(fixture):
    """Linux 6.13 or newer, with Unicode."""
    fixture.tell("mount", "-t", "tmpfs", "-o", "size=64m,mode=755,casefold", "none", fixture.place)
    os.mkdir(fixture.place / "folded")
    fixture.tell("chattr", "+F", fixture.place / "folded")
    fixture.parent = fixture.place / "folded/field"


@environment("ramfs", "ramfs", FILE_SYSTEMS)
def ramfs(fixture):
    """No statistics, no limits."""
    fixture.tell("mount", "-t", "ramfs", "none", fixture.place)


def overlay(fixture, options=""):
    """Two layers, both in the fixture's own file system."""
    for name in ("lower", "upper", "work"):
        os.mkdir(fixture.base / name)
    os.makedirs(fixture.base / "lower/field-of-before")
    layers = ",".join(f"{key}={fixture.base / name}" for key, name in [("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work")])
    fixture.tell("mount", "-t", "overlay", "-o", layers + options, "none", fixture.place)


@environment("overlayfs", "overlayfs", FILE_SYSTEMS)
def overlayfs(fixture):
    """As containers have it."""
    overlay(fixture)


@environment("overlayfs-userxattr", "overlayfs, userxattr and volatile", FILE_SYSTEMS)
def overlayfs_of_users(fixture):
    """As containers without root have it."""
    overlay(fixture, ",userxattr,volatile")


@environment("vfat", "FAT (two seconds, no rights, names that fold)", FILE_SYSTEMS)
def vfat(fixture):
    """By the kernel: fusefat, its only server by FUSE in Debian, hangs when a file is removed."""
    fixture.loop(64, "mkfs.vfat", kind="vfat")


@environment("exfat-kernel", "exFAT by the kernel", FILE_SYSTEMS)
def exfat_of_the_kernel(fixture):
    """Linux 5.7 or newer."""
    fixture.loop(64, "mkfs.exfat", kind="exfat")


# By FUSE


def fuse_image(fixture, megabytes, mkfs, *command):
    """A file system in an image, which a FUSE server reads."""
    fixture.need(command[0])
    image = fixture.image(megabytes, *mkfs)
    fixture.serve(*command, image, fixture.place)


@environment("exfat", "exFAT (exfat-fuse)", SERVED)
def exfat(fixture):
    """No modes, owners or links; names fold."""
    fixture.need("mount.exfat-fuse")
    device = fixture.device(64, "mkfs.exfat")
    fixture.serve("mount.exfat-fuse", "-d", "-o", "allow_other", device, fixture.place)
    fixture.tell("losetup", "--detach", device)  # when it is closed


REPLACED_LONG_NAMES = {
    "kill, resume": "a file whose name has 255 characters and is replaced leaves another one: the name by which ntfs-3g keeps what is replaced is longer, and cut",
}


@environment("ntfs", "NTFS (ntfs-3g)", SERVED, known=REPLACED_LONG_NAMES)
def ntfs(fixture):
    """Without a mapping of users: everything is everybody's."""
    fuse_image(fixture, 64, ("mkntfs", "-Q", "-F", "-q"), "ntfs-3g", "-o", "no_detach,allow_other")


@environment("ntfs-permissions", "NTFS (ntfs-3g), permissions", SERVED, known=REPLACED_LONG_NAMES)
def ntfs_permissions(fixture):
    """With modes and owners."""
    fuse_image(fixture, 64, ("mkntfs", "-Q", "-F", "-q"), "ntfs-3g", "-o", "no_detach,allow_other,permissions,acl")


@environment("ntfs-windows-names", "NTFS (ntfs-3g), windows_names and ignore_case", SERVED, known=REPLACED_LONG_NAMES)
def ntfs_windows_names(fixture):
    """Names that Windows can't hold are refused."""
    fuse_image(fixture, 64, ("mkntfs", "-Q", "-F", "-q"), "ntfs-3g", "-o", "no_detach,allow_other,windows_names")


@environment("encfs", "encfs (names of at most 143 to 176 bytes)", SERVED)
def encfs(fixture):
    """Encrypted names are longer."""
    backing = fixture.backing()
    fixture.need("encfs")
    fixture.serve("encfs", "-f", "--extpass=echo password", "--standard", backing, fixture.place, "--", "-o", "allow_other")


@environment("gocryptfs", "gocryptfs", SERVED)
def gocryptfs(fixture):
    """Encrypted names in files of their own."""
    backing = fixture.backing()
    fixture.need("gocryptfs")
    password = fixture.base / "password"
    password.write_text("password\n")
    fixture.tell("gocryptfs", "-init", "-q", "-scryptn", "10", "-passfile", password, backing)
    fixture.serve("gocryptfs", "-fg", "-q", "-allow_other", "-passfile", password, backing, fixture.place)
    time.sleep(0.3)  # it and whoever makes a directory while it looks at its new mount wait for each other for ever


BINDFS = {
    "created-for-nobody": ("who makes an entry does not own it (all_squash of NFS)", ["--create-for-user=nobody", "--create-for-group=nogroup"]),
    "forced-user": ("everything is somebody else's", ["--force-user=nobody", "--force-group=nogroup"]),
    "forced-modes": ("modes are the server's", ["--perms=a+rwX"]),
    "chmod-ignored": ("chmod does nothing", ["--chmod-ignore"]),
    "chmod-denied": ("chmod is refused", ["--chmod-deny"]),
    "chown-ignored": ("chown does nothing", ["--chown-ignore"]),
    "chown-denied": ("chown is refused", ["--chown-deny", "--chgrp-deny"]),
    "no-xattrs": ("no attributes", ["--xattr-none"]),
    "read-only-xattrs": ("attributes can only be read", ["--xattr-ro"]),
    "everything": ("chmod, chown and attributes are refused", ["--chmod-deny", "--chown-deny", "--chgrp-deny", "--xattr-none"]),
    "direct": ("direct_io, no cache", ["-o", "direct_io,attr_timeout=0,entry_timeout=0"]),
}


def add_bindfs():
    """Each option of bindfs that makes a directory another file system."""
    for name, (title, options) in BINDFS.items():

        def setup(fixture, options=options):
            fixture.serve("bindfs", "-f", "-o", "allow_other", *options, fixture.backing(), fixture.place)

        add(f"bindfs-{name}", f"bindfs: {title}", SERVED, setup)


add_bindfs()


@environment("bindfs-mapped-user", "bindfs: a user whose new entries are somebody else's", SERVED)
def bindfs_for_users(fixture):
    """The journal is not his who made it."""
    backing = fixture.backing(0o777)
    # Everybody may write to what is made, else not even `cp -r` could fill the directories that it has made.
    options = ["--create-for-user=nobody", "--create-for-group=nogroup", "--create-with-perms=a+rwX"]
    fixture.serve("bindfs", "-f", "-o", "allow_other", *options, backing, fixture.place)
    fixture.become()


@environment("mergerfs", "mergerfs, two branches", SERVED)
def mergerfs(fixture):
    """Directories of two file systems as one."""
    backing = fixture.backing()
    for name in ("one", "two"):
        os.mkdir(backing / name)
    # It takes its time to end what it does in the background, and -f is FUSE's.
    fixture.serve("mergerfs", "-f", "-o", "allow_other,category.create=rand,use_ino", f"{backing}/one:{backing}/two", fixture.place)


@environment("unionfs", "unionfs-fuse, copy on write", SERVED)
def unionfs(fixture):
    """A branch that can be written over one that can't."""
    backing = fixture.backing()
    for name in ("upper", "lower"):
        os.mkdir(backing / name)
    fixture.serve("unionfs", "-f", "-o", "cow,allow_other,suid,dev", f"{backing}/upper=RW:{backing}/lower=RO", fixture.place)


@environment("fuse-overlayfs", "fuse-overlayfs", SERVED)
def fuse_overlayfs(fixture):
    """overlayfs without root."""
    backing = fixture.backing()
    for name in ("lower", "upper", "work"):
        os.mkdir(backing / name)
    layers = f"lowerdir={backing}/lower,upperdir={backing}/upper,workdir={backing}/work,allow_other"
    fixture.serve("fuse-overlayfs", "-f", "-o", layers, fixture.place)


@environment("disorderfs", "disorderfs: directories in another order each time", SERVED)
def disorderfs(fixture):
    """And blocks that are padded."""
    options = ["--multi-user=yes", "--shuffle-dirents=yes", "--pad-blocks=7", "-o", "allow_other"]
    fixture.serve("disorderfs", "-f", *options, fixture.backing(), fixture.place)


def sftp(fixture, *options):
    """sshfs over a pipe to sftp-server: no ssh is needed for that."""
    server = next((path for path in ("/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server") if os.path.exists(path)), None)
    if server is None:
        raise Skipped("no sftp-server")
    command = fixture.base / "sftp"
    command.write_text(f"#!/bin/sh\nexec {server}\n")
    command.chmod(0o755)
    words = ",".join(["allow_other", f"ssh_command={command}", *options])
    fixture.serve("sshfs", "-f", "-o", words, f"host:{fixture.backing()}", fixture.place)


SETS_TARGETS_TIMES = {
    "pull": "cp -a, which makes the source there, sets the time of a link: the server gives it to the link's target, and sshfs shows that later",
}


@environment("sshfs", "sshfs (whole seconds)", SERVED, known=SETS_TARGETS_TIMES)
def sshfs(fixture):
    """SFTP has neither owners by name nor nanoseconds."""
    sftp(fixture)


@environment("sshfs-uncached", "sshfs, no cache, direct_io, no links", SERVED, known=SETS_TARGETS_TIMES)
def sshfs_uncached(fixture):
    """Each question goes to the server."""
    sftp(fixture, "dir_cache=no", "direct_io", "disable_hardlink")


# rclone 1.60 uploads a file after its close, beside the rename that follows: a name of invalid UTF-8 is then there twice, half of the time.
# With a later upload (--vfs-write-back) files change their times and sizes while they are read again.
RENAMES_WHILE_UPLOADING = {
    "known": {"*": "a file is uploaded beside its renaming, and its temporary name appears again if it is not UTF-8"},
    "known_complaints": r"\.carrack-[0-9a-f]{8} is there, and not at the source",
}


def rclone(fixture, *options):
    """rclone of a directory."""
    fixture.variables["XDG_CACHE_HOME"] = str(fixture.base / "cache")
    fixture.serve("rclone", "mount", "--config", "/dev/null", "--vfs-write-back", "0s", "--cache-dir", fixture.base / "cache", "--allow-other", *options,
                  fixture.backing(), fixture.place)


@environment("rclone-cached", "rclone mount, a full cache", SERVED, **RENAMES_WHILE_UPLOADING)
def rclone_cached(fixture):
    """Object storage as a file system."""
    rclone(fixture, "--vfs-cache-mode", "full")


@environment("rclone-writes", "rclone mount, a cache for writes", SERVED, **RENAMES_WHILE_UPLOADING)
def rclone_writes(fixture):
    """What most people have."""
    rclone(fixture, "--vfs-cache-mode", "writes")


@environment("rclone-uncached", "rclone mount without a cache (files are written in order, once)", SERVED, known={
    "*": "it takes a file only from its beginning to its end, and carrack writes the objects of a large file where they belong: these files fail",
})
def rclone_uncached(fixture):
    """No file can be opened to be read and written."""
    rclone(fixture, "--vfs-cache-mode", "off")


def double(fixture, name, *options):
    """One of testbed's doubles."""
    program = fixture.program(f"carrack-testbed-{name}")
    fixture.serve(program, *options, fixture.place)


def lustre(fixture, *options):
    """testbed/lustre-double with four targets."""
    backing = fixture.backing()
    targets = ",".join(f"{backing}/ost{index}" for index in range(4))
    double(fixture, "lustre", "--mdt", f"{backing}/mdt", "--targets", targets, *options)


@environment("lustre", "Lustre's double (striped, testbed/lustre)", SERVED)
def lustre_double(fixture):
    """Stripes over four targets."""
    lustre(fixture, "--stripe", "4:1048576")


@environment("lustre-no-flock", "Lustre's double, mounted without flock", SERVED)
def lustre_without_locks(fixture):
    """flock(2) says ENOSYS."""
    lustre(fixture, "--stripe", "4:1048576")
    fixture.refuse("ENOSYS", "flock")


@environment("storage-double", "storage's double (in memory, testbed/storage)", SERVED)
def storage_double(fixture):
    """The file system that loses power in other tests."""
    double(fixture, "storage", "serve", "--control", fixture.base / "control")


@environment("gluster", "GlusterFS (testbed/gluster)", SERVED, slow=True)
def gluster(fixture):
    """Four bricks, distributed."""
    fixture.cluster("gluster")


@environment("gluster-shards", "GlusterFS, shards of 4 MB", SERVED, slow=True)
def gluster_shards(fixture):
    """Large files in pieces."""
    fixture.cluster("gluster", "--kind", "shard")


@environment("cephfs", "CephFS by ceph-fuse (testbed/ceph)", SERVED, slow=True)
def cephfs(fixture):
    """Three OSDs in memory."""
    fixture.cluster("ceph")


@environment("nfs", "NFS by a server in user space", SERVED)
def nfs(fixture):
    """Needs a client by FUSE, as the kernel may have none."""
    if "\tnfs" not in open("/proc/filesystems", encoding="ascii").read() and not fixture.has("fuse-nfs"):
        raise Skipped("the kernel has no NFS, and Debian no client for FUSE; coarse times, mapped owners and missing locks are rows of their own")
    raise Skipped("a kernel with NFS is not used by this yet")
