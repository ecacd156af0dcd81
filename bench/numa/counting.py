"""The plugin's counts: bytes by distance and by whose memory it was, and what they would cost.

Loaded and stored is what instructions ask for; fetched and written what passes a cache of each CPU, in lines of 64 bytes. The
plugin's file format, and its cache, are in `testbed/numacount.c`.
"""

import bisect
import re
import struct
from collections import Counter

from . import guest

PAGE_BYTES = 4096
RECORD = struct.Struct("<II12Q")
# The order of a record's figures: all ways by each of them.
WHO = ["program", "bulk", "kernel"]
LOADED, STORED, FETCHED, WRITTEN = "loaded", "stored", "fetched", "written"
WAYS = [LOADED, STORED, FETCHED, WRITTEN]
# What a machine with caches moves.
TRAFFIC = [FETCHED, WRITTEN]

OWN, SOCKET, OTHER = "own node", "same socket", "other socket"
DISTANCES = [OWN, SOCKET, OTHER]

# N5, the NUMA paper's table 1, in MB/s.
RATES_MB_PER_S = {OWN: 3160.43, SOCKET: 3038.85, OTHER: 2131.24}

# Whose memory: slots of each end, the pages of the files that are read and written, what the kernel copies and is neither (socket
# memory, nearly all), and the rest: programs' stacks and heaps, the kernel's own data.
SLOTS = ["source slots", "sink slots"]
FILES = ["input files", "output files"]
SOCKETS = "socket memory"
REST = {"program": "programs' rest", "kernel": "kernel's rest", "bulk": SOCKETS}
KINDS = [*SLOTS, *FILES, SOCKETS, REST["program"], REST["kernel"]]
# What holds payload.
PAYLOAD = [*SLOTS, *FILES, SOCKETS]
# What the engine decides about: its slots and the sockets that its threads use. Whose node a file's page lies on the file
# system decides, or who wrote the file.
ENGINE = [*SLOTS, SOCKETS]

# The kernel's routines that copy, clear and sum.
BULK_ROUTINES = re.compile(
    r"clear_page_(rep|orig|erms)|clear_user_(original|rep_good|erms)|copy_page(_regs)?|copy_user_\w+|__copy_user_nocache"
    r"|csum_partial(_copy_generic)?|_{0,2}mem(cpy|move|set)(_orig|_erms)?"
)


def bulk_ranges(symbols):
    """First and last address of each bulk routine, from lines of /proc/kallsyms in order of address."""
    parsed = [(int(address, 16), name) for address, _, name in (line.split()[:3] for line in symbols)]
    starts = sorted({address for address, _ in parsed})
    found = sorted({address for address, name in parsed if BULK_ROUTINES.fullmatch(name)})
    ends = {address: starts[bisect.bisect_right(starts, address)] - 1 for address in found if address < starts[-1]}
    return sorted(ends.items())


def distance(cpu, node):
    """How far a node is from a CPU."""
    own = guest.node_of_cpu(cpu)
    if own == node:
        return OWN
    return SOCKET if guest.socket_of_node(own) == guest.socket_of_node(node) else OTHER


def frames(record):
    """The physical pages that a record names."""
    return {first + i for first, count in record["frames"] for i in range(count)}


def owners(records):
    """Whose a physical page is, from the records of witness.c and mark.c in one case."""
    ends = {r["process"]: end_of(r["command"]) for r in records if "command" in r}
    owner = {}
    lists = [record for record in records if "files" in record]
    for kind, record in zip(FILES, lists, strict=bool(lists)):
        owner.update(dict.fromkeys(frames(record), kind))
    for record in records:
        if "pool" in record:
            owner.update(dict.fromkeys(frames(record), SLOTS[ends[record["process"]]]))
    return owner


def end_of(command):
    """0: the source, 1: the sink. The far end is started as a session."""
    return 1 if command.split()[1:2] == ["session"] else 0


def read_counts(data, node_bytes, owner):
    """Bytes by (kind, who, way, distance)."""
    pages_per_node = node_bytes // PAGE_BYTES
    sums = Counter()
    for page, cpu, *bytes_moved in RECORD.iter_unpack(data):
        away = distance(cpu, page // pages_per_node)
        kind = owner.get(page)
        for index, count in enumerate(bytes_moved):
            who = WHO[index // len(WAYS)]
            sums[kind or REST[who], who, WAYS[index % len(WAYS)], away] += count
    return sums


def summary(sums, payload_bytes, times=1):
    """Per payload byte: {kind: {way: {distance: x}}}. `times`: so often the same."""
    table = {kind: {way: dict.fromkeys(DISTANCES, 0.0) for way in WAYS} for kind in KINDS}
    for (kind, _, way, away), count in sums.items():
        table[kind][way][away] += count * times / payload_bytes
    return table


def per_distance(table, kinds=tuple(KINDS), ways=tuple(TRAFFIC)):
    """Bytes per payload byte at each distance."""
    return {away: sum(table[kind][way][away] for kind in kinds for way in ways) for away in DISTANCES}


def without(table, idle):
    """A table less what the machine does by itself in that time."""
    return {
        kind: {way: {away: max(0, n - idle[kind][way][away]) for away, n in of_way.items()} for way, of_way in ways.items()}
        for kind, ways in table.items()
    }


def time_per_byte(table):
    """What the traffic costs if one access comes after the other, at N5's rates: seconds per MB of payload."""
    return sum(count / RATES_MB_PER_S[away] for away, count in per_distance(table).items())


def gain(base, table):
    """How much faster than `base`, if nothing but this traffic took time."""
    return time_per_byte(base) / time_per_byte(table) - 1
