"""A headless browser that a test drives: it types, clicks, looks and takes pictures. Spoken to over two pipes by the
browser's own protocol (--remote-debugging-pipe), so that no driver need be installed."""

import base64
import contextlib
import json
import os
import pathlib
import select
import subprocess
import tempfile
import time

import browser


class Tab:
    """One page. Messages of its console, and errors of its script, are in `messages`."""

    def __init__(self, width=1200, height=900):
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def ends():
            # Through numbers out of the way: one of the pipes may have 3 or 4 already.
            a, b = os.dup2(to_browser, 63), os.dup2(from_browser, 64)
            os.dup2(a, 3), os.dup2(b, 4)

        command = [browser.BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "--hide-scrollbars", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=ends, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser), os.close(from_browser)
        self.number, self.rest, self.messages, self.session = 0, b"", [], None
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.folder = pathlib.Path(self.profile.name) / "downloads"
        self.folder.mkdir()
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.folder))
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.size(width, height)

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self.write_end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        self.profile.cleanup()

    def receive(self, seconds):
        until = time.monotonic() + seconds
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.read_end, 1 << 16)
            if not more:
                raise EOFError("the browser has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        said, about = event.get("method"), event.get("params", {})
        if said == "Runtime.exceptionThrown":
            self.messages.append(about["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif said == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.messages.append(about["entry"]["text"] + " " + about["entry"].get("url", ""))

    # --- what a person does
    def open(self, address):
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of an expression of JavaScript; promises are waited for."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", script))
        return done["result"].get("value")

    def wait(self, script, seconds=30):
        """Until an expression is true. One that fails is not true yet: what it asks for may still have to be drawn."""
        until, fault = time.monotonic() + seconds, ""
        while time.monotonic() < until:
            try:
                if self.run(f"Boolean({script})"):
                    return
                fault = ""
            except RuntimeError as error:
                fault = f"{error}\n"
            time.sleep(0.05)
        shown = self.run("document.body.innerText")
        raise AssertionError(f"still not true after {seconds} s: {script}\n{fault}{shown[:3000]}\n{self.messages}")

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, key, modifiers=0):
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, " ": 32, "Home": 36, "End": 35}
        about = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not modifiers else "")
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector):
        """Clicks as a person does: again, where the page moved under the pointer and something else was hit."""
        name = json.dumps(selector)
        self.wait(f"document.querySelector({name})")  # pages draw a frame later
        self.run(f"addEventListener('click', window.hits = (event) => (window.hit = Boolean(event.target.closest?.({name}))), true)")
        for _ in range(20):
            # Where it stands once it stands still for two frames: what is above it may still be drawn.
            x, y = self.run(
                "(async () => { for (let last = ''; ; ) {"
                f"const one = document.querySelector({name}); one.scrollIntoView({{ block: 'center' }});"
                "const box = one.getClientRects()[0], at = [box.x + box.width / 2, box.y + box.height / 2];"
                "if (String(at) === last) return (window.hit = false), at; last = String(at);"
                "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); } })()"
            )
            self.click_at(x, y)
            if self.run("hit"):
                break
        else:
            raise AssertionError(f"{selector} was never hit")
        self.run("removeEventListener('click', hits, true)")

    def click_at(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width, height, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def dark(self, dark=True):
        value = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
