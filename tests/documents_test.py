"""Documents (data.documents) as a run reads them: lines and markers, one in a window, padding that counts nowhere."""

import json
import math
import unittest

from program import ProgramTest, english, merged, metrics, shared_folder, toml, train_run
from prune_test import SELECTIVE

WINDOW = 32
RUN = merged(
    SELECTIVE,
    {
        "data": {"path": "text.txt", "windows": False, "documents": "lines", "split": [0.6, 0.2, 0.2]},
        "selective_attention": {"max_span": WINDOW},
        "train": {"block": WINDOW, "batch": 4, "updates": 20, "log_every": 5},
    },
)
LINES = [line.strip() for line in english(6000).split("\n") if line.strip()]

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text("\n".join(LINES) + "\n")
    (shared / "marked.txt").write_text("".join(f"<doc id={i}>\n{line}\n\n</doc>\n" for i, line in enumerate(LINES)))
    train_run(shared / "run", RUN)
    train_run(shared / "marked", merged(RUN, {"data": {"path": "marked.txt", "documents": "<doc </doc>"}}))


class Documents(ProgramTest):
    def eval(self, *arguments):
        done = self.succeed("eval", *arguments, "--json", cwd=shared)
        return json.loads(done.stdout)

    def test_lines_and_markers_are_the_same_documents(self):
        free = ("ms_per_update", "tokens_per_second", "resident_memory", "peak_memory")
        ours, theirs = (
            [{key: value for key, value in line.items() if key not in free} for line in metrics(shared / name)]
            for name in ("run", "marked")
        )
        self.assertEqual(ours, theirs)

    def test_each_is_read_once_up_to_the_window(self):
        losses = self.folder / "losses.jsonl"
        result = self.eval("run", "--split", "all", "--losses", losses)
        lines = [json.loads(line) for line in losses.read_text().splitlines()]
        read = [line.encode()[:WINDOW] for line in LINES]
        self.assertEqual(bytes(line["token"] for line in lines), b"".join(read))
        self.assertEqual(result["documents"], len(LINES))
        self.assertEqual(result["tokens"], len(lines))
        nats = sum(line["nats"] for line in lines)
        self.assertAlmostEqual(result["loss"], nats / len(lines), delta=1e-5)
        self.assertAlmostEqual(result["bpb"], nats / len(lines) / math.log(2), delta=1e-5)
        # A token reads its whole document so far: padding is in no memory.
        sizes = [i + 1 for text in read for i in range(len(text))]
        self.assertEqual([line["memory"][0] for line in lines], sizes)
        for layer in result["layers"]:
            self.assertAlmostEqual(layer["memory_mean"], sum(sizes) / len(sizes), delta=1e-6)
            self.assertEqual(layer["memory_max"], max(sizes))

    def test_the_batch_changes_nothing(self):
        one, many = (self.eval("run", "--split", "all", "--streams", n) for n in (1, 7))
        self.assertAlmostEqual(one["loss"], many["loss"], delta=1e-6)
        self.same_memory(one, many)

    def test_a_text_whose_documents_are_found_in_another_way(self):
        lines = ("--data", "text.txt", "--data-documents", "lines")
        self.assertEqual(self.eval("marked", *lines)["loss"], self.eval("run", "--data", "text.txt")["loss"])
        whole = self.eval("marked", "--data", "text.txt", "--split", "all", "--data-documents", "whole")
        self.assertEqual((whole["documents"], whole["options"]["data_documents"]), (1, "whole"))
        (shared / "some.txt").write_text("a\n<doc>\nb\n")  # one of the markers is enough
        self.assertEqual(self.eval("marked", "--data", "some.txt", "--split", "all")["documents"], 2)
        self.succeed("inspect", "marked", *lines, "--tokens", 50, "-o", self.folder / "page.html", cwd=shared)
        self.refuse("eval", shared / "marked", "--data-documents", "lines", says="leave it out")
        self.refuse("eval", shared / "marked", "--data", shared / "text.txt", "--data-documents", "none", says="whole takes a text as one")

    def test_min_fill_leaves_out_the_short_ones(self):
        for block in (WINDOW, 48):
            long = [line for line in LINES if len(line) >= math.ceil(0.9 * block)]
            options = ("--split", "all", "--min-fill", 0.9) + (("--block", block) if block != WINDOW else ())
            if block > WINDOW:
                self.refuse("eval", shared / "run", "--data", shared / "text.txt", *options, says="windows of 32 tokens")
                continue
            result = self.eval("run", *options)
            self.assertTrue(0 < len(long) < len(LINES))
            self.assertEqual(result["documents"], len(long))
            self.assertEqual(result["tokens"], sum(min(len(line), block) for line in long))

    def test_inspect_reads_as_many_tokens_as_asked_for(self):
        page = self.folder / "page.html"
        read = sum(min(len(line), WINDOW) for line in LINES)
        for tokens in (3, WINDOW + 1, 100, read, 10 * read):
            self.succeed("inspect", "run", "--split", "all", "--tokens", tokens, "-o", page, cwd=shared)
            self.assertIn(f'["tokens read","{min(tokens, read)}"]', page.read_text())

    def test_other_verbs_read_them(self):
        page = self.folder / "page.html"
        self.succeed("inspect", "run", "--tokens", 100, "-o", page, cwd=shared)
        self.succeed("generate", "run", "--prompt", "the", "--tokens", 8, cwd=shared, text=False)
        search = ("--tokens", 300, "--min-fill", 0.9, "--margin", 0.01, "--json")
        result = json.loads(self.succeed("prune", "run", *search, "-o", self.folder / "p.safetensors", cwd=shared).stdout)
        expected = self.eval("run", "--split", "test", "--min-fill", 0.9)["loss"]
        self.assertAlmostEqual(result["measured_on"]["loss_full"], expected, delta=1e-6)

    def test_budgets_are_chosen_on_as_many_tokens_as_asked_for(self):
        wanted = 500
        search = ("--tokens", wanted, "--margin", 0.01, "-o", self.folder / "p.safetensors", "--json")
        read = json.loads(self.succeed("prune", "run", *search, cwd=shared).stdout)["chosen_on"]["tokens"]
        self.assertGreater(read, wanted - 4 * WINDOW)  # whole batches, of 4 documents
        self.assertLess(read, wanted + WINDOW)

    def test_matrices_of_fewer_documents_than_asked_for(self):
        matrix = self.folder / "matrix.json"
        self.succeed("inspect", "run", "--split", "all", "--matrix", "kept", "--documents", 10 * len(LINES), "-o", matrix, cwd=shared)
        self.assertEqual(json.loads(matrix.read_text())["documents"], len(LINES))

    def test_matrices_are_means_over_documents(self):
        matrix = self.folder / "matrix.json"
        lengths = [min(len(line), WINDOW) for line in LINES]
        for least in (0, 0.9):
            read = [length for length in lengths if length >= least * WINDOW]
            self.succeed("inspect", "run", "--split", "all", "--matrix", "kept", "--documents", len(LINES), "--min-fill", least,
                         "-o", matrix, cwd=shared)  # fmt: skip
            record = json.loads(matrix.read_text())
            self.assertEqual(record["documents"], len(read))
            self.assertEqual(record["counts"], [sum(length > i for length in read) for i in range(max(read))])
            self.assertEqual(record["layers"][0]["heads"][0], [[1] * (i + 1) for i in range(max(read))])

    def test_a_tokenizer_learns_from_documents_alone(self):
        for name, how in (("text.txt", "lines"), ("marked.txt", "<doc </doc>")):
            self.succeed("tokenizer", "train", "--data", shared / name, "--documents", how, "--vocabulary", 320,
                         "--out", self.folder / f"{name}.model", "--quiet")  # fmt: skip
        self.assertEqual(*((self.folder / f"{name}.model").read_bytes() for name in ("text.txt", "marked.txt")))

    def test_what_is_refused(self):
        blank = self.write("blank.txt", "\n \n")
        out = ("--out", self.folder / "out")
        config = shared / "run.toml"
        self.refuse("train", config, "--data", blank, *out, says=["blank.txt", "finds no document"])
        self.refuse("train", config, "--data", shared / "text.txt", "--set", "data.documents=<page>", *out,
                    says=["text.txt", "no line begins with '<page>'"])  # fmt: skip
        self.refuse("eval", shared / "marked", "--data", shared / "text.txt", says=["no line begins with '<doc'", "--data-documents lines, or whole"])
        self.refuse("eval", shared / "run", "--data", shared / "text.txt", "--min-fill", 1, "--block", 4096,
                    says="no document of split 'test' fills")  # fmt: skip
        streams = self.config(shared / "text.txt")
        self.succeed("train", streams, "--out", self.folder / "streams", "--quiet")
        self.refuse("eval", self.folder / "streams", "--min-fill", 0.5, says="data.documents")
        task = self.write("task.toml", toml({"data": {"task": "copy", "documents": "lines"}}))
        self.refuse("train", task, *out, says="leave out data.documents")


if __name__ == "__main__":
    unittest.main()
