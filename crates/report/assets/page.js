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
  document.body.append(tip);
}

// Line about a run in progress: it cannot be reached, or has ended. It is not part of the page that
// is drawn again.
const notice = el("p", { class: "notice", role: "status", hidden: true });

function say(text) {
  notice.hidden = !text;
  notice.textContent = text || "";
}

// Says that the run has ended, and when this page goes away.
function ending(end) {
  const report = end.kept ? ` Its report remains: streamgauge report ${end.kept} --html FILE` : "";
  if (!end.stays) return `The run has ended. This page cannot be loaded again.${report}`;
  const times = [
    end.until ? `until ${new Date(1000 * end.until).toLocaleTimeString()}` : null,
    end.until_key ? "until a key is pressed in the terminal of streamgauge" : null,
  ].filter(Boolean);
  const when = times.length ? times.join(", or ") : "until streamgauge is stopped";
  return `The run has ended. This page stays ${when}.${report}`;
}

// Run in progress: the server of this page sends new data once a second.
function listen() {
  const note = (text) => el("p", { class: "note" }, text);
  let last = null;
  let end = null;
  root.append(note("Waiting for the first second of the run."));
  document.body.append(notice);
  const connect = () => {
    const source = new EventSource(`events${location.search}`);
    source.addEventListener("definitions", (event) => {
      data.definitions = JSON.parse(event.data);
      last = null;
    });
    source.addEventListener("run", (event) => {
      const run = JSON.parse(event.data);
      say(null);
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
    source.addEventListener("end", (event) => {
      end = JSON.parse(event.data);
      if (!shown) empty(root).append(note("Nothing was measured."));
      say(ending(end));
      if (!end.stays) source.close();
    });
    source.addEventListener("error", () => {
      if (end) {
        source.close();
        say(ending({ ...end, stays: false }));
      } else {
        say("No data for a while: streamgauge cannot be reached.");
        // A browser does not try again by itself after an answer such as 503.
        if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
      }
    });
  };
  connect();
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
