"""Whether threads ran and slots lay where they belong: checks of what was seen (`seen.Seen`).

Every check gives problems in words; none means that all is right. What was not seen is a problem, too.
"""

import itertools
import re
from collections import Counter, defaultdict

from . import guest
from .seen import ALL_CPUS, parse_list

# A transfer's processes.
ENDS = 2
# A thread takes its seat itself when it begins, and gives it back when it ends: what that takes under emulation, in 1/100 s.
TICKS_WITHOUT_SEAT = 20
# One that was seen so often and never in a seat has none.
SAMPLES_WITHOUT_SEAT = 5
# Threads of a process, not of a lane: the first one (hwloc sends it to each CPU before there is a plan), the one that waits for
# signals, the one that shows the status, the watch, and the one that carries control messages between the lanes and the far end.
# None touches payload.
OF_PROCESS = ("carrack", "signals", "status", "carrack-watch", "carrack-relay")


def failed_copy(seen):
    """Whether the copy failed or is not what was copied."""
    return [f"status {seen.status}: the copy failed, or is wrong"] if seen.status else []


# --- every thread and every slot where it belongs -----------------------------------------------------


def unseen_io(seen, lanes=2):
    """Processes whose I/O threads were not seen bound to so many sockets: there is nothing to judge, then."""
    # A daemon that shares targets out moves nothing.
    ends = [process for process in seen.processes if seen.io_of(process)]
    problems = [] if len(ends) == ENDS else [f"{len(ends)} processes with bound I/O threads were seen, not {ENDS}"]
    for process in ends:
        sockets = set().union(*(seat.sockets for thread in seen.io_of(process) for seat in thread.seats))
        if len(sockets) != lanes:
            problems.append(f"process {process}'s I/O threads were seen bound to sockets {sorted(sockets)}")
    return problems


def stray_threads(seen):
    """Threads that ran where they were not allowed to, or were allowed on more than one socket."""
    problems = []
    for thread in seen.threads:
        for sighting in thread.sightings:
            if not sighting.cpus <= sighting.allowed:
                problems.append(f"{thread} ran on {sorted(sighting.cpus)}, allowed: {sorted(sighting.allowed)}")
        for seat in thread.seats:
            if len(seat.sockets) != 1:
                problems.append(f"{thread} may run on two sockets: {sorted(seat.allowed)}")
    return problems


def unbound_threads(seen):
    """Threads of lanes that were not bound, or late."""
    problems = []
    for thread in seen.threads:
        if thread.name in OF_PROCESS:
            continue
        if thread.ticks_unbound > TICKS_WITHOUT_SEAT:
            problems.append(f"{thread} worked {thread.ticks_unbound / 100} s while it was not bound")
        if not thread.seats and thread.samples > SAMPLES_WITHOUT_SEAT:
            problems.append(f"{thread} was seen {thread.samples} times, never bound")
    return problems


def unplanned_seats(seen):
    """Lanes whose I/O threads first sat elsewhere than where `carrack topo` plans them. More threads begin again at the first."""
    problems = [] if seen.planned_io else ["there is no plan"]
    for process in seen.processes:
        first = [thread.seats[0].allowed for thread in seen.io_of(process)]
        for index, planned in enumerate(seen.planned_io):
            of_lane = Counter(seat for seat in first if seat & frozenset().union(*planned))
            wanted = Counter(itertools.islice(itertools.cycle(planned), max(len(planned), of_lane.total())))
            if of_lane != wanted:
                cpus = [sorted(map(sorted, counter.elements())) for counter in (of_lane, wanted)]
                problems.append(f"process {process}, lane {index}: I/O threads sat on {cpus[0]}, planned: {cpus[1]}")
    return problems


