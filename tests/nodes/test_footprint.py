"""Memory that is given back, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evermirror.nodes.coordinator import footprint
from evermirror.nodes.coordinator.footprint import _as_in_files

HEAP = b"55cff98de000-55cffb472000 rw-p 00000000 00:00 0                          [heap]\n"
READ = b"7fb57a600000-7fb57a62b000 r--p 00000000 fe:00 5317561                    /lib/some lib.so\n"
CODE = b"7fb57a62b000-7fb57adb2000 r-xp 0002b000 fe:00 5317561                    /lib/some lib.so\n"
ODD = b"7fc57a62b000-7fc57adb2000 r-xp 0002b000 fe:00 5317562                    /lib/caf\xe9\x0b\xc2\x85\n"
DATA = b"7fb57adb2000-7fb57adc0000 rw-p 007b2000 fe:00 5317561                    /lib/some lib.so\n"
VDSO = b"7ffc1a5f2000-7ffc1a5f4000 r-xp 00000000 00:00 0                          [vdso]\n"
CACHE = b"7fb57aff0000-7fb57aff9000 r--p 00000000 fe:00 5317563                    /etc/ld.so.cache\n"
SIZES = b"Size:   4 kB\nAnonymous:             %d kB\nSwap:                  %d kB\nVmFlags: rd ex mr mw me\n"
AS_IN_FILE, CHANGED, PUT_AWAY = SIZES % (0, 0), SIZES % (4, 0), SIZES % (0, 4)
UNTOLD = b"Size:   4 kB\nAnonymous:             0 kB\nVmFlags: rd ex mr mw me\n"


def let_go(smaps):
    return [(start, end) for _, start, end in _as_in_files(smaps)]


def test_only_what_is_in_files_and_is_not_written_to_is_let_go():
    told = b"".join(head + AS_IN_FILE for head in (HEAP, READ, CODE, DATA, VDSO, CACHE))
    assert let_go(told) == [(0x7FB57A600000, 0x7FB57A62B000), (0x7FB57A62B000, 0x7FB57ADB2000)]


@pytest.mark.parametrize("sizes", [CHANGED, PUT_AWAY, UNTOLD])
@pytest.mark.parametrize("head", [CODE, READ])
def test_what_was_changed_in_memory_stays(head, sizes):
    """Also what was swapped out since, and where the system does not say."""
    assert let_go(head + sizes + ODD + AS_IN_FILE) == [(0x7FC57A62B000, 0x7FC57ADB2000)]


def test_what_is_mapped_otherwise_by_now_stays(tmp_path, monkeypatch):
    """Another thread may load a library between the look and the letting go."""
    smaps, maps = tmp_path / "smaps", tmp_path / "maps"
    smaps.write_bytes(CODE + AS_IN_FILE + ODD + AS_IN_FILE)
    maps.write_bytes(ODD)
    advised = []

    class Libc:
        def __init__(self, _name):
            pass

        def madvise(self, start, size, _advice):
            advised.append((start.value, start.value + size.value))

    monkeypatch.setattr(footprint, "_SMAPS", smaps)
    monkeypatch.setattr(footprint, "_MAPS", maps)
    monkeypatch.setattr(footprint.ctypes, "CDLL", Libc)
    footprint.let_files_go()
    assert advised == [(0x7FC57A62B000, 0x7FC57ADB2000)]


@pytest.mark.parametrize("odd", [b"", b"no sense", b"\xff\xfe - r-xp 1 2 3", b"zz-zz r-xp 0 0 1 x"])
def test_what_the_system_tells_in_other_words_is_passed_over(odd):
    told = odd + b"\n" + ODD + AS_IN_FILE + odd + b"\n" + CODE
    assert let_go(told) == [(0x7FC57A62B000, 0x7FC57ADB2000)]


@pytest.mark.parametrize("told", [None, b"\xff\n\xff\x0b\xff"])
def test_a_start_goes_on_whatever_the_system_tells(told, tmp_path, monkeypatch):
    maps = tmp_path / "smaps"
    if told is not None:
        maps.write_bytes(told)
    monkeypatch.setattr(footprint, "_SMAPS", maps)
    footprint.let_files_go()


def test_code_patched_in_this_process_is_not_thrown_away(tmp_path):
    """A page of code that somebody wrote to, as debuggers and hooks of the C library do."""
    code = (
        "import ctypes, mmap, sys\n"
        "from evermirror.nodes.coordinator.footprint import let_files_go\n"
        "libc = ctypes.CDLL(None)\n"
        "with open(sys.argv[1], 'w+b') as file:\n"
        "    file.write(b'old' + bytes(4093)); file.flush()\n"
        "    page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=3)\n"
        "page[:3] = b'new'\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "assert libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_EXEC) == 0\n"
        "let_files_go()\n"
        "assert ctypes.string_at(at, 3) == b'new', ctypes.string_at(at, 3)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "code")], check=True)


def test_libraries_that_were_let_go_take_no_memory_and_still_run():
    code = (
        "import numpy, ssl, sqlite3\n"
        "from evermirror.nodes.coordinator.footprint import let_files_go\n"
        "def mapped():\n"
        "    said = open('/proc/self/status').read()\n"
        "    return int(said.split('RssFile:')[1].split()[0])\n"
        "before = mapped()\n"
        "let_files_go()\n"
        "after = mapped()\n"
        "assert after < before - 2000, (before, after)\n"
        "assert numpy.sort(numpy.arange(1000)[::-1])[0] == 0 and ssl.create_default_context()\n"
        "assert sqlite3.connect(':memory:').execute('SELECT 1').fetchone() == (1,)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
