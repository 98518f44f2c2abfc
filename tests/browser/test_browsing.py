"""The tests' own eyes: whatever a page must never do is seen."""

from __future__ import annotations

import pytest

from tests.browser.axe import violations
from tests.browser.browsing import WITHIN_MS
from tests.browser.png import rows_of, squeezed

LOOK_MS = 20
FAULTS = {
    "an error in the log": ("console.error('oh')", "oh"),
    "an uncaught error": ("setTimeout(() => { throw new Error('oh no') })", "oh no"),
    "a script in the page": (
        "const s = document.createElement('script'); s.textContent = '1'; document.body.append(s)",
        "policy: script-src",
    ),
    "a picture from elsewhere": (
        "const i = new Image(); i.src = 'http://127.0.0.9:1/x.png'; document.body.append(i)",
        "policy: img-src",
    ),
    "a question to elsewhere": ("fetch('http://127.0.0.9:1/x').catch(() => {})", "policy: connect-src"),
    "a way to elsewhere": ("location.href = 'http://127.0.0.9:1/'", "another server was asked"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_no_page_may_do_is_seen(browse, what):
    page = browse.open("/docs")
    script, told = FAULTS[what]
    page.evaluate(f"() => {{ {script} }}")
    for _ in range(WITHIN_MS // LOOK_MS):
        if any(told in fault for fault in browse.faults):
            break
        page.wait_for_timeout(LOOK_MS)
    else:
        pytest.fail(f"not seen; but: {browse.faults}")
    browse.allow("")


def test_axe_sees_a_field_without_a_name(browse):
    page = browse.open("/docs")
    assert not any("label" in found for found in violations(page))
    page.evaluate("document.body.append(document.createElement('input'))")
    assert any("label" in found for found in violations(page))


def test_a_squeezed_picture_is_the_same_picture(browse):
    taken = browse.open("/docs").screenshot(clip={"x": 0, "y": 0, "width": 300, "height": 100})
    assert len(squeezed(taken)) < len(taken)
    assert rows_of(squeezed(taken)) == rows_of(taken)
    assert len(set(rows_of(taken))) > 10  # there is something on it
