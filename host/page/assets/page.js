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
const tell = (text) => { document.getElementById('news').textContent = text; }; // to readers of the screen alone

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
      return say(why + (location.pathname === '/share' || code.includes('.') ? '' : ' Run arbe open again.'));
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
const first = Number(localStorage.getItem('arbe.first')) || now();
localStorage.setItem('arbe.first', first);
let kept = '[]', results = new Set();
function seen() { // also in other tabs
  const text = localStorage.getItem('arbe.seen') || '[]';
  if (text !== kept) results = new Set(JSON.parse(kept = text));
  return results;
}
function see(li) {
  const all = [...seen(), li.id + ' ' + li.dataset.run];
  localStorage.setItem('arbe.seen', JSON.stringify(all.slice(-mostSeen)));
}
const settled = (li) => Number(li.dataset.ended) > 0;

// overdue returns the state of a run at a time, by when it is silent and dead unless another entry comes; '' for neither.
function overdue(d, at) {
  if (!Number(d.silent) || at < Number(d.silent)) return '';
  return at < Number(d.dead) ? 'silent, dead in ' + span(d.dead - at) : 'dead';
}

// tick makes ages, states and the tab's title those of this moment. A screen reader announces the state of a thread's
// page, and in the list the threads that have ended: no heartbeat, and no age.
const known = new Map(); // states by the ids of rows
function tick() {
  const at = now(), counts = {working: 0, waiting: 0, silent: 0, dead: 0};
  let unseen = 0;
  for (const li of document.querySelectorAll('li[data-state]')) {
    const d = li.dataset;
    const late = settled(li) ? '' : overdue(d, at);
    if (late) {
      d.state = late.split(',')[0];
      li.querySelector('.state').textContent = late;
    }
    if (d.state in counts) counts[d.state]++;
    const fresh = settled(li) && Number(d.ended) > first && !seen().has(li.id + ' ' + d.run);
    if (body.dataset.page === 'list') {
      li.classList.toggle('unseen', fresh);
      if (fresh) unseen++;
    } else if (fresh && !document.hidden) {
      see(li);
    }
    const was = known.get(li.id);
    if (was && was !== d.state && (settled(li) || body.dataset.page === 'thread')) {
      tell(li.querySelector('.title').textContent + ': ' + li.querySelector('.state').textContent);
    }
    known.set(li.id, d.state);
  }
  for (const child of document.querySelectorAll('[data-child]')) {
    const late = overdue(child.dataset, at);
    if (late) child.textContent = 'task: ' + late;
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

// clocks shows the times of entries as those of the reader's place. The server renders UTC.
function clocks(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const at = new Date(t.dateTime);
    t.textContent = [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, '0')).join(':');
    t.title = at.toLocaleString();
  }
}

// rows returns the list items in the server's HTML.
function rows(text) {
  const t = document.createElement('template');
  t.innerHTML = html.createHTML(text);
  clocks(t.content);
  return [...t.content.children];
}

