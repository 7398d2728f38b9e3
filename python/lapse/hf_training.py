"""Fine-tuning models of `transformers` so that they forget: what lapse.hf.forget does to their attention."""

import json
import math
import pathlib
import threading
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lapse import ops
from lapse.hf_attention import BESIDE, ONCE, READ, attentions, layer_kinds, switch, unwrapped
from lapse.methods import require_options
from lapse.spans import check_masking, check_spans, span_logit
from lapse.table import DEAD

SPAN = "lapse_span"  # the name of the modules that predict spans
TRAINED = {  # and the options that each takes
    "selective_attention": {"memory_loss", "cap"},
    "expire_span": {"max_span", "ramp", "loss", "divisor", "initial_fraction"},
}
REAL = ("memory_loss", "cap", "ramp", "loss", "divisor", "initial_fraction")  # options of Forgetting that are no whole numbers


@dataclass
class Forgetting:
    """What is asked of every layer; config.json of a saved model keeps it as "lapse"."""

    method: str = "selective_attention"
    memory_loss: float = 0.0  # epsilon (selective attention, Sec. 4)
    cap: float = 1.0  # tau
    max_span: int = 1024  # L (Expire-Span, Eq. 3)
    ramp: float = 32.0  # R (Eq. 5)
    loss: float = 1e-6  # alpha (Eq. 7)
    divisor: float = 1.0  # c (Eq. 8)
    initial_fraction: float = 0.9  # p: spans begin at p L, so that at first little is forgotten


class LastCall:
    """What the last call of a layer left."""

    cost: Tensor | None = None  # None: none yet, or it read with a cache
    blind = False  # whether it was in training, and kept no gradients
    hidden: Tensor | None = None  # what the layer reads, until spans were made of it
    called = False  # the module was called, and has not read yet


class LayerForgetting:
    """One layer's: it sees what the layer reads, and keeps what the last call cost."""

    def __init__(self, told: Forgetting, module: nn.Module, layers: int):
        self.told, self.layers = told, layers
        self._forget_calls()
        self._hook = module.register_forward_pre_hook(self._see, with_kwargs=True)

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without what hangs on the last call."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_threads", "_compiled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget_calls()

    def _forget_calls(self) -> None:
        self._threads, self._compiled = threading.local(), LastCall()

    @property
    def last(self) -> LastCall:
        """This thread's: several threads may read with one model at a time. torch.compile does not trace threading.local, and
        what it traces is one thread's."""
        if torch.compiler.is_compiling():
            return self._compiled
        if not hasattr(self._threads, "last"):
            self._threads.last = LastCall()
        return self._threads.last

    def paid(self) -> LastCall:
        """The call that `cost` is of: the thread's, unless compiled code came after it."""
        return self.last if self._compiled.cost is None else self._compiled

    def remove(self) -> None:
        self._hook.remove()

    def _see(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        last, self._compiled.cost = self.last, None
        last.called, last.cost, last.blind = True, None, False
        if self.told.method == "expire_span":
            last.hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]

    def spans(self, module: nn.Module) -> Tensor | None:
        """e = L sigmoid((w x + b) / c) of the tokens that the layer is reading: [B, T]; None without spans."""
        if self.told.method != "expire_span":
            return None
        assert self.last.hidden is not None  # `_see` comes before
        predictor = getattr(module, SPAN)
        logit = span_logit(self.last.hidden, predictor.weight[0], predictor.bias)
        return self.told.max_span * torch.sigmoid(logit / self.told.divisor)

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, **named: Any) -> Tensor:
        """q [B, T, H, D], k and v [B, T, G, D]: whole sequences, with gradients. Returns [B, T, H, D]."""
        B, T = q.shape[:2]
        if k.shape[1] != T:
            raise ValueError("lapse: this model was told to forget: read on with past_key_values=lapse.hf.Cache(model)")
        last_call = self.last
        if not last_call.called:
            raise RuntimeError(ONCE)
        last_call.called = False
        last_call.blind = module.training and not torch.is_grad_enabled()
        steps = torch.arange(T, device=q.device).expand(B, T)
        if valid is None:
            start, last = torch.zeros(B, dtype=torch.long, device=q.device), torch.full((B,), T - 1, device=q.device)
        else:  # padding on either side is no token: times begin after it, and nothing is read from it or by it
            if bool((valid[:, 1:] & ~valid[:, :-1]).sum(1).add(valid[:, 0]).gt(1).any()):
                raise ValueError("lapse: attention_mask must be 0 on the left and on the right of a sequence alone")
            start = -(valid.cumsum(1) == 0).sum(1)
            last = (steps * valid).amax(1) + start
        time = steps + start[:, None]
        until = torch.where(time < 0, DEAD, (last + 1)[:, None])
        rows = {"start": start, "time": time, "max_age": named.pop("max_age"), "scale": named.pop("scale"), **named}
        told = self.told
        if told.method == "selective_attention":
            selected = ops.selective_attention(q, k, v, first=time == 0, until=until, cap=told.cap, **rows)
            last_call.cost = (selected.memory.amax(1) / (last + 1).clamp(min=1)).mean() * (told.memory_loss / self.layers)
            return selected.out
        span, last_call.hidden = self.spans(module), None
        assert span is not None
        until = torch.minimum(until, ops.ramp_until(time, span, told.ramp))
        y = ops.ramp_attention(q, k, v, row_span=span, ramp=told.ramp, min_age=0, until=until, **rows)
        steps_read = (last + 1).clamp(min=1).to(y.ramp_sum.dtype)
        last_call.cost = (y.ramp_sum / steps_read).mean() * (told.loss / told.ramp)
        return y.out


