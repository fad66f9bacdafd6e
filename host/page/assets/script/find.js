// find lists the items of a thread that have a text. It searches on by itself until the list is long, and then as its
// reader comes to the list's end. The text stays in the address, so that the list is there again where one of its links
// leads to.
const fullList = 50;
function find(path, signal) {
  const form = get('find'), list = get('found'), input = form.querySelector('input');
  const count = list.querySelector('p');
  let running = new AbortController();
  const observer = new IntersectionObserver((seen) => {
    for (const s of seen) if (s.isIntersecting) load(s.target.querySelector('a').href, s.target);
  }, {root: list, rootMargin: '200px'});
  async function load(href, link) {
    const {signal} = running;
    observer.disconnect();
    count.textContent = 'Searching…';
    try {
      const answer = await fetch(href, {signal});
      if (!answer.ok) return count.textContent = await message(answer);
      const added = parsed(await answer.text());
      if (signal.aborted) return;
      link?.remove();
      list.append(...added);
    } catch {
      if (!signal.aborted) count.textContent = 'The server does not answer.';
      return;
    }
    const further = list.querySelector('.further'), n = list.querySelectorAll('li').length;
    if (further && n < fullList) return load(further.querySelector('a').href, further);
    count.textContent = n + (n === 1 ? ' item' : ' items') + ' found' + (further ? ' so far.' : '.');
    if (further) observer.observe(further);
  }
  function start() {
    running.abort();
    running = new AbortController();
    for (const old of list.querySelectorAll('section')) old.remove();
    list.hidden = false;
    return load(path + '/find?q=' + encodeURIComponent(input.value));
  }
  function close() {
    running.abort();
    list.hidden = true;
  }
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    start();
  });
  input.addEventListener('input', () => { if (!input.value) close(); });
  for (const part of [form, list]) {
    part.addEventListener('keydown', (e) => {
      if (e.key !== 'Escape') return;
      close();
      input.blur();
    });
  }
  signal.addEventListener('abort', close);
  input.value = new URLSearchParams(location.search).get('q') || '';
  if (input.value) start();
}
