"""lapse.hf on random tiny models of each family: its own tokens with room enough, chunked as whole as token by token,
batches, beams, cropping; and rows that are really freed."""

import unittest
import unittest.mock

import torch
import transformers as hf

import lapse.hf
from lapse.methods import ALIASES, METHODS

SIZES = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 4, "pad_token_id": 0}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
NAMED = {"bos_token_id": 1, "eos_token_id": None}


def config(kind, **more):
    return kind(**{**SIZES, **HEADS, **NAMED, **more})


FAMILIES = {
    "llama": lambda: hf.LlamaForCausalLM(config(hf.LlamaConfig)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(config(hf.Qwen2Config)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(config(hf.Qwen3Config, head_dim=16)),
    "mistral, sliding": lambda: hf.MistralForCausalLM(config(hf.MistralConfig, sliding_window=9)),
    "gemma": lambda: hf.GemmaForCausalLM(config(hf.GemmaConfig, head_dim=16)),
    "gemma3, sliding and full": lambda: hf.Gemma3ForCausalLM(
        config(
            hf.Gemma3TextConfig, head_dim=8, sliding_window=9, layer_types=["sliding_attention", "full_attention"] * 2
        )
    ),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=61, n_embd=32, n_layer=4, n_head=4, n_positions=128, pad_token_id=0, **NAMED)
    ),
}
TRAINED = sorted(set(METHODS) - {"selective_attention", "expire_span"})  # these change what is read


def methods_for(family, methods):
    """All of them where layers are of one kind and of two; a few elsewhere, to save time."""
    few = {"local_global", "sink_window", "tova", "selective_attention"}
    return [m for m in methods if m in few or family in ("llama", "gemma3, sliding and full")]


def make(family="llama", seed=0):
    torch.manual_seed(seed)
    return FAMILIES[family]().eval()


def prompts(lengths=(6, 17, 12), seed=0):
    """Tokens padded on the left, and their mask."""
    draw = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    tokens = torch.randint(3, 61, (len(lengths), longest), generator=draw)
    mask = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    return {"input_ids": tokens * mask, "attention_mask": mask.long()}


def generate(model, inputs, cache=None, new=24, **named):
    return model.generate(**inputs, past_key_values=cache, max_new_tokens=new, do_sample=False, **named)


def roomy(model, method):
    """A cache that forgets nothing of some 50 tokens."""
    options = {"max_span": 60} if method == "strided" else {}
    return lapse.hf.Cache(model, method, 0 if method == "full" else 64, **options)


def tight(model, method, budget=8):
    return lapse.hf.Cache(model, method, 0 if method == "full" else budget)


def read(model, tokens, cache, sizes):
    """Logits of tokens [B, T], read in blocks of these sizes."""
    parts, at = [], 0
    with torch.no_grad():
        for n in sizes:
            parts.append(model(tokens[:, at : at + n], past_key_values=cache).logits)
            at += n
    return torch.cat(parts, 1)


class Families(unittest.TestCase):
    def test_with_room_enough_a_model_writes_its_own_tokens(self):
        for family in FAMILIES:
            model, inputs = make(family), prompts()
            own = generate(model, inputs, new=12)
            for method in methods_for(family, TRAINED):
                with self.subTest(family=family, method=method):
                    self.assertTrue(torch.equal(generate(model, inputs, roomy(model, method), new=12), own))
            # and with the implementation alone
            self.assertEqual(model.config._attn_implementation, "lapse")
            self.assertTrue(torch.equal(generate(model, inputs, new=12), own))

    def test_chunked_is_whole_is_token_by_token(self):
        tokens = torch.randint(3, 61, (2, 40), generator=torch.Generator().manual_seed(1))
        for family in FAMILIES:
            model = make(family).double()
            for method in methods_for(family, [*TRAINED, "selective_attention"]):
                with self.subTest(family=family, method=method):
                    whole = read(model, tokens, tight(model, method), [40])
                    for sizes in ([1] * 40, [13, 9, 1, 17]):
                        logits = read(model, tokens, tight(model, method), sizes)
                        torch.testing.assert_close(logits, whole, rtol=1e-7, atol=1e-9)

    def test_sliding_layers_hold_their_window_at_most(self):
        model = make("gemma3, sliding and full")
        cache = lapse.hf.Cache(model, "tova", 20)
        generate(model, prompts((30,)), cache, new=5)
        self.assertEqual([rows for (rows,) in cache.rows()], [8, 19, 8, 19])


