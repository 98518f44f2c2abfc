"""The fleet's known races, told as text in fleet/*.txt and played against the real machine."""

from pathlib import Path

import pytest

from tests.support.sim.fleet.script import Script, ScriptError

SCRIPTS = sorted((Path(__file__).parent / "fleet").glob("*.txt"))

START = """\
settings warm-up 0s
at 0:00 A joins (trusted)
then the catalog gains github.com/x/one
"""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_race(path):
    Script.read(path).play()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_begins_by_saying_what_it_shows(path):
    first = path.read_text("utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert len(first) > 20


# The language itself


def played(text):
    with pytest.raises(ScriptError) as caught:
        Script("race.txt", text).play()
    return str(caught.value)


def test_a_line_that_cannot_be_read_is_told_with_file_and_line():
    assert played(START + "\nat 1:00 A explodes\n").startswith(
        "race.txt:5: this cannot be read: 'A explodes'"
    )


def test_what_is_expected_and_does_not_come_is_told_with_what_came():
    told = played(START + "at 0:30 expect A is told to delete github.com/x/one\n")
    assert told.startswith("race.txt:4: expected by 0:30: A is told to delete github.com/x/one. Decided: ")
    assert "A is asked for github.com/x/one" in told


def test_what_comes_and_is_not_expected_is_an_error_at_the_next_thing_that_happens():
    told = played(START + "at 0:30\nat 0:40 B joins\n")
    assert told.startswith("race.txt:5: by 0:30 this was decided too, before this line: A is asked for")


def test_what_comes_and_is_not_expected_is_an_error_at_the_end():
    assert played(START + "at 0:30\n").startswith("race.txt:5: expected nothing by 0:30. Decided: A is asked")


def test_one_line_is_expected_once():
    once = START + "at 0:30 expect A is asked for github.com/x/one\n"
    Script("race.txt", once).play()
    assert played(once + "and expect A is asked for github.com/x/one\n").startswith("race.txt:5: expected")


def test_details_that_are_named_must_be_so():
    Script(
        "race.txt", START + "at 0:30 expect A is asked for github.com/x/one as primary, from upstream\n"
    ).play()
    told = played(START + "at 0:30 expect A is asked for github.com/x/one as follower\n")
    assert told.startswith(
        "race.txt:4: expected by 0:30: A is asked for github.com/x/one, as follower. Decided: "
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("expect A is suspect", "expected A's status: suspect. It is: alive"),
        ("expect github.com/x/one is held by A", "expected github.com/x/one held by: ['A']. It is: []"),
        (
            "expect github.com/x/one is wanted nowhere",
            "expected github.com/x/one wanted on: []. It is: ['A']",
        ),
        ("expect primary of github.com/x/one is nobody", "It is: A"),
        ("expect github.com/x/two waits for room", "github.com/x/two is not known"),
        ("expect github.com/x/one waits for room", "expected github.com/x/one waiting: True. It is: False"),
        ("expect why github.com/x/one: it rains", "expected why github.com/x/one: it rains. It says: "),
        ("expect the brake is on", "expected brake: on. It is: off"),
        ("expect A has the id 7", "expected A's id: 7. It is: 0"),
        ("expect alert no-room", "expected by 0:30: alert no-room. Decided: "),
    ],
)
def test_what_is_not_so_is_told_as_it_is(line, found):
    asked = START + "at 0:30 expect A is asked for github.com/x/one\n"
    told = played(asked + line + "\n")
    assert told.startswith("race.txt:5: ")
    assert found in told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("settings patience 3\n", "race.txt:1: no such setting: 'patience'; there are replicas, grace"),
        ("settings grace soon\n", "race.txt:1: "),
        (
            "at 1:00 A joins (tall)\n",
            "race.txt:1: a worker is trusted, untrusted, weight N or capacity N, not 'tall'",
        ),
        ("at 1:00 the catalog gains a.b/c (old)\n", "race.txt:1: a repo is private, public, replicas N"),
        ("at 1:00 A joins\nat 0:30 B joins\n", "race.txt:2: it is 1:00 already"),
        ("A reconnects\n", "race.txt:1: A has not joined"),
        ("A joins\nA's late report arrives\n", "race.txt:2: no report of A is late"),
        ("A joins\nA sends report 3 again\n", "race.txt:2: A has sent no report 3"),
    ],
)
def test_mistakes_of_the_writer_are_told_with_their_place(text, problem):
    assert played(text).startswith(problem)


def test_a_crash_before_writing_forgets_and_one_before_acting_remembers():
    asked = START + "at 0:30 expect A is asked for github.com/x/one\n"
    done = "then A has cloned github.com/x/one at v1; the coordinator crashes before it "
    Script("race.txt", asked + done + "writes\nexpect github.com/x/one is held by nobody\n").play()
    Script("race.txt", asked + done + "acts\nexpect github.com/x/one is held by A\n").play()
