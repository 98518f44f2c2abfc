"""Settings of alerts, channels, load and expiry: what each type of channel needs; that no secret shows."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from evermirror.config import load, load_config
from evermirror.config.schema import all_settings
from evermirror.config.show import as_toml, shown_settings, template
from evermirror.core.watch.kinds import ALL_KINDS
from evermirror.errors import ConfigError
from evermirror.nodes.senders import make_senders

CANARY = "c4n4ry-s3cr3t"
WHOLE = f"""
[alerts]
language = "zh"
server = "mirror-1"
retention = "30d"
[channels.ding]
type = "dingtalk"
url = "https://oapi.dingtalk.com/robot/send?access_token={CANARY}-1"
secret = "SEC{CANARY}-2"
kinds = ["project-*", "worker-down"]
min_level = "error"
[channels.wecom]
type = "wecom"
url_file = "wecom-url"
language = "en"
[channels.mail]
type = "mail"
host = "smtp.example.org"
username = "robot"
password = "{CANARY}-3"
sender = "evermirror@example.org"
to = ["ops@example.org", "night+oncall@example.org"]
[channels.syslog]
type = "syslog"
address = "log.example.org:6514"
transport = "tls"
ca_file = "ca.pem"
facility = "local5"
[channels.hook]
type = "webhook"
url = "https://sink.internal:8080/x/{CANARY}-4?v=1"
secret = "{CANARY}-5-of-it"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wecom-url").write_text(f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={CANARY}-6\n")


def write(text: str) -> Path:
    path = Path("evermirror.toml")
    path.write_text(text, encoding="utf-8")
    return path


def test_channels_of_every_type_are_read():
    config = load_config(write(WHOLE), {}, {})
    assert list(config.channels) == ["ding", "wecom", "mail", "syslog", "hook"]
    ding, mail = config.channels["ding"], config.channels["mail"]
    assert (ding.kinds, ding.min_level, ding.language) == (("project-*", "worker-down"), "error", "auto")
    assert (mail.smtp_port, mail.tls, mail.to[1]) == (587, "starttls", "night+oncall@example.org")
    assert (config.alerts.language, config.alerts.server, config.alerts.retention) == (
        "zh",
        "mirror-1",
        30 * 86400,
    )
    assert {name: type(s).__name__ for name, s in make_senders(config).items()} == {
        "ding": "DingTalk",
        "wecom": "WeCom",
        "mail": "Mail",
        "syslog": "Syslog",
        "hook": "Webhook",
    }


def test_defaults_are_those_of_the_specification():
    config = load_config(None, {}, {})
    assert config.channels == {}
    a = config.alerts
    assert (a.language, a.server, a.retention) == ("en", None, 90 * 86400)
    assert (a.per_minute, a.digest_items) == (20, 20)
    assert (a.settle, a.give_up, a.waiting_max, a.standing_max) == (600, 86400, 1000, 1000)
    assert (config.pull.load_metrics, config.pull.load_every) == ((), 15)


def test_no_secret_of_a_channel_is_shown_and_all_are_known_to_the_log():
    loaded = load(write(WHOLE), {}, {})
    shown = "\n".join(f"{s.name} {as_toml(s.value)} {s.origin}" for s in shown_settings(loaded))
    senders = make_senders(loaded.config)
    for text in (shown, repr(loaded), str(loaded.config), loaded.config.model_dump_json(), repr(senders)):
        assert CANARY not in text
    assert 'channels.ding.url "********" evermirror.toml:' in shown
    assert 'channels.wecom.url "********" evermirror.toml:' in shown
    known = loaded.config.secret_values()
    for number in range(1, 7):
        assert any(f"{CANARY}-{number}" in value for value in known), number
    assert f"{CANARY}-1" in known  # also alone, without the URL around it


def test_settings_are_shown_channel_by_channel():
    shown = (s.name.split(".") for s in shown_settings(load(write(WHOLE), {}, {})))
    names = [path[1] for path in shown if path[0] == "channels"]
    order = ["ding", "wecom", "mail", "syslog", "hook"]
    assert set(names) == set(order)
    assert sorted(names, key=order.index) == names


