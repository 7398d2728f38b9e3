"""`lapse golden` on the files of tests/golden, on more that the project's own reference writes, and on broken ones."""

import functools
import json
import os
import pathlib
import tempfile
import unittest

import torch
from program import ROOT, ProgramTest, lapse
from reference_model import Sizes, run_reference, sizes_of, write_golden
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from selective_reference import attend, logits, masking, memory_per_token, prune

OWN = ROOT / "tests" / "golden"  # make_golden.py writes them
SHARED = pathlib.Path(os.environ.get("LAPSE_SHARED", ROOT.parent / "shared")) / "golden"

# What the public files do not vary: heads, head_dim beside width / heads, prime and extreme sizes, divisors, and spans
# that keep many memories on the ramp.
FILES = {
    "one_head": Sizes(heads=1, head_dim=8, width=24, seed=11),
    "three_heads": Sizes(heads=3, head_dim=5, width=16, seed=12),
    "block_of_one": Sizes(block=1, blocks=23, ramp=5, max_span=14, seed=13),
    "prime_block": Sizes(block=13, blocks=4, batch=1, max_span=37, ramp=7, seed=14),
    "one_layer": Sizes(layers=1, width=8, head_dim=4, feed_forward=8, vocabulary=3, seed=15),
    "uneven_ramp": Sizes(block=5, blocks=9, max_span=23, ramp=3, divisor=3, pre_norm=True, seed=16),
    "wide_ramp": Sizes(block=6, blocks=9, max_span=19, ramp=25, loss=0.5, seed=17),
    "random_drop": Sizes(random_drop=True, pre_norm=True, block=7, layers=3, divisor=2, seed=18),
    "forgets_at_once": Sizes(max_span=6, ramp=1, seed=19),
    "fixed": Sizes(method="fixed_span", heads=3, head_dim=7, width=20, block=5, max_span=11, seed=21),
    "fixed_shorter_than_block": Sizes(method="fixed_span", block=9, max_span=4, batch=1, layers=1, seed=22),
    "fixed_pre_norm": Sizes(method="fixed_span", block=1, blocks=12, max_span=5, pre_norm=True, seed=23),
}


@functools.cache
def golden_folder():
    """The files, written once."""
    folder = tempfile.TemporaryDirectory()
    for name, sizes in FILES.items():
        # Early spans for one, all over (0, L) for the others.
        bias = -2.0 if name == "forgets_at_once" else 0.0
        write_golden(pathlib.Path(folder.name) / f"{name}.safetensors", sizes, span_bias=bias, span_scale=1.5)
    return folder


def golden(name):
    return pathlib.Path(golden_folder().name) / f"{name}.safetensors"


class JudgeOfModels(unittest.TestCase):
    def check(self, path):
        """The reference computes what a file holds, from its weights and tokens."""
        tensors = load_file(path)
        sizes = sizes_of(safe_open(path, "pt").metadata())
        parameters = {n.removeprefix("param."): t for n, t in tensors.items() if n.startswith("param.")}
        column = lambda what: [tensors.get(f"{what}.{k}") for k in range(sizes.blocks)]
        noises = [None if u is None else u.double() for u in column("noise")]
        ours, _ = run_reference(sizes, parameters, column("input"), column("target"), noises)
        for key in ours.keys() & tensors.keys():
            if key.startswith("alive"):
                self.assertTrue(torch.equal(ours[key], tensors[key]), key)
                continue
            largest = tensors[key].abs().max().item() or 1.0
            error = (ours[key] - tensors[key].double()).abs().max().item() / largest
            # Theirs is float32: a few roundings of 6e-8, more in the long sums of gradients.
            self.assertLess(error, 2e-6 if key.startswith("grad") else 1e-6, key)
        wanted = {
            n for n in tensors if n.split(".")[0] in ("log_prob", "task_loss", "aux_loss", "span", "alive", "grad")
        }
        self.assertLessEqual(wanted, ours.keys())

    def check_selective(self, path):
        tensors = load_file(path)
        q, k, v = (tensors[name] for name in "qkv")
        f = masking(logits(q, k))
        near = lambda ours, name: self.assertLess((ours - tensors[name]).abs().max().item(), 1e-13, name)
        near(f, "masking")
        near(memory_per_token(f, cap=1.0), "memory_per_token")
        near(attend(q, k, v), "out")
        near(attend(q, k, v, shift=False), "out_no_shift")
        for name in [name for name in tensors if name.startswith("held.")]:
            held = prune(f, int(name.split(".")[1]))
            self.assertTrue(torch.equal(held.long(), tensors[name]), name)
            near(attend(q, k, v, held), name.replace("held", "out_budget"))


