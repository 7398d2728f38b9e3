"""`lapse inspect` as a process: what it says was remembered against what each method must do, and the page in a browser."""

import html.parser
import json
import math
import re
import unittest

import browser
from program import TINY, ProgramTest, english, lapse, merged, shared_folder, train_run

NASTY = b'</script><script>alert(1)</script><b>&amp; "bold"</b>\n<!-- \xc3\xa4\xe2\x82\xac \xff\xfe \x00\x07 \\x41 {{data}} ' + b"tail " * 20

WINDOWS = {
    "data": {"windows": True},
    "forgetting": {"method": "selective_attention"},
    "selective_attention": {"max_span": 32},
    "model": {"positions": "absolute", "attend_self": True, "norm": "pre"},
    "train": {"block": 32},
}
RUNS = {
    "expire": {},
    "fixed": {"forgetting": {"method": "fixed_span"}},
    "windows": WINDOWS,
    "collision": {"data": {"task": "collision", "path": ""}, "collision": {"easy": True, "grid": 4}},
    "copy": {"data": {"task": "copy", "path": ""}, "copy": {"longest": 4, "alphabet": 3}, "train": {"block": 12}},
}

shared = None


def setUpModule():
    global shared
    shared = shared_folder()
    (shared / "text.txt").write_text(english(6000))
    (shared / "nasty.txt").write_bytes(NASTY)
    for name, changes in RUNS.items():
        train_run(shared / name, merged(TINY, {"data": {"path": "text.txt"}}, changes))


