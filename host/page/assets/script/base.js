// What all scripts of the page share. They show what the server has rendered.
'use strict';

const html = window.trustedTypes
  ? trustedTypes.createPolicy('arbe', { // for the server's own HTML, and its own worker, alone
    createHTML: (s) => s, createScriptURL: (s) => s,
  })
  : {createHTML: (s) => s, createScriptURL: (s) => s};
const feedScript = document.currentScript.dataset.feed;
const body = document.body;
const kind = body.dataset.page;
const offset = body.dataset.now ? body.dataset.now - Date.now() : 0; // of the server's clock
const now = () => Date.now() + offset;
const get = (id) => document.getElementById(id);
const tell = (text) => { get('news').textContent = text; }; // to readers of the screen alone

// say shows a message. One that only reports success goes by itself.
let saying;
function say(text, passing) {
  const status = get('status');
  clearTimeout(saying);
  if (status.textContent !== text) status.textContent = text;
  if (passing) saying = setTimeout(() => { if (status.textContent === text) status.textContent = ''; }, 6000);
}

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

// parsed returns the elements in the server's HTML.
function parsed(text) {
  const t = document.createElement('template');
  t.innerHTML = html.createHTML(text);
  clocks(t.content);
  return [...t.content.children];
}

// patch makes an element's content that of another one, where they differ.
function patch(old, is) {
  if (old && is && old.innerHTML !== is.innerHTML) old.replaceChildren(...is.childNodes);
}

// attributes makes an element's attributes those of another one.
function attributes(old, is) {
  for (const {name, value} of is.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}
