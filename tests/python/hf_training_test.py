"""lapse.hf.forget: models that forget are trained by plain code, read on from a cache with the same numbers, and come back
from a folder."""

import copy
import tempfile
import threading
import unittest
from unittest import mock

import numpy
import torch
import transformers as hf
from torch.nn import functional as F

import lapse.hf
from hf_test import FAMILIES, config, generate, make, prompts

KINDS = {
    "selective_attention": {"memory_loss": 0.1},
    "expire_span": {"max_span": 20, "ramp": 4.0, "loss": 1e-3, "initial_fraction": 0.4},
}


def moved(model):
    """Spans of their own for each token, off the ramp's corners."""
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if name.endswith("lapse_span.weight"):
            torch.nn.init.normal_(p, std=0.5)
    return model


class Training(unittest.TestCase):
    def test_a_cache_reads_what_training_reads(self):
        tokens = torch.randint(3, 61, (2, 30), generator=torch.Generator().manual_seed(1))
        for family in FAMILIES:
            for method, options in KINDS.items():
                with self.subTest(family=family, method=method):
                    model = moved(lapse.hf.forget(make(family), method, **options)).double()
                    expected = model(tokens).logits.detach()
                    for sizes in ([30], [1] * 30, [7, 11, 12]):
                        cache, at, parts = lapse.hf.Cache(model), 0, []
                        for n in sizes:
                            with torch.no_grad():
                                parts.append(model(tokens[:, at : at + n], past_key_values=cache).logits)
                            at += n
                        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-7, atol=1e-9)
                    if method == "expire_span":
                        self.assertLess(max(max(rows) for rows in cache.rows()), 29)

    def test_a_row_of_padding_alone_costs_nothing(self):
        for method, options in KINDS.items():
            with self.subTest(method):
                model = lapse.hf.forget(make(), method, **options)
                model(torch.tensor([[5], [0]]), attention_mask=torch.tensor([[1], [0]]))
                self.assertTrue(lapse.hf.cost(model).isfinite())

    def test_with_spans_without_end_it_is_sdpa(self):
        """Sliding windows included, which some models tell attention and others its mask alone."""
        tokens = torch.randint(3, 61, (2, 30), generator=torch.Generator().manual_seed(1))
        phimoe = config(hf.PhimoeConfig, sliding_window=9, num_local_experts=2, num_experts_per_tok=1)
        for family in [*FAMILIES, "phimoe, sliding"]:  # the last has layers that double() does not change
            with self.subTest(family), torch.no_grad():
                torch.manual_seed(0)
                model = make(family).double() if family in FAMILIES else hf.PhimoeForCausalLM(phimoe).eval()
                model.set_attn_implementation("sdpa")
                expected = model(tokens, use_cache=False).logits
                lapse.hf.forget(model, "expire_span", max_span=10**6, initial_fraction=0.999)
                near = 1e-6 if family in FAMILIES else 1e-5  # Expire-Span adds 1e-8 to the sum of the weights
                torch.testing.assert_close(model(tokens, use_cache=False).logits, expected, rtol=near, atol=near)

    def test_padding_counts_nowhere(self):
        for method, options in KINDS.items():
            with self.subTest(method):
                model = moved(lapse.hf.forget(make(), method, **options)).double()
                inputs = prompts((9, 14))
                one = {"input_ids": inputs["input_ids"][:1, 5:]}
                right = {name: F.pad(x, (0, 5)) for name, x in one.items()}
                right["attention_mask"] = torch.tensor([[1] * 9 + [0] * 5])
                expected = model(**one).logits
                costs = [lapse.hf.cost(model)]
                torch.testing.assert_close(model(**right).logits[:, :9], expected, rtol=1e-9, atol=1e-11)
                costs.append(lapse.hf.cost(model))
                left = {name: x[:1] for name, x in inputs.items()}
                left["position_ids"] = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
                torch.testing.assert_close(model(**left).logits[:, 5:], expected, rtol=1e-9, atol=1e-11)
                costs.append(lapse.hf.cost(model))
                for cost in costs[1:]:
                    torch.testing.assert_close(cost, costs[0], rtol=1e-9, atol=1e-15)
                self.assertGreater(costs[0].abs().item(), 0)

    def test_the_memory_loss_is_of_all_tokens(self):
        """n is the number of tokens (Sec. 4), also where a layer's window is shorter."""
        tokens = torch.randint(3, 61, (2, 30), generator=torch.Generator().manual_seed(1))
        model = lapse.hf.forget(make("mistral, sliding"), memory_loss=0.1)
        most, read = [], lapse.ops.selective_attention

        def seen(*rows, **named):
            y = read(*rows, **named)
            most.append(y.memory.amax(1))
            return y

        with mock.patch.object(lapse.ops, "selective_attention", seen):
            model(tokens)
        expected = 0.1 / (len(most) * 30) * torch.stack(most).mean(1).sum()
        torch.testing.assert_close(lapse.hf.cost(model), expected)

    def test_gradients_reach_every_weight(self):
        for method, options in KINDS.items():
            model = moved(lapse.hf.forget(make(), method, **options)).train()
            tokens = prompts((20,))["input_ids"]
            (model(tokens, labels=tokens).loss + lapse.hf.cost(model)).backward()
            for name, p in model.named_parameters():
                self.assertGreater(p.grad.abs().sum().item(), 0, name)

    def test_spans_are_not_rounded_to_bfloat16(self):
        model = moved(lapse.hf.forget(make().bfloat16(), "expire_span", max_span=1000)).train()
        tokens = prompts((20,))["input_ids"]
        found = []
        for module in model.modules():
            told = getattr(module, "lapse_forgetting", None)
            if told is not None:
                self.assertEqual(module.lapse_span.weight.dtype, torch.float32)
                module.register_forward_pre_hook(lambda m, *_: found.append(m.lapse_forgetting.spans(m)))
        with torch.autocast("cpu", torch.bfloat16):
            (model(tokens, labels=tokens).loss + lapse.hf.cost(model)).backward()
        for span in found:
            self.assertEqual(span.dtype, torch.float32)
            self.assertFalse(torch.equal(span, span.bfloat16().float()))

    def test_a_saved_model_forgets_again(self):
        tokens = prompts((20,))["input_ids"]
        for method, options in KINDS.items():
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                model = moved(lapse.hf.forget(make(), method, **options))
                expected = model(tokens).logits
                model.save_pretrained(folder)
                again = hf.AutoModelForCausalLM.from_pretrained(folder)
                self.assertFalse(torch.allclose(again(tokens).logits, expected))
                lapse.hf.restore(again, folder)
                torch.testing.assert_close(again(tokens).logits, expected)
                own = model.generate(
                    tokens, past_key_values=lapse.hf.Cache(model, budget=0), max_new_tokens=5, do_sample=False
                )
                self.assertEqual(own.shape[1], 25)

    def test_before_it_is_restored(self):
        tokens = prompts((20,))["input_ids"]
        model = lapse.hf.forget(make(), "expire_span", max_span=5, ramp=3.0)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
            self.assertTrue(torch.equal(again(tokens).logits, make()(tokens).logits))
            with torch.no_grad(), self.assertRaisesRegex(ValueError, "after from_pretrained lapse.hf.restore"):
                again(tokens, past_key_values=lapse.hf.Cache(again))
            again.save_pretrained(folder)  # without the spans
            with self.assertRaisesRegex(ValueError, "saved again without lapse.hf.restore"):
                lapse.hf.restore(make(), folder)
        with self.assertRaisesRegex(FileNotFoundError, "restore reads a local folder that save_pretrained wrote"):
            lapse.hf.restore(again, folder)

    def test_generate_needs_its_cache(self):
        model, inputs = lapse.hf.forget(make(), "expire_span", max_span=5, ramp=3.0), prompts()
        with self.assertRaisesRegex(ValueError, r"read on with past_key_values=lapse.hf.Cache\(model\)"):
            generate(model, inputs, new=3)
        whole = generate(model, inputs, new=3, use_cache=False)
        self.assertTrue(torch.equal(generate(model, inputs, lapse.hf.Cache(model), new=3), whole))

    def test_threads_read_with_one_model(self):
        model = moved(lapse.hf.forget(make().double(), "expire_span", **KINDS["expire_span"]))
        texts = [torch.randint(3, 61, (1, 9), generator=torch.Generator().manual_seed(i)) for i in range(4)]
        ask = lambda text: generate(model, {"input_ids": text}, lapse.hf.Cache(model), new=40)
        alone, together = [ask(text) for text in texts], [None] * len(texts)
        ready = threading.Barrier(len(texts))

        def work(i):
            ready.wait()
            together[i] = ask(texts[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        for own, other in zip(alone, together):
            self.assertTrue(torch.equal(own, other))

    def test_the_text_model_of_a_model_of_images(self):
        vision = hf.CLIPVisionConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
        )
        made = hf.LlavaConfig(text_config=config(hf.LlamaConfig), vision_config=vision, image_token_index=60)
        model = lapse.hf.forget(hf.LlavaForConditionalGeneration(made).eval(), "expire_span", max_span=5, ramp=3.0)
        inputs = prompts()
        logits = model(**inputs).logits
        with torch.no_grad():
            read = model(**inputs, past_key_values=lapse.hf.Cache(model)).logits
        real = inputs["attention_mask"].bool()
        torch.testing.assert_close(read[real], logits[real], rtol=1e-4, atol=1e-5)

    def test_copies_after_a_step(self):
        tokens = torch.randint(3, 61, (1, 12), generator=torch.Generator().manual_seed(1))
        for method, options in KINDS.items():
            with self.subTest(method):
                model = moved(lapse.hf.forget(make(), method, **options))
                (model(tokens).logits.sum() + lapse.hf.cost(model)).backward()
                twin = copy.deepcopy(model)
                self.assertTrue(torch.equal(twin(tokens).logits, model(tokens).logits))
                self.assertEqual(lapse.hf.cost(twin).item(), lapse.hf.cost(model).item())

    def test_compiled(self):
        inputs = prompts((20, 13))
        for method, options in KINDS.items():
            model = moved(lapse.hf.forget(make().double(), method, **options)).train()
            torch.compiler.reset()
            results = []
            for run in (model, torch.compile(model, backend="aot_eager"), model):
                model.zero_grad()
                loss = run(**inputs, labels=inputs["input_ids"], use_cache=False).loss
                cost = lapse.hf.cost(model)
                (loss + cost).backward()
                results.append([loss, cost, *[p.grad for p in model.parameters()]])
                model(**inputs, use_cache=False)  # another call, with the same cost but no graph of it left behind
                self.assertIsNot(lapse.hf.cost(model), cost)
            for other in results[1:]:
                for eager, compiled in zip(results[0], other, strict=True):
                    torch.testing.assert_close(compiled, eager, rtol=1e-9, atol=1e-12)

    def test_a_call_without_a_cost_leaves_none_behind(self):
        tokens = torch.randint(3, 61, (1, 12), generator=torch.Generator().manual_seed(1))
        for method, options in KINDS.items():
            model = moved(lapse.hf.forget(make(), method, **options))
            model(tokens)
            lapse.hf.cost(model)
            with torch.no_grad():
                model(tokens, past_key_values=lapse.hf.Cache(model))
            with self.assertRaisesRegex(RuntimeError, "no cost: .*without a cache"):
                lapse.hf.cost(model)

    def test_told_again_it_begins_anew(self):
        tokens = torch.randint(3, 61, (1, 12), generator=torch.Generator().manual_seed(1))
        for method, options in KINDS.items():
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                model = moved(lapse.hf.forget(make(), "expire_span", max_span=5))
                lapse.hf.forget(model, method, **options)
                once = lapse.hf.forget(make(), method, **options)
                self.assertTrue(torch.equal(model(tokens).logits, once(tokens).logits))
                hooks = [len(m._forward_pre_hooks) for m in model.modules()]
                self.assertEqual(hooks, [len(m._forward_pre_hooks) for m in once.modules()])
                model.save_pretrained(folder)
                again = lapse.hf.restore(hf.AutoModelForCausalLM.from_pretrained(folder).eval(), folder)
                self.assertTrue(torch.equal(again(tokens).logits, once(tokens).logits))

    def test_numbers_of_numpy_are_saved(self):
        tokens = torch.randint(3, 61, (1, 12), generator=torch.Generator().manual_seed(1))
        for method, options in {
            "expire_span": {"max_span": numpy.int64(9), "ramp": numpy.float32(2), "loss": torch.tensor(0.25)},
            "selective_attention": {"memory_loss": numpy.float32(0.5)},
        }.items():
            model = lapse.hf.forget(make(), method, **options)
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                again = lapse.hf.restore(hf.AutoModelForCausalLM.from_pretrained(folder).eval(), folder)
            self.assertTrue(torch.equal(again(tokens).logits, model(tokens).logits))
            self.assertTrue(torch.equal(lapse.hf.cost(again), lapse.hf.cost(model)))

    def test_what_it_does_not_read(self):
        tokens = torch.randint(3, 61, (1, 8), generator=torch.Generator().manual_seed(1))
        model = lapse.hf.forget(make(), memory_loss=0.1)
        with self.assertRaisesRegex(ValueError, "0 on the left and on the right of a sequence alone"):
            model(tokens, attention_mask=torch.tensor([[1, 1, 0, 0, 1, 1, 1, 1]]))
        twice = hf.DiffLlamaForCausalLM(config(hf.DiffLlamaConfig)).eval()
        with self.assertRaisesRegex(RuntimeError, "more than once per layer"):
            lapse.hf.forget(twice)(tokens)
        for words, call in {
            "expire_span: no option 'memory_loss'; there are: divisor": lambda: lapse.hf.forget(make(), "expire_span", memory_loss=1),
            "max_span must be at least 1, got -5": lambda: lapse.hf.forget(make(), "expire_span", max_span=-5),
            "initial_fraction must be between 0 and 1": lambda: lapse.hf.forget(make(), "expire_span", initial_fraction=1.0),
        }.items():
            with self.assertRaisesRegex(ValueError, words):
                call()

    def test_a_cost_without_gradients_is_refused(self):
        tokens = torch.randint(3, 61, (1, 8), generator=torch.Generator().manual_seed(1))
        for reentrant in (True, False):
            model = lapse.hf.forget(make(), memory_loss=0.1).train()
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model(tokens, use_cache=False)
            if reentrant:
                with self.assertRaisesRegex(RuntimeError, '"use_reentrant": False'):
                    lapse.hf.cost(model)
            else:
                lapse.hf.cost(model).backward()

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "'tova' is not trained"):
            lapse.hf.forget(make(), "tova")
        with self.assertRaisesRegex(RuntimeError, "no cost"):
            lapse.hf.cost(make())
        model = lapse.hf.forget(make())
        with torch.no_grad(), self.assertRaisesRegex(ValueError, r"past_key_values=lapse.hf.Cache\(model\)"):
            model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3)
        packed = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
        with self.assertRaisesRegex(ValueError, "masks of other shapes"):
            model(torch.randint(3, 61, (1, 7)), position_ids=packed, use_cache=False)
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "that lapse.hf.forget made predict spans"):
            model = make()
            model(torch.tensor([[5, 6]]), past_key_values=lapse.hf.Cache(model, "expire_span", ramp=2.0))


if __name__ == "__main__":
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    unittest.main()
