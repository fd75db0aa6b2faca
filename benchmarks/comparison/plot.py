"""Draws time and busbw over size, both scales logarithmic, as SVG. Needs nothing but Python."""
import math

from comparison import summary

WIDTH, LEFT, RIGHT = 900, 80, 170
TIMES = (50, 370)  # top and bottom of the upper chart, in pixels
RATES = (430, 690)
COLOURS = {
    "bound-arena": "#111", "bound-private": "#777", "iperf3": "#111",
    "hvd-arena": "#d2461e", "hvd-private": "#e0952b",
    "openmpi": "#1f5fb4", "openmpi-tuned": "#63a0e6", "mpich": "#2e7d32", "gloo": "#8e44ad",
    "c10d": "#c2559a", "oneccl": "#00838f", "horovod": "#795548",
}
OTHER = "#009688"


def logarithmic(low, high, begin, end):
    """Maps [low, high] to pixels; decades are equally far apart."""
    span = max(math.log10(high / low), 1e-9)
    return lambda value: begin + math.log10(value / low) / span * (end - begin)


def decades(low, high):
    return [10.0**p for p in range(math.ceil(math.log10(low) - 1e-9),
                                   math.floor(math.log10(high) + 1e-9) + 1)]


def time_label(us):
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:g} {name}"
    return f"{us:g} µs"


def rate_label(gbs):
    for unit, name in ((1, "GB/s"), (1e-3, "MB/s"), (1e-6, "kB/s")):
        if gbs >= unit * 0.999:
            return f"{gbs / unit:g} {name}"
    return f"{gbs / 1e-9:g} B/s"


def chart(box, low, high, label, x_of, series):
    """Returns grid, axes and one line per series, which is (who, [(size, value)]), as SVG."""
    y_of = logarithmic(low, high, box[1], box[0])
    out = []
    for value in decades(low, high):
        y = y_of(value)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label(value)}</text>')
    for who, points in series:
        colour = COLOURS.get(who, OTHER)
        style = 'stroke-dasharray="6 3" stroke-width="2.5"' if who in summary.BOUNDS else (
            'stroke-width="2.5"' if who in summary.OURS else 'stroke-width="1.2"')
        places = [(x_of(size), y_of(value)) for size, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline fill="none" stroke="{colour}" {style} points="{path}"/>')
        for (x, y), (size, value) in zip(places, points):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"><title>{who}, '
                       f'{summary.size_text(size)}: {label(float(f"{value:.3g}"))}</title></circle>')
    out.append(f'<path d="M{LEFT} {box[0]}V{box[1]}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>')
    return out


def padded(values):
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)) + 1e-9)


def draw(rows, title):
    """Returns the picture as text."""
    table = summary.cells(rows)
    present = summary.whos(rows)
    sizes = sorted({row["bytes"] for row in rows})
    x_of = logarithmic(sizes[0], max(sizes[-1], 2 * sizes[0]), LEFT + 10, WIDTH - RIGHT - 10)

    def series(attribute):
        return [(who, [(size, getattr(table[who, size], attribute)) for size in sizes
                       if (who, size) in table]) for who in present]

    cells = table.values()
    out = chart(TIMES, *padded([cell.median for cell in cells]), time_label, x_of, series("median"))
    out += chart(RATES, *padded([cell.busbw for cell in cells]), rate_label, x_of,
                 series("busbw"))
    step = max(1, len(sizes) // 9)
    for size in sizes[::step]:
        out.append(f'<text x="{x_of(size):.1f}" y="{RATES[1] + 18}" text-anchor="middle">'
                   f'{summary.size_text(size)}</text>')
    for number, who in enumerate(present):
        y = TIMES[0] + 12 + 18 * number
        x = WIDTH - RIGHT + 12
        dash = ' stroke-dasharray="6 3"' if who in summary.BOUNDS else ""
        out.append(f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke-width="2.5"{dash} '
                   f'stroke="{COLOURS.get(who, OTHER)}"/><text x="{x + 32}" y="{y + 4}">{who}</text>')
    out += [
        f'<text x="{LEFT}" y="24" font-size="16">{title}</text>',
        f'<text x="{LEFT}" y="{TIMES[0] - 8}" font-size="11">time of one operation, median</text>',
        f'<text x="{LEFT}" y="{RATES[0] - 8}" font-size="11">busbw = 2(n−1)/n × bytes / time</text>',
    ]
    height = RATES[1] + 35
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" font-family="sans-serif" font-size="12" fill="#333">\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n')
    return head + "\n".join(out) + "\n</svg>\n"
