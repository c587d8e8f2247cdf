// Serves the page with a given profile, as profcol does, and speedscope's release directory. Text is sent compressed.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { extname, join, normalize } from 'node:path';
import { gzipSync } from 'node:zlib';
import { bundle, PAGE_MODULES, readModule } from '../../formats/flamegraph/viewer/tests/bundle.js';

const TYPES = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.json': 'application/json',
  '.png': 'image/png', '.ico': 'image/x-icon', '.woff2': 'font/woff2', '.wasm': 'application/wasm', '.txt': 'text/plain',
};
const COMPRESSED = new Set(['.png', '.ico', '.woff2']);

export class Server {
  // `speedscope` is the directory of its release, or undefined.
  constructor(speedscope) {
    this.speedscope = speedscope;
    this.answers = new Map();
    this.put('/', '.html', readModule('page.html'));
    this.put('/style.css', '.css', readModule('style.css'));
    this.put('/page.js', '.js', bundle(PAGE_MODULES));
    // Where frames cost nothing.
    this.put('/blank', '.html', '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>blank</title>');
    this.server = createServer((request, response) => this.answer(request, response));
  }

  async listen() {
    await new Promise((done) => { this.server.listen(0, '127.0.0.1', done); });
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  close() {
    this.server.close();
    this.server.closeAllConnections();
  }

  put(path, extension, content) {
    this.answers.set(path, { extension, body: COMPRESSED.has(extension) ? content : gzipSync(content) });
  }

  // What the page asks for, and the same profile for speedscope.
  show(viewerDocument, speedscopeDocument) {
    const { from, until, total } = viewerDocument;
    const type = { name: viewerDocument.type, unit: viewerDocument.unit };
    const json = (path, value) => this.put(path, '.json', JSON.stringify(value));
    json('/api/v1/status', { version: 'bench', host: 'bench', now: until, oldest: from, newest: until, types: [type], samples: viewerDocument.samples });
    json('/api/v1/labels', ['comm']);
    json('/api/v1/timeline', { from, step: until - from, series: [{ value: 'service', points: [total] }], others: [0] });
    json('/api/v1/profile', viewerDocument);
    json('/speedscope.json', speedscopeDocument);
  }

  answer(request, response) {
    const path = new URL(request.url, 'http://localhost').pathname;
    const known = this.answers.get(path) ?? this.fileOfSpeedscope(path);
    if (!known) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, {
      'content-type': TYPES[known.extension] ?? 'application/octet-stream', 'content-length': known.body.length,
      ...(COMPRESSED.has(known.extension) ? {} : { 'content-encoding': 'gzip' }),
    });
    response.end(known.body);
  }

  fileOfSpeedscope(path) {
    if (!this.speedscope || !path.startsWith('/speedscope/')) return null;
    const name = normalize(path.slice('/speedscope'.length));
    const extension = extname(name);
    this.put(path, extension, readFileSync(join(this.speedscope, name)));
    return this.answers.get(path);
  }
}
