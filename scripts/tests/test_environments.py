"""The judgement of testbed/environments: that it finds what is wrong, and nothing where all is right."""

import dataclasses
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testbed/environments.d"))

import judgement  # noqa: E402
import page  # noqa: E402
import probe  # noqa: E402
import tree  # noqa: E402
from environment import ENVIRONMENTS  # noqa: E402

import file_systems  # noqa: E402, F401
import restrictions  # noqa: E402, F401

ME = os.getuid()
ASKED = {
    "created_mode": 0o600, "umask": True, "modes": True, "modes_refused": False, "modes_of_others": True, "owners": True, "owners_refused": False,
    "special_modes_of_others": 0o6000, "times": {str(tree.ORDINARY_NS): tree.ORDINARY_NS}, "times_of_others": True, "holes": True,
    "removed_are_kept": False, "hard_links": True, "attributes": True, "attributes_refused": False, "acls": True, "acls_refused": True,
}


def a_file(**changes):
    """An ordinary file's entry."""
    base = tree.Entry("file", 0o640, ME, ME, 7, tree.ORDINARY_NS, 4096, False, (1, 1), "digest", {"user.matrix": b"value"})
    return dataclasses.replace(base, **changes)


def complaints(copy, archive=True, umask=0o022, source=None, asked=None):
    """About one file."""
    expected = judgement.Expected(ASKED | (asked or {}), archive, umask, ME)
    return judgement.compare({b"f": source or a_file()}, {b"f": copy} if copy else {}, expected)


class Judgement(unittest.TestCase):
    """Of one entry at a time."""

    def test_what_is_right_has_no_complaints(self):
        self.assertEqual(complaints(a_file()), [])

    def test_contents_and_kinds_count(self):
        self.assertIn("is missing", complaints(None)[0])
        self.assertIn("another content", complaints(a_file(content="other"))[0])
        self.assertIn("another content", complaints(a_file(kind="symlink"))[0])

    def test_what_the_source_has_not_is_told(self):
        expected = judgement.Expected(ASKED, True, 0o022, ME)
        found = judgement.compare({}, {b".f.carrack-1": a_file()}, expected)
        self.assertIn("not at the source", found[0])

    def test_no_mode_is_wider(self):
        self.assertIn("wider", complaints(a_file(mode=0o644))[0])
        self.assertIn("wider", complaints(a_file(mode=0o664), archive=False, source=a_file(mode=0o664))[0])
        self.assertEqual(complaints(a_file(mode=0o644), archive=False, source=a_file(mode=0o664)), [])
        self.assertIn("and not 0640", complaints(a_file(mode=0o600))[0])
        self.assertEqual(complaints(a_file(mode=0o600), asked={"modes": False}), [])

    def test_the_root_changes_when_a_removed_file_is_closed(self):
        def of_root(asked):
            expected = judgement.Expected(ASKED | asked, True, 0o022, ME)
            return judgement.compare({root: a_file()}, {root: a_file(mtime_ns=7)}, expected)

        root = next(path for path in (b"", b".") if judgement.shown(path) == ".")
        self.assertIn("time 7", of_root({})[0])
        self.assertEqual(of_root({"removed_are_kept": True}), [])
        self.assertIn("time 7", complaints(a_file(mtime_ns=7), asked={"removed_are_kept": True})[0])

    def test_a_default_acl_stands_in_the_place_of_the_umask(self):
        source, unmasked = a_file(mode=0o664), {"umask": False}
        self.assertEqual(complaints(a_file(mode=0o664), archive=False, source=source, asked=unmasked), [])
        self.assertIn("wider", complaints(a_file(mode=0o666), archive=False, source=source, asked=unmasked)[0])
        directory = {"kind": "directory", "attributes": {}}
        source = a_file(mode=0o775, **directory)
        self.assertIn("wider", complaints(a_file(mode=0o775, **directory), archive=False, source=source, asked=unmasked)[0])

    def test_set_id_bits_need_their_owner(self):
        source = a_file(mode=0o4755)
        self.assertEqual(complaints(a_file(mode=0o4755), source=source), [])
        found = complaints(a_file(mode=0o4755, user=ME + 1), source=source, asked={"owners": False})
        self.assertIn("wider", found[0])
        self.assertIn("lacks a set-ID bit", complaints(a_file(mode=0o755), source=source)[0])

    def test_times_are_as_near_as_they_are_stored(self):
        seconds = tree.ORDINARY_NS // tree.NANO * tree.NANO
        coarse = {"times": {str(tree.ORDINARY_NS): seconds}}
        self.assertIn("time", complaints(a_file(mtime_ns=seconds))[0])
        self.assertEqual(complaints(a_file(mtime_ns=seconds), asked=coarse), [])
        self.assertIn("time", complaints(a_file(mtime_ns=seconds - 5 * tree.NANO), asked=coarse)[0])

    def test_attributes_and_holes_are_kept_where_they_can_be(self):
        self.assertIn("not kept", complaints(a_file(attributes={}))[0])
        self.assertEqual(complaints(a_file(attributes={}), asked={"attributes": False}), [])
        sparse = a_file(bytes=tree.SPARSE_BYTES, has_hole=True, held_bytes=65536)
        filled = dataclasses.replace(sparse, held_bytes=tree.SPARSE_BYTES)
        self.assertIn("holes", complaints(filled, source=sparse)[0])
        self.assertEqual(complaints(filled, source=sparse, asked={"holes": False}), [])

    def test_names_of_one_file(self):
        expected = judgement.Expected(ASKED, True, 0o022, ME)
        source = {b"a": a_file(), b"b": a_file()}
        two = {b"a": a_file(), b"b": a_file(identity=(1, 2))}
        self.assertEqual(judgement.compare(source, source, expected), [])
        self.assertIn("one file at the source", judgement.compare(source, two, expected)[0])

    def test_what_lies_around_is_watched(self):
        before = {b"canary": a_file()}
        self.assertEqual(judgement.untouched(before, before, "home"), [])
        for after in ({}, {b"canary": a_file(), b"more": a_file()}, {b"canary": a_file(mode=0o600)}, {b"canary": a_file(mtime_ns=1)}):
            self.assertEqual(len(judgement.untouched(before, after, "home")), 1, after)


