"""lapse.nn: decoding gives what blocks give, memory is carried and released, costs are the papers' formulas, and layers learn."""

import copy
import unittest

import torch
from torch.utils.checkpoint import checkpoint

import lapse
from lapse import nn
from lapse.memory import Memory

B, T, WIDTH, HEADS = 2, 8, 12, 3
BLOCKS = 5


def layers(dtype=torch.float64):
    """One of each kind, with spans that end within the text."""
    torch.manual_seed(0)
    spanned = {"positions": T, "ramp": 3.0}
    made = {
        "fixed": nn.FixedSpanAttention(WIDTH, HEADS, max_span=11),
        "fixed, attends itself": nn.FixedSpanAttention(WIDTH, HEADS, max_span=11, attend_self=True, positions=0),
        "adaptive": nn.AdaptiveSpanAttention(WIDTH, HEADS, max_span=20, ramp=3.0, trim_step=4, loss=1e-2),
        "expire": nn.ExpireSpanAttention(WIDTH, HEADS, max_span=24, loss=1e-2, initial_fraction=0.3, **spanned),
        "expire, pre-norm": nn.ExpireSpanAttention(
            WIDTH,
            HEADS,
            max_span=24,
            norm=torch.nn.LayerNorm(WIDTH),
            normed_heads=True,
            divisor=2,
            divide="all",
            **spanned,
        ),
        "selective": nn.SelectiveAttention(WIDTH, HEADS, memory_loss=0.1, max_span=30),
        "selective, budget": nn.SelectiveAttention(WIDTH, HEADS, budget=6),
    }
    with torch.no_grad():
        made["adaptive"].fraction.copy_(torch.tensor([0.1137, 0.3519, 0.2071]))  # off the corners of m
        for name in ("expire", "expire, pre-norm"):
            made[name].span_weight.normal_(0, 0.7)
    return {name: layer.to(dtype) for name, layer in made.items()}


