"""Whether a copy is right: what a destination has, compared with what its source has and with what the probe says that can be
kept there. Each function returns complaints, an empty list where all is well."""

import os

import tree

SET_IDS = 0o6000
COMPLAINTS_MAX = 8


class Expected:
    """What the copy of a tree has to keep."""

    def __init__(self, probe, archive, umask, user, daemon=False, names_known=True):
        self.probe = probe
        self.archive = archive
        self.umask = umask
        self.user = user
        self.daemon = daemon
        self.names_known = names_known  # whether the source tells for sure which names are one file's


def shown(path):
    """A path for people."""
    text = os.fsdecode(path or b".").encode("unicode_escape", "surrogateescape").decode("ascii", "replace")
    return text if len(text) < 40 else text[:37] + "..."


def compare(source, copy, expected, missing=()):
    """All complaints about a COPY of SOURCE, both snapshots. MISSING are the paths that need not be there."""
    complaints = []
    for path, wanted in source.items():
        found = copy.get(path)
        if wanted.kind == "fifo" and not expected.archive:
            continue  # left out, and counted
        if found is None:
            if path not in missing:
                complaints.append(f"{shown(path)} is missing")
        elif not wanted.same_content(found):
            complaints.append(f"{shown(path)}: {found.kind} of another content than the source's {wanted.kind}")
        else:
            complaints += [f"{shown(path)}: {words}" for words in compare_entry(path, wanted, found, expected)]
    complaints += [f"{shown(path)} is there, and not at the source" for path in copy if path not in source]
    if expected.archive:
        complaints += compare_names(source, copy, expected)
    return complaints


def compare_entry(path, wanted, found, expected):
    """Rights, times and attributes of one entry whose content is right."""
    complaints = []
    if wanted.kind != "symlink":
        complaints += compare_mode(path, wanted, found, expected)
        # The journal that lay in it is closed last.
        if shown(path) != "." or not expected.probe["removed_are_kept"]:
            complaints += compare_time(wanted, found, expected)
    if wanted.kind == "file" and expected.probe["holes"] and is_sparse(wanted) and found.held_bytes > wanted.bytes // 2:
        complaints.append(f"holes of it are filled: {found.held_bytes} bytes are held of {wanted.bytes}")
    if expected.archive:
        complaints += compare_owner(wanted, found, expected)
        complaints += compare_attributes(wanted, found, expected)
    return complaints


def is_sparse(entry):
    """Whether most of it is a hole, so that no file system's block sizes blur it."""
    return entry.has_hole and entry.bytes >= tree.SPARSE_BYTES and entry.held_bytes < entry.bytes // 2


def limit_of_mode(wanted, found, expected):
    """The most permission bits that the copy may have."""
    keeps_user = found.user == wanted.user
    keeps_group = found.group == wanted.group
    bits = wanted.mode & 0o7777
    if not expected.archive and (wanted.kind == "directory" or expected.probe["umask"]):
        # A set-group-ID bit and a sticky bit of directories give no rights to what the entry does.
        bits &= ~expected.umask
    if wanted.kind == "file":
        if not keeps_user or expected.daemon:
            bits &= ~0o4000
        if not keeps_group or expected.daemon:
            bits &= ~0o2000
    return bits


def compare_mode(path, wanted, found, expected):
    """Never wider; and the same where modes can be kept."""
    probe = expected.probe
    if probe["created_mode"] != 0o600:
        return []  # the file system shows modes of its own, whatever is asked for
    if path == b"" and not expected.archive and found.user != wanted.user and expected.daemon:
        return []
    limit = limit_of_mode(wanted, found, expected)
    compared = 0o777 | (SET_IDS if wanted.kind == "file" else 0)
    if not can_set_mode(found, expected):
        limit |= 0o700  # a directory that was to be filled had to be its owner's to write
    wider = found.mode & compared & ~limit
    if wider:
        return [f"mode {found.mode:04o} is wider than {limit:04o} (at the source {wanted.mode:04o})"]
    narrower = 0o777 & limit & ~found.mode
    if narrower and can_set_mode(found, expected) and "system.posix_acl_access" not in wanted.attributes:
        return [f"mode {found.mode:04o} and not {limit:04o}"]
    if expected.archive and wanted.kind == "file" and not expected.daemon and probe["owners"]:
        lacking = limit & SET_IDS & ~found.mode & probe["special_modes_of_others"]
        return [f"mode {found.mode:04o} lacks a set-ID bit of {limit:04o}"] if lacking else []
    return []


