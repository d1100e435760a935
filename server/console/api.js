// The JSON API of the server that the page came from.

const stored = 'weir-admin-token';

// The token is kept by this tab only, and goes with it.
export function token() {
  return sessionStorage.getItem(stored) ?? '';
}

export function setToken(value) {
  if (value) sessionStorage.setItem(stored, value);
  else sessionStorage.removeItem(stored);
}

// APIError is an answer that is no success. Status 0: there was no answer.
export class APIError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  // The server wants to know who calls.
  get needsToken() {
    return this.status === 401;
  }
}

async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (e) {
    if (options.signal?.aborted) throw e;
    throw new APIError(0, 'the server does not answer');
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  let message = text;
  try {
    message = JSON.parse(text).message || text;
  } catch { /* not of the API: as it is */ }
  throw new APIError(response.status, message.trim() || `status ${response.status}`);
}

export async function get(path, signal) {
  return (await request(path, { signal })).json();
}

export async function post(path, body, signal) {
  return (await request(path, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' }, signal })).json();
}

// watch yields the messages of a stream: a JSON object a line. One that is silent
// for as long as silence (milliseconds) is given up: its connection may be dead
// without saying so.
export async function* watch(path, silence) {
  const control = new AbortController();
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => control.abort(), silence);
  };
  alive();
  try {
    const response = await request(path, { signal: control.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const message = JSON.parse(line);
        if (message.error) throw new APIError(message.error.httpCode ?? 500, message.error.message);
        yield message.result;
      }
    }
  } catch (e) {
    if (e instanceof APIError) throw e;
    throw new APIError(0, control.signal.aborted ? 'the server says nothing any more' : 'the connection broke');
  } finally {
    clearTimeout(timer);
    control.abort();
  }
}
