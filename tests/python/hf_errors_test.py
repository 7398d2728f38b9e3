"""What lapse.hf refuses, and that a model or a cache is then as it was."""

import unittest
import unittest.mock

import torch
import transformers as hf
from hf_test import config, generate, make, prompts, read, tight

import lapse.hf
from lapse.methods import ALIASES, METHODS


class Errors(unittest.TestCase):
    def test_they_say_what_is_wrong(self):
        model = make()
        with self.assertRaisesRegex(ValueError, "3 budgets, but the model has 4 layers"):
            lapse.hf.Cache(model, "tova", [4, 4, 4])
        with self.assertRaisesRegex(ValueError, "budget must be a whole number, or one for each layer, got '4'"):
            lapse.hf.Cache(model, "tova", "4")
        with self.assertRaisesRegex(ValueError, "tova needs budget=, at least 1"):
            lapse.hf.Cache(model, "tova", budget=0)
        with self.assertRaisesRegex(ValueError, "no forgetting method 'nova'"):
            lapse.hf.Cache(model, "nova", 4)
        with self.assertRaisesRegex(ValueError, 'attn_implementation="lapse"'):
            lapse.hf.Cache(make("qwen2").config, "tova", 4)
        tokens = torch.randint(3, 61, (1, 5))
        with self.assertRaisesRegex(RuntimeError, "torch.no_grad"):
            model(tokens, past_key_values=tight(model, "tova"))
        with torch.no_grad(), self.assertRaisesRegex(ValueError, r"attention_mask must be \[B, tokens\]"):
            model(tokens, attention_mask=torch.ones(1, 1, 5, 5, dtype=torch.bool), past_key_values=tight(model, "tova"))
        cache = tight(model, "tova")
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "must have all 7 tokens so far, got 2"):
            model(tokens, past_key_values=cache)
            model(tokens[:, :2], attention_mask=torch.ones(1, 2), past_key_values=cache)
        t5 = hf.T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
        with self.assertRaisesRegex(ValueError, "has an encoder"):
            lapse.hf.Cache(hf.T5ForConditionalGeneration(t5), "tova", 4)

    def test_a_refused_model_stays_as_it_was(self):
        mla = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
        mla |= {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16}
        mla |= {"num_experts_per_tok": 2, "num_key_value_heads": 4}
        chunked = {"num_local_experts": 2, "head_dim": 8, "intermediate_size_mlp": 32}
        tokens = torch.randint(3, 61, (1, 9), generator=torch.Generator().manual_seed(1))
        for words, model_class, made, named in (
            ("GptOssForCausalLM has attention sinks", hf.GptOssForCausalLM, hf.GptOssConfig, {"num_local_experts": 4}),
            ("Gemma2ForCausalLM has soft-capped logits", hf.Gemma2ForCausalLM, hf.Gemma2Config, {"head_dim": 16}),
            (
                'Gemma2ForCausalLM does not run with attn_implementation="sdpa"',
                hf.Gemma2ForCausalLM,
                hf.Gemma2Config,
                {"head_dim": 16, "attn_logit_softcapping": None},
            ),
            ("compressed keys", hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config, mla),
            ("chunked_attention", hf.Llama4ForCausalLM, hf.Llama4TextConfig, chunked),
            ("needs budget=", hf.LlamaForCausalLM, hf.LlamaConfig, {}),
        ):
            torch.manual_seed(0)
            model = model_class(config(made, **named)).eval()
            with self.subTest(words), torch.no_grad():
                before, own = model.config._attn_implementation, model(tokens).logits
                with self.assertRaisesRegex(ValueError, words):
                    lapse.hf.Cache(model, "tova", 0 if words == "needs budget=" else 8)
                if before == "eager" or words == "chunked_attention":
                    with self.assertRaisesRegex(ValueError, words):
                        lapse.hf.forget(model)
                self.assertEqual(model.config._attn_implementation, before)
                self.assertTrue(torch.equal(model(tokens).logits, own))

    def test_attention_that_reads_some_keys_alone(self):
        """Such models tell attention which keys, unless it is named "sdpa": then they make a mask."""
        q = torch.ones(1, 2, 3, 4)
        for name in ("indices", "block_indices", "sinks"):
            with self.assertRaisesRegex(ValueError, f"changes attention by {name}"):
                lapse.hf.attention(torch.nn.Module(), q, q, q, None, **{name: q})
        self.assertEqual(lapse.hf.attention(torch.nn.Module(), q, q, q, None, indices=None)[0].shape, (1, 3, 2, 4))

    def test_a_cache_that_is_not_read(self):
        """Set back, or another model's: it says so in the first call, and serves the right model then."""
        tokens = prompts((12,))["input_ids"]
        for other in ("sdpa", "eager", None):
            model = make()
            cache, expected = tight(model, "tova"), read(model, tokens, tight(model, "tova"), [12])
            wrong = make()
            if other:
                wrong = model
                model.set_attn_implementation(other)
            with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "did not read its cache"):
                wrong(tokens, past_key_values=cache)
            model.set_attn_implementation("lapse")
            self.assertTrue(torch.equal(read(model, tokens, cache, [12]), expected))
        single = hf.LlamaForCausalLM(config(hf.LlamaConfig, num_hidden_layers=1)).eval()
        for look in (lambda c: c.rows(), lambda c: c.nbytes(), lambda c: c.get_seq_length()):
            cache = tight(single, "tova")
            single.set_attn_implementation("sdpa")
            with torch.no_grad():
                single(tokens, past_key_values=cache)
            with self.assertRaisesRegex(RuntimeError, "did not read its cache"):
                look(cache)

    def test_keys_that_change_behind_the_cache(self):
        model, tokens = make(), prompts((12,))["input_ids"]
        cache, given = tight(model, "tova"), lapse.hf.Cache.update
        with unittest.mock.patch.object(lapse.hf.Cache, "update", lambda *a, **b: tuple(x + 0 for x in given(*a, **b))):
            with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "did not read its cache"):
                model(tokens, past_key_values=cache)

    def test_of_a_model_with_fewer_layers(self):
        small = hf.LlamaForCausalLM(config(hf.LlamaConfig, num_hidden_layers=2)).eval()
        model, cache = make(), tight(small, "tova")
        tight(model, "tova")
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "for a model of 2 layers; this one has more"):
            model(prompts((12,))["input_ids"], past_key_values=cache)

    def test_a_call_that_failed_between_the_layers(self):
        model, tokens = make(), prompts((12,))["input_ids"]
        cache, expected = tight(model, "tova"), read(model, tokens, tight(model, "tova"), [12])

        def fail(*arguments):
            raise MemoryError

        for failing in (0, 2):
            method = cache.layers[failing].memory.method
            method.read = fail
            with torch.no_grad(), self.assertRaises(MemoryError):
                model(tokens, past_key_values=cache)
            del method.read
            if failing:
                with self.assertRaisesRegex(RuntimeError, r"hold different tokens; call cache.reset\(\)"):
                    read(model, tokens, cache, [12])
                cache.reset()
            self.assertTrue(torch.equal(read(model, tokens, cache, [12]), expected))
            cache.reset()

    def test_a_refused_call_leaves_the_cache_as_it_was(self):
        model, tokens = make(), prompts((12, 12))["input_ids"]
        cache, alone = tight(model, "tova"), tight(model, "tova")
        packed = torch.ones(2, 1, 6, 6, dtype=torch.bool)
        with torch.no_grad():
            for part in tokens.split(6, 1):
                with self.assertRaisesRegex(ValueError, "attention_mask must be"):
                    model(part, attention_mask=packed, past_key_values=cache)
                expected = model(part, past_key_values=alone).logits
                self.assertTrue(torch.equal(model(part, past_key_values=cache).logits, expected))
                with self.assertRaisesRegex(ValueError, "is of 2 streams, and a block of 1 was given"):
                    model(part[:1], past_key_values=cache)

    def test_wrapped_models(self):
        class Adapted(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.get_base_model = lambda: model

        model = make()
        for wrapped in (torch.compile(model), Adapted(model), torch.nn.DataParallel(model)):
            self.assertEqual(len(lapse.hf.Cache(wrapped, "tova", 4).layers), 4)
            self.assertIs(lapse.hf.forget(wrapped), wrapped)
        with self.assertRaisesRegex(ValueError, "Linear is no model of transformers"):
            lapse.hf.Cache(torch.nn.Linear(2, 2), "tova", 4)

    def test_models_that_do_not_read_as_decoders(self):
        sizes = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        bert = hf.BertForMaskedLM(hf.BertConfig(**sizes, intermediate_size=32))
        falcon = hf.FalconForCausalLM(hf.FalconConfig(**sizes))
        for model, words in ((bert, "reads later tokens too"), (falcon, "AttentionInterface")):
            for make_forget in (lambda m: lapse.hf.Cache(m, "tova", 4), lapse.hf.forget):
                with self.assertRaisesRegex(ValueError, words):
                    make_forget(model)

    def test_begun_in_inference_mode(self):
        model, inputs = make(), prompts((12,))
        cache = tight(model, "tova")
        with torch.inference_mode():
            model(inputs["input_ids"][:, :9], past_key_values=cache)
        self.assertTrue(torch.equal(generate(model, inputs, cache), generate(model, inputs, tight(model, "tova"))))

    def test_cropping_gives_storage_back(self):
        model = make()
        cache = lapse.hf.Cache(model, "full")
        with torch.no_grad():
            model(torch.randint(3, 61, (1, 120)), past_key_values=cache)
        whole = cache.nbytes()
        cache.crop(-110)
        self.assertLess(cache.nbytes(), whole / 3)

    def test_outside_inference_mode_it_crops_what_was_read_within(self):
        model, tokens = make(), torch.randint(3, 61, (2, 30), generator=torch.Generator().manual_seed(1))
        for method in ("full", "local", "h2o", "tova"):
            answers = []
            for mode in (torch.inference_mode, torch.no_grad):
                cache = lapse.hf.Cache(model, method, 0 if method == "full" else 12)
                cache.activate_past_recording(8)
                with mode():
                    model(tokens, past_key_values=cache)
                cache.crop(-4)
                with torch.no_grad():
                    answers.append(model(tokens[:, -4:], past_key_values=cache).logits)
            self.assertTrue(torch.equal(*answers), method)

    def test_a_crop_that_is_refused_changes_no_layer(self):
        model, tokens = make(), torch.randint(3, 61, (1, 43), generator=torch.Generator().manual_seed(1))
        cache, alone = (lapse.hf.Cache(model, "local", [60, 60, 60, 8]) for _ in range(2))
        with torch.no_grad():
            for each in (cache, alone):
                model(tokens[:, :40], past_key_values=each)
            with self.assertRaisesRegex(RuntimeError, "call activate_past_recording"):
                cache.crop(-3)
            self.assertEqual([layer.get_seq_length() for layer in cache.layers], [40] * 4)
            read = [model(tokens[:, 40:], past_key_values=each).logits for each in (cache, alone)]
        self.assertTrue(torch.equal(*read))

    def test_what_it_does_not_read(self):
        tokens = torch.randint(3, 61, (1, 14), generator=torch.Generator().manual_seed(1))
        twice = hf.DiffLlamaForCausalLM(config(hf.DiffLlamaConfig)).eval()
        with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "more than once per layer"):
            twice(tokens, past_key_values=lapse.hf.Cache(twice, "local", 64))
        model = make()
        cache = tight(model, "local")
        with torch.no_grad():
            model(tokens[:, :10], past_key_values=cache)
            hidden = torch.ones(1, 14).long()
            hidden[:, 3:6] = 0
            with self.assertRaisesRegex(ValueError, "hides tokens that were read before"):
                model(tokens[:, 10:], attention_mask=hidden, past_key_values=cache)
        for method in ("expire_span", None):
            model.config.lapse = None if method else {"method": "selective_attention"}
            with self.assertRaisesRegex(ValueError, "for models that lapse.hf.forget made predict spans"):
                lapse.hf.Cache(model, "expire_span")
        del model.config.lapse
        with self.assertRaisesRegex(ValueError, "positive whole number, got 8.0"):
            lapse.hf.Cache(model, "tova", 8.0)

    def test_names(self):
        self.assertEqual(set(ALIASES.values()) - set(METHODS), set())


if __name__ == "__main__":
    hf.logging.set_verbosity_error()
    unittest.main()
