// follow follows a topic, and calls the listener of each of its events. All tabs of a browser share one connection, by
// the shared worker of feed.js. A page of a shared thread has one of its own, and so has a tab of a browser without
// shared workers; it rests while the tab is hidden.
const away = 'The server is away. Trying again…';
function heard(state, why) {
  if (state === 'away') say(away);
  else if (state === 'refused') say(why);
  else if (get('status').textContent === away) say('');
}

const shared = kind === 'thread' && !get('side');
let port, line, topicCount = 0;
const listeners = new Map();

function connect() {
  if (port || line) return;
  if (!shared && window.SharedWorker) {
    const worker = new SharedWorker(html.createScriptURL(feedScript));
    worker.onerror = () => { // as where the script can't be loaded
      port = null;
      connectAlone();
      for (const {id, topic} of listeners.values()) line.follow(id, topic, (name, value) => hand(id, name, value));
    };
    port = worker.port;
    port.onmessage = ({data: {id, name, value, state, why}}) => state ? heard(state, why) : hand(id, name, value);
    addEventListener('pagehide', () => port?.postMessage({call: 'leave'}));
    addEventListener('pageshow', (e) => {
      if (e.persisted) for (const {id, topic} of listeners.values()) port?.postMessage({call: 'follow', id, topic});
    });
  } else {
    connectAlone();
  }
  const wake = () => port ? port.postMessage({call: 'wake'}) : line.wake();
  addEventListener('online', wake); // a laptop woke up
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) wake();
    else line?.rest();
  });
}

function connectAlone() {
  line = newLine((paths) => shared ? '/' + paths[0].replace('?', '/live?')
    : '/live?' + new URLSearchParams(paths.map((p) => ['on', p])), heard);
}

function hand(id, name, value) {
  const one = listeners.get(id);
  if (!one) return;
  if (value.after !== undefined) one.topic.after = value.after; // for a page that comes back
  if (name === 'refused') say(value.message);
  one.on[name]?.(value);
}

function follow(path, at, on) {
  connect();
  const id = topicCount++, topic = {path, ...at};
  listeners.set(id, {id, topic, on});
  const send = (call, topic) => {
    if (port) port.postMessage({call, id, topic});
    else line[call](id, topic, (name, value) => hand(id, name, value));
  };
  send('follow', topic);
  return {
    move: (path) => { topic.path = path; send('move', {path}); }, // for the next connection
    again: (path, at) => { Object.assign(topic, {path, ...at}); send('follow', topic); },
    stop: () => { listeners.delete(id); send('stop'); },
  };
}
