"""The application behind a real uvicorn: what only bytes on a socket can show."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.faces.api.server import serving


@pytest.fixture
async def address(house, api_service):
    await api_service.add_url("https://github.com/o/r", None, actor="test")
    async with serving(house.app()) as address:
        yield address


async def raw(address, request):
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode("latin-1").lower(), body


def get(path, address, method=b"GET", more=b""):
    host = address.encode()
    return (
        method + b" " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n" + more + b"\r\n"
    )


async def test_keys_and_urls_work_plain_and_encoded(address):
    for path in (
        b"/api/repos/github.com/o/r", b"/api/repos/github.com%2Fo%2Fr", b"/api/repos/github.com%2fo%2fr.git",
        b"/api/git_urls/https://github.com/o/r", b"/api/git_urls/https%3A%2F%2Fgithub.com%2Fo%2Fr.git",
    ):  # fmt: skip
        status, _, body = await raw(address, get(path, address))
        assert status == 200
        assert json.loads(body)["key"] == "github.com/o/r"
    status, _, body = await raw(address, get(b"/api/repos/github.com%2Fo%2Fr/-/refs", address))
    assert json.loads(body)["head"] == "refs/heads/main"


@pytest.mark.parametrize(
    "path", [b"/api/repos/%ff%fe", b"/api/repos/%00", b"/api/repos/%ed%a0%80", b"/api/tasks/%ff"]
)
async def test_paths_that_are_no_text_are_404(address, path):
    status, head, _ = await raw(address, get(path, address))
    assert status == 404
    assert "application/problem+json" in head


async def test_head_has_headers_and_no_body(address):
    status, head, body = await raw(address, get(b"/api/overview", address, b"HEAD"))
    assert (status, body) == (200, b"")
    assert "content-security-policy" in head


async def test_a_chunked_body_over_the_limit_is_413(address):
    chunk = b"186a0\r\n" + b" " * 100_000 + b"\r\n"
    more = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    status, _, body = await raw(
        address, get(b"/api/tasks", address, b"POST", more) + chunk * 11 + b"0\r\n\r\n"
    )
    assert status == 413
    assert json.loads(body)["status"] == 413


async def test_a_known_length_over_the_limit_is_413_and_the_client_sees_it(address):
    async with httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
        answer = await client.post("/api/tasks", content=b" " * 8_000_000)
    assert answer.status_code == 413


async def test_no_host_header_is_refused(address):
    status, _, _ = await raw(address, b"GET /api/overview HTTP/1.0\r\n\r\n")
    assert status in (400, 403)


async def test_a_waiting_caller_does_not_keep_others_waiting(address):
    body = {"git_url": "https://github.com/o/r", "additional_params": {"wait": 5}}
    async with httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
        waiting = asyncio.create_task(client.post("/api/tasks", json=body, timeout=30))
        while not (await client.get("/api/repos/github.com/o/r/-/tasks")).json()["items"]:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert (await client.get("/api/overview")).status_code == 200
        waiting.cancel()