// place puts a row where it belongs: below its parent, the newest start first. A row that is there is changed in place,
// so that a click on it or the focus is not lost.
function place(li) {
  const old = document.getElementById(li.id);
  if (old && old.dataset.offset === li.dataset.offset && !li.querySelector('li')) return; // nothing is new
  for (const x of li.querySelectorAll('li[data-state]')) document.getElementById(x.id)?.remove();
  if (old) {
    for (const {name, value} of li.attributes) old.setAttribute(name, value);
    old.querySelector('.title').textContent = li.querySelector('.title').textContent;
    for (const part of ['.state', 'dl']) old.querySelector(part).replaceWith(li.querySelector(part));
    old.querySelector('ul').append(...li.querySelector('ul').children);
    li = old;
  }
  const all = document.getElementById('threads');
  const parent = li.dataset.parent && document.getElementById('t-' + li.dataset.parent);
  const list = parent && !li.contains(parent) ? parent.querySelector('ul') : all;
  const started = (x) => Number(x.dataset.started) || 0;
  const next = [...list.children].find((x) => x !== li && started(x) < started(li)) || null;
  if (li.parentNode !== list || li.nextElementSibling !== next) list.insertBefore(li, next);
  for (const child of [...all.children]) { // that came before its parent
    if (child.dataset.parent && 't-' + child.dataset.parent === li.id && !child.contains(li)) {
      li.querySelector('ul').append(child);
    }
  }
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
const away = 'The server is away. Trying again…';
const lookEvery = 30000, firstRetry = 200, lastRetry = 30000;
function live(path, listeners) {
  let source, timer, stopped = false, retry = firstRetry;
  function open() {
    clearTimeout(timer);
    if (source || stopped) return;
    const own = source = new EventSource(path());
    for (const [name, f] of Object.entries(listeners)) {
      own.addEventListener(name, (e) => {
        retry = firstRetry;
        if (status.textContent === away) say('');
        f(JSON.parse(e.data));
      });
    }
    own.addEventListener('ready', () => { if (document.hidden) again(lookEvery); });
    own.onerror = async () => {
      const refused = own.readyState === EventSource.CLOSED;
      again(retry);
      if (refused) {
        const why = await refusal();
        if (why) {
          clearTimeout(timer);
          return say(why);
        }
      }
      if (retry > firstRetry) say(away); // an answer also ends when it is old
      retry = Math.min(2 * retry, lastRetry);
    };
  }
  async function refusal() {
    const stop = new AbortController();
    try {
      const answer = await fetch(path(), {signal: stop.signal});
      if (answer.status < 400 || answer.status >= 500 || answer.status === 429) return '';
      return await message(answer) + (answer.status === 401 ? ' Run arbe open again.' : '');
    } catch {
      return '';
    } finally {
      stop.abort();
    }
  }
  function again(ms) {
    source?.close();
    source = null;
    clearTimeout(timer);
    timer = setTimeout(open, ms);
  }
  document.addEventListener('visibilitychange', () => document.hidden ? again(lookEvery) : open());
  addEventListener('online', open); // a laptop woke up
  open();
  return {
    stop: () => { stopped = true; source?.close(); source = null; clearTimeout(timer); },
    again: () => { stopped = false; again(0); },
  };
}

// thread shows a thread: opens at its tail or at an entry, adds older pieces above and newer ones or live items below.
const mostPieces = 20; // in memory: those that are far away are dropped, and can be loaded again
const perPiece = 200; // live items
const mostTasks = 100; // whose states are followed
function thread() {
  const items = document.getElementById('items');
  const more = document.getElementById('new');
  const path = '/t/' + body.dataset.thread;
  let after = Number(body.dataset.after);
  const upTo = () => items.querySelector(':scope > .newer'); // what follows it is not shown
  const atEnd = () => !upTo() && innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
  let follow = !location.hash && !upTo(), top = 0; // the reader follows the end, until they scroll up from top
  const toEnd = () => {
    if (upTo()) return location.assign(path);
    scrollTo(0, document.documentElement.scrollHeight);
    top = scrollY; // the event comes later, perhaps after the reader has scrolled up
  };
  const byID = (id) => document.getElementById('i-' + id);

  // further loads what a link at the top or the bottom leads to when it comes into view, without moving what is read.
  const observer = new IntersectionObserver((seen) => {
    for (const s of seen) if (s.isIntersecting) further(s.target);
  }, {rootMargin: '800px'});
  const watch = () => {
    for (const link of items.querySelectorAll(':scope > :is(.older, .newer)')) observer.observe(link);
  };
  async function further(link) {
    observer.unobserve(link);
    const answer = await fetch(link.querySelector('a').href);
    if (!answer.ok) return say(await message(answer));
    const added = rows(await answer.text());
    if (!link.isConnected) return; // trimmed meanwhile
    const up = link.matches('.older'), had = tasksIn(items).length;
    const stays = up ? link.nextElementSibling : link.previousElementSibling;
    const was = stays.getBoundingClientRect().top;
    const earlier = up ? added.findLast((x) => x.matches('.piece')) : stays;
    const later = up ? document : added.find((x) => x.matches('.piece'));
    for (const id of (earlier.dataset.answers || '').split(' ')) {
      if (id) later.querySelector('#' + CSS.escape('i-' + id))?.remove(); // it stands in its call
    }
    link.replaceWith(...added);
    titles();
    if (up) trimEnd(); else trim();
    scrollBy(0, stays.getBoundingClientRect().top - was);
    if (!up && !upTo()) { // the end is shown: what comes follows it
      after = Number(added.findLast((x) => x.matches('.piece')).dataset.after);
      size = 0;
      feed.again();
    } else if (tasksIn(items).length > had) {
      feed.again(); // it follows them, too
    }
    watch();
  }

  // tasksIn returns the ids of the tasks in an element that have not ended, and task shows the state of one.
  function tasksIn(element) {
    const open = [...element.querySelectorAll('[data-child]')].filter((x) => !x.dataset.ended);
    return [...new Set(open.map((x) => x.dataset.child))];
  }
  function task({id, html: text}) {
    const [is] = rows(text);
    for (const old of items.querySelectorAll('[data-child="' + CSS.escape(id) + '"]')) old.replaceWith(is.cloneNode(true));
  }

  // answer shows what a bot is writing, until the head has its reaction no more.
  const answering = document.getElementById('answering'), stop = document.getElementById('stop'); // a share has none
  function stoppable(article) {
    if (!stop) return;
    article.append(stop.content.cloneNode(true));
    article.querySelector('.stop').elements.reaction.value = article.id.slice(2);
  }
  function answer(text) {
    const [article] = rows(text), old = document.getElementById(article.id);
    if (old) old.querySelector('.body').replaceWith(article.querySelector('.body')); // the focus stays on its button
    else {
      stoppable(article);
      answering.append(article);
    }
  }
  function answered(open = []) {
    for (const article of [...answering.children]) if (!open.includes(article.id.slice(2))) article.remove();
  }

  // titles gives the folds of a subagent that begin later the task of its first one.
  function titles() {
    const tasks = {};
    for (const fold of items.querySelectorAll('.subagent')) {
      const {sub, task} = fold.dataset;
      if (task) tasks[sub] = task;
      else if (tasks[sub]) fold.querySelector('summary').textContent = 'subagent: ' + tasks[sub] + ', continued';
    }
  }

  // add appends an item, or replaces the one with its ID.
  let size = 0, newest = 0; // of the last piece: its live items, and the place of its newest one
  function add({id, sub, task, steps, html: text, replaces, after: end}) {
    if (upTo()) return;
    after = end;
    const [item] = rows(text), old = byID(id);
    document.getElementById('a-' + item.dataset.reaction)?.querySelector('.body').replaceChildren(); // it is here
    for (const chat of (item.dataset.chats || '').split(' ')) {
      if (chat) byID(chat)?.querySelector('.undelivered')?.remove(); // it is delivered
    }
    if (old) {
      const details = old.querySelector('details');
      if (details?.open) item.querySelector('details')?.setAttribute('open', '');
      return old.replaceWith(item);
    }
    if (replaces) return; // it is in a piece that is not shown
    let last = items.lastElementChild;
    if (size >= perPiece && end !== newest) { // an append is whole in a piece
      last.dataset.after = end;
      last = document.createElement('section');
      last.className = 'piece';
      last.dataset.before = end;
      items.append(last);
      size = 0;
    }
    size++;
    newest = end;
    delete last.dataset.after; // it grows
    if (!sub) return last.append(item);
    let fold = [...last.querySelectorAll('.subagent')].findLast((d) => d.dataset.sub === sub);
    if (!fold) {
      fold = document.createElement('details');
      fold.className = 'subagent';
      fold.dataset.sub = sub;
      if (task) fold.dataset.task = task;
      fold.append(document.createElement('summary'));
      fold.firstChild.textContent = steps ? 'steps of ' + steps : 'subagent' + (task ? ': ' + task : ', continued');
      last.append(fold);
      titles();
    }
    fold.append(item);
  }

  // link returns a link to a piece, above or below those that are shown.
  function link(name, text, href) {
    const p = document.createElement('p');
    p.className = name;
    p.append(document.createElement('a'));
    p.firstChild.href = path + href;
    p.firstChild.textContent = text;
    return p;
  }

  // trim drops the oldest pieces while the end is read, trimEnd the newest ones while older ones are.
  function trim() {
    const pieces = [...items.querySelectorAll(':scope > .piece')], had = pieces.length;
    for (; pieces.length > mostPieces && pieces[1].dataset.before; pieces.shift()) {
      items.querySelector(':scope > .older')?.remove();
      pieces[0].remove();
      items.prepend(link('older', 'Older entries', '/older?before=' + pieces[1].dataset.before));
      watch();
    }
    if (follow && pieces.length < had) toEnd(); // else the browser's own move looks like the reader's
  }
  function trimEnd() {
    const pieces = [...items.querySelectorAll(':scope > .piece')];
    for (; pieces.length > mostPieces && pieces.at(-2).dataset.after; pieces.pop()) {
      upTo()?.remove();
      pieces.at(-1).remove();
      items.append(link('newer', 'Newer entries', '/newer?after=' + pieces.at(-2).dataset.after));
      watch();
      follow = false;
    }
  }

  // open shows the item that the address names: the page around it, where it is not loaded.
  function open() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name.startsWith('i-')) return;
    const item = document.getElementById(name) ||
      items.querySelector('[data-result="' + CSS.escape(name) + '"]'); // a result stands in its call
    const at = new URLSearchParams(location.search).get('at'), wanted = name.slice(2);
    if (!item) {
      if (at === wanted) return say('The thread shows nothing of this entry.');
      return location.replace(path + '?at=' + encodeURIComponent(wanted) + location.hash);
    }
    follow = false;
    for (let x = item; x !== items; x = x.parentElement) if (x.matches('details')) x.open = true;
    item.querySelector('details')?.setAttribute('open', '');
    item.scrollIntoView();
    item.tabIndex = -1;
    item.focus({preventScroll: true});
    for (const x of items.querySelectorAll('.linked')) x.classList.remove('linked');
    item.classList.add('linked');
  }

  find(path);
  const feed = live(() => path + '/live?after=' + after + '&tasks=' + tasksIn(items).slice(-mostTasks), {
    item: (value) => {
      add(value);
      if (follow) return trim();
      more.hidden = false;
      trimEnd(); // the rest is loaded when the reader comes to it
    },
    answer: ({html: text}) => answer(text),
    task,
    head: ({html: text, pulse, answering: open, after: end}) => {
      after = end;
      answered(open);
      rows(text).forEach((li) => place(li));
      document.getElementById('pulse').textContent = pulse;
      tick();
    },
    gone: () => { feed.stop(); say('The thread was deleted, or restored. Load the page again.'); },
    far: () => {
      feed.stop();
      if (follow) location.reload(); else say('Many entries have come meanwhile. Load the page again to see them.');
    },
    ready: () => {},
  });

  addEventListener('scroll', () => {
    const end = document.documentElement.scrollHeight - innerHeight; // the browser moves up to it
    if (scrollY < Math.min(top, end) - 2) follow = false;
    if (atEnd()) follow = more.hidden = true;
    top = scrollY;
  }, {passive: true});
  const sizes = new ResizeObserver(() => { if (follow) toEnd(); }); // also once the browser knows a piece's height
  sizes.observe(items);
  sizes.observe(answering);
  more.addEventListener('click', () => { follow = more.hidden = true; toEnd(); });
  document.getElementById('thinking').addEventListener('change', (e) => {
    body.classList.toggle('no-thinking', !e.target.checked);
  });
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    if (e.key === '/') {
      e.preventDefault(); // the browser's own search
      return document.querySelector('#find input').focus();
    }
    const prompts = [...items.querySelectorAll(':scope > .piece > .chat')];
    const y = (x) => x.getBoundingClientRect().top;
    const to = {
      n: () => prompts.find((x) => y(x) > 20), p: () => prompts.findLast((x) => y(x) < -1),
      t: () => { document.getElementById('thinking').click(); }, e: toEnd,
    }[e.key]?.();
    if (!to) return;
    to.scrollIntoView();
    to.tabIndex = -1;
    to.focus({preventScroll: true}); // the next Tab goes on from here
  });
  addEventListener('hashchange', open);
  open();
  titles();
  [...answering.children].forEach(stoppable);
  watch();
}

