// Base units as text, written as commsim.units writes them.

const four = (value) => String(Number(value.toPrecision(4)));

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (bytes >= 1024 && k < 4) { bytes /= 1024; k += 1; }
  return `${four(bytes)} ${units[k]}`;
}

export function rate(bytesPerSecond) {
  return bytesPerSecond == null ? "–" : `${four(bytesPerSecond / 1e9)} GB/s`;
}

export function time(seconds) {
  if (seconds == null) return "–";
  const away = Math.abs(seconds);
  if (away < 1e-3) return `${four(seconds / 1e-6)} us`;
  if (away < 1) return `${four(seconds / 1e-3)} ms`;
  return `${four(seconds)} s`;
}

// A size that reads back as the same number of bytes.
export function exactSize(bytes) {
  const units = ["", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (bytes % 1024 === 0 && k < 4) { bytes /= 1024; k += 1; }
  return `${bytes}${units[k]}`;
}

export const percent = (share) => `${(100 * share).toPrecision(3)} %`;
export const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