class Generation(unittest.TestCase):
    def test_a_batch_writes_what_each_prompt_alone_writes(self):
        model, inputs = make().double(), prompts()
        for method in [*TRAINED, "selective_attention"]:
            with self.subTest(method=method):
                together = generate(model, inputs, tight(model, method))
                for b, length in enumerate((6, 17, 12)):
                    one = {"input_ids": inputs["input_ids"][b : b + 1, -length:]}
                    alone = generate(model, one, tight(model, method))
                    self.assertEqual(together[b, 17 - length :].tolist(), alone[0].tolist())

    def test_within_autocast(self):
        """Rotary positions make q and k float32 there, and v is bfloat16."""
        model, inputs = make(), prompts()
        logits = []
        for autocast in (False, True):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                logits.append(model(**inputs, past_key_values=lapse.hf.Cache(model, "local", 8)).logits.float())
        self.assertLess((logits[0] - logits[1]).abs().max(), 0.05 * logits[0].abs().max())

    def test_forgetting_changes_something(self):
        model, inputs = make(), prompts()
        own = generate(model, inputs)
        for method in set(TRAINED) - {"full"}:
            self.assertFalse(torch.equal(generate(model, inputs, tight(model, method, 5)), own), method)

    def test_prefill_in_chunks(self):
        model, inputs = make().double(), prompts((50, 31))
        for method in ("tova", "sink_window"):
            whole = generate(model, inputs, tight(model, method))
            chunked = generate(model, inputs, tight(model, method), prefill_chunk_size=7)
            self.assertTrue(torch.equal(whole, chunked))

    def test_beams(self):
        model, inputs = make().double(), prompts()
        own = generate(model, inputs, num_beams=3)
        self.assertTrue(torch.equal(generate(model, inputs, roomy(model, "tova"), num_beams=3), own))
        # With forgetting: beams of one sequence are what they are in a batch.
        together = generate(model, inputs, tight(model, "h2o"), num_beams=3)
        one = {"input_ids": inputs["input_ids"][1:2]}
        self.assertEqual(together[1].tolist(), generate(model, one, tight(model, "h2o"), num_beams=3)[0].tolist())

    def test_candidates_that_are_taken_back(self):
        """Prompt look-up reads several tokens and crops what was wrong."""
        model = make().double()
        inputs = {"input_ids": torch.randint(3, 8, (1, 30), generator=torch.Generator().manual_seed(2))}
        for method in ("tova", "h2o", "local", "selective_attention"):
            with self.subTest(method=method):
                plain = generate(model, inputs, tight(model, method))
                looked_up = generate(model, inputs, tight(model, method), prompt_lookup_num_tokens=3)
                self.assertEqual(looked_up.tolist(), plain.tolist())

    def test_a_conversation_goes_on(self):
        model = make().double()
        tokens = torch.randint(3, 61, (1, 30), generator=torch.Generator().manual_seed(3))
        cache = tight(model, "h2o")
        first = generate(model, {"input_ids": tokens}, cache, new=5)
        second = generate(model, {"input_ids": torch.cat([first, tokens[:, :4]], 1)}, cache, new=5)
        whole = read(model, second[:, :-1], tight(model, "h2o"), [second.shape[1] - 1])
        self.assertEqual(second[0, -5:].tolist(), whole[0, -5:].argmax(-1).tolist())
        cache.reset()
        self.assertTrue(torch.equal(generate(model, {"input_ids": tokens}, cache, new=5), first))


class WithoutCache(unittest.TestCase):
    """A switched model, with another cache or none, is the "sdpa" of transformers."""

    def test_static_cache(self):
        model, inputs = make(), prompts()
        named = {"cache_implementation": "static", "disable_compile": True}
        own = generate(model, inputs, **named)
        tight(model, "tova")
        self.assertTrue(torch.equal(generate(model, inputs, **named), own))

    def test_compiled_as_one_graph(self):
        model, inputs = make(), prompts()
        with torch.no_grad():
            own = model(**inputs).logits
            tight(model, "tova")
            for given in (inputs, {"input_ids": inputs["input_ids"]}):
                torch.compiler.reset()
                compiled = torch.compile(model, backend="eager", fullgraph=True)(**given).logits
                torch.testing.assert_close(compiled, model(**given).logits, rtol=1e-5, atol=1e-6)
            self.assertTrue(torch.equal(model(**inputs).logits, own))

    def test_a_model_that_changes_its_mask(self):
        model, tokens = hf.DogeForCausalLM(config(hf.DogeConfig)).eval(), prompts((12,))["input_ids"]
        with torch.no_grad():
            own = model(tokens).logits
            cache = tight(model, "tova")
            self.assertTrue(torch.equal(model(tokens).logits, own))
            with self.assertRaisesRegex(AttributeError, "reads its attention mask itself"):
                model(tokens, past_key_values=cache)


class Storage(unittest.TestCase):
    def test_rows_are_freed(self):
        model = make()
        tokens = torch.randint(3, 61, (2, 100), generator=torch.Generator().manual_seed(4))
        full = tight(model, "full")
        read(model, tokens, full, [100])
        for method in sorted(set(TRAINED) - {"full", "local_global"}):
            cache = tight(model, method)
            read(model, tokens, cache, [40] + [1] * 60)
            self.assertLessEqual(max(max(rows) for rows in cache.rows()), 8)
            self.assertLess(cache.nbytes(), full.nbytes() / 3)

    def test_budgets_by_layer(self):
        model = make()
        cache = lapse.hf.Cache(model, "tova", [4, 8, 16, 12])
        read(model, torch.randint(3, 61, (1, 60)), cache, [60])
        self.assertEqual(cache.rows(), [[3], [7], [15], [11]])


class Errors(unittest.TestCase):
    def test_they_say_what_is_wrong(self):
        model = make()
        with self.assertRaisesRegex(ValueError, "3 budgets, but the model has 4 layers"):
            lapse.hf.Cache(model, "tova", [4, 4, 4])
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
                if before == "eager":
                    with self.assertRaisesRegex(ValueError, words):
                        lapse.hf.forget(model)
                self.assertEqual(model.config._attn_implementation, before)
                self.assertTrue(torch.equal(model(tokens).logits, own))

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
