// Page of one run, beginning with the verdict.

const VERDICTS = {
  pass: ["✓", "PASS"],
  fail: ["✗", "FAIL"],
  invalid: ["!", "INVALID"],
  stopped: ["■", "STOPPED"],
  running: ["▶", "RUNNING"],
};

const PARTS = ["verdict", "thresholds", "figures", "course", "clients", "events", "about"];

class RunPage {
  constructor(run, definitions) {
    this.run = run;
    this.definitions = definitions;
    this.readout = el("output", { class: "readout", "aria-live": "off" });
    this.charts = new Charts(run, definitions, this.readout);
  }

  make() {
    this.parts = PARTS.map((name) => this.part(name));
    return this.parts;
  }

  part(name) {
    const made = name === "clients" ? clientsSection(this.run.clients) : this[name]();
    return made || el("div", { hidden: true });
  }

  // Shows the new data of a run in progress. Returns false if its charts have changed.
  refresh(run) {
    if (!this.charts.refresh(run)) return false;
    this.run = run;
    PARTS.forEach((name, at) => {
      if (name === "course") return;
      const old = this.parts[at];
      const fresh = this.part(name);
      openAgain(fresh, openParts(old));
      old.replaceWith(fresh);
      this.parts[at] = fresh;
    });
    return true;
  }

  section(title, ...parts) {
    return el("section", {}, el("h2", {}, title), ...parts);
  }

  verdict() {
    const { run } = this;
    const { result, sentence, detail, since, limited, meaning, more } = run.verdict;
    const [sign, word] = VERDICTS[result] || VERDICTS.stopped;
    return el("header", { class: `verdict ${result}` },
      el("p", { class: "badge" }, el("span", { "aria-hidden": "true", class: "sign" }, sign), word),
      el("div", { class: "said" },
        el("h1", {}, run.name || "run"),
        el("p", { class: "facts" }, run.facts.map((text) => el("span", {}, text))),
        el("p", { class: "sentence" }, unbroken(sentence)),
        result === "invalid" ? null : this.keys(),
        detail ? el("p", {}, unbroken(detail)) : null,
        since ? el("p", {}, since) : null,
        limited ? el("p", {}, unbroken(limited)) : null,
        more.length ? el("ul", {}, more.slice(0, 8).map((text) => el("li", {}, unbroken(text)))) : null,
        // Figures that say nothing are not in the way.
        result === "invalid" ? this.keys() : null,
        el("p", { class: "meaning" }, meaning)));
  }

  // The figures that matter most, of each population.
  keys() {
    const { keys } = this.run;
    return keys.map((one) => el("dl", { class: "key-figures" },
      keys.length > 1 ? el("div", { class: "of" }, el("dt", {}, one.name)) : null,
      one.figures.map((figure) => el("div", {},
        el("dt", {}, term(figure.metric, definition(this.definitions, this.kindOf(one.name), figure.metric))),
        el("dd", {}, figure.first, figure.of ? el("small", {}, ` ${figure.of}`) : null)))));
  }

  thresholds() {
    const all = this.run.thresholds;
    if (!all.length) return null;
    const written = all.filter((one) => !one.implied || !one.passed);
    const implied = all.filter((one) => one.implied && one.passed);
    const parts = written.map((one) => this.threshold(one));
    if (implied.length) {
      const text = `${implied.length} implied ${implied.length === 1 ? "threshold" : "thresholds"} held`;
      parts.push(closed(text, () => implied.map((one) => this.threshold(one))));
    }
    if (this.run.verdict.result !== "invalid") return this.section("Thresholds", ...parts);
    const note = el("p", { class: "note" }, "The measurement cannot be trusted, so none of these says anything about the server.");
    return this.section("Thresholds", note, el("div", { class: "no-judge" }, ...parts));
  }

