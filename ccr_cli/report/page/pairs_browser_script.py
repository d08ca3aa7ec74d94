"""The script and the style of the part of the page in which one looks through pairs."""

from __future__ import annotations

SCRIPT = r"""
"use strict";
(() => {
  const told = JSON.parse(document.getElementById("explorer-data").textContent);
  const root = document.getElementById("explorer");
  const make = (tag, words, kind) => {
    const node = document.createElement(tag);
    if (words !== undefined) node.textContent = words;
    if (kind) node.className = kind;
    return node;
  };
  const STEP = 40;
  let held = false;
  const ORDERS = {
    p: ["most suspicious", (q, s) => q.place[s.a]],
    uncertainty: ["most uncertain", (q, s) => -q.uncertainty[s.a]],
    similarity: ["least similar", (q, s) => q.similarity[s.a]],
    difference: ["runs differ most", (q, s) => -Math.abs(q.p[s.a] - q.p[s.b])],
  };
  const state = { group: 0, a: told.groups[0].first, b: -1, words: "", verdict: "", truth: "", differ: false, by: "p",
    back: false, shown: STEP };
  const form = make("form", undefined, "controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  const field = (name, input) => {
    const label = make("label");
    label.append(make("span", name), input);
    input.setAttribute("aria-label", name);
    form.append(label);
    return input;
  };
  const choice = (name, key, asked) => {
    const input = field(name, make("select"));
    input.id = "pairs-" + key;
    input.addEventListener("change", () => asked(input.value));
    return input;
  };
  const fill = (input, options, value) => {
    input.replaceChildren(...options.map(([key, words]) => {
      const option = make("option", words);
      option.value = String(key);
      return option;
    }));
    input.value = String(value);
  };
  const set = (changes) => { Object.assign(state, { shown: STEP }, changes); draw(); };
  const change = (changes) => { set(changes); options(); };
  const START = { b: -1, truth: "", differ: false };
  const group = choice("pairs", "group", (v) => change({ ...START, group: +v, a: told.groups[+v].first }));
  const first = choice("run", "run", (v) => change({ a: +v, b: state.b === +v ? -1 : state.b }));
  const second = choice("compare with", "other", (v) => change({ b: +v, differ: state.differ && +v >= 0 }));
  const order = choice("sort by", "sort", (v) => set({ by: v, back: false }));
  const verdict = choice("verdict", "verdict", (v) => set({ verdict: v }));
  const truth = choice("in truth", "truth", (v) => set({ truth: v }));
  const search = field("words", make("input"));
  search.type = "search";
  search.id = "pairs-words";
  search.placeholder = "in any text (press /)";
  search.addEventListener("input", () => set({ words: search.value.toLowerCase() }));
  const differ = make("input");
  differ.type = "checkbox";
  differ.id = "pairs-differ";
  const tick = make("label", undefined, "tick");
  tick.append(differ, make("span", "only where verdicts differ"));
  form.append(tick);
  differ.addEventListener("change", () => set({ differ: differ.checked }));
  const said = make("p", undefined, "note");
  said.setAttribute("role", "status");
  const table = make("table", undefined, "pairs");
  const head = make("tr");
  const body = make("tbody");
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  const more = make("button", "show more", "more-pairs");
  more.type = "button";
  more.addEventListener("click", () => {
    const from = body.rows.length;
    state.shown += STEP;
    draw();
    if (body.rows[from]) { body.rows[from].tabIndex = -1; body.rows[from].focus(); }
  });
  root.append(form, said, table, more);
  root.hidden = false;
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    held = held && event.repeat;
    if (event.key === "/" && (held || !typing) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault(); search.focus(); held = true;
    }
    if (event.key === "Escape" && event.target === search) { search.value = ""; set({ words: "" }); }
  });

  const options = () => {
    const g = told.groups[state.group], runs = g.runs.map((name, i) => [i, name]);
    fill(group, told.groups.map((each, i) => [i, each.name]), state.group);
    fill(first, runs, state.a);
    fill(second, [[-1, "\u2013"], ...runs.filter(([i]) => i !== state.a)], state.b);
    const orders = Object.entries(ORDERS).filter(([key]) => key !== "difference" || state.b >= 0);
    fill(order, orders.map(([key, [words]]) => [key, words]), state.by);
    fill(verdict, [["", "any"], ["noisy", "called noisy"], ["clean", "called clean"]], state.verdict);
    fill(truth, [["", "any"], ["noisy", "mismatched"], ["clean", "intact"]], state.truth);
    truth.parentElement.hidden = !g.pairs.some((q) => q.truth);
    group.parentElement.hidden = told.groups.length < 2;
    second.parentElement.hidden = g.runs.length < 2;
    tick.hidden = state.b < 0;
    differ.checked = state.differ;
  };
  const wanted = (q) => (!state.words || [q.source, q.text, q.back || "", q.item].some((t) =>
    t.toLowerCase().includes(state.words))) && (!state.verdict || q.noisy[state.a] === (state.verdict === "noisy"))
    && (!state.truth || q.truth === state.truth) && (!state.differ || q.noisy[state.a] !== q.noisy[state.b]);
  const foreign = (words, lang) => {
    const node = make("bdi", words);
    node.dir = "auto";
    if (lang) node.lang = lang;
    return node;
  };
  const cell = (row, name, ...nodes) => {
    const node = make("td");
    node.dataset.name = name;
    node.append(...nodes);
    row.append(node);
    return node;
  };
  const bar = (value) => {
    const outer = make("span", undefined, "bar"), inner = make("i");
    inner.style.width = Math.round(100 * Math.min(1, Math.max(0, value))) + "%";
    outer.append(inner);
    return outer;
  };
  const figure = (q, key, names) => {
    const node = make("div");
    for (const run of [state.a, state.b]) {
      if (run < 0) continue;
      const line = make("div", undefined, "one");
      if (key === "p") line.append(bar(q.p[run]));
      line.append(q[key][run] === null ? "\u2013" : q[key][run].toFixed(3));
      if (state.b >= 0 && key === "p") line.append(" ", make("small", names[run]));
      node.append(line);
    }
    return node;
  };
  const heading = (words, key) => {
    const th = make("th");
    if (!key) { th.textContent = words; return th; }
    const button = make("button", words);
    button.type = "button";
    button.dataset.by = key;
    button.addEventListener("click", () => {
      set({ back: state.by === key && !state.back, by: key });
      options();
      head.querySelector('[data-by="' + key + '"]').focus();
    });
    const up = (key === "uncertainty") === state.back;
    th.setAttribute("aria-sort", state.by !== key ? "none" : up ? "ascending" : "descending");
    if (state.by === key) button.append(up ? " \u2191" : " \u2193");
    th.append(button);
    return th;
  };
  const draw = () => {
    if (state.b < 0 && state.by === "difference") state.by = "p";
    const g = told.groups[state.group], known = g.pairs.some((q) => q.truth), returned = g.pairs.some((q) => q.back);
    const pictured = told.images.length > 0;
    table.classList.toggle("plain", !pictured);
    const value = ORDERS[state.by][1], sign = state.back ? -1 : 1;
    const found = g.pairs.map((q, i) => [q, i]).filter(([q]) => wanted(q));
    found.sort((x, y) => sign * (value(x[0], state) - value(y[0], state)) || x[1] - y[1]);
    head.replaceChildren(...(pictured ? [heading("picture")] : []),
      heading(g.source ? "source (" + g.source + ")" : "source"), heading("translation (" + g.lang + ")"),
      ...(returned ? [heading("translated back")] : []), heading("P(clean)", "p"),
      heading("uncertainty", "uncertainty"), heading("similarity", "similarity"),
      heading(known ? "verdict, truth" : "verdict"));
    body.replaceChildren(...found.slice(0, state.shown).map(([q]) => {
      const row = make("tr"), address = told.images[q.image];
      let picture = make("div", "no image", "thumb none");
      if (address) { picture = make("img"); picture.src = address; picture.alt = ""; picture.loading = "lazy"; }
      picture.title = q.item;
      if (pictured) cell(row, "picture", picture);
      cell(row, g.source || "source", foreign(q.source, g.source));
      cell(row, g.lang, foreign(q.text, g.lang));
      if (returned) cell(row, "back", foreign(q.back || "\u2013", g.source));
      const p = cell(row, "P(clean)", figure(q, "p", g.runs));
      if (q.rare) p.append(make("small", "rare words"));
      cell(row, "uncertainty", figure(q, "uncertainty", g.runs));
      cell(row, "similarity", figure(q, "similarity", g.runs));
      const call = (run) => make("span", q.noisy[run] ? "called noisy" : "called clean", "tag " +
        (q.noisy[run] ? "noisy" : "clean"));
      const last = cell(row, "verdict", call(state.a));
      if (state.b >= 0) last.append(" ", call(state.b));
      if (q.truth) last.append(" ", make("small", q.truth === "noisy" ? "in truth mismatched" : "in truth intact"));
      return row;
    }));
    more.hidden = found.length <= state.shown;
    said.textContent = found.length.toLocaleString("en") + " of " + g.pairs.length.toLocaleString("en") +
      " pairs here; " + g.total.toLocaleString("en") + " were judged";
  };
  draw();
  options();
})();
"""

STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .6rem .9rem; margin: .8rem 0 .4rem; align-items: end; }
.controls label { display: grid; gap: .15rem; font-size: .8rem; color: var(--faint); min-width: 0; }
.controls label[hidden] { display: none; }
.controls .tick { display: flex; align-items: center; gap: .4rem; min-height: 2.2rem; font-size: .9rem; }
.controls select, .controls input[type=search] { font: inherit; font-size: .92rem; color: var(--ink);
  background: var(--page); border: 1px solid var(--line); border-radius: 8px; padding: .35rem .5rem; min-height: 2.2rem;
  max-width: 100%; width: 100%; }
.controls input[type=search] { width: 13rem; }
:is(.controls *, table.pairs button, .more-pairs, a, summary, .scroll):focus-visible { outline: 2px solid var(--accent);
  outline-offset: 2px; }
table.pairs td { vertical-align: middle; } table.pairs td bdi { display: block; max-height: 6rem; overflow-y: auto;
  overflow-wrap: anywhere; min-width: 6rem; }
table.pairs img, table.pairs .thumb { width: 56px; height: 56px; object-fit: contain; background: #fff;
  border-radius: 8px; border: 1px solid var(--line); padding: 2px; display: grid; }
table.pairs th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  text-decoration: underline dotted; text-underline-offset: 3px; white-space: nowrap; }
table.pairs .none { background: var(--page); }
table.pairs small { color: var(--faint); } table.pairs td > small { display: block; }
table.pairs td[data-name=verdict] { line-height: 1.9; }
.more-pairs { font: inherit; margin: .8rem 0 0; padding: .45rem 1.1rem; border-radius: 8px; cursor: pointer;
  border: 1px solid var(--line); background: var(--page); color: var(--ink); }
@media (max-width: 860px) {
  .controls label:not(.tick) { flex: 1 1 8.5rem; } .controls input[type=search] { width: 100%; }
  table.pairs thead { display: none; } table.pairs, table.pairs tbody { display: block; }
  table.pairs tr { display: grid; grid-template-columns: 60px minmax(0, 1fr) minmax(0, 1fr); gap: .15rem .8rem;
    padding: .8rem 0; border-top: 1px solid var(--line); }
  table.pairs td { display: block; border: 0; padding: 0; grid-column: 2 / -1; }
  table.pairs td[data-name=picture] { grid-column: 1; grid-row: 1 / span 4; }
  table.pairs td[data-name=uncertainty] { grid-column: 2; } table.pairs td[data-name=similarity] { grid-column: 3; }
  table.pairs.plain tr { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
  table.pairs.plain td { grid-column: 1 / -1; }
  table.pairs.plain td[data-name=uncertainty] { grid-column: 1; }
  table.pairs.plain td[data-name=similarity] { grid-column: 2; }
  table.pairs td:not([data-name=picture], [data-name=verdict])::before { content: attr(data-name); display: block;
    color: var(--faint); font-size: .74rem; }
}
"""