def test_of_a_channel_only_what_means_something_to_its_type_is_shown():
    shown = [s.name for s in shown_settings(load(write(WHOLE), {}, {}))]
    common = ["type", "min_level", "kinds", "language"]
    expected = {
        "ding": [*common, "url", "secret", "ca_file"],
        "wecom": [*common, "url", "ca_file"],
        "mail": [*common, "host", "port", "tls", "username", "password", "sender", "to", "ca_file"],
        "syslog": [*common, "address", "transport", "facility", "ca_file"],
        "hook": [*common, "url", "secret", "ca_file"],
    }
    for name, keys in expected.items():
        prefix = f"channels.{name}."
        assert [s.removeprefix(prefix) for s in shown if s.startswith(prefix)] == keys


DING = '[channels.a]\ntype = "dingtalk"\n'
HOOK = '[channels.a]\ntype = "webhook"\nsecret = "0123456789abcdef"\n'
MAIL = '[channels.a]\ntype = "mail"\nhost = "h"\nsender = "a@b.example"\nto = ["c@d.example"]\n'
BAD = [
    ('[channels.a]\nmin_level = "error"', "channels.a.type: is missing; accepted: one of dingtalk, wecom,"),
    ('[channels.a]\ntype = "smoke"', "channels.a.type: 'smoke' cannot be used; accepted: one of dingtalk,"),
    ('[channels."A b"]\ntype = "wecom"\nurl = "https://h"', "channels.A b: a channel's name is made of"),
    (DING, "channels.a.url: is missing: a channel of type dingtalk needs it"),
    (DING + f'url = "https:{CANARY}"', "channels.a.url: is not an http:// or https:// URL"),
    (DING + f'url = "https://h/ä{CANARY}"', "channels.a.url: is not an http:// or https:// URL"),
    (DING + f'url = "https://h/\\r\\n{CANARY}"', "channels.a.url: is not an http:// or https:// URL"),
    (DING + f'url = "https://h:x/{CANARY}"', "channels.a.url: is not an http:// or https:// URL"),
    (DING + f'url = "https://u:{CANARY}@h/"', "channels.a.url: has a user name or a fragment"),
    (DING + f'url = "http://h/{CANARY}"', "channels.a.url: is plain http, which would show it and what is"),
    (
        HOOK + f'url = "http://h/{CANARY}"',
        "channels.a.url: is plain http, which would show it and what is sent",
    ),
    (
        HOOK.replace("9abcdef", "") + 'url = "https://h/"',
        "channels.a.secret: is shorter than 16 letters, and can be guessed",
    ),
    (MAIL.replace('"h"', '"h\\r\\nX"'), "is not a host such as"),
    (MAIL.replace('"h"', '"h:25"'), "channels.a.host: 'h:25' is not a host such as"),
    (MAIL.replace('"h"', '""'), "channels.a.host: '' is not a host such as"),
    (DING + 'url = "https://h/"\nhost = "x"', "channels.a.host: means nothing to a channel of type dingtalk"),
    (HOOK, "channels.a.url: is missing: a channel of type webhook needs it"),
    ('[channels.a]\ntype = "webhook"\nurl = "https://h"', "channels.a.secret: is missing: a channel of type"),
    (HOOK + 'url = "https://h/"\nkinds = ["projct-*"]', "channels.a.kinds: 'projct-*' matches no kind of"),
    (HOOK + 'url = "https://h/"\nlanguage = "fr"', "channels.a.language: 'fr' cannot be used; accepted: one"),
    (MAIL + 'username = "u"', "channels.a.password: is missing: username and password come together"),
    (
        MAIL + f'username = "u"\npassword = "{CANARY}"\ntls = "none"',
        "channels.a.tls: is none, which would show",
    ),
    (MAIL.replace("c@d.example", "c@d\\r\\nBcc: x@y"), "is not a mail address such as"),
    (MAIL.replace("c@d.example", "a b"), "channels.a.to: 'a b' is not a mail address such as"),
    (MAIL.replace('["c@d.example"]', "[]"), "channels.a.to: is missing: a channel of type mail needs it"),
    (
        MAIL.replace("a@b.example", "Ops <a@b.example>"),
        "channels.a.sender: 'Ops <a@b.example>' is not a mail",
    ),
    (MAIL + "port = 0", "channels.a.port: 0 is out of bounds"),
    ('[channels.a]\ntype = "syslog"', "channels.a.address: is missing"),
    ('[channels.a]\ntype = "syslog"\naddress = "h:0"', "channels.a.address: has the port 0"),
    ('[channels.a]\ntype = "syslog"\naddress = "h"', "channels.a.address: 'h' has no port"),
    (
        '[channels.a]\ntype = "syslog"\naddress = "h:1"\nfacility = "mail"',
        "channels.a.facility: 'mail' cannot",
    ),
    ("[alerts]\nper_minute = 0", "alerts.per_minute: 0 is out of bounds"),
    ('[alerts]\nlanguage = "fr"', "alerts.language: 'fr' cannot be used; accepted: one of en, zh"),
    ('[alerts]\nsettle = "0s"', "alerts.settle: '0s' is out of bounds"),
    ('[alerts]\nretention = "1h"', "alerts.retention: '1h' is out of bounds"),
    ('[pull]\nload_metrics = ["ftp://h/m"]', "pull.load_metrics: 'ftp://h/m' is not a URL such as"),
    (f'[pull]\nload_metrics = ["http://u:{CANARY}@h/m"]', "pull.load_metrics: has a URL with a user name"),
    ('[pull]\nload_every = "10ms"', "pull.load_every: '10ms' is out of bounds"),
    (
        '[credentials.a]\ntoken = "t"\nexpires = "soon"',
        "credentials.a.expires: 'soon' is not a day; accepted:",
    ),
    ('[credentials.a]\ntoken = "t"\nexpires = 2027-01-01T00:00:00Z', "credentials.a.expires:"),
    ("channels = 3", "channels: is a section"),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_a_mistake_is_told_with_its_setting_and_without_secrets(text, expected):
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), {}, {})
    assert len(caught.value.problems) == 1, caught.value.problems
    assert expected in caught.value.problems[0]
    assert CANARY not in caught.value.problems[0]