class Tools(unittest.TestCase):
    """What the judgement goes by."""

    def test_an_acl_is_seen_that_is_not_listed_and_one_that_says_the_mode_is_none(self):
        acl = tree.acl_with_user(1)
        plain = acl[:12] + acl[20:28] + acl[36:]  # without the named user and the mask
        for value, seen in ((acl, [tree.ACCESS_ACL]), (plain, [])):
            with mock.patch("os.listxattr", return_value=[]), mock.patch("os.getxattr", return_value=value):
                self.assertEqual(list(tree.attributes("f")), seen)

    def test_a_probe_asks_everything_the_judgement_needs(self):
        wanted = {"names": [b"name".hex()], "times": [tree.ORDINARY_NS], "acl": tree.acl_with_user(1).hex(), "user": ME}
        with tempfile.TemporaryDirectory() as directory:
            answers = probe.ask(directory, wanted)
        self.assertLessEqual(ASKED.keys(), answers.keys())
        self.assertEqual(answers["names"], [b"name".hex()])

    def test_a_snapshot_sees_what_is_there(self):
        with tempfile.TemporaryDirectory() as directory:
            tree.plant_canary(directory)
            os.symlink("canary", os.path.join(directory, "link"))
            found = tree.snapshot(directory)
        self.assertEqual(found[b"neighbour/below/canary"].mode, 0o600)
        self.assertEqual((found[b"link"].kind, found[b"link"].content), ("symlink", "canary"))

    def test_a_probe_tells_the_time_after_a_rename(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.fsencode(os.path.join(directory, "f"))
            probe.make(path)
            self.assertEqual(probe.stored_time(path, tree.ORDINARY_NS), tree.ORDINARY_NS)
            self.assertEqual(os.listdir(directory), ["f"])

    def test_a_snapshot_leaves_out_what_libfuse_removes(self):
        with tempfile.TemporaryDirectory() as directory:
            tree.write(os.path.join(directory, ".fuse_hidden0001"), b"")
            self.assertEqual(list(tree.snapshot(directory)), [b""])

    def test_the_page_says_what_is_wrong(self):
        self.assertGreaterEqual(len(ENVIRONMENTS), 40)
        wrong = {"state": "wrong", "complaints": ["f is missing"], "commands": []}
        result = {"name": "a", "title": "An a", "group": "G", "cells": {"cp": wrong, "sync": {"state": "right"}}}
        skipped = {"name": "b", "title": "A b", "group": "G", "skipped": "no b here"}
        text = page.page([result, skipped], [("cp", tree.write), ("sync", tree.write)])
        self.assertIn("| An a | ✗ | ✓ |", text)
        self.assertIn("An a, cp: f is missing", text)
        self.assertIn("skipped: no b here", text)
        self.assertEqual(page.counts([result, skipped]), (1, 1, 1))


if __name__ == "__main__":
    unittest.main()
