"""experiments/paper/rows.toml: `lapse train --dry-run` takes every row, on small texts in place of the papers'."""

import importlib.util
import tomllib
import unittest

from program import PROGRAM, ROOT, ProgramTest, english

spec = importlib.util.spec_from_file_location("run", ROOT / "experiments" / "paper" / "run.py")
paper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(paper)


class Rows(ProgramTest):
    def test_each_is_taken_and_has_the_papers_size(self):
        text, words = self.write("text.txt", english(400_000)), self.folder / "words.txt"
        paper.write_words(words)
        small = {
            "paper-copy": [],
            "paper-enwik8": [f"data.path={text}"],
            "paper-pg19": [f"data.{part}={text}" for part in ("train", "valid", "test")],
            "paper-collision": [f"collision.{part}_steps=40000" for part in ("train", "valid", "test")],
            "paper-instruction": ["instruction.world=", "instruction.chatter="],
            "paper-wikitext103": [f"data.train={words}", "data.valid=", "data.test="],
        }
        self.assertEqual(set(small), set(paper.PAPER["presets"]))
        for row in paper.ROWS:
            with self.subTest(row["model"]):
                parts = f"train.parts={paper.PAPER['presets'][row['preset']]['parts']}"
                answer = paper.dry_run(PROGRAM, row, [*small[row["preset"]], parts], "--seconds", "0")
                self.assertEqual(answer["updates_tried"], 0)
                self.assertNotIn("ms_per_update", answer)
                self.assertLessEqual(answer["memory_least"], answer["memory_most"])
                if expected := row.get("ours", row.get("parameters")):
                    self.assertAlmostEqual(answer["parameters"] / 1e6, expected, delta=0.02 * expected)
                if "ours" in row:
                    self.assertIn("quoted", row["paper"], "only models of other papers may differ")
                    self.assertGreater(abs(row["ours"] / row["parameters"] - 1), 0.02, "does not differ: needs no `ours`")

    def test_each_is_a_file(self):
        paper.write_tomls(PROGRAM, self.folder / "rows")
        self.assertEqual(len(list((self.folder / "rows").iterdir())), len(paper.ROWS))
        for row in paper.ROWS:
            config = tomllib.loads((self.folder / "rows" / f"{paper.name_of(row)}.toml").read_text())
            preset = tomllib.loads((ROOT / "examples" / f"{row['preset']}.toml").read_text())
            for value in row["set"]:
                name, text = value.split("=", 1)
                section, key = name.split(".")
                written = config[section][key]
                self.assertTrue(str(written).lower() == text.replace('"', "").lower() or float(written) == float(text), value)
                preset.setdefault(section, {})[key] = config[section][key]
            self.assertEqual(config, preset)

    def test_files_that_name_texts(self):
        """Each preset's files are taken by `lapse train`; texts stand in where the paper's own are not there."""
        data, out = self.folder / "data", self.folder / "rows"
        for name in ("enwik8", "enwik8-head.txt", "novels/train.txt.gz", "novels/valid.txt.gz", "novels/test.txt.gz", "c4-sample.txt"):
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_text(english(100_000 if name == "c4-sample.txt" else 400_000))
        (data / "light").mkdir()
        (data / "light" / "complex_world_2020-09.json").write_bytes((ROOT / "lapse" / "tasks" / "village.json").read_bytes())
        paper.write_tomls(PROGRAM, out, data)
        path = lambda row: out / f"{paper.name_of(row)}.toml"
        first = {row["preset"]: path(row) for row in reversed(paper.ROWS)}
        self.assertEqual(set(first), set(paper.PAPER["presets"]))
        for preset, config in first.items():
            with self.subTest(preset):
                small = ("--set", "collision.train_steps=40000") if preset == "paper-collision" else ()
                self.succeed("train", config, "--dry-run", "--seconds", "0", *small)
        said = {preset: tomllib.loads(config.read_text()) for preset, config in first.items()}
        self.assertEqual(said["paper-enwik8"]["data"]["path"], str(data / "enwik8"))
        self.assertEqual(said["paper-pg19"]["data"]["train"], str(data / "novels" / "train.txt.gz"))
        self.assertEqual(said["paper-wikitext103"]["data"]["train"], str(out / "words.txt"))
        self.assertEqual(said["paper-instruction"]["instruction"]["chatter"], str(data / "c4-sample.txt"))
        self.assertIn("train_steps = 50000000", first["paper-collision"].read_text().replace("_000", "000"))

    def test_every_table_is_there_and_no_row_twice(self):
        self.assertEqual(len({(row["preset"], *row["set"]) for row in paper.ROWS}), len(paper.ROWS))
        said = " ".join(row["paper"] for row in paper.ROWS)
        for place in ("Table 1", "Table 2", "Table 3", "Table 4", "Table 5", "Table 6", "Table 7", "Figure 6"):
            self.assertIn(place, said.replace("Tables 3, 4", "Table 3 Table 4"))

    def test_what_no_row_may_be(self):
        row = {**paper.ROWS[0], "set": ["forgetting.method=none"]}
        with self.assertRaisesRegex(RuntimeError, "forgetting.method"):
            paper.dry_run(PROGRAM, row, [], "--seconds", "0")


if __name__ == "__main__":
    unittest.main()
