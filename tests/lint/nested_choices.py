#!/usr/bin/env python3
"""nested_choices.py - finds a `?:` inside another one, which a reader must unfold: FILE:LINE of each, in the files given."""
import re
import sys

NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)


def lines_of(text):
    """The line of every ? that stands inside another ?: of the same statement."""
    open_at, depth, line = [], 0, 1
    for letter in text:
        line += letter == "\n"
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "?":
            if open_at:
                yield line
            open_at.append(depth)
        if letter in ",;{}":
            open_at = [] if letter != "," else [at for at in open_at if at < depth]
        elif letter in ")]":
            open_at = [at for at in open_at if at <= depth]


for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        code = NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), file.read())
    for found in lines_of(code):
        print(f"{name}:{found}")
