# Run by gdb: prints the stack of each thread; then, for each number on its input, steps that many instructions and
# prints again.

import gdb
import os
import signal
import sys
import threading

MOST_FRAMES = 200
REGISTERS = ("rip", "rsp", "rbp", "rdi")
SYSCALL = b"\x0f\x05"
LONGEST_STEP = 2

process = gdb.selected_inferior()


def look():
    for thread in process.threads():
        thread.switch()
        frame = gdb.newest_frame()
        registers = [int(frame.read_register(name)) & (2**64 - 1) for name in REGISTERS]
        print("\n=thread", *registers)
        for _ in range(MOST_FRAMES):
            # Others are virtual frames (inlined functions) from debug information.
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                stop = gdb.frame_stop_reason_string(frame.unwind_stop_reason()).replace(" ", "_")
                print("=frame", frame.pc(), stop, frame.name() or "?")
            try:
                frame = frame.older()
            except gdb.error:
                break
            if frame is None:
                break
    print("=looked", flush=True)


def is_running(thread):
    thread.switch()
    return bytes(process.read_memory(gdb.newest_frame().pc() - 2, 2)) != SYSCALL


def step(instructions):
    thread = next(filter(is_running, process.threads()), None)
    if thread is None:
        return
    thread.switch()
    # The program may block.
    wake = threading.Timer(LONGEST_STEP, os.kill, (process.pid, signal.SIGINT))
    wake.start()
    gdb.execute("stepi " + instructions, to_string=True)
    wake.cancel()


for setting in ("pagination off", "backtrace past-main on", "backtrace past-entry on"):
    gdb.execute("set " + setting)
gdb.execute("handle all nostop noprint pass", to_string=True)
look()
for line in sys.stdin:
    step(line)
    look()
