"""What bench/tuner makes of what transfers say."""

import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from harness import tuner_report
from harness.tuner_run import Watched


class WatchedTest(unittest.TestCase):
    """Rates and changes of one transfer."""

    def setUp(self):
        self.watched = Watched(progress=[(0.5 * step, 100 * step) for step in range(41)])

    def test_a_rate_is_that_of_its_time(self):
        self.watched.progress += [(20.0 + 0.5 * step, 4000 + 50 * step) for step in range(1, 41)]
        self.assertEqual(self.watched.rate(0, 20), 200)
        self.assertEqual(self.watched.rate(20, 40), 100)

    def test_of_one_that_has_ended_the_rest_does_not_count(self):
        self.watched.progress += [(20.5, 4000), (40.0, 4000)]
        self.watched.ended_s = 20.0
        self.assertEqual(self.watched.rate(10, 40), 200)
        self.assertEqual(self.watched.rate(30, 40), 0)

    def test_what_turns_something_is_counted(self):
        self.watched.decisions = [
            (1.0, "at the start: reading is the bottleneck; trying 8 readers"),
            (3.0, "reading is the bottleneck; 4 → 8 readers brought 9 %: kept; settled at 8 readers"),
            (21.0, "another look: reading is the bottleneck; do 6 readers suffice?"),
            (25.0, "reading is the bottleneck; 8 → 6 readers took 9 %: not kept; back to 8 readers"),
        ]
        self.assertEqual((self.watched.changes(0, 20), self.watched.changes(20, 60)), (1, 2))


class ReportTest(unittest.TestCase):
    """The page."""

    def test_parts_are_of_the_best_fixed_setting(self):
        fixed = [{"threads": 2, "streams": 1, "rates": [50e6, 60e6, 55e6]}, {"threads": 4, "streams": 1, "rates": [100e6, 90e6, 120e6]}]
        tuned = [{"first": 80e6, "rest": 97e6, "changes": 3, "later_changes": 1}]
        told = {"date": "now", "commit": "abc", "machine": "this"}
        found = {"name": "slow disks", "grid": {"what": "disks", "fixed": fixed, "tuned": tuned}, "told": told}
        found["shares"] = [{"over": "cubic", "transfers": 2, "fixed": fixed, "rates": [60e6, 40e6], "decisions": []} for fixed in (None, [2, 8])]
        with TemporaryDirectory() as directory:
            tuner_report.write(Path(directory), "disks", found)
            page = (Path(directory) / tuner_report.REPORT_NAME).read_text()
            self.assertEqual(tuner_report.known(Path(directory)), {"disks": found})
        self.assertIn("| slow disks | 4 × 1 | 100 | 80 % | 97 % | 3; 1 |", page)
        self.assertIn("| slow disks | cubic | 2 | tuned | 60.0, 40.0 | 20 % |", page)
        self.assertIn("| slow disks | cubic | 2 | 8 streams each, fixed | 60.0, 40.0 | 20 % |", page)


if __name__ == "__main__":
    unittest.main()
