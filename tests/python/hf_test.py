"""lapse.hf on random tiny models of each family: its own tokens with room enough, chunked as whole as token by token,
batches, beams, cropping; and rows that are really freed."""

import unittest

import torch
import transformers as hf

import lapse.hf
from lapse.methods import METHODS

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

    def test_what_is_recorded_is_bounded(self):
        """`generate` with candidates leaves a cache that records: it must not grow with the stream."""
        model = make("qwen3").double()
        tokens = torch.randint(3, 61, (1, 300), generator=torch.Generator().manual_seed(4))
        for method in ("tova", "local"):
            with self.subTest(method):
                cache, plain = tight(model, method), tight(model, method)
                first = generate(model, {"input_ids": tokens[:, :20]}, cache, new=10, prompt_lookup_num_tokens=3)
                cache.activate_past_recording(20)
                stream = torch.cat([first[:, :-1], tokens], 1)
                expected = read(model, stream, plain, [329])
                held, got = [], [read(model, stream[:, 29:229], cache, [200])]
                for i in range(100):
                    got.append(read(model, stream[:, 229 + i : 230 + i], cache, [1]))
                    held.append(cache.nbytes())
                torch.testing.assert_close(torch.cat(got, 1), expected[:, 29:], rtol=1e-9, atol=1e-11)
                self.assertLessEqual(max(held[50:]), max(held[:50]))
                whole = held[-1]
                cache.end_past_recording()
                self.assertLess(cache.nbytes(), whole)
                self.assertLessEqual(cache.nbytes(), 1.5 * plain.nbytes())

    def test_the_newest_call_can_be_taken_back(self):
        """Also of a long one the last tokens that were asked for, where the record begins anew within it."""
        model = make().double()
        tokens = torch.randint(3, 61, (2, 100), generator=torch.Generator().manual_seed(4))
        for method in ("tova", "selective_attention", "local"):
            for sizes in ([80], [7] * 11 + [3], [50, 30]):
                with self.subTest(method=method, sizes=sizes):
                    cache, plain = tight(model, method), tight(model, method)
                    cache.activate_past_recording(20)
                    read(model, tokens[:, :80], cache, sizes)
                    back = min(20, sizes[-1])
                    cache.crop(-back)
                    kept = 80 - back
                    read(model, tokens[:, :kept], plain, [kept])
                    again = read(model, tokens[:, kept:], cache, [100 - kept])
                    expected = read(model, tokens[:, kept:], plain, [100 - kept])
                    torch.testing.assert_close(again, expected, rtol=1e-9, atol=1e-11)

    def test_budgets_by_layer(self):
        model = make()
        for budgets in ([4, 8, 16, 12], torch.tensor([4, 8, 16, 12]).numpy()):
            cache = lapse.hf.Cache(model, "tova", budgets)
            read(model, torch.randint(3, 61, (1, 60)), cache, [60])
            self.assertEqual(cache.rows(), [[3], [7], [15], [11]])


if __name__ == "__main__":
    hf.logging.set_verbosity_error()
    unittest.main()
