"""The page of `ccr serve`: one HTML file that asks the server it came from, and nobody else.

Whatever comes from data goes in as text (`textContent`), never as markup. With a token, pictures are fetched by the
script, since an address in the page could not carry it.
"""

from __future__ import annotations

import base64
import hashlib

from ccr_cli.report.page.style import CSS

_STYLE = (
    CSS
    + """
main { padding-top: 1.4rem; }
form { display: flex; gap: .5rem; margin: 0 0 .6rem; align-items: stretch; flex-wrap: wrap; }
input, button, select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: .6rem .8rem; }
input[type=search] { flex: 1 1 14rem; min-width: 0; font-size: 1.1rem; }
button { cursor: pointer; } button.go { background: var(--accent); color: var(--page); border-color: var(--accent);
  font-weight: 600; } :focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#said { color: var(--faint); min-height: 1.6rem; margin: .2rem 0 .8rem; display: flex; gap: .8rem;
  align-items: center; }
#said img { width: 3rem; height: 3rem; object-fit: contain; background: #fff; border-radius: 8px; }
#said.wrong { color: var(--bad); }
.hits { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 1rem .9rem; }
.hits button { display: flex; flex-direction: column; width: 100%; height: 100%; padding: .5rem; border-radius: 14px;
  text-align: center; font-size: inherit; align-items: stretch; }
.hits .frame { border: 0; padding: 4px; } .hits .bar { display: block; width: 100%; margin: .5rem 0 .2rem; }
.hits b { margin: 0; }
body.over { outline: 4px dashed var(--accent); outline-offset: -8px; }
dialog { border: 1px solid var(--line); border-radius: 16px; background: var(--card); color: var(--ink);
  max-width: min(92vw, 44rem); padding: 1.2rem; } dialog::backdrop { background: #000a; }
dialog img { display: block; max-width: 100%; max-height: 70vh; margin: 0 auto .8rem; background: #fff;
  border-radius: 10px; image-rendering: auto; min-width: min(60vw, 16rem); }
dialog p { margin: .2rem 0; } dialog form { margin: 0; align-items: center; }
kbd { font: .78rem ui-monospace, monospace; border: 1px solid var(--line); border-radius: 5px; padding: 0 .35rem; }
footer p { margin: 0; } @media (max-width: 480px) { .hits { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  main { padding-inline: .8rem; } footer { display: none; } }
"""
)