def text(dtype=torch.float64, seed=1):
    return torch.randn(B, BLOCKS * T, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


def read(layer, x, sizes):
    memory, parts = None, []
    at = 0
    while at < x.shape[1]:
        for n in sizes:
            y, memory = layer(x[:, at : at + n], memory)
            parts.append(y)
            at += n
    return torch.cat(parts, 1), memory


class Reading(unittest.TestCase):
    def test_decoding_is_reading_in_blocks(self):
        x = text()
        for name, layer in layers().items():
            with self.subTest(name), torch.no_grad():
                blocks, memory = read(layer, x, [T])
                tokens, other = read(layer, x, [1])
                torch.testing.assert_close(tokens, blocks, rtol=1e-9, atol=1e-11)
                self.assertEqual(memory.rows().tolist(), other.rows().tolist())
                self.assertIsInstance(memory, Memory)

    def test_training_reads_what_decoding_reads(self):
        """With fixed weights; a budget is for decoding alone."""
        x = text()
        for name, layer in layers().items():
            if name == "selective, budget":
                continue
            with self.subTest(name):
                trained, memory = read(layer.eval(), x, [T])
                with torch.no_grad():
                    decoded, other = read(layer, x, [1])
                torch.testing.assert_close(trained.detach(), decoded, rtol=1e-9, atol=1e-11)
                self.assertIsInstance(memory, nn.InputMemory)
                spare = layer.rule().spare
                held = other.table.held(other.next).sum(1)  # rows without weight too
                self.assertTrue(torch.all((memory.rows() - held).abs() <= spare))

    def test_float32(self):
        single, double = layers(torch.float32), layers()
        for name, layer in single.items():
            with self.subTest(name), torch.no_grad():
                got, _ = read(layer, text(torch.float32), [T])
                expected, _ = read(double[name], text(), [T])
                torch.testing.assert_close(got.double(), expected, rtol=2e-4, atol=2e-5)

    def test_rows_are_released(self):
        x = torch.randn(B, 400, WIDTH)
        for name, layer in layers(torch.float32).items():
            with self.subTest(name):
                for gradients in (False, True):
                    with torch.set_grad_enabled(gradients):
                        _, memory = read(layer, x, [T])
                    held = 400 if gradients and name == "selective, budget" else 40
                    self.assertLessEqual(int(memory.rows().max()), held)
                    row = 2 * WIDTH * 4 + 40
                    self.assertLessEqual(memory.nbytes(), B * row * (held + T + 70))
                    self.assertRegex(repr(memory), rf"Memory\(\[\d+(, \d+){{{B - 1}}}\] rows, {memory.nbytes()} bytes\)")

    def test_streams_do_not_see_each_other(self):
        x = text()
        for name, layer in layers().items():
            with self.subTest(name), torch.no_grad():
                together, _ = read(layer, x, [T])
                alone, _ = read(layer, x[1:], [T])
                torch.testing.assert_close(together[1:], alone, rtol=1e-9, atol=1e-11)


class Gradients(unittest.TestCase):
    def test_of_a_block_before_memory(self):
        """Through memory too: keys, values and spans of old rows follow from the weights. Numeric derivatives of the sum
        over a second block, whose memory is detached inputs."""
        x = text()
        for name, layer in layers().items():
            with self.subTest(name):
                parameters = [p for p in layer.parameters() if p.requires_grad]
                names = [n for n, p in layer.named_parameters() if p.requires_grad]

                def second_block(*values):
                    given = dict(zip(names, values, strict=True))
                    memory = nn.InputMemory(B, x.device)
                    with torch.no_grad():
                        layer(x[:, :T], memory)
                    y, _ = torch.func.functional_call(layer, given, (x[:, T : 2 * T], memory))
                    return y.tanh().sum()

                for p, n in zip(parameters, names):
                    direction = torch.randn(p.shape, generator=torch.Generator().manual_seed(2), dtype=p.dtype)
                    layer.zero_grad()
                    second_block(*parameters).backward()
                    analytic = (p.grad * direction).sum()
                    step = 1e-6
                    moved = []
                    for sign in (1, -1):
                        shifted = [q + sign * step * direction if q is p else q for q in parameters]
                        moved.append(second_block(*[q.detach() for q in shifted]))
                    numeric = (moved[0] - moved[1]) / (2 * step)
                    torch.testing.assert_close(analytic, numeric, rtol=1e-5, atol=1e-7, msg=lambda m: f"{n}: {m}")

    def test_costs_are_the_formulas(self):
        made, x = layers(), text()[:, :T]
        expire = made["expire"]
        expire(x)
        spans = expire.spans(x)[:, None]  # [B, 1, rows]
        remaining = spans - (torch.arange(T)[:, None] - torch.arange(T))
        on_ramp = (remaining < 0) & (remaining > -3) & (torch.arange(T)[:, None] > torch.arange(T))
        expected = 1e-2 * (remaining * on_ramp).sum((1, 2)).mean() / (3 * T)
        torch.testing.assert_close(expire.cost, expected)
        adaptive = made["adaptive"]
        adaptive(x)
        torch.testing.assert_close(adaptive.cost, 1e-2 * 20 * adaptive.fraction.mean())
        selective = made["selective"]
        selective(x)
        q, k, v = (selective._heads(w(x)) for w in (selective.query, selective.key, selective.value))
        first = torch.arange(T).expand(B, T) == 0
        memory = lapse.ops.selective_attention(q, k, v, first=first).memory
        torch.testing.assert_close(selective.cost, 0.1 * memory.amax(1).mean() / T)

    def test_random_drop_cuts_what_is_read_and_deletes_nothing(self):
        torch.manual_seed(3)
        layer = nn.ExpireSpanAttention(WIDTH, HEADS, max_span=100, ramp=1.0, initial_fraction=0.9, random_drop=True)
        x = torch.randn(1, 60, WIDTH)
        whole, _ = layer.eval()(x)
        outs = []
        for _ in range(6):
            y, memory = layer.train()(x)
            outs.append(y)
            self.assertEqual(memory.rows().tolist(), [60])
        differ = [not torch.allclose(y[:, -1], whole[:, -1], atol=1e-5) for y in outs]
        self.assertTrue(any(differ) and len({y[0, -1, 0].item() for y in outs}) > 2)
        layer.uniform = 1.0  # cuts nothing
        torch.testing.assert_close(layer(x)[0], whole)


class Learning(unittest.TestCase):
    def test_spans_shorten_where_nothing_is_to_be_remembered(self):
        torch.manual_seed(4)
        layer = nn.ExpireSpanAttention(WIDTH, HEADS, max_span=64, ramp=8.0, loss=1e-1, positions=T)
        optimiser = torch.optim.Adam(layer.parameters(), lr=3e-2)
        before = layer.spans(torch.zeros(WIDTH)).item()
        memory = None
        for _ in range(60):
            x = torch.randn(4, T, WIDTH)
            y, memory = layer(x, memory)
            loss = (y - x).square().mean() + layer.cost
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        self.assertLess(layer.spans(torch.zeros(WIDTH)).item(), before / 2)


class Modules(unittest.TestCase):
    def test_copies_after_a_step(self):
        for name, layer in layers().items():
            with self.subTest(name):
                y, _ = layer(text()[:, :T])
                (y.sum() + layer.cost).backward()
                twin = copy.deepcopy(layer)
                with torch.no_grad():
                    self.assertTrue(torch.equal(twin(text())[0], layer(text())[0]))

    def test_autocast_does_not_round_spans(self):
        layer = nn.ExpireSpanAttention(64, 2, max_span=8192, ramp=32)
        torch.manual_seed(0)
        torch.nn.init.normal_(layer.span_weight, std=0.2)
        x = torch.randn(1, 50, 64)
        exact = layer.spans(x)
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(layer.spans(x), exact))
        rounded = copy.deepcopy(layer).bfloat16()
        weight, bias = rounded.span_weight.float(), rounded.span_bias.float()
        expected = 8192 * torch.sigmoid(x.bfloat16().float() @ weight + bias)
        torch.testing.assert_close(rounded.spans(x.bfloat16()), expected)


    def test_a_call_without_gradients_has_no_cost(self):
        layer = layers()["expire"]
        layer(text()[:, :T])
        self.assertTrue(layer.cost.requires_grad)
        layer.eval()
        with torch.no_grad():
            layer(text()[:, :T])
        self.assertEqual((layer.cost.item(), layer.cost.requires_grad), (0, False))

    def test_a_reentrant_checkpoint_is_refused(self):
        layer = layers()["expire"].train()
        x = text()[:, :T].requires_grad_()
        for reentrant in (True, False):
            y = checkpoint(lambda x: layer(x)[0], x, use_reentrant=reentrant)
            if reentrant:
                with self.assertRaisesRegex(RuntimeError, "use_reentrant=False"):
                    layer.cost
            else:
                (y.sum() + layer.cost).backward()


