// Charts over time that share one cursor and one zoom.

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 2]];
const HEIGHT = 190;
const TABLE_ROWS = 120;

// Charts of one run: their shared state and their views.
class Charts {
  // `course` is the run's data over time; `events` are marked; `definitions` explain lines.
  constructor(run, definitions, readout) {
    this.run = run;
    this.course = run.course;
    this.times = run.course.times;
    this.definitions = definitions;
    this.readout = readout;
    this.marks = run.events.filter((event) => event.marked);
    this.views = [];
    this.zooming = false;
    this.range = [0, Math.max(run.course.end, 1e-3)];
    this.sync = uPlot.sync(`run${Charts.count++}`);
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const view = this.views.find((one) => one.place === entry.target);
        if (entry.isIntersecting && view && !view.plot) view.draw();
      }
    }, { rootMargin: "500px" });
    this.sized = new ResizeObserver((entries) => {
      for (const entry of entries) {
        const view = this.views.find((one) => one.place === entry.target);
        if (view && view.plot) view.fit();
      }
    });
  }

  add(chart) {
    const view = new View(this, chart);
    this.views.push(view);
    this.seen.observe(view.place);
    this.sized.observe(view.place);
    return view.element;
  }

  zoom(min, max) {
    this.zooming = true;
    this.range = [min, max];
    for (const view of this.views) {
      if (view.plot) view.plot.setScale("x", { min, max });
    }
    this.zooming = false;
    document.body.classList.toggle("zoomed", !this.isWhole());
  }

  // Identifies the charts of a run in progress, to find out whether they are the ones drawn.
  static form(course) {
    const labels = (chart) => chart.lines.map((line) => line.label);
    return JSON.stringify(course.charts.map((chart) => [chart.subject, chart.title, labels(chart)]));
  }

  // Draws the new data of a run in progress. Returns false if its charts have changed.
  refresh(run) {
    if (Charts.form(run.course) !== Charts.form(this.course)) return false;
    const whole = this.isWhole();
    this.run = run;
    this.course = run.course;
    this.times = run.course.times;
    this.marks = run.events.filter((event) => event.marked);
    if (whole) this.range = [0, Math.max(run.course.end, 1e-3)];
    this.zooming = true;
    this.views.forEach((view, at) => view.refresh(run.course.charts[at]));
    this.zooming = false;
    return true;
  }

  isWhole() {
    return this.range[0] <= 0 && this.range[1] >= this.course.end;
  }

  reset() {
    this.zoom(0, Math.max(this.course.end, 1e-3));
  }

  redraw(all) {
    for (const view of this.views) if (view.plot || all) view.draw();
  }

  // Shows the time under the cursor, with nearby events.
  say(index) {
    const at = this.times[index];
    const near = (this.range[1] - this.range[0]) / 100;
    const events = at === undefined ? [] : this.marks.filter((mark) => Math.abs(mark.at - at) <= near);
    const texts = events.slice(0, 2).map((mark) => `${clock(mark.at, true)} ${mark.kind}: ${mark.text}`);
    const where = at === undefined ? "" : clock(at, this.range[1] - this.range[0] < 120);
    this.readout.textContent = [where, ...texts].filter(Boolean).join(" · ");
  }

  disconnect() {
    this.seen.disconnect();
    this.sized.disconnect();
    for (const view of this.views) if (view.plot) view.plot.destroy();
  }
}
Charts.count = 0;

// One chart.
class View {
  constructor(all, chart) {
    this.all = all;
    this.chart = chart;
    this.plot = null;
    this.heat = false;
    this.index = null;
    this.isLog = chart.bands && this.spread() > 30;
    this.place = el("div", { class: "plot", tabindex: "0", role: "img", "aria-label": this.inWords(),
      onkeydown: (event) => this.key(event) });
    const lines = chart.lines.flatMap((line) => {
      const found = definition(all.definitions, chart.kind, line.metric);
      return found.length && !chart.bands ? [{ text: line.label, class: "of" }, ...found] : found;
    });
    const once = chart.bands ? lines.slice(0, 3).filter((line, at) => at < 2 || line.class) : lines;
    const title = el("h4", {}, term(chart.title, once));
    const head = el("div", { class: "chart-head" }, title);
    if (chart.heat && chart.heat.columns.length) head.append(this.toggle());
    this.element = el("figure", { class: "chart" }, head,
      chart.note ? el("p", { class: "note" }, chart.note) : null, this.place,
      closed("Table", () => this.table()));
  }

