// How values are written, for people.

// visible shows what a text has in it that is not seen: control characters, and
// those that turn the direction of what follows. What clients send is in it.
export function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// entry is key=value. A value that is not UTF-8 comes as base64, and is shown as
// its bytes.
export function entry(e) {
  const value = e.rawValue ? bytes(e.rawValue) : visible(e.value ?? '');
  return value === '' ? visible(e.key) : `${visible(e.key)}=${value}`;
}

function bytes(base64) {
  return Array.from(atob(base64), (c) => (c >= ' ' && c <= '~' ? c : `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`)).join('');
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export function number(n) {
  return whole.format(n);
}

// rate has a digit after the point where that says something.
export function rate(n) {
  return n < 10 ? tenths.format(n) : whole.format(n);
}

export function count(n, one, many = `${one}s`) {
  return `${number(n)} ${Number(n) === 1 ? one : many}`;
}

// seconds of a duration as JSON has it: "1.5s".
export function seconds(text) {
  return text ? parseFloat(text) : 0;
}

// duration is coarse: two units at most.
export function duration(s) {
  if (s < 0.0005) return 'now';
  if (s < 1) return `${Math.ceil(s * 1000)} ms`;
  if (s < 10 && s % 1 > 0.05) return `${tenths.format(s)} s`;
  let left = Math.ceil(s);
  const parts = [];
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n > 0) parts.push(`${n} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

export function ago(at, now) {
  if (!at) return '–';
  const s = Math.max(0, (now - Date.parse(at)) / 1000);
  return s < 1.5 ? 'now' : `${duration(Math.floor(s))} ago`;
}

const windows = new Map([[1, 'a second'], [60, 'a minute'], [3600, 'an hour'], [86400, 'a day']]);

// limit is such as "5 a minute"; of a rule or of a decision.
export function limit(l) {
  const s = seconds(l.window);
  let text = `${number(l.requests ?? l.limit ?? 0)} ${windows.get(s) ?? `in ${duration(s)}`}`;
  if (l.calendar) text = `${number(l.requests)} a ${l.calendar}` + (l.timezone && l.timezone !== 'UTC' ? ` (${l.timezone})` : '');
  if (l.algorithm === 'token_bucket' && l.burst) text += `, burst ${number(l.burst)}`;
  if (l.algorithm === 'leaky_bucket' && l.queue) text += `, ${number(l.queue)} may wait`;
  return text;
}

// algorithm, and what is out of the ordinary about the limit.
export function algorithm(l) {
  return [l.algorithm.replaceAll('_', ' '), l.shadow && 'shadow', l.quota && 'quota', l.countDenied && 'counts refusals'].filter(Boolean).join(', ');
}
