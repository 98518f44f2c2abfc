"""Settings: layers, problems told with their place, secrets never shown, a template that cannot go stale."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evermirror.config import Config, OriginKind, load, load_config, split_host_port
from evermirror.config.schema import all_settings
from evermirror.config.show import as_toml, shown_settings, template, without_password
from evermirror.config.toml_lines import key_lines
from evermirror.errors import ConfigError, ExitCode
from evermirror.model.source import CatalogSource
from evermirror.nodes.basics import credentials_of

CANARY = "c4n4ry-s3cr3t-w0rd"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "evermirror.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(
    text: str = "", env: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), env or {}, flags or {})
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.problems


def test_the_database_is_in_the_data_folder_where_none_is_set():
    assert load_config(None, {}, {}).store_url == "sqlite:///data/evermirror.db"


def test_flags_come_before_environment_before_file_before_defaults():
    file = write('[fleet]\ngrace = "1m"\nheartbeat = "1s"\n[schedule]\nslots = 3\n')
    loaded = load(
        file, {"EVERMIRROR_FLEET__GRACE": "2m", "EVERMIRROR_SCHEDULE__SLOTS": "4"}, {"schedule.slots": 5}
    )
    assert (loaded.config.fleet.heartbeat, loaded.config.fleet.grace, loaded.config.schedule.slots) == (
        1,
        120,
        5,
    )
    kinds = [
        loaded.origin(p).kind for p in [("fleet", "heartbeat"), ("fleet", "grace"), ("schedule", "slots")]
    ]
    assert kinds == [OriginKind.FILE, OriginKind.ENV, OriginKind.FLAG]
    assert loaded.origin(("schedule", "policy")).kind is OriginKind.DEFAULT
    assert str(loaded.origin(("fleet", "heartbeat"))) == "evermirror.toml:3"


def test_file_is_looked_for_here_then_in_the_users_folder(tmp_path):
    users = tmp_path / "xdg" / "evermirror"
    users.mkdir(parents=True)
    (users / "evermirror.toml").write_text("[schedule]\nslots = 7\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert load_config(None, env, {}).schedule.slots == 7
    assert load_config(None, {"HOME": str(tmp_path / "nobody")}, {}).schedule.slots == 10
    write("[schedule]\nslots = 8\n")
    assert load_config(None, env, {}).schedule.slots == 8


BAD_FILES = [
    ('[server]\nlisten = "nope"', "evermirror.toml:2: server.listen: 'nope' has no port"),
    ('[server]\n\nlisten = "h:70000"', "evermirror.toml:3: server.listen:"),
    ("[server]\nlisten = 8420", 'evermirror.toml:2: server.listen: 8420 is not text; accepted: "HOST:PORT"'),
    ('[server]\ntls_cert = "x.pem"', "server.tls_key: is missing: tls_cert and tls_key come together"),
    ('[schedule]\npolicy = "magic"', "accepted: one of adaptive, cbrt-age, fixed"),
    (
        '[schedule]\nslots = "many"',
        "evermirror.toml:2: schedule.slots: 'many' cannot be used; accepted: a whole number",
    ),
    ("[schedule]\nslots = 0", "schedule.slots: 0 is out of bounds; accepted: a whole number (at least 1)"),
    ("[schedule]\nslots = true", "schedule.slots: true cannot be used"),
    ("[schedule]\nslots = 2.5", "schedule.slots: 2.5 cannot be used"),
    ("[schedule]\npolls_per_second = inf", "schedule.polls_per_second:"),
    (
        "[schedule]\npolls_per_second = 1e-306",
        "schedule.polls_per_second: 1e-306 is out of bounds; accepted: a number (at least 1e-05)",
    ),
    (
        '[limits]\nhost_rate = "0.01/h"',
        "limits.host_rate: '0.01/h' is out of bounds; accepted: a rate such as",
    ),
    (
        '[schedule]\nmin_gap = "2h"\nmax_gap = "1h"',
        "evermirror.toml:2: schedule.min_gap: 7200 s is longer than max_gap",
    ),
    (
        "[schedule]\nmin_gap = 5",
        "schedule.min_gap: '5' is not a duration; accepted: a duration such as 500ms",
    ),
    (
        '[schedule]\nmin_gapp = "5s"',
        "evermirror.toml:2: schedule.min_gapp: is not a setting; did you mean schedule.min_gap?",
    ),
    ('[limits]\nmax_gap = "5s"', "limits.max_gap: is not a setting; did you mean schedule.max_gap?"),
    ("[nonsense]\nx = 1", "evermirror.toml:2: nonsense.x: is not a setting"),
    ("[nonsense]", "evermirror.toml:1: nonsense: is not a setting"),
    ("fleet = 3", "evermirror.toml:1: fleet: is a section: write [fleet]"),
    ("[server]\nlisten = {a = 1}", "evermirror.toml:2: server.listen: {'a': 1} is not text"),
    ("[server.listen]\na = 1", "evermirror.toml:1: server.listen: {'a': 1} is not text"),
    ("[[fleet]]\ngrace = '1s'", "evermirror.toml:1: fleet: is a section"),
    ('[fleet]\ngrace = "soon"', "evermirror.toml:2: fleet.grace: 'soon' is not a duration"),
    (
        "[fleet]\ndisk_high = 1.5",
        "fleet.disk_high: 1.5 is out of bounds; accepted: a number (above 0, at most 1)",
    ),
    ('[upstreams]\nschemes = ["https", "ftp"]', "upstreams.schemes: 'ftp' is not one of https, http, ssh"),
    ("[upstreams]\nschemes = []", "upstreams.schemes: is empty"),
    ('[upstreams]\nallow = [\n  "a b",\n]', "evermirror.toml:2: upstreams.allow: 'a b'"),
    (
        '[server]\ntrusted_proxies = ["proxy.example.org"]',
        "evermirror.toml:2: server.trusted_proxies: 'proxy.example.org' is neither an address nor a network",
    ),
    ('[server]\ntrusted_proxies = ["10.0.0.1/8"]', "server.trusted_proxies: '10.0.0.1/8' is neither"),
    ('[server]\ntrusted_proxies = ["0.0.0.0/0"]', "server.trusted_proxies: '0.0.0.0/0' is everybody"),
    ('[upstreams]\nrefs_extra = ["refs/archive/"]', "upstreams.refs_extra: 'refs/archive/' is evermirror's"),
    ('[upstreams]\nrefs_extra = ["heads"]', "upstreams.refs_extra: 'heads' is not a ref prefix"),
    ('[client]\nserver = "socks"', "client.server: is not an http:// or https:// URL"),
    ("[catalog]\nsources = 'x'", "catalog.sources: 'x' is not a list of paths, git URLs or tables such as"),
    (
        "[catalog]\nsources = ['https://u:p@h/lists.git']",
        "catalog.sources: 'https://h/lists.git': the URL carries a user name or password",
    ),
    ("[catalog]\nsources = ['a.txt', 'h:x']", "'h:x': this is not a URL"),
    ("[catalog]\nsources = ['ext::x']", "git's transport helpers"),
    ("[catalog]\nsources = ['file:///x']", "file:// is not a supported transport"),
    ("[catalog]\nsources = ['']", "catalog.sources: '' is neither a path nor a URL"),
    ("[catalog]\nsources = [1]", "catalog.sources: 1 is neither a path, a URL nor a table"),
    ("[catalog]\nsources = ['x', {url = 'x'}]", "catalog.sources: 'x' is given twice"),
    ("[catalog]\nsources = [{url = 'x', brunch = 'y'}]", "a source has no 'brunch': known are url, branch,"),
    ("[catalog]\nsources = [{branch = 'y'}]", "'' is neither a path nor a URL"),
    ("[catalog]\nsources = [{url = 'x', branch = '-y'}]", "'-y' is not usable as the branch"),
    ("[catalog]\nsources = [{url = 'x', branch = 'a..b'}]", "'a..b' is not usable as the branch"),
    ("[catalog]\nsources = [{url = 'x', path = '../y'}]", "'../y' is not usable as the path"),
    ("[catalog]\nsources = [{url = 'x', writable = 'yes'}]", "writable must be true or false"),
    (
        "[catalog]\nsources = [{url = 'x', writable = true}, {url = 'y', writable = true}]",
        "more than one source is writable",
    ),
    ("[catalog]\nsources = [{url = 'x', credential = 'c'}]", "'x' names the credential 'c', which is none"),
    (
        "[catalog]\nsources = [{url = 'http://h/x', credential = 'c'}]\n[credentials.c]\ntoken = 't'",
        "plain http would show it to everybody",
    ),
    ("[catalog]\nmax_removed_share = 2", "catalog.max_removed_share: 2"),
    ('[auth]\ntokens_required = "maybe"', "accepted: one of auto, true, false"),
    ('[auth]\npublic_reads = "yes"', "auth.public_reads: 'yes' cannot be used; accepted: true or false"),
    ('[database]\nurl = "mysql://x"', "database.url: is neither postgresql://… nor sqlite:///…"),
    ("[credentials.a]\npassword = 3", "evermirror.toml:2: credentials.a.password: is not text"),
    (
        "[credentials.a]\nusername = 'u'",
        "credentials.a.token: is missing: give one of password, token, ssh_key_file",
    ),
    ('[credentials.a]\ntoken = "x"\npassword = "y"', "credentials.a.token: and password are both given"),
    ('[credentials."A b"]\ntoken = "x"', "evermirror.toml:2: credentials.A b: a credential's name"),
    ('[credentials.a]\ntokn = "x"', "credentials.a.tokn: is not a setting"),
    ("[credentials]\na = 1", "credentials.a: is a section"),
    ('[credentials.a]\ntoken = "x"\nhosts = ["https://git.example.org"]', "is not a host such as"),
    ('[credentials.a]\ntoken = "x"\nhosts = ["ok.org", "a b"]', "'a b' is not a host such as"),
    ('[credentials.a]\ntoken = "x"\nforge_url = "https://git.example.org/lab"', "forge_url needs it"),
    (
        '[credentials.a]\ntoken = "x"\nforge = "gitlab"\nforge_url = "https://git.example.org/api/v4"',
        "is written without /api",
    ),
    (
        '[credentials.a]\ntoken = "x"\nforge = "gitlab"\nforge_url = "https://me:pw@git.example.org"',
        "has more than scheme, host and path",
    ),
    ('[credentials.a]\ntoken = "x"\nforge = "gitlab"\nforge_url = "ssh://git.example.org"', "http"),
    ('[credentials.a]\ntoken = "x"\nhosts = ["git.example.org:99x"]', "is not a host such as"),
    ('[worker]\ntoken_file = "/nowhere/x"', "worker.token_file: '/nowhere/x' cannot be read: No such file"),
    ("[worker]\ntoken_file = 3", "worker.token_file: is not a path"),
    ('[worker]\ntoken = "a"\ntoken_file = "b"', "evermirror.toml:3: worker.token_file: given twice"),
    ('[worker]\ntoken = ""', "worker.token: is empty"),
    ("[log]\nlevel = 'loud'", "accepted: one of debug, info, warning, error"),
    (
        '[scheduled_jobs.progress_statistics]\ncron = "*/5 * * * *"',
        "evermirror.toml:2: scheduled_jobs.progress_statistics.cron: '*/5 * * * *' has 5 fields instead of 6",
    ),
    (
        '[scheduled_jobs.task_cleanup]\ncron = "0 0 25 * * ?"',
        "scheduled_jobs.task_cleanup.cron: '0 0 25 * * ?': '25' cannot be used for hours (0-23, *, lists, "
        'ranges, steps such as */5); accepted: a Quartz cron expression such as "0 */10 * * * ?" (seconds',
    ),
    (
        "[scheduled_jobs.pull_scheduler]\ncron = 5",
        "scheduled_jobs.pull_scheduler.cron: 5 is not text; accepted: a Quartz cron expression",
    ),
    (
        '[scheduled_jobs.error_monitoring]\ncron = "0 0 0 31 FEB ?"',
        "scheduled_jobs.error_monitoring.cron: '0 0 0 31 FEB ?' never comes",
    ),
    ("[scheduled_jobs]\npull_scheduler = 3", "scheduled_jobs.pull_scheduler: is a section: write"),
    ("[scheduled_jobs.task_cleanup]\nretention_days = 0", "task_cleanup.retention_days: 0 is out of bounds"),
    ("[scheduled_jobs.tidying]\nenabled = true", "scheduled_jobs.tidying.enabled: is not a setting"),
    ("[retry_policy]\nbackoff_multiplier = 0.5", "retry_policy.backoff_multiplier: 0.5 is out of bounds"),
    ("[retry_policy]\nmax_retries = 101", "retry_policy.max_retries: 101 is out of bounds"),
    ('[pull]\ntime_zone = "Mars/Base"', "pull.time_zone: 'Mars/Base' is not a time zone such as"),
    ("[server\n", "evermirror.toml:1: is not TOML:"),
    ("[server]\nlisten = ", "is not TOML:"),
    ("[server]\nlisten = 'a:1'\nlisten = 'b:1'", "evermirror.toml:3: is not TOML: Cannot overwrite a value"),
]


@pytest.mark.parametrize(("text", "expected"), BAD_FILES)
def test_a_bad_file_is_told_with_line_setting_problem_and_what_is_accepted(text, expected):
    problems = problems_of(text)
    assert len(problems) == 1, problems
    assert expected in problems[0]


JOBS = {
    "pull_scheduler": None,
    "progress_statistics": "0 */5 * * * ?",
    "error_monitoring": "0 */10 * * * ?",
    "task_cleanup": "0 0 2 * * ?",
}


@pytest.mark.parametrize(("name", "cron"), JOBS.items())
def test_a_scheduled_job_has_a_cron_and_can_be_switched_off(name, cron):
    def job(text="", env=None):
        return getattr(load_config(write(text), env or {}, {}).scheduled_jobs, name)

    assert (job().cron, job().enabled) == (cron, True)
    set_ = job(f'[scheduled_jobs.{name}]\ncron = "0 0 2 ? * FRI"\nenabled = false')
    assert (set_.cron, set_.enabled) == ("0 0 2 ? * FRI", False)
    prefix = f"EVERMIRROR_SCHEDULED_JOBS__{name.upper()}"
    told = job(env={f"{prefix}__CRON": "0 */7 * * * ?", f"{prefix}__ENABLED": "false"})
    assert (told.cron, told.enabled) == ("0 */7 * * * ?", False)


def test_the_retry_policy_and_the_retention_are_settings():
    config = load_config(
        write(
            "[scheduled_jobs.task_cleanup]\nretention_days = 7\n"
            "[retry_policy]\nmax_retries = 5\nretry_delay = 1.5\nbackoff_multiplier = 3\n"
        ),
        {},
        {},
    )
    assert config.scheduled_jobs.task_cleanup.retention_days == 7
    policy = config.retry_policy
    assert (policy.max_retries, policy.retry_delay, policy.backoff_multiplier) == (5, 1.5, 3)


def test_all_problems_of_all_layers_are_told_together():
    problems = problems_of(
        '[fleet]\ngrace = "soon"\n[schedule]\nslots = 0\nmin_gap = "x"\n[zzz]\na = 1\n',
        {"EVERMIRROR_WORKER__WEIGHT": "abc", "EVERMIRROR_NOT__THERE": "1"},
        {"server.listen": "x"},
    )
    assert len(problems) == 7
    assert sum(p.startswith("evermirror.toml:") for p in problems) == 4
    assert any(p.startswith("environment EVERMIRROR_WORKER__WEIGHT: worker.weight: 'abc'") for p in problems)
    assert any(p.startswith("command line: server.listen:") for p in problems)


@pytest.mark.parametrize("content", [None, b"\xff\xfe[x]", b"#" * 1_000_001])
def test_an_unreadable_file_is_one_clear_problem(content):
    path = Path("given.toml")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith("given.toml:")


@pytest.mark.parametrize(
    ("name", "value", "get", "expected"),
    [
        ("EVERMIRROR_FLEET__GRACE", "30s", lambda c: c.fleet.grace, 30.0),
        (
            "EVERMIRROR_CATALOG__SOURCES",
            '["a.txt", "b.txt"]',
            lambda c: [s.place for s in c.catalog.sources],
            ["a.txt", "b.txt"],
        ),
        ("EVERMIRROR_SCHEDULE__SLOTS", "3", lambda c: c.schedule.slots, 3),
        ("EVERMIRROR_SCHEDULE__MAX_GAP", "none", lambda c: c.schedule.max_gap, None),
        ("EVERMIRROR_SCHEDULE__POLLS_PER_SECOND", "0.5", lambda c: c.schedule.polls_per_second, 0.5),
        ("EVERMIRROR_LIMITS__HOST_RATE", "300/m", lambda c: c.limits.host_rate, 5.0),
        ("EVERMIRROR_UPSTREAMS__MAX_REPO_SIZE", "10GB", lambda c: c.upstreams.max_repo_size, 10**10),
        ("EVERMIRROR_AUTH__TOKENS_REQUIRED", "true", lambda c: c.auth.tokens_required, True),
        ("EVERMIRROR_AUTH__TOKENS_REQUIRED", "auto", lambda c: c.auth.tokens_required, "auto"),
        ("EVERMIRROR_AUTH__PUBLIC_READS", "false", lambda c: c.auth.public_reads, False),
        ("EVERMIRROR_WORKER__NAME", "123", lambda c: c.worker.name, "123"),
        ("EVERMIRROR_DATA__DIR", "/srv/x", lambda c: c.data.dir, Path("/srv/x")),
        (
            "EVERMIRROR_CREDENTIALS__CORP__TOKEN",
            "123",
            lambda c: c.credentials["corp"].token.get_secret_value(),
            "123",
        ),
        (
            "EVERMIRROR_WEBHOOKS__SECRETS",
            '{"h": "one of sixteen or more"}',
            lambda c: c.webhooks.secrets["h"].get_secret_value(),
            "one of sixteen or more",
        ),
        ("EVERMIRROR_FLEET__GRACE", "", lambda c: c.fleet.grace, 600.0),
    ],
)
def test_environment_forms(name, value, get, expected):
    assert get(load_config(None, {name: value}, {})) == expected


def test_a_source_may_have_a_colon_after_a_slash_and_begin_with_the_home():
    config = load_config(None, {}, {"catalog.sources": ["./a:b", "/x/c:d", "~/urls"]})
    places = [source.place for source in config.catalog.sources]
    assert places == ["./a:b", "/x/c:d", str(Path("~/urls").expanduser())]
    assert not any(source.is_address for source in config.catalog.sources)


def test_hosts_of_a_credential_are_written_as_keys_have_them():
    hosts = ["Git.Example.org", "git.example.org:8443", "[2001:DB8::1]:8443"]
    forge = {"credentials.c.forge": "gitlab", "credentials.c.forge_url": "https://git.example.org/lab/"}
    config = load_config(None, {}, {"credentials.c.token": "t", "credentials.c.hosts": hosts, **forge})
    assert config.credentials["c"].hosts == ("git.example.org", "git.example.org:8443", "[2001:db8::1]:8443")
    assert credentials_of(config).by_name["c"].hosts == frozenset(config.credentials["c"].hosts)
    assert credentials_of(config).by_name["c"].forge_url == "https://git.example.org/lab"


def test_a_source_in_git_has_a_branch_a_path_and_a_credential_and_is_shown_as_it_is_written():
    text = (
        '[catalog]\nsources = ["urls.txt", "git@h.example:team/c.git", {url = "https://h.example/c.git", '
        'branch = "main", path = "urls/", credential = "c", writable = true}]\n[credentials.c]\ntoken = "t"\n'
    )
    loaded = load(write(text), {})
    assert loaded.config.catalog.sources == (
        CatalogSource("urls.txt"),
        CatalogSource("ssh://git@h.example/team/c.git"),
        CatalogSource("https://h.example/c.git", "main", "urls", "c", True),
    )
    shown = next(s for s in shown_settings(loaded) if s.name == "catalog.sources")
    again = load_config(None, {}, {"catalog.sources": shown.value, "credentials.c.token": "t"})
    assert again.catalog.sources == loaded.config.catalog.sources


def test_the_command_lines_own_variables_and_strangers_are_not_settings():
    env = {
        "EVERMIRROR_SERVER": "http://x",
        "EVERMIRROR_TOKEN": "t",
        "EVERMIRROR_CONFIG": "c",
        "EVERMIRROR_DEBUG": "1",
    }
    env |= {
        "EVERMIRROR_SERVICE_HOST": "10.0.0.1",
        "EVERMIRROR_PORT": "tcp://10.0.0.1:80",
    }  # as Kubernetes sets them
    assert load_config(None, env, {}) == Config()


def test_a_forgotten_underscore_is_told():
    assert problems_of(env={"EVERMIRROR_FLEET_GRACE": "5s"}) == [
        "environment EVERMIRROR_FLEET_GRACE: is not read; did you mean EVERMIRROR_FLEET__GRACE?"
    ]


def test_a_list_in_the_environment_that_is_no_json_is_told_with_its_form():
    (problem,) = problems_of(env={"EVERMIRROR_CATALOG__SOURCES": "a.txt"})
    assert "is not a list of paths, git URLs or tables such as" in problem


@pytest.mark.parametrize("layer", ["toml", "env", "env-short"])
def test_secrets_can_come_from_files(layer):
    Path("secret").write_text(CANARY + "\n")
    text = '[worker]\ntoken_file = "secret"\n' if layer == "toml" else ""
    env = {
        "env": {"EVERMIRROR_WORKER__TOKEN__FILE": "secret"},
        "env-short": {"EVERMIRROR_WORKER__TOKEN_FILE": "secret"},
    }
    config = load_config(write(text), env.get(layer, {}), {})
    assert config.worker.token is not None
    assert config.worker.token.get_secret_value() == CANARY


def test_a_later_layers_secret_replaces_an_earlier_layers_secret_file():
    Path("secret").write_text("from-file")
    file = write(
        '[credentials.corp]\nusername = "u"\npassword_file = "secret"\n[database]\nurl_file = "url"\n'
    )
    Path("url").write_text("postgresql://u:p@h/d")
    config = load_config(file, {"EVERMIRROR_CREDENTIALS__CORP__PASSWORD": "from-env"}, {})
    assert config.credentials["corp"].password.get_secret_value() == "from-env"
    assert config.store_url == "postgresql://u:p@h/d"


def secretive() -> Path:
    return write(
        f'[worker]\ntoken = "{CANARY}"\n[aggregator]\ntoken = "{CANARY}"\n[client]\ntoken = "{CANARY}"\n'
        f'[database]\nurl = "postgresql://u:{CANARY}@h/d"\n'
        f'[webhooks]\ngithub_secret = "{CANARY}"\nsecrets = {{"h" = "{CANARY}"}}\n'
        f'[credentials.corp]\nusername = "u"\npassword = "{CANARY}"\n[credentials.b]\ntoken = "{CANARY}"\n'
    )


def test_no_secret_is_ever_shown():
    loaded = load(secretive(), {}, {})
    shown = "\n".join(f"{s.name} {as_toml(s.value)} {s.origin}" for s in shown_settings(loaded))
    for text in (
        shown,
        repr(loaded.config),
        str(loaded.config),
        repr(loaded),
        loaded.config.model_dump_json(exclude={"database", "upstreams"}),
    ):
        assert CANARY not in text
    assert 'credentials.corp.password "********" evermirror.toml:' in shown
    assert "postgresql://u:********@h/d" in shown
    assert set(loaded.config.secret_values()) == {CANARY}
    assert len(loaded.config.secret_values()) == 8


def test_no_secret_is_shown_in_problems():
    text = secretive().read_text().replace(f'token = "{CANARY}"', f'token = ["{CANARY}"]')
    text = text.replace("postgresql", "mysql").replace('"h" =', '"h" = 3, "i" =')
    problems = problems_of(text, {"EVERMIRROR_WEBHOOKS__GITEA_SECRET__FILE": "/nope"})
    assert len(problems) == 7
    assert CANARY not in "\n".join(problems)


def test_settings_are_frozen():
    config = Config()
    with pytest.raises(ValidationError):
        config.schedule.slots = 3
    with pytest.raises(ValidationError):
        config.schedule = None


def test_uncommenting_the_whole_template_gives_the_defaults():
    text = template()
    active = re.sub(r"^#(?=[a-z_]+ = )", "", text, flags=re.MULTILINE)
    assert load_config(write(text), {}, {}) == Config()
    assert load_config(write(active), {}, {}) == Config()
    given = {(section, key) for section, table in tomllib.loads(active).items() for key in table}
    written = set(re.findall(r"^#? ?([a-z_]+) = ", text, flags=re.MULTILINE))
    for setting in all_settings():
        if setting.path[0] != "credentials":
            assert setting.path in given or setting.path[-1] in written, setting.name
        assert setting.description, setting.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8420", ("127.0.0.1", 8420)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses_are_split(text, expected):
    assert split_host_port(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "h:", "h", "h:65536", "::1:80", "[x]:1", "h:٣", "a b:1", "h:-1", "h\n:1"]
)
def test_bad_addresses_are_refused(text):
    with pytest.raises(ValueError, match=r"has no|no IPv6"):
        split_host_port(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:********@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d?user=u&password=p", "postgresql://h/d?********"),
        ("http://[broken", "********"),
    ],
)
def test_passwords_in_urls_are_masked(url, shown):
    assert without_password(url) == shown


def test_lines_are_found_in_every_form_of_toml():
    text = (
        '# a = 1\n[a]\nb = """\nc = 1\n[x]\n"""  # "\nd = [\n 1, # ]\n "]",\n]\r\n"e.f" . g = \'#\'\n'
        "h = {i = 1}\n[[j.k]]\nl = '''x''''\nm = 1979-05-27\n[ n . \"o\" ]\np=2"
    )
    tomllib.loads(text)
    assert key_lines(text) == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "d"): 7,
        ("a", "e.f"): 11,
        ("a", "e.f", "g"): 11,
        ("a", "h"): 12,
        ("j", "k"): 13,
        ("j", "k", "l"): 14,
        ("j", "k", "m"): 15,
        ("n", "o"): 16,
        ("n", "o", "p"): 17,
    }


VALUES = [
    "1",
    "'#'",
    '"\\\\\\""',
    "[ # ]\n1,\n]",
    '"""\nk = [\n\\\\"""',
    "'''\n[t]\n'''''",
    '{a = "}"}',
    "[[1], {b = ']'}]",
]


@given(
    st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(["", " # c", "\n", "\n# ["]), st.booleans()))
)
def test_lines_are_those_the_document_was_made_with(parts):
    text, expected, table = "", {}, ()
    for number, (value, after, header) in enumerate(parts):
        if header:
            table = (f"t{number}",)
            expected[table] = text.count("\n") + 1
            text += f"[t{number}]{after}\n"
        expected[(*table, f"k{number}")] = text.count("\n") + 1
        text += f"k{number} = {value}{after}\n"
    tomllib.loads(text)
    assert key_lines(text) == expected
