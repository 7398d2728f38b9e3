"""Generates with a model of `transformers` under each forgetting method, and says what the caches hold.

    pip install '.[hf]'
    python examples/python/generate.py --model PATH-OR-NAME --budget 256 --prompt-file long.txt

Without --model a tiny Llama with random weights reads random tokens."""

import argparse
import pathlib
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

import lapse.hf

METHODS = ["local", "sink_window", "local_global", "h2o", "tova"]


def load(arguments):
    """The model, and the prompt's tokens [1, T]."""
    if arguments.model:
        text = arguments.prompt_file.read_text() if arguments.prompt_file else "Once upon a time"
        tokens = AutoTokenizer.from_pretrained(arguments.model)(text, return_tensors="pt").input_ids
        return AutoModelForCausalLM.from_pretrained(arguments.model).eval(), tokens
    torch.manual_seed(1)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, eos_token_id=None, **shape)).eval()
    return model, torch.randint(3, 256, (1, 600))


def main():
    parser = argparse.ArgumentParser(description="Generates under each forgetting method.")
    parser.add_argument("--model", help="of transformers: a folder or a name")
    parser.add_argument("--prompt-file", type=pathlib.Path)
    parser.add_argument("--budget", type=int, default=64, help="rows that a layer holds for a query")
    parser.add_argument("--tokens", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.prompt_file and not arguments.model:
        parser.error("--prompt-file: the tiny model reads random tokens; give --model too")
    if arguments.budget < 5 or arguments.tokens < 1:
        parser.error("--budget must be at least 5 (4 sinks and a row more), --tokens at least 1")
    model, tokens = load(arguments)
    own = None
    for method in [None, *METHODS]:
        cache = lapse.hf.Cache(model, method, arguments.budget) if method else DynamicCache(config=model.config)
        start = time.perf_counter()
        written = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            past_key_values=cache,
            max_new_tokens=arguments.tokens,
            prefill_chunk_size=256,  # so that a long prompt never needs all of its rows at once
            do_sample=False,
            pad_token_id=0,
        )[0, tokens.shape[1] :]
        seconds = time.perf_counter() - start
        own = written if own is None else own
        same = int((written == own).cumprod(0).sum())
        kept = f"{lapse.log.scalars(cache)['memory/mean']:.0f} rows a layer" if method else "every row"
        print(
            f"{method or 'full cache':<14} {kept:<20} {seconds:5.1f} s, the first {same} of {len(own)} tokens are the full cache's"
        )


if __name__ == "__main__":
    main()