class PublicReference(JudgeOfModels):
    """The judge is judged first: by the numbers that the papers' public code printed. ctest runs this class once more by
    itself, to say that it was skipped where the files are not there."""

    def path(self, name):
        path = SHARED / f"{name}.safetensors"
        if not path.exists():
            self.skipTest(f"no golden file {path}; LAPSE_SHARED names the folder that has golden/")
        return path

    def test_fixed_span(self):
        self.check(self.path("fixed_span"))

    def test_expire_span(self):
        self.check(self.path("expire_span"))

    def test_expire_span_prenorm(self):
        self.check(self.path("expire_span_prenorm"))

    def test_expire_span_random_drop(self):
        self.check(self.path("expire_span_random_drop"))

    def test_selective_attention(self):
        self.check_selective(self.path("selective_attention"))


class Reference(JudgeOfModels):
    def test_own_files_are_what_the_reference_computes(self):
        for name in ("expire_span", "expire_span_pre_norm", "fixed_span"):
            self.check(OWN / f"{name}.safetensors")
        self.check_selective(OWN / "selective_attention.safetensors")

    def test_own_files_are_small_and_tell_much(self):
        for path in sorted(OWN.glob("*.safetensors")):
            self.assertLess(path.stat().st_size, 50_000, path)
        for name in ("expire_span", "expire_span_pre_norm"):
            tensors = load_file(OWN / f"{name}.safetensors")
            alive = torch.cat([t for n, t in tensors.items() if n.startswith("alive")])
            self.assertLess(alive.min(), alive.max(), name)
            self.assertGreater(sum(t.item() < 0 for n, t in tensors.items() if n.startswith("aux_loss")), 2, name)

    def test_spans_range_over_the_ramp(self):
        """Else the files below would compare little: some memories live, some die, some pay."""
        for name, sizes in FILES.items():
            tensors = load_file(golden(name))
            if sizes.method != "expire_span":
                continue
            alive = torch.cat([t for n, t in tensors.items() if n.startswith("alive")])
            costs = [t.item() for n, t in tensors.items() if n.startswith("aux_loss")]
            self.assertLess(alive.min(), alive.max(), name)
            self.assertLess(alive.max(), sizes.blocks * sizes.block, name)
            self.assertGreater(sum(cost < 0 for cost in costs), len(costs) / 2, name)


class Agreement(ProgramTest):
    def test_the_repositorys_own_files(self):
        files = sorted(OWN.glob("*.safetensors"))
        self.assertGreaterEqual(len(files), 4)
        result = self.succeed_json("golden", *files, "--tolerance", "1e-5")
        self.assertTrue(result["ok"])
        self.assertEqual([f["file"] for f in result["files"]], [str(path) for path in files])

    def test_all_sizes(self):
        result = self.succeed_json("golden", *map(golden, FILES))
        self.assertTrue(result["ok"])
        self.assertEqual(result["tolerance"], 1e-4)
        self.assertEqual([f["file"] for f in result["files"]], [str(golden(name)) for name in FILES])
        for file, sizes in zip(result["files"], FILES.values()):
            errors = file["errors"]
            compared = {"log_prob", "task_loss", "aux_loss", "alive", "grad"}
            self.assertEqual(errors.keys(), compared | ({"span"} if sizes.method == "expire_span" else set()))
            for what, error in errors.items():
                self.assertTrue(error["ok"])
                self.assertLessEqual(error["largest"], 0 if what == "alive" else 1e-4, f"{file['file']}: {what}")
            self.assertEqual(errors["log_prob"]["tensors"], sizes.blocks)
            self.assertEqual(errors["alive"]["tensors"], sizes.blocks * sizes.layers)

    def test_float64_agrees_to_its_own_precision(self):
        path = self.folder / "double.safetensors"
        write_golden(path, Sizes(heads=3, head_dim=5, divisor=2, pre_norm=True, seed=31), dtype=torch.float64)
        done = self.succeed("golden", path, "--precision", "float64", "--tolerance", "1e-10")
        self.assertNotIn("BAD", done.stdout)
        single = lapse("golden", path, "--tolerance", "1e-10")
        self.assertEqual(single.returncode, 1, "float32 cannot agree with float64 to 1e-10")
        self.assertIn("BAD", single.stdout)

    def test_text_names_the_largest_error_of_each_kind(self):
        lines = self.succeed("golden", golden("one_head")).stdout.splitlines()
        self.assertEqual(lines[0], str(golden("one_head")))
        self.assertEqual([line.split()[0] for line in lines[1:]], "log_prob task_loss aux_loss span alive grad".split())
        self.assertTrue(all(line.split()[2] == "ok" for line in lines[1:]))


