"""Checkpoints of every version so far open in this one: same parameters, same evaluation, and training goes on from them.

Those in before_0.1.0 are of commit ea4dc36, whose trainer, layers and operators were others; what is expected of them is what that program
found. Its dropout drew other numbers, so there are no losses of the run with dropout.
"""

import json
import re
import shutil
import unittest

from fixture_kinds import FIXTURES, config_of, reading
from program import ROOT, ProgramTest


class Fixtures(ProgramTest):
    def test_this_version_has_its_own(self):
        version = re.search(r"project\(Lapse VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertTrue((FIXTURES / version).is_dir(), f"tests/make_fixtures.py makes those of {version}")

    def test_all_open(self):
        for version in sorted(FIXTURES.iterdir()):
            expected = json.loads((version / "expected.json").read_text())
            self.assertEqual(set(expected), {path.stem for path in version.glob("*.safetensors")})
            for kind, wanted in expected.items():
                with self.subTest(version=version.name, kind=kind):
                    folder = self.folder / version.name / kind
                    folder.mkdir(parents=True)
                    for name in ("text.txt", "a.model"):
                        shutil.copy(version / name, folder)
                    rounded = "bf16" in config_of(kind)  # its products, to 8 bits
                    self.compare(reading(folder, version / f"{kind}.safetensors"), wanted, rounded)

    def compare(self, found, wanted, rounded):
        self.assertEqual(found["parameters"], wanted["parameters"])
        self.assertLessEqual(wanted["eval"].keys(), found["eval"].keys())
        for key, value in wanted["eval"].items():  # another processor rounds otherwise
            self.assertAlmostEqual(found["eval"][key], value, delta=1e-4 * max(1, abs(value)), msg=key)
        if "losses" not in wanted:
            return
        if "losses" not in found:
            self.skipTest("it was read and evaluated; this processor cannot train it further in bfloat16")
        self.assertEqual(len(found["losses"]), len(wanted["losses"]))
        for loss, value in zip(found["losses"], wanted["losses"]):
            self.assertAlmostEqual(loss, value, delta=(1e-3 if rounded else 1e-4) * max(1, abs(value)))


if __name__ == "__main__":
    unittest.main()
