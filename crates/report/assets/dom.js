// Elements, and the definitions of figures that are shown on hover and focus. Texts are inserted as
// text and never as markup: they may come from servers.

function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") element.append(child);
  }
  return element;
}

function empty(element) {
  while (element.firstChild) element.firstChild.remove();
  return element;
}

// The only tip of the page.
const tip = el("div", { id: "tip", role: "tooltip", hidden: true });

function placeTip(beside) {
  const around = beside.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const width = Math.min(tip.offsetWidth, room - 16);
  tip.style.left = `${Math.max(8, Math.min(around.left, room - width - 8))}px`;
  const below = around.bottom + 6;
  const fits = below + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${fits ? below : Math.max(8, around.top - tip.offsetHeight - 6)}px`;
}

function showTip(beside, lines) {
  empty(tip);
  for (const line of lines) tip.append(el("p", { class: line.class }, line.text));
  tip.hidden = false;
  placeTip(beside);
}

function hideTip() {
  tip.hidden = true;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
window.addEventListener("scroll", hideTip, { passive: true });

// The definition of a metric of a kind of subject, as lines of a tip.
function definition(definitions, kind, metric) {
  const found = definitions[kind] && definitions[kind][metric];
  if (!found) return [];
  const [text, reference] = found;
  const lines = [{ text: metric, class: "name" }, { text }];
  if (reference) lines.push({ text: `Source: ${reference}`, class: "source" });
  return lines;
}

// A label that shows these lines on hover and on keyboard focus. Plain text if there are none.
function term(label, lines) {
  if (!lines.length) return el("span", {}, label);
  const button = el("button", { type: "button", class: "term", "aria-describedby": "tip" }, label);
  const show = () => showTip(button, lines);
  button.addEventListener("mouseenter", show);
  button.addEventListener("focus", show);
  button.addEventListener("click", show);
  button.addEventListener("mouseleave", hideTip);
  button.addEventListener("blur", hideTip);
  return button;
}

function table(caption, head, rows, attributes) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", attributes,
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) =>
        at === 0 ? el("th", { scope: "row" }, cell) : el("td", {}, cell)))))));
}

// Names of the open parts below a node: their summaries without numbers, which change during a run.
function openParts(node) {
  return [...node.querySelectorAll("details[open] > summary")].map(partName);
}

// Opens the parts below a node with these names.
function openAgain(node, names) {
  for (const summary of node.querySelectorAll("summary")) {
    if (names.includes(partName(summary))) summary.parentElement.open = true;
  }
}

function partName(summary) {
  return summary.textContent.replace(/[0-9][0-9.,]*/g, "").trim();
}

// A part that is closed at first. Its content is made when it is opened.
function closed(summary, make) {
  const details = el("details", {}, el("summary", {}, summary));
  let made = false;
  const open = () => {
    if (!made) details.append(...[make()].flat());
    made = true;
  };
  details.addEventListener("toggle", () => details.open && open());
  return details;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Text in which a number and its per cent sign stay on one line.
function unbroken(text) {
  return String(text).split(/(\S+ %)/).map((part) => (
    part.endsWith(" %") ? el("span", { class: "unbroken" }, part) : part));
}
