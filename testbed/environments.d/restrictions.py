"""Environments that are an ordinary file system with something refused, limited or missing."""

import os

from environment import LIMITS, REFUSED, RIGHTS, SURROUNDINGS, add, environment
from fixture import USER, Skipped

REFUSALS = {
    "chmod": ("EPERM", "chmod,fchmod,fchmodat,fchmodat2"),
    "chmod-unsupported": ("EOPNOTSUPP", "chmod,fchmod,fchmodat,fchmodat2"),
    "chmod-unknown": ("ENOSYS", "chmod,fchmod,fchmodat,fchmodat2"),
    "chown": ("EPERM", "chown,lchown,fchown,fchownat"),
    "chown-unknown": ("ENOSYS", "chown,lchown,fchown,fchownat"),
    "chown-invalid": ("EINVAL", "chown,lchown,fchown,fchownat"),
    "times": ("EPERM", "utimensat,utimes"),
    "times-unknown": ("ENOSYS", "utimensat,utimes"),
    "flock": ("ENOSYS", "flock"),
    "flock-unsupported": ("EOPNOTSUPP", "flock"),
    "links": ("EPERM", "link,linkat"),
    "links-unknown": ("ENOSYS", "link,linkat"),
    "links-other-device": ("EXDEV", "link,linkat"),
    "links-too-many": ("EMLINK", "link,linkat"),
    "links-unsupported": ("EOPNOTSUPP", "link,linkat"),
    "symlinks": ("EPERM", "symlink,symlinkat"),
    "symlinks-unsupported": ("EOPNOTSUPP", "symlink,symlinkat"),
    "attributes": ("EOPNOTSUPP", "setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr"),
    "attributes-forbidden": ("EPERM", "setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr"),
    "all-attributes": (
        "ENOSYS",
        "setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,getxattr,lgetxattr,fgetxattr,listxattr,llistxattr,flistxattr",
    ),
    "fallocate": ("EOPNOTSUPP", "fallocate"),
    "openat2": ("ENOSYS", "openat2"),
    "openat2-forbidden": ("EPERM", "openat2"),
    "nameless-files": ("EOPNOTSUPP", "tmpfile"),
    "nameless-files-and-links": ("EOPNOTSUPP", "tmpfile,link,linkat"),
    "copy-file-range": ("EXDEV", "copy_file_range"),
    "copy-file-range-unknown": ("ENOSYS", "copy_file_range"),
    "statx": ("ENOSYS", "statx"),
    "rename-exchange": ("EINVAL", "renameat2"),
    "rename-unknown": ("ENOSYS", "renameat2"),
    "handles": ("EPERM", "name_to_handle_at,open_by_handle_at"),
    "io-uring": ("EPERM", "io_uring_setup"),
    "sendfile-splice": ("EINVAL", "sendfile,splice,tee,vmsplice"),
    "advice": ("ENOSYS", "fadvise64,readahead,madvise,sync_file_range"),
    "syncs": ("ENOSYS", "syncfs,sync_file_range"),
    "affinity": ("EPERM", "sched_setaffinity,sched_getaffinity,setpriority,mbind,set_mempolicy,get_mempolicy"),
    "landlock": ("ENOSYS", "landlock_create_ruleset"),
    "fifos": ("EPERM", "mknod,mknodat"),
    "statfs": ("ENOSYS", "statfs,fstatfs"),
}


def add_refusals():
    """Each by a filter on an ordinary file system."""
    for name, (error, calls) in REFUSALS.items():

        def setup(fixture, error=error, calls=calls):
            fixture.refuse(error, calls)

        first = calls.split(",")
        words = ", ".join(first[:3]) + (", …" if len(first) > 3 else "")
        words = words.replace("tmpfile", "openat with O_TMPFILE")
        add(f"refused-{name}", f"{error}: {words}", REFUSED, setup)


add_refusals()

CAPABILITIES = ["chown", "fowner", "dac_override", "fsetid", "setfcap", "mknod", "dac_read_search", "sys_admin"]


