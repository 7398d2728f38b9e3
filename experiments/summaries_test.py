#!/usr/bin/env python3
"""What the experiments' summaries read: only whole evaluations count, and committed ones that are not whole are marked.

    .venv/bin/python -B experiments/summaries_test.py
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import sweep
from run_metrics import eval_summary, read_eval

HERE = pathlib.Path(__file__).resolve().parent


def module(path):
    spec = importlib.util.spec_from_file_location("summarise", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class ReadEvalTest(unittest.TestCase):
    def read(self, text, reader=read_eval):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test.json"
            path.write_text(json.dumps(text))
            return reader(path)

    def test_whole_evaluations_are_read(self):
        self.assertEqual(self.read({"loss": 1, "complete": True})["loss"], 1)

    def test_others_are_refused(self):
        for text in ({"loss": 1, "complete": False}, {"loss": 1}):
            for reader in (read_eval, eval_summary):
                with self.subTest(text), self.assertRaisesRegex(SystemExit, "test.json: .* did not reach its end"):
                    self.read(text, reader)

    def test_their_summary(self):
        text = {"bpb": 2.123456, "layers": [{"memory_mean": 10.04}, {"memory_mean": 20.04}], "complete": True}
        self.assertEqual(self.read(text, eval_summary), {"bpb": 2.1235, "memory_mean": 15.0, "complete": True})


class TasksTableTest(unittest.TestCase):
    def run_with(self, *scored):
        sets = [{"accuracy": 1.0, "scored": n} for n in scored]
        return {
            "seed": 3,
            "updates": 10,
            "steps_to_all_right": None,
            "settings": {"variable_assignment": {"variables": 3, "values": 10, "test_sequences": 2048}},
            "test": {"accuracy": 0.5},
            "out_of_distribution": sets,
        }

    def table(self, *scored):
        return module(HERE / "tasks" / "summarise.py").table({("variable_assignment", "selective"): [self.run_with(*scored)]})

    def test_a_set_that_was_read_in_part_is_marked(self):
        self.assertIn("100.0*", self.table(2048, 1728))
        self.assertIn("seed 3: out-of-distribution set 2 was read in part, 1,728 of 2,048", self.table(2048, 1728))

    def test_whole_sets_are_not_marked(self):
        self.assertNotIn("*", self.table(2048, 2048))


class CommittedTablesTest(unittest.TestCase):
    """Tables that can be made from the committed JSON alone are what that JSON says."""

    def test_tasks(self):
        tasks = module(HERE / "tasks" / "summarise.py")
        results = {}
        for task in tasks.TASKS:
            for kind in tasks.KINDS:
                results[task, kind] = json.loads((HERE / "tasks" / "results" / f"{task}_{kind}.json").read_text())["runs"]
        self.assertEqual(tasks.table(results), (HERE / "tasks" / "results" / "table.md").read_text())

    def test_stream_tasks(self):
        streams = module(HERE / "stream_tasks.py")
        for task in streams.METRICS:
            results = {path.stem: json.loads((HERE / task / "results" / f"{path.stem}.json").read_text()) for path in sorted((HERE / task).glob("*.toml"))}
            self.assertEqual(streams.table(task, results), (HERE / task / "results" / "table.md").read_text())

    def test_enwik8_head(self):
        enwik8 = module(HERE / "enwik8-head" / "summarise.py")
        results = {name: json.loads((HERE / "enwik8-head" / "results" / f"{name}.json").read_text()) for name in enwik8.TITLES}
        for r in results.values():
            r["validation_bpb"] = {int(update): bpb for update, bpb in r["validation_bpb"].items()}
        self.assertEqual(enwik8.table(results), (HERE / "enwik8-head" / "results" / "table.md").read_text())

    def test_compare(self):
        compare = module(HERE / "compare" / "summarise.py")
        results = json.loads((HERE / "compare" / "results" / "results.json").read_text(), object_hook=compare.with_numbers)
        self.assertEqual(compare.table(results), (HERE / "compare" / "results" / "table.md").read_text())

    def test_units(self):
        units = module(HERE / "units" / "summarise.py")
        results = json.loads((HERE / "units" / "results" / "results.json").read_text())
        self.assertEqual(units.table(results), (HERE / "units" / "results" / "table.md").read_text())

    def test_paper(self):
        paper = module(HERE / "paper" / "run.py")
        results = json.loads((HERE / "paper" / "results" / "results.json").read_text())
        self.assertEqual([r["model"] for r in results], [row["model"] for row in paper.ROWS])
        self.assertEqual(paper.table(results), (HERE / "paper" / "results" / "table.md").read_text())

    def test_selective(self):
        selective = module(HERE / "selective" / "summarise.py")
        results = json.loads((HERE / "selective" / "results.json").read_text())
        self.assertEqual(selective.table(results), (HERE / "selective" / "table.md").read_text())

    def test_sweeps(self):
        """Those whose runs are a list (sweep.py): every table, and every committed JSON is of a run in the list, with its settings."""
        for file in sorted(HERE.glob("*/run.py")):
            if "import sweep" not in file.read_text():
                continue
            written = {}

            def collect(here, results, columns, name="table"):
                written[name] = sweep.as_table(results, columns)

            def read(here, runs, _):
                self.listed = runs
                return sweep.measured_so_far(here, runs)

            with (
                self.subTest(file.parent.name),
                mock.patch.dict(os.environ, {"LAPSE_DATA": "/data", "LAPSE_PIECES": "/pieces"}),
                mock.patch.multiple(sweep, main=read, table=collect),
            ):
                module(file).main()
                results = file.parent / "results"
                made = {path.stem for path in results.glob("*.md")}
                self.assertLessEqual(made, set(written) | {"repeated"})
                for name in made & set(written):
                    self.assertEqual(written[name], (results / f"{name}.md").read_text(), name)
                runs = {wanted.name: wanted for wanted in self.listed}
                for path in results.glob("*.json"):
                    if path.name != "repeated.json":
                        wanted = runs.get(path.stem)
                        self.assertTrue(wanted and sweep.measured_already(path, wanted), f"{path.name}: no run of the list has such settings")

    def test_rl(self):
        """Tables of agents, and each JSON is of a run in the list."""
        figures, rl = module(HERE / "rl" / "figures.py"), module(HERE / "rl" / "run.py")
        tables = "\n".join(figures.table(name) for name in figures.FIGURES)
        self.assertEqual(tables, (HERE / "rl" / "results" / "table.md").read_text())
        self.assertEqual(tables.count("\n| ") + 1 - 2, len(list((HERE / "rl" / "results").glob("*.json"))), "a run is in no table")
        listed = {name.replace("/", "-"): (config, values) for name, config, values, *_ in rl.experiments()}
        for path in (HERE / "rl" / "results").glob("*.json"):
            result = json.loads(path.read_text())
            self.assertEqual((result["config"], result["values"]), listed[path.stem], path.name)

    def test_rl_keeps_results_without_their_runs(self):
        rl, trained = module(HERE / "rl" / "run.py"), []
        stop = lambda run, *_: trained.append(run.name) or sys.exit()
        with tempfile.TemporaryDirectory() as runs, mock.patch.object(rl, "train", stop), contextlib.redirect_stdout(io.StringIO()) as said:
            for only in ("portal/expire_span", "corridor/fixed_span_100-1"):
                with mock.patch.object(sys, "argv", ["run.py", "--only", only, "--runs", runs]):
                    rl.main()
            self.assertEqual((trained, said.getvalue().count("its result is there, but not the run")), ([], 4))
            nowhere = mock.patch.object(rl, "file_of", lambda name: pathlib.Path(runs) / "no result.json")
            with nowhere, mock.patch.object(sys, "argv", ["run.py", "--only", "often_fixed_span_10-2", "--runs", runs]), self.assertRaises(SystemExit):
                rl.main()
            self.assertEqual(trained, ["often_fixed_span_10-2"])
        of_another_length = [name for name, *wanted in rl.experiments() if rl.file_of(name).exists() and not rl.measured_already(name, *wanted)]
        self.assertLessEqual(set(of_another_length), {"corridor/fixed_span_10-1"})  # docs/environments.md says so

    def test_answer_ages(self):
        """A part of a small world, simulated again; and ages counted by hand."""
        ages = module(HERE / "collision" / "answer_ages.py")
        for result in json.loads((HERE / "collision" / "results" / "answer_ages.json").read_text()):
            if result["world"]["grid"] == 4:
                found = json.loads(json.dumps(ages.measure_part(result["world"], "valid", result["seeds"])))
                self.assertEqual(found, result["parts"]["valid"])
        ages.answers = lambda world, steps, draw: ([(9, 9), (9, 4), (10, 9), (19, 10), (19, 5)], 2)
        found = ages.measure({"easy": False}, 20, 2, 0)
        self.assertEqual(found["steps_per_collision"], 10)
        self.assertEqual(found["before_the_piece"], 2 / 5)  # met at 9 and 5, asked from 10 on
        self.assertEqual(found["older_than"][64], 2 / 5)  # 72 and 112 tokens


if __name__ == "__main__":
    unittest.main()
