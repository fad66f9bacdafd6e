// A thread: opens at its tail or at an entry, adds older pieces above and newer ones or live items below.

const mostPieces = 20; // in memory: those that are far away are dropped, and can be loaded again
const perPiece = 200; // live items
const mostTasks = 100; // whose states are followed

// thread shows the thread in #room, and returns what ends it.
function thread() {
  const room = get('room'), items = get('items'), more = get('new'), header = room.querySelector('header');
  const leave = new AbortController(), {signal} = leave;
  const path = '/t/' + room.dataset.thread;
  let after = Number(room.dataset.after);
  const upTo = () => items.querySelector(':scope > .newer'); // what follows it is not shown
  const atEnd = () => !upTo() && innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
  const query = new URLSearchParams(location.search);
  const named = (location.hash || query.has('at')) && !room.dataset.missing; // by the address: an item
  let follows = !named && !upTo(), top = 0; // the reader follows the end, until they scroll up
  const toEnd = () => {
    if (upTo()) return location.assign(path);
    scrollTo(0, document.documentElement.scrollHeight);
    top = scrollY; // the event comes later, perhaps after the reader has scrolled up
  };
  const byID = (id) => get('i-' + id);

  // further loads what a link at the top or the bottom leads to when it comes into view, without moving what is read.
  const observer = new IntersectionObserver((seen) => {
    for (const s of seen) if (s.isIntersecting) further(s.target);
  }, {rootMargin: '800px'});
  const watch = () => {
    for (const link of items.querySelectorAll(':scope > :is(.older, .newer)')) observer.observe(link);
  };
  async function further(link) {
    observer.unobserve(link);
    const answer = await fetch(link.querySelector('a').href, {signal}).catch(() => null);
    if (!answer || signal.aborted) return;
    if (!answer.ok) return say(await message(answer));
    const added = parsed(await answer.text());
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
      feed.again(topic(), {after});
    } else if (tasksIn(items).length > had) {
      feed.again(topic(), {after}); // it follows them, too
    }
    watch();
  }

  // tasksIn returns the ids of the tasks in an element that have not ended, and task shows the state of one.
  function tasksIn(element) {
    const open = [...element.querySelectorAll('[data-child]')].filter((x) => !x.dataset.ended);
    return [...new Set(open.map((x) => x.dataset.child))];
  }
  function task({id, html: text}) {
    const [is] = parsed(text);
    for (const old of items.querySelectorAll('[data-child="' + CSS.escape(id) + '"]')) old.replaceWith(is.cloneNode(true));
    tick();
  }

  // answer shows what a bot is writing, until the head has its reaction no more.
  const answering = get('answering'), stop = get('stop'); // a share has none
  function stoppable(article) {
    if (!stop) return;
    article.append(stop.content.cloneNode(true));
    article.querySelector('.stop').elements.reaction.value = article.id.slice(2);
  }
  function answer(text) {
    const [article] = parsed(text), old = get(article.id);
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
    const [item] = parsed(text), old = byID(id);
    get('a-' + item.dataset.reaction)?.querySelector('.body').replaceChildren(); // it is here
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
    if (follows && pieces.length < had) toEnd(); // else the browser's own move looks like the reader's
  }
  function trimEnd() {
    const pieces = [...items.querySelectorAll(':scope > .piece')];
    for (; pieces.length > mostPieces && pieces.at(-2).dataset.after; pieces.pop()) {
      upTo()?.remove();
      pieces.at(-1).remove();
      items.append(link('newer', 'Newer entries', '/newer?after=' + pieces.at(-2).dataset.after));
      watch();
      follows = false;
    }
  }

  // goTo scrolls to an item and gives it the focus: the next Tab goes on from there. The height of its piece has to be
  // known for that.
  function goTo(item) {
    item.closest('.piece').classList.add('whole');
    item.scrollIntoView();
    item.tabIndex = -1;
    item.focus({preventScroll: true});
  }

  // open shows the item that the address names: the page around it, where it is not loaded.
  function open() {
    const at = new URLSearchParams(location.search).get('at');
    let name = decodeURIComponent(location.hash.slice(1));
    if (!name && at) name = 'i-' + at;
    if (!name.startsWith('i-') || room.dataset.missing) return;
    const item = get(name) ||
      items.querySelector('[data-result="' + CSS.escape(name) + '"]'); // a result stands in its call
    const wanted = name.slice(2);
    if (!item) {
      if (at === wanted) return say('The thread shows nothing of this entry.');
      return location.replace(path + '?at=' + encodeURIComponent(wanted) + '#' + name);
    }
    follows = false;
    for (let x = item; x !== items; x = x.parentElement) if (x.matches('details')) x.open = true;
    item.querySelector('details')?.setAttribute('open', '');
    goTo(item);
    for (const x of items.querySelectorAll('.linked')) x.classList.remove('linked');
    item.classList.add('linked');
  }

  // ended shows that nothing comes any more.
  function ended(state, why) {
    feed.stop();
    const head = get('head');
    if (state) {
      room.classList.add(state);
      head.dataset.state = head.querySelector('.state').textContent = state;
      head.dataset.ended = now(); // no clock runs
      tick();
    }
    say(why);
  }

  find(path, signal);
  const topic = () => 't/' + room.dataset.thread + '?tasks=' + tasksIn(items).slice(-mostTasks);
  const feed = follow(topic(), {after}, {
    item: (value) => {
      add(value);
      if (value.html.includes('data-child')) feed.move(topic()); // the next connection follows it, too
      if (follows) return trim();
      more.hidden = false;
      trimEnd(); // the rest is loaded when the reader comes to it
    },
    answer: ({html: text}) => answer(text),
    task,
    head: ({html: text, pulse, answering: open, after: end}) => {
      after = end;
      answered(open);
      const [is] = parsed(text), head = get('head');
      attributes(head, is);
      for (const part of ['h1', '.line']) patch(head.querySelector(part), is.querySelector(part));
      write(get('pulse'), pulse);
      tick();
    },
    gone: () => ended('deleted', 'The thread was deleted, or restored. Load the page again.'),
    refused: ({message: why}) => ended('', why),
    far: () => {
      feed.stop();
      if (follows) location.reload(); else say('Many entries have come meanwhile. Load the page again to see them.');
    },
  });

  addEventListener('scroll', () => {
    const end = document.documentElement.scrollHeight - innerHeight; // the browser moves up to it
    if (scrollY < Math.min(top, end) - 2) follows = false;
    if (atEnd()) follows = more.hidden = true;
    top = scrollY;
  }, {passive: true, signal});
  const sizes = new ResizeObserver(() => { if (follows) toEnd(); }); // also once the browser knows a piece's height
  for (const part of [items, answering, room.querySelector('footer')]) sizes.observe(part);
  more.addEventListener('click', () => { follows = more.hidden = true; toEnd(); });
  get('thinking').addEventListener('change', (e) => body.classList.toggle('no-thinking', !e.target.checked));
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    if (e.key === '/') {
      e.preventDefault(); // the browser's own search
      return document.querySelector('#find input').focus();
    }
    const prompts = [...items.querySelectorAll(':scope > .piece > .chat')];
    const y = (x) => x.getBoundingClientRect().top - header.getBoundingClientRect().bottom;
    const to = {
      n: () => prompts.find((x) => y(x) > 4 && x !== document.activeElement), p: () => prompts.findLast((x) => y(x) < -1),
      t: () => { get('thinking').click(); }, e: toEnd,
    }[e.key]?.();
    if (to) goTo(to);
  }, {signal});
  addEventListener('hashchange', open, {signal});
  open();
  titles();
  [...answering.children].forEach(stoppable);
  watch();
  return () => {
    leave.abort();
    feed.stop();
    observer.disconnect();
    sizes.disconnect();
  };
}
