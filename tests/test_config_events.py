"""Settings of events and event hooks: what a hook needs, what is refused, that no secret shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from evermirror.config import load, load_config
from evermirror.config.show import as_toml, shown_settings, template
from evermirror.errors import ConfigError
from evermirror.nodes.coordinator.events.delivery_parts import hook_parts

CANARY = "c4n4ry-s3cr3t"
WHOLE = f"""
[events]
retention = "3d"
keep = 5000
[event_hooks.ci]
url_file = "ci-url"
secret = "{CANARY}-2-of-it"
types = ["refs.*", "task.ended"]
repos = ["github.com/acme/*"]
batch = 1
[event_hooks.archive]
url = "http://127.0.0.1:8080/x?token={CANARY}-3"
secret_file = "secret"
ca_file = "ca.pem"
enabled = false
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ci-url").write_text(f"https://ci.example.org/hook/{CANARY}-1\n")
    Path("secret").write_text(f"{CANARY}-4-of-it\n")


def write(text: str) -> Path:
    path = Path("evermirror.toml")
    path.write_text(text)
    return path


def test_hooks_are_read_with_their_secrets_from_files():
    config = load_config(write(WHOLE), {}, {})
    assert (config.events.retention, config.events.keep) == (3 * 86_400, 5000)
    parts = hook_parts(config)
    assert list(parts) == ["ci", "archive"]
    ci, archive = parts["ci"], parts["archive"]
    assert (ci.hook.types, ci.hook.repos, ci.hook.batch) == (
        ("refs.*", "task.ended"),
        ("github.com/acme/*",),
        1,
    )
    assert (ci.enabled, ci.receiver.host) == (True, "ci.example.org")
    assert (archive.hook.types, archive.hook.repos, archive.hook.batch) == (("*",), ("*",), 50)
    assert not archive.enabled
    assert ci.mark != archive.mark


def test_another_url_or_secret_is_another_receiver():
    marks = {
        hook_parts(load_config(write(WHOLE.replace(old, new)), {}, {}))["archive"].mark
        for old, new in (("", ""), ("8080", "8081"), ("ca.pem", "other.pem"))
    }
    Path("secret").write_text("another-secret-of-it")
    marks.add(hook_parts(load_config(write(WHOLE), {}, {}))["archive"].mark)
    assert len(marks) == 4


def test_defaults():
    config = load_config(write(""), {}, {})
    assert (config.events.retention, config.events.keep, config.event_hooks) == (7 * 86_400, 200_000, {})


def test_no_secret_is_shown_and_all_are_known_to_the_log():
    loaded = load(write(WHOLE), {}, {})
    shown = "\n".join(f"{s.name} {as_toml(s.value)} {s.origin}" for s in shown_settings(loaded))
    for text in (shown, repr(loaded), loaded.config.model_dump_json(), repr(hook_parts(loaded.config))):
        assert CANARY not in text
    assert 'event_hooks.ci.url "********"' in shown
    known = loaded.config.secret_values()
    for number in range(1, 5):
        assert any(f"{CANARY}-{number}" in value for value in known), number
    assert f"{CANARY}-3" in known  # also alone, without the URL around it


def test_the_template_has_an_example():
    assert "# [event_hooks.example]" in template()
    assert "# batch = 50" in template()


HOOK = '[event_hooks.a]\nurl = "https://h/x"\n'
SIGNED = HOOK + 'secret = "0123456789abcdef"\n'
WRONG = [
    ('[event_hooks.a]\nsecret = "0123456789abcdef"', "event_hooks.a.url: is missing"),
    (HOOK, "event_hooks.a.secret: is missing"),
    (HOOK + f'secret = "{CANARY[:12]}"', "event_hooks.a.secret: is shorter than 16 letters"),
    (
        f'[event_hooks.a]\nurl = "http://h/{CANARY}"\nsecret = "0123456789abcdef"',
        "event_hooks.a.url: is plain http, which would show it",
    ),
    (f'[event_hooks.a]\nurl = "ftp://{CANARY}"\nsecret = "0123456789abcdef"', "url: is not an http"),
    (
        f'[event_hooks.a]\nurl = "https://u:{CANARY}@h/"\nsecret = "0123456789abcdef"',
        "url: has a user name or a fragment",
    ),
    (
        SIGNED + 'types = ["ref.changed"]',
        "'ref.changed' matches no type of event; there are aggregator.changed,",
    ),
    (SIGNED + "types = []", "event_hooks.a.types: is empty"),
    (SIGNED + 'repos = [""]', "event_hooks.a.repos: is empty"),
    (SIGNED + f"repos = {['x'] * 201}", "event_hooks.a.repos: has more than 200 patterns"),
    (
        SIGNED + "batch = 0",
        "event_hooks.a.batch: 0 is out of bounds; accepted: a whole number (at least 1, at most",
    ),
    (SIGNED + "batch = 501", "event_hooks.a.batch: 501 is out of bounds"),
    (SIGNED + 'enabled = "no"', "event_hooks.a.enabled: 'no' cannot be used; accepted: true or false"),
    (SIGNED + "interval = 5", "event_hooks.a.interval: "),
    (SIGNED.replace("hooks.a", 'hooks."A b"'), "event_hooks.A b: an event hook's name is made of"),
    ('[events]\nretention = "1min"', "events.retention: "),
    ("[events]\nkeep = 10", "events.keep: "),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_what_cannot_be_used_is_told_with_its_place_and_without_secrets(text, told):
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), {}, {})
    assert any(told in problem for problem in caught.value.problems), caught.value.problems
    assert CANARY not in str(caught.value)


def test_all_problems_are_told_together():
    with pytest.raises(ConfigError) as caught:
        load_config(write(HOOK + "batch = 0\n[events]\nkeep = 1\n"), {}, {})
    assert len(caught.value.problems) >= 2
