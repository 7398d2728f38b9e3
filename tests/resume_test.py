"""Killed at any moment and resumed, a run ends as one that nobody disturbed: same metrics, same weights, to the bit."""

import json
import shutil
import signal
import time
import unittest

import numpy
from hostile_test import Parts
from program import TINY, checkpoints, english, merged, metrics, start, toml
from same_run import ADAPTIVE, DOCUMENTS, FIXED, LONG, RANDOM, SHORT, KilledRun, newest_checkpoint, recorded
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


class Resume(KilledRun):
    def test_killed_with_all_that_is_random(self):
        self.check_killed(10, 1, LONG, RANDOM)

    def test_killed_with_adaptive_ends(self):
        self.check_killed(6, 4, LONG, ADAPTIVE)

    def test_killed_with_documents(self):
        self.check_killed(6, 5, LONG, DOCUMENTS)

    def test_killed_with_fixed_span(self):
        self.check_killed(6, 2, LONG, FIXED)

    def test_killed_over_several_passes(self):
        self.check_killed(8, 3, SHORT)
        # TensorBoard too shows each number once, whatever the killed runs had written.
        events = EventAccumulator(str(self.broken / "tensorboard"))
        events.Reload()
        for split in ("train", "valid"):
            shown = [(event.step, event.value) for event in events.Scalars(f"{split}/loss")]
            lines = [line for line in metrics(self.whole) if line["split"] == split]
            self.assertEqual(shown, [(line["update"], numpy.float32(line["loss"])) for line in lines])

    def test_killed_before_an_old_checkpoint_was_removed(self):
        self.configure(LONG, {"train": {"updates": 30}})
        self.succeed("train", self.config_file, "--out", self.broken, "--quiet")
        newest = checkpoints(self.broken)[0]
        shutil.copy(newest, newest.with_name("update-00000003.safetensors"))
        self.end(self.start(), 0)
        self.assert_same_run()

    def test_a_run_that_is_not_there_begins(self):
        text = self.write("text.txt", english(3000))
        done = self.succeed("train", self.config(text), "--out", self.folder / "new", "--resume", "--threads", 1)
        self.assertIn("no run in", done.stderr)
        self.assertIn("1 thread;", done.stderr + done.stdout)

    def test_interrupted(self):
        for data, changes in ((LONG, RANDOM), (SHORT, FIXED)):
            with self.subTest(changes=changes):
                self.setUp()
                self.configure(data, changes)
                for pause, number in ((0, signal.SIGINT), (0.02, signal.SIGTERM), (0.07, signal.SIGHUP)):
                    process = self.start()
                    self.wait_for_progress(process)
                    time.sleep(pause)
                    process.send_signal(number)
                    self.end(process, 130)
                    saved = newest_checkpoint(self.broken)[2]["update"]
                    self.assertGreaterEqual(saved, max((line["update"] for line in metrics(self.broken)), default=0))
                self.end(self.start(), 0)
                self.assert_same_run()

    def test_how_to_go_on_is_the_last_line(self):
        self.configure(LONG, FIXED)
        process = start("train", self.config_file, "--out", self.broken, "--set", "train.updates=100000")
        self.wait_for_progress(process)
        process.send_signal(signal.SIGINT)
        lines = process.communicate(timeout=60)[1].splitlines()
        update = newest_checkpoint(self.broken)[2]["update"]
        self.assertRegex(lines[-2], rf"^train +0%  {update}/100000 update")
        self.assertRegex(lines[-1], f"^interrupted: saved update {update} to .* --resume$")

    def test_interrupted_in_the_last_update(self):
        """With nothing left to do the run is complete, and nothing says that it should go on."""
        slow = {"model": {"width": 96}, "train": {"updates": 1, "batch": 32, "block": 256, "validate_every": 0}}
        self.configure({"text": english(20000)}, FIXED, slow)
        process = self.start()
        self.wait_for_progress(process)
        process.send_signal(signal.SIGINT)
        self.end(process, 0)
        self.assert_same_run()

    def test_interrupted_before_the_last_validation(self):
        self.configure(LONG, FIXED)
        self.end(self.start(), 0)
        newest, undisturbed = checkpoints(self.broken)[0], newest_checkpoint(self.broken)
        parts = Parts(newest)
        state = json.loads(parts.metadata["state"])
        state["validation_due"], last = True, state["history"].pop()
        self.assertEqual(last["update"], state["update"])
        parts.metadata["state"] = json.dumps(state)
        parts.write(newest)
        self.end(self.start(), 0)
        self.assertEqual(newest_checkpoint(self.broken), undisturbed)

    def test_a_finished_run_goes_on(self):
        """Resumed without change it has nothing to do; with more updates it is as if it had always had them."""
        self.configure(LONG, {"train": {"updates": 40}})
        arguments = ("train", self.config_file, "--out", self.broken, "--quiet")
        self.succeed(*arguments, "--set", "train.updates=20")
        before = recorded(self.broken)
        self.succeed(*arguments, "--set", "train.updates=20", "--resume")
        self.assertEqual(recorded(self.broken), before)
        self.succeed(*arguments, "--resume")
        self.assert_same_run()

    def test_a_cosine_that_ends_elsewhere_is_told(self):
        """The rate of a run that goes on longer is another one at once: here it had come down to 0."""
        self.configure(LONG, {"train": {"updates": 20}, "optimiser": {"schedule": "cosine", "rate": 0.008, "warmup": 0}})
        arguments = ("train", self.config_file, "--out", self.broken, "--resume")
        told = "the cosine now ends at update"
        self.assertNotIn(told, self.succeed(*arguments).stderr)
        self.assertNotIn(told, self.succeed(*arguments).stderr)
        done = self.succeed(*arguments, "--set", "train.updates=40")
        rates = f"{told} 40, not 20: the learning rate was 0, and is 0.0037"
        self.assertIn(rates, done.stderr)
        # A run that begins with another's weights has no warm-up, whatever is configured.
        tuned = ("train", self.config_file, "--out", self.folder / "tuned", "--resume", "--set", f"train.from={self.broken}", "--set", "optimiser.warmup=30")
        self.succeed(*tuned, "--set", "train.updates=20")
        self.assertIn(rates, self.succeed(*tuned, "--set", "train.updates=40").stderr)

    def test_any_number_of_threads_gives_the_same_bits(self):
        # So large that threads share every sum.
        large = {
            "model": {"width": 192, "layers": 2, "heads": 3, "feed_forward": 768, "dropout": 0.1, "residual_dropout": 0.1},
            "expire_span": {"max_span": 128, "ramp": 16},
            "train": {"batch": 4, "block": 128, "updates": 6, "log_every": 1, "checkpoint_every": 6},
            "optimiser": {"clip": 0.1, "warmup": 2},
        }
        text = self.write("text.txt", english(90000))
        adaptive = {**ADAPTIVE, "train": {"parts": 2}}
        pre_norm = {"model": {"norm": "pre", "norm_kind": "rms", "activation": "swiglu", "normed_heads": True}}
        compressive = {"forgetting": {"method": "compressive"}, "compressive": {"max_span": 128, "size": 128}}
        separate = {"forgetting": {"method": "selective_attention"}, "selective_attention": {"separate": True}}
        # More rows and targets than libtorch sums on one thread, and spans that are on their ramp.
        many = {
            "model": {"width": 8, "heads": 1, "feed_forward": 16},
            "expire_span": {"max_span": 1024, "ramp": 200, "initial_fraction": 0.4},
            "train": {"batch": 128, "block": 64, "updates": 14, "validate_every": 0},
        }
        for kind in ({}, adaptive, pre_norm, compressive, separate, many):
            config = self.write("config.toml", toml(merged(TINY, large, {"data": {"path": str(text)}}, kind)))
            found = []
            for threads in (1, 2, 3):
                run = self.folder / f"threads_{threads}"
                shutil.rmtree(run, ignore_errors=True)
                self.succeed("train", config, "--out", run, "--threads", threads)
                _, tensors, _ = newest_checkpoint(run)
                found.append((recorded(run), tensors))
            self.assertEqual(found[0][0], found[1][0])
            for other in found[1:]:
                different = [name for name, bits in found[0][1].items() if other[1][name] != bits]
                self.assertEqual(different, [])

    def test_agents_learn_the_same_bits_with_any_number_of_threads(self):
        """Also where a run goes on with another number of them."""
        for batch in (6, 70):
            changes = {
                "data": {"task": "corridor"},
                "corridor": {"longest": 5},
                "train": {"batch": batch, "block": 10, "updates": 8, "log_every": 1, "checkpoint_every": 4, "validate_every": 4},
                "actor_critic": {"validation_episodes": 40},
            }
            config = self.write("config.toml", toml(merged(TINY, changes)))
            found = []
            for threads in ((1,), (3,), (2, 1)):
                run = self.folder / f"agents_{batch}_{len(found)}"
                if len(threads) > 1:
                    self.succeed("train", config, "--out", run, "--threads", threads[0], "--set", "train.updates=4")
                    self.succeed("train", config, "--out", run, "--resume", "--threads", threads[1])
                else:
                    self.succeed("train", config, "--out", run, "--threads", threads[0])
                found.append(newest_checkpoint(run))
            for other in found[1:]:
                self.assertEqual(found[0], other)


if __name__ == "__main__":
    unittest.main()
