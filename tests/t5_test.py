"""T5 against Hugging Face's transformers, with random weights: logits, loss and gradients."""

import json
import os
import unittest
import unittest.mock

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from program import ProgramTest, english, lapse, toml
from safetensors.torch import load_file, save_file
from span_cli_test import SPANS
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5LayerNorm

SIZES = {"vocab_size": 61, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3}
# Any method that reads all of so short a target is plain attention.
METHOD = {"forgetting": {"method": "fixed_span"}, "fixed_span": {"max_span": 400}}


def tiny(seed, **sizes):
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration(T5Config(**{**SIZES, **sizes}, decoder_start_token_id=0))
    for name, weight in model.named_parameters():
        if "norm" in name:  # at first all ones, which would hide an error
            weight.data.uniform_(0.5, 1.5)
        if "relative" in name:
            weight.data.normal_()
    return model.eval()


def batch(seed, source_lengths, lengths, vocabulary=61):
    """Tokens, padded on the right; the target is padded with -100."""
    torch.manual_seed(seed)
    source = torch.randint(2, vocabulary, (len(source_lengths), max(source_lengths)))
    target = torch.randint(2, vocabulary, (len(lengths), max(lengths)))
    for b, (s, t) in enumerate(zip(source_lengths, lengths)):
        source[b, s:] = 0
        target[b, t:] = -100
    return source, target


def golden(path, model, source, target, source_lengths, lengths):
    """Writes what transformers computes of the batch."""
    mask = lambda x, n: (torch.arange(x.shape[1]) < torch.tensor(n)[:, None]).long()
    start = torch.zeros(len(target), 1, dtype=torch.long)
    decoder_input = torch.cat([start, target[:, :-1].clamp(min=0)], 1)
    model.zero_grad()
    y = model(
        input_ids=source,
        attention_mask=mask(source, source_lengths),
        decoder_input_ids=decoder_input,
        decoder_attention_mask=mask(target, lengths),
        labels=target,
    )
    y.loss.backward()
    tensors = {
        "source": source,
        "source_lengths": torch.tensor(source_lengths),
        "input": decoder_input,
        "target": target,
        "lengths": torch.tensor(lengths),
        "logits": y.logits.detach(),
        "loss": y.loss.detach().view(1),
    }
    for name, weight in model.named_parameters():  # shared ones once
        tensors["param." + name] = weight.detach().clone()
        tensors["grad." + name] = weight.grad.clone()
    save_file(tensors, path, {"t5": model.config.to_json_string(use_diff=False), "config": toml(METHOD)})


CASES = {  # lengths of the sources and of the targets, and from what distance on there is one bucket
    "padded": ([9, 4, 12], [5, 7, 2], 128),
    "whole": ([20, 20], [11, 11], 128),
    "far": ([300, 150], [180, 260], 128),  # beyond the last bucket
    "near": ([60, 31], [45, 70], 23),
}


class Agreement(ProgramTest):
    def compare(self, name, dtype, tolerance, seed=1):
        source_lengths, lengths, distance = CASES[name]
        path = self.folder / f"{name}.safetensors"
        source, target = batch(seed, source_lengths, lengths)
        model = tiny(seed, relative_attention_max_distance=distance).to(dtype)
        golden(path, model, source, target, source_lengths, lengths)
        precision = "float64" if dtype == torch.float64 else "float32"
        done = self.succeed("golden", path, "--tolerance", tolerance, "--precision", precision, "--json")
        errors = json.loads(done.stdout)["files"][0]["errors"]
        self.assertEqual(errors.keys(), {"logits", "loss", "grad"})
        self.assertEqual(errors["grad"]["tensors"], sum(1 for _ in tiny(seed).parameters()))

    def test_float32_agrees(self):
        for seed, name in enumerate(CASES):
            self.compare(name, torch.float32, 1e-5, seed)

    def test_float64_agrees_to_its_own_precision(self):
        """transformers takes the norms' mean squares in float32 whatever the weights are: here in theirs."""

        def forward(norm, x):
            return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)

        with unittest.mock.patch.object(T5LayerNorm, "forward", forward):
            for seed, name in enumerate(CASES):
                self.compare(name, torch.float64, 1e-12, seed)

    def test_an_error_is_seen(self):
        source, target = batch(1, [9, 4], [5, 7])
        path = self.folder / "wrong.safetensors"
        golden(path, tiny(1), source, target, [9, 5], [5, 7])  # one more token is attended
        tensors = load_file(path)
        tensors["source_lengths"] = torch.tensor([9, 4])
        save_file(tensors, path, {"t5": tiny(1).config.to_json_string(use_diff=False), "config": toml(METHOD)})
        self.assertEqual(lapse("golden", path, "--tolerance", 1e-3).returncode, 1)


