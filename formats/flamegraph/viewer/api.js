// Requests to the page's server.

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

// `read` is the form of the response: json or text.
export async function request(path, parameters, signal, read = 'json') {
  let response;
  try {
    response = await fetch(addressOf(path, parameters), { signal, credentials: 'same-origin' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('profcol is not responding. Is it still running?', { cause: error });
  }
  if (response.ok) {
    const data = await response[read]();
    await released;
    signal?.throwIfAborted();
    return data;
  }
  let reason = '';
  try {
    reason = (await response.json()).error;
  } catch {
    // A proxy's error response carries no error text of profcol.
  }
  throw new Error(reason || `${path}: server returned ${response.status}`);
}
