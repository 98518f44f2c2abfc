"""The program as a user meets it: version, help, exit codes, errors in words, settings, tokens, doctor."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evermirror import __version__
from evermirror.faces.cli import tokens
from tests.faces.cli.conftest import SRC

CANARY = "c4n4ry-s3cr3t"


def test_version_is_answered_in_under_0_3_seconds(spawn):
    took = []
    for _ in range(3):
        began = time.perf_counter()
        result = spawn("--version")
        took.append(time.perf_counter() - began)
        assert (result.returncode, result.stdout) == (0, f"evermirror {__version__}\n")
    assert min(took) < 0.3


def test_version_imports_neither_the_command_line_nor_the_runtime():
    code = (
        "import sys; sys.argv = ['evermirror', '--version']\n"
        "from evermirror.__main__ import main; main()\n"
        "print([m for m in ('typer', 'rich', 'pydantic', 'asyncio', 'httpx2') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True
    )
    assert out.stdout.decode().splitlines()[1] == "[]"


@pytest.mark.parametrize("name", ["evermirror", "gitlab-mirror"])
def test_both_names_show_themselves_in_usage(name, tmp_path):
    program = tmp_path / name
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom evermirror.__main__ import main\nsys.exit(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    for args in (["--help"], ["sync", "--help"]):
        out = subprocess.run([sys.executable, program, *args], env=env, capture_output=True, text=True)
        assert f"Usage: {name} " in out.stdout
    version = subprocess.run([sys.executable, program, "--version"], env=env, capture_output=True, text=True)
    assert version.stdout == f"{name} {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "add",
        "remove",
        "sync",
        "repos",
        "status",
        "audit",
        "doctor",
        "token create",
        "token list",
        "token revoke",
        "config show",
        "config check",
        "config init",
        "simulate polling",
    ],
)
def test_every_command_explains_itself(command, run):
    result = run(*command.split(), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"Usage: evermirror {command}" in result.stdout
    assert not re.search(r"<\w|list\[|\[\[|\{", result.stdout)


def test_a_first_start_whose_git_catalog_cannot_be_read_is_1_and_says_why(spawn, here):
    subprocess.run(["git", "init", "--quiet", "lists"], cwd=here, check=True)
    result = spawn("up", "--catalog", "lists", "--listen", f"127.0.0.1:{free_port()}")
    assert result.returncode == 1
    assert "error: the catalog cannot be read: " in result.stderr


def test_a_database_that_does_not_answer_is_1_and_one_that_is_no_url_is_2(run):
    env = {"EVERMIRROR_DATABASE__URL": f"postgresql://u:{CANARY}@127.0.0.1:{free_port()}/d"}
    for command in (["token", "list"], ["up"]):
        result = run(*command, env=env)
        assert result.returncode == 1
        assert "the database postgresql://u:***@127.0.0.1:" in result.stderr
        assert CANARY not in result.stderr
        assert "asyncpg" not in result.stderr
    result = run("token", "list", env={"EVERMIRROR_DATABASE__URL": "postgresql://h:port/d"})
    assert result.returncode == 2


def test_completion_knows_commands_and_options(run):
    def complete(words: str, index: int) -> list[str]:
        env = {"_EVERMIRROR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        return run(env=env).stdout.split()

    assert complete("evermirror s", 1) == ["sync", "status", "simulate"]
    assert "--wait" in complete("evermirror sync --w", 2)
    assert complete("evermirror token c", 2) == ["create"]


@pytest.mark.parametrize(
    "args", [["bogus"], ["repos", "--bogus"], ["sync"], ["token", "create", "--role", "king"]]
)
def test_wrong_usage_is_2_on_stderr(args, run):
    result = run(*args)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["config", "check"], 0, ""),
        (["token", "revoke", "nobody"], 5, "nobody"),
        (["config", "check", "--config", "nowhere"], 2, "nowhere: cannot be read: No such file"),
        (["status", "--bogus"], 2, "--bogus"),
        (["status", "--server", "http://127.0.0.1:1"], 3, "evermirror up"),
    ],
)
def test_the_process_ends_with_the_documented_code_and_no_traceback(args, code, words, spawn):
    result = spawn(*args)
    assert result.returncode == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_that_are_wrong_are_2_with_file_and_line(run, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text('[fleet]\ngrace = "soon"\n[schedule]\nslotz = 3\n')
    for command in (["config", "check"], ["config", "show"], ["doctor"], ["up"], ["token", "list"]):
        result = run(*command, "--config", str(bad))
        assert result.returncode == 2, command
        assert result.stdout == ""
        assert "error: 2 problems in the settings:" in result.stderr
        assert f"{bad}:2: fleet.grace: 'soon' is not a duration" in result.stderr
        assert f"{bad}:4: schedule.slotz: is not a setting; did you mean schedule.slots?" in result.stderr
        assert "Traceback" not in result.stderr


def test_config_check_json_tells_the_same(run):
    assert json.loads(run("config", "check", "--json").stdout) == {"ok": True, "problems": [], "file": None}
    result = run("config", "check", "--json", env={"EVERMIRROR_FLEET__GRACE": "x"})
    assert result.returncode == 2
    assert len(json.loads(result.stdout)["problems"]) == 1


def test_debug_shows_where_a_users_error_came_from(run):
    assert "Traceback" in run("config", "check", "--config", "nowhere.toml", "--debug").stderr
    assert (
        "Traceback"
        in run("config", "check", "--config", "nowhere.toml", env={"EVERMIRROR_DEBUG": "1"}).stderr
    )


def test_config_show_masks_secrets_and_tells_origins(run, tmp_path):
    (tmp_path / "token").write_text(CANARY)
    env = {
        "EVERMIRROR_WORKER__TOKEN__FILE": str(tmp_path / "token"),
        "EVERMIRROR_DATABASE__URL": f"postgresql://u:{CANARY}@h/d",
        "EVERMIRROR_CREDENTIALS__CORP__PASSWORD": CANARY,
    }
    for extra in ([], ["--json"]):
        result = run("config", "show", *extra, env=env)
        assert result.returncode == 0
        assert CANARY not in result.stdout + result.stderr
    shown = json.loads(result.stdout)
    assert shown["worker.token"] == {
        "value": "********",
        "from": "environment EVERMIRROR_WORKER__TOKEN__FILE",
    }
    assert shown["credentials.corp.password"]["value"] == "********"
    assert shown["fleet.grace"] == {"value": "10m", "from": "default"}


def test_config_init_writes_a_file_that_is_fine_and_never_over_another(run, tmp_path):
    assert run("config", "init", "--output", "evermirror.toml").returncode == 0
    assert "settings are fine (evermirror.toml)" in run("config", "check").stdout
    again = run("config", "init", "--output", "evermirror.toml")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert run("config", "init").stdout == (tmp_path / "here" / "evermirror.toml").read_text()


def test_tokens_are_made_listed_and_revoked_offline(run, tmp_path):
    made = run("token", "create", "--role", "admin", "--name", "joe", "--json")
    assert (made.returncode, made.stderr) == (0, "")
    token = json.loads(made.stdout)["token"]
    plain = run("token", "create", "--role", "worker", "--trusted", "--operator", "alice")
    assert len(plain.stdout.strip()) > 30
    assert "not shown again" in plain.stderr
    listed = run("token", "list", "--json")
    assert [(t["name"], t["role"], t["trusted"]) for t in json.loads(listed.stdout)] == [
        ("joe", "admin", False),
        ("", "worker", True),
    ]
    assert [t["operator"] for t in json.loads(listed.stdout)] == ["", "alice"]
    assert token not in listed.stdout
    assert run("token", "revoke", "joe").returncode == 0
    gone = run("token", "revoke", "joe")
    assert gone.returncode == 5
    assert "joe" in gone.stderr
    assert run("token", "revoke", "2", "--json").returncode == 0
    audit = json.loads(run("audit", "--json").stdout)
    assert [a["action"] for a in audit] == ["token.revoke", "token.revoke", "token.create", "token.create"]
    assert token not in json.dumps(audit)
    database = tmp_path / "here" / "data" / "evermirror.db"
    assert token.encode() not in database.read_bytes()
    assert database.parent.stat().st_mode & 0o077 == 0


def test_the_token_of_an_untrusted_worker_says_its_weight_and_capacity(run):
    made = ("token", "create", "--role", "worker", "--json")
    plain = json.loads(run(*made, "--name", "plain").stdout)
    assert (plain["weight"], plain["capacity"]) == (None, None)
    strong = json.loads(run(*made, "--name", "strong", "--weight", "4", "--capacity", "50").stdout)
    assert (strong["weight"], strong["capacity"]) == (4.0, 50)
    listed = run("token", "list").stdout
    assert "weight 1, at most 10000 repos" in listed, "the defaults are shown"
    assert "weight 4, at most 50 repos" in listed
    limited = run("token", "limit", "plain", "--weight", "2", "--json")
    assert json.loads(limited.stdout)["weight"] == 2.0
    assert "weight 2, at most 10000 repos" in run("token", "list").stdout
    assert run("token", "limit", "nobody", "--weight", "2").returncode == 5
    for wrong in (("--role", "reader"), ("--role", "worker", "--trusted")):
        refused = run("token", "create", *wrong, "--weight", "4")
        assert refused.returncode == 2, "a number that would not count is refused"
    assert json.loads(run("audit", "--json").stdout)[0]["detail"] == {"weight": 2.0}


@pytest.mark.parametrize(
    "args",
    [
        ["token", "create", "--role", "admin"],
        ["token", "list"],
        ["token", "revoke", "joe"],
        ["audit"],
        ["backup", "copy.db"],
        ["restore-backup", "copy.db"],
        ["migrate"],
        ["migrate", "--dry-run"],
    ],
)
def test_with_a_server_named_no_command_works_on_a_folder_that_was_not(args, run, here):
    refused = run(*args, env={"EVERMIRROR_SERVER": "https://mirror.example.org"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "not through a server such as https://mirror.example.org" in refused.stderr
    assert "--data DIR" in refused.stderr
    (here / "evermirror.toml").write_text('[client]\nserver = "https://mirror.example.org"\n')
    assert run(*args).returncode == 2
    assert [file.name for file in here.iterdir()] == ["evermirror.toml"]


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_a_data_folder_that_is_named_is_worked_on_although_a_server_is_named(how, run, here):
    env = {"EVERMIRROR_SERVER": "https://mirror.example.org"}
    flag = ["--data", "kept"] if how == "flag" else []
    if how == "environment":
        env["EVERMIRROR_DATA__DIR"] = "kept"
    if how == "file":
        (here / "evermirror.toml").write_text('[data]\ndir = "kept"\n')
    made = run("token", "create", "--role", "admin", "--json", *flag, env=env)
    assert (made.returncode, made.stderr) == (0, "")
    assert (here / "kept" / "evermirror.db").exists()
    assert not (here / "data").exists()


def test_a_database_that_is_here_is_used_and_told_where_a_server_is_named(run, here):
    run("token", "create", "--role", "admin", "--name", "joe")
    listed = run("token", "list", "--json", env={"EVERMIRROR_SERVER": "https://mirror.example.org"})
    assert [t["name"] for t in json.loads(listed.stdout)] == ["joe"]
    place = here / "data" / "evermirror.db"
    assert listed.stderr == f"on {place}; the server https://mirror.example.org is not asked\n"


def test_to_look_for_tokens_makes_no_database(run, here):
    for args, said in ((["token", "list"], "[]"), (["audit"], "[]")):
        looked = run(*args, "--json")
        assert (looked.returncode, looked.stdout.strip()) == (0, said)
        assert looked.stderr == f"there is no database {here / 'data' / 'evermirror.db'} yet\n"
    revoked = run("token", "revoke", "joe")
    assert (revoked.returncode, "no token 'joe'" in revoked.stderr) == (5, True)
    assert list(here.iterdir()) == []


def test_the_audit_log_is_told_in_words(run):
    run("token", "create", "--role", "worker", "--name", "attic", "--operator", "bob")
    (row,) = run("audit").stdout.splitlines()[1:]
    assert row.split("token.create")[1].split() == ["attic", "role:", "worker,", "operator:", "bob"]
    assert "{" not in row


def test_details_of_the_audit_log_are_words_whatever_they_hold():
    detail = {"task": 7, "force": True, "why": None, "keys": ["a", "b"], "limits": {"slots": 3}}
    assert tokens._in_words(detail) == "task: 7, force: yes, keys: a, b, limits: slots: 3"
    assert tokens._in_words(["one", "two"]) == "one, two"
    assert tokens._in_words(None) == ""


def test_times_of_tokens_and_of_the_audit_log_are_iso_in_json(run):
    run("token", "create", "--role", "admin", "--name", "joe")
    (token,) = json.loads(run("token", "list", "--json").stdout)
    (noted,) = json.loads(run("audit", "--json").stdout)
    for at in (token["created_at"], noted["at"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at)
    assert token["revoked_at"] is None


def test_a_data_folder_that_cannot_be_made_is_2(run, tmp_path):
    (tmp_path / "here" / "data").write_text("a file")
    result = run("token", "list")
    assert result.returncode == 2
    assert "data cannot be made" in result.stderr


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def doctor(run, **settings: str) -> tuple[int, dict[str, dict[str, str]]]:
    env = {
        "EVERMIRROR_SERVER__LISTEN": f"127.0.0.1:{free_port()}",
        "EVERMIRROR_FLEET__DISK_HIGH": "1",
        **settings,
    }
    result = run("doctor", "--json", env=env)
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert answer["ok"] == (result.returncode == 0)
    return result.returncode, {c["name"]: c for c in answer["checks"]}


def test_doctor_knows_a_relative_data_folder_that_is_there(run, here):
    assert "(not made yet)" in doctor(run)[1]["data folder"]["what"]
    (here / "data").mkdir()
    assert doctor(run)[1]["data folder"]["what"] == "data is writable and tells case apart"


def test_doctor_says_that_it_does_not_look_at_the_server_that_is_named(run):
    assert "server" not in doctor(run)[1]
    named = doctor(run, EVERMIRROR_SERVER="https://mirror.example.org")[1]["server"]
    assert named["level"] == "note"
    assert "https://mirror.example.org is named for commands, and is not looked at" in named["what"]


def test_doctor_finds_a_fit_machine_fit(run, tmp_path):
    (tmp_path / "list.txt").write_text("https://github.com/a/b\n")
    code, checks = doctor(run, EVERMIRROR_CATALOG__SOURCES=json.dumps([str(tmp_path / "list.txt")]))
    assert code == 0, checks
    assert {
        "python",
        "git",
        "data folder",
        "disk",
        "database",
        "port",
        "clock",
        "certificates",
    } <= checks.keys()
    assert checks["catalog"]["what"] == "1 repository, 0 problems"
    assert checks["database"]["what"].endswith("1 migration will run at the next start")
    assert not (tmp_path / "here" / "data").exists()


def test_doctor_names_what_is_wrong_and_what_to_do(run, tmp_path):
    (tmp_path / "list.txt").write_text("https://github.com/a/b\nhttps://127.0.0.1/x\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, checks = doctor(
            run,
            EVERMIRROR_GIT__BINARY="no-such-git",
            EVERMIRROR_SERVER__LISTEN=f"127.0.0.1:{taken.getsockname()[1]}",
            EVERMIRROR_CATALOG__SOURCES=json.dumps([str(tmp_path / "list.txt"), "nowhere.txt"]),
            EVERMIRROR_DATABASE__URL=f"postgresql://u:{CANARY}@127.0.0.1:{free_port()}/d",
            EVERMIRROR_UPSTREAMS__CA_FILE="nowhere.pem",
        )
    assert code == 1
    wrong = {name for name, c in checks.items() if c["level"] == "wrong"}
    assert wrong == {"git", "port", "catalog", "database", "certificates"}
    assert all(checks[name]["todo"] for name in wrong)
    assert CANARY not in json.dumps(checks)


def test_doctor_lists_the_problems_of_a_catalog_and_counts_the_rest(run, tmp_path):
    file = tmp_path / "list.txt"
    file.write_text("https://github.com/a/b\n" + "bad\n" * 25)
    settings = {"EVERMIRROR_CATALOG__SOURCES": json.dumps([str(file)])}
    code, checks = doctor(run, **settings)
    assert (code, checks["catalog"]["what"]) == (1, "1 repository, 25 problems")
    details = checks["catalog"]["details"]
    assert [d.partition(": ")[0] for d in details[:20]] == [f"{file}:{n}" for n in range(2, 22)]
    assert details[20:] == ["and 5 more"]
    assert f"\n    {details[19]}\n    and 5 more\n    → " in run("doctor", env=settings).stdout


def test_doctor_reads_folders_and_git_repositories(run, here):
    (here / "lists").mkdir()
    (here / "lists" / "x").write_text("https://github.com/a/b\nhttps://github.com/a/c\n")
    settings = {"EVERMIRROR_CATALOG__SOURCES": '["lists"]'}
    assert doctor(run, **settings)[1]["catalog"]["what"] == "2 repositories, 0 problems"
    subprocess.run(["git", "init", "--quiet", "lists"], cwd=here, check=True)
    check = doctor(run, **settings)[1]["catalog"]
    assert check["level"] == "wrong"
    assert "the catalog cannot be read" in check["what"]


def test_output_to_a_closed_pipe_is_quiet(tmp_path):
    command = f"{sys.executable} -m evermirror config init | true"
    out = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert out.stderr == ""


def on_terminal(args: list[str], env: dict[str, str], cwd: Path) -> bytes:
    """What the program writes to a real terminal."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evermirror", *args],
        env={**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "120", **env},
        cwd=cwd,
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    out = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
    os.close(main)
    process.wait(30)
    return out


def test_tables_are_boxed_on_a_terminal_and_plain_in_a_pipe(run, tmp_path):
    assert "│ fleet.grace" in on_terminal(["config", "show"], {}, tmp_path).decode()
    plain = run("config", "show").stdout
    assert "│" not in plain
    assert "\x1b" not in plain
    assert any(line.split() == ["fleet.grace", '"10m"', "default"] for line in plain.splitlines())


def test_no_color_is_honoured(tmp_path):
    assert b"\x1b[3" not in on_terminal(["--help"], {"NO_COLOR": "1"}, tmp_path)
