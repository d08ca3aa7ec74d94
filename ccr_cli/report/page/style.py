"""The page's style sheet, for light and dark."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ink: #1d2127; --faint: #5f6773; --line: #dfe3e8; --grid: #e3e7ec; --page: #f6f7f9;
  --card: #ffffff; --accent: #0b63a5; --good: #007a57; --bad: #b84a00; --wash: #eef4fa; --edge: #0000002e;
  --blue: #0072b2; --orange: #d55e00; --grey: #737a85; --green: #009e73; --violet: #8c6bb1; --brown: #7a5c3d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --faint: #9aa3af; --line: #2d333b; --grid: #2d333b;
  --page: #0f1216; --card: #171b21; --accent: #6cb6ff; --good: #3ecf9b; --bad: #ff9a5c; --wash: #14202d;
  --edge: #ffffff38;
  --blue: #4aa8ec; --orange: #ff8b45; --grey: #98a1ad; --green: #2cc398; --violet: #b596da; --brown: #b39372; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", sans-serif; }
main { overflow-wrap: break-word; max-width: 1120px; margin: 0 auto; padding: 2.2rem 1.25rem 4rem; }
h1 { font-size: 1rem; font-weight: 600; color: var(--faint); margin: 0 0 .6rem; letter-spacing: .01em; }
.headline { font-size: clamp(1.35rem, 2.6vw, 1.85rem); line-height: 1.28; font-weight: 650; margin: 0 0 .7rem;
  letter-spacing: -.012em; text-wrap: pretty; }
.more { font-size: 1.05rem; color: var(--ink); margin: .2rem 0; max-width: 62rem; }
.byline { color: var(--faint); margin: .9rem 0 0; font-size: .93rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: .8rem; margin: 1.5rem 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .85rem 1rem .8rem; }
.tile b { display: block; font-size: 1.9rem; line-height: 1.1; font-weight: 680; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; color: var(--accent); } .tile b.open { color: var(--faint); font-weight: 400; }
.tile span { display: block; font-size: .92rem; margin-top: .3rem; }
.tile small { color: var(--faint); font-size: .82rem; }
nav { margin: 1.5rem 0 0; font-size: .92rem; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1.3rem 1.5rem 1.5rem;
  margin: 1.5rem 0 0; }
h2 { font-size: 1.22rem; margin: 0 0 .7rem; letter-spacing: -.01em; }
h3 { font-size: .98rem; margin: 1.5rem 0 .5rem; }
p { margin: .4rem 0 .8rem; max-width: 62rem; }
figure { margin: 1rem 0; } figure:first-of-type { margin-top: .4rem; }
figure.plot { text-align: center; } figure.plot svg { max-width: 100%; height: auto; display: block; margin: 0
  auto; color: var(--ink); }
figcaption { color: var(--faint); font-size: .86rem; line-height: 1.45; margin-top: .5rem; text-align: left; }
.pair { display: grid; grid-template-columns: minmax(0, 1.35fr) minmax(0, 1fr); gap: 1.6rem; align-items: center; }
@media (max-width: 860px) { .pair { grid-template-columns: minmax(0, 1fr); } section { padding: 1rem; } }
.scroll { overflow-x: auto; }
.scroll, figure.plot { background: linear-gradient(to right, var(--card) 40%, transparent) left / 42px 100% no-repeat
  local, linear-gradient(to left, var(--card) 40%, transparent) right / 42px 100% no-repeat local,
  linear-gradient(to right, var(--edge), transparent) left / 16px 100% no-repeat,
  linear-gradient(to left, var(--edge), transparent) right / 16px 100% no-repeat; }
@media (max-width: 700px) { figure.plot { overflow-x: auto; } figure.plot svg { max-width: none; min-width: 34rem; } }
td bdi { overflow-wrap: anywhere; } table.suspects td bdi { display: block; max-height: 6rem; overflow-y: auto;
  overflow-wrap: break-word; max-width: 20rem; }
td u { text-underline-offset: 3px; text-decoration-thickness: 1.5px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--faint); font-size: .82rem; padding: .3rem .55rem;
  border-bottom: 1px solid var(--line); vertical-align: bottom; }
th.number { text-align: right; } th.group { text-align: center; color: var(--ink); }
td { padding: .34rem .55rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; } td.number, td.word, .one { white-space: nowrap; }
td.words { min-width: 15rem; } tr.block td { border-top: 2px solid var(--line); }
tr.ceiling td { color: var(--faint); font-style: italic; } tbody tr:last-child td { border-bottom: 0; }
tr.quoted td { background: var(--wash); } table.beside { font-size: .86rem; }
table.beside :is(th, td) { padding-inline: .4rem; } table.beside td.word { white-space: normal; }
table.beside td.word:nth-child(3) { white-space: nowrap; } table.beside td.words { min-width: 9rem; }
@media (max-width: 860px) { table.beside td.words { min-width: 16rem; } }
table.dense { font-size: .84rem; } table.dense :is(th, td) { padding-inline: .3rem; }
table.dense td.words { min-width: 9rem; }
td b { color: var(--good); font-weight: 700; }
.sd { display: block; color: var(--faint); font-size: .76rem; line-height: 1.15; }
details { border-top: 1px solid var(--line); padding: .55rem 0; } details:last-child { padding-bottom: 0; }
summary { cursor: pointer; font-weight: 600; font-size: .95rem; }
summary::marker { color: var(--faint); } details[open] > summary { margin-bottom: .6rem; }
table.suspects td { vertical-align: middle; } table.suspects img, .thumb { width: 44px; height: 44px; object-fit:
  contain;
  background: #fff; border-radius: 8px; border: 1px solid var(--line); padding: 2px; display: block; }
@media (max-width: 700px) { table.suspects, table.suspects tbody { display: block; }
  table.suspects thead { display: none; } table.suspects tr { display: grid; column-gap: .8rem; padding: .7rem 0;
    grid-template-columns: auto minmax(0, 1fr); border-top: 1px solid var(--line); }
  table.suspects td { display: block; border: 0; padding: 0 0 .3rem; grid-column: 2; }
  table.suspects td[data-name=picture] { grid-column: 1; grid-row: 1 / span 8; }
  table.suspects td bdi { max-width: none; }
  table.suspects td:not([data-name=picture])::before { content: attr(data-name); display: block; color: var(--faint);
    font-size: .74rem; line-height: 1.3; } }
.none { display: grid; place-items: center; text-align: center; line-height: 1.2; color: var(--faint); font-size:
  .7rem; }
table.translations bdi { display: inline-block; min-width: 7rem; }
.bar { display: inline-block; width: 64px; height: 7px; border-radius: 4px; background: var(--line); overflow: hidden;
  vertical-align: middle; margin-right: .5rem; } .bar i { display: block; height: 100%; background: var(--accent); }
.tag { font-size: .76rem; padding: .1rem .5rem; border-radius: 99px; border: 1px solid currentColor; white-space:
  nowrap; }
.tag.noisy { color: var(--bad); } .tag.clean { color: var(--good); } .tag.unknown { color: var(--faint); }
.search { display: grid; grid-template-columns: minmax(150px, 1fr) minmax(0, 3.2fr); gap: 1rem; padding: .9rem 0;
  border-top: 1px solid var(--line); align-items: center; } .search:first-of-type { border-top: 0; }
.search q { font-size: 1.12rem; font-weight: 650; quotes: none; display: block; line-height: 1.3; }
.search small { color: var(--faint); display: block; margin-top: .25rem; }
.hits { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: .7rem; margin: 0; padding: 0;
  list-style: none; }
.hits li { text-align: center; font-size: .78rem; line-height: 1.3; min-width: 0; }
.hits .frame { background: #fff; border: 1px solid var(--line); border-radius: 12px; padding: 7px; aspect-ratio: 1;
  display: grid; place-items: center; } .hits img { width: 100%; height: 100%; object-fit: contain; }
.hits .frame.right { border: 3px solid #009e73; padding: 5px; } .hits b { display: block; margin-top: .3rem;
  font-variant-numeric: tabular-nums; } .hits .right + b { color: var(--good); }
.hits span { color: var(--faint); display: block; overflow-wrap: anywhere; }
@media (max-width: 700px) { .search { grid-template-columns: 1fr; } }
@media (max-width: 480px) { .search .hits { grid-template-columns: repeat(3, minmax(0, 1fr)); } }
code, .mono { font: .8rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; } .sign { background: var(--wash); border-radius: 8px; padding: .6rem .9rem;
  max-width: none; } .note { color: var(--faint); font-size: .9rem; }
footer { color: var(--faint); font-size: .85rem; margin-top: 1.6rem; }
@media print { body { background: #fff; } section { break-inside: avoid; border: 0; padding: 0; } nav { display:
  none; } }
"""