  toggle() {
    const button = el("button", { type: "button", class: "small", "aria-pressed": "false",
      onclick: () => {
        this.heat = !this.heat;
        button.setAttribute("aria-pressed", String(this.heat));
        this.draw();
      } }, "Heat map");
    return button;
  }

  values() {
    return this.chart.lines.flatMap((line) => line.values).filter((value) => value !== null);
  }

  spread() {
    const above = this.values().filter((value) => value > 0);
    if (!above.length) return 1;
    return above.reduce((a, b) => Math.max(a, b)) / above.reduce((a, b) => Math.min(a, b));
  }

  // Text for screen readers: the range of each line.
  inWords() {
    const parts = this.chart.lines.map((line) => {
      const known = line.values.filter((value) => value !== null);
      if (!known.length) return `${line.label}: no data`;
      const low = known.reduce((a, b) => Math.min(a, b));
      const high = known.reduce((a, b) => Math.max(a, b));
      const shown = (value) => figure(this.chart.unit, value);
      return `${line.label} from ${shown(low)} to ${shown(high)}`;
    });
    const limits = this.chart.limits.map((limit) => `threshold ${limit.text}`);
    return `Chart over time, ${this.chart.title}: ${[...parts, ...limits].join("; ")}. A table follows.`;
  }

  shown() {
    return this.chart.lines.filter((line) => !this.heat || line.label !== "p95");
  }

  data() {
    const positive = (values) => (this.isLog ? values.map((value) => (value > 0 ? value : null)) : values);
    return [this.all.times, ...this.shown().map((line) => positive(line.values))];
  }

  // Draws the new data of a run in progress.
  refresh(chart) {
    const wasLog = this.isLog;
    this.chart = chart;
    this.isLog = chart.bands && this.spread() > 30;
    this.place.setAttribute("aria-label", this.inWords());
    if (!this.plot) return;
    if (wasLog !== this.isLog) {
      this.draw();
      return;
    }
    const [min, max] = this.all.range;
    this.plot.batch(() => {
      this.plot.setData(this.data(), false);
      this.plot.setScale("x", { min, max });
    });
  }

  draw() {
    if (this.plot !== null) this.plot.destroy();
    const palette = [1, 2, 3, 4, 5, 6].map((number) => colour(`line-${number}`));
    const { chart, all } = this;
    const shown = this.shown();
    const data = this.data();
    const series = shown.map((line, at) => this.series(line, at, palette));
    const text = colour("soft");
    const axis = { stroke: text, grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid") },
      font: "12px system-ui, sans-serif" };
    const options = {
      width: Math.max(this.place.clientWidth, 120),
      height: HEIGHT,
      cursor: { sync: { key: all.sync.key, setSeries: false }, drag: { x: true, y: false, dist: 4 },
        points: { size: 6 } },
      scales: {
        x: { time: false, min: all.range[0], max: all.range[1] },
        y: this.isLog ? { distr: 3, range: (u, min, max) => this.logRange(min, max) }
          : { range: (u, min, max) => this.range(min, max) },
      },
      axes: [
        { ...axis, space: 60, incrs: TIMES, values: (u, splits) => splits.map((at) => clock(at, tenths(splits))) },
        { ...axis, size: 76, space: 34, splits: this.isLog ? (u, at, min, max) => logSplits(min, max) : undefined,
          filter: (u, splits) => splits, incrs: chart.unit === "bytes" ? BYTE_STEPS : undefined,
          values: (u, splits) => splits.map((value) => (value === null ? "" : figure(chart.unit, value))) },
      ],
      series: [{ label: "time", value: (u, at) => clock(at) }, ...series],
      legend: { markers: { width: 3, dash: (u, at) => (series[at - 1] && series[at - 1].dash.length ? "dotted" : "solid") } },
      bands: chart.bands && !this.heat
        ? shown.slice(1).map((line, at) => ({ series: [at + 2, at + 1], fill: this.fill(at) })) : [],
      hooks: {
        drawClear: [(u) => this.behind(u)],
        draw: [(u) => this.before(u)],
        setScale: [(u, key) => {
          if (key === "x" && !all.zooming && this.plot === u) all.zoom(u.scales.x.min, u.scales.x.max);
        }],
        setCursor: [(u) => {
          if (u.cursor.idx !== this.index) {
            this.index = u.cursor.idx;
            all.say(u.cursor.idx === null ? undefined : u.cursor.idx);
          }
        }],
      },
    };
    empty(this.place);
    this.plot = new uPlot(options, data, this.place);
    // A double click shows the whole run again, in all charts.
    this.plot.over.addEventListener("dblclick", () => all.reset());
  }