class Disagreement(ProgramTest):
    def altered(self, name, change, metadata=None):
        """A copy of the file `one_head` whose tensors `change` has altered."""
        source = golden("one_head")
        tensors = load_file(source)
        change(tensors)
        path = self.folder / f"{name}.safetensors"
        save_file(tensors, path, {**safe_open(source, "pt").metadata(), **(metadata or {})})
        return path

    def assert_bad(self, what, tensor, amount):
        def change(tensors):
            tensors[tensor].view(-1)[1] += amount

        path = self.altered(tensor, change)
        done = lapse("golden", golden("three_heads"), path, "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        result = json.loads(done.stdout)
        self.assertFalse(result["ok"])
        good, bad = result["files"]
        self.assertTrue(good["ok"])
        self.assertFalse(bad["errors"][what]["ok"])
        self.assertEqual(bad["errors"][what]["tensor"], tensor)
        others = [error["ok"] for kind, error in bad["errors"].items() if kind != what]
        self.assertTrue(all(others))

    def test_one_altered_number(self):
        self.assert_bad("log_prob", "log_prob.2", 0.01)
        self.assert_bad("span", "span.3.1", 0.1)
        self.assert_bad("alive", "alive.4.0", 1)
        self.assert_bad("grad", "grad.layers.1.attn.proj_key.weight", 0.01)

    def test_text_says_bad(self):
        def change(tensors):
            tensors["aux_loss.0"] *= 1.001

        done = lapse("golden", self.altered("cost", change))
        self.assertEqual(done.returncode, 1)
        bad = [line for line in done.stdout.splitlines() if "BAD" in line]
        self.assertEqual(len(bad), 1)
        self.assertIn("aux_loss.0", bad[0])

    def test_not_a_number_is_no_agreement(self):
        def change(tensors):
            tensors["log_prob.1"][0, 0, 0] = float("nan")

        done = lapse("golden", self.altered("nan", change))
        self.assertEqual(done.returncode, 1)
        self.assertIn("BAD", done.stdout)

    def test_missing_tensors(self):
        for tensor in ("param.layers.1.ff.fc1.bias", "input.3", "log_prob.0", "grad.in_emb.weight"):
            path = self.altered("missing", lambda tensors: tensors.pop(tensor))
            self.refuse("golden", path, says=[str(path), f"'{tensor}'"], status=1)

    def test_wrong_metadata(self):
        cases = {
            "method": ("hope", "unknown forgetting method 'hope'"),
            "hid_sz": ("many", "'hid_sz' is 'many'"),
            "nheads": ("3", "shape"),
            "pre_norm": ("maybe", "'pre_norm' is 'maybe'"),
            "vocab_sz": ("-4", "vocab_sz"),
            "nlayers": ("16777216", "'nlayers' is 16777216, and there are only"),
            "inner_hid_sz": ("16777216", "'param.layers.0.ff.fc1.weight' does not have the shape"),
            "batch": ("16777216", "'input.0'"),
            "blocks": ("0", "blocks"),
            "mem_sz": ("99999999999999", ""),
        }
        path = self.altered("metadata", lambda tensors: None, {"nlayers": "0"})
        self.refuse("golden", path, says="nlayers", status=1)
        for key, (value, words) in cases.items():
            with self.subTest(key=key):
                path = self.altered("metadata", lambda tensors: None, {key: value})
                self.refuse("golden", path, says=words, status=1)

    def test_tokens_outside_the_vocabulary(self):
        for tensor in ("input.1", "target.1"):
            with self.subTest(tensor=tensor):
                path = self.altered("token", lambda tensors: tensors[tensor].fill_(1000))
                self.refuse("golden", path, says=tensor, status=1)

    def test_wrong_shapes_and_types(self):
        changes = {
            "input.0": lambda t: t[:, :3].contiguous(),
            "target.1": lambda t: t[:2].contiguous(),
            "log_prob.2": lambda t: t[0].contiguous(),
            "span.0.0": lambda t: t[:, :1].contiguous(),
            "alive.0.1": lambda t: t[:1].contiguous(),
            "task_loss.1": lambda t: t.repeat(2),
            "input.2": lambda t: t.float(),
        }
        for tensor, change in changes.items():
            with self.subTest(tensor=tensor):
                path = self.altered("shape", lambda tensors: tensors.update({tensor: change(tensors[tensor])}))
                self.refuse("golden", path, says=tensor, status=1)

    def test_no_golden_file(self):
        whole = golden("one_head").read_bytes()
        cut = self.write("cut.safetensors", whole[: len(whole) // 2])
        self.refuse("golden", cut, says=[str(cut), "truncated"], status=1)
        text = self.write("text.safetensors", "This is not a safetensors file, but plain text.\n" * 9)
        self.refuse("golden", text, says=[str(text), "truncated or altered"], status=1)
        self.refuse("golden", self.folder / "none", says=str(self.folder / "none"), status=1)
        self.refuse("golden", self.folder, says=str(self.folder), status=1)
        other = self.folder / "other.safetensors"
        save_file({"weight": torch.zeros(2)}, other)
        self.refuse("golden", other, says=[str(other), "not a golden file"], status=1)

    def test_flags(self):
        self.refuse("golden", says="FILE is required")
        self.refuse("golden", golden("one_head"), "--tolerence", "1", says="did you mean '--tolerance'")
        self.refuse("golden", golden("one_head"), "--tolerance", "-1", says="--tolerance")
        self.refuse("golden", golden("one_head"), "--precision", "float16", says="--precision")


if __name__ == "__main__":
    unittest.main()
