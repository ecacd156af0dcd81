"""The parts of bench/numa that decide what is right and what the counts say."""

import unittest

from numa import counting, guest, judge, report, seen

PAGES_PER_NODE = 1024
# Of one of those who access memory.
NOTHING = (0, 0, 0, 0)
NODE_BYTES = PAGES_PER_NODE * counting.PAGE_BYTES


def thread(number, name, *seen, process=1, ticks=1):
    """A thread's records: (allowed, cpus, samples)."""
    shared = {"thread": number, "process": process, "name": name, "ticks": ticks}
    return [{**shared, "allowed": allowed, "cpus": cpus, "samples": samples} for allowed, cpus, samples in seen]


def pool(start, policy, *pages, process=1):
    """A pool's record."""
    return {"pool": start, "process": process, "policy": policy, "bytes": 8192, "pages": [list(p) for p in pages]}


def case(*records, status=0):
    """What was seen in a case."""
    return seen.Seen({"status": status}, list(records))


PROCESS = {"process": 1, "command": "carrack cp a b"}


class Placed(unittest.TestCase):
    """Made-up transfers, right and wrong."""

    def test_lists(self):
        self.assertEqual(seen.parse_list("0-2,5"), {0, 1, 2, 5})
        self.assertEqual(seen.nodes_of_policy("bind:2-3"), {2, 3})
        self.assertEqual(seen.nodes_of_policy("bind=static:1"), {1})
        self.assertEqual(seen.nodes_of_policy("default"), frozenset())
        self.assertEqual(seen.nodes_of_policy("interleave:0-3"), frozenset())

    def test_copies(self):
        self.assertEqual(judge.failed_copy(case()), [])
        self.assertEqual(len(judge.failed_copy(case(status=1))), 1)

    def test_a_thread_in_its_seat_is_right(self):
        right = case(*thread(2, "carrack-read", ("0-7", [5], 1), ("2-3", [2, 3], 9)))
        self.assertEqual(judge.stray_threads(right) + judge.unbound_threads(right), [])

    def test_a_thread_on_a_cpu_that_it_was_not_allowed_is_told(self):
        self.assertEqual(len(judge.stray_threads(case(*thread(2, "carrack-read", ("2-3", [2, 4], 9))))), 1)

    def test_a_thread_allowed_on_two_sockets_is_told(self):
        self.assertEqual(len(judge.stray_threads(case(*thread(2, "carrack-read", ("3-4", [3], 9))))), 1)

    def test_a_thread_that_was_never_bound_or_late_is_told(self):
        self.assertEqual(len(judge.unbound_threads(case(*thread(2, "carrack-read", ("0-7", [2], 9))))), 1)
        late = case(*thread(2, "carrack-read", ("0-7", [2], 3), ("0-1", [0], 3), ticks=80))
        self.assertEqual(len(judge.unbound_threads(late)), 1)

    def test_a_first_thread_is_bound_when_there_is_a_plan(self):
        first = thread(1, "carrack", ("0-7", [2, 6], 5), ("0", [0], 3))
        self.assertEqual(judge.unbound_threads(case(*first, *thread(3, "signals", ("0-7", [1], 9)))), [])

    def test_seats_are_those_of_the_plan(self):
        plan = {"planned": {"placement": {"lanes": [{"io": [{"cpus": [0]}, {"cpus": [1]}]}]}}}
        near = thread(3, "carrack-read", ("0-7", [4], 1), ("1", [1], 2))
        other, elsewhere = thread(4, "carrack-read", ("0", [0], 2)), thread(4, "carrack-read", ("1", [1], 2))
        self.assertEqual(judge.unplanned_seats(case(PROCESS, plan, *near, *other)), [])
        self.assertEqual(len(judge.unplanned_seats(case(PROCESS, plan, *near, *elsewhere))), 1)
        self.assertEqual(len(judge.unplanned_seats(case(PROCESS, plan, *near))), 1)
        again, twice = thread(5, "carrack-read", ("0", [0], 2)), thread(5, "carrack-read", ("1", [1], 2))
        self.assertEqual(judge.unplanned_seats(case(PROCESS, plan, *near, *other, *again)), [])
        self.assertEqual(len(judge.unplanned_seats(case(PROCESS, plan, *near, *other, *twice))), 1)
        self.assertTrue(judge.unplanned_seats(case(PROCESS, *near)))

    def test_io_threads_are_spread_over_the_nodes_of_their_socket(self):
        even = [r for i in range(4) for r in thread(i, "carrack-write", (str(i), [i], 2))]
        self.assertEqual(judge.spread_of_io(case(PROCESS, *even)), [])
        heap = [r for i in range(4) for r in thread(i, "carrack-write", ("0-1", [0], 2))]
        self.assertEqual(len(judge.spread_of_io(case(PROCESS, *heap))), 1)

    def test_slots_on_their_nodes_are_right(self):
        pools = [pool("a", "bind:0-1", (1, 1, 0, 0), (2, 2, 0, 0)), pool("b", "bind:2-3", (0, 0, 2, 2))]
        self.assertEqual(judge.stray_pages(case(PROCESS, *pools)), [])

    def test_slots_elsewhere_are_told(self):
        right = pool("b", "bind:2-3", (0, 0, 2, 2))
        elsewhere = pool("a", "bind:0-1", (2, 2, 0, 0), (2, 1, 1, 0))
        self.assertEqual(len(judge.stray_pages(case(PROCESS, elsewhere, right))), 1)
        self.assertEqual(len(judge.stray_pages(case(PROCESS, right))), 1)
        self.assertEqual(len(judge.stray_pages(case(PROCESS, right, right))), 1)
        self.assertEqual(len(judge.stray_pages(case(PROCESS, pool("a", "bind:0-1", (0, 0, 0, 0)), right))), 1)
        self.assertTrue(judge.stray_pages(case(PROCESS, pool("a", "default", (2, 2, 0, 0)), right)))

    def test_both_ends_have_to_be_seen_on_both_sockets(self):
        other = {"process": 2, "command": "carrack session"}
        near = [*thread(3, "carrack-read", ("0-1", [0], 2)), *thread(4, "carrack-read", ("4", [4], 2))]
        far = [
            *thread(5, "carrack-write", ("2", [2], 2), process=2),
            *thread(6, "carrack-write", ("7", [7], 2), process=2),
        ]
        self.assertEqual(judge.unseen_io(case(PROCESS, other, *near, *far)), [])
        self.assertEqual(len(judge.unseen_io(case(PROCESS, other, *near, *far[:1]))), 1)
        self.assertEqual(len(judge.unseen_io(case(PROCESS, *near))), 1)

    def test_nothing_seen_is_not_right(self):
        self.assertTrue(judge.stray_pages(case()))
        self.assertTrue(judge.stray_pages(case(PROCESS)))
        self.assertTrue(judge.missed_pages(case()))

    def test_missed_pages_are_told(self):
        nodes = [{"node": node, "numa_miss": 0} for node in range(guest.NODES)]
        self.assertEqual(judge.missed_pages(case(*nodes)), [])
        self.assertEqual(len(judge.missed_pages(case(*nodes[1:], {"node": 0, "numa_miss": 3}))), 1)


