// Charts of a series: panels side by side with one scale. Each run is a mark that links to its
// page.

const PANEL = { width: 340, height: 214, left: 70, right: 14, top: 16, bottom: 40 };
const SHAPES = ["circle", "square", "diamond", "triangle", "down", "cross"];
const TICKS_MAX = 7;
const TICK_TEXT = 9;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) if (child) element.append(child);
  return element;
}

function shape(name, x, y, attributes) {
  const size = 5;
  const path = {
    square: "M-4.4,-4.4H4.4V4.4H-4.4Z", diamond: "M0,-6L6,0L0,6L-6,0Z", triangle: "M0,-6L5.6,4.4H-5.6Z",
    down: "M0,6L5.6,-4.4H-5.6Z", cross: "M-2,-5.5H2V-2H5.5V2H2V5.5H-2V2H-5.5V-2H-2Z",
  }[name];
  if (!path) return svg("circle", { cx: x, cy: y, r: size, ...attributes });
  return svg("path", { d: path, transform: `translate(${x} ${y})`, ...attributes });
}

// Steps of an axis that begins at zero: 1, 2 or 5 times a power of ten; for bytes, a power of two.
function steps(most, unit) {
  const rough = most / 4;
  if (unit === "bytes") {
    const step = 2 ** Math.ceil(Math.log2(rough));
    return { step, number: Math.ceil(most / step - 1e-9) };
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  return { step, number: Math.ceil(most / step - 1e-9) };
}

class Multiple {
  constructor(series, chart) {
    this.series = series;
    this.axis = series.axis;
    this.chart = chart;
    const values = chart.values.filter((value) => value !== null);
    const curves = chart.models.flatMap((model) => model.curve.map(([, y]) => y));
    const seen = [...values, ...curves].reduce((a, b) => Math.max(a, b), 0) || 1;
    // A threshold is drawn only if it leaves enough space for the values.
    this.limits = chart.limits.filter(([limit]) => limit > 0 && limit <= 4 * seen);
    const most = this.limits.reduce((a, [limit]) => Math.max(a, limit), seen);
    const { step, number } = steps(most, chart.unit);
    this.step = step;
    this.top = step * number;
    const xs = this.axis.ticks.map(([x]) => x);
    this.low = Math.min(...xs);
    this.high = Math.max(...xs);
  }

  // Position on the axis, from the smallest to the largest value.
  x(value) {
    const { left, right, width } = PANEL;
    const room = width - left - right;
    if (!this.axis.numeric) return left + (room * (value + 0.5)) / this.axis.ticks.length;
    const inner = room - 20;
    if (this.high === this.low) return left + room / 2;
    const share = this.axis.log
      ? Math.log(value / this.low) / Math.log(this.high / this.low)
      : (value - this.low) / (this.high - this.low);
    return left + 10 + inner * share;
  }

  y(value) {
    const { top, bottom, height } = PANEL;
    return height - bottom - ((height - top - bottom) * value) / this.top;
  }

  make() {
    const { chart, axis } = this;
    const title = el("h4", {}, term(chart.title, definition(this.series.definitions, "series", chart.name)),
      el("small", {}, ` ${chart.better}`));
    const panels = axis.panels.map((name, at) => this.panel(name, at)).filter(Boolean);
    return el("figure", { class: "multiple" }, title,
      el("div", { class: "panels" }, panels));
  }

  // Rows of a line in a panel, sorted along the axis.
  rows(panel, line) {
    const { axis, chart } = this;
    return axis.spots.map(([of, on, x], row) => ({ of, on, x, row, y: chart.values[row] }))
      .filter((one) => one.of === panel && one.on === line && one.y !== null)
      .sort((a, b) => a.x - b.x);
  }

  panel(name, at) {
    const { axis, chart } = this;
    const lines = axis.lines.map((label, line) => ({ label, line, rows: this.rows(at, line) }));
    const all = lines.flatMap((line) => line.rows);
    if (!all.length && axis.panels.length > 12) return null;
    const words = lines.filter((line) => line.rows.length).map(({ label, rows }) => {
      const points = rows.map(({ row, y }) => `${this.tickText(row)}: ${figure(chart.unit, y)}`);
      return `${label ? `${label}: ` : ""}${points.join(", ")}`;
    });
    const models = chart.models.filter((model) => model.panel === at);
    const spoken = `${chart.title} by ${axis.title}${name ? `, ${name}` : ""}. `
      + `${words.join("; ") || "No data"}. The table below has all values.`;
    const drawing = svg("svg", { viewBox: `0 0 ${PANEL.width} ${PANEL.height}`, role: "group", "aria-label": spoken },
    this.grid(), this.limits.map(([limit, text]) => this.limit(limit, text)), models.map((model) => this.knee(model)),
    this.capacity(at),
    all.length ? null : svg("text", { class: "tick", x: 200, y: 90, "text-anchor": "middle" },
      document.createTextNode("not measured")),
    lines.map((line) => this.line(line)), models.map((model) => this.curve(model)),
    axis.numeric ? lines.map((line) => line.rows.map((one) => this.mark(one))) : this.bars(lines));
    return el("div", { class: "panel" }, name ? el("p", { class: "panel-name" }, name) : null, drawing);
  }

  tickText(row) {
    const x = this.axis.spots[row][2];
    const tick = this.axis.ticks.find(([at]) => at === x);
    return tick ? tick[1] : "";
  }

  grid() {
    const { width, height, left, right, bottom } = PANEL;
    const parts = [];
    for (let value = 0; value <= this.top * 1.0001; value += this.step) {
      const y = this.y(value);
      parts.push(svg("line", { class: value === 0 ? "base" : "grid", x1: left, x2: width - right, y1: y, y2: y }));
      parts.push(svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end", "aria-hidden": "true" },
        document.createTextNode(figure(this.chart.unit, value))));
    }
    const { ticks, numeric } = this.axis;
    const room = (width - left - right) / ticks.length;
    const most = numeric ? TICK_TEXT : Math.max(Math.floor(room / 6.2), 4);
    let last = -Infinity;
    const every = numeric ? Math.ceil(ticks.length / TICKS_MAX) : 1;
    ticks.forEach(([value, text], at) => {
      const x = this.x(value);
      const shown = text.length > most ? `${text.slice(0, most - 1)}…` : text;
      const space = 6.4 * shown.length + 6;
      const isEnd = at === ticks.length - 1;
      if (at % every !== 0 && !isEnd) return;
      if (x - last < space && numeric) return;
      last = x;
      const place = { x, y: height - bottom + 16, "text-anchor": "middle" };
      parts.push(svg("text", { class: "tick", ...place, "aria-hidden": "true" },
        svg("title", {}, document.createTextNode(text)), document.createTextNode(shown)));
    });
    parts.push(svg("text", { class: "tick axis", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle",
      "aria-hidden": "true" }, document.createTextNode(this.axis.title)));
    return parts;
  }

  limit(value, text) {
    const { left, right, width, top } = PANEL;
    const y = this.y(value);
    const room = Math.floor((width - left - right) / 5.6);
    const shown = text.length > room ? `…${text.slice(1 - room)}` : text;
    return svg("g", {},
      svg("line", { class: "limit", x1: left, x2: width - right, y1: y, y2: y }),
      svg("text", { class: "limit-text", x: width - right, y: y - top < 14 ? y + 12 : y - 4, "text-anchor": "end" },
        svg("title", {}, document.createTextNode(text)), document.createTextNode(shown)));
  }

  // Lines connect trusted runs only.
  line({ line, rows }) {
    if (!this.axis.numeric) return null;
    const trusted = rows.filter(({ row }) => this.series.rows[row].mark !== "doubt");
    if (trusted.length < 2) return null;
    const points = trusted.map(({ x, y }) => `${this.x(x)},${this.y(y)}`);
    return svg("polyline", { class: `line of-${line % 6}`, points: points.join(" ") });
  }

  curve(model) {
    const points = model.curve.map(([x, y]) => `${this.x(x)},${this.y(y)}`);
    return svg("polyline", { class: "model", points: points.join(" ") });
  }

  knee(model) {
    if (!model.knee) return null;
    const { top, bottom, height, left, right, width } = PANEL;
    const inside = (value) => Math.min(Math.max(this.x(Math.max(value, this.low)), left), width - right);
    const [low, high, at] = [model.knee.low, model.knee.high, model.knee.at].map(inside);
    const isRight = at > width - 90;
    return svg("g", {},
      svg("rect", { class: "knee-range", x: low, y: top, width: Math.max(high - low, 1),
        height: height - top - bottom }),
      svg("line", { class: "knee", x1: at, x2: at, y1: top, y2: height - bottom }),
      svg("text", { class: "tick knee-text", x: at + (isRight ? -5 : 5), y: top + 9,
        "text-anchor": isRight ? "end" : "start" },
        document.createTextNode(model.knee.text)));
  }

  // Capacity in a panel with one line.
  capacity(at) {
    const { axis } = this;
    const found = axis.passed.filter(([panel]) => panel === at);
    if (!axis.numeric || axis.lines.length > 1 || found.length !== 1) return null;
    const { top, bottom, height, left } = PANEL;
    const [, value, text] = found[0];
    const x = this.x(value);
    const isRight = x - left < 6 * text.length;
    return svg("g", {}, svg("line", { class: "capacity", x1: x, x2: x, y1: top, y2: height - bottom }),
      svg("text", { class: "tick capacity-text", x: x + (isRight ? 5 : -5), y: height - bottom - 6,
        "text-anchor": isRight ? "start" : "end", "aria-hidden": "true" }, document.createTextNode(text)));
  }

  // Wraps the mark of a run in a link to its page, with a tip.
  leads(row, y, ...drawn) {
    const { series, chart } = this;
    const about = series.rows[row];
    const settings = series.names.map((name, at) => `${name} ${about.values[at]}`).join(", ");
    const lines = [{ text: settings, class: "of" }, { text: `${chart.title}: ${figure(chart.unit, y)}` },
      { text: about.verdict }];
    if (about.page) lines.push({ text: "Select to open the page of this run.", class: "source" });
    const label = `${settings}: ${figure(chart.unit, y)}, ${about.verdict}`;
    const element = about.page
      ? svg("a", { href: `#run-${row + 1}`, class: `run ${about.mark}`, "aria-label": label }, drawn)
      : svg("g", { tabindex: "0", role: "img", class: `run ${about.mark}`, "aria-label": label }, drawn);
    for (const kind of ["mouseenter", "focus"]) element.addEventListener(kind, () => showTip(element, lines));
    for (const kind of ["mouseleave", "blur"]) element.addEventListener(kind, hideTip);
    return element;
  }

  mark({ row, x, y, on }) {
    const name = SHAPES[on % SHAPES.length];
    const [left, top] = [this.x(x), this.y(y)];
    const around = svg("circle", { class: "around", cx: left, cy: top, r: 11 });
    return this.leads(row, y, around, shape(name, left, top, { class: `mark of-${on % 6}` }));
  }

  // Value of a bar, if there is enough space for it.
  value(x, y, value, room) {
    const text = figure(this.chart.unit, value);
    if (6.2 * text.length > room) return null;
    return svg("text", { class: "tick value", x, y: y - 4, "text-anchor": "middle", "aria-hidden": "true" },
      document.createTextNode(text));
  }

  // One bar for each run. Bars with the same value on the axis are side by side.
  bars(lines) {
    const { width, left, right } = PANEL;
    const room = (width - left - right) / this.axis.ticks.length;
    return this.axis.ticks.map(([value]) => {
      const here = lines.flatMap((line) => line.rows.filter((one) => one.x === value));
      const each = Math.min((room * 0.72) / Math.max(here.length, 1), 46);
      return here.map(({ row, y, on }, at) => {
        const x = this.x(value) + (at - here.length / 2) * each;
        const top = this.y(y);
        const height = Math.max(this.y(0) - top, 1.5);
        const bar = svg("rect", { class: `bar-of of-${on % 6}`, x: x + 1, y: this.y(0) - height,
          width: Math.max(each - 2, 1), height });
        return this.leads(row, y, bar, this.value(x + each / 2, this.y(0) - height, y, room / here.length));
      });
    });
  }
}

