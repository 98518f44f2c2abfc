"""The pictures in docs/images, taken of the same house that the tests look at: ``make screenshots``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.browsing import Browsing, Contexts, chromium
from tests.browser.house import House, house_of
from tests.browser.png import squeezed
from tests.support.quick_disk import quick_folder

IMAGES = Path(__file__).parents[2] / "docs" / "images"
BYTES_MAX = 150_000  # they are cloned by everybody
PICTURES = {
    "dashboard": {},
    "dashboard-dark": {"dark": True},
    "dashboard-zh": {"locale": "zh-CN"},
    "dashboard-phone": {"width": 390, "height": 844},
}


def take(browsing: Browsing, folder: Path) -> list[Path]:
    """All of them; each is of the whole window, in its own size."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, how in PICTURES.items():
        page = browsing.open(**how)
        expect(page.locator("#state .good").first).to_be_visible()
        expect(page.locator("#view svg").first).to_be_attached()
        file = folder / f"{name}.png"
        file.write_bytes(squeezed(page.screenshot(animations="disabled", caret="hide")))
        made.append(file)
    browsing.check()
    return made


def _take_of(house: House, folder: Path) -> list[Path]:
    with chromium() as browser:
        browsing = Browsing(Contexts(browser), house.url, house.tokens)
        try:
            return take(browsing, folder)
        finally:
            browsing.close()


def main() -> int:
    with (
        tempfile.TemporaryDirectory(dir=quick_folder(), prefix="house-") as folder,
        house_of(Path(folder)) as house,
    ):
        made = _take_of(house, IMAGES)
    for file in made:
        print(f"{file.relative_to(IMAGES.parents[1])}: {file.stat().st_size:,} bytes")
    large = [file.name for file in made if file.stat().st_size > BYTES_MAX]
    if large:
        print(f"larger than {BYTES_MAX:,} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
