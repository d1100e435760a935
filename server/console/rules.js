// The rules in force, filtered and in pages, and the sources that they come from.

import { $, fill, keyed, make, row, set } from './dom.js';
import { get } from './api.js';
import { ago, count, limit, number, visible } from './format.js';

const pageSize = 15; // rows
const most = 10000; // rules that the page loads: more than anybody looks through

export class Rules {
  all = [];
  total = 0;
  version = null; // of what is shown
  loading = null; // the version that is being fetched
  page = 0;

  constructor() {
    $('rules-filter').addEventListener('input', () => this.turn(0));
    $('rules-before').addEventListener('click', () => this.turn(this.page - 1));
    $('rules-next').addEventListener('click', () => this.turn(this.page + 1));
  }

  turn(page) {
    this.page = page;
    this.draw();
  }

  // add takes what a message says of the rules, and fetches them where they are
  // others than those shown.
  add(stats, now) {
    this.sources(stats.sources ?? [], now);
    if (stats.version === this.version || stats.version === this.loading) return;
    this.loading = stats.version;
    this.load().catch((e) => set($('rules-shown'), `The rules cannot be listed: ${e.message}`)).finally(() => { this.loading = null; });
  }

  async load() {
    const all = [];
    let answer;
    let token = '';
    do {
      answer = await get(`v1/rules?pageSize=1000${token && `&pageToken=${encodeURIComponent(token)}`}`);
      all.push(...(answer.rules ?? []));
      token = answer.nextPageToken;
    } while (token && all.length < most);
    this.all = all.map((r) => ({ ...r, text: `${r.domain}\n${r.name}\n${r.path}\n${r.place}`.toLowerCase() }));
    this.total = Number(answer.total ?? all.length);
    this.version = answer.version;
    this.page = 0;
    set($('rules-version'), `${count(this.total, 'rule')}, version ${answer.version}`);
    $('domains').replaceChildren(...Array.from(new Set(all.map((r) => r.domain)), (name) => {
      const option = make('option');
      option.value = name;
      return option;
    }));
    this.draw();
  }

  draw() {
    const words = $('rules-filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length === 0 ? this.all : this.all.filter((r) => words.every((w) => r.text.includes(w)));
    const last = Math.max(0, Math.ceil(found.length / pageSize) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const from = this.page * pageSize;
    const shown = found.slice(from, from + pageSize);
    $('rules').tBodies[0].replaceChildren(...shown.map(ruleRow));
    $('rules-before').disabled = this.page === 0;
    $('rules-next').disabled = this.page >= last;
    let text = found.length === 0 ? 'No rules' : `${number(from + 1)} to ${number(from + shown.length)} of ${number(found.length)}`;
    if (words.length > 0) text += ` that match`;
    if (this.total > this.all.length) text += ` (of the first ${number(this.all.length)})`;
    set($('rules-shown'), text);
  }

  sources(list, now) {
    keyed($('sources').tBodies[0], list, (s) => s.name, () => {
      const tr = row(6, [2, 3, 4, 5]);
      tr.cells[0].className = tr.cells[1].className = 'code';
      return tr;
    }, (tr, s) => {
      fill(tr, [
        visible(s.name), visible(s.version || '–'), number(s.documents ?? 0), ago(s.loadedAt, now),
        s.cached ? `from the cache, as of ${ago(s.asOf, now)}` : ago(s.asOf, now), number(s.failures ?? 0),
      ]);
      tr.className = s.lastError ? 'failing' : '';
    });
  }
}

function ruleRow(r) {
  const tr = row(4);
  const what = r.exempt ? 'exempt' : r.unlimited ? 'unlimited' : (r.limits ?? []).map(limit).join('; ');
  const algorithms = Array.from(new Set((r.limits ?? []).map((l) => l.algorithm.replaceAll('_', ' ')))).join(', ');
  const more = [algorithms, r.shadow && 'shadow', r.quota && 'quota', r.queues && 'queues', r.onStoreFailure && `store away: ${r.onStoreFailure}`].filter(Boolean);
  set(tr.cells[0], visible(r.domain));
  tr.cells[1].append(make('span', 'code', visible(r.path)));
  if (r.name) tr.cells[1].prepend(make('strong', '', visible(r.name)), make('br'));
  tr.cells[2].append(what, ...(more.length ? [make('span', 'quiet', ` ${more.join(', ')}`)] : []));
  set(tr.cells[3], visible(r.place));
  tr.cells[3].className = 'code quiet';
  return tr;
}