def forget(model: PreTrainedModel, method: str = "selective_attention", **options: Any) -> PreTrainedModel:
    """Makes a model's attention forget, to be fine-tuned in the usual training code; returns the model.

    method: "selective_attention" (options memory_loss, cap), which has no weights, or "expire_span" (max_span, ramp, loss,
    divisor, initial_fraction), which gives each layer a predictor of spans. Add `lapse.hf.cost(model)` to the loss. Spans
    begin at initial_fraction max_span and learn from rows that are older: of shorter sequences nothing is forgotten.
    `save_pretrained` writes all of it; `lapse.hf.restore` reads it again. Tokens attend themselves, as in these models.
    Of a model that forgets already all is made anew, its spans too. ValueError for options that the method does not take.
    """
    if method not in TRAINED:
        raise ValueError(f"lapse: {method!r} is not trained; lapse.hf.forget takes {' or '.join(TRAINED)}")
    require_options(f"lapse: {method}", options, TRAINED[method])
    told = Forgetting(method, **options)
    check_spans(told.max_span, told.ramp, told.divisor, told.initial_fraction, told.loss)
    check_masking(told.memory_loss, told.cap)
    # Plain numbers: config.json takes no others. A number of numpy, or a tensor, is one too.
    told = replace(told, max_span=int(told.max_span), **{name: float(getattr(told, name)) for name in REAL})
    given, model = model, unwrapped(model)
    if model.config.is_encoder_decoder:
        raise ValueError("lapse: lapse.hf.forget is for decoders; this model has an encoder")
    modules = attentions(model)
    if not modules:
        raise ValueError(f"lapse: {type(model).__name__} has no attention that AttentionInterface reads")
    layer_kinds(model.config, READ | BESIDE)
    switch(model)
    for module in modules:
        before = getattr(module, "lapse_forgetting", None)
        if isinstance(before, LayerForgetting):
            before.remove()
        if hasattr(module, SPAN):
            delattr(module, SPAN)
        if method == "expire_span":
            weight = next(module.parameters())
            kind = torch.promote_types(weight.dtype, torch.float32)  # small updates would not move a bfloat16 bias
            predictor = nn.Linear(model.config.get_text_config().hidden_size, 1, device=weight.device, dtype=kind)
            odds = math.log(told.initial_fraction / (1 - told.initial_fraction))
            nn.init.zeros_(predictor.weight)
            nn.init.constant_(predictor.bias, told.divisor * odds)
            module.add_module(SPAN, predictor)
        setattr(module, "lapse_forgetting", LayerForgetting(told, module, len(modules)))
    for config in (model.config, model.config.get_text_config(decoder=True)):  # masks are made with the latter
        config.lapse = asdict(told)
    return given


def cost(model: PreTrainedModel) -> Tensor:
    """What this thread's last call adds to the loss: epsilon / (layers n) max_t M_t (Sec. 4), or Eq. 7; the sum over layers.
    RuntimeError if that call has none: it read with a cache, or kept no gradients in training."""
    if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
        raise RuntimeError("lapse: torch.nn.DataParallel computes costs in threads of its own; use DistributedDataParallel")
    found = [getattr(m, "lapse_forgetting", None) for m in attentions(model)]
    calls = [x.paid() for x in found if isinstance(x, LayerForgetting)]
    costs = [x.cost for x in calls if x.cost is not None]
    if not costs:
        raise RuntimeError(
            "lapse: no cost: call lapse.hf.forget(model), and then the model without a cache, in the thread that asks for it"
        )
    if torch.is_grad_enabled() and any(x.blind for x in calls):
        raise RuntimeError(
            "lapse: the model's last call kept no gradients, so its cost teaches nothing; with gradient checkpointing give "
            'gradient_checkpointing_kwargs={"use_reentrant": False}'
        )
    return torch.stack([one.to(costs[0].device) for one in costs]).sum()


def restore(model: PreTrainedModel, folder: str | pathlib.Path) -> PreTrainedModel:
    """Makes a model that `from_pretrained(folder)` gave forget as it was told before it was saved there. Until then it reads
    everything. FileNotFoundError or ValueError if the folder, a local one, has no such model."""
    from safetensors.torch import load_file

    config = pathlib.Path(folder) / "config.json"
    if not config.is_file():
        raise FileNotFoundError(f"{config}: no such file; lapse.hf.restore reads a local folder that save_pretrained wrote")
    told = json.loads(config.read_text()).get("lapse")
    if told is None:
        raise ValueError(f"{folder}: this model was not told to forget (lapse.hf.forget)")
    method = told.pop("method")
    model = unwrapped(model)
    forget(model, method, **{name: value for name, value in told.items() if name in TRAINED[method]})
    saved: dict[str, Tensor] = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        saved |= {name: x for name, x in load_file(file).items() if f".{SPAN}." in name}
    if method == "expire_span" and not saved:
        raise ValueError(f"{folder}: there are no spans in it: was the model saved again without lapse.hf.restore before?")
    try:
        missing, unexpected = model.load_state_dict(saved, strict=False)
    except RuntimeError as error:  # of another width
        raise ValueError(f"{folder}: spans do not fit the model: {error}") from None
    missing = [name for name in missing if f".{SPAN}." in name]
    if missing or unexpected:
        raise ValueError(f"{folder}: spans do not fit the model: {', '.join(missing + unexpected)}")
    return model
