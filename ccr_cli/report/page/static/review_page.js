// The page of a review.
const KEYS = {r: "clean", w: "noisy", s: "not judged"};
let shown = null, busy = false;  // the pair on the page; whether a verdict is being saved

function texts(id, parts, pair) {
  $(id).replaceChildren(...parts.map(([text, doubted]) => doubted ? element("mark", text) : text));
  if (pair) { $(id).lang = pair.lang; $(id).dir = pair.dir; } else $(id).dir = "auto";
}
function optional(id, text, pair) {
  texts(id, [[text, false]], pair);
  document.querySelectorAll("." + id).forEach(node => { node.hidden = !text; });
}
function percent(value) { return Math.round(100 * value) + " %"; }
function figures(state) {
  const lines = [];
  if (state.share) {
    const [share, low, high] = state.share;
    lines.push(`${state.wrong} of ${state.judged} judged pairs are wrong: ${percent(share)} (95 % interval ${percent(low)} to ${percent(high)}).`);
  }
  if (state.expected !== null) {
    const stop = state.expected < 1 ? " You may stop: little is left to find at the top of the list." : "";
    lines.push(`${state.recent} of the last 50 are wrong: expect about ${state.expected.toFixed(1)} among the next 20.${stop}`);
  } else lines.push("After 50 pairs: how many wrong ones to expect, and when to stop.");
  for (const {reviewers, pairs, equal, kappa} of state.agreement)
    lines.push(`${reviewers.join(" and ")} agree on ${percent(equal)} of ${pairs} pairs` +
      (kappa === null ? " (κ is not defined)." : ` (Cohen's κ ${kappa.toFixed(2)}).`));
  $("figures").replaceChildren(...lines.map(line => element("li", line)));
}
function show(state) {
  shown = state.pair;
  $("who").textContent = "by " + state.reviewer;
  $("level").style.width = (state.total ? 100 * state.done / state.total : 100) + "%";
  edit(false);
  figures(state);
  $("pair").classList.toggle("none-left", !shown);
  const none = state.total ? ". Stop ccr review with Ctrl-C: it prints the next command." : ": no other reviewer has judged a pair";
  report(`${state.done} of ${state.total} done` + (shown ? ` · pair ${shown.place}` : none));
  if (!shown) return;
  texts("source", shown.source);
  texts("translation", shown.translation, shown);
  optional("back", shown.back);
  optional("witness", shown.witness, shown);
  $("flags").textContent = shown.flags;
  $("correction").value = shown.text;
  $("correction").lang = shown.lang;
  $("correction").dir = shown.dir;
  $("frame").hidden = !shown.picture;
  const image = element("img");
  image.alt = "the picture of this pair";
  $("frame").replaceChildren(image);
  if (shown.picture) load(image, "/media?pair=" + shown.place);
}
async function ask(address, body) {
  if (busy) return;
  busy = true;
  try {
    const options = body === undefined ? {} :
      {method: "POST", body: JSON.stringify(body), headers: {"content-type": "application/json"}};
    show(await (await request(address, options)).json());
  } catch (error) {
    if (error.status === 401) { if (!$("key").open) $("key").showModal(); }
    else report(error.status ? error.message : "the server does not answer" + (body ? ": this verdict is not saved" : ""), true);
  }
  busy = false;
}
function judge(verdict, correction = "") {
  if (shown) ask("/verdict", {pair: shown.place, verdict, correction});
}
function edit(open) {
  if (open && !shown) return;
  const back = !open && $("edit").contains(document.activeElement);
  $("edit").hidden = !open;
  $("keys").hidden = open;
  if (open) $("correction").focus();
  else if (back) $("retype").focus();
}
document.querySelectorAll("[data-verdict]").forEach(button =>
  button.addEventListener("click", () => judge(button.dataset.verdict)));
$("retype").addEventListener("click", () => edit(true));
$("cancel").addEventListener("click", () => edit(false));
$("undo").addEventListener("click", () => ask("/undo", {}));
$("edit").addEventListener("submit", event => { event.preventDefault(); judge("noisy", $("correction").value); });
$("enter").addEventListener("submit", event => { takeToken(event); ask("/state"); });
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  if (!$("edit").hidden) {
    if (event.key === "Escape") edit(false);
    else if (event.key === "Enter" && event.target === $("correction")) { event.preventDefault(); $("edit").requestSubmit(); }
    return;
  }
  // on a keyboard of another script, the letter that is printed beside
  const key = /^[a-z]$/i.test(event.key) ? event.key.toLowerCase() : event.code.replace(/^Key/, "").toLowerCase();
  if (event.repeat || event.shiftKey) return;
  if (KEYS[key]) judge(KEYS[key]);
  else if (key === "t") { event.preventDefault(); edit(true); }
  else if (key === "u") ask("/undo", {});
});
ask("/state");
