"""The disk that seeks: its model in its own time, so that no machine is too slow for these."""

import shutil
import tempfile
import unittest

from harness import spindle

MIB = 1 << 20


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class Models(unittest.TestCase):
    """What `testbed/spindle.c` gives to streams."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.trial = spindle.Trial(directory.name)

    def test_published_figures_are_met(self):
        for check, value in spindle.checked(self.trial):
            with self.subTest(check.what):
                self.assertTrue(check.holds(value), f"{value:.2f}, published: {check.published}")

    def test_one_stream_gets_nearly_the_mediums_rate(self):
        for request in (MIB // 16, MIB, 4 * MIB):
            got = self.trial(streams=1, request=request)
            self.assertGreater(got.all, 0.97 * got.without_seeks)
            self.assertLessEqual(got.all, got.without_seeks)

    def test_streams_take_each_others_time(self):
        alone = self.trial(streams=1).all
        for streams in spindle.READERS[1:]:
            self.assertLess(self.trial(streams=streams).all, 0.8 * alone)
            self.assertLess(self.trial(streams=streams, write=1).all, 0.8 * alone)

    def test_larger_requests_pay_for_fewer_seeks(self):
        rates = [self.trial(streams=4, request=request, ahead=0).all for request in (MIB // 16, MIB // 4, MIB, 4 * MIB)]
        self.assertEqual(rates, sorted(rates))

    def test_no_stream_starves(self):
        for words in ({"streams": 8, "depth": 4}, {"streams": 16}, {"streams": 32}, {"streams": 8, "write": 1}):
            got = self.trial(**words)
            self.assertGreater(got.slowest, got.fastest / 4, words)

    def test_a_queue_to_choose_from_helps_random_reads(self):
        first_come = self.trial(streams=16, request=4096, random=1, queue=1)
        nearest = self.trial(streams=16, request=4096, random=1, queue=32)
        self.assertGreater(nearest.requests_per_s, 1.5 * first_come.requests_per_s)

    def test_a_group_is_faster_alone_and_suffers_more(self):
        one, two = (self.trial(streams=streams, data=8) for streams in (1, 2))
        self.assertGreater(one.all, 7 * self.trial(streams=1).all)
        self.assertLess(two.all, 0.6 * one.all)

    def test_a_group_writes_a_stream_of_parts_of_a_stripe_at_its_rate(self):
        got = self.trial(streams=1, data=8, request=MIB // 2, depth=2, write=1)
        self.assertGreater(got.all, 0.9 * got.without_seeks)