// Legend of the marks.
function markKeys(series) {
  const { axis, rows } = series;
  const keys = [];
  const key = (drawn, text) => keys.push(el("li", {},
    svg("svg", { viewBox: "-8 -8 16 16", class: "mark-key", "aria-hidden": "true" }, drawn), text));
  if (axis.lines.length > 1) {
    axis.lines.forEach((label, at) => key(axis.numeric
      ? shape(SHAPES[at % SHAPES.length], 0, 0, { class: `mark of-${at % 6}` })
      : svg("rect", { class: `bar-of of-${at % 6}`, x: -5, y: -6, width: 10, height: 12 }), label));
  }
  const has = (mark) => rows.some((row) => row.mark === mark);
  // With one line, samples have its colour; with several, a neutral one.
  const of = axis.lines.length > 1 ? "of-any" : "of-0";
  const sample = (mark) => svg("g", { class: `run ${mark}` }, axis.numeric
    ? shape("circle", 0, 0, { class: `mark ${of}` })
    : svg("rect", { class: `bar-of ${of}`, x: -5, y: -6, width: 10, height: 12 }));
  if (has("out") || has("doubt")) key(sample("counts"), "ranked: passed, and served every client correctly");
  if (has("out")) key(sample("out"), "not ranked: failed, or did not serve every client correctly");
  if (has("doubt")) key(sample("doubt"), "not ranked: cannot be trusted");
  if (series.charts.some((chart) => chart.limits.length)) {
    key(svg("line", { class: "limit", x1: -8, x2: 8, y1: 0, y2: 0 }), "threshold");
  }
  if (series.charts.some((chart) => chart.models.length)) {
    key(svg("line", { class: "model", x1: -8, x2: 8, y1: 0, y2: 0 }), "model");
    if (series.charts.some((chart) => chart.models.some((model) => model.knee))) {
      key([svg("rect", { class: "knee-range", x: -8, y: -7, width: 16, height: 14 }),
        svg("line", { class: "knee", x1: 0, x2: 0, y1: -7, y2: 7 })],
        "knee of the model, with 95 % confidence");
    }
  }
  return keys.length ? el("ul", { class: "keys mark-keys" }, keys) : null;
}