def add_capabilities():
    """Root without one of his capabilities."""
    for name in CAPABILITIES:

        def setup(fixture, name=name):
            drop_capabilities(fixture, [name])

        add(f"without-cap-{name.replace('_', '-')}", f"root without CAP_{name.upper()}", RIGHTS, setup)


def drop_capabilities(fixture, names):
    """Also from the bounding set, so that no program has them again."""
    fixture.need("setpriv")
    dropped = ",".join(f"-{name}" for name in names)
    fixture.prefix += ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]


add_capabilities()


@environment("without-capabilities", "root without any capability", RIGHTS)
def without_capabilities(fixture):
    """As in a hardened container."""
    fixture.need("setpriv")
    fixture.prefix += ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


@environment("user", "another user, without an account", RIGHTS)
def user(fixture):
    """As most people are."""
    fixture.become()


@environment("user-colleague", "a colleague's directory that the group may write to", RIGHTS)
def colleague(fixture):
    """Its owner's mode and times can't be set."""
    fixture.become()
    fixture.owner_of_fields = (0, USER, 0o2770)


@environment("user-namespace", "root of a user namespace", RIGHTS)
def user_namespace(fixture):
    """As in rootless containers: only one user exists."""
    fixture.tell("unshare", "--user", "--map-root-user", "true")
    fixture.prefix += ["unshare", "--user", "--map-root-user"]


@environment("user-nosuid-env", "a user with no_new_privs and no groups", RIGHTS)
def no_new_privs(fixture):
    """As systemd's hardening has it."""
    fixture.become()
    fixture.prefix += ["setpriv", "--no-new-privs"]


# Memory and limits


def add_memory():
    """Small containers."""
    for megabytes in (64, 100, 300):

        def setup(fixture, megabytes=megabytes):
            fixture.cgroup("memory", ("memory.limit_in_bytes", "memory.max"), megabytes << 20)

        add(f"memory-{megabytes}", f"a cgroup of {megabytes} MiB", LIMITS, setup, on_disk=True)


add_memory()


@environment("pids-64", "a cgroup of 64 processes and threads", LIMITS)
def pids(fixture):
    """Threads can't be had without end."""
    fixture.cgroup("pids", ("pids.max", "pids.max"), 64)


ULIMITS = {
    "files-64": ("64 open files (ulimit -n)", "ulimit -n 64"),
    "memlock-0": ("no locked memory (ulimit -l 0)", "ulimit -l 0"),
    "stack-256": ("a stack of 256 KiB (ulimit -s)", "ulimit -s 256"),
    "address-space": ("1 GiB of addresses (ulimit -v)", "ulimit -v 1048576"),
    "core-0": ("no core files, small pipes, no priority", "ulimit -c 0; ulimit -p 1 2>/dev/null"),
    "cpu-time": ("60 s of CPU time (ulimit -t)", "ulimit -t 60"),
}


def add_limits():
    """Set by a shell."""
    for name, (title, script) in ULIMITS.items():

        def setup(fixture, script=script):
            fixture.prefix += ["sh", "-c", script + '; exec "$@"', "sh"]

        add(f"limit-{name}", title, LIMITS, setup)


add_limits()


@environment("limit-descriptors", "standard input is closed", LIMITS)
def closed_input(fixture):
    """As some schedulers start programs."""
    fixture.carrack_prefix += ["sh", "-c", 'exec <&-; exec "$@"', "sh"]


@environment("limit-one-cpu", "one CPU (taskset)", LIMITS)
def one_cpu(fixture):
    """By affinity."""
    fixture.need("taskset")
    fixture.prefix += ["taskset", "-c", "0"]


