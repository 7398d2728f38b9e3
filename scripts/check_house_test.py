#!/usr/bin/env python3
"""Each house rule fires on a small bad tree, and only there."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_house

TABLE = """// a row in a comment is no method: {"commented", ...}
const std::vector<MethodEntry> table = {
    {"expire_span", "says \\"{\\" and // more", f},
    {
        "h2o", "heavy hitters", g},
};
"""


class HouseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("lapse/forgetting/registry.cpp", TABLE)
        self.write("lapse/forgetting/expire_span.h", '#pragma once\n#include "lapse/ops/x.h"\n// expire_span lives here\n')
        self.write("lapse/ops/x.cpp", '#include <torch/torch.h>\n#include "lapse/core/y.h"\n// serves ExpireSpan\n')
        self.write("lapse/model/a_test.cpp", '#include "lapse/forgetting/expire_span.h"\n// ExpireSpan\n')
        self.write("tests/t.cpp", '#include "lapse/cli/z.h"\n#include "../lapse/core/y.h"\n// h2o\n')
        self.write("lapse/model/README.md", "Expire-Span\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def expect(self, path, text, *violations):
        """The file, added to the good tree, causes exactly these violations: "line: part of the reason"."""
        self.write(path, text)
        found = check_house.check(self.root)
        self.assertEqual(len(found), len(violations), found)
        for line, wanted in zip(found, violations):
            number, reason = wanted.split(": ", 1)
            self.assertTrue(line.startswith(f"{path}:{number}: "), line)
            self.assertIn(reason, line)

    def test_good_tree_passes(self):
        self.assertEqual(check_house.check(self.root), [])

    def test_include_from_above(self):
        self.expect("lapse/core/a.cpp", '#include "lapse/core/b.h"\n#include "lapse/ops/x.h"\n', "2: level above")
        (self.root / "lapse/core/a.cpp").unlink()
        self.expect("lapse/data/a.h", "#pragma once\n #  include <lapse/train/loop.h>\n", "2: level above")

    def test_include_from_above_in_a_test(self):
        self.expect("lapse/memory/a_test.cpp", '#include "lapse/model/b.h"\n', "1: level above")

    def test_include_off_the_levels(self):
        self.expect("lapse/core/a.cpp", '#include "lapse/cellar/b.h"\n#include "../ops/x.h"\n', "1: no level", "2: root")

    def test_file_off_the_levels(self):
        self.expect("lapse/cellar/a.cpp", "int a;\n", "1: no level")

    def test_method_named(self):
        spellings = ["expire_span", "ExpireSpan", "expire-span", "Expire-Span", "EXPIRE_SPAN", "expirespan",
                     "make_expire_span_layer", "ExpireSpanOptions", "useExpireSpan", '"h2o"', "H2OCache", "lapse::h2o::f"]
        for word in spellings:
            with self.subTest(word):
                self.expect("lapse/train/a.cpp", f"int a;\n// {word}\n", "2: names the method")

    def test_method_named_where_golden_files_are_mapped(self):
        self.expect("lapse/interop/golden_table.cpp", '{"expire_span", {}}\n')
        self.expect("lapse/interop/golden.cpp", '{"expire_span", {}}\n', "1: names the method")

    def test_method_not_named(self):
        for text in ["expire span", "expire_spanning", "unexpire_span", "the memories expire; span", "h2", "ah2o", "commented"]:
            with self.subTest(text):
                self.expect("lapse/train/a.cpp", f"// {text}\n")

    def test_pragma_once(self):
        self.expect("lapse/core/a.h", "int a();\n", "1: #pragma once")
        (self.root / "lapse/core/a.h").unlink()
        self.expect("bench/a.h", "int a();\n", "1: #pragma once")

    def test_heavy_headers(self):
        text = "#pragma once\n#include <torch/torch.h>\n#include <torch/extension.h>\n#include <ATen/ATen.h>\n"
        self.expect("lapse/ops/a.h", text, "2: <torch/torch.h>", "3: <torch/extension.h>", "4: <ATen/ATen.h>")

    def test_types_of_one_name(self):
        self.write("lapse/core/a.h", "#pragma once\nnamespace lapse {\nstruct Text {\n};\nclass Later;\n}  // namespace lapse\n")
        inside = "namespace lapse {{\n{0}struct Text : Base {{ int i; }};\nstruct Later;\n{1}}}  // namespace lapse\n"
        self.expect("lapse/ops/b.cpp", inside.format("namespace {\n", "}  // namespace\n"))
        self.expect("lapse/ops/b.cpp", inside.format("", "").replace("namespace lapse", "namespace lapse::cuda"))
        self.expect("lapse/ops/b.cpp", inside.format("", ""), "2: lapse::Text is the name of a type in lapse/core/a.h too")

    def test_length(self):
        self.expect("lapse/core/a.cpp", "\n" * 400)
        self.expect("lapse/core/a.cpp", "\n" * 401, "401: 401 lines")

    def test_table_without_rows_or_missing(self):
        self.expect("lapse/forgetting/registry.cpp", '// {"expire_span", f}\n', "1: no row")
        (self.root / "lapse/forgetting/registry.cpp").unlink()
        self.assertIn("not found", check_house.check(self.root)[0])

    def test_exit_status(self):
        command = [sys.executable, check_house.__file__, str(self.root)]
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        self.write("lapse/core/a.h", "int a();\n")
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("lapse/core/a.h:1: a header without #pragma once", run.stdout)


if __name__ == "__main__":
    unittest.main()
