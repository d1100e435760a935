// The form that explains a descriptor: the rule that takes it, what nearly did,
// and what is left of each limit, which is looked up again while it is shown.

import { $, fill, keyed, make, row, set } from './dom.js';
import { post } from './api.js';
import { algorithm, duration, entry, limit, number, seconds, visible } from './format.js';

const again = 2000; // milliseconds

export class Explainer {
  asked = null; // what the answer that is shown is of
  timer = 0;

  constructor() {
    $('ask').addEventListener('submit', (e) => {
      e.preventDefault();
      this.ask({ domain: $('ask-domain').value.trim(), entries: parse($('ask-entries').value) });
    });
    $('ask-entries').addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) $('ask').requestSubmit();
    });
  }

  // fill puts a descriptor into the form, and asks.
  fill(domain, entries) {
    $('ask-domain').value = domain;
    $('ask-entries').value = entries.map((e) => (e.value ? `${e.key}=${e.value}` : e.key)).join('\n');
    $('ask').scrollIntoView({ block: 'center' });
    $('ask-entries').focus({ preventScroll: true });
    this.ask({ domain, entries });
  }

  async ask(question) {
    this.asked = question;
    clearTimeout(this.timer);
    try {
      const answer = await post('v1/explain', question);
      if (this.asked !== question) return;
      this.show(question, answer);
      await this.look(question, answer);
    } catch (e) {
      if (this.asked === question) this.fail(e);
    }
  }

  // look asks what is left, and again as long as the answer is shown.
  async look(question, answer) {
    let decisions = [];
    let left;
    if (answer.limits?.length && !answer.exempt) {
      try {
        const peek = await post('v1/peek', { domain: question.domain, descriptors: [{ entries: question.entries }] });
        decisions = peek.decisions ?? [];
        left = peek.allowed ? ' A request would pass now.' : ' A request would be refused now.';
      } catch (e) {
        left = ` What is left is not known: ${e.message}.`;
      }
    }
    if (this.asked !== question) return;
    set($('answer-text'), sentence(answer) + (left ?? ''));
    this.limits(answer.limits ?? [], decisions);
    if (left) this.timer = setTimeout(() => this.next(question, answer), again);
  }

  next(question, answer) {
    if (document.hidden) this.timer = setTimeout(() => this.next(question, answer), again);
    else this.look(question, answer);
  }

  fail(e) {
    $('answer').hidden = false;
    $('answer').dataset.failed = 'yes';
    for (const id of ['answer-limits', 'answer-steps', 'answer-near']) $(id).hidden = true;
    set($('answer-text'), `That did not work: ${e.message}`);
  }

  show(question, answer) {
    $('answer').hidden = false;
    delete $('answer').dataset.failed;
    set($('answer-text'), sentence(answer));
    this.limits(answer.limits ?? [], []);
    const steps = answer.steps ?? [];
    $('answer-steps').hidden = steps.length === 0;
    $('answer-steps').querySelector('tbody').replaceChildren(...steps.map((s) => {
      const tr = row(3);
      fill(tr, [s.entry ? entry(s.entry) : '', visible(s.how ?? ''), visible(s.place ?? '')]);
      tr.cells[0].className = tr.cells[2].className = 'code';
      return tr;
    }));
    const near = answer.nearMisses ?? [];
    $('answer-near').hidden = near.length === 0;
    $('answer-near').querySelector('ul').replaceChildren(...near.map((text) => make('li', '', visible(text))));
  }

  limits(limits, decisions) {
    $('answer-limits').hidden = limits.length === 0;
    keyed($('answer-limits').querySelector('tbody'), limits.map((l, i) => ({ l, d: decisions[i], i })), ({ i }) => i, () => {
      const tr = row(6, [3, 4]);
      tr.cells[2].append(make('meter'), make('span'));
      tr.cells[2].className = 'left';
      tr.cells[5].className = 'code';
      return tr;
    }, (tr, { l, d }) => {
      set(tr.cells[0], limit(l));
      set(tr.cells[1], algorithm(l));
      this.left(tr.cells[2], l, d);
      set(tr.cells[3], d ? duration(seconds(d.resetAfter)) : '–');
      set(tr.cells[4], passes(d));
      set(tr.cells[5], visible(l.counter ?? ''));
    });
  }

  left(cell, l, d) {
    const [meter, text] = cell.children;
    const most = Math.max(Number(l.requests), Number(l.burst ?? 0), l.algorithm === 'leaky_bucket' ? Number(l.queue ?? 0) + 1 : 0);
    meter.hidden = !d || most === 0;
    if (d) {
      meter.max = Math.max(most, 1);
      meter.value = Number(d.remaining);
      meter.setAttribute('aria-label', `${number(d.remaining)} of ${number(most)} left`);
    }
    set(text, d ? number(d.remaining) : '–');
  }
}

function passes(d) {
  if (!d || d.allowed) return '–';
  if (d.retryAfter) return duration(seconds(d.retryAfter));
  return d.decidedBy === 'deny' ? 'when the store is back' : 'never';
}

function sentence(a) {
  if (!a.rule) return 'No rule takes it: a request with this descriptor passes, without a limit.';
  const where = a.place ? ` (${visible(a.place)})` : '';
  const which = `The rule ${visible(a.rule)}${where} takes it`;
  if (a.exempt) return `${which}: requests with it are exempt from all limits.`;
  if (a.unlimited) return `${which}: it is unlimited.`;
  return `${which}.`;
}

// parse reads key=value lines, as `weir decide` has its arguments.
function parse(text) {
  return text.split('\n').map((line) => line.replace(/\r$/, '')).filter((line) => line.trim() !== '').map((line) => {
    const at = line.indexOf('=');
    return at < 0 ? { key: line, value: '' } : { key: line.slice(0, at), value: line.slice(at + 1) };
  });
}
