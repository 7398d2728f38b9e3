"""The attention and mask implementation "lapse" of `transformers`, and which models can read by it."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers import cache_utils, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from lapse._call import autocast
from lapse.methods import Reading
from lapse.table import NEVER

NAME = "lapse"
ONCE = "lapse: this model reads attention more than once per layer, which lapse.hf does not"
# What attention may be told that changes what it reads, or its logits, and is not read here. Models that tell it one of the first
# three put the same into a mask where the implementation is named "sdpa", and only there: so these are refused always.
_SPARSE = ("indices", "block_indices", "sinks")
_UNREAD = (*_SPARSE, "softcap", "position_bias", "s_aux")
READ = frozenset(("full_attention", "sliding_attention"))  # the kinds of layers that a `Cache` keeps
# Kinds that a model may have beside them which is to forget: their attention is of those kinds, or they have none.
BESIDE = frozenset(("hybrid", "hybrid_sliding", "linear_attention", "mamba", "conv", "dummy"))
_CHANGED = {  # what attention modules have that do so, and what it is
    "sinks": "attention sinks that are weights",
    "attn_logit_softcapping": "soft-capped logits",
}
UNCACHED = (
    'lapse: the model did not read its cache: it must read attention by attn_implementation="lapse", which Cache(model) sets, '
    "and read the keys that it gave the cache; was it set back, or is this cache another model's?"
)


class Keys(int):
    """How many keys a mask covers, as a `Cache` says it: by this `mask` knows that one is read."""


class Mask:
    """What the mask interface gives each layer where rows are forgotten: which of the keys are padding."""

    def __init__(self, **arguments: Any):
        self._arguments = arguments
        self.of_cache = isinstance(arguments["kv_length"], Keys)
        self._padding: tuple[Tensor | None, Tensor | None] | None = None
        # A pattern beside causal and sliding ones: packed sequences, blocks, functions of the model's own.
        self.custom = bool(arguments.get("use_vmap")) or not arguments.get("allow_is_causal_skip", True)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"lapse: the model reads its attention mask itself ({name}), which lapse.hf does not know")

    def padding(self) -> tuple[Tensor | None, Tensor | None]:
        """Which keys are none [B, keys] bool, and how many of the tokens read earlier are none [B]; None: all are."""
        if self._padding is None:
            self._padding = self._find_padding()
        return self._padding

    def _find_padding(self) -> tuple[Tensor | None, Tensor | None]:
        whole = self._arguments.get("attention_mask")
        if whole is None:
            return None, None
        first, keys = self._arguments.get("kv_offset", 0), self._arguments["kv_length"]
        given = whole[:, first : first + keys].bool()
        if given.shape[1] != keys:
            raise ValueError(f"lapse: attention_mask must have all {first + keys} tokens so far, got {whole.shape[1]}")
        before = None if first == 0 else whole[:, :first].bool().sum(1)
        return None if bool(given.all()) else given, before

    def window(self) -> int | None:
        """How many keys a query sees, its own included; None: all before it."""
        return self._arguments.get("local_size")

    def dense(self) -> Tensor | None:
        """What "sdpa" would get."""
        return masking_utils.sdpa_mask(**self._arguments)


def mask(**arguments: Any) -> Mask | Tensor | None:
    """The mask interface: a `Mask` for a `Cache` and for models that `forget` made forget, else what "sdpa" gets."""
    if isinstance(arguments["kv_length"], Keys) or getattr(arguments.get("config"), "lapse", None):
        return Mask(**arguments)
    return masking_utils.sdpa_mask(**arguments)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Mask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """The attention interface: query [B, H, T, D], key and value [B, G, T, D] as `Cache.update` gave them. Returns
    [B, T, H, D]."""
    layer = getattr(key, "lapse_layer", None)
    if layer is not None:
        layer.take()
    elif isinstance(attention_mask, Mask) and attention_mask.of_cache:
        raise RuntimeError(UNCACHED)
    forgetting = getattr(module, "lapse_forgetting", None)
    reads = layer is not None or forgetting is not None
    changed = [name for name in (_UNREAD if reads else _SPARSE) if named.get(name) is not None]
    if changed:
        raise ValueError(
            f"lapse: {type(module).__name__} changes attention by {', '.join(changed)}, which lapse.hf does not read"
        )
    if not reads:
        dense = attention_mask.dense() if isinstance(attention_mask, Mask) else attention_mask
        if dense is not None:
            dense = dense.to(query.device)  # of a model on several devices
        return sdpa_attention_forward(module, query, key, value, dense, dropout=dropout, scaling=scaling, **named)
    if dropout > 0 and layer is not None:
        raise ValueError("lapse: lapse.hf.Cache is for reading; call model.eval() first")
    if isinstance(attention_mask, Tensor) or (attention_mask is not None and attention_mask.custom):
        raise ValueError(
            "lapse: attention_mask must be [B, tokens], or absent: masks of other shapes, packed sequences and attention to later "
            "tokens are not read"
        )
    valid, before = (None, None) if attention_mask is None else attention_mask.padding()
    if valid is not None:
        valid = valid.to(query.device)
    q, k, v = autocast(*(x.transpose(1, 2) for x in (query, key, value)))
    if layer is not None:
        span = None
        if forgetting is not None:
            span, forgetting.last.hidden = forgetting.spans(module), None
        described = {} if span is None else {"span": span}
        return layer.read(q, k, v, Reading(scale=scaling), valid, before, **described), None
    assert forgetting is not None
    windows = [named.get("sliding_window"), None if attention_mask is None else attention_mask.window()]  # PhiMoE: the mask's
    age = min([NEVER, *(window - 1 for window in windows if window is not None)])
    return forgetting.attend(module, q, k, v, valid, scale=scaling, max_age=age, dropout=dropout), None


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The model within torch.compile, torch's data-parallel wrappers and adapters of peft. ValueError if there is none."""
    inner = model
    while not isinstance(inner, PreTrainedModel):
        if hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
        else:
            inner = getattr(inner, "_orig_mod", None) or getattr(inner, "module", None)
        if inner is None:
            raise ValueError(f"lapse: {type(model).__name__} is no model of transformers; give the model itself")
    return inner