  series(line, at, palette) {
    const planned = line.planned;
    return {
      label: line.label,
      auto: !this.isFar(line),
      stroke: planned ? colour("soft") : palette[at % palette.length],
      width: planned ? 1.5 : 1.75,
      dash: planned ? [3, 3] : DASHES[this.chart.bands ? 0 : at % DASHES.length],
      spanGaps: false,
      points: { show: true, size: 5, filter: (u, index) => alone(u.data[index]) },
      value: (u, value) => (value === undefined || u.cursor.idx === null ? "" : figure(this.chart.unit, value)),
    };
  }

  // True if a plan or a limit is so far above the measured values that it would hide them.
  isFar(line) {
    if (!line.planned) return false;
    const most = (lines) => lines.flatMap((one) => one.values).reduce((a, b) => Math.max(a, b), 0);
    return most([line]) > 4 * most(this.chart.lines.filter((one) => !one.planned));
  }

  fill(at) {
    return colour(`band-${at + 1}`);
  }

  limits() {
    return this.chart.limits.map((limit) => limit.value);
  }

  // From zero, with every threshold that is close enough to be visible with the lines.
  range(min, max) {
    let high = max === null ? 0 : max;
    let low = Math.min(min === null ? 0 : min, 0);
    for (const limit of this.limits()) {
      if (limit > high && (high === 0 || limit <= 8 * high)) high = limit;
    }
    if (high === low) high = low + (this.chart.unit === "count" ? 1 : high === 0 ? 0.01 : Math.abs(high));
    return [low, high + (high - low) * 0.08];
  }

  logRange(min, max) {
    let [low, high] = [min === null ? 1e-6 : min, max === null ? 1 : max];
    for (const limit of this.limits()) {
      if (limit > high && limit <= 100 * high) high = limit;
    }
    return [low / 1.3, high * 1.4];
  }

  // Behind the lines: the heat map, and periods that are left out or not trusted.
  behind(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const { run, course } = this.all;
    if (this.heat) this.drawHeat(u);
    this.shade(u, 0, run.warm_up, colour("left-out"));
    if (course.end - run.duration > 0.05) this.shade(u, run.duration, course.end, colour("left-out"));
    for (const [from, to] of course.shades) this.shade(u, from, to, colour("untrusted"), true);
    ctx.restore();
  }

