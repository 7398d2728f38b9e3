"""Forgetting for decoders of `transformers` (5.20 or later).

    cache = lapse.hf.Cache(model, method="tova", budget=512)
    model.generate(**inputs, past_key_values=cache)

Importing this registers the attention implementation "lapse". With a `Cache` it reads the rows that the method left, and no
others; with any other cache, or none, it is the "sdpa" of `transformers`, masks included. `Cache` switches the model to it; a
model that is refused stays as it was.

Rows are freed, not hidden: each layer's storage follows what the layer holds. Times are counted from each sequence's first
real token, so that a sequence is read alike alone and in a batch with padding on its left.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lapse._library import check_transformers

check_transformers()
from transformers import PreTrainedConfig, PreTrainedModel, cache_utils

from lapse.hf_attention import NAME, ONCE, UNCACHED, Keys, attention, check, layer_kinds, switch, unwrapped
from lapse.hf_training import cost, forget, restore
from lapse.memory import RECORDED, Memory
from lapse.methods import ALIASES, Reading, Settings, make_method
from lapse.table import NEVER

__all__ = ["Cache", "NAME", "attention", "cost", "forget", "restore"]


class CacheLayer(cache_utils.CacheLayerMixin):
    """One layer of a `Cache`: its memory."""

    is_croppable = True  # once `activate_past_recording` was called
    supports_early_init = False

    def __init__(self, settings: Settings, method: str, is_sliding: bool):
        super().__init__()
        self.settings, self.name, self.is_sliding = settings, method, is_sliding
        self.record_past = False
        self.tokens = RECORDED
        self.reset()

    def reset(self) -> None:
        self.memory = Memory(make_method(self.name, self.settings))
        self.waiting = False  # for attention to read what `update` was given
        if self.record_past:
            self.memory.record(self.tokens)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The new keys and values as they came; the attention interface finds this layer by them."""
        if torch.is_grad_enabled() and key_states.requires_grad:
            raise RuntimeError("lapse: lapse.hf.Cache keeps no gradients: call the model within torch.no_grad()")
        self._follow()
        self.is_initialized = self.waiting = True
        setattr(key_states, "lapse_layer", self)
        return key_states, value_states

    def take(self) -> None:
        """What `update` gave is being read; also where that is then refused."""
        if not self.waiting:
            raise RuntimeError(ONCE)
        self.waiting = False

    def read(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        reading: Reading,
        valid: Tensor | None,
        before: Tensor | None,
        **described: Tensor,
    ) -> Tensor:
        if before is not None and len(self.memory.next) > 0 and bool((before.to(q.device) != self.memory.next).any()):
            raise ValueError("lapse: attention_mask hides tokens that were read before, and not as padding on the left")
        if self.name != "expire_span":
            described = {}
        elif not described:
            raise ValueError(
                "lapse: expire_span is for models that predict spans: lapse.hf.forget makes them do so, and after from_pretrained "
                "lapse.hf.restore"
            )
        return self.memory.read(q, k, v, reading, valid, **described)

    def get_seq_length(self) -> int:
        return self.memory.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The mask covers the new tokens: which rows they read is the memory's affair."""
        return Keys(query_length), self.memory.seen

    def get_max_length(self) -> int:
        return -1

    def activate_past_recording(self, tokens: int = RECORDED) -> None:
        """As `Cache.activate_past_recording`."""
        self._follow()
        self.memory.record(tokens)
        self.record_past, self.tokens = True, tokens

    def check_crop(self, tokens_to_remove: int) -> None:
        """The errors of `crop`, before anything is changed."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes a negative number: so many tokens are removed; got {tokens_to_remove}")
        self._follow()
        self.memory.check_crop(-tokens_to_remove)

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the newest -tokens_to_remove tokens back."""
        self.check_crop(tokens_to_remove)
        self.memory.crop(-tokens_to_remove)

    def _follow(self) -> None:
        """`generate` ends recording by `record_past` alone."""
        if self.memory.recording and not self.record_past:
            self.memory.end_record()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.memory.select(beam_idx.to(self.memory.next.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        if indices.dtype == torch.bool:
            indices = indices.nonzero().flatten()
        self.memory.select(indices.to(self.memory.next.device))

    def batch_repeat_interleave(self, repeats: int) -> None:
        streams = torch.arange(len(self.memory.next), device=self.memory.next.device)
        self.memory.select(streams.repeat_interleave(repeats))

    def offload(self) -> None:
        raise NotImplementedError("lapse: lapse.hf.Cache is not offloaded")


class Cache(cache_utils.Cache):
    """A cache for `generate` and `model(..., past_key_values=...)` whose rows are forgotten.

    method: "local" (window), "sink_window" (sinks), "h2o", "tova", "strided", "local_global", "selective_attention"
        (untrained: a tool for study), or "full"; of a model that `forget` made forget, by default its own; else "tova". The
        rules, with their papers, are in docs/equations.md, "Methods that need no training".
    budget: how many rows a layer holds for a query, its own included; one number, or one for each layer. Sliding layers of
        the model hold no more than their window.
    options: `sinks` (4) of sink_window, `window`, `every` (4) of local_global, `stride`, `max_span` of strided (as many
        positions as the model has).

    ValueError where the model has layers that are no attention, or the budget does not fit; the model stays as it was.
    """

    def __init__(
        self,
        model: torch.nn.Module | PreTrainedConfig,
        method: str | None = None,
        budget: int | Sequence[int] = 0,
        **options: Any,
    ):
        if not isinstance(model, PreTrainedConfig):
            model = unwrapped(model)
        told = getattr(model if isinstance(model, PreTrainedConfig) else model.config, "lapse", None)
        method = method or (told["method"] if told else "tova")
        if method == "expire_span":
            if not told or told["method"] != method:
                raise ValueError("lapse: expire_span is for models that lapse.hf.forget made predict spans")
            options.setdefault("ramp", told["ramp"])
        config = model.config if isinstance(model, PreTrainedModel) else model
        if config.is_encoder_decoder:
            raise ValueError("lapse: lapse.hf.Cache is for decoders; this model has an encoder")
        if isinstance(model, PreTrainedModel):
            check(model)
        elif config._attn_implementation != NAME:
            raise ValueError('lapse: the model must be made with attn_implementation="lapse", or given itself')
        config = config.get_text_config(decoder=True)
        kinds, named = layer_kinds(config)
        if getattr(config, "kv_lora_rank", None) is not None:
            raise ValueError("lapse: this model caches compressed keys (MLA), which lapse.hf.Cache does not read")
        if isinstance(budget, str):
            raise ValueError(f"lapse: budget must be a whole number, or one for each layer, got {budget!r}")
        if hasattr(budget, "tolist"):  # numpy's and torch's numbers and arrays
            budget = budget.tolist()
        budgets = list(budget) if isinstance(budget, Sequence) else [budget] * len(kinds)
        if len(budgets) != len(kinds):
            raise ValueError(f"lapse: {len(budgets)} budgets, but the model has {len(kinds)} layers")
        if ALIASES.get(method, method) == "strided":
            options.setdefault("max_span", getattr(config, "max_position_embeddings", NEVER) - 1)
        layers: list[Any] = []
        for i, (kind, more) in enumerate(zip(kinds, named)):
            window = more["sliding_window"] if kind == "sliding_attention" else NEVER
            settings = Settings(i, len(kinds), budgets[i], max_age=window - 1, options=options)
            layers.append(CacheLayer(settings, method, kind == "sliding_attention"))
        super().__init__(layers=layers)
        self._given: CacheLayer | None = None  # the layer that was updated last
        if isinstance(model, PreTrainedModel):
            switch(model)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """As `CacheLayer.update`. RuntimeError if the model did not read the layer before, or an earlier call failed between
        the layers."""
        self._check_read()
        if layer_idx >= len(self.layers):
            raise ValueError(f"lapse: this cache is for a model of {len(self.layers)} layers; this one has more")
        seen = self.layers[layer_idx].memory.seen + (key_states.shape[2] if layer_idx > 0 else 0)
        if seen != self.layers[0].memory.seen:
            raise RuntimeError("lapse: a call failed between the layers, which now hold different tokens; call cache.reset()")
        self._given = self.layers[layer_idx]
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)

    def _check_read(self) -> None:
        given, self._given = self._given, None
        if given is not None and given.waiting:
            given.waiting = False
            raise RuntimeError(UNCACHED)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        self._check_read()
        return super().get_seq_length(layer_idx)

    def activate_past_recording(self, tokens: int = RECORDED) -> None:
        """From now on `crop` takes tokens back exactly: all of the newest call, up to its last `tokens`, and of earlier ones as
        many as were read since the last `crop`, but where these are more than `tokens` the record begins anew. What is
        recorded is held beside the rows. `generate` calls this for assisted generation; `end_past_recording` ends it."""
        for layer in self.layers:
            if isinstance(layer, CacheLayer):
                layer.activate_past_recording(tokens)

    def end_past_recording(self) -> None:
        """Gives back what was recorded for `crop`. Without this an assisted `generate` leaves a cache that records on."""
        for layer in self.layers:
            if isinstance(layer, CacheLayer):
                layer.record_past = False
                layer.memory.end_record()

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the newest -tokens_to_remove tokens back, in all layers, or after an error in none. ValueError for a positive
        number; RuntimeError if a layer has not recorded so many (`activate_past_recording`), and what they made it forget is
        gone."""
        self._check_read()
        for layer in self.layers:
            if isinstance(layer, CacheLayer):
                layer.check_crop(tokens_to_remove)
        super().crop(tokens_to_remove)

    def rows(self) -> list[list[int]]:
        """For each layer and sequence, how many rows the next token can read beside its own. Selective attention with a budget
        holds one more, until its newest token has chosen."""
        self._check_read()
        return [memory.rows().tolist() for memory in self.memories()]

    def nbytes(self) -> int:
        """Bytes of storage of all layers, with their spare rows and what is recorded for `crop`."""
        self._check_read()
        return sum(memory.nbytes() for memory in self.memories())

    def memories(self) -> list[Memory]:
        """Each layer's memory."""
        return [layer.memory for layer in self.layers if isinstance(layer, CacheLayer)]
