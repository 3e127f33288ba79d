"""A real Chromium for the pages that we write: offline, headless, from file://, its console and its requests watched.

Debian's packages `chromium` and `chromium-driver`, and npm's axe-core for what a screen reader would stumble over. Where one
of them is missing, tests are skipped.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from needs import missing

NEEDED = "chromium", "chromedriver"
AXE = Path(__file__).parents[1] / "browser/node_modules/axe-core/axe.min.js"
LOCAL = "file:", "data:", "blob:", "about:", "chrome:", "devtools:"
GRAVE = {"serious", "critical"}


class Browser:
    """One window; every page in it starts with an empty log."""

    def __init__(self) -> None:
        if not all(map(shutil.which, NEEDED)):
            pytest.skip(missing("browser"))
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND"
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", nowhere):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(60)

    def open(self, page: Path, fragment: str = "", width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page from disk, in a window of this size."""
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.cdp("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(page.resolve().as_uri() + fragment)

    def cdp(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def js(self, script: str, *arguments: Any) -> Any:
        """What a function body returns; a promise is waited for."""
        call = f"const done = arguments[arguments.length - 1]; (async function() {{ {script} }}).apply(null, arguments)"
        found = self.driver.execute_async_script(
            call + ".then(value => done([value, null]), error => done([null, String(error)]));", *arguments
        )
        assert found[1] is None, found[1]
        return found[0]

    def click(self, css: str) -> None:
        self.driver.find_element("css selector", css).click()

    def type(self, css: str, text: str) -> None:
        """Put a text into a field in place of what it holds, as keys do."""
        field = self.driver.find_element("css selector", css)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Keys for whatever has the focus; names as in selenium's Keys, or characters."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            ActionChains(self.driver).send_keys(getattr(Keys, key, key)).perform()

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the page was opened."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened that are not on this machine."""
        events = (json.loads(line["message"])["message"] for line in self.driver.get_log("performance"))
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(LOCAL)]

    def picture(self, out: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        out.write_bytes(b64decode(shot["data"]))

    def wide(self) -> bool:
        """Whether the page is wider than the window: a phone would have to be pushed sideways."""
        return bool(self.js("return document.documentElement.scrollWidth > window.innerWidth + 1"))

    def faults(self) -> list[str]:
        """What axe-core calls serious or critical."""
        if not AXE.exists():
            pytest.skip(missing("axe"))
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found = self.js("return (await axe.run()).violations")
        return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in GRAVE]

    def close(self) -> None:
        self.driver.quit()