class Errors(unittest.TestCase):
    def test_options_out_of_range(self):
        for words, call in {
            "max_span must be at least 1, got -5": lambda: nn.ExpireSpanAttention(16, 2, max_span=-5),
            "divisor must be positive, got 0": lambda: nn.ExpireSpanAttention(16, 2, max_span=5, divisor=0),
            "ramp must be positive, got 0": lambda: nn.AdaptiveSpanAttention(16, 2, max_span=5, ramp=0),
            "between 0 and 1, got 1": lambda: nn.ExpireSpanAttention(16, 2, max_span=5, initial_fraction=1),
            "max_span must be at least 1, got 0": lambda: nn.FixedSpanAttention(16, 2, max_span=0),
            "max_span must be a whole number, got 2.5": lambda: nn.ExpireSpanAttention(16, 2, max_span=2.5),
            "loss must be at least 0, got -1": lambda: nn.ExpireSpanAttention(16, 2, max_span=5, loss=-1),
            "trim_step must be at least 1, got 0": lambda: nn.AdaptiveSpanAttention(16, 2, max_span=5, trim_step=0),
            "trim_step must be a whole number, got 4.5": lambda: nn.AdaptiveSpanAttention(16, 2, max_span=5, trim_step=4.5),
            "initial_fraction must be in 0 ... 1, got 2": lambda: nn.AdaptiveSpanAttention(16, 2, max_span=5, initial_fraction=2),
            "ramp must be finite, got inf": lambda: nn.ExpireSpanAttention(16, 2, max_span=5, ramp=float("inf")),
            "max_span must be a whole number, got '5'": lambda: nn.ExpireSpanAttention(16, 2, max_span="5"),
            "layers must be at least 1, got 0": lambda: nn.SelectiveAttention(16, 2, memory_loss=0.1, layers=0),
            "memory_loss must be at least 0, got -1": lambda: nn.SelectiveAttention(16, 2, memory_loss=-1),
            "cap must be positive, got 0": lambda: nn.SelectiveAttention(16, 2, cap=0),
            "tokens attend themselves": lambda: nn.SelectiveAttention(16, 2, attend_self=False),
            "must be at least 1, got 16, 0": lambda: nn.FixedSpanAttention(16, 0, max_span=5),
            "budget must be at least 0, got -1": lambda: nn.SelectiveAttention(16, 2, budget=-1),
            "budget must be a whole number, got 2.5": lambda: nn.SelectiveAttention(16, 2, budget=2.5),
            "max_span must be a whole number, got 3.5": lambda: nn.SelectiveAttention(16, 2, max_span=3.5),
            "max_span must be a whole number, got inf": lambda: nn.FixedSpanAttention(16, 2, max_span=float("inf")),
            "positions must be at least 0, got -1": lambda: nn.FixedSpanAttention(16, 2, max_span=5, positions=-1),
            "dropout must be at least 0 and below 1, got -0.5": lambda: nn.SelectiveAttention(16, 2, dropout=-0.5),
            "dropout must be at least 0 and below 1, got 1.5": lambda: nn.SelectiveAttention(16, 2, dropout=1.5),
        }.items():
            with self.assertRaisesRegex(ValueError, words):
                call()

    def test_they_say_what_is_wrong(self):
        with self.assertRaisesRegex(ValueError, "width 10 does not divide into 3 heads"):
            nn.FixedSpanAttention(10, 3, max_span=4)
        layer, x = layers()["expire"], text()
        with torch.no_grad():
            _, memory = layer(x[:, :T])
        with self.assertRaisesRegex(RuntimeError, "begin anew"):
            layer(x[:, T:].requires_grad_(), memory)
        selective = layers()["selective, budget"]
        _, memory = selective(x[:, :T])
        selective.eval()
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "begun with gradients, and so has no budget"):
            selective(x[:, T : 2 * T], memory)

    def test_a_memory_of_another_layer_is_refused(self):
        fixed, expire, selective = (layers()[name] for name in ("fixed", "expire", "selective"))
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                for one, other, words in (
                    (fixed, expire, "was begun with Everything, and this layer has RowSpans"),
                    (expire, fixed, "was begun with RowSpans, and this layer has Everything"),
                    (selective, fixed, "was begun with Selective, and this layer has Everything"),
                ):
                    _, memory = one(text()[:, :T])
                    before = memory.rows().tolist()
                    with self.assertRaisesRegex(ValueError, words):
                        other(text()[:, T : 2 * T], memory)
                    self.assertEqual(memory.rows().tolist(), before)

    def test_blocks_of_other_shapes(self):
        layer = layers()["expire"]
        for x, got in ((text()[:, :0], r"\[2, 0, 12\]"), (text()[0], r"\[40, 12\]"), (text()[..., :5], r"\[2, 40, 5\]")):
            for gradients in (False, True):
                with torch.set_grad_enabled(gradients), self.assertRaisesRegex(
                    ValueError, r"x must be \[B, T, 12\], T at least 1, got " + got
                ):
                    layer(x)

    def test_a_call_that_fails_changes_nothing(self):
        def fail(*arguments):
            raise MemoryError

        for name, layer in layers().items():
            for gradients in (False, True):
                with self.subTest(name, gradients=gradients), torch.set_grad_enabled(gradients):
                    memory = expected = None
                    for block in text().split(T, 1):
                        if memory is not None:
                            before = memory.rows().tolist()
                            with self.assertRaisesRegex(ValueError, "holds torch.float64, and the block is torch.float32"):
                                copy.deepcopy(layer).float()(block.float(), memory)
                            method = memory.method if isinstance(memory, Memory) else layer
                            method.read, layer.price = fail, fail
                            with self.assertRaises(MemoryError):
                                layer(block, memory)
                            del method.read, layer.price
                            self.assertEqual(memory.rows().tolist(), before)
                        y, memory = layer(block, memory)
                        again, expected = layer(block, expected)
                        self.assertTrue(torch.equal(y, again))

    def test_a_batch_of_another_size_changes_nothing(self):
        for name, layer in layers().items():
            for gradients in (False, True):
                with self.subTest(name, gradients=gradients), torch.set_grad_enabled(gradients):
                    memory, expected = None, None
                    for block in text().split(T, 1):
                        y, memory = layer(block, memory)
                        with self.assertRaisesRegex(ValueError, "is of 2 streams, and a block of 1 was given"):
                            layer(block[:1], memory)
                        _, expected = again = layer(block, expected)
                        self.assertTrue(torch.equal(y, again[0]))


if __name__ == "__main__":
    unittest.main()
