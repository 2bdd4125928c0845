// Picture of a capacity search: its trials over the load, and the distribution of the capacity.

const SEARCH = { width: 760, height: 250, left: 70, right: 20, trials: 112, base: 208 };
const TRIAL_ROWS = { failed: 30, invalid: 52, getting_worse: 74, held: 96 };
const TRIAL_NAMES = { failed: "failed", invalid: "invalid", getting_worse: "got worse", held: "held" };
const TRIAL_MARKS = { failed: "cross", invalid: "diamond", getting_worse: "triangle", held: "circle" };

class SearchPicture {
  constructor(search) {
    this.search = search;
    const loads = search.trials.map(([load]) => load);
    this.low = Math.min(...loads);
    this.high = Math.max(...loads);
    if (this.low === this.high) {
      this.low /= 2;
      this.high *= 2;
    }
  }

  x(load) {
    const room = SEARCH.width - SEARCH.left - SEARCH.right - 20;
    const within = Math.min(Math.max(load, this.low), this.high);
    return SEARCH.left + 10 + (room * Math.log(within / this.low)) / Math.log(this.high / this.low);
  }

  make() {
    const { search } = this;
    const drawing = svg("svg", { viewBox: `0 0 ${SEARCH.width} ${SEARCH.height}`, role: "group", "aria-label": search.spoken },
      this.interval(), this.rows(), this.density(), this.axis(), this.capacity(), this.marks());
    return el("figure", { class: "search" },
      el("figcaption", {}, search.title ? `${search.title}: ` : "",
        "each mark is a trial and links to its page",
        search.density.length ? "; the curve is the probability of the capacity" : ""),
      drawing);
  }

  rows() {
    const shown = Object.keys(TRIAL_ROWS).filter((row) => this.search.trials.some(([, of]) => of === row));
    return shown.map((row) => [
      svg("line", { class: "grid", x1: SEARCH.left, x2: SEARCH.width - SEARCH.right, y1: TRIAL_ROWS[row], y2: TRIAL_ROWS[row] }),
      svg("text", { class: "tick", x: SEARCH.left - 6, y: TRIAL_ROWS[row] + 4, "text-anchor": "end", "aria-hidden": "true" },
        document.createTextNode(TRIAL_NAMES[row])),
    ]);
  }

  axis() {
    const parts = [svg("line", { class: "base", x1: SEARCH.left, x2: SEARCH.width - SEARCH.right, y1: SEARCH.base, y2: SEARCH.base })];
    let last = -Infinity;
    for (const [load, text] of this.search.ticks) {
      const x = this.x(load);
      if (x - last < 7 * text.length + 8) continue;
      last = x;
      parts.push(svg("text", { class: "tick", x, y: SEARCH.base + 16, "text-anchor": "middle", "aria-hidden": "true" },
        document.createTextNode(text)));
    }
    parts.push(svg("text", { class: "tick axis", x: SEARCH.width - SEARCH.right, y: SEARCH.base + 34, "text-anchor": "end",
      "aria-hidden": "true" }, document.createTextNode(this.search.axis)));
    return parts;
  }

  density() {
    const { density } = this.search;
    if (density.length < 2) return null;
    const most = density.reduce((a, [, p]) => Math.max(a, p), 0);
    const y = (p) => SEARCH.base - ((SEARCH.base - SEARCH.trials - 12) * p) / most;
    const inner = density.filter(([load]) => load >= this.low && load <= this.high);
    if (inner.length < 2) return null;
    const points = inner.map(([load, p]) => `${this.x(load).toFixed(1)},${y(p).toFixed(1)}`);
    const [first, final] = [this.x(inner[0][0]), this.x(inner[inner.length - 1][0])];
    return svg("polygon", { class: "density", points: `${first},${SEARCH.base} ${points.join(" ")} ${final},${SEARCH.base}` });
  }

  interval() {
    const { low, high } = this.search;
    if (low === null || high === null) return null;
    const [from, to] = [this.x(low), this.x(high)];
    return svg("rect", { class: "interval", x: from, y: 14, width: Math.max(to - from, 1), height: SEARCH.base - 14 });
  }

  capacity() {
    const { capacity, answer } = this.search;
    if (capacity === null) return null;
    const x = this.x(capacity);
    const isRight = x > SEARCH.width * 0.6;
    return [
      svg("line", { class: "capacity", x1: x, x2: x, y1: 14, y2: SEARCH.base }),
      svg("text", { class: "tick capacity-text", x: isRight ? x - 5 : x + 5, y: SEARCH.trials + 6,
        "text-anchor": isRight ? "end" : "start", "aria-hidden": "true" }, document.createTextNode(answer)),
    ];
  }

  marks() {
    return this.search.trials.map(([load, of, run, text, hasPage]) => {
      const [x, y] = [this.x(load), TRIAL_ROWS[of]];
      const mark = [shape(TRIAL_MARKS[of], x, y, { class: "mark" }),
        svg("circle", { class: "around", cx: x, cy: y, r: 9 }),
        svg("title", {}, document.createTextNode(text))];
      const style = `trial ${of}`;
      return hasPage
        ? svg("a", { class: `run ${style}`, href: `#run-${run + 1}`, "aria-label": text }, mark)
        : svg("g", { class: style }, mark);
    });
  }
}

// Bars of the capacities of several combinations, each with its interval.
function capacityBars(searches) {
  const known = searches.filter((search) => search.capacity !== null);
  if (searches.length < 2 || !known.length) return null;
  const most = known.reduce((top, search) => Math.max(top, search.high === null ? search.capacity : search.high), 0);
  const [left, room, row] = [220, 380, 26];
  const x = (value) => left + (room * value) / most;
  const rows = searches.map((search, at) => {
    const y = 8 + at * row;
    const name = search.title.length > 34 ? `${search.title.slice(0, 33)}…` : search.title;
    const label = svg("text", { class: "tick", x: left - 8, y: y + 12, "text-anchor": "end" }, document.createTextNode(name));
    if (search.capacity === null) {
      return [label, svg("text", { class: "tick", x: left + 4, y: y + 12 }, document.createTextNode(search.text))];
    }
    const end = x(search.high === null ? search.capacity : search.high);
    return [label,
      svg("rect", { class: "capacity-bar", x: left, y, width: Math.max(x(search.capacity) - left, 1), height: 16 }),
      search.low === null || search.high === null ? null
        : svg("path", { class: "whisker", d: `M${x(search.low)},${y + 8}H${end}M${x(search.low)},${y + 3}v10M${end},${y + 3}v10` }),
      svg("text", { class: "tick value", x: end + 8, y: y + 12 }, document.createTextNode(search.answer))];
  });
  const spoken = searches.map((search) => search.spoken).join("; ");
  return el("figure", { class: "search" }, el("figcaption", {}, "capacity of each combination, with its interval"),
    svg("svg", { viewBox: `0 0 760 ${searches.length * row + 16}`, role: "img", "aria-label": spoken }, rows));
}
