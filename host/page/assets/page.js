// The script of the page: login, the live list, ages, the tab's title. It shows what the server has rendered.
'use strict';

const html = window.trustedTypes
  ? trustedTypes.createPolicy('arbe', {createHTML: (s) => s}) // for the server's own HTML alone
  : {createHTML: (s) => s};
const body = document.body;
const status = document.getElementById('status');
const offset = body.dataset.now ? body.dataset.now - Date.now() : 0; // of the server's clock
const now = () => Date.now() + offset;
const say = (text) => { if (status.textContent !== text) status.textContent = text; };

// message returns the server's reason for a refusal.
async function message(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return 'The server answered ' + answer.status + '.';
  }
}

// post sends JSON and returns the answer.
const post = (path, value) => fetch(path, {
  method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(value),
});

// login trades the code in the address, which must not stay there.
async function login() {
  const code = location.hash.slice(1);
  history.replaceState(null, '', location.pathname);
  if (!code) return resume();
  say('Logging in…');
  try {
    const answer = await post(location.pathname, {code});
    if (!answer.ok) {
      const why = await message(answer);
      return say(why + (location.pathname === '/share' ? '' : ' Run arbe open again.'));
    }
    location.replace((await answer.json()).to);
  } catch {
    say('The server does not answer. Run arbe open again.');
  }
}

// resume leaves a page that asks for a login if the browser is logged in: it keeps its cookie from a request that a
// link of another site has made.
async function resume() {
  if (now() - sessionStorage.getItem('arbe.resumed') < 5000) return; // the page asks for another login
  const answer = await fetch('/login/state');
  if (!answer.ok) return;
  sessionStorage.setItem('arbe.resumed', now());
  location.replace(body.dataset.page === 'login' ? '/' : location.href);
}

// span is row.go's.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm ' + s % 60 + 's';
  if (s < 86400) return Math.floor(s / 3600) + 'h ' + Math.floor(s % 3600 / 60) + 'm';
  return Math.floor(s / 86400) + 'd ' + Math.floor(s % 86400 / 3600) + 'h';
}

// Results that were seen, as thread and run. A run that ended before this browser first came counts as seen.
const mostSeen = 2000;
const store = {
  first: Number(localStorage.getItem('arbe.first')) || now(),
  seen: new Set(JSON.parse(localStorage.getItem('arbe.seen') || '[]')),
};
localStorage.setItem('arbe.first', store.first);
function see(li) {
  store.seen.add(li.id + ' ' + li.dataset.run);
  localStorage.setItem('arbe.seen', JSON.stringify([...store.seen].slice(-mostSeen)));
}
const settled = (li) => Number(li.dataset.ended) > 0;

// tick makes ages, states and the tab's title those of this moment.
function tick() {
  const at = now(), counts = {working: 0, waiting: 0, silent: 0, dead: 0};
  let unseen = 0;
  for (const li of document.querySelectorAll('li[data-state]')) {
    const d = li.dataset;
    if (Number(d.silent) && at >= Number(d.silent) && !settled(li)) {
      d.state = at < Number(d.dead) ? 'silent' : 'dead';
      li.querySelector('.state').textContent = at < Number(d.dead) ? 'silent, dead in ' + span(d.dead - at) : 'dead';
    }
    if (d.state in counts) counts[d.state]++;
    const fresh = settled(li) && Number(d.ended) > store.first && !store.seen.has(li.id + ' ' + d.run);
    if (fresh && body.dataset.page === 'thread') see(li);
    li.classList.toggle('unseen', fresh);
    if (fresh) unseen++;
  }
  for (const t of document.querySelectorAll('time[data-age]')) t.textContent = span(at - t.dataset.age);
  for (const t of document.querySelectorAll('time[data-to="0"]')) t.textContent = span(at - t.dataset.from);
  if (body.dataset.page === 'list') {
    const parts = Object.keys(counts).filter((name) => counts[name]).map((name) => counts[name] + ' ' + name);
    if (unseen) parts.unshift(unseen + ' new');
    document.title = parts.length ? parts.join(', ') + ' · arbe' : 'arbe';
  } else {
    const li = document.querySelector('li[data-state]');
    document.title = li.dataset.state + ' · ' + li.querySelector('.title').textContent;
  }
}

// rows returns the list items in the server's HTML.
function rows(text) {
  const t = document.createElement('template');
  t.innerHTML = html.createHTML(text);
  return [...t.content.children];
}