_SCRIPT = """
"use strict";
const $ = id => document.getElementById(id);
let token = sessionStorage.getItem("token") || "", asking = null, asked = 0, again = null, held = false;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function plain(text) {  // what would turn the writing around
  return text.replace(/[\\u0000-\\u001f\\u202a-\\u202e\\u2066-\\u2069]/g, "\\ufffd");
}
function typing() {
  return /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
}
function say(text, wrong) {
  $("said").replaceChildren(element("span", text));
  $("said").classList.toggle("wrong", Boolean(wrong));
}
async function ask(address, options = {}) {
  const headers = {...(options.headers || {}), ...(token ? {authorization: "Bearer " + token} : {})};
  const answer = await fetch(address, {...options, headers});
  if (answer.ok) return answer;
  let why = answer.statusText;
  try { why = (await answer.json()).error; } catch (error) { why = why || "the server does not answer"; }
  throw Object.assign(new Error(why), {status: answer.status});
}
async function show(image, address) {
  if (!token) { image.src = address; return; }
  try {
    const url = URL.createObjectURL(await (await ask(address)).blob());
    image.addEventListener("load", () => URL.revokeObjectURL(url), {once: true});
    image.src = url;
  } catch (error) { image.remove(); }
}
function caption(hit) {
  const made = element("bdi", plain(hit.caption || hit.item));
  made.dir = "auto";
  if (hit.lang) made.lang = hit.lang;
  return made;
}
function card(hit) {
  const item = element("li"), button = element("button"), frame = element("div", undefined, "frame");
  if (hit.picture) {
    const image = element("img");
    image.alt = hit.caption || hit.item;
    image.loading = "lazy";
    show(image, hit.picture);
    frame.append(image);
  } else frame.append(element("span", "no image", "none"));
  const bar = element("span", undefined, "bar"), level = element("i");
  level.style.width = Math.round(100 * Math.max(0, Math.min(1, hit.similarity))) + "%";
  bar.append(level);
  const said = element("span");
  said.append(caption(hit));
  button.append(frame, bar, element("b", hit.place + " · " + hit.similarity.toFixed(3)), said);
  button.addEventListener("click", () => enlarge(hit));
  item.append(button);
  return item;
}
function enlarge(hit) {
  const parts = [];
  if (hit.picture) {
    const image = element("img");
    image.alt = hit.caption || hit.item;
    show(image, hit.picture + "&large=1");
    parts.push(image);
  }
  const first = element("p"), more = element("p", hit.item + " · similarity " + hit.similarity.toFixed(4), "note");
  first.append(caption(hit));
  $("large").replaceChildren(...parts, first, more);
  $("large").showModal();
}
async function search(address, options, picture) {
  const number = ++asked;
  if (asking) asking.abort();
  asking = new AbortController();
  again = () => search(address, options, picture);
  say("searching");
  try {
    const found = await (await ask(address, {...options, signal: asking.signal})).json();
    if (number !== asked) return;
    $("hits").replaceChildren(...found.hits.map(card));
    const unsure = found.uncertainty === null ? "" : " · uncertainty " + found.uncertainty.toFixed(3);
    const lost = found.known ? "" : " · the model was trained on no word of this, so they mean little";
    say(found.hits.length + " results" + unsure + lost);
    if (picture) { const small = element("img"); small.alt = "the picture that was searched with";
      small.src = picture; $("said").prepend(small); }
    again = null;
  } catch (error) {
    if (error.name === "AbortError" || number !== asked) return;
    $("hits").replaceChildren();
    if (error.status === 401) { $("said").replaceChildren(); $("key").showModal(); return; }
    say(error.message, true);
  }
}
function words(push) {
  const query = $("q").value.trim();
  if (!query) return;
  const terms = new URLSearchParams({q: query, top: $("top").value});
  if (push) history.pushState(null, "", "?" + terms);
  search("/search?" + terms, {});
}
function picture(file) {
  if (!file || !file.type.startsWith("image/")) { say("that is no picture", true); return; }
  $("q").value = "";
  const options = {method: "POST", body: file, headers: {"content-type": file.type}};
  search("/search?top=" + $("top").value, options, URL.createObjectURL(file));
}
async function about() {
  try {
    const known = await (await ask("/about")).json();
    document.title = "Search " + known.data;
    $("what").textContent = known.data + " · " + known.entries.toLocaleString("en") + " " + known.find +
      " (" + known.split + ") · " + known.languages.join(", ");
    $("run").textContent = known.run;
    $("pick").hidden = !known.pictures;
  } catch (error) {
    if (error.status === 401) { again = again || about; if (!$("key").open) $("key").showModal(); }
    else say(error.message, true);
  }
}
function restore() {
  const terms = new URLSearchParams(location.search);
  $("q").value = terms.get("q") || "";
  if ([...$("top").options].some(option => option.value === terms.get("top"))) $("top").value = terms.get("top");
  if ($("q").value) words(false); else { $("hits").replaceChildren(); say(""); }
}
$("ask").addEventListener("submit", event => { event.preventDefault(); words(true); });
$("top").addEventListener("change", () => words(true));
$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { picture($("file").files[0]); $("file").value = ""; });
$("enter").addEventListener("submit", event => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("key").close();
  about();
  if (again && again !== about) again();
});
$("large").addEventListener("click", event => { if (event.target === $("large")) $("large").close(); });
addEventListener("popstate", restore);
addEventListener("paste", event => {
  const file = [...event.clipboardData.files][0];
  if (file) { event.preventDefault(); picture(file); }
});
addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", event => {
  event.preventDefault();
  document.body.classList.remove("over");
  picture(event.dataTransfer.files[0]);
});
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const cards = [...document.querySelectorAll("#hits button")], at = cards.indexOf(document.activeElement);
  held = held && event.repeat;  // a key that is held down goes on in the box that it went to
  if (event.key === "/" && (held || !typing())) {
    event.preventDefault(); $("q").focus(); if (!held) $("q").select(); held = true;
  }
  else if (event.key === "ArrowDown" && document.activeElement === $("q") && cards.length) {
    event.preventDefault(); cards[0].focus();
  } else if (at >= 0 && event.key.startsWith("Arrow")) {
    const across = cards.filter(each => each.offsetTop === cards[0].offsetTop).length;
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across}[event.key];
    event.preventDefault();
    if (cards[at + step]) cards[at + step].focus(); else if (event.key === "ArrowUp") $("q").focus();
  }
});
about().then(restore);
"""

_BODY = """
<main>
<h1 id="what">Search</h1>
<form id="ask" role="search">
<input id="q" type="search" aria-label="What to look for" placeholder="What to look for" autocomplete="off"
 maxlength="1000" autofocus>
<select id="top" aria-label="Results"><option>10</option><option selected>20</option><option>50</option></select>
<button class="go">Search</button>
<button id="pick" type="button" hidden>Picture</button>
<input id="file" type="file" accept="image/*" hidden aria-label="A picture to search with">
</form>
<p id="said" role="status"></p>
<ol id="hits" class="hits" aria-label="Results"></ol>
<dialog id="large" aria-label="Result"></dialog>
<dialog id="key" aria-label="Token"><form id="enter"><label for="token">This server asks for its token.</label>
<input id="token" type="password" required autocomplete="off"><button class="go">Enter</button></form></dialog>
<footer><p><kbd>/</kbd> to the words, arrows among the results, <kbd>Enter</kbd> larger, <kbd>Esc</kbd> back;
a picture can be dropped or pasted. <span id="run"></span></p></footer>
</main>
"""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_digest(_SCRIPT)}; style-src {_digest(_STYLE)}; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only this very script and style; the server alone is asked."""


def page() -> str:
    """The page; the same for every run."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>Search</title>\n<style>{_STYLE}</style>\n</head>\n<body>{_BODY}<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
