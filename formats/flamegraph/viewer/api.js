// Requests to the page's server.
import { saveFile } from './dom.js';
import { authorization, takeToken } from './login.js';

function queryOf(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null) query.set(name, typeof value === 'number' ? String(Math.round(value)) : value);
  }
  return query.toString();
}

export function addressOf(path, parameters) {
  return `/api/v1/${path}?${queryOf(parameters)}`;
}

// Resolves once no button is pressed: new data replaces elements, and one that is gone between press and release gets no click.
let released = Promise.resolve();

export function holdDataWhilePressed() {
  addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    released = new Promise((resolve) => {
      const listening = new AbortController();
      const release = ({ buttons }) => {
        if (buttons !== 0) return;
        listening.abort();
        // The click comes right after the release.
        setTimeout(resolve);
      };
      // A movement shows a release elsewhere.
      for (const name of ['pointerup', 'pointercancel', 'pointermove']) addEventListener(name, release, { capture: true, signal: listening.signal });
    });
  }, { capture: true });
}

// Asks for a token if the server requires one. For a password the browser asks.
async function authorizedFetch(address, signal) {
  for (;;) {
    const headers = authorization();
    const response = await fetch(address, { signal, credentials: 'same-origin', headers });
    const [scheme] = (response.headers.get('www-authenticate') ?? '').split(' ');
    if (response.status !== 401 || scheme === '' || scheme === 'Basic') return response;
    await takeToken(scheme, headers.authorization);
  }
}

// A successful response, or an error with the server's reason.
async function respond(path, parameters, signal) {
  let response;
  try {
    response = await authorizedFetch(addressOf(path, parameters), signal);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('profcol is not responding. Is it still running?', { cause: error });
  }
  if (response.ok) return response;
  let reason = '';
  try {
    reason = (await response.json()).error;
  } catch {
    // A proxy's error response carries no error text of profcol.
  }
  throw new Error(reason || `${path}: server returned ${response.status}`);
}

// `read` is the form of the response: json or text.
export async function request(path, parameters, signal, read = 'json') {
  const response = await respond(path, parameters, signal);
  const data = await response[read]();
  await released;
  signal?.throwIfAborted();
  return data;
}

// A link to the address would carry no token.
export async function saveResponse(path, parameters) {
  const response = await respond(path, parameters);
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get('content-disposition')) ?? [];
  saveFile(await response.blob(), name ?? path);
}
