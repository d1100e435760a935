// Decisions a second by outcome, over the last two minutes: a bar a second, drawn
// by hand, and a table that says the same.

import { $, keyed, make, row, set } from './dom.js';
import { number, rate } from './format.js';

// outcomes in the order in which they are stacked, the quiet ones at the bottom.
const known = ['ok', 'near_limit', 'shadow_over_limit', 'failed_open', 'failed_local', 'failed_closed', 'deny_cache', 'over_limit'];
const refusals = ['over_limit', 'deny_cache', 'failed_closed'];
const span = 120; // seconds
const svgNS = 'http://www.w3.org/2000/svg';

export class Chart {
  samples = []; // {at: seconds, rates: Map of domain to Map of outcome to decisions a second}
  last = null; // {at, startedAt, counts}
  errors = null;

  constructor() {
    this.svg = $('chart');
    $('chart-domain').addEventListener('change', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // add takes what one message says. Counts are since the server's start: those of
  // another start are no difference to what was before.
  add(stats) {
    const at = Date.parse(stats.at) / 1000;
    const counts = new Map();
    for (const o of stats.outcomes ?? []) {
      if (!counts.has(o.domain)) counts.set(o.domain, new Map());
      counts.get(o.domain).set(o.outcome, Number(o.count));
    }
    const before = this.last;
    this.last = { at, startedAt: stats.startedAt, counts, errors: Number(stats.errors ?? 0) };
    this.errors = null;
    if (before && before.startedAt === stats.startedAt && at > before.at) {
      const time = at - before.at;
      const rates = new Map();
      for (const [domain, of] of counts) {
        rates.set(domain, new Map(Array.from(of, ([outcome, n]) => [outcome, Math.max(0, n - (before.counts.get(domain)?.get(outcome) ?? 0)) / time])));
      }
      this.samples.push({ at, time, rates });
      this.errors = Math.max(0, this.last.errors - before.errors) / time;
    }
    this.samples = this.samples.filter((s) => s.at > at - span && s.at <= at);
    this.domains();
    this.draw();
  }

  domains() {
    const select = $('chart-domain');
    const names = Array.from(this.last.counts.keys()).sort();
    keyed(select, ['', ...names], (name) => name, (name) => {
      const option = make('option', '', name === '' ? 'All' : name);
      option.value = name;
      return option;
    }, () => {});
  }

  // of sums one kind of a sample over the domains shown.
  of(perDomain, outcome) {
    const domain = $('chart-domain').value;
    let sum = 0;
    for (const [name, m] of perDomain) {
      if (domain === '' || name === domain) sum += m.get(outcome) ?? 0;
    }
    return sum;
  }

  outcomes() {
    const names = new Set();
    for (const m of this.last.counts.values()) {
      for (const name of m.keys()) names.add(name);
    }
    return [...known.filter((name) => names.has(name)), ...Array.from(names).filter((name) => !known.includes(name)).sort()];
  }

  // now is what the newest sample says, over all domains.
  now() {
    const sample = this.samples.at(-1);
    if (!sample || sample.at !== this.last.at) return null;
    let all = 0;
    let refused = 0;
    for (const m of sample.rates.values()) {
      for (const [outcome, r] of m) {
        all += r;
        if (refusals.includes(outcome)) refused += r;
      }
    }
    return { all, refused, errors: this.errors };
  }

  draw() {
    if (!this.last) return;
    const names = this.outcomes();
    this.table(names);
    const width = this.svg.clientWidth;
    const height = this.svg.clientHeight;
    if (width === 0) return;
    const left = 44;
    const bottom = height - 20;
    const top = 8;
    const stacks = this.samples.map((s) => ({ s, values: names.map((name) => this.of(s.rates, name)) }));
    const highest = nice(Math.max(...stacks.map(({ values }) => values.reduce((a, b) => a + b, 0)), 1));
    const x = (at) => left + ((at - this.last.at + span) / span) * (width - left - 4);
    const y = (v) => bottom - (v / highest) * (bottom - top);
    const paths = names.map(() => '');
    for (const { s, values } of stacks) {
      const to = x(s.at);
      const from = Math.max(left, x(s.at - Math.min(s.time, 2)) + 1);
      let sum = 0;
      values.forEach((v, i) => {
        if (v > 0) paths[i] += `M${r1(from)} ${r1(y(sum))}H${r1(to)}V${r1(y(sum + v))}H${r1(from)}Z`;
        sum += v;
      });
    }
    const shapes = [];
    for (const share of [0, 0.5, 1]) {
      const at = Math.round(y(highest * share)) + 0.5;
      shapes.push(shape('path', 'grid', { d: `M${left} ${at}H${width - 4}` }), label(rate(highest * share), left - 8, at + 4, 'end'));
    }
    for (const ago of [120, 90, 60, 30]) shapes.push(label(`−${ago} s`, x(this.last.at - ago), height - 4, ago === 120 ? 'start' : 'middle'));
    shapes.push(label('now', width - 4, height - 4, 'end'));
    names.forEach((name, i) => shapes.push(shape('path', `bar o-${known.includes(name) ? name : 'other'}`, { d: paths[i] })));
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...shapes);
  }

  table(names) {
    const newest = this.samples.at(-1);
    keyed($('outcomes').tBodies[0], [...names].reverse(), (name) => name, (name) => {
      const tr = row(3, [0, 1, 2]);
      const th = make('th', '', make('span', `swatch o-${known.includes(name) ? name : 'other'}`), name.replaceAll('_', ' '));
      th.scope = 'row';
      tr.prepend(th);
      return tr;
    }, (tr, name) => {
      const recent = this.samples.reduce((sum, s) => sum + this.of(s.rates, name) * s.time, 0);
      const texts = [newest ? rate(this.of(newest.rates, name)) : '–', number(Math.round(recent)), number(this.of(this.last.counts, name))];
      texts.forEach((text, i) => set(tr.cells[i + 1], text));
    });
  }
}

// nice is the next number that is good to read on an axis.
function nice(n) {
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 5, 10].find((k) => k * size >= n) * size;
}

const r1 = (n) => Math.round(n * 10) / 10;

function shape(tag, className, attributes) {
  const element = document.createElementNS(svgNS, tag);
  element.setAttribute('class', className);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function label(text, x, y, anchor) {
  const element = shape('text', 'axis', { x, y, 'text-anchor': anchor });
  element.textContent = text;
  return element;
}