class Page(html.parser.HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += text


class PageTest(ProgramTest):
    def inspect(self, run, *arguments):
        """The page's path and its data."""
        self.page = self.folder / "page.html"
        done = self.succeed("inspect", run, "-o", self.page, *arguments, cwd=shared)
        self.assertEqual(done.stdout, f"{self.page}\n")
        page = Page(self.page.read_text(encoding="utf-8"))
        self.assertEqual(page.open, [])
        self.assertEqual([e for e, _ in page.elements if e == "script"], ["script"] * 2)
        return json.loads(page.scripts[0])


class Inspect(PageTest):
    def durations(self, data, expected):
        """expected(token's time, tokens of its window or stream): how long it stays if nothing ends before."""
        for layer in data["layers"]:
            for begin, end in self.streams(data):
                for i in range(begin, end):
                    stays, left = expected(i - begin, end - begin), end - 1 - i
                    self.assertEqual(layer["held"][i], min(stays, left), f"token {i}")
                    self.assertEqual(layer["there"][i], int(stays > left), f"token {i}")

    def streams(self, data):
        return list(zip(data["begins"], [*data["begins"][1:], len(data["nats"])]))

    def add_up(self, data, itself=0):
        """At every time, the rows that were held are those that the query could read."""
        for layer in data["layers"]:
            for begin, end in self.streams(data):
                for t in range(begin, end):
                    held = sum(t - i <= layer["held"][i] for i in range(begin, t)) + itself
                    self.assertEqual(layer["sizes"][t], held, f"time {t}")
            self.assertEqual(layer["max"], max(layer["sizes"]))
            self.assertAlmostEqual(layer["mean"], sum(layer["sizes"]) / len(layer["sizes"]))

    def test_a_fixed_span_is_held_exactly_so_long(self):
        data = self.inspect("fixed", "--tokens", 150)
        self.assertEqual(len(data["nats"]), 150)
        self.assertEqual(sum(tokens for _, tokens in data["cells"][0]), 150)
        self.durations(data, lambda time, n: 12)
        self.add_up(data)
        shorter = self.inspect("fixed", "--tokens", 60, "--max-span", 5)
        self.durations(shorter, lambda time, n: 5)
        self.assertIn(["--max-span", "5"], shorter["facts"])

    def test_sinks_stay_for_ever(self):
        data = self.inspect("fixed", "--tokens", 100, "--method", "sink_window", "--budget", 10)
        self.durations(data, lambda time, n: n if time < 4 else 6)  # ages 1 ... 6
        self.add_up(data)
        self.assertIn(["method", "sink_window"], data["facts"])

    def test_evicted_rows_leave_as_many_as_the_budget(self):
        data = self.inspect("fixed", "--tokens", 100, "--method", "tova", "--budget", 6)
        self.add_up(data)
        self.assertTrue(all(layer["sizes"][6:] == [6] * 94 for layer in data["layers"]))
        self.assertEqual(list(data["layers"][0]["told"]), ["score"])

    def test_expiring_spans_are_as_they_were_told(self):
        data = self.inspect("expire", "--tokens", 200)
        self.add_up(data)
        for layer in data["layers"]:
            for held, there, span in zip(layer["held"], layer["there"], layer["told"]["span"]):
                # m = 1 + (e - a) / R > 0; the page rounds spans to four digits.
                if not there:
                    self.assertAlmostEqual(held, math.ceil(span + 4) - 1, delta=int(abs(span - round(span)) < 0.01))

    def test_it_reads_what_eval_reads(self):
        text = (shared / "text.txt").read_bytes()
        part = self.write("part.txt", text[1000:1301])
        data = self.inspect("expire", "--data", "text.txt", "--offset", 1000, "--tokens", 300)  # all of a text that is given
        self.assertEqual("".join(text for text, _ in data["cells"][0]).encode(), text[1000:1301])
        for name, view in (("expire", data), ("windows", self.inspect("windows", "--data", part, "--split", "all"))):
            result = json.loads(
                self.succeed("eval", name, "--data", part, "--split", "all", "--streams", 1, "--json", cwd=shared).stdout
            )
            self.assertEqual(len(view["nats"]), result["tokens"])
            self.assertAlmostEqual(sum(view["nats"]) / len(view["nats"]), result["loss"], delta=1e-3)
            self.assertIn(["bits per byte", f"{result['bpb']:.4f}"], view["facts"])
            for seen, layer in zip(view["layers"], result["layers"]):
                self.assertAlmostEqual(seen["mean"], layer["memory_mean"], places=6)
                self.assertEqual(seen["max"], layer["memory_max"])

    def test_windows_begin_with_empty_memory(self):
        data = self.inspect("windows", "--tokens", 100)
        self.assertEqual(data["begins"], [0, 32, 64, 96])
        self.durations(data, lambda time, n: 31)
        self.add_up(data, itself=1)
        self.assertEqual(data["cells"][0][0], ["", 1])  # BOS
        self.assertEqual(data["cells"][0][-1][1], 0)  # predicted, never read
        shown = "".join(text for cells in data["cells"] for text, _ in cells)
        self.assertTrue((shared / "text.txt").read_text()[5700:].startswith(shown))
        few = self.inspect("windows", "--tokens", 100, "--budget", 8)
        self.add_up(few, itself=1)
        self.assertEqual([layer["max"] for layer in few["layers"]], [8, 8])
        self.assertEqual(list(few["layers"][0]["told"]), ["masking"])

    def test_tasks_show_their_tokens(self):
        data = self.inspect("copy", "--tokens", 30)
        self.assertEqual(len(data["nats"]), 30)
        self.assertGreater(len(data["begins"]), 1)
        self.assertTrue(all(text.strip() for cells in data["cells"] for text, _ in cells[1:]))  # after BOS
        self.assertIn(["task", "copy"], data["facts"])

    def test_too_many_edits_are_said(self):
        text = english(6000)
        a, b = self.write("a.txt", text), self.write("b.txt", "".join(c for i, c in enumerate(text) if i % 2))
        page = self.folder / "page.html"
        done = self.succeed("inspect", "expire", "--data", a, "--compare", b, "--split", "all", "--tokens", 5000, "-o", page, cwd=shared)
        self.assertEqual(done.stderr.splitlines()[-1], "lapse: more than 2000 edits: only beginnings and ends are compared; lower --tokens")
        self.assertIn("more than 2000 edits", page.read_text())

    def test_answers_stand_where_they_are_asked_for(self):
        data = self.inspect("collision", "--tokens", 400)
        self.assertTrue(data["answers"])
        asked = [i for i, nats in enumerate(data["nats"]) if nats is not None]
        self.assertTrue(asked)
        self.assertTrue(all("question" in data["cells"][0][i][0] for i in asked), [data["cells"][0][i] for i in asked])

    def test_an_edited_text_beside_the_first(self):
        text = (shared / "text.txt").read_bytes()[:200]
        edited = text[:60] + b"Humpty Dumpty" + text[65:]
        a, b = self.write("a.txt", text), self.write("b.txt", edited)
        data = self.inspect("expire", "--data", a, "--compare", b, "--split", "all")
        alone = self.inspect("expire", "--data", b, "--split", "all")
        for key in ("cells", "begins", "nats", "layers"):
            self.assertEqual(data["other"][key], alone[key])
        self.assertIn(["compared with", str(b)], data["facts"])
        spaces = [i for i, c in enumerate(text) if chr(c).isspace()]  # the edit is of whole words
        first = max((i + 1 for i in spaces if i < 60), default=0)
        end = min(i for i in spaces if i >= 65)
        self.assertEqual(data["partner"][:first], list(range(first)))
        self.assertEqual(data["partner"][end:], list(range(end + 8, len(edited) - 1)))
        self.assertTrue(all(i in spaces or data["partner"][i] < 0 for i in range(first, end)))
        for i, partner in enumerate(data["partner"]):
            self.assertTrue(partner < 0 or text[i] == edited[partner])

    def test_text_stays_text(self):
        data = self.inspect("expire", "--data", "nasty.txt", "--split", "all", "--title", "<i>&")
        page = Page(self.page.read_text())
        self.assertNotIn("b", [name for name, _ in page.elements])
        self.assertNotRegex(self.page.read_text(), r"https?://|<i>")
        shown = "".join(text for text, _ in data["cells"][0])
        self.assertTrue(shown.startswith('</script><script>alert(1)</script><b>&amp; "bold"</b>\n<!-- ä€ \\xFF\\xFE \x00\x07 \\x41'))
        self.assertIn(["€", 3], data["cells"][0])
        self.assertEqual(len(data["nats"]), len(NASTY) - 1)
        if browser.BROWSER:
            dom, messages = browser.show(self.page)
            self.assertEqual(messages, [])
            rendered = Page(dom)
            self.assertEqual(len(rendered.scripts), 2)
            self.assertNotIn("b", [name for name, _ in rendered.elements])

    def test_what_it_refuses(self):
        def refused(words, *arguments):
            done = lapse("inspect", *arguments, cwd=shared)
            self.assertGreater(done.returncode, 0)
            last = done.stderr.splitlines()[-1]
            self.assertTrue(last.startswith("lapse: error: "), done.stderr)
            self.assertIn(words, last)

        out = ("-o", self.folder / "page.html")
        refused("no such run", "nowhere", *out)
        refused("0 is left to read after --offset 9999", "fixed", "--offset", 9999, *out)
        refused("leave out --data", "copy", "--data", "text.txt", *out)
        refused("leave it out", "copy", "--compare", "text.txt", *out)
        refused("leave out --offset", "copy", "--offset", 3, *out)
        refused("did you mean '--tokens'", "fixed", "--token", 3, *out)
        refused("--budget is no option of", "fixed", "--budget", 3, *out)
        refused("a page's name ends in .html, and that of a file for `lapse plot` in .json", "fixed", "-o", self.folder / "page.txt")
        refused("it is not written to standard output", "fixed", "-o", "-")
        refused("there is no folder", "fixed", "--tokens", 5, "-o", self.folder / "nowhere" / "page.html")
        self.assertEqual(list(self.folder.iterdir()), [])


@unittest.skipUnless(browser.BROWSER, browser.MISSING)
class InBrowser(PageTest):
    """The page's own script, run."""

    def shaded(self, view):
        dom, messages = browser.show(self.page, view)
        self.assertEqual(messages, [])
        spans = [attributes for name, attributes in Page(dom).elements if name == "span" and "data-cell" in attributes]
        return dom, spans, [span for span in spans if "background-color" in span.get("style", "")]

    def test_every_view(self):
        data = self.inspect("expire", "--tokens", 120)
        self.assertEqual(len(data["cells"][0]), 121)  # one is predicted, but not read
        for view in ("", "#layer=1", "#by=told:span", "#by=told:span&layer=0"):
            dom, spans, shaded = self.shaded(view)
            self.assertEqual((len(spans), len(shaded)), (121, 120), view)
            self.assertEqual(len(re.findall("<polyline", dom)), 2 + dom.count("`<polyline"))
        _, spans, shaded = self.shaded("#by=surprise")
        self.assertEqual((len(spans), len(shaded)), (121, 120))  # nothing predicts the first
        _, spans, shaded = self.shaded("#layer=all")
        self.assertEqual((len(spans), len(shaded)), (242, 240))

    def test_what_was_in_memory_at_a_time(self):
        self.inspect("fixed", "--tokens", 60)
        _, spans, shaded = self.shaded("#at=40")
        self.assertEqual([int(span["data-cell"]) for span in shaded], list(range(28, 41)))
        self.assertEqual([int(span["data-cell"]) for span in spans if "now" in span.get("class", "")], [40])

    def test_pointing_and_clicking(self):
        data = self.inspect("expire", "--tokens", 50, "--data", "nasty.txt", "--split", "all")
        page = self.page.read_text()
        act = """<script>
          const span = document.querySelectorAll("span[data-cell]")[7];
          for (const kind of ["mousemove", "click"]) span.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
        </script>"""
        self.page.write_text(page.replace("</body>", act + "</body>"))
        dom, _, shaded = self.shaded("")
        text = re.sub("<[^>]*>", " ", dom[dom.index('id="tip"') : dom.index("<noscript>")])
        span = data["layers"][0]["told"]["span"][7]
        self.assertEqual(data["cells"][0][7][0], "t")
        self.assertRegex(text, r"t\s+time 7, predicted with [\d.]+ bits\s+layer\s+held for\s+span\s+0\s+\d+")
        self.assertIn(f"{span:.1f}"[:3], text)
        self.assertIn("When token 7 was read", dom)
        self.assertEqual([int(span["data-cell"]) for span in shaded], list(range(8)))

    def test_by_keyboard(self):
        self.inspect("expire", "--tokens", 50, "--data", "nasty.txt", "--split", "all")
        act = """<script>
          for (const key of ["End", "Home", ...Array(7).fill("ArrowRight"), "Enter"])
            document.querySelector(".text").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        </script>"""
        self.page.write_text(self.page.read_text().replace("</body>", act + "</body>"))
        dom, spans, shaded = self.shaded("")
        self.assertIn("time 7, predicted with", dom)
        self.assertIn("When token 7 was read", dom)
        self.assertEqual([int(span["data-cell"]) for span in spans if "pointed" in span.get("class", "")], [7])
        self.assertEqual([int(span["data-cell"]) for span in shaded], list(range(8)))

    def test_two_texts(self):
        a, b = self.write("a.txt", "the river stone and the garden <b> letter"), self.write("b.txt", "the river silver window and the garden <b> letter")
        data = self.inspect("expire", "--data", a, "--compare", b, "--split", "all")
        dom, spans, shaded = self.shaded("")
        self.assertEqual(len(spans), 41 + 49)
        edited = [int(span["data-cell"]) for span in spans if "edited" in span.get("class", "")]
        a_has, b_has = ([cell for cells in record["cells"] for cell in cells if cell[1]] for record in (data, data["other"]))
        self.assertEqual([i for i in edited if i < 41], [i for i, partner in enumerate(data["partner"]) if partner < 0])
        self.assertEqual(len(a_has) - len([i for i in edited if i < 41]), len(b_has) - len([i for i in edited if i >= 41]))
        held = [layer["held"] for layer in data["layers"]], [layer["held"] for layer in data["other"]["layers"]]
        changed = [i for i, p in enumerate(data["partner"]) if p >= 0 and sum(l[i] for l in held[0]) != sum(l[p] for l in held[1])]
        self.assertEqual([int(s["data-cell"]) for s in shaded if int(s["data-cell"]) < 41], changed)
        self.assertIn("Edits", dom)
        for view in ("#by=change:told:span", "#layer=all", "#by=surprise&layer=1", "#by=held"):
            self.assertEqual(len(self.shaded(view)[1]), 90 * (2 if "all" in view else 1))
        _, spans, _ = self.shaded("#at=5")
        now = [int(span["data-cell"]) for span in spans if "now" in span.get("class", "")]
        self.assertEqual(now, [5, 41 + 5])

    def test_windows_and_tasks(self):
        self.inspect("windows", "--tokens", 100)
        dom, spans, shaded = self.shaded("")
        self.assertEqual((len(spans), len(shaded)), (104, 100))
        self.assertEqual(dom.count('class="window"'), 4)
        self.inspect("copy", "--tokens", 30)
        self.assertEqual(len(self.shaded("")[2]), 30)


if __name__ == "__main__":
    unittest.main()
