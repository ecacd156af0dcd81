"""The client with a real daemon, a real queue and a real copy."""

import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "src"))

from carrack import Away, Client, Forbidden, NotFound, Refused, State  # noqa: E402

CARRACK = os.environ.get("CARRACK") or shutil.which("carrack")


@unittest.skipUnless(CARRACK, "no carrack on the PATH, and CARRACK names none")
class Queue(unittest.TestCase):
    def setUp(self) -> None:
        self.place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.source = self.place / "source"
        (self.source / "sub").mkdir(parents=True)
        (self.source / "big").write_bytes(os.urandom(6_000_000))
        (self.source / "sub" / "small").write_text("small")
        config = self.place / "carrack.toml"
        config.write_text(f'[queue]\ndirectory = "{self.place}/queue"\nsocket = "{self.place}/socket"\n')
        self.daemon = subprocess.Popen([str(CARRACK), "serve", "--quiet", "--config", str(config)])
        self.addCleanup(self.end)
        self.client = Client(f"unix:{self.place}/socket")
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client.transfers()
                return
            except Away:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def end(self) -> None:
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(40), 0)

    def submit(self, to: str, **more):
        return self.client.submit(f"local:{self.source}/", f"local:{self.place}/{to}", **more)

    def test_a_copy_is_watched_to_its_end(self) -> None:
        transfer = self.submit("there", label="a test", options={"bwlimit": 4_000_000})
        self.assertEqual((transfer.state, transfer.submission.label), (State.QUEUED, "a test"))
        seen = list(self.client.watch(transfer.id))
        self.assertGreater(len(seen), 2)
        self.assertTrue(seen[-1].is_complete, seen[-1])
        self.assertEqual(seen[-1].tally.bytes_done, 6_000_005)
        self.assertEqual(self.client.wait(transfer.id), seen[-1])
        self.assertEqual(self.client.transfers(), [seen[-1]])
        for name in ("big", "sub/small"):
            self.assertTrue(filecmp.cmp(self.source / name, self.place / "there" / name, shallow=False))
        self.assertEqual(self.client.movers(), [])

    def test_all_transfers_are_watched(self) -> None:
        first = self.submit("one", options={"bwlimit": 4_000_000})
        watched = self.client.watch_all()
        seen = [next(watched)]
        self.assertEqual(seen[0].id, first.id)
        second = self.submit("two", label="two")
        while not {first.id, second.id} <= {transfer.id for transfer in seen if transfer.is_over}:
            seen.append(next(watched))
        watched.close()
        self.assertTrue(all(transfer.is_complete for transfer in seen if transfer.is_over))
        progress = [transfer.tally.bytes_done for transfer in seen if transfer.id == first.id]
        self.assertEqual((progress, progress[-1]), (sorted(progress), 6_000_005))
        page = self.client.transfers(1)
        self.assertEqual([transfer.id for transfer in page], [second.id])
        self.assertEqual([transfer.id for transfer in self.client.transfers(9, page[0].id)], [first.id])
        self.assertEqual(self.client.transfers(9, first.id), [])
        for nobody in ("0123456789abcdef", "a/b"):
            with self.assertRaises(NotFound):
                self.client.transfers(9, nobody)
        with self.assertRaises(Away):
            next(Client(f"unix:{self.place}/nobody").watch_all())

    def test_orders_and_errors(self) -> None:
        transfer = self.submit("there", options={"bwlimit": 1_000_000})
        self.client.pause(transfer.id)
        while self.client.transfer(transfer.id).state is not State.PAUSED:
            time.sleep(0.05)
        with self.assertRaises(TimeoutError):
            self.client.wait(transfer.id, timeout=0.2)
        self.client.resume(transfer.id)
        self.client.cancel(transfer.id)
        self.assertEqual(self.client.wait(transfer.id, timeout=30).state, State.CANCELLED)
        with self.assertRaises(Refused) as refused:
            self.client.resume(transfer.id)
        self.assertIn("submit it again", refused.exception.hint)
        with self.assertRaises(NotFound):
            self.client.transfer("0000")
        with self.assertRaises(Refused) as refused:
            self.client.submit("nowhere:/x", "local:/y")
        self.assertEqual((refused.exception.status, "local" in refused.exception.hint), (422, True))
        self.assertFalse(issubclass(Refused, Forbidden))
        with self.assertRaises(Away):
            Client(f"unix:{self.place}/nobody").transfers()
        with self.assertRaises(Refused):
            Client("http://far.example.org", token="secret")


if __name__ == "__main__":
    unittest.main()