// place puts a row where it belongs: below its parent, the newest start first.
function place(li) {
  const old = document.getElementById(li.id);
  if (old && old.dataset.offset === li.dataset.offset && !li.querySelector('li')) return; // nothing is new
  for (const x of li.querySelectorAll('li[data-state]')) document.getElementById(x.id)?.remove();
  const focused = old && old.querySelector('article').contains(document.activeElement);
  if (old) {
    li.querySelector('ul').append(...old.querySelector('ul').children);
    old.remove();
  }
  const all = document.getElementById('threads');
  const parent = li.dataset.parent && document.getElementById('t-' + li.dataset.parent);
  const list = parent && !li.contains(parent) ? parent.querySelector('ul') : all;
  const started = (x) => Number(x.dataset.started) || 0;
  list.insertBefore(li, [...list.children].find((x) => started(x) < started(li)) || null);
  for (const child of [...all.children]) { // that came before its parent
    if (child.dataset.parent && 't-' + child.dataset.parent === li.id && !child.contains(li)) {
      li.querySelector('ul').append(child);
    }
  }
  if (focused) li.querySelector('.title').focus();
}

// remove takes a row out of the list; its children stay.
function remove(id) {
  const li = document.getElementById('t-' + id);
  if (!li) return;
  const children = [...li.querySelector('ul').children];
  li.remove();
  children.forEach(place);
}

// older adds the next part of the list when its end comes into view.
function older() {
  const more = document.getElementById('more');
  if (!more) return;
  new IntersectionObserver(async (seen, observer) => {
    if (!seen.some((s) => s.isIntersecting)) return;
    observer.disconnect();
    const answer = await fetch(more.querySelector('a').href + '&part');
    if (!answer.ok) return say(await message(answer));
    more.remove();
    for (const li of rows(await answer.text())) {
      if (li.id === 'more') document.getElementById('threads').append(li);
      else place(li);
    }
    tick();
    older();
  }, {rootMargin: '50%'}).observe(more);
}

// live follows the changes at a path, with one connection while the tab is visible. A hidden tab looks now and then, for
// its title: browsers allow six connections to a server.
const lookEvery = 30000;
function live(path, listeners) {
  let source, timer, retry = 1000;
  function open() {
    clearTimeout(timer);
    if (source) return;
    source = new EventSource(path);
    for (const [name, f] of Object.entries(listeners)) {
      source.addEventListener(name, (e) => { retry = 1000; say(''); f(JSON.parse(e.data)); });
    }
    source.addEventListener('ready', () => { if (document.hidden) rest(); });
    source.onerror = async () => {
      if (source.readyState !== EventSource.CLOSED) return say('The server is away. Trying again…');
      const answer = await refusal();
      if (answer) return say(answer + ' Run arbe open again.');
      say('The server is away. Trying again…');
      again(retry);
      retry = Math.min(2 * retry, 30000);
    };
  }
  async function refusal() {
    const stop = new AbortController();
    try {
      const answer = await fetch(path, {signal: stop.signal});
      return answer.status === 401 || answer.status === 403 ? await message(answer) : '';
    } catch {
      return '';
    } finally {
      stop.abort();
    }
  }
  function again(ms) {
    source.close();
    source = null;
    timer = setTimeout(open, ms);
  }
  function rest() { if (source) again(lookEvery); }
  document.addEventListener('visibilitychange', () => document.hidden ? rest() : open());
  open();
}

// forms post their fields as JSON.
function forms() {
  for (const form of document.querySelectorAll('form[data-post]')) {
    form.addEventListener('submit', async (e) => {
      e.preventDefault();
      try {
        const answer = await post(form.dataset.post, Object.fromEntries(new FormData(form)));
        say(answer.ok ? 'Posted.' : await message(answer));
        if (answer.ok) form.reset();
      } catch {
        say('The server does not answer: nothing is known of this post.');
      }
    });
  }
}

switch (body.dataset.page) {
  case 'login':
    login();
    addEventListener('hashchange', login);
    break;
  case 'problem':
    if (body.dataset.login) resume();
    break;
  case 'list':
    live(body.dataset.live, {
      row: ({id, html: text}) => { if (text) rows(text).forEach(place); else remove(id); tick(); },
      ready: () => {},
    });
    older();
    tick();
    setInterval(tick, 1000);
    break;
  case 'thread':
    forms();
    tick();
    setInterval(tick, 1000);
}
