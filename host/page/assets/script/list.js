// The list of threads: live, by what needs a person first.

// rank is row.go's: what needs a person stands first. A failure that this browser has shown needs nobody.
const rankWaiting = 1, rankWorking = 3, rankRest = 4;
function ownRank(li) {
  const d = li.dataset;
  switch (d.state) {
    case 'dead': return 0;
    case 'failed': return now() - d.ended < day && fresh(li.id, d) ? 0 : rankRest;
    case 'waiting': return rankWaiting;
    case 'silent': return 2;
    case 'working': return rankWorking;
  }
  return rankRest;
}
function rank(li) {
  let r = ownRank(li);
  for (const child of li.lastElementChild.children) r = Math.min(r, rank(child));
  return r;
}
const startedAt = (li) => Number(li.dataset.started) || 0;
const order = (a, b) => a.rank - b.rank || b.started - a.started;
const placeOf = (li, top) => ({rank: top ? rank(li) : 0, started: startedAt(li)});

// placeAgain puts a row where it belongs: below its parent, or in the part of the list for its rank.
function placeAgain(li) {
  const all = get('threads');
  const parent = li.dataset.parent && get('t-' + li.dataset.parent);
  const child = parent && parent !== li && !li.contains(parent) && depth(parent) < mostDepth;
  const at = placeOf(li, !child);
  const section = at.rank <= rankWaiting ? 'needs' : at.rank <= rankWorking ? 'working' : 'earlier';
  const list = child ? parent.lastElementChild : all.querySelector('[data-section=' + section + '] > ul');
  const there = li.parentNode === list;
  const before = (x) => order(placeOf(x, !child), at) <= 0;
  const fits = there && (!li.previousElementSibling || before(li.previousElementSibling)) &&
    (!li.nextElementSibling || order(at, placeOf(li.nextElementSibling, !child)) <= 0);
  if (!fits) {
    const others = there ? [...list.children].filter((x) => x !== li) : list.children;
    let low = 0, high = others.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(others[middle])) low = middle + 1;
      else high = middle;
    }
    list.insertBefore(li, others[low] || null);
  }
  if (child) placeAgain(parent); // its rank is that of its children, too
}
const mostDepth = 20;
function depth(li) {
  let n = 0;
  for (let x = li.parentNode; x?.id !== 'threads' && x; x = x.parentNode) if (x.localName === 'li') n++;
  return n;
}

// put shows a row. One that is there is changed in place, so that a click on it or the focus is not lost.
function put(li) {
  const children = [...li.lastElementChild.children];
  let old = get(li.id);
  if (old && old.dataset.offset !== li.dataset.offset) {
    attributes(old, li);
    const now = old.firstElementChild, is = li.firstElementChild;
    for (const part of ['.title', '.state', '.facts']) patch(now.querySelector(part), is.querySelector(part));
    attributes(now.querySelector('.age'), is.querySelector('.age'));
    write(now.querySelector('.age'), is.querySelector('.age').textContent);
  } else if (!old) {
    li.lastElementChild.replaceChildren();
    old = li;
  }
  placeAgain(old);
  children.forEach(put);
  for (const child of get('threads').querySelectorAll(':scope > section > ul > [data-parent="' +
    CSS.escape(old.id.slice(2)) + '"]')) placeAgain(child); // it came before its parent
}

// drop takes a row out of the list; its children stay.
function drop(id) {
  const li = get('t-' + id);
  if (!li) return;
  const children = [...li.lastElementChild.children], parent = li.parentNode.closest('li');
  li.remove();
  children.forEach(placeAgain);
  if (parent) placeAgain(parent);
}

