// Ages, states and the tab's title are those of this moment. Between two changes there is one timer, for the next one.

// span and age are row.go's.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm ' + s % 60 + 's';
  if (s < 86400) return Math.floor(s / 3600) + 'h ' + Math.floor(s % 3600 / 60) + 'm';
  return Math.floor(s / 86400) + 'd ' + Math.floor(s % 86400 / 3600) + 'h';
}
const minute = 60e3, hour = 60 * minute, day = 24 * hour;
function age(ms) {
  if (ms < minute) return 'now';
  if (ms < hour) return Math.floor(ms / minute) + 'm';
  return ms < day ? Math.floor(ms / hour) + 'h' : Math.floor(ms / day) + 'd';
}
const unit = (ms) => ms < hour ? minute : ms < day ? hour : day; // in which an age is counted

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
function see(id, run) {
  const all = [...seen(), id + ' ' + run];
  localStorage.setItem('arbe.seen', JSON.stringify(all.slice(-mostSeen)));
}
const settled = (d) => Number(d.ended) > 0;
const fresh = (id, d) => settled(d) && Number(d.ended) > first && !seen().has(id + ' ' + d.run);

// overdue returns the state of a run at a time, by when it is silent and dead unless another entry comes; '' for neither.
function overdue(d, at) {
  if (!Number(d.silent) || at < Number(d.silent)) return '';
  return at < Number(d.dead) ? 'silent, dead in ' + span(d.dead - at) : 'dead';
}

const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// clock runs f at the times that it returns. A hidden tab waits until it is seen, but for its title.
const slowest = 10e3; // between two looks at ages that are counted in minutes
let clockTimer;
function tick() {
  clearTimeout(clockTimer);
  const at = now();
  let next = Infinity, soon = Infinity;
  const due = (d) => { // of a state
    const silent = Number(d.silent), dead = Number(d.dead);
    for (const time of [silent, dead]) if (time > at) next = Math.min(next, time);
    if (silent && at >= silent && at < dead) next = Math.min(next, at + (dead - at) % 1000 + 1); // it has seconds
  };
  due.next = (time) => { next = Math.min(next, time); };
  states(at, due);
  for (const t of document.querySelectorAll('time[data-age]')) {
    const ms = at - t.dataset.age;
    write(t, age(ms));
    soon = Math.min(soon, at + unit(ms) - ms % unit(ms));
  }
  next = Math.min(next, Math.max(soon, at + slowest));
  if (next < Infinity) clockTimer = setTimeout(tick, Math.max(50, next - at + 1));
}

// states shows the states of rows, of the head and of tasks, and the tab's title. A screen reader announces the state of
// a thread's page, and in the list the threads that have ended: no heartbeat, and no age.
const known = new Map(); // states by the ids of rows
function states(at, due) {
  const counts = {working: 0, waiting: 0, silent: 0, dead: 0};
  const head = get('head');
  let unseen = 0;
  const one = (id, element, d, main) => {
    const late = settled(d) ? '' : overdue(d, at);
    if (late) {
      d.state = late.split(',')[0];
      if (main || inView(element)) write(element.querySelector('.state'), late);
    }
    if (!settled(d)) due(d);
    const was = known.get(id);
    known.set(id, d.state);
    if (was && was !== d.state && (main || kind === 'list' && settled(d))) {
      tell(element.querySelector('.title').textContent + ': ' + element.querySelector('.state').textContent);
    }
    return was && was !== d.state;
  };
  const moved = [];
  for (const li of document.querySelectorAll('#threads li')) {
    const d = li.dataset;
    if (one(li.id, li, d, false)) moved.push(li);
    if (d.state in counts) counts[d.state]++;
    const isNew = fresh(li.id, d);
    if (isNew) unseen++;
    if (li.classList.contains('unseen') !== isNew) {
      li.classList.toggle('unseen', isNew);
      moved.push(li);
    }
  }
  for (const li of moved) placeAgain(li);
  if (head) {
    const d = head.dataset, id = 't-' + get('room').dataset.thread;
    one('head ' + id, head, d, true);
    if (fresh(id, d) && !document.hidden) see(id, d.run);
    if (!settled(d) && d.state !== 'idle') {
      for (const t of head.querySelectorAll('time[data-from]')) write(t, span(at - t.dataset.from));
      for (const t of head.querySelectorAll('time[data-ago]')) write(t, span(at - t.dataset.ago));
      if (!document.hidden) due.next(at + 1000 - at % 1000);
    }
  }
  for (const child of document.querySelectorAll('[data-child]')) {
    const late = overdue(child.dataset, at);
    if (late) write(child, 'task: ' + late);
    due(child.dataset);
  }
  if (head) return void (document.title = head.dataset.state + ' · ' + head.querySelector('.title').textContent);
  const parts = Object.keys(counts).filter((name) => counts[name]).map((name) => counts[name] + ' ' + name);
  if (unseen) parts.unshift(unseen + ' new');
  document.title = parts.length ? parts.join(', ') + ' · arbe' : 'arbe';
}

function inView(element) {
  const r = element.getBoundingClientRect();
  return r.bottom > 0 && r.top < innerHeight;
}

// clocks shows the times of entries as those of the reader's place. The server renders UTC.
function clocks(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const at = new Date(t.dateTime);
    t.textContent = [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, '0')).join(':');
    t.title = at.toLocaleString();
  }
}
