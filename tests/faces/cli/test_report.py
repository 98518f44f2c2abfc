"""`pull report`: Markdown and HTML, in two languages; complete, bounded, and harmless whatever names are."""

from __future__ import annotations

import json
import re
import string
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from evermirror.faces.api.pull_report import ReportOut
from evermirror.faces.cli.pull.report_data import read_report
from evermirror.faces.cli.pull.report_html import html_report
from evermirror.faces.cli.pull.report_markdown import bar, course_line, markdown_report
from evermirror.faces.cli.pull.report_svg import nice_span, nice_top
from evermirror.faces.cli.pull.report_words import LANGUAGES, WORDS, Words
from tests.faces.cli.report_answer import report
from tests.support.node import NodeThread

MADE = 1_794_830_000.0
PATH = "/api/pull/report"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "[click](javascript:alert(1))",
    "![x](https://evil.example/x.png)",
    "a|b|c",
    "`code` **bold** _em_ ~~no~~ <https://evil.example>",
    "https://evil.example www.evil.example",
    "\x1b[31mred\x1b]0;owned\x07\u202e",
    "```\n# heading",
    "&lt;b&gt; &amp;",
    "</style></title></svg>",
)


class Page(HTMLParser):
    """Elements, attributes and words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)


def page(language="en", **how) -> Page:
    return Page(html_report(read_report(report(*how.pop("names", ()), **how)), Words(language), MADE))


KNOWN_TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "div", "section",
    "span", "b", "small", "svg", "g", "rect", "line", "path", "text", "table", "thead", "tbody", "tr", "th",
    "td", "ul", "li",
}  # fmt: skip


def check_harmless(shown: Page) -> None:
    assert set(shown.tags) <= KNOWN_TAGS
    for tag, name, value in shown.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("href", "src", "xlink:href", "style", "action"), (tag, name)
        assert "://" not in (value or ""), (tag, name, value)


def test_the_stand_in_answers_as_the_api_does():
    answer = report("devops/core")
    told = ReportOut.model_validate({**answer, "from_": answer["from"]}, strict=True)
    assert json.loads(told.model_dump_json(by_alias=True)) == answer


# HTML


def test_the_page_needs_nobody_else_and_forbids_it():
    shown = page(names=HOSTILE)
    check_harmless(shown)
    contents = [v for t, n, v in shown.attributes if (t, n) == ("meta", "content")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in contents
    text = html_report(read_report(report(*HOSTILE)), Words("en"), MADE)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "prefers-color-scheme: dark" in style[1]
    assert "@media print" in style[1]
    assert text.count("<script") == 0


def test_names_are_shown_as_they_are():
    words = " ".join(page(names=HOSTILE).words)
    assert "<script>alert(1)</script>" in words
    assert "&lt;b&gt; &amp;" in words
    assert "\x1b" not in words
    assert "\u202e" not in words


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=4), st.sampled_from(LANGUAGES))
def test_no_name_makes_the_page_another(names, language):
    shown = page(language, names=names)
    check_harmless(shown)
    assert shown.tags.count("section") == 4


def test_the_page_has_every_figure():
    words = page(names=["devops/core", "team/x"]).words
    for figure in (
        "4,000", "283", "peak 391", "NETWORK_TIMEOUT", "devops/core", "1 (paused)", "4.3 GB", "2 to 8",
        "0.4% (started by hand)", "low: cpu 12 %", "2026-11-16 (so far)", "45 min", "99.95%",
    ):  # fmt: skip
        assert figure in words, figure


def test_charts_have_gaps_where_nothing_was_noted():
    text = html_report(read_report(report()), Words("en"), MADE)
    charts = re.findall(r"<svg viewBox=\"0 0 (?:720|350).*?</svg>", text, re.DOTALL)
    assert len(charts) == 1 + 4 + 2
    for chart in charts[1:5]:
        assert chart.count('class="area"') == 2
    assert charts[5].count('class="limit"') == 2
    assert charts[5].count('class="high-load"') == 1
    assert text.count('class="bar so-far"') == 1
    figures = re.findall(r' (?:x|y|width|height)="([^"]*)"', text)
    assert all(float(figure) >= 0 for figure in figures)


def test_an_empty_report_is_a_page_too():
    for language in LANGUAGES:
        words = Words(language)
        shown = Page(html_report(read_report({}), words, MADE))
        assert words("no_errors") in shown.words
        assert words("no_notes") in shown.words
        assert words("peak", peak="–") in shown.words  # nothing was noted, which is not none
        assert words("no_errors") in markdown_report(read_report({}), words, MADE)


def test_a_year_is_one_page():
    shown = page(days=366, steps=201)
    check_harmless(shown)
    assert shown.tags.count("tr") > 366


# Whatever a server answers

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.sampled_from([10**30, -(10**400), 10**400, 1e308, -1e308])
    | st.floats()
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*report()]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from([*report()]), JSON), st.sampled_from(LANGUAGES))
def test_any_answer_is_a_report(answer, language):
    sheet = read_report({**report("a"), **answer})
    check_harmless(Page(html_report(sheet, Words(language), MADE)))
    markdown_report(sheet, Words(language), MADE)


# Markdown


def tokens(text: str) -> list[str]:
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found.append(token.type)
        found += [child.type for child in token.children or ()]
    return found


def cells(text: str) -> list[str]:
    """The words of all cells."""
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [
        "".join(child.content for child in token.children or () if child.type.startswith("text"))
        for token in parsed
        if token.type == "inline"
    ]


def test_markdown_names_are_no_links_images_or_tags():
    text = markdown_report(read_report(report(*HOSTILE)), Words("en"), MADE)
    found = set(tokens(text))
    assert not found & {"link_open", "image", "html_inline", "html_block", "code_inline", "em_open", "s_open"}
    told = cells(text)
    assert "<script>alert(1)</script>" in told
    assert "a|b|c" in told
    assert "[click](javascript:alert(1))" in told
    assert not re.search(r"https?://|(?<!\\)www\.", text)
    assert tokens(text).count("table_open") == 5
    assert "\x1b" not in text


PUNCTUATED = st.text(st.sampled_from(string.punctuation + " ab\n\r\t日"), max_size=40)


@settings(max_examples=100, deadline=None)
@given(PUNCTUATED | st.text(max_size=40))
def test_no_name_makes_the_markdown_another(name):
    text = markdown_report(read_report(report(name)), Words("en"), MADE)
    plain = markdown_report(read_report(report("x")), Words("en"), MADE)

    def shape(of: str) -> list[str]:
        return [kind for kind in tokens(of) if not kind.startswith(("text", "softbreak"))]

    assert shape(text) == shape(plain)


@pytest.mark.parametrize("language", LANGUAGES)
def test_lines_of_a_course_begin_below_one_another(language):
    text = markdown_report(read_report(report("a")), Words(language), MADE)
    words = Words(language)
    lines = [
        line
        for name in ("looks_chart", "running", "limit")
        for line in text.splitlines()
        if line.startswith(words(name)) and re.search("[▁█]", line)
    ]
    assert len(lines) == 3
    assert len({cell_len(re.split("[▁▂▃▄▅▆▇█]", line)[0]) for line in lines}) == 1


def test_bars_and_lines_are_drawn_with_blocks():
    assert (bar(1.0), bar(0.5), bar(0.0001), bar(0.0)) == ("█" * 20, "█" * 10, "█", "")
    assert course_line([0.0, 4.0, None, 8.0]) == "▁▄ █"
    assert course_line([]) == ""
    assert len(course_line([1.0] * 500)) <= 56


# Words and figures


def test_every_word_is_there_in_both_languages_with_the_same_values():
    for name, (english, chinese) in WORDS.items():
        assert english, name
        assert re.search("[\u4e00-\u9fff]", chinese), name
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", chinese)), name


@pytest.mark.parametrize(
    ("value", "told"), [(1.0, "100%"), (0.99999, "99.99%"), (0.975, "97.5%"), (0.0, "0%"), (None, "–")]
)
def test_only_all_of_it_is_100_percent(value, told):
    assert Words("en").share(value) == told


def test_times_are_written_in_the_language():
    assert Words("en").span(5400) == "1.5 h"
    assert Words("zh").span(5400) == "1.5 小时"
    assert Words("en").span(0) == "0 s"


@given(st.floats(0, 1e12), st.integers(2, 6))
def test_scales_are_round_and_nothing_is_above_them(most, ticks):
    for scale in (nice_top, nice_span):
        top, marks = scale(most, ticks)
        assert top >= most * 0.999
        assert marks[0] == 0
        assert marks[-1] == top
        assert 2 <= len(marks) <= ticks + 2


def test_what_is_counted_has_whole_marks():
    assert nice_top(2, whole=True) == (2.0, (0.0, 1.0, 2.0))
    assert nice_top(9_127, whole=True)[1] == (0.0, 2_500.0, 5_000.0, 7_500.0, 10_000.0)


# The command


def test_a_week_is_told_in_markdown_by_itself(ask, api):
    api.on("GET", PATH, (200, report("devops/core")))
    done = ask("pull", "report")
    assert done.returncode == 0
    assert done.stdout.startswith("# Pull mirroring report\n")
    assert "| devops/core | 9 | CONFLICT | 0 |" in done.stdout
    assert api.asked[-1][2] == {"days": ["7"]}


def test_the_language_is_the_readers_or_as_asked(ask, api):
    api.on("GET", PATH, (200, report()))
    assert ask("pull", "report", env={"LANG": "zh_CN.UTF-8"}).stdout.startswith("# 拉取镜像报告")
    assert ask("pull", "report", "--language", "en", env={"LANG": "zh_CN.UTF-8"}).stdout.startswith("# Pull")
    assert "## 源站压力" in ask("pull", "report", "--language=zh").stdout


def test_a_file_is_written_in_the_form_of_its_name(ask, api, here):
    api.on("GET", PATH, (200, report()))
    done = ask("pull", "report", "--days", "30", "--output", "week.html")
    assert (done.returncode, done.stdout) == (0, "")
    assert (here / "week.html").read_text().startswith("<!DOCTYPE html>")
    assert api.asked[-1][2] == {"days": ["30"]}
    assert ask("pull", "report", "-o", "week.md").returncode == 0
    assert (here / "week.md").read_text().startswith("# Pull")
    assert ask("pull", "report", "-o", "week.md", "--format=html").returncode == 0
    assert (here / "week.md").read_text().startswith("<!DOCTYPE html>")
    assert sorted(file.name for file in here.iterdir()) == ["week.html", "week.md"]


def test_json_is_the_answer_itself(ask, api):
    api.on("GET", PATH, (200, report("a")))
    assert json.loads(ask("pull", "report", "--json").stdout) == report("a")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--days", "0"], "from 1 to 366"),
        (["--days", "367"], "from 1 to 366"),
        (["--days", "week"], "from 1 to 366"),
        (["--format", "pdf"], "markdown, html"),
        (["--language", "fr"], "en, zh"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(ask, api, args, words):
    done = ask("pull", "report", *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert api.asked == []


def test_a_file_that_cannot_be_written_is_said(ask, api, here):
    api.on("GET", PATH, (200, report()))
    done = ask("pull", "report", "--output", "no/such/folder/x.html")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    (here / "folder").mkdir()
    assert ask("pull", "report", "--output", "folder").returncode == 1
    for folder in (".", "/"):
        assert ask("pull", "report", "--output", folder).returncode == 2
    assert [file.name for file in here.iterdir()] == ["folder"]


def test_a_real_node_is_reported_on(run, here, tmp_path, upstream):
    source = upstream.create("devops/core")
    with NodeThread(tmp_path, upstream.host, scheduled_jobs__progress_statistics__cron="* * * * * ?") as node:
        body = {"project_key": "devops/core", "source_url": source.url}
        assert node.client.post("/api/pull/projects", json=body).status_code == 201
        node.until(lambda: node.client.get("/api/pull/progress/overview").json()["synced"] == 1)
        node.until(lambda: node.client.get("/api/pull/progress/course").json()["items"])
        done = run("pull", "report", "-o", "day.html", "--days=1", env={"EVERMIRROR_SERVER": node.url})
        assert done.returncode == 0, done.stderr
        text = run("pull", "report", "--days=1", env={"EVERMIRROR_SERVER": node.url}).stdout
    check_harmless(Page((here / "day.html").read_text("utf-8")))
    assert "| **Total** | **1** | **1** | **0** | **0** | **100%** | **3** |" in text
    assert "| Limit | 5 |" in text