def test_mistakes_in_several_channels_are_told_together():
    text = DING + MAIL.replace("channels.a", "channels.b") + "port = 0\n[alerts]\nper_minute = 0\n"
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), {}, {})
    assert len(caught.value.problems) == 3


def test_a_channel_may_come_from_the_environment_and_its_secret_from_a_file():
    env = {
        "EVERMIRROR_CHANNELS__OPS__TYPE": "wecom",
        "EVERMIRROR_CHANNELS__OPS__URL__FILE": "wecom-url",
        "EVERMIRROR_CHANNELS__OPS__KINDS": '["failure-rate"]',
    }
    channel = load_config(None, env, {}).channels["ops"]
    assert channel.url is not None
    assert channel.url.get_secret_value().endswith(f"key={CANARY}-6")
    assert channel.kinds == ("failure-rate",)


def test_on_this_machine_alone_plain_connections_show_nothing():
    text = DING + 'url = "http://127.0.0.1:1/?access_token=x"\n'
    text += MAIL.replace("channels.a", "channels.b").replace('"h"', '"localhost"')
    text += 'username = "u"\npassword = "p"\ntls = "none"\n'
    config = load_config(write(text), {}, {})
    assert config.channels["b"].smtp_port == 25


@pytest.mark.parametrize("written", ['"2027-06-30"', "2027-06-30"])
def test_a_day_is_written_as_text_or_as_toml_has_it(written):
    loaded = load(write(f'[credentials.a]\ntoken = "t"\nexpires = {written}'), {}, {})
    assert loaded.config.credentials["a"].expires == date(2027, 6, 30)
    shown = {s.name: s.value for s in shown_settings(loaded)}
    assert as_toml(shown["credentials.a.expires"]) == '"2027-06-30"'
    again = load_config(
        None, {"EVERMIRROR_CREDENTIALS__A__EXPIRES": "2027-06-30"}, {"credentials.a.token": "t"}
    )
    assert again.credentials == loaded.config.credentials


@pytest.mark.parametrize("kind", sorted(ALL_KINDS))
def test_every_kind_can_be_asked_for(kind):
    config = load_config(write(HOOK + f'url = "https://h/"\nkinds = ["{kind}"]'), {}, {})
    assert config.channels["a"].kinds == (kind,)


def test_config_init_explains_every_setting_of_a_channel():
    text = template()
    for setting in all_settings():
        if setting.path[0] == "channels":
            assert f"# # {setting.description}\n# {setting.path[-1]} = " in text
