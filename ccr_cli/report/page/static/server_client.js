// What the pages of servers share. They talk to the server they came from and to nobody else; text from data is only
// ever set as textContent. With a token, pictures are fetched by this script, since an <img> cannot send the header.
"use strict";
const $ = id => document.getElementById(id);
let token = sessionStorage.getItem("token") || "";

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}
function plain(text) {  // without controls and bidirectional overrides
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}
function report(text, isError) {
  $("status").replaceChildren(element("span", text));
  $("status").classList.toggle("error", Boolean(isError));
}
async function request(address, options = {}) {
  const headers = {...(options.headers || {}), ...(token ? {authorization: "Bearer " + token} : {})};
  const response = await fetch(address, {...options, headers});
  if (response.ok) return response;
  let reason = response.statusText;
  try { reason = (await response.json()).error; } catch (error) { reason = reason || "the server does not answer"; }
  throw Object.assign(new Error(reason), {status: response.status});
}
async function load(image, address) {
  if (!token) { image.src = address; return; }
  try {
    const url = URL.createObjectURL(await (await request(address)).blob());
    image.addEventListener("load", () => URL.revokeObjectURL(url), {once: true});
    image.src = url;
  } catch (error) { image.remove(); }
}
function takeToken(event) {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("key").close();
}
