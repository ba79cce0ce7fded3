"""Each rank kills itself as soon as MPI has made shared memory, while it begins."""

import glob
import os
import signal
import threading

import rushlight.distributed as dist

BEFORE = set(glob.glob("/dev/shm/mpich_*"))


def kill() -> None:
    while not set(glob.glob("/dev/shm/mpich_*")) - BEFORE:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=kill, daemon=True).start()
dist.init_process_group()
threading.Event().wait()
