// What each page does.

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
  location.replace(kind === 'login' ? '/' : location.href);
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
      for (const open of form.querySelectorAll('details[open]')) open.open = false;
      if (code) {
        form.querySelector('output').textContent = location.origin + '/share#' + code + ' (until ' + expiresAt + ')';
      }
      const done = code ? 'Everyone who has the link can read this thread.' :
        revoked === undefined ? note || 'Posted.' : revoked + (revoked === 1 ? ' link' : ' links') + ' revoked.';
      say(done, !note);
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

// Panels close where the reader goes on elsewhere.
addEventListener('click', (e) => {
  for (const open of document.querySelectorAll(':is(.menu, .stopping)[open]')) {
    if (!open.contains(e.target)) open.open = false;
  }
});
addEventListener('keydown', (e) => {
  if (e.key !== 'Escape') return;
  for (const open of document.querySelectorAll(':is(.menu, .stopping)[open]')) {
    open.open = false;
    open.querySelector('summary').focus();
  }
});

// composer makes Enter send what is typed, where there is a keyboard with a key beside it for a new line.
function composer() {
  addEventListener('keydown', (e) => {
    const form = e.target.closest?.('.say');
    if (!form || e.target.localName !== 'textarea' || e.key !== 'Enter' || e.isComposing) return;
    if (e.shiftKey || e.altKey || !(e.ctrlKey || e.metaKey || !matchMedia('(pointer: coarse)').matches)) return;
    e.preventDefault();
    form.requestSubmit();
  });
}

// side shows the list beside a thread, on a screen that is wide enough.
function side() {
  const nav = get('side'), wide = matchMedia('(min-width: 64rem)');
  if (!nav) return;
  async function show() {
    if (!wide.matches || get('threads')) return;
    const since = now(), answer = await fetch('/?side').catch(() => null);
    if (!answer?.ok || get('threads')) return;
    nav.append(...parsed(await answer.text()));
    leaveList = list(new URLSearchParams(), since);
    filters(nav.querySelector('form'));
    current();
  }
  wide.addEventListener('change', show);
  show();
}

// current marks the thread that is shown in the list.
function current() {
  for (const a of document.querySelectorAll('#threads [aria-current]')) a.removeAttribute('aria-current');
  get('t-' + get('room').dataset.thread)?.querySelector('.title').setAttribute('aria-current', 'page');
}

// go shows another thread in place of the one that is shown, beside the list.
let leaveThread, going = new AbortController(), shownPath = location.pathname;
async function go(href, push) {
  going.abort();
  going = new AbortController();
  const {signal} = going;
  try {
    const answer = await fetch(href, {signal, headers: {Accept: 'text/html'}});
    const t = document.createElement('template');
    t.innerHTML = html.createHTML(await answer.text());
    const room = t.content.querySelector('#room');
    if (signal.aborted) return;
    if (!answer.ok || !room) return location.assign(href);
    leaveThread();
    if (push) history.pushState(null, '', href);
    shownPath = location.pathname;
    clocks(room);
    get('room').replaceWith(room);
    scrollTo(0, 0);
    leaveThread = thread();
    current();
    tick();
  } catch {
    if (!signal.aborted) location.assign(href);
  }
}
function walk() {
  get('side')?.addEventListener('click', (e) => {
    const a = e.target.closest('#threads a[href^="/t/"]');
    if (!a || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || e.defaultPrevented) return;
    e.preventDefault();
    go(a.href, true);
  });
  addEventListener('popstate', () => { if (location.pathname !== shownPath) go(location.href, false); });
}

switch (kind) {
  case 'login':
    login();
    addEventListener('hashchange', login);
    break;
  case 'problem':
    if (body.dataset.login) resume();
    break;
  case 'list': {
    const form = document.querySelector('.filter');
    leaveList = list(filterOf(form), Number(body.dataset.now));
    filters(form, (query) => history.replaceState(null, '', '/' + (query.size ? '?' + query : '')));
    break;
  }
  case 'thread':
    clocks(document);
    forms();
    composer();
    leaveThread = thread();
    walk();
    side();
    tick();
}
