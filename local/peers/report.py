"""The tables, the numbers as JSON, and the picture."""

import json
import math

OURS = "Tidemark"
TITLES = {
    "page": "first page of 50 posts with texts",
    "page_of_appview": "the same, from the appview itself",
    "unread": "unread counts",
    "publish": "publish",
    "like": "like",
    "follow": "follow",
    "mark": "mark everything read",
    "visible": "new post visible to a follower",
}
STYLE = """text { fill: #222222 } .back { fill: #ffffff } .grid { stroke: #eeeeee }
.one { stroke: #000000 } .cpu_s { fill: #1f77b4 } .p50_ms { fill: #ff7f0e }
@media (prefers-color-scheme: dark) {
text { fill: #e6e6e6 } .back { fill: #0d1117 }
.grid { stroke: #30363d } .one { stroke: #e6e6e6 } .cpu_s { fill: #58a6ff } .p50_ms { fill: #f0a04b } }"""
KINDS = {"cpu_s": "processor time", "p50_ms": "p50 at the client"}
LEFT, SCALE, BAR, WIDTH = 250, 170, 10, 800


def ratios(systems):
    """Ours divided by theirs, for each peer and operation."""
    ours, found = systems.get(OURS, {}).get("operations", {}), {}
    for name, system in systems.items():
        for operation, theirs in system["operations"].items() if ours and name != OURS else ():
            mine = ours["page" if operation == "page_of_appview" else operation]
            found.setdefault(name, {})[operation] = {kind: round(mine[kind] / theirs[kind], 3) for kind in KINDS if theirs.get(kind)}
    return found


def table(found, kind, head, show):
    """A table of Markdown: a row for each operation, a column for each system, and the ratios of that kind."""
    systems, peers = found["systems"], found["ratios"]
    rows = [[head, *systems, *(f"÷ {peer}" for peer in peers)]]
    for operation, title in TITLES.items():
        results = [system["operations"].get(operation, {}) for system in systems.values()]
        if any(kind in result for result in results):
            quotients = [peers[peer].get(operation, {}).get(kind) for peer in peers]
            rows.append([title, *(show(one) if kind in one else "" for one in results), *("" if one is None else f"{one:.3g}" for one in quotients)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [f"| {row[0].ljust(widths[0])} | " + " | ".join(map(str.rjust, row[1:], widths[1:])) + " |" for row in rows]
    rule = f"|{'-' * (widths[0] + 2)}|" + "".join("-" * (width + 1) + ":|" for width in widths[1:])
    return [lines[0], rule, *lines[1:], ""]


def programs(found):
    """A table of Markdown: processor seconds by system and program."""
    names = {}
    for name, system in found["systems"].items():
        spent = [pair for one in system["operations"].values() for pair in one.get("programs", {}).items()]
        names[name] = sorted({program for program, seconds in spent if seconds >= 0.005})
    yield "| processor seconds for 1,000 requests | " + " | ".join(f"{system}: {one}" for system in names for one in names[system]) + " |"
    yield "|---|" + "--:|" * sum(map(len, names.values()))
    for operation, title in TITLES.items():
        results = {name: found["systems"][name]["operations"].get(operation, {}).get("programs") for name in names}
        if any(results.values()):
            yield f"| {title} | " + " | ".join(f"{results[name][one]:.2f}" if results[name] else "" for name in names for one in names[name]) + " |"


def picture(peers):
    """Bars from 1, the peer's own value: to the left what takes less here, to the right what takes more. The axis is logarithmic."""
    place = lambda value: LEFT + SCALE * min(3, max(0, 2 + math.log10(value)))  # noqa: E731
    at, out = 100, []
    for peer, operations in peers.items():
        out.append(f'<text x="10" y="{at - 10}" font-weight="bold">÷ {peer}</text>')
        shown = [one for one in TITLES if one in operations]
        for value in (0.01, 0.1, 1, 10):
            out.append(f'<path class="{"one" if value == 1 else "grid"}" d="M{place(value)} {at - 6}v{36 * len(shown)}"/>')
            out.append(f'<text x="{place(value)}" y="{at - 12}" text-anchor="middle">{value}</text>')
        for operation in shown:
            out.append(f'<text x="{LEFT - 10}" y="{at + 15}" text-anchor="end">{TITLES[operation]}</text>')
            for kind, value in operations[operation].items():
                x, y = place(value), at + list(KINDS).index(kind) * (BAR + 2)
                out.append(f'<rect class="{kind}" x="{min(x, place(1)):.1f}" y="{y}" width="{max(1, abs(x - place(1))):.1f}" height="{BAR}"/>')
                out.append(f'<text x="{max(x, place(1)) + 6:.1f}" y="{y + 9}" font-size="10">{value:.2g}</text>')
            at += 36
        at += 50
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {at - 50}" font-family="sans-serif" font-size="12">']
    head.append(f"<style>{STYLE}</style>")
    head.append(f'<rect class="back" width="{WIDTH}" height="{at - 50}"/>')
    head.append('<text x="10" y="24" font-size="16">Tidemark ÷ peer: left of 1 Tidemark takes less</text>')
    for number, (kind, title) in enumerate(KINDS.items()):
        x = LEFT + 140 * number
        head.append(f'<rect class="{kind}" x="{x}" y="40" width="{BAR}" height="{BAR}"/><text x="{x + 16}" y="49">{title}</text>')
    return "\n".join([*head, *out, "</svg>", ""])


def write(found, folder):
    found["ratios"] = ratios(found["systems"])
    tables = table(found, "cpu_s", "processor seconds for 1,000 requests", lambda one: f"{one['cpu_s']:.2f}")
    tables += table(found, "p50_ms", "p50 / p99 at the client, ms", lambda one: f"{one['p50_ms']:.1f} / {one['p99_ms']:.1f}")
    print("\n".join(["", *tables, *programs(found)]))
    (folder / "peers.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if found["ratios"]:
        (folder / "peers.svg").write_text(picture(found["ratios"]))
    print(f"\nwritten: {folder / 'peers.json'}")
