"""The links of the pages: dead ones are found, and the rest is left alone."""

import tempfile
import unittest
import unittest.mock
from importlib import machinery, util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    """A script as a module."""
    loader = machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    module = util.module_from_spec(util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


check_pages = load("check-pages")

PAGE = """\
# A page

[there](docs/other.md), [its heading](docs/other.md#a-heading-with-code), [here](#a-page), <https://example.org>, [far](https://example.org/x.md)
[gone](docs/gone.md), [no heading](docs/other.md#nothing)
`docs/gone.md` and `docs/other.md`, `[text](in/a/span.md)`

```sh
[in a block](nowhere.md)
```
"""


class Links(unittest.TestCase):
    """Of one page beside another."""

    def test_dead_links_are_found_and_no_others(self):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory).resolve()
            (root / "docs").mkdir()
            (root / "docs/other.md").write_text("# Other\n\n## A heading, with `code`\n")
            page = root / "page.md"
            page.write_text(PAGE)
            with unittest.mock.patch.object(check_pages, "ROOT", root):
                found = list(check_pages.problems(page))
        self.assertEqual(
            found,
            [
                "page.md:4: docs/gone.md: no such file",
                "page.md:4: docs/other.md#nothing: no such heading",
                "page.md:5: docs/gone.md: no such file",
            ],
        )

    def test_anchors_are_those_of_the_renderers(self):
        for heading, anchor in [("Credits and slots", "credits-and-slots"), ("`carrack cp -r`: a copy", "carrack-cp--r-a-copy"), ("[A](b.md) B", "a-b")]:
            self.assertEqual(check_pages.anchor(heading), anchor)


if __name__ == "__main__":
    unittest.main()