class Exchange(ProgramTest):
    """Checkpoints that transformers wrote, and that it reads."""

    def setUp(self):
        super().setUp()
        self.model = tiny(7, vocab_size=2 + 256 + 10, relative_attention_max_distance=50)
        self.theirs = self.folder / "theirs"
        self.model.save_pretrained(self.theirs)
        text = self.write("text.txt", english(30000))
        changes = {"data": {"objective": "span_corruption", "sentinels": 10}, "train": {"block": 24, "updates": 4}}
        self.toml = self.config(text, METHOD, changes)

    def imported(self, *sets):
        run = self.folder / "run"
        self.succeed("import", self.theirs, "--config", self.toml, "--out", run, *sets)
        return run

    def test_what_is_read_is_written_back(self):
        run, out = self.imported(), self.folder / "back"
        self.succeed("export", run, "--out", out)
        before, after = (load_file(folder / "model.safetensors") for folder in (self.theirs, out))
        self.assertEqual(before.keys(), after.keys())
        for name in before:
            self.assertTrue(torch.equal(before[name], after[name]), name)
        config = lambda folder: json.loads((folder / "config.json").read_text())
        self.assertEqual(config(self.theirs), config(out))
        again = T5ForConditionalGeneration.from_pretrained(out).eval()
        source, target = batch(1, [9], [5])
        with torch.no_grad():
            self.assertTrue(torch.equal(self.model(source, labels=target).logits, again(source, labels=target).logits))
        self.refuse("export", run, "--out", out, says="config.json")
        (out / "config.json").unlink()
        self.refuse("export", run, "--out", out, says="model.safetensors")

    def test_weights_are_written_in_the_type_that_they_had(self):
        for dtype in (torch.bfloat16, torch.float16):
            theirs, run, out = (self.folder / f"{name}-{dtype}" for name in ("theirs", "run", "back"))
            T5ForConditionalGeneration.from_pretrained(self.theirs, dtype=dtype).save_pretrained(theirs)  # some stay in float32
            self.succeed("import", theirs, "--config", self.toml, "--out", run)
            self.succeed("export", run, "--out", out)
            before, after = (load_file(folder / "model.safetensors") for folder in (theirs, out))
            self.assertIn(dtype, {tensor.dtype for tensor in after.values()})
            for name in before:
                self.assertEqual(before[name].dtype, after[name].dtype, name)
                self.assertTrue(torch.equal(before[name], after[name]), name)

    def test_sizes_are_compared_before_a_model_is_made(self):
        config = json.loads((self.theirs / "config.json").read_text())
        arguments = ("import", self.theirs, "--config", self.toml, "--out", self.folder / "run")
        for key in ("d_model", "d_ff", "d_kv"):
            (self.theirs / "config.json").write_text(json.dumps(config | {key: 4096}))
            self.refuse(*arguments, says="does not have the shape that the configuration asks for")
        (self.theirs / "config.json").write_text(json.dumps(config | {"num_layers": 1000}))
        self.refuse(*arguments, says="encoder.block")
        self.assertFalse((self.folder / "run").exists())

    def test_what_was_kept_of_the_checkpoint_is_damaged(self):
        run = self.imported()
        for text in ("[1]", '{"types": 3}', '{"types": {"shared.weight": 3}}', "{"):
            (run / "t5.json").write_text(text)
            self.refuse("export", run, "--out", self.folder / "back", says="t5.json")
        (run / "t5.json").unlink()
        self.succeed("export", run, "--out", self.folder / "back")

    def test_weights_of_another_format(self):
        arguments = ("import", self.theirs, "--config", self.toml, "--out", self.folder / "run")
        (self.theirs / "model.safetensors").rename(self.theirs / "model.safetensors.index.json")
        self.refuse(*arguments, says="in several files")
        (self.theirs / "model.safetensors.index.json").rename(self.theirs / "pytorch_model.bin")
        self.refuse(*arguments, says="save them as safetensors")
        (self.theirs / "pytorch_model.bin").unlink()
        self.refuse(*arguments, says="there is no model.safetensors")

    def test_published_checkpoints_hold_more(self):
        """Those of T5 1.0 have a table of buckets for cross-attention, which nobody reads."""
        path = self.theirs / "model.safetensors"
        tensors = load_file(path)
        unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        save_file(tensors | {unused: torch.ones(32, 2)}, path, {"format": "pt"})
        self.imported()
        save_file(tensors | {"x": torch.ones(2)}, path, {"format": "pt"})
        self.refuse("import", self.theirs, "--config", self.toml, "--out", self.folder / "x", says="no place in the model for its tensor 'x'")

    def test_dropouts_that_a_t5_does_not_have_are_refused(self):
        run, text = self.folder / "run", self.write("text.txt", english(3000))
        config = self.config(text, SPANS, {"model": {"dropout": 0.1}, "train": {"updates": 2}})
        self.succeed("train", config, "--out", run, "--quiet", "--set", "model.residual_dropout=0.5")
        self.refuse("export", run, "--out", self.folder / "x", says="model.residual_dropout")

    def test_how_weights_began_is_no_reason_to_refuse_them(self):
        run, text = self.folder / "run", self.write("text.txt", english(3000))
        config = self.config(text, SPANS, {"model": {"initialisation": "glorot"}, "train": {"updates": 2}})
        self.succeed("train", config, "--out", run, "--quiet")
        self.succeed("export", run, "--out", self.folder / "t5")

    def test_generates_what_transformers_does(self):
        run = self.imported()
        prompt = "The <extra_id_0> of the <extra_id_1>."
        done = self.succeed_json("generate", run, "--prompt", prompt, "--temperature", 0, "--tokens", 12)
        source = []
        for part in ("The ", 267, " of the ", 266, ".", 1):
            source += [part] if isinstance(part, int) else [2 + byte for byte in part.encode()]
        ids = self.model.generate(torch.tensor([source]), max_new_tokens=12, do_sample=False, use_cache=False)[0].tolist()[1:]
        self.assertEqual(done["tokens"], ids)
        self.assertEqual(done["prompt_tokens"], len(source))

    def test_gaps_that_were_not_reached_stay(self):
        run = self.imported()
        sentinel = 2 + 256 + 9
        done = self.succeed_json("generate", run, "--prompt", "a <extra_id_0> b <extra_id_1>", "--temperature", 0, "--tokens", 1)
        first = "" if done["tokens"] == [sentinel] else "<extra_id_0>"
        self.assertEqual(done["text"], f"a {first} b <extra_id_1>")

    def test_verbs_that_read_one_text_say_so(self):
        run = self.imported()
        questions = self.write("questions.jsonl", '{"context": "a", "choices": ["b", "c"], "answer": 0}\n')
        self.refuse("eval", run, "--choices", questions, says="not for those with an encoder")
        self.refuse("inspect", run, "--out", self.folder / "page.html", says="does not read models with an encoder")

    def test_an_imported_run_goes_on(self):
        run = self.imported()
        start = self.succeed_json("eval", run)["loss"]
        self.succeed("train", run / "config.toml", "--out", run, "--resume", "--quiet")
        self.assertEqual(self.succeed_json("info", run)["update"], 4)
        self.assertNotEqual(self.succeed_json("eval", run)["loss"], start)

    def test_metrics_without_checkpoints_are_not_written_over(self):
        run = self.imported()
        self.succeed("train", run / "config.toml", "--out", run, "--resume", "--quiet")
        (run / "checkpoints").rename(run / "elsewhere")
        metrics = (run / "metrics.jsonl").read_bytes()
        self.refuse("import", self.theirs, "--config", self.toml, "--out", run, says="put its folder checkpoints/ back")
        self.assertEqual((run / "metrics.jsonl").read_bytes(), metrics)

    def test_others_are_refused(self):
        config = self.theirs / "config.json"
        text = config.read_text()
        run = self.folder / "run"
        arguments = ("import", self.theirs, "--config", self.toml, "--out", run)
        self.refuse(*arguments, "--set", "data.sentinels=7", says="set data.sentinels = 10")
        self.refuse(*arguments, "--set", "model.dropout=0.5", says="--set model.dropout=0.5: the model is the checkpoint's")
        self.refuse(*arguments, "--set", "train.from=other", says="train.from")
        for key, value, says in (
            ("model_type", '"bert"', "not the configuration of a T5"),
            ("feed_forward_proj", '"gated-gelu"', "gated"),
            ("relative_attention_num_buckets", "16", "buckets"),
            ("d_model", "-3", "'d_model' must be"),
            ("d_ff", "24.5", "'d_ff' must be a whole number"),
            ("d_ff", "25", "does not have the shape"),
            ("relative_attention_max_distance", "128.7", "'relative_attention_max_distance' must be a whole number"),
            ("eos_token_id", "1.4", "'eos_token_id' must be a whole number"),
            ("dropout_rate", "1.5", "model.dropout: 1.5 is out of range"),
            ("layer_norm_epsilon", "0", "model.norm_epsilon"),
            ("num_heads", "4096", "model.heads"),
            ("decoder_start_token_id", "5", "its decoder_start_token_id is not 0"),
            ("eos_token_id", "7", "its eos_token_id is not 1"),
        ):
            changed = json.loads(text)
            changed[key] = json.loads(value)
            config.write_text(json.dumps(changed))
            self.refuse(*arguments, says=says)
        config.write_text(text)
        self.refuse(*arguments, "--set", "data.objective=next_token", says="span_corruption")
        weights = self.theirs / "model.safetensors"
        tensors = load_file(weights)
        save_file(tensors | {"shared.weight": tensors["shared.weight"].to(torch.float8_e4m3fn)}, weights)
        self.refuse(*arguments, says="model.safetensors: 'shared.weight' is of type F8_E4M3")


if __name__ == "__main__":
    unittest.main()
