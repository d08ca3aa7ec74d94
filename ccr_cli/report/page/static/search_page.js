// The page of a search server.
let running = null, latest = 0, retry = null;  // the request under way, the number of the last one, what to repeat
let slashDown = false;  // a held key repeats: its later events must not type into the search box

function typing() {
  return /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
}
function caption(hit) {
  const node = element("bdi", plain(hit.caption || hit.item));
  node.dir = "auto";
  if (hit.lang) node.lang = hit.lang;
  return node;
}
function picture(hit, address) {
  const image = element("img");
  image.alt = hit.caption || hit.item;
  load(image, address);
  return image;
}
function card(hit) {
  const item = element("li"), button = element("button"), frame = element("div", undefined, "frame");
  if (hit.picture) {
    const image = picture(hit, hit.picture);
    image.loading = "lazy";
    frame.append(image);
  }
  const bar = element("span", undefined, "bar"), level = element("i"), text = element("span");
  level.style.width = Math.round(100 * Math.max(0, Math.min(1, hit.similarity))) + "%";
  bar.append(level);
  text.append(caption(hit));
  button.append(...(hit.picture ? [frame] : []), bar, element("b", hit.place + " · " + hit.similarity.toFixed(3)), likely(hit), text);
  button.addEventListener("click", () => enlarge(hit));
  item.append(button);
  return item;
}
function likely(hit) {  // as likely() in words/numbers.py
  const percent = Math.round(100 * hit.probability);
  return element("span", hit.probability === null ? "" : (hit.probability < .005 ? "<1" : percent) + "% likely");
}
function enlarge(hit) {
  const title = element("p"), detail = element("p", hit.item + " · similarity " + hit.similarity.toFixed(4), "note");
  title.append(caption(hit));
  const parts = hit.picture ? [picture(hit, hit.picture + "&large=1")] : [];
  $("large").replaceChildren(...parts, title, detail);
  $("large").showModal();
}
async function search(address, options, queryPicture) {
  const number = ++latest;
  $("examples").hidden = true;
  if (running) running.abort();
  running = new AbortController();
  retry = () => search(address, options, queryPicture);
  report("searching");
  try {
    const answer = await (await request(address, {...options, signal: running.signal})).json();
    if (number !== latest) return;
    $("hits").replaceChildren(...answer.hits.map(card));
    const unknown = answer.known ? "" : " · no word of this query was in the training data, so the results mean little";
    const calibrated = answer.hits.length && answer.hits[0].probability !== null;
    const scale = calibrated ? " · similarity, and how likely the result is right" : "";
    report(answer.hits.length + " results" + scale + unknown);
    if (queryPicture) {
      const image = element("img");
      image.alt = "the query picture";
      image.src = queryPicture;
      $("status").prepend(image);
    }
    retry = null;
  } catch (error) {
    if (error.name === "AbortError" || number !== latest) return;
    $("hits").replaceChildren();
    if (error.status === 401) { $("status").replaceChildren(); $("key").showModal(); return; }
    report(error.message, true);
  }
}
function searchWords(push) {
  const query = $("q").value.trim();
  if (!query) return;
  const terms = new URLSearchParams({q: query, top: $("top").value});
  if (push) history.pushState(null, "", "?" + terms);
  search("/search?" + terms, {});
}
function searchPicture(file) {
  if (!file || !file.type.startsWith("image/")) { report("this file is not a picture", true); return; }
  $("q").value = "";
  const options = {method: "POST", body: file, headers: {"content-type": file.type}};
  search("/search?top=" + $("top").value, options, URL.createObjectURL(file));
}
function example(text) {
  const item = element("li"), button = element("button", plain(text));
  button.dir = "auto";
  button.addEventListener("click", () => { $("q").value = text; searchWords(true); });
  item.append(button);
  return item;
}
async function about() {
  try {
    const facts = await (await request("/about")).json();
    document.title = "Search " + facts.data;
    $("what").textContent = facts.data + " · " + facts.entries.toLocaleString("en") + " " + facts.find +
      " (" + facts.split + ") · " + facts.languages.join(", ");
    $("run").textContent = facts.run;
    $("examples").replaceChildren(...facts.examples.map(example));
    $("pick").hidden = !facts.pictures;
  } catch (error) {
    if (error.status === 401) { retry = retry || about; if (!$("key").open) $("key").showModal(); }
    else report(error.message, true);
  }
}
function restore() {
  const terms = new URLSearchParams(location.search);
  $("q").value = terms.get("q") || "";
  if ([...$("top").options].some(option => option.value === terms.get("top"))) $("top").value = terms.get("top");
  if ($("q").value) searchWords(false); else { $("hits").replaceChildren(); $("examples").hidden = false; report(""); }
}
$("search").addEventListener("submit", event => { event.preventDefault(); searchWords(true); });
$("top").addEventListener("change", () => searchWords(true));
$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { searchPicture($("file").files[0]); $("file").value = ""; });
$("enter").addEventListener("submit", event => {
  takeToken(event);
  about();
  if (retry && retry !== about) retry();
});
$("large").addEventListener("click", event => { if (event.target === $("large")) $("large").close(); });
addEventListener("popstate", restore);
addEventListener("paste", event => {
  const file = [...event.clipboardData.files][0];
  if (file) { event.preventDefault(); searchPicture(file); }
});
addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", event => {
  event.preventDefault();
  document.body.classList.remove("over");
  searchPicture(event.dataTransfer.files[0]);
});
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const cards = [...document.querySelectorAll("#hits button")], at = cards.indexOf(document.activeElement);
  slashDown = slashDown && event.repeat;
  if (event.key === "/" && (slashDown || !typing())) {
    event.preventDefault();
    $("q").focus();
    if (!slashDown) $("q").select();
    slashDown = true;
  } else if (event.key === "ArrowDown" && document.activeElement === $("q") && cards.length) {
    event.preventDefault();
    cards[0].focus();
  } else if (at >= 0 && event.key.startsWith("Arrow")) {
    const columns = cards.filter(card => card.offsetTop === cards[0].offsetTop).length;
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns}[event.key];
    event.preventDefault();
    if (cards[at + step]) cards[at + step].focus(); else if (event.key === "ArrowUp") $("q").focus();
  }
});
about().then(restore);
