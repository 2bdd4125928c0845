// Page of a series, beginning with its conclusions.

class SeriesPage {
  constructor(series, definitions) {
    this.series = series;
    series.definitions = definitions;
  }

  make() {
    return [this.header(), this.comparisons(), this.findings(), this.searches(), this.charts(), this.table()].flat().filter(Boolean);
  }

  header() {
    const { series } = this;
    const chips = series.outcomes.map(([outcome, text]) => {
      const [sign] = VERDICTS[outcome] || VERDICTS.stopped;
      return el("li", { class: `chip ${outcome}` }, el("span", { "aria-hidden": "true" }, `${sign} `), text);
    });
    return el("header", { class: "verdict series" },
      el("p", { class: "badge" }, series.badge),
      el("div", { class: "said" },
        el("h1", {}, series.name || "series"),
        el("p", { class: "facts" }, series.facts.map((text) => el("span", {}, text))),
        el("p", { class: "sentence" }, unbroken(series.sentence)),
        el("ul", { class: "chips" }, chips),
        series.reasons.length ? el("ul", {}, series.reasons.map((text) => el("li", {}, text))) : null,
        series.notes.map((text) => el("p", { class: "meaning" }, text))));
  }

  findings() {
    const { findings } = this.series;
    if (!findings.length) return null;
    const pair = (what, ...figures) => [el("dt", {}, what), el("dd", {}, ...figures)];
    const inner = (lines) => el("dl", { class: "inner" }, lines.flatMap(([what, figures]) => pair(what, figures)));
    // Several models would push the charts off the screen.
    const isAlone = findings.filter(([, , lines]) => lines.length).length === 1;
    const details = (name, lines) => (
      isAlone || name === "capacity" ? inner(lines) : closed("parameters", () => inner(lines)));
    const parts = findings.flatMap(([name, text, lines]) => pair(name, text, lines.length ? details(name, lines) : null));
    return el("section", {}, el("h2", {}, "Conclusions"), el("dl", { class: "findings" }, parts));
  }

  comparisons() {
    const { comparisons } = this.series;
    return comparisons.map((comparison) => new ComparisonPicture(comparison, comparisons.length === 1).make());
  }

  searches() {
    const { searches } = this.series;
    if (!searches.length) return null;
    return el("section", {}, el("h2", {}, searches.length > 1 ? "Searches" : "Search"), capacityBars(searches),
      searches.map((search) => new SearchPicture(search).make()));
  }

  charts() {
    const { series } = this;
    if (!series.axis || !series.charts.length) return null;
    const all = series.charts.map((chart) => new Multiple(series, chart).make());
    const by = series.axis.title;
    const across = Math.min(series.axis.panels.length, 3);
    return el("section", {}, el("h2", {}, `Figures by ${by}`), markKeys(series),
      el("div", { class: `multiples across-${across}` }, all));
  }

  table() {
    const { series } = this;
    const head = [...series.names.map((name, at) => term(name, [{ text: series.keys[at], class: "name" }])), "verdict",
      ...series.columns.map((column) => term(column.heading, definition(series.definitions, "series", column.name)))];
    const rows = series.rows.map((row, at) => {
      const link = (text) => (row.page ? el("a", { href: `#run-${at + 1}` }, text) : text);
      const values = row.values.map((value, key) => (
        key === 0 ? el("th", { scope: "row" }, link(value)) : el("td", {}, value)));
      const cells = series.columns.map((column) => {
        const [text, best] = column.cells[at];
        const star = best ? el("span", { class: "star", title: "the best of its column" }, "*") : null;
        return el("td", { class: best ? "number best" : "number" }, text, star);
      });
      const [sign] = VERDICTS[row.outcome] || VERDICTS.stopped;
      const verdict = el("td", { class: "verdict-cell" },
        el("span", { class: `chip ${row.outcome}` },
          el("span", { "aria-hidden": "true" }, `${sign} `), link(row.verdict)),
        row.reason ? el("span", { class: "why", title: row.reason }, row.reason) : null);
      return el("tr", {}, values, verdict, cells);
    });
    const any = series.columns.some((column) => column.cells.some(([, best]) => best));
    return el("section", {}, el("h2", {}, "Runs"),
      el("div", { class: "scroll runs", tabindex: "0", role: "region", "aria-label": "Runs" },
        el("table", {}, el("caption", {}, "Each run links to its own page."),
          el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
          el("tbody", {}, rows))),
      any ? el("p", { class: "note" },
        "* the best of its column among the ranked runs, which passed and served every client correctly.") : null);
  }
}

// Navigation from the page of a run to the series and to the neighbouring runs.
function runNavigation(series, at) {
  const row = series.rows[at];
  const settings = series.names.map((name, key) => `${name} ${row.values[key]}`).join(", ");
  const beside = (from, step) => {
    for (let other = from + step; other >= 0 && other < series.rows.length; other += step) {
      if (series.rows[other].page) return other;
    }
    return null;
  };
  const [before, after] = [beside(at, -1), beside(at, 1)];
  return el("nav", { class: "runs-nav", "aria-label": "Runs of the series" },
    el("a", { href: "#series" }, `← ${series.name || "series"}`),
    el("span", { class: "where" }, `run ${at + 1} of ${series.rows.length}: ${settings}`),
    before === null ? null : el("a", { href: `#run-${before + 1}` }, "previous run"),
    after === null ? null : el("a", { href: `#run-${after + 1}` }, "next run"));
}
