"""The rules of lapse.methods against plain loops over lists, and reading in blocks against reading token by token."""

import math
import unittest

import torch

from lapse.memory import Memory
from lapse.methods import Reading, Settings, make_method
from lapse.table import NEVER

H, G, D = 4, 2, 6
# name, options; budget 0 where these say it all
RULES = {
    "local": {},
    "sink_window": {"sinks": 2},
    "strided": {"max_span": 19},
    "local_global": {"every": 2},
    "h2o": {},
    "tova": {},
    "selective_attention": {},
    "full": {},
}


def inputs(B, T, seed, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *shape: (1.5 * torch.randn(*shape, generator=draw, dtype=torch.float64)).to(dtype)
    return normal(B, T, H, D), normal(B, T, G, D), normal(B, T, G, D)


def settings(name, budget, layer=0, min_age=0, window=NEVER):
    return Settings(layer, 4, 0 if name == "full" else budget, min_age=min_age, max_age=window, options=RULES[name])


class Plain:
    """One sequence, one token at a time, with lists: the rules as docs/equations.md has them."""

    def __init__(self, name, budget, layer, min_age, window):
        self.name, self.budget, self.min_age, self.window = name, budget, min_age, window
        self.everything = name == "full" or (name == "local_global" and layer % 2 == 1)
        # Times of rows that the next query may read: by all heads, or of H2O by each key head.
        self.caches = [[] for _ in range(G if name == "h2o" else 1)]
        self.score, self.masking = {}, {}

    @property
    def held(self):
        return sorted(set().union(*self.caches))

    def keeps(self, row, t):
        """Whether the query at time t may read this row by its time alone."""
        age = t - row
        if age > self.window:
            return False
        last = self.budget - 1 + self.min_age  # of a window of all the budget
        if self.everything or self.name in ("h2o", "tova", "selective_attention"):
            return True
        if self.name in ("local", "local_global"):
            return age <= last
        if self.name == "sink_window":
            return row < 2 or age <= last - 2
        rest = self.budget // 2
        near = self.budget - rest - 1 + self.min_age
        span = min(19, self.window)
        stride = max(1, math.ceil((span - near) / rest))
        return age <= min(near, span) or (row % stride == stride - 1 and age <= span)

    def read(self, t, q, k, v):
        """q [T, H, D], k, v [T, G, D]; the query at time t. Returns [H, D]."""
        self.caches = [[i for i in [*cache, t] if self.keeps(i, t)] for cache in self.caches]
        if self.name == "selective_attention" and len(self.held) > self.budget:
            others = [i for i in self.held if i != t]
            self.caches[0].remove(max(others, key=lambda i: (i > 0, self.masking.get(i, 0.0), -i)))
        out = torch.zeros(H, D, dtype=q.dtype)
        for c, cache in enumerate(self.caches):
            rows = [i for i in cache if t - i >= self.min_age]
            received = dict.fromkeys(cache, 0.0)
            share = H // len(self.caches)  # heads that choose together
            for h in range(c * share, (c + 1) * share):
                for i, w in zip(rows, self.weights(t, q, k, h, rows)):
                    received[i] += w.item()
                    out[h] += w * v[i, h // (H // G)]
            self.evict(t, c, received)
        if self.name == "selective_attention":
            for i in rows:
                if i not in (0, t):
                    s = (q[t, 0] @ k[i, 0]).item() / math.sqrt(D)
                    self.masking[i] = self.masking.get(i, 0.0) + max(s, 0.0)
        return out

    def weights(self, t, q, k, h, rows):
        if not rows:
            return []
        logits = torch.stack([q[t, h] @ k[i, h // (H // G)] for i in rows]) / math.sqrt(D)
        if self.name == "selective_attention":
            logits = logits - torch.tensor([self.masking.get(i, 0.0) for i in rows], dtype=q.dtype)
        return torch.softmax(logits, 0)

    def evict(self, t, c, received):
        if self.name not in ("h2o", "tova"):
            return
        for i, got in received.items():
            self.score[c, i] = got + (self.score.get((c, i), 0.0) if self.name == "h2o" else 0.0)
        own = 1 if self.min_age == 0 else 0
        room = self.budget - own
        newest = min(room, (max(1, self.budget // 2) if self.name == "h2o" else 1) - own)
        next_held = [i for i in self.caches[c] if t + 1 - i <= self.window]
        while len(next_held) > room:
            old = next_held[: len(next_held) - newest]
            next_held.remove(min(old, key=lambda i: (self.score[c, i], i)))
        self.caches[c] = next_held


def plain(name, budget, q, k, v, layer=0, min_age=0, window=NEVER):
    """Outputs [T, H, D], and the times that are held for the next query."""
    reader = Plain(name, budget, layer, min_age, window)
    out = torch.stack([reader.read(t, q, k, v) for t in range(len(q))])
    return out, [i for i in reader.held if reader.keeps(i, len(q))]


def held(memory, b=0):
    """Times that the next query can read."""
    return memory.times()[b]


def cut(T, sizes):
    at = 0
    while at < T:
        for n in sizes:
            if at < T:
                yield slice(at, min(T, at + n))
                at += n


class Rules(unittest.TestCase):
    def check(self, name, budget, min_age=0, window=NEVER, layer=0, T=37):
        q, k, v = (x[0] for x in inputs(1, T, seed=budget))
        out, times = plain(name, budget, q, k, v, layer, min_age, window)
        for sizes in ([T], [1], [5, 1, 16, 3]):  # whole, token by token, in chunks
            memory = Memory(make_method(name, settings(name, budget, layer, min_age, window)))
            reading = Reading(min_age=min_age)
            got = [memory.read(q[None, s], k[None, s], v[None, s], reading) for s in cut(T, sizes)]
            torch.testing.assert_close(torch.cat(got, 1)[0], out, rtol=1e-9, atol=1e-12)
            self.assertEqual(held(memory), times)

    def test_each_is_the_plain_rule(self):
        for name in RULES:
            for budget in (3, 8, 9, 64):
                with self.subTest(name=name, budget=budget):
                    self.check(name, budget)
        for layer in (0, 1):
            self.check("local_global", 5, layer=layer)

    def test_h2o_holds_other_rows_for_each_key_head(self):
        q, k, v = (x[0] for x in inputs(1, 60, seed=1))
        q = 4 * q  # sharp attention: else the first rows, with few beside them, receive most from every head
        reader = Plain("h2o", 10, 0, 0, NEVER)
        expected = torch.stack([reader.read(t, q, k, v) for t in range(60)])
        self.assertNotEqual(*reader.caches)
        memory = Memory(make_method("h2o", settings("h2o", 10)))
        got = memory.read(q[None], k[None], v[None], Reading())[0]
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
        self.assertEqual(held(memory), reader.held)

    def test_where_tokens_do_not_attend_themselves(self):
        for name in set(RULES) - {"selective_attention"}:
            for budget in (3, 8):
                with self.subTest(name=name, budget=budget):
                    self.check(name, budget, min_age=1)

    def test_within_a_sliding_window(self):
        for name in RULES:
            for budget in (4, 9, 64):
                with self.subTest(name=name, budget=budget):
                    self.check(name, budget, window=11)

    def test_ties_go_to_the_oldest(self):
        """Equal keys: every row receives the same."""
        q, k, v = (torch.ones_like(x) for x in inputs(1, 9, seed=0))
        for name, kept in (("tova", [6, 7, 8]), ("h2o", [0, 7, 8])):
            memory = Memory(make_method(name, settings(name, 4)))
            for t in range(9):
                memory.read(q[:, t : t + 1], k[:, t : t + 1], v[:, t : t + 1], Reading())
            self.assertEqual(held(memory), plain(name, 4, q[0], k[0], v[0])[1])
            if name == "tova":
                self.assertEqual(held(memory), kept)

    def test_float32_keeps_the_same_rows(self):
        """Also through the fused kernels; inputs are random, so that no two scores are close."""
        for name in RULES:
            with self.subTest(name=name):
                q, k, v = (x[0] for x in inputs(1, 150, seed=3))
                out, times = plain(name, 24, q, k, v)
                memory = Memory(make_method(name, settings(name, 24)))
                single = [x[None].float() for x in (q, k, v)]
                got = [memory.read(*(x[:, s] for x in single), Reading()) for s in cut(150, [70, 1, 3])]
                torch.testing.assert_close(torch.cat(got, 1)[0], out.float(), rtol=1e-4, atol=1e-5)
                self.assertEqual(held(memory), times)


class Streams(unittest.TestCase):
    """Several sequences, padded on the left, taken back, and chosen among."""

    def test_a_batch_is_each_sequence_alone(self):
        T, pads = 30, (0, 13, 29)
        q, k, v = inputs(3, T, seed=1)
        valid = torch.arange(T) >= torch.tensor(pads)[:, None]
        for name in RULES:
            for sizes in ([T], [1], [7, 4]):
                with self.subTest(name=name, sizes=sizes):
                    memory = Memory(make_method(name, settings(name, 7)))
                    got = torch.cat(
                        [memory.read(q[:, s], k[:, s], v[:, s], Reading(), valid[:, s]) for s in cut(T, sizes)], 1
                    )
                    for b, pad in enumerate(pads):
                        out, times = plain(name, 7, q[b, pad:], k[b, pad:], v[b, pad:])
                        torch.testing.assert_close(got[b, pad:], out, rtol=1e-9, atol=1e-12)
                        self.assertEqual(held(memory, b), times)
                    self.assertTrue(torch.all(got[1, :13] == 0))

    def test_what_is_taken_back_leaves_no_trace(self):
        q, k, v = inputs(2, 40, seed=2)
        tokens = lambda memory, s: memory.read(q[:, s], k[:, s], v[:, s], Reading())
        for name in RULES:
            with self.subTest(name=name):
                straight = Memory(make_method(name, settings(name, 6)))
                expected = [tokens(straight, s) for s in (slice(0, 15), slice(15, 20), slice(26, 40))]
                back = Memory(make_method(name, settings(name, 6)))
                tokens(back, slice(0, 15))
                back.record()
                tokens(back, slice(15, 26))  # the last 6 were never to be
                back.crop(6)
                self.assertEqual(held(back), [t for t in held(back) if t < 20])
                tokens(back, slice(26, 28))
                back.crop(0)
                again = tokens(back, slice(28, 31))
                back.crop(3)
                self.assertTrue(torch.equal(again, tokens(back, slice(28, 31))))
                last = tokens(back, slice(31, 40))
                torch.testing.assert_close(last, expected[2][:, 5:], rtol=1e-9, atol=1e-12)
                self.assertEqual(held(back), held(straight))

    def test_without_recording_only_what_is_still_there(self):
        q, k, v = inputs(1, 9, seed=2)
        roomy, tight = (Memory(make_method("local", settings("local", budget))) for budget in (20, 4))
        for memory in (roomy, tight):
            memory.read(q, k, v, Reading())
        roomy.crop(4)
        self.assertEqual(held(roomy), [0, 1, 2, 3, 4])
        with self.assertRaisesRegex(RuntimeError, "activate_past_recording"):
            tight.crop(4)
        with self.assertRaisesRegex(RuntimeError, "has not read 6 tokens"):
            roomy.crop(6)

    def test_what_was_not_recorded_is_not_taken_back(self):
        q, k, v = inputs(1, 20, seed=2)
        tokens = lambda memory, s: memory.read(q[:, s], k[:, s], v[:, s], Reading())
        for name in set(RULES) - {"full"}:
            with self.subTest(name=name):
                memory = Memory(make_method(name, settings(name, 6)))
                tokens(memory, slice(0, 14))
                memory.record()
                tokens(memory, slice(14, 16))
                with self.assertRaisesRegex(RuntimeError, "4 tokens were not recorded, only 2"):
                    memory.crop(4)
                memory.crop(2)  # nothing happened to it
                straight = Memory(make_method(name, settings(name, 6)))
                tokens(straight, slice(0, 14))
                torch.testing.assert_close(tokens(memory, slice(16, 20)), tokens(straight, slice(16, 20)), rtol=1e-9, atol=1e-12)

    def test_chosen_streams(self):
        q, k, v = inputs(3, 20, seed=4)
        for name in RULES:
            memory = Memory(make_method(name, settings(name, 5)))
            memory.read(q[:, :12], k[:, :12], v[:, :12], Reading())
            chosen = torch.tensor([2, 0, 2, 1])
            memory.select(chosen)
            got = memory.read(*(x[chosen, 12:] for x in (q, k, v)), Reading())
            whole = Memory(make_method(name, settings(name, 5))).read(q, k, v, Reading())
            torch.testing.assert_close(got, whole[chosen, 12:], rtol=1e-9, atol=1e-12)

    def test_a_call_that_fails_leaves_no_trace(self):
        """It fails in its first part, and after others that evicted rows."""
        q, k, v = inputs(2, 30, seed=6)
        tokens = lambda memory, s: memory.read(q[:, s], k[:, s], v[:, s], Reading())

        def fail(memory, s, parts):
            whole, left = memory.method.read, [parts]

            def read(*arguments):
                whole(*arguments)
                left[0] -= 1
                if left[0] == 0:
                    raise MemoryError
                return torch.zeros(2, s.stop - s.start, *q.shape[2:])

            memory.method.read = read
            with self.assertRaises(MemoryError):
                tokens(memory, s)
            del memory.method.read

        for name in RULES:
            for parts in (1, 4 if make_method(name, settings(name, 6)).one_by_one else 1):
                for recording in (False, True):
                    with self.subTest(name=name, parts=parts, recording=recording):
                        straight, memory = (Memory(make_method(name, settings(name, 6))) for _ in range(2))
                        for s in (slice(0, 14), slice(14, 15), slice(15, 26)):
                            if recording:
                                straight.record()
                                memory.record()
                            fail(memory, s, min(parts, s.stop - s.start))
                            self.assertTrue(torch.equal(tokens(memory, s), tokens(straight, s)))
                            self.assertEqual((held(memory), memory.seen), (held(straight), straight.seen))
                        if recording:
                            memory.crop(3)
                            straight.crop(3)
                            self.assertEqual(held(memory), held(straight))

    def test_of_another_type(self):
        q, k, v = inputs(1, 9, seed=6, dtype=torch.float32)
        memory = Memory(make_method("tova", settings("tova", 6)))
        memory.read(q[:, :5], k[:, :5], v[:, :5], Reading())
        before = held(memory)
        with self.assertRaisesRegex(ValueError, r"holds torch.float32, and the block is torch.bfloat16 \(key\)"):
            memory.read(*(x[:, 5:].bfloat16() for x in (q, k, v)), Reading())
        self.assertEqual((held(memory), memory.seen), (before, 5))

    def test_storage_follows_the_rows(self):
        """A long prompt in one block: what is forgotten is given back, and later tokens take no more."""
        q, k, v = inputs(2, 600, seed=5, dtype=torch.float32)
        row = 2 * G * D * 4 + 3 * 8 + 8 * G  # key, value, times, a score, or two by head
        for name in set(RULES) - {"full"}:
            layer = Memory(make_method(name, settings(name, 16)))
            most = 16 * (G if name == "h2o" else 1)  # its heads hold 16 each
            layer.read(q[:, :500], k[:, :500], v[:, :500], Reading())
            for t in range(500, 600):
                layer.read(q[:, t : t + 1], k[:, t : t + 1], v[:, t : t + 1], Reading())
                self.assertLessEqual(layer.nbytes(), 2 * (most + 2 * 16 + 2) * row, name)
            self.assertLessEqual(int(layer.rows().max()), most)


class Errors(unittest.TestCase):
    def test_they_say_what_is_wrong(self):
        make = lambda name, budget=0, **options: make_method(name, Settings(0, 2, budget, options=options))
        for words, call in {
            r"no forgetting method 'tovah' \(did you mean 'tova'\?\); there are: .*tova": lambda: make("tovah", 4),
            "needs budget= or window=": lambda: make("local"),
            "4 sinks": lambda: make("sink_window", 4),
            "the last of every 4 layers is global, and the model has 2": lambda: make("local_global", 4),
            "no option 'width'; there are: budget, window": lambda: make("local", 4, width=3),
            "h2o: no option 'sinks'; there are: budget": lambda: make("h2o", 4, sinks=3),
            r"tova: no option 'bugdet' \(did you mean 'budget'\?\)": lambda: make("tova", 4, bugdet=3),
            "lapse: tova needs budget=, at least 1$": lambda: make("tova"),
            "full: it takes no budget": lambda: make("full", 4),
            "a budget needs max_span=": lambda: make("strided", 8),
            "budget must be a positive whole number, got -1": lambda: make("h2o", -1),
            "budget must be a positive whole number, got 8.5": lambda: make("tova", 8.5),
            "sinks must be a whole number of at least 0, got -4": lambda: make("sink_window", 8, sinks=-4),
            "window must be a positive whole number, got 0": lambda: make("local", window=0),
            "every must be a positive whole number, got 0": lambda: make("local_global", 8, every=0),
            "a budget says window; give one or the other": lambda: make("local", 8, window=100),
            "lapse: expire_span needs ramp=$": lambda: make("expire_span"),
            "ramp must be positive, got 0": lambda: make("expire_span", ramp=0),
        }.items():
            with self.assertRaisesRegex(ValueError, words):
                call()
        q, k, v = inputs(1, 4, seed=0)
        with self.assertRaisesRegex(ValueError, "padding must be on the left"):
            Memory(make("local", 4)).read(q, k, v, Reading(), torch.tensor([[True, True, False, False]]))


if __name__ == "__main__":
    unittest.main()
