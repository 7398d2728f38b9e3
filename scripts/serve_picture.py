#!/usr/bin/env python3
"""Makes the moving picture of the README: a text is typed into the page of `lapse serve`, the model goes on with it, and
what it forgets grows pale. Needs a headless browser (LAPSE_BROWSER=1 scripts/setup.sh).

  scripts/serve_picture.py RUN [-o docs/serve.gif] [--text TEXT] [--frames 64]
"""

import argparse
import io
import pathlib
import sys
import tempfile

from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from browser_tab import Tab  # noqa: E402
from serve_client import Server  # noqa: E402

WIDTH, HEIGHT = 1040, 520
TEXT = "The old captain had kept the letter for twenty years. He knew it by heart, and yet, every winter, he read it again. "


def frames(run, text, count):
    server, tab, folder = Server(run, "--seed", 3), Tab(WIDTH, HEIGHT), tempfile.TemporaryDirectory()

    def shot():
        path = f"{folder.name}/frame.png"
        tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        tab.picture(path)
        return Image.open(io.BytesIO(pathlib.Path(path).read_bytes())).convert("RGB")

    try:
        tab.open(f"http://127.0.0.1:{server.port}/")
        tab.wait("typeof about !== 'undefined' && about !== null")
        tab.run(f"command('read', {{ text: {text!r}, hold: true }})")
        tab.wait("session !== null")
        for i in range(count):
            tab.run("command('play', { steps: 13, speed: 0 })" if tab.run("now") >= len(text) else "(async () => { for (let i = 0; i < 8; ++i) await command('step'); })()")
            tab.wait("!playing")
            yield shot()
            if i == count * 2 // 3:
                tab.run("document.querySelector('#by [data-value=held]').click()")
    finally:
        tab.close()
        server.stop()
        folder.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("-o", "--out", default="docs/serve.gif")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--frames", type=int, default=64)
    options = parser.parse_args()
    made = list(frames(options.run, options.text, options.frames))
    some = [made[len(made) * k // 4] for k in (1, 2, 3)] + [made[-1]]
    together = Image.new("RGB", (WIDTH, HEIGHT * len(some)))
    for k, one in enumerate(some):
        together.paste(one, (0, HEIGHT * k))
    palette = together.quantize(96)  # one for all: colours do not flicker
    small = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in made]
    small[0].save(options.out, save_all=True, append_images=small[1:], duration=[120] * (len(small) - 1) + [2500], loop=0, optimize=True)
    print(options.out)


if __name__ == "__main__":
    main()
