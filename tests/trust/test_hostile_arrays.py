"""ATTACK F6: npy and npz files that lie about themselves are refused in one line, before their memory is asked for."""

from __future__ import annotations

import io
import resource
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from otformer.array_files import UNPACKED_BYTES
from otformer.problem_files import read_problem, read_weights

MEMORY = 2 * 2**30  # bytes above what the test already has


@pytest.fixture(autouse=True)
def little_memory():
    """What asks for gigabytes gets a MemoryError here instead of the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


GOOD = header((3, 2))
HOSTILE = {
    "298 GiB": header((200_000, 200_000)) + bytes(64),
    "beyond 64 bits": header((2**64,)) + bytes(64),
    "a product beyond 64 bits": header((2**33, 2**33)) + bytes(64),
    "beyond 64 bits, and nothing": header((2**64, 0)),
    "negative": header((-3, -2)) + bytes(64),
    "no bytes each": header((10**12,), "|V0"),
    "a Python object": header((3, 2), "|O") + bytes(64),
    "text": header((3,), "<U4") + bytes(48),
    "an open bracket": GOOD.replace(b"}", b"("),
    "an open string": GOOD.replace(b"}", b'"'),
    "brackets": GOOD[:10] + b"(" * (len(GOOD) - 10),
    "a call": GOOD[:10] + b"__import__('os').abort()".ljust(len(GOOD) - 10),
    "version 9": b"\x93NUMPY\x09\x00" + GOOD[8:] + bytes(48),
    "a header of 2 GiB": b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + bytes(100),
    "cut short": GOOD + bytes(47),
    "nothing behind the magic": b"\x93NUMPY",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_npy_is_one_line(kind, tmp_path):
    (tmp_path / "x.npy").write_bytes(HOSTILE[kind])
    with pytest.raises(ValueError, match=r"x\.npy (is|holds|must)") as caught:
        read_weights(tmp_path / "x.npy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_member_of_an_npz_is_one_line(kind, tmp_path):
    with zipfile.ZipFile(tmp_path / "p.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", HOSTILE[kind])
        archive.writestr("y.npy", GOOD + bytes(48))
    with pytest.raises(ValueError, match=r"p\.npz") as caught:
        read_problem(tmp_path / "p.npz")
    assert "\n" not in str(caught.value)


def test_a_zip_bomb_is_refused_by_its_directory(tmp_path):
    """A member of 4 GiB of zeros is 4 MB of zip; here only its directory says so, and not a byte is unpacked."""
    file = tmp_path / "bomb.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header((2**29,)) + bytes(10_000))
    data = bytearray(file.read_bytes())
    at = data.find(b"PK\x01\x02") + 24  # the size of the first member in the directory
    data[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    file.write_bytes(data)
    assert UNPACKED_BYTES < 2**32 - 2
    with pytest.raises(ValueError, match=r"bomb\.npz would unpack to 4 GiB, over 100 times its size"):
        read_problem(file)


def test_flipped_bytes_give_a_line_or_the_array(tmp_path):
    """Every byte of the first 200, and every 7th behind them, of a plain and of a packed file."""
    rng = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "good.npz", x=rng.random((5, 2)), y=rng.random((4, 2)))
    np.save(tmp_path / "good.npy", rng.random((5, 2)))
    said = []
    for name, read in (("good.npz", read_problem), ("good.npy", read_weights)):
        good, file = (tmp_path / name).read_bytes(), tmp_path / f"bad{name[4:]}"
        for at in [*range(200), *range(200, len(good), 7)]:
            data = bytearray(good)
            data[at % len(data)] ^= 1 << rng.integers(8)
            file.write_bytes(data)
            try:
                read(file)
            except ValueError as error:
                said.append(str(error))
    assert len(said) > 100
    assert not any("\n" in line for line in said)
