"""`lapse eval --choices`: a run that has learned some sentences knows how they go on, in every form of question."""

import json
import random
import unittest

from program import TINY, ProgramTest, merged, shared_folder, toml, train_run

PAIRS = (("the sky is", "blue"), ("grass is", "green and wet"), ("snow is", "white"), ("coal is", "black as night"))
RUNS = {
    "expire": {},
    "fixed": {"forgetting": {"method": "fixed_span"}},
    "selective": {
        "data": {"documents": "lines"},
        "forgetting": {"method": "selective_attention"},
        "selective_attention": {"max_span": 48},
        "model": {"positions": "absolute", "attend_self": True, "norm": "pre"},
        "train": {"block": 48, "batch": 8},
    },
}
LONG = {"train": {"updates": 300, "batch": 8, "block": 24, "validate_every": 0}, "optimiser": {"rate": 1e-2}}

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    draw = random.Random(1)
    (shared / "text.txt").write_text("".join(" ".join(draw.choice(PAIRS)) + ".\n" for _ in range(600)))
    for name, changes in RUNS.items():
        train_run(shared / name, merged(TINY, {"data": {"path": "text.txt"}}, LONG, changes))


def questions():
    """Context, two candidates and which of them follows it in the text."""
    for i, (context, right) in enumerate(PAIRS):
        wrong = PAIRS[(i + 1) % len(PAIRS)][1]
        yield context, [right, wrong] if i % 2 else [wrong, right], 0 if i % 2 else 1


def stem(context, candidates, answer, labels):
    choices = [{"label": label, "text": text} for label, text in zip(labels, candidates)]
    return {"question": {"stem": context, "choices": choices}, "answerKey": labels[answer]}


FORMS = {
    "own": lambda c, x, a: {"context": c, "choices": x, "answer": a},
    "hellaswag": lambda c, x, a: {"ind": 1, "ctx": c, "endings": x, "label": a},
    "arc": lambda c, x, a: {"id": "1", **stem(c, x, a, "12")},
    "openbookqa": lambda c, x, a: {"id": "2", **stem(c, x, a, "AB")},
    "commonsenseqa": lambda c, x, a: {"id": "3", **stem(c, x, a, "AB")},
    "piqa": lambda c, x, a: {"goal": c, "sol1": x[0], "sol2": x[1], "label": a},
}


