// Picture of a comparison of two variants: the effect on each metric, and the curves of both.

const EFFECTS = { left: 190, width: 300, right: 270, row: 24, most: 10 };
const CURVES = { width: 340, height: 130, left: 8, right: 8, top: 22, bottom: 18 };

class ComparisonPicture {
  constructor(comparison, isAlone) {
    this.comparison = comparison;
    this.isAlone = isAlone;
  }

  make() {
    const { comparison } = this;
    return el("section", {},
      el("h2", {}, this.isAlone ? "Comparison" : comparison.answer),
      el("p", {}, comparison.basis),
      comparison.notes.length ? el("ul", { class: "meaning" }, comparison.notes.map((text) => el("li", {}, text))) : null,
      this.effects(), this.curves(), closed("values of each run", () => this.values()));
  }

  // Effects in multiples of the smallest one that counts. To the right is better for every metric.
  effects() {
    const { metrics } = this.comparison;
    const { left, width, right, row, most } = EFFECTS;
    const height = metrics.length * row + 34;
    const x = (effect) => left + (width * (effect + most)) / (2 * most);
    const text = (at, y, content, attributes) => svg("text", { class: "tick", x: at, y, ...attributes },
      document.createTextNode(content));
    const rows = metrics.map((metric, at) => {
      const y = 24 + at * row;
      const name = metric.title.length > 28 ? `${metric.title.slice(0, 27)}…` : metric.title;
      const whisker = metric.low === null || metric.high === null ? null
        : svg("path", { class: "whisker", d: `M${x(metric.low)},${y}H${x(metric.high)}` });
      return svg("g", { class: `effect ${metric.tone}${metric.judged ? "" : " aside"}` },
        text(left - 10, y + 4, name, { "text-anchor": "end" }), whisker,
        metric.effect === null ? null : svg("circle", { class: "mark", cx: x(metric.effect), cy: y, r: 4.5 }),
        text(left + width + 12, y + 4, `${metric.word}: ${metric.figures}`, {}),
        svg("title", {}, document.createTextNode(`${metric.title}: ${metric.word}, ${metric.figures}`)));
    });
    const spoken = metrics.map((metric) => `${metric.title}: ${metric.word}, ${metric.figures}`).join("; ");
    return el("figure", { class: "search" },
      el("figcaption", {}, "Effect on each metric with its 95 % interval, in multiples of the smallest effect that counts (the band); "
        + "right is better"),
      svg("svg", { viewBox: `0 0 ${left + width + right} ${height}`, role: "img", "aria-label": spoken },
        svg("rect", { class: "interval", x: x(-1), y: 10, width: x(1) - x(-1), height: height - 30 }),
        svg("line", { class: "base", x1: x(0), x2: x(0), y1: 10, y2: height - 20 }),
        text(left, height - 4, "← worse", {}), text(left + width, height - 4, "better →", { "text-anchor": "end" }),
        rows));
  }

  curves() {
    const shown = this.comparison.metrics.filter((metric) => metric.curve_a.length > 1 && metric.curve_b.length > 1);
    if (!shown.length) return null;
    return el("figure", { class: "search" },
      el("figcaption", {}, "median of the runs, second by second: ",
        el("span", { class: "side-a" }, `━ ${this.comparison.a}`), " ", el("span", { class: "side-b" }, `┅ ${this.comparison.b}`)),
      el("div", { class: "curves" }, shown.map((metric) => this.curve(metric))));
  }

  curve(metric) {
    const { width, height, left, right, top, bottom } = CURVES;
    const both = [...metric.curve_a, ...metric.curve_b];
    const first = both.reduce((least, [at]) => Math.min(least, at), Infinity);
    const last = both.reduce((most, [at]) => Math.max(most, at), -Infinity);
    const least = Math.min(0, both.reduce((low, [, value]) => Math.min(low, value), Infinity));
    const most = both.reduce((high, [, value]) => Math.max(high, value), -Infinity);
    const x = (at) => left + ((width - left - right) * (at - first)) / Math.max(last - first, 1);
    const y = (value) => height - bottom - ((height - top - bottom) * (value - least)) / (most - least || 1);
    const line = (points, style) => svg("polyline", { class: style,
      points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") });
    const text = (at, where, content, anchor) => svg("text", { class: "tick", x: at, y: where, "text-anchor": anchor },
      document.createTextNode(content));
    return el("figure", {},
      el("figcaption", {}, metric.title, el("span", { class: `word ${metric.tone}` }, metric.word)),
      svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${metric.title}: ${metric.figures}` },
        svg("line", { class: "base", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
        line(metric.curve_a, "curve-a"), line(metric.curve_b, "curve-b"),
        text(left, 12, figure(metric.unit, most), "start"),
        text(width - right, height - 4, `${last} s`, "end")));
  }

  values() {
    const { a, b } = this.comparison;
    const metrics = this.comparison.metrics.filter((metric) => metric.a.length || metric.b.length);
    const rows = metrics.flatMap((metric) => [[a, metric.a], [b, metric.b]].map(([name, values], at) => el("tr", {},
      at === 0 ? el("th", { scope: "rowgroup", rowspan: "2" }, metric.title) : null,
      el("td", {}, name), values.map((value) => el("td", { class: "number" }, figure(metric.unit, value))))));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Values of each run" },
      el("table", {}, el("tbody", {}, rows)));
  }
}
