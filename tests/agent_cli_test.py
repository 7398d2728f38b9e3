"""Agents in environments as processes: trained, resumed, evaluated and inspected."""

import json
import re
import resource
import shutil
import time
import unittest

import browser
import numpy
from agent_run import AgentTest, setUpModule  # noqa: F401
from hostile_test import Parts
from inspect_test import Page
from program import checkpoints, environment, metrics, start


class Evaluation(AgentTest):
    def evaluate(self, *arguments):
        return self.succeed_json("eval", self.run_folder, "--episodes", 20, *arguments)

    def test_the_same_seed_gives_the_same_numbers(self):
        free = {"seconds", "steps_per_second", "peak_memory"}
        kept = lambda result: {key: value for key, value in result.items() if key not in free}
        first, again, other = self.evaluate(), self.evaluate("--streams", 3), self.evaluate("--seed", 2)
        self.assertEqual(first["episodes"], 20)
        for key in ("success", "return", "episode_steps", "steps"):
            self.assertEqual(first[key], again[key])
        self.assertNotEqual(first["steps"], other["steps"])
        self.assertEqual(kept(self.evaluate("--greedy")), kept(self.evaluate("--greedy")))
        self.assertLessEqual(first["success_low"], first["success"])
        self.assertEqual(len(first["layers"]), 2)
        self.assertEqual((again["streams"], again["options"]), (3, {"precision": "float32"}))
        self.assertEqual(self.evaluate("--max-span", 3)["options"]["max_span"], 3)
        self.assertAlmostEqual(first["memory_mean"], numpy.mean([layer["memory_mean"] for layer in first["layers"]]))

    def test_more_environments_than_fit_are_refused(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        many = ("--episodes", 10_000_000, "--streams", 1 << 20)
        self.refuse("eval", self.run_folder, *many, says="1048576 environments at a time may need", status=1, preexec_fn=limit)

    def test_another_world(self):
        short = self.evaluate("--set", "corridor.longest=3", "--greedy")
        self.assertEqual(short["set"], ["corridor.longest=3"])
        self.assertLessEqual(short["episode_steps_high"], 4 * 3 + 50)
        self.assertEqual(short["steps"], self.evaluate("--set", "corridor.longest=3", "--greedy")["steps"])
        long = self.evaluate("--set", "corridor.shortest=90", "--set", "corridor.longest=90")
        self.assertGreater(long["episode_steps"], 89)
        evaluate = ("eval", self.run_folder, "--set")
        again = ("train", self.runs / "corridor" / "config.toml", "--out", self.folder / "again", "--set=model.dropout=0.1")
        self.refuse(*again, says="is not the one that acted", status=1)
        self.refuse(*evaluate, "corridor.longst=9", says="did you mean 'longest'", status=1)
        self.refuse(*evaluate, "corridor.longest=2", says="corridor.longest", status=1)
        self.refuse(*evaluate, "train.batch=2", says="train", status=1)

    def test_info_and_metrics(self):
        info = self.succeed_json("info", self.run_folder)
        self.assertIn('task = "corridor"', info["config"])
        self.assertEqual(info["update"], 12)
        self.assertIn("success", info["history"][-1])
        self.assertEqual(info["environment"]["actions"], ["up", "down", "left", "right"])
        self.assertEqual(info["environment"]["most_steps"], 4 * 5 + 50)
        self.assertEqual(info["training"], [line for line in metrics(self.run_folder) if line["split"] == "train"][-1])
        self.assertIn("acts in corridor: 9 cells of 6 words are seen, actions up, down, left, right", self.succeed("info", self.run_folder).stdout)
        lines = [line for line in metrics(self.run_folder) if line["split"] == "train"]
        self.assertIn("steps_per_second", lines[-1])

    def test_info_leaves_out_what_agents_do_not_use(self):
        keys = lambda run: re.findall(r"^(\w+) = ", self.succeed("info", run).stdout.partition("[data]")[2], re.M)
        agents, texts = keys(self.run_folder), keys(self.runs / "text")
        self.assertEqual(agents[0], "task")
        self.assertTrue({"unit", "split", "windows", "input", "output"} <= set(texts) - set(agents), agents)
        self.assertIn("width", agents)

    def test_an_entropy_that_ends_elsewhere_is_told(self):
        """Its weight, which falls until the last update, is suddenly larger in a run that is made longer."""
        run = self.folder / "fading"
        values = ("train.log_every=1", "train.validate_every=0", "actor_critic.entropy=1", "optimiser.rate=0")
        train = ("train", self.run_folder / "config.toml", "--out", run, "--resume", *(part for one in values for part in ("--set", one)))
        fades, told = ("--set", "actor_critic.entropy_last=0"), "the entropy's weight (actor_critic.entropy_last) changes"
        self.assertNotIn(told, self.succeed(*train, *fades, "--set", "train.updates=4").stderr)
        done = self.succeed(*train, *fades, "--set", "train.updates=8")
        self.assertIn(f"{told} until the last update, which is now 8, not 4: it was 0.25, and is 0.5", done.stderr)
        weights = [(line["policy_loss"] + 0.5 * line["value_loss"] - line["loss"]) / line["entropy"] for line in metrics(run)]
        numpy.testing.assert_allclose(weights, [1, 0.75, 0.5, 0.25, 0.5, 0.375, 0.25, 0.125], atol=1e-4)
        shutil.rmtree(run)
        self.succeed(*train, "--set", "actor_critic.entropy_last=1", "--set", "train.updates=4")
        self.assertNotIn(told, self.succeed(*train, "--set", "actor_critic.entropy_last=1", "--set", "train.updates=8").stderr)


class Inspect(AgentTest):
    def inspect(self, *arguments):
        self.page = self.folder / "page.html"
        self.succeed("inspect", self.run_folder, "-o", self.page, *arguments)
        return json.loads(Page(self.page.read_text()).scripts[0])

    def test_the_page_holds_the_steps(self):
        data = self.inspect("--episodes", 3, "--seed", 5)
        played = self.succeed_json("eval", self.run_folder, "--episodes", 3, "--seed", 5, "--streams", 1)
        self.assertEqual(data["count"], played["steps"])
        self.assertEqual(len(data["begins"]), 3)
        self.assertIn(["environment", "corridor"], data["facts"])
        for seen, layer in zip(data["layers"], played["layers"]):
            self.assertAlmostEqual(seen["mean"], layer["memory_mean"], places=6)
        for cells, heading in zip(data["cells"], data["headings"]):
            self.assertRegex(heading, rf"^episode \d · success [01] · return [01] · {len(cells)} steps$")
            self.assertRegex(cells[0][0], "^↑ (red|blue) object")
            self.assertEqual(cells[0][2]["sight"][4], ["agent"])
            self.assertRegex(cells[0][2]["act"], r"^(up|down|left|right) \(up 0\.\d\d, ")
        self.assertIn(["whole episodes", "3 of 3"], data["facts"])
        done = self.succeed("inspect", self.run_folder, "-o", self.page, "--episodes", 3, "--tokens", 4)
        self.assertRegex(done.stderr, r"note: the page ends after 4 steps, with [01] of 3 episodes whole; a larger --tokens shows more")
        two = sum(len(cells) for cells in data["cells"][:2])  # the third then never begins
        done = self.succeed("inspect", self.run_folder, "-o", self.page, "--episodes", 3, "--seed", 5, "--tokens", two)
        self.assertIn(f"the page ends after {two} steps, with 2 of 3 episodes whole", done.stderr)
        few = self.inspect("--tokens", 4)
        self.assertEqual([few["count"], len(few["numbers"]["value"])], [4, 4])

    @unittest.skipUnless(browser.BROWSER, browser.MISSING)
    def test_the_page_in_a_browser(self):
        data = self.inspect("--episodes", 3)
        for view in ("", "#by=number:value", "#layer=all", "#at=2"):
            dom, messages = browser.show(self.page, view)
            self.assertEqual(messages, [])
            steps = [attributes for name, attributes in Page(dom).elements if name == "span" and "data-cell" in attributes]
            panes = 2 if view == "#layer=all" else 1
            self.assertEqual(len(steps), data["count"] * panes)
            shaded = [step for step in steps if "background-color" in step.get("style", "")]
            self.assertEqual(len(shaded) == len(steps), view != "#at=2")
            self.assertEqual(dom.count('class="window"'), 3 * panes)
            self.assertIn("object</div>", dom)
            if view != "#at=2":
                self.assertIn("b: block, d: door, o: object", dom)


class Refusals(AgentTest):
    def test_verbs_of_the_other_kind(self):
        out = ("-o", self.folder / "page.html")
        run, text = self.run_folder, self.runs / "text"
        self.refuse("generate", run, says=["corridor", "`lapse play`"], status=1)
        self.refuse("prune", run, "--margin", 1, says=["corridor", "`lapse eval`"], status=1)
        self.refuse("eval", run, "--split", "test", says="--split is for runs that read a text", status=1)
        self.refuse("inspect", run, "--offset", 3, *out, says="--offset is for runs that read a text", status=1)
        self.refuse("inspect", text, "--greedy", *out, says="--greedy is for runs that act", status=1)
        self.refuse("eval", text, "--seed", 3, says="--seed is for runs that act in an environment", status=1)
        self.refuse("eval", text, "--set", "corridor.longest=9", says="--set is for runs that act in an environment", status=1)
        self.refuse("play", "corridor", text, says=["reads a text", "`lapse generate`", "`lapse inspect`"], status=1)
        self.refuse("export", run, "--out", self.folder / "t5", says="this run acts in an environment", status=1)
        self.refuse("play", "corridor", "--set", "portal.rooms=4", says="[portal] has no effect here; give values of [corridor]", status=1)
        self.refuse("eval", run, "--set", "train.batch=3", says="[train] has no effect here", status=1)
        self.refuse("play", "portal", run, says=f"lapse play corridor {run}", status=1)
        self.refuse("play", "corridor", "--greedy", says="no run is named", status=1)
        self.refuse("play", "coridor", says="did you mean 'corridor'?")
        self.refuse("play", "corridor", "--set", "corridor.longst=9", says="did you mean 'longest'", status=1)
        self.refuse("play", "corridor", "--set", "corridor.longest=2", says="longest", status=1)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_absurd_sizes_and_names(self):
        def refused(setting, says):
            begin = time.monotonic()
            self.refuse("train", self.runs / "corridor.toml", "--out", self.folder / "run", "--set", setting, says=says, status=1)
            self.assertLess(time.monotonic() - begin, 20)

        refused('data.task = "coridor"', "did you mean 'corridor'?")
        refused("corridor.longest=99999999999", "corridor.longest")
        refused("corridor.shortest=9", "corridor.longest = 5")
        refused("train.batch=1000000000", "train.batch")
        unused = ("--set", "portal.rooms=9", "--set", "train.updates=2", "--set", "train.validate_every=0")
        done = self.succeed("train", self.runs / "corridor.toml", "--out", self.folder / "unused", *unused)
        self.assertIn("lapse: note: --set portal.rooms=9 has no effect: this run does not use [portal]", done.stderr)
        self.assertEqual(done.stderr.count("note:"), 1)
        refused("model.input=adaptive", "leave out model.input and model.output")
        self.refuse(
            *("train", self.runs / "corridor.toml", "--out", self.folder / "run", "--set", "forgetting.method=selective_attention"),
            *("--set", "selective_attention.budgets=[9, 9]"),
            says="an agent cannot be trained with budgets of rows",
        )
        refused("forgetting.method=h2o", "lapse eval RUN --method h2o --budget N")
        refused("expire_span.random_drop=true", "spans that are cut at random")

    def altered(self, change):
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.run_folder, run)
        newest, *older = checkpoints(run)
        for path in older:
            path.unlink()
        parts = Parts(newest)
        change(parts)
        parts.write(newest)
        return ("train", self.runs / "corridor.toml", "--out", run, "--resume", "--quiet", "--set", "train.updates=14")

    def test_altered_environments_in_a_checkpoint(self):
        self.succeed(*self.altered(lambda parts: None))

        def shorter(parts):
            _, shape, data = parts.tensors["feed.worlds"]
            parts.tensors["feed.worlds"] = ["I64", [shape[0] - 1, shape[1]], data[: len(data) // shape[0] * (shape[0] - 1)]]

        def nowhere(parts):
            kind, shape, data = parts.tensors["feed.worlds"]
            values = numpy.frombuffer(data, "<i8").reshape(shape).copy()
            values[1, 1] = 10**12
            parts.tensors["feed.worlds"] = [kind, shape, values.tobytes()]

        def absent(parts):
            del parts.tensors["feed.agents"]

        def other_type(parts):
            kind, shape, data = parts.tensors["feed.rewards"]
            parts.tensors["feed.rewards"] = ["I64", shape, data]

        def more(parts):
            parts.tensors["feed.plans"] = parts.tensors["feed.rewards"]

        for change, says in ((shorter, "feed.worlds"), (nowhere, "the length is 1000000000000"), (absent, "feed.agents"),
                             (other_type, "feed.rewards"), (more, "feed.plans")):
            self.refuse(*self.altered(change), says=says, status=1)

    def test_a_truncated_checkpoint(self):
        resume = self.altered(lambda parts: None)
        newest = checkpoints(self.folder / "run")[0]
        newest.write_bytes(newest.read_bytes()[:-100])
        done = self.refuse(*resume, says="no usable checkpoint", status=1, warns=True)
        self.assertIn(f"{newest}: tensor", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 2)


class Resume(AgentTest):
    def weights(self, run):
        newest = checkpoints(run)[0]
        return newest.name, Parts(newest).tensors

    def test_a_killed_run_ends_as_one_that_was_not(self):
        settings = ("--quiet", "--set", "train.updates=60", "--set", "train.checkpoint_every=3")
        whole, broken = self.folder / "whole", self.folder / "broken"
        loud = self.succeed("train", self.runs / "corridor.toml", "--out", whole, *settings[1:]).stderr
        self.assertRegex(loud, r"\d success  \d\.\d+ return")
        self.assertRegex(loud, r"update 60: valid \d\.\d+ success  \d\.\d+ return")
        process = start("train", self.runs / "corridor.toml", "--out", broken, *settings)
        for _ in range(600):
            if len(list((broken / "checkpoints").glob("*.safetensors"))) > 1 or process.poll() is not None:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()
        self.assertLess(self.weights(broken)[0], self.weights(whole)[0], "killed too late to test anything")
        self.succeed("train", self.runs / "corridor.toml", "--out", broken, "--resume", *settings)
        self.assertEqual(self.weights(broken), self.weights(whole))


if __name__ == "__main__":
    unittest.main()
