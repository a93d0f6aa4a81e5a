// Keeps a page up to date while runs go on. The server says when a record has changed (server-sent events); the page
// then fetches its parts and changes what differs, node by node, so that scroll position, focus, open disclosures and
// chosen axes stay as the reader left them.
"use strict";

const READERS_OWN = ["open", "hidden", "aria-pressed", "data-shown"]; // attributes that clicks change, not the server
const main = document.querySelector("main");
const state = document.createElement("span");
let work = Promise.resolve(); // one update after the other
let events = null;

// What a node is called among its siblings, but for numbers ("12 events"); without a name the order tells them apart.
function nameOf(node) {
  if (node.nodeName === "FIGURE") return node.dataset.name;
  if (node.nodeName === "SECTION") return node.querySelector("h2")?.textContent;
  if (node.nodeName === "DETAILS") return node.querySelector("summary")?.textContent.replace(/[\d,.]+/g, "");
  return "";
}

function updateAttributes(node, wanted) {
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !READERS_OWN.includes(name)) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value && !READERS_OWN.includes(name)) node.setAttribute(name, value);
  }
}

// A plot is plotly's own; it is drawn again from the JSON beside it.
function update(node, wanted) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
  } else if (!node.matches(".plot") && !node.isEqualNode(wanted)) {
    updateAttributes(node, wanted);
    updateChildren(node, wanted);
  }
}

// Each wanted child takes the first node left of its kind and name, wherever it stands, or is new; the rest goes.
function updateChildren(parent, wantedParent) {
  let next = parent.firstChild;
  for (const wanted of [...wantedParent.childNodes]) {
    let found = next;
    while (found !== null && !(found.nodeName === wanted.nodeName && nameOf(found) === nameOf(wanted))) {
      found = found.nextSibling;
    }
    if (found === null) {
      parent.insertBefore(wanted, next);
      continue;
    }
    if (found === next) next = next.nextSibling;
    else parent.insertBefore(found, next);
    update(found, wanted);
  }
  while (next !== null) {
    const gone = next;
    next = next.nextSibling;
    gone.querySelectorAll?.(".plot").forEach(Plotly.purge); // plotly watches the window for each of them
    gone.remove();
  }
}

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

async function refresh(version) {
  if (version === main.dataset.version) return;
  let parts;
  try {
    parts = await (await fetch("parts", { cache: "no-store" })).json();
  } catch (error) {
    say("not connected"); // the server has ended meanwhile; the stream of events comes back when it does
    return;
  }
  const holder = document.createElement("template");
  holder.innerHTML = parts.html;
  updateChildren(main, holder.content);
  document.title = parts.title;
  main.querySelectorAll(".analysis").forEach((analysis) => arrange(analysis, false));
  await drawAll();
  main.dataset.version = parts.version;
  say("live"); // also after an update that failed
}

// A browser opens six connections to a server at most: pages that nobody looks at leave theirs to others.
function connect() {
  events?.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource("events");
  events.onopen = () => say("live");
  events.onerror = () => say("not connected");
  events.onmessage = (event) => {
    work = work.then(() => refresh(event.data)).catch((error) => say("not up to date: " + error.message));
  };
}

state.className = "live";
state.setAttribute("role", "status");
document.querySelector(".corner").prepend(state);
document.addEventListener("visibilitychange", connect);
connect();