def attentions(model: PreTrainedModel) -> list[nn.Module]:
    """The modules that read by the attention interface."""
    return [m for m in model.modules() if isinstance(getattr(m, "layer_idx", None), int) and hasattr(m, "scaling")]


def layer_kinds(config: PreTrainedConfig, allowed: frozenset[str] = READ) -> tuple[list[str], list[dict[str, Any]]]:
    """What `transformers` says of the decoder's layers: the kind of each, and its options. ValueError for other kinds."""
    kinds, named = cache_utils.get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    unknown = sorted(set(kinds) - allowed)
    if unknown:
        raise ValueError(f"lapse: layers of the type {', '.join(unknown)} are not read by lapse.hf")
    return kinds, named


def check(model: PreTrainedModel) -> None:
    """ValueError unless `attention` can take the place of the model's own."""
    name, modules = type(model).__name__, attentions(model)
    if any(getattr(module, "is_causal", True) is False for module in modules):
        raise ValueError(f"lapse: {name} reads later tokens too; lapse.hf is for decoders")
    for attribute, words in _CHANGED.items():
        if any(getattr(module, attribute, None) is not None for module in modules):
            raise ValueError(f"lapse: {name} has {words}, which lapse.hf does not read")
    config = model.config.get_text_config(decoder=True)
    inner = [m for m in model.modules() if isinstance(m, PreTrainedModel) and (m is model or m.config is config)]
    if not all(m._can_set_attn_implementation() for m in inner):
        raise ValueError(f"lapse: {name} does not read attention by AttentionInterface")
    if not all(m._supports_sdpa for m in inner):
        raise ValueError(f'lapse: {name} does not run with attn_implementation="sdpa", whose place lapse.hf takes')


def switch(model: PreTrainedModel) -> None:
    """From now on the model reads attention by ours. ValueError, and nothing is changed, if it cannot."""
    check(model)
    model.set_attn_implementation(NAME)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
