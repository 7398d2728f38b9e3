#!/usr/bin/env python3
"""Each check of the documents fires on a small tree, and only there."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_docs

FILES = {
    "lapse/model/layer.h": "class Layer {\n  Rows rows() const { return {}; }\n};\nstruct Other { int cached; };\n",
    "lapse/model/layer.cpp": "Tensor Layer::forget() {}\n",
    "python/lapse/hf.py": "class Cache:\n    def rows(self):\n        pass\n",
    "lapse/cli/train.cpp": 'add_subcommand("train");\nadd_flag("--resume");\nadd_option("-o,--out");\n',
    "lapse/train/config.cpp": 'field("block", block, "timesteps")\n',
    "bench/step.cpp": 'add_flag("--quick");\n',
    "bench/run.sh": "names=(step)\n",
    "scripts/demo.sh": "  --fast) ;;\n",
    "docs/good.md": """`lapse/model/layer.h`, `model/layer.cpp`, `layer.h`, `model/`, `*.cpp`, `lapse/tasks/NAME.h`, [layer](../lapse/model/layer.h#a), [web](https://x.org)
`Layer::rows`, `Layer::forget`, `Layer`, `block`, `train.block = 3`, `lapse train --resume`, `lapse train RUN --block 3`, `--out FILE`
`bench/step`, `bench/run.sh step --quick`, `scripts/demo.sh --fast`, `K × rows`, `../shared/x.txt`
```sh
lapse train a.toml -o runs/a --resume   # `lapse nothing`, a comment
X=1 scripts/demo.sh && bench/run.sh step | build/release/bench/step --quick > /tmp/x
```
```toml
none = "of this is read: --nothing"
```
""",
    "README.md": "x" * 160 + "\n" * 120,
}


class DocsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in FILES.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def expect(self, text, *problems, path="docs/bad.md"):
        """The document, added to the good tree, has exactly these problems: "line: part of the reason"."""
        self.write(path, text)
        found = check_docs.check(self.root)
        self.assertEqual(len(found), len(problems), found)
        for line, wanted in zip(found, problems):
            number, reason = wanted.split(": ", 1)
            self.assertTrue(line.startswith(f"{path}:{number}: "), line)
            self.assertIn(reason, line)

    def test_good_tree_passes(self):
        self.assertEqual(check_docs.check(self.root), [])

    def test_files(self):
        self.expect("\n`model/gone.cpp` and `lapse/model/layer.py`\n", "2: layer.py", "2: model/gone.cpp")
        self.expect("`gone.h`, `lapse/gone/`, `bench/gone`\n", "1: bench/gone", "1: gone.h", "1: lapse/gone/")

    def test_functions(self):
        self.expect("`Layer::cached`\n", "1: Layer has no cached")
        self.expect("`Gone::rows`\n", "1: Gone has no rows")
        self.expect("`gone_by()` and `GoneBy`\n", "1: GoneBy", "1: gone_by")

    def test_names_of_python(self):
        self.expect("`lapse.hf.Cache(model, budget=4)`, `lapse.hf`, `lapse.hf.gone` and `lapse.Gone()`\n", "1: no Gone", "1: no gone")

    def test_keys(self):
        self.expect('`train.gone = "x"`\n', "1: gone is no key")

    def test_verbs_and_flags(self):
        self.expect("`lapse gone`\n", "1: no `lapse gone`")
        self.expect("`lapse train --gone`\n", "1: has no --gone")
        self.expect("`--gone 3`\n", "1: no program has --gone")

    def test_a_span_over_two_lines(self):
        self.expect("\n`lapse train\n  --gone`\n", "2: has no --gone")

    def test_scripts(self):
        self.expect("`scripts/gone.sh`\n", "1: scripts/gone.sh does not exist")
        self.expect("`scripts/demo.sh --gone`\n", "1: has no --gone")
        self.expect("`bench/run.sh gone`\n", "1: knows no gone")

    def test_blocks(self):
        self.expect("a\n```sh\n# --x\nlapse gone x\nscripts/demo.sh && lapse train --gone\n```\n", "4: no `lapse gone`", "5: no --gone")

    def test_links(self):
        self.expect("\n[x](gone.md#y)\n", "2: gone.md")

    def test_length_of_the_readme(self):
        self.expect("\n" * 121, "121: 121 lines", path="README.md")
        self.expect("\n" + "x" * 161, "2: 161 characters", path="README.md")

    def test_tables(self):
        self.write("experiments/a/results/table.md", "Words.\n| a | 1 |\n")
        self.assertIn("| a | 1 |", "".join(check_docs.check(self.root)))
        self.write("docs/results.md", "| a | 1 |\n")
        self.assertEqual(check_docs.check(self.root), [])
        self.write("bench/summarise.py", "print('| b | 2 |')\n")
        self.assertIn("bench/README.md:1: bench/summarise.py prints", "".join(check_docs.check(self.root)))

    def test_exit_status(self):
        command = [sys.executable, check_docs.__file__, str(self.root)]
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        self.write("docs/bad.md", "`gone.h`\n")
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("docs/bad.md:1: gone.h does not exist", run.stdout)


if __name__ == "__main__":
    unittest.main()
