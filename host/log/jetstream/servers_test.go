package jetstream_test

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/internal/test/port"
)

// cluster is three servers. The last one is a process of its own, which can be killed.
type cluster struct {
	t       testing.TB
	opts    []*server.Options
	servers [2]*server.Server
	killed  *process
}

func startCluster(t testing.TB) *cluster {
	c := &cluster{t: t}
	var routes []*url.URL
	var ports []int
	for range 3 {
		for range 2 { // of clients, of routes
			ports = append(ports, enginetest.Must(net.ResolveTCPAddr("tcp", port.Reserve(t)))(t).Port)
		}
		routes = append(routes, enginetest.Must(url.Parse(fmt.Sprintf("nats://127.0.0.1:%d", ports[len(ports)-1])))(t))
	}
	for i := range 3 {
		c.opts = append(c.opts, &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: ports[2*i], NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[2*i+1]}, Routes: routes,
		})
	}
	for i := range c.servers {
		c.servers[i] = runServer(t, c.opts[i])
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			stopServer(s)
		}
		c.killed.kill()
	})
	c.killed = startProcess(t, c.opts[2])
	enginetest.Until(t, func() bool { // there is no place for three replicas before all have met
		e, err := jetstream.Open(t.Context(), c.config(0))
		return err == nil && e.Close() == nil
	})
	return c
}

// config prefers node i, as its server is named first.
func (c *cluster) config(i int) jetstream.Config {
	var urls []string
	for j := range c.opts {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", c.opts[(i+j)%3].Port))
	}
	return jetstream.Config{URL: strings.Join(urls, ","), Shards: 3, Logger: enginetest.Logger(c.t)}
}

// replace stops server i, waits for what is to happen without it, and starts it again.
func (c *cluster) replace(i int, meanwhile func()) {
	if i < len(c.servers) {
		stopServer(c.servers[i])
		meanwhile()
		c.servers[i] = runServer(c.t, c.opts[i])
		return
	}
	c.killed.kill()
	meanwhile()
	c.killed = startProcess(c.t, c.opts[i])
}

// whole reports whether all replicas of all shards are up to date.
func (c *cluster) whole(js natsjs.JetStream) bool {
	for shard := range 3 {
		s, err := js.Stream(c.t.Context(), fmt.Sprint("ARBE-", shard))
		if err != nil {
			return false
		}
		at := s.CachedInfo().Cluster
		if at.Leader == "" || len(at.Replicas) != 2 || slices.ContainsFunc(at.Replicas, func(p *natsjs.PeerInfo) bool { return !p.Current || p.Offline }) {
			return false
		}
	}
	return true
}

// lead makes server i the leader of a shard.
func (c *cluster) lead(js natsjs.JetStream, shard, i int) {
	enginetest.Until(c.t, func() bool {
		if s, err := js.Stream(c.t.Context(), fmt.Sprint("ARBE-", shard)); err == nil && s.CachedInfo().Cluster.Leader == fmt.Sprint("n", i) {
			return true
		}
		body := fmt.Sprintf(`{"placement":{"preferred":"n%d"}}`, i)
		_, err := js.Conn().Request(fmt.Sprint("$JS.API.STREAM.LEADER.STEPDOWN.ARBE-", shard), []byte(body), 2*time.Second)
		return err != nil && c.t.Context().Err() != nil // else it is seen the next time
	})
}

// process is a server in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

const processEnv = "ARBE_TEST_NATS_SERVER"

func startProcess(t testing.TB, opts *server.Options) *process {
	t.Helper()
	var routes []string
	for _, r := range opts.Routes {
		routes = append(routes, r.String())
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServer$")
	cmd.Env = append(os.Environ(), processEnv+"="+strings.Join([]string{
		opts.ServerName, strconv.Itoa(opts.Port), opts.StoreDir, strconv.Itoa(opts.Cluster.Port), strings.Join(routes, ","),
	}, "|"))
	p := &process{cmd: cmd, stdin: enginetest.Must(cmd.StdinPipe())(t)}
	out := enginetest.Must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		p.kill()
		t.Fatal(err)
	}
	return p
}

// kill leaves the server no time for a farewell.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()         // says that it was killed
	_ = p.stdin.Close()
}

// TestServer is no test, but the server that startProcess starts. It ends with its parent.
func TestServer(t *testing.T) {
	of := strings.Split(os.Getenv(processEnv), "|")
	if len(of) != 5 {
		return
	}
	port, clusterPort := enginetest.Must(strconv.Atoi(of[1]))(t), enginetest.Must(strconv.Atoi(of[3]))(t)
	var routes []*url.URL
	for r := range strings.SplitSeq(of[4], ",") {
		routes = append(routes, enginetest.Must(url.Parse(r))(t))
	}
	s := runServer(t, &server.Options{
		ServerName: of[0], Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: of[2], SyncAlways: true,
		Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: clusterPort}, Routes: routes,
	})
	defer stopServer(s)
	fmt.Print("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is closed
}
