"""A headless browser for the tests of pages; they skip where there is none (Debian: chromium-headless-shell)."""

import re
import shutil
import subprocess
import tempfile

NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
MISSING = f"no browser found: none of {', '.join(NAMES)}"


def show(page, view=""):
    """(DOM, messages): the page's HTML after its script has run, and what was said on the console. `view`: "#layer=1"."""
    with tempfile.TemporaryDirectory() as profile:
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--enable-logging=stderr", "--v=0", "--dump-dom", page.resolve().as_uri() + view]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, re.findall(r":CONSOLE[:(]\d+\)?\] (.*)", done.stderr)
