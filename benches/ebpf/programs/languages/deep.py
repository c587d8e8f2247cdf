"""Burns CPU below as many functions as the first argument says, for as many seconds as the second."""

import sys
import time


def descend(depth, until):
    if depth > 0:
        return descend(depth - 1, until)
    total = 0
    while time.monotonic() < until:
        for step in range(1000):
            total += step * step
    return total


depth = int(sys.argv[1])
sys.setrecursionlimit(depth + 1000)
descend(depth, time.monotonic() + float(sys.argv[2]))