// list shows the threads of a filter in #threads, live. since is when the server rendered those that are there. It
// returns what ends it.
const leastRows = 100; // of the earlier ones, which are kept, and as many as were loaded
function list(query, since) {
  const all = get('threads'), more = get('more'), earlier = all.querySelector('[data-section=earlier] > ul');
  const leave = new AbortController();
  let kept = Math.max(leastRows, earlier.children.length), queue = new Map();

  // The rows that came are shown together, once for each frame. Those of other threads are shown where they are among
  // the newest.
  function show() {
    if (leave.signal.aborted) return;
    const rows = [...queue.values()], changed = [], others = [];
    queue = new Map();
    const oldest = more.hidden ? 0 : Math.min(...[...earlier.children].slice(-1).map(startedAt));
    for (const r of rows) {
      const old = get('t-' + r.id);
      if (!r.html) drop(r.id);
      else if (old ? old.dataset.offset !== r.offset : r.open) changed.push(r);
      else if (!old && r.started >= oldest) others.push(r);
    }
    others.sort((a, b) => b.started - a.started);
    parsed([...changed, ...others.slice(0, kept)].map((r) => r.html).join('')).forEach(put);
    if (earlier.children.length > kept) {
      [...earlier.children].slice(kept).forEach((li) => li.remove());
      const end = earlier.lastElementChild, next = new URLSearchParams(query);
      next.set('cursor', startedAt(end) + '.' + end.id.slice(2));
      more.hidden = false;
      more.firstElementChild.href = '/?' + next;
    }
    if (kind === 'thread') current();
    tick();
  }

  // older adds the next part of the list when its end comes into view.
  const observer = new IntersectionObserver(async (seen) => {
    if (more.hidden || !seen.some((s) => s.isIntersecting)) return;
    observer.unobserve(more);
    const answer = await fetch(more.firstElementChild.href + '&part', {signal: leave.signal}).catch(() => null);
    if (!answer || leave.signal.aborted) return;
    if (!answer.ok) return say(await message(answer));
    const added = parsed(await answer.text()), link = added.at(-1);
    const rows = added.flatMap((x) => [...x.querySelectorAll(':scope > ul > li')]);
    kept += rows.length;
    rows.forEach(put);
    more.hidden = link.hidden;
    more.replaceChildren(...link.childNodes);
    tick();
    observer.observe(more);
  }, {rootMargin: '50%', root: all.closest('#side')});
  observer.observe(more);

  const topic = follow('list?' + query, {since}, {
    rows: ({rows}) => {
      if (!queue.size) inFrame(show);
      for (const r of rows) {
        queue.delete(r.id);
        queue.set(r.id, r);
      }
    },
  });
  for (const li of all.querySelectorAll('li')) known.set(li.id, li.dataset.state);
  tick();
  return () => {
    leave.abort();
    observer.disconnect();
    topic.stop();
  };
}

// inFrame runs f before the next frame, and in a tab that is hidden a little later.
function inFrame(f) {
  let done = false;
  const once = () => { if (!done) { done = true; f(); } };
  requestAnimationFrame(once);
  setTimeout(once, 300);
}

// filterOf returns the query of a filter's form.
const filterOf = (form) => new URLSearchParams([...new FormData(form)].filter(([, value]) => value));

// refilter shows the threads of another filter, in place. It reports whether it does.
let leaveList = () => {};
async function refilter(query) {
  const since = now();
  const answer = await fetch('/?' + query + (query.size ? '&' : '') + 'part');
  if (!answer.ok) return void say(await message(answer));
  leaveList();
  get('threads').replaceChildren(...parsed(await answer.text()));
  leaveList = list(query, since);
  return true;
}

// filters makes a form filter the list as it is changed.
function filters(form, changed) {
  const run = async () => {
    const query = filterOf(form);
    if (await refilter(query)) changed?.(query);
  };
  form.addEventListener('submit', (e) => { e.preventDefault(); run(); });
  form.addEventListener('change', run);
  let typed;
  form.addEventListener('input', (e) => {
    if (e.target.type !== 'search') return;
    clearTimeout(typed);
    typed = setTimeout(run, 300);
  });
}
