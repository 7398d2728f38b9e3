"""Trains a tiny Llama of `transformers` on the bytes of a text, fine-tunes it so that it forgets, in plain training code,
and writes it. A model of your own takes its place at `LlamaForCausalLM(...)`.

    pip install '.[hf]' && scripts/data.sh jargon
    python examples/python/finetune_llama.py data/jargon.txt --out llama-that-forgets"""

import argparse
import pathlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import lapse.hf

BATCH, LENGTH = 8, 128


def batches(text, updates):
    """Bytes [BATCH, LENGTH] from random places of the text."""
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    for _ in range(updates):
        yield torch.stack([data[i : i + LENGTH] for i in torch.randint(len(data) - LENGTH, (BATCH,)).tolist()])


def train(model, text, updates, cost):
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for update, tokens in enumerate(batches(text, updates), 1):
        loss = model(tokens, labels=tokens).loss
        extra = cost(model)
        optimiser.zero_grad()
        (loss + extra).backward()
        optimiser.step()
        if update == 1 or update % 50 == 0:
            print(f"  update {update}: loss {loss:.3f}, cost {extra.item():.4f}", flush=True)
    return model.eval()


def report(model, text):
    """Loss and memory of a text that is read block by block: all rows kept, and only what the model keeps."""
    tokens = torch.tensor([list(text[:LENGTH])])
    caches = {"all rows": {"budget": 0}, "budget of 32": {"budget": 32}}
    if model.config.lapse["method"] == "expire_span":
        caches = {"what has not expired": {}}
    for name, named in caches.items():
        cache = lapse.hf.Cache(model, **named)
        with torch.no_grad():
            logits = torch.cat([model(part, past_key_values=cache).logits for part in tokens.split(16, 1)], 1)
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:])
        rows = lapse.log.scalars(cache)["memory/mean"]
        print(f"{name}: loss {loss:.3f}, {rows:.0f} of {LENGTH} rows a layer")


def main():
    parser = argparse.ArgumentParser(description="Fine-tunes a Llama so that it forgets.")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default="llama-that-forgets")
    parser.add_argument("--method", choices=["selective_attention", "expire_span"], default="selective_attention")
    parser.add_argument("--updates", type=int, default=150)
    arguments = parser.parse_args()
    text = arguments.text.read_bytes()
    if len(text) <= LENGTH:
        parser.error(f"{arguments.text} has {len(text)} bytes; at least {LENGTH + 1} are needed")
    torch.manual_seed(1)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, **shape))
    print("trained as it is:")
    train(model, text, arguments.updates, cost=lambda model: torch.zeros(()))
    print(f"told to forget ({arguments.method}):")
    options = {"memory_loss": 0.1} if arguments.method == "selective_attention" else {"max_span": 64, "ramp": 16, "loss": 1e-4}
    lapse.hf.forget(model, arguments.method, **options)
    train(model, text, arguments.updates, cost=lapse.hf.cost)
    model.save_pretrained(arguments.out)
    again = lapse.hf.restore(LlamaForCausalLM.from_pretrained(arguments.out), arguments.out).eval()
    report(again, text)


if __name__ == "__main__":
    main()
