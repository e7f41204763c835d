# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a save are connected.

A connection is any object with `rank` (int), `size` (int) and `allgather_bytes(data: bytes) -> list[bytes]`, everybody's bytes by rank; it
returns when all ranks have called it and raises when one does not come in time. An Exporter calls it one call at a time, always from a
thread of the engine's own and not from the one that made it. So that Ctrl-C ends a save that waits for other ranks it may also have
`allgather_until(data, stopped)`, which is then called instead and raises soon once `stopped()` is true; MPI cannot. The library opens no sockets
and starts no processes.
"""

import os
import time

from . import _core
from .errors import IoError

_LAST_WAIT = 2.0   # seconds for the other ranks to hear of it, once this one is to stop


class FileComm:
    """Ranks that meet in a directory which all of them see, and need nothing else.

    dir: of this group of ranks alone; made when it is not there. rank, size: int. timeout_sec: how long a call waits for the slowest rank;
    then IoError names those that did not come, on all ranks, and the next call of all of them meets anew. What an earlier, killed
    run left in the directory is never taken for a message.
    """

    def __init__(self, dir, rank, size, *, timeout_sec=600.0):
        self._core = _core.file_comm(os.fsdecode(dir), rank, size, timeout_sec)
        self.rank, self.size = rank, size

    def allgather_bytes(self, data):
        """Everybody's bytes, a list by rank."""
        return self._core.allgather_bytes(bytes(data))

    def barrier(self):
        """Returns when all ranks have called it."""
        self._core.allgather_bytes(b"")


class TorchComm:
    """Ranks of torch.distributed, connected by a group of gloo's that is made here, on the CPU: so every rank makes its TorchComm at the same
    point of the program, and training goes on beside a save in the background.

    ranks: the global ranks of the group, all where None. timeout_sec: how long a call waits; then torch raises, and the group cannot be used
    any more.
    """

    def __init__(self, ranks=None, *, timeout_sec=1800.0):
        import datetime

        import torch
        import torch.distributed as distributed

        self._torch, self._distributed = torch, distributed
        self._group = distributed.new_group(ranks, timeout=datetime.timedelta(seconds=timeout_sec), backend="gloo")
        self.rank, self.size = distributed.get_rank(self._group), distributed.get_world_size(self._group)

    def allgather_bytes(self, data):
        """Everybody's bytes, a list by rank."""
        return self.allgather_until(data, lambda: False)

    def allgather_until(self, data, stopped):
        """The same; once `stopped()` says so it waits a few seconds more and raises IoError, and the group cannot be used any more."""
        torch = self._torch
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._gather(sizes, torch.tensor([mine.numel()], dtype=torch.int64), stopped)
        most = max(int(size) for size in sizes)
        if most == 0:
            return [b""] * self.size
        padded = torch.zeros(most, dtype=torch.uint8)
        padded[: mine.numel()] = mine
        all_ = [torch.empty(most, dtype=torch.uint8) for _ in range(self.size)]
        self._gather(all_, padded, stopped)
        return [bytes(memoryview(one[: int(size)].contiguous().numpy())) for one, size in zip(all_, sizes)]

    def _gather(self, all_, mine, stopped):
        work = self._distributed.all_gather(all_, mine, group=self._group, async_op=True)
        pause, end = 1e-4, None
        while not work.is_completed():
            if end is None and stopped():
                end = time.monotonic() + _LAST_WAIT
            if end is not None and time.monotonic() > end:
                raise IoError("the waiting for other ranks was interrupted", message="the waiting for other ranks was interrupted")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        work.wait()   # raises what went wrong

    def barrier(self):
        """Returns when all ranks have called it."""
        self.allgather_bytes(b"")


class MpiComm:
    """Ranks of mpi4py. comm: a communicator, COMM_WORLD where None; it is duplicated, so every rank makes its MpiComm at the same point.
    MPI is called from threads of the engine's own, whatever the mode: MPI_THREAD_MULTIPLE, which mpi4py asks for. MPI knows no time-out."""

    def __init__(self, comm=None):
        if comm is None:
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        self._comm = comm.Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def allgather_bytes(self, data):
        """Everybody's bytes, a list by rank."""
        return self._comm.allgather(bytes(data))

    def barrier(self):
        """Returns when all ranks have called it."""
        self._comm.barrier()
