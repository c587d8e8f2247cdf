"""JSON and regular expressions, called through several Python frames."""

import json
import re
import sys
import time

WORDS = re.compile(r"(\w+)-(\d+)")
DOCUMENT = {"items": [{"name": f"name-{i}", "tags": [f"tag-{i}", "x" * 20]} for i in range(50)]}


def descend(depth):
    if depth == 0:
        text = json.dumps(DOCUMENT)
        return len(json.loads(text)["items"]) + len(WORDS.findall(text))
    return descend(depth - 1)


until = time.monotonic() + float(sys.argv[1])
depth = 0
while time.monotonic() < until:
    depth = (depth + 1) % 12
    descend(depth)