@environment("limit-disk", "a disk of 12 MiB, once full", LIMITS)
def small_disk(fixture):
    """The only one that the column of full disks is about."""
    fixture.tell("mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "none", fixture.place)
    fixture.small_bytes = 12 << 20


@environment("limit-inodes", "a disk with few inodes left", LIMITS, operations=("cp", "sync", "sync again"))
def few_inodes(fixture):
    """Just enough for the copy."""
    fixture.tell("mount", "-t", "tmpfs", "-o", "size=64m,mode=755,nr_inodes=110", "none", fixture.place)


# Surroundings


def add_homes():
    """Homes that are not as expected. Nothing is made where nothing was."""

    def missing(fixture):
        fixture.variables["HOME"] = str(fixture.base / "no-home")

    def unset(fixture):
        del fixture.variables["HOME"]

    def root(fixture):
        fixture.variables["HOME"] = "/"

    def foreign(fixture):
        fixture.become()
        os.chown(fixture.home, 0, 0)
        os.chmod(fixture.home, 0o700)

    def read_only(fixture):
        fixture.become()
        os.chown(fixture.home, 0, 0)

    def empty(fixture):
        fixture.variables["HOME"] = ""

    def file(fixture):
        fixture.variables["HOME"] = str(fixture.carrack)

    for name, title, setup in [
        ("missing", "HOME is not there", missing),
        ("unset", "HOME is not set", unset),
        ("root", "HOME is /", root),
        ("foreign", "HOME is somebody else's, and private", foreign),
        ("read-only", "HOME can't be written to", read_only),
        ("empty", "HOME is empty", empty),
        ("file", "HOME is a file", file),
    ]:
        add(f"home-{name}", title, SURROUNDINGS, setup)


add_homes()


def hide(fixture, path):
    """An empty directory in its place, for the commands only."""
    empty = fixture.base / "empty"
    empty.mkdir(exist_ok=True)
    script = 'umount -l "$1" 2>/dev/null; mount --bind "$2" "$1" 2>/dev/null; shift 2; exec "$@"'
    fixture.prefix += ["unshare", "--mount", "sh", "-c", script, "sh", path, str(empty)]


NEEDS_PROC = "the mode of a pipe is set by way of /proc/self/fd, as a pipe must not be opened (fchmodat(2)): it stays 0600"


@environment("no-proc", "no /proc", SURROUNDINGS, known={
    "cp -a": NEEDS_PROC,
    "push": NEEDS_PROC,
    "pull": NEEDS_PROC,
    "kill, resume": NEEDS_PROC,
    "daemon": "each session of a daemon is a process of its own, started as /proc/self/exe",
})
def without_proc(fixture):
    """As in a bare chroot."""
    hide(fixture, "/proc")


@environment("no-shm", "no /dev/shm", SURROUNDINGS)
def without_shared_memory(fixture):
    """As in some containers."""
    if not os.path.isdir("/dev/shm"):
        raise Skipped("there is none anyway")
    hide(fixture, "/dev/shm")


@environment("no-sys", "no /sys", SURROUNDINGS)
def without_sys(fixture):
    """No cgroups, no topology."""
    hide(fixture, "/sys")


@environment("no-variables", "no variables at all (env -i)", SURROUNDINGS)
def without_variables(fixture):
    """As some launchers start programs."""
    fixture.prefix += ["env", "-i"]


@environment("tmpdir-missing", "TMPDIR and XDG directories lead nowhere", SURROUNDINGS)
def variables_that_lead_nowhere(fixture):
    """Variables of a session that is gone."""
    for name in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        fixture.variables[name] = str(fixture.base / "nowhere" / name)


def add_masks():
    """Rights that new entries don't get."""
    for mask in (0o000, 0o027, 0o077, 0o177):

        def setup(fixture, mask=mask):
            fixture.umask = mask

        add(f"umask-{mask:03o}", f"umask {mask:03o}", SURROUNDINGS, setup)


add_masks()


@environment("umask-077-user", "umask 077, another user", SURROUNDINGS)
def private_user(fixture):
    """Nobody else may read what is made."""
    fixture.become()
    fixture.umask = 0o077


@environment("set-group-id-parent", "a directory with the set-group-ID bit", SURROUNDINGS)
def set_group_id(fixture):
    """What is made there belongs to its group."""
    fixture.owner_of_fields = (0, 1000, 0o2775)


@environment("sticky-parent", "a sticky directory of everybody's", SURROUNDINGS)
def sticky(fixture):
    """As /tmp."""
    fixture.become()
    fixture.owner_of_fields = (0, 0, 0o1777)
