"""Draws recorded text as an SVG of a terminal: `pictures.py demo|help FILE <TEXT`. .ci/pictures calls it.

The letters are the system's own monospace font. Each line has its length in the picture, so that a wider font is not cut.
"""

import os
import re
import sys
import textwrap
from html import escape

COLUMNS = int(os.environ["COLUMNS"])
BYTES_MAX = 60 * 1024

ADVANCE, FONT, LINE, MARGIN, BAR = 8.4, 14, 19, 16, 32

TITLES = {
    "demo": "The end of make demo: a watch and a shell go on after ten seconds without a link, the policy denies a request "
    "and explains it, and each cluster's own admin.conf works by the one address.",
    "help": "The output of tombolo --help: the commands of callers, operators and sites.",
}
COMMANDS = {"demo": "make demo", "help": "tombolo --help"}

# The first and the last line of each part of the demo that the picture shows.
PARTS = [
    (r"a watch and a shell run, and then the link goes dark", r"it is the same shell and the same watch"),
    (r"the policy gets one more rule", r"the rule \S+ denies it$"),
    (r"the server is still process", r"the server is still process"),
    (r"two offices have a route", r"two offices have a route"),
    (r"one address, \S+, in both admin.conf", r"everything was shown"),
]
# Lines of these parts that are left out. Dots take their place.
LEFT_OUT = re.compile(
    r"\$ nsenter --net=\S+ nft |(get \|) (kube-|tombolo)|"
    r"^ +(subjects|clusters|mode|actions|apiGroups|resources|namespaces): ?|^ +- (\{ method|verbs):"
)
DOTS = " " * 10 + "…"
# A network namespace is named by the process that holds it, which says nothing to a reader.
PROCESS = re.compile(r"/proc/\d+/fd/\d+")

# What belongs to one machine, or makes a reader's browser ask another.
FOREIGN = re.compile(r"/(home|root|tmp|work|proc)/|url\(|href=|@import")


def story(lines):
    """The parts of the demo's output, with dots where lines are left out."""
    shown = []

    def leave_out():
        if shown and shown[-1] != DOTS:
            shown.append(DOTS)

    for first, last in PARTS:
        begin = next((at for at, line in enumerate(lines) if re.search(first, line)), None)
        end = next((at for at, line in enumerate(lines) if re.search(last, line)), None)
        if begin is None or end is None:
            sys.exit(f"error: the demo did not print “{first}” or “{last}”. Correct PARTS in .ci/pictures.py")
        leave_out()
        for line in lines[begin : end + 1]:
            if LEFT_OUT.search(line):
                leave_out()
            else:
                shown.append(PROCESS.sub("…", line))
    return [DOTS] + shown


def styled_demo(line):
    """The lines that a line takes in the picture. The demo prints no colours; the picture's are its own."""
    time, label, rest = re.match(r"(\[ *[\d.]+ s\])?( +(?:watch|shell|typed|get) \|)?(.*)", line).groups("")
    style = "command" if rest.lstrip().startswith("$ ") else "strong" if time and not label else ""
    indent = len(re.match(r"(\[ *[\d.]+ s\])? *(\$ )?", line).group())
    first, *more = textwrap.wrap(line, COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False) or [""]
    yield [("time", time + label), (style, first[len(time + label) :])]
    for part in more:
        yield [(style, part)]


def styled_help(line):
    """Pairs of a class and text, of a line with the terminal's codes for bold and underlined."""
    pairs, style = [], ""
    for text, codes in re.findall(r"([^\x1b]*)(\x1b\[[\d;]*m)?", line):
        if text:
            pairs.append((style, text))
        if codes:
            style = "" if codes == "\x1b[0m" else "strong"
    return pairs


def span(style, text):
    """A part of a line."""
    return f'<tspan class="{style}">{escape(text, False)}</tspan>' if style else escape(text, False)


def drawn(lines, name):
    """The picture of lines, each a list of pairs of a class and text."""
    width, height = COLUMNS * ADVANCE + 2 * MARGIN, BAR + len(lines) * LINE + 2 * MARGIN
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" viewBox="0 0 {width:g} {height}"',
        'role="img" aria-labelledby="title">',
        f'<title id="title">{escape(TITLES[name], False)}</title>',
        "<style>",
        f"text {{ font: {FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace }}",
        "text { fill: #24292f; white-space: pre }",
        ".time { fill: #656d76 } .command { fill: #0550ae } .strong { font-weight: 600 }",
        "</style>",
        f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8" fill="#fff" stroke="#9db3d6"/>',
        f'<path d="M.5 {BAR}H{width - 0.5:g}" stroke="#d0d7de"/>',
        '<g fill="#d0d7de"><circle cx="20" cy="16" r="5"/><circle cx="38" cy="16" r="5"/><circle cx="56" cy="16" r="5"/></g>',
        f'<text x="{width / 2:g}" y="21" text-anchor="middle" class="time">{escape(COMMANDS[name], False)}</text>',
    ]
    for at, pairs in enumerate(lines):
        length = sum(len(text) for _, text in pairs)
        if length > 0:
            y = BAR + MARGIN + at * LINE + FONT
            content = "".join(span(style, text) for style, text in pairs if text)
            picture.append(f'<text x="{MARGIN}" y="{y}" textLength="{length * ADVANCE:.1f}" xml:space="preserve">{content}</text>')
    return "\n".join([*picture, "</svg>", ""])


def main(name, file):
    """Reads the recorded text, and writes the picture."""
    lines = [line.rstrip() for line in sys.stdin.read().splitlines()]
    if name == "demo":
        styled = [part for line in story(lines) for part in styled_demo(line)]
    else:
        styled = [styled_help(line) for line in lines]
    picture = drawn([[("command", f"$ {COMMANDS[name]}")], *styled], name)
    foreign = FOREIGN.search(picture)
    if foreign:
        sys.exit(f"error: the picture of {name} has “{foreign.group()}”, which belongs to this machine or leads to another host")
    if len(picture.encode()) > BYTES_MAX:
        sys.exit(f"error: the picture of {name} has {len(picture.encode())} bytes, of at most {BYTES_MAX}: show less")
    with open(file, "w", encoding="utf-8") as out:
        out.write(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