  threshold(one) {
    const lines = definition(this.definitions, one.kind, one.metric);
    const statistic = [one.statistic, one.worst_window === null ? null : `window ${one.worst_window}`];
    const what = statistic.filter(Boolean).join(", ");
    const shown = one.value === null ? "no data" : one.shown;
    const [result, mark] = one.passed ? ["held", "✓ held"]
      : one.undecided ? ["undecided", "~ undecided"] : ["broken", "✗ failed"];
    return el("div", { class: `threshold ${result}` },
      el("span", { class: "mark" }, mark),
      el("span", { class: "demand" }, term(one.text, lines)),
      this.bar(one),
      el("span", { class: "value" }, el("strong", {}, shown), what ? ` (${what})` : ""),
      one.since ? el("span", { class: "since" }, one.since) : null,
      one.in_doubt ? el("span", { class: "since" },
        "In doubt: the result could be different without the packets that the tester itself lost.") : null);
  }

  // The value as a bar with a line at its limit. The shaded part is allowed.
  bar(one) {
    const value = one.value === null ? 0 : Math.max(one.value, 0);
    const limit = Math.max(one.limit, 0);
    const whole = 1.25 * Math.max(value, limit) || 1;
    const percent = (part) => `${Math.min((100 * part) / whole, 100)}%`;
    const allowed = el("span", { class: "allowed" });
    const isUpper = ["<", "<=", "=="].includes(one.comparison);
    allowed.style.left = isUpper ? "0" : percent(limit);
    allowed.style.width = isUpper ? percent(limit) : percent(whole - limit);
    const fill = el("span", { class: "fill" });
    fill.style.width = percent(value);
    const bound = el("span", { class: "bound" });
    bound.style.left = percent(limit);
    const label = el("span", { class: "bound-text" }, one.bound);
    const isRight = limit > whole / 2;
    label.style[isRight ? "right" : "left"] = isRight ? percent(whole - limit) : percent(limit);
    const words = `${one.shown} against ${one.comparison || ""} ${one.bound}`;
    return el("span", { class: "bar", role: "img", "aria-label": words }, allowed, fill, bound, label);
  }

  card(kind, one) {
    return el("div", { class: one.size === "large" ? "card large" : "card" },
      el("span", { class: "label" }, term(one.label, definition(this.definitions, kind, one.metric))),
      el("span", { class: one.first.length > 16 ? "first long" : "first" }, one.first, one.of ? el("small", {}, ` ${one.of}`) : null),
      one.rest ? el("span", { class: "rest" }, one.rest) : null);
  }

  // Important figures as cards, the others as rows.
  figuresOf(kind, figures) {
    const rows = figures.filter((one) => one.size === "row");
    const cards = figures.filter((one) => one.size !== "row");
    const name = (one) => term(one.label, definition(this.definitions, kind, one.metric));
    return [
      cards.length ? el("div", { class: "cards" }, cards.map((one) => this.card(kind, one))) : null,
      rows.length ? el("dl", { class: "rows" }, rows.map((one) => [
        el("dt", {}, name(one)),
        el("dd", {}, el("strong", {}, one.first), one.of ? ` ${one.of}` : null, one.rest ? `${one.join || "; "}${one.rest}` : null)])) : null,
    ];
  }

  kindOf(subject) {
    const chart = this.run.course.charts.find((one) => one.subject === subject);
    return chart ? chart.kind : subject;
  }

  figures() {
    const { run } = this;
    const groups = run.populations.map((population) => {
      const kind = this.kindOf(population.name);
      return el("div", { class: "group" },
        el("h3", {}, population.name, el("small", {}, ` ${population.clients}`)),
        this.figuresOf(kind, population.figures),
        population.failures.length ? this.failures(population) : null);
    });
    if (run.delay_note) groups.push(el("p", { class: "note" }, run.delay_note));
    for (const link of run.links) {
      groups.push(el("div", { class: "group" },
        el("h3", {}, link.name, el("small", {}, ` ${link.asked}`)),
        el("div", { class: "cards" }, link.figures.map((one) => this.card(this.kindOf(link.name), one)))));
    }
    if (run.server) {
      groups.push(el("div", { class: "group" }, el("h3", {}, "server"),
        el("div", { class: "cards" }, run.server.figures.map((one) => this.card("server", one))),
        run.limits.length ? el("div", {}, el("h4", {}, "What limited the server"),
          el("ul", {}, run.limits.map((text) => el("li", {}, text)))) : null));
    }
    groups.push(this.tester());
    if (run.warming_up) groups.unshift(el("p", { class: "note" }, `The first figures follow after the warm-up of ${run.warming_up}.`));
    return this.section("Figures", ...groups);
  }

