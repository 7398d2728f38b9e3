"""The installed package: what the wheel holds, what it says where torch does not fit, and how it looks for torch."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

import torch

import lapse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = pathlib.Path(lapse.__file__).parent


@unittest.skipUnless("LAPSE_WHEEL" in os.environ, "scripts/python_package.sh runs this with the wheel")
class Package(unittest.TestCase):
    def test_it_is_the_installed_one(self):
        self.assertNotIn(ROOT / "python", PACKAGE.parents)
        self.assertEqual(importlib.metadata.version("lapse"), lapse.__version__)
        self.assertTrue((PACKAGE / "py.typed").exists())
        for name in ("report.html", "report.css", "report.js"):
            self.assertEqual((PACKAGE / "page" / name).read_text(), (ROOT / "lapse/observe" / name).read_text())

    def test_the_wheel_fits_every_python(self):
        wheel = pathlib.Path(os.environ["LAPSE_WHEEL"])
        self.assertRegex(wheel.name, r"^lapse-[\d.]+-py3-none-\w+\.whl$")
        names = zipfile.ZipFile(wheel).namelist()
        self.assertIn("lapse/liblapse_ops.so", names)
        self.assertFalse([n for n in names if n.endswith((".cpp", ".h", "_test.py"))])

    def test_a_source_distribution_is_whole(self):
        """It holds every file of ours that its own files include or install."""
        with tempfile.TemporaryDirectory() as folder:
            code = f"import scikit_build_core.build as b; b.build_sdist({folder!r})"
            subprocess.run([sys.executable, "-B", "-c", code], cwd=ROOT, check=True, capture_output=True)
            (path,) = pathlib.Path(folder).glob("lapse-*.tar.gz")
            with tarfile.open(path) as archive:
                texts = {
                    one.name.split("/", 1)[1]: archive.extractfile(one).read().decode()
                    for one in archive.getmembers()
                    if one.isfile() and one.name.endswith((".h", ".cpp", ".inc", ".txt", ".cmake", ".css", ".js", ".html"))
                }
        wanted = set(re.findall(r"\.\./(lapse/[\w/.]+)", texts["python/CMakeLists.txt"]))
        for name, text in texts.items():
            if name.startswith("lapse/"):
                wanted |= set(re.findall(r'#include "(lapse/[^"]+)"', text))
        self.assertGreater(len(wanted), 50)
        self.assertEqual(wanted - set(texts), set())

    def run_python(self, code, **environment):
        command = [sys.executable, "-B", "-c", code]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)

    def test_another_torch_is_refused_in_one_line(self):
        code = "import torch; torch.__version__ = '2.7.1'; import lapse"
        done = self.run_python(code)
        self.assertNotEqual(done.returncode, 0)
        built = ".".join(torch.__version__.split(".")[:2])
        last = done.stderr.strip().splitlines()[-1]
        self.assertRegex(
            last, rf"ImportError: lapse was built for torch {built}, and this is torch 2\.7\.1: pip install"
        )

    def test_torch_is_found_within_an_isolated_build(self):
        """Python there cannot import the environment's packages; without any torch one line says what to do."""
        finder = ROOT / "python" / "find_torch.py"
        hidden = "import runpy, sys; sys.path = [p for p in sys.path if 'site-packages' not in p]; "
        found = self.run_python(hidden + f"runpy.run_path({str(finder)!r}, run_name='__main__')")
        self.assertEqual((found.returncode, found.stderr), (0, ""))
        self.assertTrue(pathlib.Path(found.stdout.strip()).samefile(pathlib.Path(torch.__file__).parent))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            none = subprocess.run([f"{folder}/bin/python", str(finder)], capture_output=True, text=True)
        self.assertEqual(none.returncode, 1)
        self.assertRegex(
            none.stderr,
            r"\Alapse: torch 2\.7 or later must be installed before lapse is built: pip install torch.*\n\Z",
        )


if __name__ == "__main__":
    unittest.main()
