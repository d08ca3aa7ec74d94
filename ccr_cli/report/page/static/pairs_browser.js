// Browse training pairs: filter, sort, compare runs. Reads the JSON of #explorer-data and fills #explorer;
// text from data is only ever set as textContent.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const root = document.getElementById("explorer");
  const STEP = 40;
  const ORDERS = {
    p: ["most suspicious", (pair, state) => pair.place[state.a]],
    uncertainty: ["most uncertain", (pair, state) => -pair.uncertainty[state.a]],
    similarity: ["least similar", (pair, state) => pair.similarity[state.a]],
    difference: ["runs differ most", (pair, state) => -Math.abs(pair.p[state.a] - pair.p[state.b])],
  };
  const state = {
    group: 0, a: data.groups[0].first, b: -1, words: "", verdict: "", truth: "", differ: false, by: "p",
    back: false, shown: STEP,
  };
  const set = (changes) => { Object.assign(state, { shown: STEP }, changes); draw(); };
  const change = (changes) => { set(changes); updateControls(); };

  // Controls

  const make = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };
  const form = make("form", undefined, "controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  const field = (name, input) => {
    const label = make("label");
    label.append(make("span", name), input);
    input.setAttribute("aria-label", name);
    form.append(label);
    return input;
  };
  const choice = (name, key, onChange) => {
    const input = field(name, make("select"));
    input.id = "pairs-" + key;
    input.addEventListener("change", () => onChange(input.value));
    return input;
  };
  const fill = (input, options, value) => {
    input.replaceChildren(...options.map(([key, text]) => {
      const option = make("option", text);
      option.value = String(key);
      return option;
    }));
    input.value = String(value);
  };
  const START = { b: -1, truth: "", differ: false };
  const TRUTHS = { noisy: "mismatched", partly: "partly wrong", clean: "intact" };
  const group = choice("pairs", "group", (v) => change({ ...START, group: +v, a: data.groups[+v].first }));
  const first = choice("run", "run", (v) => change({ a: +v, b: state.b === +v ? -1 : state.b }));
  const second = choice("compare with", "other", (v) => change({ b: +v, differ: state.differ && +v >= 0 }));
  const order = choice("sort by", "sort", (v) => set({ by: v, back: false }));
  const verdict = choice("verdict", "verdict", (v) => set({ verdict: v }));
  const truth = choice("truth", "truth", (v) => set({ truth: v }));
  const search = field("search", make("input"));
  search.type = "search";
  search.id = "pairs-words";
  search.placeholder = "in all texts (press /)";
  search.addEventListener("input", () => set({ words: search.value.toLowerCase() }));
  const differ = make("input");
  differ.type = "checkbox";
  differ.id = "pairs-differ";
  const tick = make("label", undefined, "tick");
  tick.append(differ, make("span", "only different verdicts"));
  form.append(tick);
  differ.addEventListener("change", () => set({ differ: differ.checked }));
  const count = make("p", undefined, "note");
  count.setAttribute("role", "status");
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
  root.append(form, count, table, more);
  root.hidden = false;

  let slashDown = false;  // a held key repeats: its later events must not type into the search box
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    slashDown = slashDown && event.repeat;
    if (event.key === "/" && (slashDown || !typing) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault(); search.focus(); slashDown = true;
    }
    if (event.key === "Escape" && event.target === search) { search.value = ""; set({ words: "" }); }
  });

  const updateControls = () => {
    const current = data.groups[state.group], runs = current.runs.map((name, i) => [i, name]);
    fill(group, data.groups.map(({ name }, i) => [i, name]), state.group);
    fill(first, runs, state.a);
    fill(second, [[-1, "\u2013"], ...runs.filter(([i]) => i !== state.a)], state.b);
    const orders = Object.entries(ORDERS).filter(([key]) => key !== "difference" || state.b >= 0);
    fill(order, orders.map(([key, [text]]) => [key, text]), state.by);
    fill(verdict, [["", "any"], ["noisy", "noisy"], ["clean", "clean"]], state.verdict);
    const truths = Object.entries(TRUTHS).filter(([kind]) => current.pairs.some((pair) => pair.truth === kind));
    fill(truth, [["", "any"], ...truths], state.truth);
    truth.parentElement.hidden = !truths.length;
    group.parentElement.hidden = data.groups.length < 2;
    second.parentElement.hidden = current.runs.length < 2;
    tick.hidden = state.b < 0;
    differ.checked = state.differ;
  };

  // Table

  const matches = (pair) => {
    const texts = [pair.source, pair.text, pair.back || "", pair.item];
    return (!state.words || texts.some((text) => text.toLowerCase().includes(state.words)))
      && (!state.verdict || pair.noisy[state.a] === (state.verdict === "noisy"))
      && (!state.truth || pair.truth === state.truth)
      && (!state.differ || pair.noisy[state.a] !== pair.noisy[state.b]);
  };
  const foreign = (text, lang) => {
    const node = make("bdi", text);
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
  const figure = (pair, key, runs) => {
    const node = make("div");
    for (const run of [state.a, state.b]) {
      if (run < 0) continue;
      const line = make("div", undefined, "one");
      if (key === "p") line.append(bar(pair.p[run]));
      line.append(pair[key][run] === null ? "\u2013" : pair[key][run].toFixed(3));
      if (state.b >= 0 && key === "p") line.append(" ", make("small", runs[run]));
      node.append(line);
    }
    return node;
  };
  const heading = (text, key) => {
    const th = make("th");
    if (!key) { th.textContent = text; return th; }
    const button = make("button", text);
    button.type = "button";
    button.dataset.by = key;
    button.addEventListener("click", () => {
      set({ back: state.by === key && !state.back, by: key });
      updateControls();
      head.querySelector('[data-by="' + key + '"]').focus();
    });
    const up = (key === "uncertainty") === state.back;
    th.setAttribute("aria-sort", state.by !== key ? "none" : up ? "ascending" : "descending");
    if (state.by === key) button.append(up ? " \u2191" : " \u2193");
    th.append(button);
    return th;
  };
  const picture = (pair) => {
    const address = data.images[pair.image];
    const node = address ? make("img") : make("div", "no image", "thumb none");
    if (address) { node.src = address; node.alt = ""; node.loading = "lazy"; }
    node.title = pair.item;
    return node;
  };
  const tag = (noisy) => make("span", noisy ? "noisy" : "clean", "tag " + (noisy ? "noisy" : "clean"));
  const draw = () => {
    if (state.b < 0 && state.by === "difference") state.by = "p";
    const current = data.groups[state.group], { pairs, source, lang, runs } = current;
    const withTruth = pairs.some((pair) => pair.truth), withBack = pairs.some((pair) => pair.back);
    const withPictures = data.images.length > 0;
    table.classList.toggle("plain", !withPictures);
    const value = ORDERS[state.by][1], sign = state.back ? -1 : 1;
    const rows = pairs.map((pair, i) => [pair, i]).filter(([pair]) => matches(pair));
    rows.sort((x, y) => sign * (value(x[0], state) - value(y[0], state)) || x[1] - y[1]);
    head.replaceChildren(
      ...(withPictures ? [heading("picture")] : []),
      heading(source ? "source (" + source + ")" : "source"),
      ...(lang === source ? [] : [heading("translation (" + lang + ")")]),
      ...(withBack ? [heading("back-translation")] : []),
      heading("P(clean)", "p"),
      heading("uncertainty", "uncertainty"),
      heading("similarity", "similarity"),
      heading(withTruth ? "verdict, truth" : "verdict"),
    );
    body.replaceChildren(...rows.slice(0, state.shown).map(([pair]) => {
      const row = make("tr");
      if (withPictures) cell(row, "picture", picture(pair));
      cell(row, source || "source", foreign(pair.source, source));
      if (lang !== source) cell(row, lang, foreign(pair.text, lang));
      if (withBack) cell(row, "back", foreign(pair.back || "\u2013", source));
      const p = cell(row, "P(clean)", figure(pair, "p", runs));
      if (pair.rare) p.append(make("small", "rare words"));
      cell(row, "uncertainty", figure(pair, "uncertainty", runs));
      cell(row, "similarity", figure(pair, "similarity", runs));
      const last = cell(row, "verdict", tag(pair.noisy[state.a]));
      if (state.b >= 0) last.append(" ", tag(pair.noisy[state.b]));
      if (pair.truth) last.append(" ", make("small", `truth: ${TRUTHS[pair.truth]}`));
      return row;
    }));
    more.hidden = rows.length <= state.shown;
    count.textContent = rows.length.toLocaleString("en") + " of " + pairs.length.toLocaleString("en") +
      " pairs on this page match; the diagnosis covers " + current.total.toLocaleString("en");
  };
  draw();
  updateControls();
})();
