// Figures in readable form, as in the terminal: three significant digits, and a figure other than
// zero is never shown as zero.

function digits(value) {
  const size = Math.abs(value);
  if (size === 0 || !Number.isFinite(size)) return String(value);
  const places = Math.min(Math.max(2 - Math.floor(Math.log10(size)), 0), 12);
  const text = value.toFixed(places);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value, step, units) {
  let shown = value;
  let at = 0;
  while (at < units.length - 1 && Math.abs(shown) >= step - 0.5) {
    shown /= step;
    at += 1;
  }
  return `${digits(shown)} ${units[at]}`;
}

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 999.5e-9) return `${digits(value * 1e9)} ns`;
  if (size < 999.5e-6) return `${digits(value * 1e6)} µs`;
  if (size < 0.9995) return `${digits(value * 1e3)} ms`;
  if (size < 120) return `${digits(value)} s`;
  return clock(value);
}

function count(value) {
  if (!Number.isInteger(value) && Math.abs(value) < 1000) return digits(value);
  return Math.round(value).toLocaleString("en-US");
}

function cores(value) {
  const percent = value * 100;
  if (percent === 0) return "0 %";
  return Math.abs(percent) < 1 ? "<1 %" : `${Math.round(percent)} %`;
}

function ratio(value) {
  const percent = value * 100;
  if (percent === 0) return "0 %";
  if (Math.abs(percent) < 0.01) return `${digits(percent)} %`;
  return `${Number(percent.toFixed(2))} %`;
}

const BITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

// A figure with its unit; a dash if it is missing.
function figure(unit, value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  switch (unit) {
    case "seconds": return seconds(value);
    case "bits_per_second": return scaled(value, 1000, BITS);
    case "bytes": return scaled(value, 1024, BYTES);
    case "ratio": return ratio(value);
    case "cores": return cores(value);
    default: return count(value);
  }
}

// A time in the run, such as 0:07 or 1:02:03, optionally with tenths.
function clock(value, tenths = false) {
  if (value === null || value === undefined) return "–";
  const sign = value < 0 ? "-" : "";
  const all = tenths ? Math.round(Math.abs(value) * 10) / 10 : Math.floor(Math.abs(value) + 1e-9);
  const hours = Math.floor(all / 3600);
  const minutes = Math.floor(all / 60) % 60;
  const rest = all % 60;
  const two = (number) => String(number).padStart(2, "0");
  const last = tenths ? rest.toFixed(1).padStart(4, "0") : two(rest);
  return sign + (hours > 0 ? `${hours}:${two(minutes)}:${last}` : `${minutes}:${last}`);
}
