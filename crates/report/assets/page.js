// Reads the page's data and shows a run, a series, or the run of the series that the address names.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("page");
const TITLE = document.title;
let shown = null;

// Run of the series that the address names; null if it names none of this page.
function named() {
  const found = data.series ? /^#run-([0-9]{1,6})$/.exec(location.hash) : null;
  const at = found ? Number(found[1]) - 1 : -1;
  const block = found ? document.getElementById(`data-${at}`) : null;
  return block ? { at, run: JSON.parse(block.textContent) } : null;
}

function show() {
  if (shown && shown.charts.disconnect) shown.charts.disconnect();
  hideTip();
  document.body.classList.remove("zoomed");
  const of = data.series ? named() : { at: 0, run: data.runs[0] };
  shown = of ? new RunPage(of.run, data.definitions) : new SeriesPage(data.series, data.definitions);
  const parts = shown.make();
  if (of && data.series) parts.unshift(runNavigation(data.series, of.at));
  const word = of && data.series ? (VERDICTS[of.run.verdict.result] || VERDICTS.stopped)[1] : null;
  document.title = word ? `${word}: ${data.series.rows[of.at].values.join(", ")}, ${data.series.name}` : TITLE;
  empty(root);
  const source = data.series ? "run files" : "the run file";
  root.append(...parts, el("footer", {}, `Made by streamgauge ${data.streamgauge} from ${source} alone.`));
  if (data.live) {
    root.append(el("p", { class: "stale-note", role: "status" },
      "No data for a while: the run has ended or cannot be reached."));
  }
  document.body.append(tip);
}

// Run in progress: the server of this page sends new data once a second.
function listen() {
  const note = (text) => el("p", { class: "note" }, text);
  let last = null;
  root.append(note("Waiting for the run to begin."));
  const source = new EventSource(`events${location.search}`);
  source.addEventListener("definitions", (event) => {
    data.definitions = JSON.parse(event.data);
    last = null;
  });
  source.addEventListener("run", (event) => {
    const run = JSON.parse(event.data);
    document.body.classList.remove("stale");
    data.runs = [run];
    if (last === null || !shown.refresh(run)) {
      const range = last === null || shown.charts.isWhole() ? null : shown.charts.range;
      const { scrollX, scrollY } = window;
      const open = openParts(root);
      show();
      openAgain(root, open);
      window.scrollTo(scrollX, scrollY);
      if (range) shown.charts.zoom(...range);
    }
    last = run;
    document.title = `${(VERDICTS[run.verdict.result] || VERDICTS.stopped)[1]}: ${run.name}`;
  });
  source.addEventListener("error", () => {
    // The server stops when the run has ended.
    if (last && last.verdict.result !== "running") source.close();
    else document.body.classList.add("stale");
  });
}

// Colours are read when a chart is drawn, so charts are redrawn when colours change.
function redraw(all) {
  if (shown && shown.charts.redraw) shown.charts.redraw(all);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(false));

window.addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printed");
  redraw(true);
});
window.addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printed");
  redraw(false);
});
window.addEventListener("hashchange", () => {
  if (!data.series) return;
  show();
  window.scrollTo(0, 0);
  root.focus({ preventScroll: true });
});

if (data.live) listen();
else show();