def spread_of_io(seen):
    """How evenly each process's I/O threads are spread over the nodes of each of their sockets."""
    counts = defaultdict(Counter)
    for process in seen.processes:
        for thread in seen.io_of(process):
            nodes = thread.seats[-1].nodes
            for node in nodes:
                counts[process, guest.socket_of_node(node)][node] += 1 / len(nodes)
    problems = []
    for (process, socket), of_nodes in counts.items():
        own = [of_nodes[node] for node in range(guest.NODES) if guest.socket_of_node(node) == socket]
        if max(own) - min(own) > 1:
            problems.append(f"process {process}'s I/O threads on socket {socket} are not evenly spread: {own}")
    return problems


def stray_pages(seen, lanes=2):
    """Slots that lie on other nodes than their policy says, or on more than one socket, or sockets without slots.

    A pool may be several mappings: the kernel tells its plain pages apart from its huge ones.
    """
    problems = [] if seen.processes else ["no process was seen"]
    for pool in seen.pools:
        for pages in pool.pages:
            strayed = {node: count for node, count in enumerate(pages) if count and node not in pool.bound_to}
            if strayed:
                problems.append(f"{pool} has pages elsewhere: {strayed}")
        if not pool.lies_on:
            problems.append(f"{pool} was never seen with pages")
    for process in seen.processes:
        pools = seen.pools_of(process)
        sockets = {frozenset(guest.socket_of_node(node) for node in pool.bound_to) for pool in pools}
        if sockets != {frozenset([socket]) for socket in range(lanes)}:
            problems.append(f"process {process} should have a pool on each of {lanes} sockets: {[*map(str, pools)]}")
    return problems


def missed_pages(seen):
    """Nodes from which pages were wanted and not had."""
    if len(seen.missed) != guest.NODES:
        return [f"the counters of {len(seen.missed)} nodes were seen"]
    return [f"node {node}: numa_miss grew by {count}" for node, count in seen.missed.items() if count]


# Said at a session's end where anything was.
SPILLED = re.compile(r"\bspill in \S+: .* written\b")


def spilled(seen):
    """Whether anything went to flash, which can bring nothing where a rate is the limit."""
    return [said for said in seen.said if SPILLED.search(said)]


# --- a lane that moves --------------------------------------------------------------------------------

# What carrack says with -v when it moves a lane for the load of others.
MOVES = re.compile(r"\blane \d+: .*\bit moves to\b")


def told_moves(seen):
    """Whether carrack said that a lane moves, and why."""
    return [] if any(map(MOVES.search, seen.said)) else ["carrack told of no lane that moves"]


def process_that_moved(seen):
    """A process whose I/O threads' last seats are all on another socket than their first ones, or None."""
    for process in seen.processes:
        threads = seen.io_of(process)
        if threads and all(thread.seats[0].sockets != thread.seats[-1].sockets for thread in threads):
            return process
    return None


def moved_threads(seen):
    """Whether all I/O threads of a process went to another socket."""
    return [] if process_that_moved(seen) is not None else ["no process's I/O threads all went to another socket"]


def moved_slots(seen):
    """Whether the slots of the process that moved lie where its threads are now."""
    process = process_that_moved(seen)
    pools = seen.pools_of(process)
    if not pools:
        return ["no process with slots moved"]
    run_on = set().union(*(thread.seats[-1].sockets for thread in seen.io_of(process)))
    return [
        f"{pool} lies on nodes {sorted(pool.lies_on)}, its threads run on sockets {sorted(run_on)}"
        for pool in pools
        if {guest.socket_of_node(node) for node in pool.lies_on} != run_on
    ]


# --- zones --------------------------------------------------------------------------------------------

# Said by `look_at_zones` of numa-test.sh.
OTHERS = re.compile(r"^(\w+): others may run on (\S+), zones: (\d+)$")
ZONE = re.compile(r"^(\w+): (\w[\w ()-]*) (\S+), (\d+) process$")


def zones_at(seen, when):
    """(where others may run, [(state, CPUs, processes)]) at a time, or None where nobody looked."""
    others = [match for match in map(OTHERS.match, seen.said) if match and match[1] == when]
    zones = [match for match in map(ZONE.match, seen.said) if match and match[1] == when]
    if not others:
        return None
    return parse_list(others[0][2]), [(match[2], parse_list(match[3]), int(match[4])) for match in zones]


