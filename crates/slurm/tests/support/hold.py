"""Freezes processes so that only SIGKILL has an effect, not even SIGCONT; until it is killed or they end."""
import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
held = set()


def hold(pid):
    more = True
    while more:
        more = False
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if thread not in held:
                if libc.ptrace(SEIZE, thread, None, None) or libc.ptrace(INTERRUPT, thread, None, None):
                    if ctypes.get_errno() == errno.ESRCH:
                        continue
                    sys.exit(f"cannot freeze {thread}: {os.strerror(ctypes.get_errno())}")
                os.waitpid(thread, WALL)
                held.add(thread)
                more = True


for pid in sys.argv[1:]:
    hold(int(pid))
print("held", flush=True)
# The real parent is notified of an end only after this process has waited for it.
while held:
    try:
        thread, status = os.waitpid(-1, WALL)
    except ChildProcessError:
        break
    if not os.WIFSTOPPED(status):
        held.discard(thread)