  shade(u, from, to, style, hatched) {
    const { ctx, bbox } = u;
    const left = u.valToPos(from, "x", true);
    const width = Math.max(u.valToPos(to, "x", true) - left, 1);
    if (to <= from || left > bbox.left + bbox.width || left + width < bbox.left) return;
    ctx.fillStyle = style;
    ctx.fillRect(left, bbox.top, width, bbox.height);
    if (!hatched) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, bbox.top, width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = colour("untrusted-line");
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    const step = 8 * devicePixelRatio;
    for (let x = left - bbox.height - (left % step); x < left + width; x += step) {
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x + bbox.height, bbox.top);
    }
    ctx.stroke();
    ctx.restore();
  }

  drawHeat(u) {
    const { ctx } = u;
    const { rows, columns } = this.chart.heat;
    ctx.fillStyle = colour("heat");
    for (const [from, length, first, ...counts] of columns) {
      const left = Math.floor(u.valToPos(from, "x", true));
      const right = Math.ceil(u.valToPos(from + length, "x", true));
      const most = counts.reduce((a, b) => Math.max(a, b), 1);
      counts.forEach((number, at) => {
        if (number === 0) return;
        const top = u.valToPos(10 ** ((first + at) / rows), "y", true);
        const bottom = u.valToPos(10 ** ((first + at - 1) / rows), "y", true);
        ctx.globalAlpha = 0.1 + 0.9 * Math.sqrt(number / most);
        ctx.fillRect(left, Math.floor(top), right - left, Math.max(Math.ceil(bottom) - Math.floor(top), 1));
      });
    }
    ctx.globalAlpha = 1;
  }

  // In front of the lines: thresholds and events.
  before(u) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.lineWidth = ratio;
    for (const mark of this.all.marks) {
      const left = Math.round(u.valToPos(mark.at, "x", true));
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour("event");
      ctx.fillStyle = colour("event");
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      line(ctx, left, bbox.top, left, bbox.top + bbox.height);
      ctx.beginPath();
      ctx.moveTo(left - 4 * ratio, bbox.top);
      ctx.lineTo(left + 4 * ratio, bbox.top);
      ctx.lineTo(left, bbox.top + 6 * ratio);
      ctx.fill();
    }
    for (const limit of this.chart.limits) this.drawLimit(u, limit, ratio);
    ctx.restore();
  }

  drawLimit(u, limit, ratio) {
    const { ctx, bbox } = u;
    const at = u.valToPos(limit.value, "y", true);
    const above = at < bbox.top - 1;
    const style = colour(limit.passed ? "limit" : "bad");
    const top = Math.min(Math.max(at, bbox.top), bbox.top + bbox.height);
    if (!above) {
      ctx.strokeStyle = style;
      ctx.lineWidth = 1.5 * ratio;
      ctx.setLineDash([6 * ratio, 3 * ratio]);
      line(ctx, bbox.left, top, bbox.left + bbox.width, top);
    }
    const text = above ? `↑ ${limit.text}` : limit.text;
    const room = bbox.width - 8 * ratio;
    const width = Math.min(ctx.measureText(text).width, room);
    const down = above || top - bbox.top < 16 * ratio;
    ctx.globalAlpha = 0.8;
    ctx.fillStyle = colour("paper");
    const left = bbox.left + bbox.width - width - 8 * ratio;
    ctx.fillRect(left, down ? top + 2 * ratio : top - 15 * ratio, width + 8 * ratio, 13 * ratio);
    ctx.globalAlpha = 1;
    ctx.fillStyle = style;
    ctx.textAlign = "right";
    ctx.textBaseline = "alphabetic";
    ctx.fillText(text, bbox.left + bbox.width - 4 * ratio, down ? top + 12 * ratio : top - 5 * ratio, room);
  }

  fit() {
    const width = Math.max(this.place.clientWidth, 120);
    if (Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: HEIGHT });
  }

  // Arrow keys move the cursor, plus and minus zoom around it, Escape shows the whole run.
  key(event) {
    const { all, plot } = this;
    if (!plot) return;
    const [min, max] = all.range;
    const last = all.times.length - 1;
    const from = this.index === null || this.index === undefined ? 0 : this.index;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last }[event.key];
    if (move !== undefined) {
      const index = Math.min(Math.max(from + move, 0), last);
      plot.setCursor({ left: plot.valToPos(all.times[index], "x"), top: plot.over.clientHeight / 2 }, true, true);
    } else if (event.key === "+" || event.key === "-") {
      const middle = all.times[from];
      const half = ((max - min) / 2) * (event.key === "+" ? 0.5 : 2);
      all.zoom(Math.max(middle - half, 0), Math.min(middle + half, all.course.end));
    } else if (event.key === "Escape") {
      all.reset();
    } else {
      return;
    }
    event.preventDefault();
  }

  // The chart as a table. For a long run, each row has the largest value of a period.
  table() {
    const { times, range } = this.all;
    const inside = times.map((at, index) => [at, index]).filter(([at]) => at >= range[0] && at <= range[1]);
    const step = Math.ceil(inside.length / TABLE_ROWS) || 1;
    const rows = [];
    for (let at = 0; at < inside.length; at += step) {
      const part = inside.slice(at, at + step);
      const cells = this.chart.lines.map((line) => {
        const known = part.map(([, index]) => line.values[index]).filter((value) => value !== null);
        return figure(this.chart.unit, known.length ? known.reduce((a, b) => Math.max(a, b)) : null);
      });
      rows.push([clock(part[0][0], step === 1 && range[1] < 120), ...cells]);
    }
    const of = step > 1 ? ": the largest value of each period" : "";
    return table(this.chart.title + of, ["time", ...this.chart.lines.map((line) => line.label)], rows);
  }
}

const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const BYTE_STEPS = [...Array(50).keys()].map((power) => 2 ** power);

// Steps of a logarithmic axis: powers of ten, with 2 and 5 between them if there are few.
function logSplits(min, max) {
  const [from, to] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  const decades = Math.log10(max / min);
  const within = decades < 1.5 ? [1, 2, 5] : decades < 2.5 ? [1, 3] : [1];
  const splits = [];
  for (let power = from; power <= to; power += decades > 5 ? 2 : 1) {
    splits.push(...within.map((first) => first * 10 ** power));
  }
  return splits.filter((split) => split >= min && split <= max);
}

// Indexes of values without neighbours, which no line connects.
function alone(values) {
  const isGap = (at) => values[at] === null || values[at] === undefined;
  return [...values.keys()].filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1));
}

function tenths(splits) {
  return splits.length > 1 && splits[1] - splits[0] < 1;
}

function line(ctx, x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}
