"""bench/sharing: its figures, its copies' check, what it lets Prometheus know. The parts need disks; their pieces don't."""

import tempfile
import unittest
from pathlib import Path

from harness import load_feed, shared_disks, sharing_faults, sharing_foreground, sharing_run, sharing_transfers

MIB = 1 << 20


class Figures(unittest.TestCase):
    """From samples of what was read."""

    # Two of which the first pauses from 2 to 5, the second from 4 to 5.
    SAMPLES = [(0, [0, 0]), (1, [10, 5]), (2, [20, 10]), (3, [20, 15]), (4, [20, 20]), (5, [20, 20]), (6, [40, 25])]

    def test_rates_are_means(self):
        self.assertEqual(sharing_run.rates(self.SAMPLES), [40 / 6, 25 / 6])
        self.assertEqual(sharing_run.rates(sharing_run.between(self.SAMPLES, 0.5, 2.5)), [10, 5])

    def test_the_worst_window_is_found(self):
        self.assertEqual(sharing_run.worst_window(self.SAMPLES, 0, 3), 0)
        self.assertEqual(sharing_run.worst_window(self.SAMPLES, 1, 2), 2.5)
        self.assertEqual(sharing_run.worst_window(self.SAMPLES, 0, 100), 40 / 6, "shorter than the window: all of it")

    def test_pauses_are_those_of_one_or_of_all(self):
        self.assertEqual(sharing_run.longest_pause(self.SAMPLES, lambda values: values[0]), 3)
        self.assertEqual(sharing_run.longest_pause(self.SAMPLES, sum), 1)

    def test_fairness_is_jains(self):
        self.assertEqual(sharing_transfers.fairness([3.0] * 4), 1)
        self.assertEqual(sharing_transfers.fairness([1, 0, 0, 0]), 0.25)


class Faults(unittest.TestCase):
    """What is seen of who has a target."""

    def watch(self, *seen):
        watch = sharing_faults.Watch("/nowhere")
        watch.seen = list(seen)
        return watch

    def test_who_comes_later_does_not_have_it_yet(self):
        holder = {"client": "root/vm:17:1a2.0", "starts_in_us": 0}
        later = {"client": "root/vm:18:1a3.0", "starts_in_us": 90_000}
        state = sharing_faults._holders({"holders": [holder, later], "waiting": [{}]})
        self.assertEqual(state, ({17}, True))

    def test_a_dead_ones_targets_are_had_by_others(self):
        watch = self.watch((1, {"a": ({17}, True), "b": ({18}, True)}), (3, {"a": ({17}, True)}), (4, {"a": ({18}, False)}))
        self.assertEqual(watch.held_by_others(["a", "b"], 2, 17), {"a": 2, "b": None})

    def test_what_others_wait_for_is_contended(self):
        watch = self.watch((1, {"a": ({17}, True), "b": ({17}, False), "c": ({18}, True)}))
        self.assertEqual(watch.contended(17), ["a"])


class Copies(unittest.TestCase):
    """Whether a copy is its source."""

    def test_content_and_length_count(self):
        with tempfile.TemporaryDirectory() as name:
            disks = shared_disks.SharedDisks(Path(name), 2, MIB, MIB)
            right, other = Path(name) / "p1-03", Path(name) / "p1-04"
            disks._write(right, disks._shift(1, 3))
            self.assertTrue(disks.is_right(right))
            other.write_bytes(right.read_bytes())
            self.assertFalse(disks.is_right(other), "another file's content")
            content = bytearray(right.read_bytes())
            content[-1] ^= 1
            right.write_bytes(content)
            self.assertFalse(disks.is_right(right))
            right.write_bytes(content[:-1])
            self.assertFalse(disks.is_right(right))

    def test_transfers_have_all_files_between_them(self):
        disks = shared_disks.SharedDisks(Path("/nowhere"), 2, MIB, MIB)
        parts = [disks.part(number, 4) for number in range(4)]
        self.assertEqual(sorted(sum(parts, [])), sorted(disks.files(range(shared_disks.PIECES))))
        self.assertEqual({len(part) for part in parts}, {8})


class Load(unittest.TestCase):
    """The past that Prometheus knows, and what the daemon tells of the present."""

    NOW_S = 1_795_404_000

    def test_the_present_hour_is_a_busy_one_of_a_daily_pattern(self):
        begins_s = (self.NOW_S - load_feed.BUSY_HOURS * 1800) % load_feed.DAY_S
        seen = dict(load_feed.loads(self.NOW_S, begins_s, 1))
        days = [seen[self.NOW_S - day * load_feed.DAY_S] for day in range(load_feed.HISTORY_DAYS + 1)]
        self.assertGreater(min(days), load_feed.BUSY * (1 - load_feed.NOISE) - 1e-9)
        nights = [seen[self.NOW_S - load_feed.DAY_S // 2 - day * load_feed.DAY_S] for day in range(load_feed.HISTORY_DAYS)]
        self.assertLess(max(nights), load_feed.IDLE * (1 + load_feed.NOISE) + 1e-9)
        busy = sum(load > load_feed.BUSY / 2 for load in seen.values()) / len(seen)
        self.assertAlmostEqual(busy, load_feed.BUSY_HOURS / 24, delta=0.01)

    def test_history_is_openmetrics_with_counters_that_grow(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "history"
            load_feed.write_history(path, ["loop1", "loop2"], 1e6, self.NOW_S)
            lines = path.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), (f"# TYPE {load_feed.METRIC.removesuffix('_total')} counter", "# EOF"))
        first = [line.split() for line in lines if '"loop1"' in line]
        self.assertEqual(len(first), load_feed.HISTORY_DAYS * 1440 + 1)
        values = [int(value) for _, value, _ in first]
        self.assertEqual(values, sorted(values))

    def test_load_is_told_apart_from_the_time_without(self):
        units = [{"begun_s": 0, "ended_s": 12}, {"begun_s": 22, "ended_s": 34}]  # a window and two steps: from 6 and 18, then from 28 on
        late_s = sharing_foreground.WINDOW_S + 2 * sharing_foreground.EVERY_S
        seen = [(at_s, {"a": (0.4 if late_s <= at_s <= 12 or 28 <= at_s <= 34 else 0.0 if at_s >= 18 else 0.2, 0.3)}) for at_s in range(36)]
        found = sharing_foreground.told([*seen, (35.5, {"b": (None, None)})], units, 34)
        self.assertEqual(found["unknown"], ["b"])
        self.assertAlmostEqual(found["busy"]["load"], 0.4)
        self.assertAlmostEqual(found["busy"]["expected"], 0.3)
        self.assertAlmostEqual(found["idle"]["load"], 0.0)


if __name__ == "__main__":
    unittest.main()
