// A line is what a browser follows: topics, over one connection for all of its tabs. As a shared worker this file keeps
// the line of all tabs; a page has one of its own where there are no shared workers, or for a thread that is shared.
'use strict';

// newLine returns a line. address returns the path of its answer for its topics; report is called with "away", "back"
// and "refused", and a reason.
function newLine(address, report) {
  const events = ['rows', 'item', 'answer', 'task', 'head', 'gone', 'far', 'refused', 'ready'];
  const last = new Set(['gone', 'far', 'refused']); // a topic's last event
  const firstRetry = 200, lastRetry = 30000, mostTopics = 64;
  const topics = new Map(); // by their keys, the one that was followed last at the end
  let source, timer, away = false, refused = false, retry = firstRetry;

  // path returns the path of a topic at the place up to which the tab has it.
  function path(topic) {
    const [name, query] = topic.path.split('?');
    const values = new URLSearchParams(query);
    for (const at of ['after', 'since']) if (topic[at] !== undefined) values.set(at, topic[at]);
    return name + '?' + values;
  }

  function open() {
    close();
    const all = [...topics.values()].filter((t) => !t.ended).slice(-mostTopics);
    if (!all.length || refused) return;
    const own = source = new EventSource(address(all.map(path)));
    let on = all[0];
    own.addEventListener('on', (e) => { on = all[e.data]; });
    for (const name of events) {
      own.addEventListener(name, (e) => {
        if (own !== source) return;
        retry = firstRetry;
        if (away) report('back');
        away = false;
        const value = JSON.parse(e.data);
        if (value.after !== undefined) on.after = value.after;
        if (name === 'ready' && on.since !== undefined) on.since = value.now;
        on.ended ||= last.has(name);
        if (topics.get(on.key) === on) on.deliver(name, value);
      });
    }
    own.onerror = async () => {
      if (own !== source) return;
      const closed = own.readyState === EventSource.CLOSED;
      again(retry);
      const why = closed ? await refusal(own.url) : '';
      if (why) {
        refused = true;
        clearTimeout(timer);
        return report('refused', why);
      }
      if (retry > firstRetry && !away) { // an answer also ends when it is old
        away = true;
        report('away');
      }
      retry = Math.min(2 * retry, lastRetry);
    };
  }

  // refusal returns why the server gives no answer; '' where that may pass.
  async function refusal(url) {
    const stop = new AbortController();
    try {
      const answer = await fetch(url, {signal: stop.signal});
      if (answer.status < 400 || answer.status >= 500 || answer.status === 429) return '';
      return (await answer.json()).error.message + (answer.status === 401 ? ' Run arbe open again.' : '');
    } catch {
      return '';
    } finally {
      stop.abort();
    }
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function again(ms) {
    close();
    timer = setTimeout(open, ms);
  }

  return {
    // follow adds a topic, or moves the one with its key to another place.
    follow: (key, topic, deliver) => {
      topics.delete(key);
      topics.set(key, {key, deliver, ...topic});
      refused = false;
      again(0);
    },
    // move changes the path of a topic for the next connection.
    move: (key, topic) => { if (topics.has(key)) Object.assign(topics.get(key), topic); },
    stop: (key) => {
      const had = topics.get(key);
      topics.delete(key);
      if (had && !had.ended) again(0);
    },
    // wake tries again now, after a refusal too.
    wake: () => {
      if (source) return;
      refused = false;
      again(0);
    },
    rest: close,
  };
}

// A shared worker has one line for all tabs. Those that have gone without a word are known by their closed ports.
if (!self.document) {
  const ports = new Set();
  const line = newLine((paths) => '/live?' + new URLSearchParams(paths.map((p) => ['on', p])),
    (state, why) => { for (const port of ports) port.postMessage({state, why}); });
  let count = 0;
  self.onconnect = ({ports: [port]}) => {
    const n = count++, keys = new Set();
    ports.add(port);
    const leave = () => {
      for (const key of keys) line.stop(key);
      keys.clear();
    };
    port.onmessage = ({data: {call, id, topic}}) => {
      const key = n + '.' + id;
      if (call === 'follow') {
        keys.add(key);
        return line.follow(key, topic, (name, value) => port.postMessage({id, name, value}));
      }
      if (call === 'move') return line.move(key, topic);
      if (call === 'wake') return line.wake();
      if (call === 'leave') return leave();
      keys.delete(key);
      line.stop(key);
    };
    port.addEventListener('close', () => {
      leave();
      ports.delete(port);
    });
  };
}
