// The page: it follows the server's statistics, and hands each message to the
// parts that show it.

import { $, fill, keyed, make, row, set } from './dom.js';
import { APIError, setToken, token, watch } from './api.js';
import { Chart } from './chart.js';
import { Explainer } from './explain.js';
import { Rules } from './rules.js';
import { startTheme } from './theme.js';
import { ago, count, duration, entry, number, rate, visible } from './format.js';

const interval = '1s';
const silence = 6000; // milliseconds without a message after which the server counts as gone
const longest = 8000; // milliseconds between two tries

startTheme($('theme'));
const chart = new Chart();
const rules = new Rules();
const explainer = new Explainer();

// follow never ends: what breaks is tried again, ever more seldom.
async function follow() {
  for (let wait = 250; ; wait = Math.min(wait * 2, longest)) {
    try {
      for await (const message of watch(`v1/stats:watch?top=10&interval=${interval}`, silence)) {
        wait = 250;
        show(message);
      }
      lost(new APIError(0, 'the server ended the connection'));
    } catch (e) {
      if (e.needsToken) {
        await askToken(e.message);
        wait = 250;
        continue;
      }
      if (!(e instanceof APIError)) throw e; // a fault of this page: not to be hidden by trying again
      lost(e);
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
  }
}

// lost says that what is shown is not of now.
function lost(e) {
  if (e.status === 403) {
    link('lost', 'Not allowed');
    showAlerts([{ kind: 'bad', key: 'access', title: 'This server does not show its data to this browser', text: visible(e.message) }]);
    return;
  }
  link('lost', e.status === 503 ? `Not ready: ${visible(e.message)}` : `Disconnected: ${visible(e.message)}; trying again`);
}

function link(state, text) {
  $('link').dataset.state = state;
  document.body.dataset.state = state;
  set($('link'), text);
}

// askToken waits until somebody gives one.
function askToken(why) {
  link('token', 'The admin token is needed');
  set($('token-why'), token() ? visible(why) : '');
  $('token-form').hidden = false;
  $('token').value = '';
  $('token').focus();
  return new Promise((resolve) => {
    $('token-form').addEventListener('submit', (e) => {
      e.preventDefault();
      setToken($('token').value.trim());
      $('token').value = '';
      $('token-form').hidden = true;
      link('connecting', 'Connecting…');
      resolve();
    }, { once: true });
  });
}

function show({ stats, top }) {
  link('live', 'Live');
  const now = Date.parse(stats.at);
  set($('instance'), `${visible(stats.version)}, up ${duration((now - Date.parse(stats.startedAt)) / 1000)}`);
  chart.add(stats);
  tiles(stats);
  alerts(stats, now);
  refused(top ?? [], now);
  queues(stats.queues ?? []);
  rules.add(stats.rules ?? {}, now);
}

function tiles(stats) {
  const n = chart.now();
  set($('tile-rate'), n ? rate(n.all) : '–');
  set($('tile-refused'), n ? rate(n.refused) : '–');
  set($('tile-errors'), n ? rate(n.errors) : '–');
  set($('tile-flight'), number(stats.inFlight ?? 0));
  set($('tile-held'), number(stats.held ?? 0));
  const store = stats.store ?? {};
  set($('tile-store'), store.healthy ? 'up' : 'away');
  $('store').dataset.state = store.healthy ? 'up' : 'away';
  const held = Number(store.maxCounters) > 0 ? `${number(store.counters ?? 0)} of ${number(store.maxCounters)} counters here` : `${count(store.counters ?? 0, 'counter')} here`;
  set($('store-more'), `${visible(store.name ?? '')} · ${held}`);
}

// alerts has one for each thing that is wrong.
function alerts(stats, now) {
  const list = [];
  for (const s of stats.rules?.sources ?? []) {
    if (s.lastError) {
      list.push({ kind: 'bad', key: `rules ${s.name}`, title: `The rules of ${visible(s.name)} are refused; those before stay in force`, at: s.failedAt, text: s.lastError.split('\n').map(visible).join('\n') });
    } else if (s.cached) {
      list.push({ kind: 'warn', key: `cache ${s.name}`, title: `${visible(s.name)} does not answer; the rules are those of the cache on disk`, at: s.asOf, text: '' });
    }
  }
  if (stats.store && !stats.store.healthy) {
    list.push({ kind: 'bad', key: 'store', title: `The store ${visible(stats.store.name)} is away; the failure policies decide`, text: '' });
  }
  if (stats.shadow) list.push({ kind: 'warn', key: 'shadow', title: 'The whole server is in shadow: nothing is refused', text: '' });
  showAlerts(list, now);
}

// showAlerts announces each when it comes, and not again while it stays.
function showAlerts(list, now) {
  keyed($('alerts'), list, (a) => a.key, (a) => {
    const since = make('span', 'quiet');
    since.setAttribute('aria-live', 'off'); // it changes each second
    return make('div', `alert ${a.kind}`, make('p', '', make('strong'), ' ', since), make('pre'));
  }, (div, a) => {
    set(div.querySelector('strong'), a.title);
    set(div.querySelector('span'), a.at ? `(${ago(a.at, now)})` : '');
    const pre = div.querySelector('pre');
    set(pre, a.text);
    pre.hidden = a.text === '';
  });
}

function refused(top, now) {
  $('top-none').hidden = top.length > 0;
  $('top').hidden = top.length === 0;
  keyed($('top').tBodies[0], top, (c) => JSON.stringify([c.domain, c.rule, c.entries]), (c) => {
    const tr = row(6, [3, 4]);
    const descriptor = (c.entries ?? []).map(entry).join(' ');
    fill(tr, [visible(c.domain), visible(c.rule || '(of the request)'), descriptor]);
    tr.cells[2].className = 'code';
    if (!(c.entries ?? []).some((e) => e.rawValue)) { // such a value cannot be written in the form
      const button = make('button', 'small', 'Explain');
      button.type = 'button';
      button.setAttribute('aria-label', `Explain ${visible(c.domain)} ${descriptor}`);
      button.addEventListener('click', () => explainer.fill(c.domain, c.entries ?? []));
      tr.cells[5].append(button);
    }
    return tr;
  }, (tr, c) => {
    set(tr.cells[3], Number(c.error) > 0 ? `${number(c.refused)} to ${number(Number(c.refused) + Number(c.error))}` : number(c.refused));
    set(tr.cells[4], ago(c.lastRefusedAt, now));
  });
}

function queues(list) {
  $('queues-section').hidden = list.length === 0;
  keyed($('queues').tBodies[0], list, (q) => JSON.stringify([q.domain, q.rule]), () => row(5, [2, 3, 4]), (tr, q) => {
    fill(tr, [visible(q.domain), visible(q.rule), number(q.waiting ?? 0), number(q.capacity ?? 0), number(q.failed ?? 0)]);
    tr.className = Number(q.failed) > 0 ? 'failing' : '';
  });
}

follow();
