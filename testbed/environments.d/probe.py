"""Asks a directory what its file system and its user's rights can keep. Runs within the environment, as carrack does.

usage: probe.py DIRECTORY  (on stdin: JSON with the names and times to try)

Prints JSON. Each question is asked with plain system calls, so that what the answer says can be asked of carrack too.
"""

import json
import os
import stat
import subprocess
import sys


def attempt(action, default=False):
    """What ACTION returns, or DEFAULT where it is refused."""
    try:
        return action()
    except OSError:
        return default


def make(path, mode=0o600):
    """An empty file."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return path


def mode_after(path, mode):
    """What there is after the mode was set."""
    os.chmod(path, mode)
    return stat.S_IMODE(os.lstat(path).st_mode)


def keeps_modes(path):
    """Whether any permission bits can be set."""
    return all(attempt(lambda mode=mode: mode_after(path, mode)) == mode for mode in (0o640, 0o711, 0o755, 0o600))


def keeps_owner(path, user, group):
    """Whether a file can be given away."""
    os.chown(path, user, group)
    status = os.lstat(path)
    return (status.st_uid, status.st_gid) == (user, group)


def keeps_names_of_one_file(path, other):
    """Whether a second name is the same file, and looks so."""
    os.link(path, other)
    return os.path.samestat(os.lstat(path), os.lstat(other))


def keeps_link(path):
    """Whether symbolic links are there as they were made."""
    os.symlink(b"no/where", path)
    return os.readlink(path) == b"no/where"


def stored_time(path, moment):
    """The time that a file has after this one was set and it was renamed, as what is placed under its name when it is complete:
    encfs cuts the time then."""
    os.utime(path, ns=(moment, moment))
    os.rename(path, path + b".renamed")
    os.rename(path + b".renamed", path)
    return uncached_time(path)


def uncached_time(path):
    """As the file system itself has it, where there is a program that can ask so."""
    try:
        asked = subprocess.run(["stat", "--cached=never", "--format=%.9Y", path], check=True, capture_output=True)
        seconds, _, fraction = asked.stdout.strip().partition(b".")
        return int(seconds) * 1_000_000_000 + int(fraction)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return os.lstat(path).st_mtime_ns


def keeps_attribute(path, name, value):
    """Whether it can be set and read."""
    os.setxattr(path, name, value)
    return os.getxattr(path, name) == value


def keeps_holes(path):
    """Whether a hole takes no room."""
    with open(path, "wb") as file:
        file.truncate(4 << 20)
    return os.lstat(path).st_blocks < 4096


def keeps_name(directory, name):
    """Whether an entry can have this name, and is listed under it."""
    path = make(os.path.join(directory, name))
    is_listed = name in os.listdir(directory)
    os.unlink(path)
    return is_listed


def heeds_umask(path):
    """Whether a new file gets a mode less the umask: not beneath a default ACL (acl(5)), which some file systems have everywhere."""
    before = os.umask(0o022)
    try:
        return stat.S_IMODE(os.lstat(make(path, 0o666)).st_mode) & 0o022 == 0
    finally:
        os.umask(before)


def keeps_removed(directory):
    """Whether a file that is removed while it is open keeps a name until it is closed, as libfuse has it: its directory, such as the one that
    holds a journal, changes once more then, whatever was set before."""
    os.mkdir(directory)
    path = os.path.join(directory, b"open")
    with open(path, "wb"):
        os.unlink(path)
        return os.listdir(directory) != []


def special_modes(path):
    """The set-ID bits that can be set."""
    return attempt(lambda: mode_after(path, 0o6755), 0) & 0o6000


def is_refused(action):
    """Whether a call says that it can't, and does not only pretend."""
    try:
        action()
    except OSError:
        return True
    return False


def ask(directory, wanted):
    """All questions. What is made for them stays."""
    at = lambda name: os.path.join(os.fsencode(directory), name)  # noqa: E731
    file = make(at(b"file"))
    created_mode = stat.S_IMODE(os.lstat(file).st_mode)
    owned_by = os.lstat(file).st_uid, os.lstat(file).st_gid
    os.mkdir(at(b"names"))
    answers = {
        "created_mode": created_mode,
        "owned_by": owned_by,
        "times": {str(moment): attempt(lambda moment=moment: stored_time(file, moment), None) for moment in wanted["times"]},
        "umask": attempt(lambda: heeds_umask(at(b"masked")), True),
        "modes": keeps_modes(file),
        "modes_refused": is_refused(lambda: os.chmod(file, 0o600)),
        "holes": attempt(lambda: keeps_holes(make(at(b"holes")))),
        "hard_links": attempt(lambda: keeps_names_of_one_file(file, at(b"second"))),
        "symlinks": attempt(lambda: keeps_link(at(b"link"))),
        "fifos": attempt(lambda: os.mkfifo(at(b"fifo")) is None and stat.S_ISFIFO(os.lstat(at(b"fifo")).st_mode)),
        "attributes_refused": is_refused(lambda: os.setxattr(make(at(b"refused")), "user.matrix", b"value")),
        "acls_refused": is_refused(lambda: os.setxattr(at(b"refused"), "system.posix_acl_access", bytes.fromhex(wanted["acl"]))),
        "attributes": attempt(lambda: keeps_attribute(make(at(b"attributes")), "user.matrix", b"value")),
        "acls": attempt(
            lambda: keeps_attribute(make(at(b"acl")), "system.posix_acl_access", bytes.fromhex(wanted["acl"]))
        ),
        "owners": attempt(lambda: keeps_owner(make(at(b"owned")), wanted["user"], wanted["user"])),
        "owners_refused": is_refused(lambda: os.chown(at(b"owned"), wanted["user"], wanted["user"])),
        "times_of_others": attempt(lambda: stored_time(at(b"owned"), wanted["times"][0]), None) is not None,
        "modes_of_others": keeps_modes(at(b"owned")),
        "special_modes_of_others": special_modes(at(b"owned")),
        "removed_are_kept": attempt(lambda: keeps_removed(at(b"removed"))),
        "folds": attempt(lambda: make(at(b"Folding")) and os.path.lexists(at(b"fOLDING"))),
        "names": [
            name for name in wanted["names"] if attempt(lambda name=name: keeps_name(at(b"names"), bytes.fromhex(name)))
        ],
    }
    return answers


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], json.load(sys.stdin))))
