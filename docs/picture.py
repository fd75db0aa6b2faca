#!/usr/bin/env python3
"""Writes docs/picture.svg, the picture of the README: python3 docs/picture.py > docs/picture.svg"""

WIDTH, HEIGHT = 760, 300
parts = []


def box(x, y, width, height, fill, stroke="#57606a"):
    parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>')


def text(x, y, words, size=13, weight="normal", anchor="middle", fill="#1f2328"):
    parts.append(f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
                 f'fill="{fill}">{words}</text>')


def arrow(x1, y1, x2, y2, colour, dashed=False, both=False):
    style = ' stroke-dasharray="5 4"' if dashed else ""
    start = f' marker-start="url(#{colour})"' if both else ""
    parts.append(f'<path d="M{x1},{y1} L{x2},{y2}" stroke="{COLOURS[colour]}" stroke-width="2" fill="none"{style}'
                 f'{start} marker-end="url(#{colour})"/>')


COLOURS = {"grey": "#57606a", "blue": "#0969da", "green": "#1a7f37"}

box(255, 10, 250, 34, "#fff8c5")
text(380, 32, "hvdrun -np 4 -H a:2,b:2 ./train", weight="bold")

for host, left, first in (("a", 20, 0), ("b", 400, 2)):
    box(left, 82, 340, 208, "#f6f8fa")
    text(left + 12, 103, f"host {host}", weight="bold", anchor="start")
    box(left + 120, 90, 100, 24, "#fff8c5")
    text(left + 170, 107, "agent")
    for k in range(2):
        x = left + 15 + 170 * k
        arrow(left + 170, 114, x + 70, 134, "grey")
        text(x + 70, 150, f"rank {first + k}", weight="bold")
        box(x, 158, 140, 28, "#ffffff")
        text(x + 70, 177, "your LibTorch trainer", 12)
        box(x, 190, 140, 28, "#dafbe1")
        text(x + 70, 209, "hvd: gradient hooks", 12)
        box(x, 222, 140, 28, "#ddf4ff")
        text(x + 70, 241, "hvd: allreduce engine", 12)
    arrow(left + 157, 236, left + 183, 236, "blue", both=True)
    text(left + 170, 280, "the ranks of a host reduce in shared memory", 12, fill=COLOURS["blue"])

arrow(315, 44, 190, 88, "grey")
arrow(445, 44, 570, 88, "grey")
text(380, 72, "starts, watches, ends", 12, fill=COLOURS["grey"])
arrow(361, 204, 399, 204, "green", both=True)
text(380, 194, "TCP", 12, weight="bold", fill=COLOURS["green"])

markers = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" '
    f'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
    for name, colour in COLOURS.items())
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
      f'font-family="Helvetica, Arial, sans-serif">\n<title>Four ranks on two hosts</title>\n<defs>{markers}</defs>\n'
      f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')
print("\n".join(parts))
print("</svg>")
