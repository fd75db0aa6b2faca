"""Describes the machine, in a paragraph for the reader of the table."""
import contextlib
import os
import platform
import re
import time


def first(path, pattern, otherwise="unknown"):
    with contextlib.suppress(OSError):
        with open(path, encoding="utf-8", errors="replace") as file:
            if found := re.search(pattern, file.read(), re.MULTILINE):
                return found.group(1).strip()
    return otherwise


def cache():
    """Describes the last-level cache of the first core."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    sizes = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir(folder)):
            level = first(f"{folder}/{entry}/level", r"(\d+)", "")
            if level:
                sizes.append((int(level), first(f"{folder}/{entry}/size", r"(\S+)")))
    if not sizes:
        return "caches unknown"
    level, size = max(sizes)
    return f"{size[:-1] and int(size[:-1]) // 1024} MiB L{level}" if size.endswith("K") else size


def simd():
    flags = first("/proc/cpuinfo", r"^flags\s*:(.*)$", "").split()
    return next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags),
                platform.machine())


def load():
    """Returns the running tasks per core over the last minute, to show if the machine was idle."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def describe(load_before):
    model = first("/proc/cpuinfo", r"^model name\s*:(.*)$")
    memory = int(first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) / (1 << 20)
    system = first("/etc/os-release", r'^PRETTY_NAME="(.*)"$', platform.system())
    virtual = ", virtual" if "hypervisor" in first("/proc/cpuinfo", r"^flags\s*:(.*)$", "") else ""
    return (f"{len(os.sched_getaffinity(0))} cores of {model}{virtual} ({simd()}, {cache()}), "
            f"{memory:.0f} GiB, {system}, Linux {platform.release()}, "
            f"{time.strftime('%B %Y')}; load average {load_before:.1f} per core at the start"
            + (", **so the machine was busy: these figures are provisional**."
               if load_before > 0.5 else "."))