def zone_is_kept(seen, when, owners):
    """At that time a zone exists, with so many processes, and others are kept from its CPUs."""
    others, zones = zones_at(seen, when) or (ALL_CPUS, [])
    if len(zones) != 1:
        return [f"{when}: {len(zones)} zones"]
    state, cpus, processes = zones[0]
    problems = [] if state == "root" else [f"{when}: the zone is not a partition: {state}"]
    if others != ALL_CPUS - cpus:
        problems.append(f"{when}: the zone has {sorted(cpus)}, others may run on {sorted(others)}")
    if processes != owners:
        problems.append(f"{when}: {processes} processes in the zone, not {owners}")
    return problems


def no_zone(seen, when):
    """At that time there is none, and everybody may run everywhere."""
    others, zones = zones_at(seen, when) or (frozenset(), [])
    problems = [f"{when}: {len(zones)} zones"] if zones else []
    return problems if others == ALL_CPUS else [*problems, f"{when}: others may run on {sorted(others)} only"]


def left_its_zone(seen):
    """Threads of carrack that ran outside of the zone after they had been bound."""
    _, zones = zones_at(seen, "during") or (None, [])
    cpus = zones[0][1] if len(zones) == 1 else frozenset()
    of_lanes = [thread for thread in seen.threads if thread.name not in OF_PROCESS]
    problems = [f"{thread} ran on {[*seat.cpus]}" for thread in of_lanes for seat in thread.seats if not seat.cpus <= cpus]
    return problems if any(map(seen.io_of, seen.processes)) else [*problems, "no I/O thread was seen"]


# Said by `machine_tests` of numa-test.sh.
PASSED = re.compile(r"^(\d+) tests passed$")


def failed_tests(seen):
    """Whether a test failed, or none ran."""
    passed = sum(int(match[1]) for match in map(PASSED.match, seen.said) if match)
    return [] if seen.status == 0 and passed else [f"status {seen.status}, {passed} tests passed"]


# (case, what has to be so, check).
CHECKS = [
    ("tests", "carrack-machine's own tests pass on four nodes", failed_tests),
    ("placed", "the copy is right", failed_copy),
    ("placed", "both ends have I/O threads bound to both sockets", unseen_io),
    ("placed", "every thread ran only on the CPUs of its seat, on one socket", stray_threads),
    ("placed", "every thread of a lane has a seat from its start", unbound_threads),
    ("placed", "each I/O thread has the seat that carrack topo plans", unplanned_seats),
    ("placed", "I/O threads are spread evenly over their socket's nodes", spread_of_io),
    ("placed", "a pool on each socket, every slot page on its lane's nodes", stray_pages),
    ("placed", "no page was had from another node than wanted", missed_pages),
    ("held", "the copy is right", failed_copy),
    ("held", "with a rate, --nice, shared targets and flash both ends have I/O threads bound to both sockets", unseen_io),
    ("held", "every thread ran only on the CPUs of its seat, on one socket", stray_threads),
    ("held", "nothing is written to flash, as a rate is the limit", spilled),
    ("moved", "the copy is right", failed_copy),
    ("moved", "carrack tells that a lane moves, and why", told_moves),
    ("moved", "all of its I/O threads went to the other socket", moved_threads),
    ("moved", "its slots went along", moved_slots),
    ("zone", "the copy is right", failed_copy),
    ("zone", "there is none before", lambda seen: no_zone(seen, "before")),
    ("zone", "a partition keeps others off the lane's cores", lambda seen: zone_is_kept(seen, "during", 1)),
    ("zone", "carrack's threads stay in it", left_its_zone),
    ("zone", "it is gone at the end", lambda seen: no_zone(seen, "after")),
    ("zone-killed", "the copy after that is right", failed_copy),
    ("zone-killed", "kill -9 leaves it behind", lambda seen: zone_is_kept(seen, "killed", 0)),
    ("zone-killed", "the next start removes it", lambda seen: no_zone(seen, "repaired")),
]
