"""The links of the pages: dead ones are found, and the rest is left alone."""

import shutil
import tempfile
import tomllib
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


class Package(unittest.TestCase):
    """The pages of the Debian package."""

    def test_no_link_leads_out_of_the_package(self):
        manifest = tomllib.loads((ROOT / "crates/carrack/Cargo.toml").read_text(encoding="utf-8"))
        documents = "usr/share/doc/carrack/"
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory).resolve()
            for source, place, _ in manifest["package"]["metadata"]["deb"]["assets"]:
                if source.startswith("../../") and place.startswith(documents):
                    (root / place.removeprefix(documents)).mkdir(parents=True, exist_ok=True)
                    for path in ROOT.glob(source.removeprefix("../../")):
                        shutil.copy(path, root / place.removeprefix(documents))
            with unittest.mock.patch.object(check_pages, "ROOT", root):
                pages = sorted(root.rglob("*.md"))
                lines = [(page, line) for page in pages for _, line in check_pages.prose(page.read_text(encoding="utf-8"))]
                targets = {(page, target) for page, line in lines for target in check_pages.LINK.findall(check_pages.SPAN.sub("x", line))}
                dead = [f"{page.relative_to(root)}: {target}" for page, target in sorted(targets) if check_pages.wrong(page, target)]
        self.assertGreater(len(pages), 50)
        self.assertEqual(dead, [])


if __name__ == "__main__":
    unittest.main()
