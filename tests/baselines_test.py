"""`lapse eval --method`: models read by the baselines that need no training, as a process."""

import json
import pathlib
import tempfile
import unittest

from program import TINY, ProgramTest, english, lapse, merged, toml

BASELINES = ("local", "local_global", "strided", "sink_window", "h2o", "tova")

shared = None


def setUpModule():
    global shared
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    shared = pathlib.Path(folder.name)
    (shared / "text.txt").write_text(english(12000))
    for method in ("fixed_span", "expire_span", "adaptive_span"):
        change = {"forgetting": {"method": method}, "fixed_span": {"max_span": 24}, "adaptive_span": {"max_span": 24}}
        (shared / f"{method}.toml").write_text(toml(merged(TINY, {"data": {"path": "text.txt"}}, change)))
        done = lapse("train", f"{method}.toml", "--out", method, cwd=shared)
        assert done.returncode == 0, done.stderr


class Baselines(ProgramTest):
    def eval(self, run, *arguments):
        return json.loads(self.succeed("eval", shared / run, "--data", shared / "text.txt", "--json", *arguments).stdout)

    def test_each_reads_every_run_within_its_budget(self):
        for run in ("fixed_span", "expire_span", "adaptive_span"):
            for method in BASELINES:
                every = ("--every", 2) if method == "local_global" else ()
                read = self.eval(run, "--method", method, "--budget", 9, *every)
                less, whole = read["loss"], self.eval(run)["loss"]
                self.assertTrue(0 < abs(less - whole) < 0.2 * whole, (run, method, less, whole))
                for layer in read["layers"][: 1 if every else None]:
                    self.assertLessEqual(layer["memory_max"], 9, (run, method))
                if every:
                    self.assertGreater(read["layers"][1]["memory_max"], 9, run)

    def test_a_window_as_long_as_the_fixed_span_is_the_fixed_span(self):
        whole = self.eval("fixed_span")["loss"]
        self.assertAlmostEqual(self.eval("fixed_span", "--method", "local", "--budget", 24)["loss"], whole, delta=1e-5)
        self.assertEqual(self.eval("fixed_span", "--method", "fixed_span")["loss"], whole)

    def test_windows_can_be_trained(self):
        for method in ("local", "local_global", "strided"):
            changes = {"forgetting": {"method": method}, "local_global": {"every": 2}}
            config = self.config(shared / "text.txt", changes, name=f"{method}.toml")
            self.succeed("train", config, "--out", self.folder / method)
            self.succeed("generate", self.folder / method, "--prompt", "The", "--tokens", 5, "--json", "--method", "tova", "--budget", 3)

    def test_says_which_methods_an_option_is_of(self):
        printed = " ".join(self.succeed("eval", "--help").stdout.split())
        self.assertIn("needs no training (one of local, local_global, strided, sink_window, h2o, tova)", printed)
        for shared_by in ("local, strided, sink_window, h2o, tova: rows that every layer holds", "local_global: rows that every local layer"):
            self.assertIn(shared_by, printed)

    def test_what_is_refused(self):
        run = [shared / "fixed_span", "--data", shared / "text.txt"]
        self.refuse("eval", *run, "--method", "h20", says=("unknown forgetting method 'h20'", "h2o"))
        self.refuse("eval", *run, "--method", "expire_span", says="must be trained")
        self.refuse("eval", *run, "--budget", 3, says="--budget is no option of")
        self.refuse("eval", *run, "--method", "h2o", "--budget", -1, says="--budget")
        self.refuse("eval", *run, "--method", "sink_window", "--budget", 4, says="leave no row for the window")
        self.refuse("eval", *run, "--method", "local_global", says=("every 4 layers is global", "has 2", "--every"))
        self.refuse("eval", *run, "--method", "sink_window", "--budget", 9, "--sinks", 9, says="leave no row")
        self.refuse("eval", *run, "--method", "h2o", "--max-span", 9, says="--max-span is no option of --method h2o")


if __name__ == "__main__":
    unittest.main()
