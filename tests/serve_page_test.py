"""The page of `lapse serve` in a real browser: what a person does, and what then stands there."""

import time
import unittest

import browser
from browser_tab import Tab
from serve_runs import TEXT, Runs


@unittest.skipUnless(browser.BROWSER, browser.MISSING)
class Page(Runs):
    def open(self, *runs, view="", before=""):
        tab = Tab()
        self.addCleanup(tab.close)
        if before:  # a script that runs before those of the page
            tab.send("Page.addScriptToEvaluateOnNewDocument", source=before)
        server = self.serve(*runs)
        tab.open(f"http://127.0.0.1:{server.port}/{view}")
        tab.wait("typeof session !== 'undefined' && session !== null && about !== null")
        return tab

    def shaded(self, tab):
        tab.run("new Promise((done) => (draw(true), requestAnimationFrame(() => requestAnimationFrame(done))))")
        return tab.run("[...document.querySelectorAll('span[data-t]')].filter((one) => /there|ended/.test(one.className)).map((one) => Number(one.dataset.t))")

    def read(self, tab, text):
        count = tab.run("now")
        tab.click("#text")
        tab.type(text)
        tab.key("Enter")
        tab.wait(f"now === {count + len(text)} && !playing")

    def test_type_generate_pause_click_undo(self):
        tab = self.open("fixed")
        self.read(tab, TEXT)
        self.assertEqual(self.shaded(tab), list(range(len(TEXT) - 12, len(TEXT))))
        self.assertEqual(tab.run("[...document.querySelectorAll('#panes .line')].map((one) => one.textContent).join('')"), TEXT)
        tab.run("element('speed').value = '0'")
        tab.click("#play")
        tab.wait(f"now > {len(TEXT)} + 30")
        tab.click("#play")
        tab.wait("!playing")
        tab.click("span[data-t='3']")
        tab.wait("document.querySelector('#chosen table')")
        shown = tab.run("element('chosen').innerText")
        self.assertIn("came at time 3", shown)
        self.assertIn("after 15", shown)
        self.assertIn("its span had ended", shown)
        newest = tab.run("now") - 1
        tab.click(f"span[data-t='{newest - 2}']")
        tab.wait("element('chosen').innerText.includes('%')")
        tab.run("element('text').blur()")
        tab.key("m")
        self.assertEqual(self.shaded(tab), list(range(newest - 14, newest - 1)))
        tab.key("Escape")
        tab.click("#undo")
        tab.wait(f"now === {len(TEXT)}")
        self.assertEqual(self.shaded(tab), list(range(len(TEXT) - 12, len(TEXT))))
        tab.click("span[data-t='9']")
        tab.click("#back")
        tab.wait("now === 10 && !playing")
        self.assertEqual(self.shaded(tab), list(range(10)))
        self.read(tab, "again")
        self.assertEqual(tab.run("tokens.map((one) => one.text).join('')"), TEXT[:10] + "again")
        self.assertEqual(tab.messages, [])

    def test_every_view_and_size(self):
        tab = self.open("expire", "selective")
        self.read(tab, TEXT * 2)
        self.assertEqual(tab.run("texts.length"), 2)
        for by in tab.run("[...element('by').children].map((one) => one.dataset.value)"):
            tab.click(f"#by [data-value='{by}']")
            self.assertTrue(self.shaded(tab), by)
        tab.click("#layer [data-value='all']")
        self.assertEqual(tab.run("texts.length"), 4)
        self.assertTrue(self.shaded(tab))
        tab.size(390, 844, phone=True)
        self.assertLessEqual(tab.run("document.documentElement.scrollWidth"), 390, "nothing sticks out on a phone")
        tab.size(1200, 900)
        light = tab.run("getComputedStyle(document.body).backgroundColor")
        tab.dark()
        self.assertNotEqual(tab.run("getComputedStyle(document.body).backgroundColor"), light)
        self.assertEqual(tab.messages, [])

    def test_budgets_and_methods(self):
        tab = self.open("expire")
        self.read(tab, TEXT)
        self.change(tab, "#method-A", "tova")
        tab.wait(f"lanesOf()[0].method === 'tova' && now === {len(TEXT)} && !playing")
        self.change(tab, "#lanes input[name=budget]", "9")
        tab.wait(f"curves?.[0][0].recent.at(-1) <= 9 && now === {len(TEXT)} && !playing")
        tab.wait("Number(document.querySelector('#sizes').rows[1].cells[1].textContent) <= 9")
        tab.click("span[data-t='5']")
        tab.wait("/evicted, over budget: its score was/.test(element('chosen').innerText)")
        self.change(tab, "#run-B", "0")
        tab.wait(f"lanesOf().length === 2 && texts.length === 2 && now === {len(TEXT)} && !playing")
        self.assertEqual(tab.messages, [])

    def change(self, tab, where, value):
        tab.run(f"((one) => {{ one.value = {value!r}; one.dispatchEvent(new Event('change')); }})(document.querySelector({where!r}))")

    def test_other_settings_keep_the_view(self):
        tab = self.open("expire")
        self.read(tab, TEXT)
        tab.click("#by [data-value='told:span']")
        tab.click("#layer [data-value='1']")
        self.change(tab, "#lanes input[name=max_span]", "9")
        tab.wait(f"lanesOf()[0].options.max_span === '9' && now === {len(TEXT)} && !playing")
        self.assertEqual(tab.run("[view.by, view.layer]"), ["told:span", 1])
        tab.click("#anew")
        tab.wait("now === 0 && !playing")
        self.read(tab, TEXT)
        self.assertEqual(tab.run("[view.by, view.layer]"), ["told:span", 1])
        other = self.open("expire", view=tab.run("new URL(linkToState()).hash"))
        other.wait(f"now === {len(TEXT)} && !playing")
        self.assertEqual(other.run("[view.by, view.layer]"), ["told:span", 1])
        self.change(tab, "#method-A", "local")  # which reports nothing of rows
        tab.wait(f"lanesOf()[0].method === 'local' && now === {len(TEXT)} && !playing")
        self.assertEqual(tab.run("view.by"), "live")
        self.assertTrue(self.shaded(tab))
        self.assertEqual(tab.messages + other.messages, [])

    def test_lanes_that_tell_of_different_numbers(self):
        tab = self.open("expire", "selective", view="#by=told:0")  # by a number, as links of earlier versions
        self.read(tab, TEXT)
        tab.wait("view.by === 'told:span'")
        known = "tokens.map((one) => [0, 1].map((lane) => value(one, 'mean', lane) !== null))"
        self.assertEqual({tuple(both) for both in tab.run(known)}, {(True, False)})
        tab.click("#by [data-value='told:masking']")
        self.assertEqual({tuple(both) for both in tab.run(known)}, {(False, True)})
        self.assertEqual(tab.messages, [])

    def test_a_layer_that_is_not_there(self):
        tab = self.open("expire", view="#layer=7")
        self.read(tab, TEXT)
        self.assertEqual(tab.run("view.layer"), "mean")
        self.assertTrue(self.shaded(tab))

    def test_what_is_refused_can_be_mended(self):
        tab = self.open("expire")
        self.read(tab, TEXT)
        self.change(tab, "#method-A", "local_global")  # every fourth layer, of two
        tab.wait("element('status').classList.contains('failed')")
        self.assertIn("layers", tab.run("element('status').textContent"))
        self.assertEqual(tab.run("element('method-A').value"), "local_global")
        self.assertNotIn("local_global", tab.run("linkToState()"))  # which has what is read
        self.change(tab, "#lanes input[name=every]", "2")
        tab.wait(f"lanesOf()[0].method === 'local_global' && now === {len(TEXT)} && !playing")

    def test_a_link_of_a_long_text(self):
        """The link has the newest tokens, also those that are no text, and shows memory at the same moment of them."""
        tab = self.open("fixed")
        tab.run("window.ids = Array.from({ length: 5000 }, (_, i) => (i * i * 7) % 256)")
        tab.run("command('read', { ids })")
        tab.wait("now === 5000 && !playing", 60)
        tab.run("showMoment(4700)")
        near = "tokens.slice(view.at - base - 20, view.at - base + 20).map((one) => one.id)"
        shown = tab.run(near)
        other = self.open("fixed", view=tab.run("new URL(linkToState()).hash"))
        other.wait("now === 4000 && !playing && view.at !== null", 60)
        self.assertEqual(other.run(near), shown)
        self.assertEqual(self.shaded(other), list(range(other.run("view.at") - 12, other.run("view.at") + 1)))
        tab.run("showMoment(900)")  # of which the link has nothing
        self.assertNotIn("at=", tab.run("linkToState()"))

    def test_a_link_whose_events_come_late(self):
        """The replies to what the page asks may overtake the first event; the moment of the link stays."""
        late = "const real = fetch; fetch = async (...all) => (/events$/.test(all[0]) && (await new Promise((done) => setTimeout(done, 1500))), real(...all))"
        tab = self.open("expire", view="#ids=1.2.3.4.5.6.7&at=3", before="{ %s }" % late)
        tab.wait("now === 7 && !playing")
        self.assertEqual(tab.run("view.at"), 3)
        self.assertEqual(tab.messages, [])

    def test_curves_after_an_undo(self):
        """The largest size of a stretch is that of the steps that are left."""
        tab = self.open("fixed")
        tab.run("window.curve = new Curve(), Array.from({ length: 1300 }, (_, t) => curve.add(t, t === 1299 ? 999 : 5)), curve.cut(1299, [])")
        self.assertEqual(tab.run("Math.max(...curve.buckets)"), 5)
        # Farther back than the newest sizes reach, the steps that are left on the page have them.
        tab.run("curve.cut(400, [7, 8, 9])")
        self.assertEqual(tab.run("[curve.recent.at(-1), curve.at(399), curve.at(398), curve.at(396)]"), [9, 9, 8, None])

    def test_keyboard_alone(self):
        tab = self.open("expire")
        tab.key("t")
        self.assertEqual(tab.run("document.activeElement.id"), "text")
        tab.type(TEXT)
        tab.key("Enter")
        tab.wait(f"now === {len(TEXT)} && !playing")
        tab.key("Escape")
        tab.key("s")
        tab.wait(f"now === {len(TEXT) + 1}")
        tab.key(" ")
        tab.wait("playing")
        tab.key(" ")
        tab.wait("!playing")
        tab.run("texts[0].focus()")
        tab.key("Home")
        tab.key("ArrowRight")
        self.assertEqual(tab.run("view.pick"), 1)
        tab.key("b")
        tab.wait("now === 2 && !playing")
        tab.key("v")
        self.assertEqual(tab.run("view.by"), "held")
        reached = set()
        for _ in range(40):
            tab.key("Tab")
            reached.add(tab.run("document.activeElement.id"))
        self.assertLessEqual({"play", "step", "undo", "speed", "temperature", "read", "save-page", "link"}, reached)

    def test_what_can_be_kept(self):
        tab = self.open("expire")
        self.read(tab, TEXT)
        tab.run("history.replaceState(null, '', linkToState())")
        address = tab.run("location.hash")
        size = tab.run("new Promise((done) => picture().toBlob((blob) => done(blob.size)))")
        self.assertGreater(size, 5000)
        for button, name in (("#save-picture", "remembered.png"), ("#save-page", "remembered.html")):
            tab.click(button)
            until = time.monotonic() + 20
            while not ((tab.folder / name).exists() and (tab.folder / name).stat().st_size) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertGreater((tab.folder / name).stat().st_size, 5000)
        self.assertEqual((tab.folder / "remembered.png").read_bytes()[:4], b"\x89PNG")
        self.assertIn('"tokens read","65"', (tab.folder / "remembered.html").read_text())
        other = self.open("expire", view=address)
        other.wait(f"now === {len(TEXT)} && !playing")
        self.assertEqual(other.run("tokens.map((one) => one.text).join('')"), TEXT)

    def test_a_click_on_the_curve_shows_memory_as_it_was(self):
        tab = self.open("fixed")
        self.read(tab, TEXT * 2)

        def click(moment):
            """Where that time stands in the curve; again where the curve moved meanwhile."""
            for _ in range(20):
                x, y = tab.run(
                    "(() => { element('chart').scrollIntoView({ block: 'center' }); const box = element('chart').firstChild.getBoundingClientRect();"
                    f"return [box.left + (38 + (400 - 46) * {moment} / (now - 1)) / 400 * box.width, box.top + box.height / 2]; }})()"
                )
                tab.click_at(x, y)
                if tab.run("view.at") == moment:
                    return
                time.sleep(0.05)

        for moment in (60, 100, 13):
            click(moment)
            self.assertEqual(tab.run("view.at"), moment)
            self.assertEqual(self.shaded(tab), list(range(moment - 12, moment + 1)))
        self.assertIn("in memory at time 13: 12, 12 rows", tab.run("element('legend').innerText"))
        self.assertEqual(tab.run("document.querySelectorAll('span.now').length"), 1)
        tab.key("ArrowRight")  # the click has put the keyboard there
        self.assertEqual(tab.run("view.at"), 14)
        tab.key("Home")
        self.assertEqual(self.shaded(tab), [0])
        tab.click("#to-now")
        self.assertEqual(self.shaded(tab), list(range(len(TEXT) * 2 - 12, len(TEXT) * 2)))
        self.assertEqual(tab.messages, [])

    def test_agents(self):
        tab = self.open("corridor")
        self.assertFalse(tab.run("element('typing').checkVisibility()"))
        tab.run("element('speed').value = '0'")
        tab.click("#play")
        tab.wait("now > 40")
        tab.click("#play")
        tab.wait("!playing")
        tab.wait("document.querySelectorAll('.step .view').length > 20")
        tab.click("span[data-t='7']")
        tab.wait("/action/.test(element('chosen').innerText)")
        self.change(tab, "#seed", "9")
        tab.wait("about.seed === 9 && now === 0")
        tab.click("#greedy")
        tab.wait("about.greedy && now === 0")
        self.change(tab, "#run-B", "0")
        tab.wait("lanesOf().length === 2 && texts.length === 2 && now === 0")
        self.assertEqual(tab.run("[element('seed').value, element('greedy').checked]"), ["9", True])
        for _ in range(3):
            tab.click("#step")
        tab.wait("now === 3")
        self.assertEqual(*tab.run("tokens[2].acts.map((act) => JSON.stringify(act))"))  # the same run, and nothing drawn
        tab.wait("document.querySelectorAll('.pane .step').length === 6")
        tab.click("#anew")
        tab.wait("now === 0 && about.seed === 9")
        self.assertEqual(tab.messages, [])

    def test_the_page_keeps_a_window(self):
        tab = self.open("fixed")
        tab.run("element('speed').value = '0'")
        tab.click("#play")
        tab.wait("now > 6000", 60)
        tab.click("#play")
        tab.wait("!playing")
        tab.run("new Promise((done) => setTimeout(done, 300))")
        self.assertLessEqual(tab.run("tokens.length"), 4200)
        self.assertLessEqual(tab.run("document.querySelectorAll('span[data-t]').length"), 4200)
        self.assertLessEqual(tab.run("curves[0][0].buckets.length"), 600)
        self.assertEqual(tab.run("tokens.every((one, i) => one.t === base + i)"), True)

    def test_what_came_too_fast_to_be_drawn_is_drawn_in_the_end(self):
        tab = self.open("fixed")
        tab.run("window.gap = false, new MutationObserver(() => (gap ||= gaps)).observe(element('panes'), { childList: true, subtree: true })")
        tab.run("playing = true, receive('steps', Array.from({ length: 1500 }, (_, t) => ({ t, ms: Date.now(), text: `${t} `, bits: [1], lanes: [[[1, [], []], [1, [], []]]] })))")
        tab.wait("gap")
        self.assertEqual(tab.run("[...document.querySelectorAll('#panes span[data-t]')].map((one) => Number(one.dataset.t))"), list(range(1500 - tab.run("MOST"), 1500)))
        tab.run("receive('state', { playing: false })")
        tab.wait("!gaps && document.querySelectorAll('#panes span[data-t]').length === 1500")
        self.assertEqual(tab.run("[...document.querySelectorAll('#panes .line')].map((one) => one.textContent).join('')"), "".join(f"{t} " for t in range(1500)))
        self.assertEqual(tab.run("document.querySelectorAll('#panes .dropped').length"), 0)
        tab.wait("texts[0].scrollHeight - texts[0].scrollTop - texts[0].clientHeight < 40")  # its end is seen
        self.assertEqual(tab.messages, [])

    def test_a_hidden_page_keeps_a_window(self):
        tab = self.open("fixed")
        tab.run("window.requestAnimationFrame = () => 0")  # as a browser does with a page that is not seen
        tab.run("element('speed').value = '0'")
        tab.run("element('play').click()")
        tab.wait("now > 14000", 60)
        self.assertLessEqual(tab.run("tokens.length + old.length"), 8400)
        self.assertLessEqual(tab.run("tokens.filter((one) => one.dirty).length"), 8400)


if __name__ == "__main__":
    unittest.main()
