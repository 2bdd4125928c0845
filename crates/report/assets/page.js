// Reads the page's data and shows it: a run, or a series and whichever of its runs the address names.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("page");
const TITLE = document.title;
let shown = null;

// The run of a series that the address names; null where it names none that is here.
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
  root.append(...parts, el("footer", {}, `Made by streamgauge ${data.streamgauge} from ${data.series ? "run files" : "the run file"} alone.`));
  document.body.append(tip);
}

// Colours are read when a chart is drawn, so each is drawn again when they change.
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

show();
