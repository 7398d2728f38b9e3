"""Configures the project where no CUDA toolkit is, and the operators alone where nothing is but a compiler and PyTorch;
installs it; and a project that uses it by find_package(Lapse), as it was built and as it was installed."""

import glob
import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("LAPSE_BUILD", ROOT / "build" / "release"))
TOOLKITS = glob.glob("/usr/local/cuda*") + glob.glob("/opt/cuda*") + glob.glob("/usr/lib/cuda*")

CONSUMER = """
cmake_minimum_required(VERSION 3.16)  # with the policies of that time
project(Consumer LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Lapse 0.1 REQUIRED CONFIG)
foreach(target Lapse::lapse Lapse::lapse_ops)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "no target ${target}")
  endif()
  get_target_property(location ${target} IMPORTED_LOCATION_NOCONFIG)
  get_target_property(release ${target} IMPORTED_LOCATION_RELEASE)
  message(STATUS "found ${target}: ${location} ${release}")
endforeach()
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE Lapse::lapse)
"""

MAIN = """
#include <cstdio>

#include "lapse/forgetting/registry.h"
#include "lapse/model/transformer.h"

int main() {
  for (const auto& entry : lapse::method_table()) std::printf("%s ", entry.name.c_str());
  const auto options = lapse::default_method().options();
  lapse::Transformer model({}, *options, 256, 16, lapse::Random(1, "weights"));
  std::printf("%d\\n", model.parameter_count() > 256);
}
"""


def without_cuda():
    """This environment, as on a machine that has no CUDA toolkit."""
    kept = {name: value for name, value in os.environ.items() if "CUDA" not in name and not name.startswith("CMAKE_")}
    return {**kept, "PATH": "/usr/bin:/bin"}


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_command(self, *command, **options):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def configure(self, source, *arguments):
        cmake, ninja = shutil.which("cmake"), shutil.which("ninja")
        self.assertTrue(cmake and ninja, "cmake and ninja are needed; scripts/setup.sh installs them")
        build = self.folder / "build"
        ignored = f"-DCMAKE_IGNORE_PREFIX_PATH={';'.join(TOOLKITS)}"
        basics = (
            "-S",
            source,
            "-B",
            build,
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            "-DCMAKE_BUILD_TYPE=Release",
        )
        return self.run_command(cmake, *basics, ignored, *arguments, env=without_cuda()), build

    def test_without_a_cuda_toolkit(self):
        self.assertIsNone(shutil.which("nvcc", path=without_cuda()["PATH"]), "this test must not find the toolkit")
        _, build = self.configure(ROOT)
        self.assertTrue((build / "build.ninja").exists())
        self.assertTrue((build / "LapseConfig.cmake").exists())
        cache = (build / "CMakeCache.txt").read_text()
        self.assertNotRegex(cache, r"CMAKE_CUDA_COMPILER\S*=/", "the CUDA language needs a toolkit")

    def test_operators_on_a_bare_machine(self):
        """As scripts/gpu_check.sh does: neither .venv nor any of Debian's packages, of which CMake's search leaves out all."""
        source = self.folder / "source"
        source.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in (".venv", "build"):
                (source / entry.name).symlink_to(entry)
        torch = importlib.util.find_spec("torch").submodule_search_locations[0]
        nothing = [f"-DCMAKE_FIND_USE_{where}_PATH=OFF" for where in ("CMAKE_SYSTEM", "SYSTEM_ENVIRONMENT")]
        compiler = f"-DCMAKE_CXX_COMPILER={shutil.which('c++')}"
        _, build = self.configure(source, "-DLAPSE_OPERATORS_ONLY=ON", f"-DLAPSE_TORCH_DIR={torch}", compiler, *nothing)
        self.assertIn("hwy_DIR:PATH=hwy_DIR-NOTFOUND", (build / "CMakeCache.txt").read_text())
        rules = (build / "build.ninja").read_text()
        for library in ("liblapse_ops.so", "liblapse_cuda.so"):
            self.assertIn(f"build {library}:", rules)
        self.assertIn("references_only.cpp", rules)  # instead of the CPU's kernels
        self.assertNotIn(str(ROOT / ".venv" / "bin"), rules)

    def use_from_another_project(self, where, libraries):
        """Configures, builds and runs a project that finds Lapse in the folder `where`."""
        source = self.folder / "consumer"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(CONSUMER)
        (source / "main.cpp").write_text(MAIN)
        printed, build = self.configure(source, where)
        for library in ("liblapse.so", "liblapse_ops.so"):
            self.assertIn(str(libraries / library), printed)
        self.run_command(shutil.which("cmake"), "--build", build)
        methods = self.run_command(build / "consumer", env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        self.assertEqual(methods.split()[-1], "1")
        self.assertIn("expire_span", methods)

    def test_another_project_uses_the_library(self):
        self.use_from_another_project(f"-DLapse_DIR={BUILD}", BUILD)

    def test_the_example_of_another_project(self):
        _, build = self.configure(ROOT / "examples" / "streams", f"-DLapse_DIR={BUILD}")
        self.run_command(shutil.which("cmake"), "--build", build)
        done = subprocess.run([build / "streams"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (1, "streams: usage: streams RUN STATE FILE...\n"))

    def test_installed(self):
        """Also where libtorch lies inside the source folder, in .venv."""
        prefix = self.folder / "prefix"
        self.run_command(shutil.which("cmake"), "--install", BUILD, "--prefix", prefix)
        program, bare = prefix / "bin" / "lapse", {"PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive"}
        self.assertIn("torch", self.run_command(program, "--version", env=bare))
        for file in ("share/bash-completion/completions/lapse", "share/zsh/site-functions/_lapse"):
            self.assertIn("--dry-run", (prefix / file).read_text())
        text = self.folder / "text.txt"
        text.write_text("the river remembers the garden, the garden forgets the river\n" * 200)
        subwords = ("tokenizer", "train", "--data", text, "--vocabulary", "280", "-o", self.folder / "a.model")
        self.run_command(program, *subwords, env=bare)  # a plugin, that must be found too
        moved = self.folder / "moved"
        prefix.rename(moved)
        self.run_command(moved / "bin" / "lapse", *subwords, env=bare)
        self.use_from_another_project(f"-DCMAKE_PREFIX_PATH={moved}", moved / "lib")


if __name__ == "__main__":
    unittest.main()