def saying(*lines):
    """Records of what was said."""
    return [{"said": line} for line in lines]


class Tests(unittest.TestCase):
    """Programs of tests in the guest."""

    def test_all_have_to_pass_and_some_to_run(self):
        self.assertEqual(judge.failed_tests(case(*saying("41 tests passed"))), [])
        self.assertEqual(len(judge.failed_tests(case(*saying("0 tests passed")))), 1)
        self.assertEqual(len(judge.failed_tests(case(*saying("40 tests passed"), status=101))), 1)


class Zones(unittest.TestCase):
    """What the script said of zones."""

    RIGHT = saying("during: others may run on 4-7, zones: 1", "during: root 0-3, 1 process")

    def test_a_kept_zone(self):
        self.assertEqual(judge.zone_is_kept(case(*self.RIGHT), "during", 1), [])
        self.assertEqual(len(judge.zone_is_kept(case(*self.RIGHT), "during", 0)), 1)
        self.assertEqual(len(judge.zone_is_kept(case(*self.RIGHT), "later", 1)), 1)

    def test_a_thread_that_leaves_it(self):
        inside, outside = (thread(2, "carrack-read", (*seat, 3)) for seat in [("0-1", [0, 1]), ("3-4", [4])])
        self.assertEqual(judge.left_its_zone(case(PROCESS, *self.RIGHT, *inside)), [])
        self.assertEqual(len(judge.left_its_zone(case(PROCESS, *self.RIGHT, *outside))), 1)
        self.assertEqual(len(judge.left_its_zone(case(PROCESS, *inside))), 1)
        self.assertEqual(len(judge.left_its_zone(case(PROCESS, *self.RIGHT))), 1)

    def test_a_zone_that_keeps_nobody_away(self):
        wrong = [("0-7", "root"), ("4-7", "member"), ("4-6", "root"), ("4-7", "root invalid (why)")]
        for others, state in wrong:
            zone = f"{state} 0-3"
            lines = saying(f"during: others may run on {others}, zones: 1", f"during: {zone}, 1 process")
            self.assertEqual(len(judge.zone_is_kept(case(*lines), "during", 1)), 1, lines)

    def test_no_zone(self):
        self.assertEqual(judge.no_zone(case(*saying("after: others may run on 0-7, zones: 0")), "after"), [])
        self.assertEqual(len(judge.no_zone(case(*saying("after: others may run on 4-7, zones: 0")), "after")), 1)
        self.assertEqual(len(judge.no_zone(case(), "after")), 1)