def can_set_mode(found, expected):
    """Whether the user can set modes of what belongs to him, or to others."""
    return expected.probe["modes" if found.user == expected.user else "modes_of_others"]


def compare_time(wanted, found, expected):
    """As near as the file system stores it, as the probe found."""
    times = {int(told): stored for told, stored in expected.probe["times"].items() if stored is not None}
    if not times or found.user != expected.user and not expected.probe["times_of_others"]:
        return []
    if wanted.mtime_ns in times:
        grain = granularity(times)
        if abs(found.mtime_ns - times[wanted.mtime_ns]) < grain:
            return []
        return [f"time {found.mtime_ns} and not {times[wanted.mtime_ns]}"]
    grain = granularity(times)
    if abs(found.mtime_ns - wanted.mtime_ns) < grain:
        return []
    return [f"time {found.mtime_ns} and not {wanted.mtime_ns} (kept to {grain} ns)"]


def granularity(times):
    """The least of the usual ones (a nanosecond to FAT's two seconds) that explains how ordinary times are stored."""
    ordinary = [(told, stored) for told, stored in times.items() if abs(told - tree.ORDINARY_NS) < 400 * tree.NANO]
    for grain in (1, 100, 1_000, 1_000_000, 10_000_000, tree.NANO, 2 * tree.NANO):
        if all(abs(told - stored) < grain for told, stored in ordinary):
            return grain
    return 1 << 62  # times are not kept at all


def compare_owner(wanted, found, expected):
    """Where files can be given away."""
    if not expected.probe["owners"] or expected.user != 0 or expected.daemon:
        return []
    if (found.user, found.group) == (wanted.user, wanted.group):
        return []
    return [f"belongs to {found.user}:{found.group} and not to {wanted.user}:{wanted.group}"]


def compare_attributes(wanted, found, expected):
    """Those that can be set there."""
    kept = []
    if expected.probe["attributes"]:
        kept.append("user.matrix")
    if expected.probe["acls"]:
        kept.append("system.posix_acl_access")
    return [f"{name} is not kept" for name in kept if wanted.attributes.get(name) != found.attributes.get(name)]


def compare_names(source, copy, expected):
    """Names of one file are names of one file again, where that can be."""
    if not expected.probe["hard_links"] or not expected.names_known:
        return []
    complaints = []
    first = {}
    for path, entry in source.items():
        if entry.kind != "file" or path not in copy:
            continue
        same = first.setdefault(entry.identity, path)
        if same != path and copy[same].identity != copy[path].identity:
            complaints.append(f"{shown(path)} and {shown(same)} are one file at the source, and two here")
    return complaints


def losses(source, copy, outcome, expected):
    """What is not kept has to be told, but for what the file system only pretends to set."""
    probe = expected.probe
    if "kept" in outcome.told():
        return []
    for path, wanted in source.items():
        found = copy.get(path)
        if found is None or not expected.archive:
            continue
        if probe["modes_refused"] and wanted.kind != "symlink" and (found.mode ^ wanted.mode) & 0o777:
            return [f"{shown(path)} has mode {found.mode:04o} and not {wanted.mode:04o}, which nobody is told"]
        if probe["owners_refused"] and expected.user == 0 and not expected.daemon and (found.user, found.group) != (wanted.user, wanted.group):
            return [f"{shown(path)} belongs to {found.user}:{found.group}, which nobody is told"]
        refused = [
            name for name, value in wanted.attributes.items()
            if found.attributes.get(name) != value and probe["acls_refused" if name.startswith("system") else "attributes_refused"]
        ]
        if refused and not expected.daemon:
            return [f"{shown(path)} has lost attributes, which nobody is told"]
    return []


def status(outcome, wanted):
    """The exit code, one of the WANTED."""
    if outcome.status in wanted:
        return []
    codes = " or ".join(str(code) for code in wanted)
    return [f"exit code {outcome.status} and not {codes}: {outcome.brief()}"]


def untouched(before, after, where, times=True):
    """Nothing is different between two snapshots, but for the times of directories, and of files where TIMES is false: some
    servers store those when they like."""
    complaints = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None or other is None:
            complaints.append(f"{where}: {shown(path)} {'is left' if one is None else 'is gone'}")
        elif not one.same_content(other) or (one.mode, one.user, one.group) != (other.mode, other.user, other.group):
            complaints.append(f"{where}: {shown(path)} is changed ({one.mode:04o} {one.user} to {other.mode:04o} {other.user})")
        elif times and one.kind == "file" and one.mtime_ns != other.mtime_ns:
            complaints.append(f"{where}: {shown(path)} has another time")
    return complaints
