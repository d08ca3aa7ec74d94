"""Building blocks of the page; every text that comes from data is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from ccr_cli.console import plain
from ccr_cli.report.tables.table import Table, column_groups

MANY = 12
"""With more columns a table is set closer."""
SHORT = 28
"""Words of fewer letters stay on one line of a table."""


def text(value: object) -> str:
    """Escapes a text for element content and quoted attributes; control characters are replaced."""
    return html.escape(plain(str(value)), quote=True)


def prose(value: object) -> str:
    """Escapes a sentence and keeps figures together with their unit and spread."""
    return re.sub(r"(?<=\d) (?=%)| (?=±)|(?<=±) ", "\u00a0", text(value))


def foreign(value: object, lang: str = "") -> str:
    """A text in some language, kept from disturbing what stands beside it (writing direction, font)."""
    attribute = f' lang="{text(lang)}"' if lang else ""
    return f'<bdi dir="auto"{attribute}>{text(value)}</bdi>'


def signature(value: object) -> str:
    """A signature, which may be broken after any of its fields."""
    return f"<code>{text(value).replace('|', '|<wbr>')}</code>"


def web_link(address: object) -> str:
    """A link to follow by hand; addresses that are not of the web are only shown."""
    shown = text(address)
    if str(address).startswith(("https://", "http://")):
        return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>'
    return shown


def section(anchor: str, title: str, parts: Iterable[str]) -> str:
    """A titled part of the page, left out where it holds nothing."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{anchor}">\n<h2>{text(title)}</h2>\n{body}\n</section>' if body else ""


def details(summary: str, body: str, *, open_: bool = False) -> str:
    """What a reader can fold out."""
    return f"<details{' open' if open_ else ''}><summary>{prose(summary)}</summary>\n{body}\n</details>"


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{f' class={kind}' if kind else ''}>{prose(words)}</p>"


def table(data: Table, *, title: bool = True, kind: str = "") -> str:
    """A table with headings over groups of columns; the best figures are bold, the second underlined, spreads small."""
    places, spans = data.places(), column_groups(data)
    kind = kind or ("dense" if len(data.columns) > MANY else "")
    lines = [f'<figure class="table"><div class="scroll"><table{f" class={kind}" if kind else ""}>']
    if title:
        lines.insert(0, f"<h3>{text(data.title)}</h3>")
    lines.append("<thead>")
    if any(group for group, _, _ in spans):
        heads = (f'<th colspan="{width}"{" class=group" if name else ""}>{text(name)}</th>' for name, _, width in spans)
        lines.append(f"<tr>{''.join(heads)}</tr>")
    heads = (f'<th class="{"word" if c.text else "number"}">{prose(c.title)}</th>' for c in data.columns)
    lines.append(f"<tr>{''.join(heads)}</tr></thead>\n<tbody>")
    for r, row in enumerate(data.rows):
        known = (("block", data.starts_block(r)), ("ceiling", row.ceiling), ("quoted", row.quoted))
        kinds = [kind for kind, there in known if there]
        lines.append(f'<tr class="{" ".join(kinds)}">' if kinds else "<tr>")
        for c, column in enumerate(data.columns):
            mean, _, spread = data.printed(r, c, pm="\x00").partition("\x00")
            repeated = column.text and c == 0 and r > 0 and row.block and not data.starts_block(r)
            shown = "" if repeated else text(mean)
            mark = {1: "b", 2: "u"}.get(places.get((r, c), 0))
            shown = f"<{mark}>{shown}</{mark}>" if mark else shown
            shown += f'<span class="sd">±&#8239;{text(spread)}</span>' if spread else ""
            kind = "number" if not column.text else "word" if len(mean) < SHORT else "words"
            lines.append(f'<td class="{kind}">{shown}</td>')
        lines.append("</tr>")
    lines.append("</tbody></table></div>")
    if data.notes:
        lines.append(f"<figcaption>{' '.join(prose(note) for note in data.notes)}</figcaption>")
    return "\n".join([*lines, "</figure>"])


def rows(heads: Iterable[str], lines: Iterable[Iterable[str]], kind: str = "") -> str:
    """A plain table; the cells are markup already, and bear their head for where a phone shows none."""
    names = [text(name) for name in heads]
    head = "".join(f"<th>{name}</th>" for name in names)
    cells = ([f'<td data-name="{n}">{cell}</td>' for n, cell in zip(names, line, strict=True)] for line in lines)
    body = "\n".join(f"<tr>{''.join(line)}</tr>" for line in cells)
    start = f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
    return f"{start}\n<tbody>\n{body}\n</tbody></table></div>"