class Moves(unittest.TestCase):
    """A lane that goes elsewhere."""

    THREADS = [
        PROCESS,
        *thread(3, "carrack-read", ("0-7", [6], 1), ("0-1", [0], 2), ("4-5", [4], 2)),
        *thread(4, "carrack-read", ("2-3", [2], 2), ("6", [6], 2)),
    ]

    def test_threads_and_slots_that_moved(self):
        moved = case(*self.THREADS, pool("a", "bind:2-3", (2, 2, 0, 0), (0, 0, 2, 2)))
        self.assertEqual(judge.moved_threads(moved) + judge.moved_slots(moved), [])

    def test_slots_that_stayed(self):
        self.assertEqual(len(judge.moved_slots(case(*self.THREADS, pool("a", "bind:0-1", (2, 2, 0, 0))))), 1)

    def test_a_thread_that_stayed(self):
        stayed = thread(5, "carrack-read", ("1", [1], 9))
        half = case(*self.THREADS, *stayed, pool("a", "bind:2-3", (0, 0, 2, 2)))
        self.assertEqual(len(judge.moved_threads(half)), 1)
        self.assertEqual(len(judge.moved_slots(half)), 1)

    def test_what_was_told(self):
        told = saying("carrack: lane 0: others take 80 % of its CPUs: it moves to socket 1")
        self.assertEqual(judge.told_moves(case(*told)), [])
        self.assertEqual(len(judge.told_moves(case(*saying("carrack: connected")))), 1)


class Records(unittest.TestCase):
    """What the guest tells."""

    def test_cases(self):
        text = '{"node":9}\n{"case":"a"}\n{"node":0}\n\n{"case":"b"}\n'
        groups = guest.sections(guest.read_records(text), "case")
        self.assertEqual(groups, [({"case": "a"}, [{"node": 0}]), ({"case": "b"}, [])])