class Choices(ProgramTest):
    def file(self, form):
        return self.write(f"{form}.jsonl", "".join(json.dumps(FORMS[form](*q)) + "\n" for q in questions()))

    def answer(self, run, *arguments):
        return self.succeed_json("eval", shared / run, "--choices", *arguments)

    def test_every_form_and_method(self):
        for run in RUNS:
            for form in FORMS:
                with self.subTest(run=run, form=form):
                    result = self.answer(run, self.file(form))
                    self.assertEqual((result["questions"], result["acc"], result["acc_norm"]), (4, 1, 1))
                    self.assertEqual((result["truncated"], result["complete"]), (0, True))
                    self.assertLess(result["acc_low"], 1)
                    self.assertAlmostEqual(result["acc_high"], 1, delta=1e-9)
        text = self.succeed("eval", shared / "expire", "--choices", self.file("own")).stdout
        self.assertRegex(text, r"acc +1\.0000  \(95 %: 0\.51")

    def test_labels_in_a_file_of_their_own(self):
        lines = [json.loads(line) for line in self.file("piqa").read_text().splitlines()]
        labels = self.write("labels", "".join(f"{1 - line.pop('label')}\n" for line in lines))
        path = self.write("piqa-bare.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(self.answer("expire", path, "--labels", labels)["acc"], 0)
        self.refuse("eval", shared / "expire", "--choices", path, says=["piqa-bare.jsonl:1", "--labels"])

    def test_each_candidate_costs_what_its_own_reading_costs(self):
        """Of one question the better candidate, by the losses of two files that a stream reads whole."""
        for run in ("expire", "fixed"):
            for first, second in (("blue", "white"), ("white", "green and wet"), ("wet", "black")):
                costs = []
                for candidate in (first, second):
                    text, losses = self.write("one.txt", f"the sky is {candidate}"), self.folder / "losses"
                    self.succeed("eval", shared / run, "--data", text, "--split", "all", "--losses", losses)
                    lines = [json.loads(line) for line in losses.read_text().splitlines()]
                    costs.append(sum(line["nats"] for line in lines if line["at"] >= len("the sky is")))
                norms = [cost / len(candidate) for cost, candidate in zip(costs, (first, second))]
                line = {"context": "the sky is", "choices": [first, second], "answer": int(costs[1] < costs[0])}
                result = self.answer(run, self.write("one.jsonl", json.dumps(line)))
                self.assertEqual(result["acc"], 1)
                self.assertEqual(result["acc_norm"], int((norms[1] < norms[0]) == (costs[1] < costs[0])))

    def test_contexts_that_are_too_long_lose_their_beginning(self):
        lines = [{"context": f"{'coal is ' * n}the sky is", "choices": ["white", "blue"], "answer": 1} for n in (0, 20)]
        path = self.write("long.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        result = self.answer("selective", path)
        self.assertEqual((result["truncated"], result["acc"]), (1, 1))
        self.assertIn("truncated           1", self.succeed("eval", shared / "selective", "--choices", path).stdout)
        self.assertEqual(self.answer("expire", path)["truncated"], 0)

    def test_what_the_model_cannot_read_is_left_out(self):
        good = {"context": "the sky is", "choices": ["white", "blue"], "answer": 1}
        long = {"context": "the sky is", "choices": ["white", "blue " * 200], "answer": 1}
        empty = {"context": "", "choices": ["white", "blue"], "answer": 1}
        for run, bad, why in (("selective", long, "this model reads windows of"), ("expire", empty, "the context is empty")):
            path = self.write("some.jsonl", "".join(json.dumps(line) + "\n" for line in (good, bad, bad)))
            alone = self.answer(run, self.write("good.jsonl", json.dumps(good)))
            done = self.succeed("eval", shared / run, "--choices", path, "--json")
            result = json.loads(done.stdout)
            self.assertEqual((result["questions"], result["left_out"], result["acc"]), (1, 2, alone["acc"]))
            self.assertRegex(done.stderr, f"note: 2 of 3 questions are left out: .*some.jsonl:2: .*{why}")
            self.assertIn("left out            2", self.succeed("eval", shared / run, "--choices", path).stdout)
            self.refuse("eval", shared / run, "--choices", self.write("bad.jsonl", json.dumps(bad)), says=["bad.jsonl:1", why])

    def test_the_result_says_how_the_model_was_read(self):
        result = self.answer("selective", self.file("own"), "--budget", 12)
        self.assertEqual(result["options"]["budget"], 12)
        self.assertEqual(result["config"]["data"]["unit"], "byte")

    def test_what_is_refused(self):
        good = self.file("own")
        run = shared / "expire"
        bad = self.write("bad.jsonl", good.read_text() + "{\n")
        self.refuse("eval", run, "--choices", bad, says=["bad.jsonl:5: not valid JSON"])
        bad = self.write("bad.jsonl", good.read_text() + '{"context": "a", "answer": 0}\n')
        self.refuse("eval", run, "--choices", bad, says=["bad.jsonl:5", "'choices' must be"])
        self.refuse("eval", run, "--choices", self.folder / "none.jsonl", says="none.jsonl")
        self.refuse("eval", run, "--labels", good, says="--choices")
        for option in (("--data", good), ("--split", "valid"), ("--losses", self.folder / "l"), ("--streams", 2)):
            self.refuse("eval", run, "--choices", good, *option, says=[option[0], "--choices", "leave it out"])
        task = self.write("task.toml", toml(merged(TINY, {"data": {"task": "copy"}, "copy": {"longest": 2}})))
        self.succeed("train", task, "--out", self.folder / "task", "--quiet", "--set", "train.updates=1")
        self.refuse("eval", self.folder / "task", "--choices", good, says="task copy")


if __name__ == "__main__":
    unittest.main()
