"""Runs one command and reads the kernel's own accounting of it: bytes, system calls, memory. No package is needed."""
import dataclasses
import os
import resource
import subprocess
import time


@dataclasses.dataclass
class Usage:
    status: int
    wall: float
    user: float
    system: float
    max_rss: int          # bytes, file-backed pages included
    anonymous_peak: int   # bytes, sampled
    read_chars: int       # bytes asked by read calls
    write_chars: int
    read_calls: int
    write_calls: int
    output: str


def _status_field(pid, name):
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def run(command, env=None, sample=True):
    """Runs `command` to its end; its standard output and error are kept together."""
    read_end, write_end = os.pipe()
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=write_end, stderr=write_end, env=env)
    os.close(write_end)
    os.set_blocking(read_end, False)
    output, peak = [], 0

    def drain():
        try:
            while True:
                piece = os.read(read_end, 1 << 16)
                if not piece:
                    return
                output.append(piece)
        except BlockingIOError:
            pass

    while True:
        # WNOWAIT leaves a zombie, whose /proc entry still holds the I/O counters.
        done = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        drain()
        if done is not None:
            break
        if sample:
            peak = max(peak, _status_field(child.pid, "RssAnon"))
        time.sleep(0.005)
    wall = time.monotonic() - start
    with open(f"/proc/{child.pid}/io") as file:
        io = {k: int(v) for k, v in (line.split(": ") for line in file)}
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    os.close(read_end)
    return Usage(child.returncode, wall, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024, peak,
                 io["rchar"], io["wchar"], io["syscr"], io["syscw"], b"".join(output).decode(errors="replace"))


def page_size():
    return resource.getpagesize()