// find lists the items of a thread that have a text. The text stays in the address, so that the list is there again
// where one of its links leads to.
function find(path) {
  const form = document.getElementById('find'), list = document.getElementById('found');
  const input = form.querySelector('input');
  async function load(href) {
    const count = list.querySelector('p');
    list.hidden = false;
    count.textContent = 'Searching…';
    const answer = await fetch(href);
    if (!answer.ok) return count.textContent = await message(answer);
    const added = rows(await answer.text());
    list.append(...added);
    const further = added[0].querySelector('.further a'), n = list.querySelectorAll('li').length;
    further?.addEventListener('click', (e) => {
      e.preventDefault();
      further.parentElement.remove();
      load(further.href);
    });
    count.textContent = n + (n === 1 ? ' item' : ' items') + ' found' + (further ? ' so far.' : '.');
  }
  function start() {
    for (const old of list.querySelectorAll('section')) old.remove();
    return load(path + '/find?q=' + encodeURIComponent(input.value));
  }
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    start();
  });
  form.addEventListener('keydown', (e) => {
    if (e.key !== 'Escape') return;
    list.hidden = true;
    input.blur();
  });
  input.value = new URLSearchParams(location.search).get('q') || '';
  if (input.value) start();
}

// forms post their fields as JSON.
function forms() {
  addEventListener('submit', async (e) => {
    const form = e.target;
    if (!form.dataset.post) return;
    e.preventDefault();
    const fields = Object.fromEntries(new FormData(form)), text = form.elements.text;
    if (text) text.value = ''; // the next chat may be typed before the answer comes
    const failed = (why) => {
      if (text) text.value = fields.text + (text.value && '\n' + text.value);
      say(why);
    };
    try {
      const answer = await post(form.dataset.post, fields);
      if (!answer.ok) return failed(await message(answer));
      const {code, expiresAt, revoked, note} = await answer.json().catch(() => ({}));
      if (!text) form.reset();
      if (code) {
        form.querySelector('output').textContent = location.origin + '/share#' + code + ' (until ' + expiresAt + ')';
      }
      say(code ? 'Everyone who has the link can read this thread.' :
        revoked === undefined ? note || 'Posted.' : revoked + (revoked === 1 ? ' link' : ' links') + ' revoked.');
    } catch {
      failed('The server does not answer: nothing is known of this post.');
    }
  });
}

// A click that ends the selection of a text in a fold's line leaves the fold as it is.
addEventListener('click', (e) => {
  const selection = getSelection(), line = e.target.closest?.('summary');
  if (line && !selection.isCollapsed && line.contains(selection.anchorNode)) e.preventDefault();
});

switch (body.dataset.page) {
  case 'login':
    login();
    addEventListener('hashchange', login);
    break;
  case 'problem':
    if (body.dataset.login) resume();
    break;
  case 'list':
    live(() => body.dataset.live, {
      row: ({id, html: text}) => { if (text) rows(text).forEach(place); else remove(id); tick(); },
      ready: () => {},
    });
    older();
    tick();
    setInterval(tick, 1000);
    break;
  case 'thread':
    clocks(document);
    forms();
    thread();
    tick();
    setInterval(tick, 1000);
}
