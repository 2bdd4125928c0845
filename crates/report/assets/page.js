// Reads the page's data and shows it.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("page");
let shown = null;

function show(run) {
  if (shown) shown.charts.disconnect();
  shown = new RunPage(run, data.definitions);
  empty(root);
  root.append(...shown.make(), el("footer", {}, `Made by streamgauge ${data.streamgauge} from the run file alone.`));
  document.body.append(tip);
}

// Colours are read when a chart is drawn, so each is drawn again when they change.
function redraw(all) {
  if (shown) shown.charts.redraw(all);
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

show(data.runs[0]);
