"""Converts the output of `octavo demo --tour` to an asciicast (version 2) and to an animated SVG.

Usage: recording.py TOUR.txt OUT.cast OUT.svg

Each command is one frame, so the pictures are the same apart from the measured values. The SVG needs no script and
plays in an <img> element.
"""

import html
import json
import re
import sys

COLUMNS, ROWS = 128, 36
FRAME_SECONDS = 6
TYPING_SECONDS = 0.04
CHARACTER, LINE, MARGIN = 7.8, 17, 14
STEP = re.compile(r"^(?:\x1b\[[0-9;]*m)*\d+/\d+  ")
SGR = re.compile(r"\x1b\[([0-9;]*)m")
CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c", "90": "d"}


def steps(text):
    """Returns purpose, command and output lines of each step."""
    found = []
    for line in text.split("\n"):
        if STEP.match(line):
            found.append((SGR.sub("", line).split("  ", 1)[1], "", []))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0], line, [])
        elif found and not line.startswith("==> "):
            found[-1][2].append(line)
    return found


def visible(line):
    """Returns the line cut at the width of the terminal, with its colors."""
    shown, width = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            shown.append(part)
        else:
            shown.append(part[: COLUMNS - width])
            width = min(COLUMNS, width + len(part))
    return "".join(shown)


def frame(purpose, command, output):
    """Returns the lines of a screen."""
    while output and not output[-1].strip():
        output.pop()
    lines = [f"\x1b[2m# {purpose}\x1b[0m", f"\x1b[1m{command}\x1b[0m", *output]
    if len(lines) > ROWS:
        hidden = len(lines) - ROWS + 1
        lines = [*lines[: ROWS - 1], f"\x1b[2m... {hidden} more lines\x1b[0m"]
    return [visible(line) for line in lines]


def cast(frames):
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "octavo demo --tour"}
    events, time = [], 0.0
    for lines in frames:
        events.append([time, "o", "\x1b[2J\x1b[H" + lines[0] + "\r\n"])
        for character in SGR.sub("", lines[1]):
            time += TYPING_SECONDS
            events.append([time, "o", character])
        time += 0.4
        events.append([time, "o", "\r\n" + "\r\n".join(lines[2:])])
        time += FRAME_SECONDS
    rows = [header, *([round(at, 3), kind, text] for at, kind, text in events)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def spans(line):
    """Returns the SVG text of a line."""
    classes, parts = [], []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = SGR.fullmatch(part)
        if code:
            for number in code.group(1).split(";"):
                if number in ("", "0"):
                    classes = []
                elif number in CLASSES:
                    classes.append(CLASSES[number])
        elif part:
            text = html.escape(part, quote=False)
            parts.append(f'<tspan class="{" ".join(classes)}">{text}</tspan>' if classes else text)
    return "".join(parts)


def svg(frames):
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROWS * LINE + 2 * MARGIN
    total, share = FRAME_SECONDS * len(frames), 100 / len(frames)
    style = (
        "text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d4d9e0;white-space:pre}"
        ".b{font-weight:bold;fill:#fff}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}"
        ".u{fill:#79c0ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}"
        f"@keyframes f{{0%{{visibility:visible}}{share:.3f}%,100%{{visibility:hidden}}}}"
        f".f{{visibility:hidden;animation:f {total}s step-end infinite}}"
    )
    body = []
    for number, lines in enumerate(frames):
        texts = []
        for row, line in enumerate(lines):
            if line.strip():
                y = MARGIN + LINE * (row + 1) - 4
                texts.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{spans(line)}</text>')
        delay = number * FRAME_SECONDS
        body.append(f'<g class="f" style="animation-delay:{delay}s">{"".join(texts)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">'
        "<title>A tour of Octavo: ten commands against a simulated cluster</title>"
        f"<style>{style}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>' + "\n".join(body) + "</svg>\n"
    )


def main():
    source, cast_path, svg_path = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        frames = [frame(*step) for step in steps(file.read())]
    if len(frames) < 2:
        sys.exit(f"{source} contains no tour")
    for path, text in ((cast_path, cast(frames)), (svg_path, svg(frames))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


main()
