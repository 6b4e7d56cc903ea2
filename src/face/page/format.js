// Figures as text. A unit stays beside its number.

const kSpace = "\u00a0";

const kUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

// "1.5 GiB"
export function bytes(count) {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < kUnits.length - 1) {
    value /= 1024;
    ++unit;
  }
  const digits = value >= 100 || unit === 0 || Number.isInteger(value) ? 0 : 1;
  return value.toFixed(digits) + kSpace + kUnits[unit];
}

// As the API takes it back without a loss: "20G", "1536M", "12345".
export function exactBytes(count) {
  for (const [letter, size] of [["G", 2 ** 30], ["M", 2 ** 20], ["K", 2 ** 10]])
    if (count > 0 && count % size === 0) return `${count / size}${letter}`;
  return String(count);
}

export function percent(value) {
  return (value >= 10 || value < 0.05 ? Math.round(value) : Number(value.toFixed(1))) + kSpace + "%";
}

// Microseconds: "850 µs", "18.3 ms", "2.1 s".
export function duration(us) {
  if (us < 1000) return Math.round(us) + kSpace + "µs";
  if (us < 1e6) return (us / 1000).toFixed(us < 1e5 ? 1 : 0) + kSpace + "ms";
  return (us / 1e6).toFixed(1) + kSpace + "s";
}

const two = (number) => String(number).padStart(2, "0");

// Of this computer's time zone: "12:03:05".
export function clock(us) {
  const time = new Date(us / 1000);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

export const day = (us) => {
  const time = new Date(us / 1000);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
};

// "1 process", "2 processes"
export const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;
