"""What lies between a file and its reader: whether the page cache holds it, and how fast the disk gives it.

The rate is the one that an engine could have: O_DIRECT reads of 4 MiB into huge pages that were touched before. Into
4 KiB pages the same reads may be three times slower, since a request then carries fewer bytes.
"""

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
import time

BLOCK = 4 << 20
HUGE_PAGE = 2 << 20
PAGE = mmap.PAGESIZE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def cached_bytes(path: str) -> int:
    """How much of the file is in the page cache."""
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot be mapped", path)
    pages = ctypes.create_string_buffer(-(-size // PAGE))
    failed = libc.mincore(address, size, pages)
    libc.munmap(address, size)
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", path)
    return sum(byte & 1 for byte in pages.raw) * PAGE


def drop(path: str) -> int:
    """Drops the file from the page cache; returns the bytes that stayed, which is 0 unless a process has it mapped."""
    for _ in range(5):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        if not (left := cached_bytes(path)):
            break
        time.sleep(0.1)
    return left


def huge_buffer() -> memoryview:
    """BLOCK bytes at a multiple of HUGE_PAGE, in huge pages where the system gives them, touched."""
    area = mmap.mmap(-1, BLOCK + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    skip = -ctypes.addressof(ctypes.c_char.from_buffer(area)) % HUGE_PAGE
    buffer = memoryview(area)[skip : skip + BLOCK]
    buffer[::PAGE] = bytes(len(buffer) // PAGE)
    return buffer


def read_blocks(fd: int, offsets: range, until: float) -> int:
    """Reads the blocks over and over until then; returns the bytes."""
    buffer, done = huge_buffer(), 0
    for offset in itertools.cycle(offsets):
        done += os.preadv(fd, [buffer], offset)
        if time.monotonic() > until:
            return done


def rate(path: str, n_threads: int = 2, seconds: float = 1.0) -> float | None:
    """Bytes per second of the disk below the file, or None where O_DIRECT is not to be had."""
    blocks = os.path.getsize(path) // BLOCK
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    done = [0] * n_threads
    start = time.monotonic()

    def work(i: int) -> None:
        with contextlib.suppress(OSError):  # some file systems open with O_DIRECT and then refuse to read
            done[i] = read_blocks(fd, range(i * BLOCK, blocks * BLOCK, n_threads * BLOCK), start + seconds)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(min(n_threads, blocks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    return sum(done) / (time.monotonic() - start) or None
