"""The newest steps (Transformer-XL)."""

from lapse.methods import Everything, Method
from lapse.nn.attention import ForgettingAttention
from lapse.spans import check_whole


class FixedSpanAttention(ForgettingAttention):
    """The newest `max_span` steps (Transformer-XL): C_t = {t - L ... t - 1}. Unless told otherwise every age that is read
    has a position embedding."""

    def __init__(self, width: int, heads: int, *, max_span: int, positions: int | None = None, **more):
        check_whole("max_span", max_span, 1)
        super().__init__(width, heads, positions=max_span if positions is None else positions, **more)
        self.max_span = max_span

    def rule(self) -> Method:
        return Everything(self.max_span)