class Counting(unittest.TestCase):
    """Bytes by distance and owner."""

    RECORDS = [
        {"process": 7, "command": "carrack cp -r /in h:/out "},
        {"process": 8, "command": "carrack session "},
        {"pool": "x", "process": 7, "frames": [[0, 2]]},
        {"pool": "y", "process": 8, "frames": [[2 * PAGES_PER_NODE, 1]]},
        {"files": 1, "frames": [[9, 1]]},
        {"files": 1, "frames": [[10, 1]]},
    ]

    def test_owners(self):
        kinds = {0: "source slots", 1: "source slots", 2048: "sink slots", 9: "input files", 10: "output files"}
        self.assertEqual(counting.owners(self.RECORDS), kinds)

    def test_distances(self):
        distances = ["own node", "same socket", "other socket", "other socket"]
        self.assertEqual([counting.distance(0, node) for node in range(guest.NODES)], distances)

    def test_sums_and_what_they_cost(self):
        records = [
            (1, 0, 100, 50, 64, 0, *NOTHING, *NOTHING),
            (2048, 1, *NOTHING, 0, 40, 0, 64, *NOTHING),
            (3 * PAGES_PER_NODE, 6, 1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0),
        ]
        data = b"".join(counting.RECORD.pack(*record) for record in records)
        sums = counting.read_counts(data, NODE_BYTES, counting.owners(self.RECORDS))
        table = counting.summary(sums, 10)
        self.assertEqual(table["source slots"]["loaded"]["own node"], 10)
        self.assertEqual(table["source slots"]["stored"]["own node"], 5)
        self.assertEqual(table["sink slots"]["stored"]["other socket"], 4)
        self.assertEqual(table["socket memory"]["loaded"]["own node"], 0.2)
        self.assertEqual(table["programs' rest"]["loaded"]["own node"], 0.1)
        loaded_and_stored = counting.per_distance(table, counting.SLOTS, ["loaded", "stored"])
        self.assertEqual(loaded_and_stored, {"own node": 15, "same socket": 0, "other socket": 4})
        self.assertEqual(counting.per_distance(table), {"own node": 6.4, "same socket": 0, "other socket": 6.4})
        twice = counting.summary(sums, 10, times=2)
        self.assertEqual(twice["sink slots"]["stored"]["other socket"], 8)
        self.assertEqual(counting.without(table, table)["sink slots"]["stored"]["other socket"], 0)

    def test_what_bytes_cost(self):
        near, far = {"own node": 10, "other socket": 0}, {"own node": 0, "other socket": 20}
        self.assertAlmostEqual(counting.gain(far, near), 3160.43 / 2131.24 - 1)

    def test_addresses_of_copying_routines(self):
        lines = ["10 T memcpy", "10 W __memcpy", "20 t memcpy_orig", "30 T x", "40 T memcpy_fromio", "50 T y"]
        self.assertEqual(counting.bulk_ranges(lines), [(0x10, 0x1F), (0x20, 0x2F)])


IDLE = counting.summary({}, 1)


class Reports(unittest.TestCase):
    """NUMA.md."""

    def results(self, other):
        """Two schemes with so many bytes of slots on the other socket."""
        rows = []
        for scheme, count in other.items():
            ways = ["stored", "written"]
            sums = {("sink slots", "bulk", way, away): 100 for away in counting.DISTANCES for way in ways}
            sums.update({("sink slots", "bulk", way, counting.OTHER): count for way in ways})
            table = counting.summary(sums, 100)
            rows.append({"workload": "big", "input": "disk", "scheme": scheme, "round": 0, "table": table, "idle": IDLE})
        about = {"date": "d", "commit": "c", "command": "x", "emulator": "e", "options": "o"}
        about |= {"workloads": {"big": [4, 1024]}, "cache_kib": 1}
        about |= {"schemes": dict.fromkeys(other, "--x"), "cpus": dict.fromkeys(other, "0-7")}
        return {"about": about, "rows": rows}

    def test_goals(self):
        reached = report.goal(self.results({"off": 100, "mts": 0}))
        self.assertEqual(reached.count("| yes |"), 3)
        missed = report.goal(self.results({"off": 100, "mts": 6}))
        self.assertEqual(missed.count("**no**"), 3)

    def test_documents_of_any_schemes(self):
        self.assertIn("MTS", report.document(self.results({"off": 100, "mts": 0})))
        self.assertNotIn("MTS: and", report.document(self.results({"off": 100})))


if __name__ == "__main__":
    unittest.main()
