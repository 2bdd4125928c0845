// Clients of a run: their outcomes, the distributions of their figures, and the worst clients.

const OUTCOMES = { "completed": "good", "ended as planned": "good", "stopped": "soft", "not ended": "soft", "failed": "bad" };

// A bar with a part for each outcome.
function outcomes(population) {
  const parts = population.outcomes.map(([name, number]) => {
    const part = el("span", { class: `part ${OUTCOMES[name] || "soft"}` });
    part.style.flexGrow = String(number);
    return part;
  });
  const words = population.outcomes.map(([name, , shown]) => `${shown} ${name}`).join(", ");
  return el("div", { class: "outcomes" },
    el("div", { class: "parts", role: "img", "aria-label": words }, parts),
    el("p", {}, words));
}

// Distribution of a value over the clients: bars side by side, and a table.
function spread(one) {
  const most = one.bars.reduce((a, [, clients]) => Math.max(a, clients), 1);
  const bars = one.bars.map(([range, clients]) => {
    const bar = el("span", { class: "column" });
    const fill = el("span", {});
    fill.style.height = clients ? `${Math.max((100 * clients) / most, 3)}%` : "0";
    bar.append(fill);
    const lines = [{ text: `${count(clients)} of ${count(one.clients)} clients`, class: "of" }, { text: range }];
    bar.addEventListener("mouseenter", () => showTip(bar, lines));
    bar.addEventListener("mouseleave", hideTip);
    return bar;
  });
  const ends = one.bars.length ? [one.bars[0][0], one.bars[one.bars.length - 1][0]] : ["", ""];
  const rows = one.bars.filter(([, clients]) => clients > 0).map(([range, clients]) => [range, count(clients)]);
  return el("figure", { class: "spread" }, el("h4", {}, one.label),
    el("div", { class: "columns", role: "img", "aria-label": `${one.label} over clients: ${one.text}. A table follows.` }, bars),
    el("div", { class: "ends" }, el("span", {}, ends[0]), ends[1] === ends[0] ? null : el("span", {}, ends[1])),
    el("p", { class: "note" }, one.text),
    closed("Table", () => table(`${one.label} over clients`, ["value", "clients"], rows)));
}

function clientsSection(clients) {
  if (!clients.populations.length) return null;
  const groups = clients.populations.map((population) => el("div", { class: "group" },
    el("h3", {}, population.name, el("small", {}, ` ${count(population.all)} clients`)),
    outcomes(population), el("div", { class: "spreads" }, population.spreads.map(spread))));
  const rows = clients.worst.map((client) => [client.name, client.outcome, client.loss, client.startup,
    client.bitrate, el("span", {}, client.why || client.url, client.trace ? el("code", { class: "trace" }, client.trace) : null)]);
  const head = ["client", "outcome", "loss", "start-up", "bit rate", "reason, and command to trace the client"];
  const worst = () => table("Failed first, then by loss, then by start-up delay", head, rows);
  return el("section", {}, el("h2", {}, "Clients"), ...groups,
    rows.length ? closed(`The ${rows.length} worst clients, each with the command to trace it`, worst) : null);
}
