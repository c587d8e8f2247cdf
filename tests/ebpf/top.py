"""Runs a program on a terminal of its own, types what it is told, and prints what stood there as JSON.

Usage: top.py STEPS COMMAND...; STEPS is a JSON array of {"until": TEXT}, which waits for a text on the screen and keeps the
screen, {"type": TEXT} and {"signal": NUMBER}. The program has to end after the last step.
"""

import fcntl, json, os, pty, re, select, struct, sys, termios, time

ROWS, COLUMNS, TIMEOUT = 30, 100, 40.0
CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """What a terminal makes of the few things that the program writes."""

    def __init__(self):
        self.cells = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = CONTROL.match(text, at)
                if not found:
                    if len(text) - at < 20:
                        self.rest = text[at:]
                        return
                    at += 1
                    continue
                self.control(*found.groups())
                at = found.end()
                continue
            if text[at] == "\r":
                self.column = 0
            if text[at] >= " ":
                if self.row < ROWS and self.column < COLUMNS:
                    self.cells[self.row][self.column] = text[at]
                self.column += 1
            at += 1

    def control(self, numbers, letter):
        if letter == "H":
            place = (numbers or "1;1").split(";")
            self.row, self.column = int(place[0]) - 1, int(place[-1]) - 1
        if letter == "J":
            self.cells = [[" "] * COLUMNS for _ in range(ROWS)]

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)


def main():
    steps, command = json.loads(sys.argv[1]), sys.argv[2:]
    pid, terminal = pty.fork()
    if pid == 0:
        # Only after the terminal has a size.
        os.read(0, 1)
        os.execvp(command[0], command)
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    before = termios.tcgetattr(terminal)
    os.write(terminal, b"\n")
    screen, screens, raw = Screen(), [], ""
    end = time.monotonic() + TIMEOUT
    was_raw = restored = False
    status = None
    while status is None:
        if time.monotonic() > end:
            os.kill(pid, 9)
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                text = os.read(terminal, 65536).decode("utf-8", "replace")
            except OSError:
                text = ""
            raw += text
            screen.feed(text)
        flags = termios.tcgetattr(terminal)[3]
        is_raw = not flags & (termios.ECHO | termios.ICANON)
        was_raw = was_raw or is_raw
        restored = termios.tcgetattr(terminal)[:4] == before[:4]
        while steps:
            step = steps[0]
            if "until" in step:
                if step["until"] not in screen.text():
                    break
                screens.append(screen.text())
            elif "type" in step:
                os.write(terminal, step["type"].encode())
            else:
                os.kill(pid, step["signal"])
            steps.pop(0)
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
    while select.select([terminal], [], [], 0.1)[0]:
        try:
            text = os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:
            break
        if not text:
            break
        raw += text
    print(json.dumps({
        "status": status,
        "screens": screens,
        "last": screen.text(),
        "was_raw": was_raw,
        "restored": restored,
        # The previous screen is restored, with a cursor.
        "left": raw.rfind("\x1b[?1049l") > raw.rfind("\x1b[?1049h") >= 0,
        "after": raw.rsplit("\x1b[?1049l", 1)[-1],
    }))


main()