  failures(population) {
    const rows = population.failures.slice(0, 20).map((failure) =>
      [failure.reason, count(failure.count), failure.example || ""]);
    return table("Clients that failed", ["reason", "clients", "for example"], rows);
  }

  // Text on a bound that was crossed, but no more often than is forgiven.
  forgiven(one) {
    if (!one.crossed || one.invalid) return "";
    return `; crossed in ${one.windows} ${one.windows === 1 ? "second" : "seconds"}, which is forgiven`;
  }

  tester() {
    const { tester } = this.run;
    const word = el("small", { class: tester.fit ? "good" : "doubtful" }, ` ${tester.fit ? "✓" : "!"} ${tester.word}`);
    const nearest = tester.health.filter((one) => one.share !== null && one.share !== undefined)
      .reduce((a, b) => (a === null || b.share > a.share ? b : a), null);
    const cards = [
      { label: "overflow", metric: "overflow", first: tester.lost_here, rest: "packets lost in the tester" },
      nearest ? { label: "closest to its bound", metric: nearest.metric, first: cores(nearest.share),
        rest: `${nearest.bound}: ${nearest.worst}, at most ${nearest.limit}${this.forgiven(nearest)}` } : null,
    ].filter(Boolean);
    const rows = tester.health.map((one) => [
      term(one.bound, definition(this.definitions, "tester", one.metric)),
      one.invalid ? "! invalid" : one.crossed ? "crossed" : "✓ held",
      one.worst || "no data", one.limit,
      one.window === null ? "" : String(one.window), String(one.windows),
    ]);
    const bounds = () => table("Health bounds of the tester",
      ["bound", "", "worst", "at most", "in window", "windows above it"], rows);
    return el("div", { class: "group" }, el("h3", {}, "tester", word),
      el("div", { class: "cards" }, cards.map((one) => this.card("tester", one))),
      tester.hint ? el("p", { class: "note" }, tester.hint) : null,
      this.runners(),
      tester.fit ? closed("All health bounds", bounds) : bounds());
  }

  // The runners of a run over several machines.
  runners() {
    const { runners, runners_now } = this.run.tester;
    if (runners_now && runners_now.length) return this.runnersNow(runners_now);
    if (!runners || !runners.length) return null;
    const rows = runners.map((one) => [
      one.name, one.host, one.clients, one.cpu, one.peak, one.late, one.began, one.clock,
      one.faults.length ? `! ${one.faults.join("; ")}` : "✓ fit",
    ]);
    return table("Runners", ["runner", "machine", "clients", "CPU", "peak", "lag p99",
      "began late by", "clock known to", ""], rows);
  }

  // The same in the last second of a run in progress. If there are many, those with a fault come
  // first.
  runnersNow(runners) {
    const state = (one) => one.lost ? "! lost" : !one.healthy ? "! overloaded"
      : one.ended ? "ended" : "✓ fit";
    const faulty = (one) => one.lost || !one.healthy;
    const most = 16;
    const order = runners.length <= most ? runners
      : [...runners.filter(faulty), ...runners.filter((one) => !faulty(one))];
    const rows = order.slice(0, most).map((one) =>
      [one.name, one.playing, one.active, one.cpu, one.late, state(one)]);
    const more = runners.length - rows.length;
    return el("div", {}, table("Runners in the last second",
      ["runner", "playing", "clients", "CPU", "lag, at most", ""], rows),
    more ? el("p", { class: "note" }, `and ${count(more)} more`) : null);
  }

