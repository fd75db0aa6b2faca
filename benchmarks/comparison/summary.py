"""Computes medians over rounds, compares them with bounds and peers, and makes the table."""
import dataclasses
import statistics

OURS = ("hvd-arena", "hvd-private", "hvd-engine")
BOUNDS = ("bound-arena", "bound-private", "iperf3")
ORDER = (*BOUNDS, *OURS)
CLIFF_UP_TO = 1 << 20  # bytes; above this, the p99 of a few iterations says nothing


@dataclasses.dataclass
class Cell:
    """One contender at one size, over all rounds. Times are in µs."""

    median: float
    least: float
    most: float
    p99: float  # the median of the rounds' p99
    busbw: float  # GB/s, at the median
    wrong: int
    rounds: int


def cells(rows):
    """Returns {(who, bytes): Cell} for rows as --json writes them."""
    groups = {}
    for row in rows:
        groups.setdefault((row["who"], row["bytes"]), []).append(row)
    result = {}
    for key, group in groups.items():
        times = [row["p50_us"] for row in group]
        median = statistics.median(times)
        ranks = group[0]["ranks"]
        busbw = key[1] / median / 1e3 * 2 * (ranks - 1) / ranks if median else 0.0
        result[key] = Cell(
            median=median,
            least=min(times),
            most=max(times),
            p99=statistics.median(row["p99_us"] for row in group),
            busbw=busbw,
            wrong=sum(row["wrong"] for row in group),
            rounds=len(group),
        )
    return result


def whos(rows):
    """Returns the names of the bounds, of hvd's contenders, and then of the peers."""
    seen = list(dict.fromkeys(row["who"] for row in rows))
    return [who for who in ORDER if who in seen] + [who for who in seen if who not in ORDER]


def bound_of(who, present):
    """Returns the bound with which hvd's contender `who` is compared, or None."""
    own = "bound-private" if who == "hvd-engine" else who.replace("hvd-", "bound-")
    for bound in (own, "iperf3"):
        if bound in present:
            return bound
    return None


def size_text(size):
    """Returns a text such as 4 B, 64 KiB or 1 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def time_text(us):
    digits = 2 if us < 10 else 1 if us < 100 else 0
    return f"{us:,.{digits}f}"


def ratio_text(ratio):
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def cell_text(who, size, table, present):
    cell = table.get((who, size))
    if cell is None:
        return "–"
    text = time_text(cell.median)
    if cell.rounds > 1:
        text += f" ({time_text(cell.least)}–{time_text(cell.most)})"
    if who in OURS:
        bound = table.get((bound_of(who, present), size))
        if bound:
            text += f" **{ratio_text(bound.median / cell.median)}**"
    elif who not in BOUNDS:
        ours = [table.get((our, size)) for our in OURS if our in present]
        if any(ours):
            text += " **" + " / ".join(
                f"{ratio_text(cell.median / our.median)}×" if our else "–" for our in ours) + "**"
    if cell.wrong:
        text += f" ({cell.wrong} WRONG)"
    return text


def legend(present):
    """Returns the explanation of the table."""
    lines = ["µs, median over the rounds of each round's p50 (least–most)."]
    ours = [our for our in OURS if our in present]
    held = [(our, bound_of(our, present)) for our in ours]
    held = [f"{our} of {bound}'s" for our, bound in held if bound]
    if held:
        lines.append("Bold after ours: the share of the bound's speed that it reaches, "
                     + " and ".join(held) + ".")
    if ours and any(who not in ORDER for who in present):
        lines.append("Bold after a peer: how many times the time of " + " / of ".join(ours)
                     + " it takes.")
    return " ".join(lines)


def markdown(rows):
    """Returns the table."""
    present = whos(rows)
    table = cells(rows)
    lines = ["| bytes | " + " | ".join(present) + " |", "| ---: |" + " ---: |" * len(present)]
    for size in sorted({row["bytes"] for row in rows}):
        texts = [cell_text(who, size, table, present) for who in present]
        lines.append(f"| {size_text(size)} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def cliffs(rows):
    """Returns each contender's largest p99/p50 up to 1 MiB, and its size."""
    table = cells(rows)
    texts = []
    for who in whos(rows):
        worst = max(
            ((cell.p99 / cell.median, size) for (name, size), cell in table.items()
             if name == who and size <= CLIFF_UP_TO and cell.median > 0),
            default=None,
        )
        if worst and who != "iperf3":
            texts.append(f"{who} {worst[0]:.1f} at {size_text(worst[1])}")
    return "Largest p99/p50 up to 1 MiB: " + ", ".join(texts) + "." if texts else ""


def wrong(rows):
    """Returns the number of wrong elements by contender."""
    counts = {who: 0 for who in whos(rows)}
    for row in rows:
        counts[row["who"]] += row["wrong"]
    return counts