  course() {
    const { course, warm_up, duration } = this.run;
    if (!course.charts.length) return null;
    const groups = [];
    for (const chart of course.charts) {
      let group = groups.find((one) => one.subject === chart.subject);
      if (!group) groups.push(group = { subject: chart.subject, kind: chart.kind, charts: [] });
      group.charts.push(chart);
    }
    const keys = [];
    if (warm_up > 0 || course.end - duration > 0.05) keys.push(["left-out", "warm-up and end: excluded from all figures"]);
    if (course.shades.length) keys.push(["untrusted", "the tester crossed a health bound"]);
    if (course.charts.some((chart) => chart.limits.length)) keys.push(["limit", "threshold or health bound"]);
    if (this.charts.marks.length) keys.push(["event", "event (listed below)"]);
    const legend = el("ul", { class: "keys" }, keys.map(([name, text]) =>
      el("li", {}, el("span", { class: `key ${name}`, "aria-hidden": "true" }), text)));
    const bar = el("div", { class: "toolbar" },
      el("span", { class: "hint" }, "Drag to zoom, double-click for the whole run."),
      el("button", { type: "button", class: "small reset", onclick: () => this.charts.reset() }, "Whole run"),
      this.readout);
    const thinned = course.step > 1 ? el("p", { class: "note" },
      `Lines show the lowest and the highest value of every ${course.step} seconds; heat maps count every value.`) : null;
    const parts = groups.map((group, at) => {
      const charts = () => el("div", { class: "charts" }, group.charts.map((chart) => this.charts.add(chart)));
      if (at >= 6 && group.kind !== "server" && group.kind !== "tester") {
        return closed(`Charts of ${group.subject}`, charts);
      }
      return el("div", { class: "group" }, el("h3", {}, group.subject), charts());
    });
    return this.section("Over time", bar, legend, thinned, ...parts);
  }

  events() {
    const { events, events_left_out, course } = this.run;
    const shaded = course.shades.map(([from, to, bounds]) =>
      ({ at: from, kind: "health bound crossed", subject: "tester", text: `${bounds}, until ${clock(to, true)}` }));
    const all = [...events, ...shaded].sort((a, b) => a.at - b.at);
    if (!all.length) return null;
    const rows = all.map((event) => [clock(event.at, true), event.kind, event.subject || "", event.text]);
    const head = ["time", "event", "subject", "details"];
    const left = events_left_out ? el("p", { class: "note" },
      `${count(events_left_out)} more events are in the JSON report.`) : null;
    const list = () => [table("Events", head, rows), left].filter(Boolean);
    return this.section("Events", ...(rows.length > 12 ? [closed(`${rows.length} events`, list)] : list()));
  }

  about() {
    const { run } = this;
    const rows = run.about.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]);
    const command = run.command ? el("div", { class: "command" }, el("h3", {}, "Repeat this run"),
      el("pre", {}, el("code", {}, run.command)), this.copy(run.command)) : null;
    const media = run.media.length ? el("div", {}, el("h3", {}, "Media, as its server describes it"),
      el("ul", {}, run.media.map((text) => el("li", {}, text)))) : null;
    const scenario = closed("Scenario, with every default filled in", () =>
      el("pre", {}, el("code", {}, JSON.stringify(run.scenario, null, 2))));
    const metrics = closed("Every metric", () => run.metrics.map((one) => {
      const kind = this.kindOf(one.subject);
      return table(one.subject, ["metric", "figures"], one.rows.map(([name, text]) =>
        [term(name, definition(this.definitions, kind, name)), text]));
    }));
    return this.section("This run", el("dl", {}, rows), command, media, scenario, metrics);
  }

  copy(text) {
    if (!navigator.clipboard) return null;
    const button = el("button", { type: "button", class: "small", onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy";
      }
    } }, "Copy");
    return button;
  }
}
