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
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/port"
)

// cluster is three servers, of which the last is a process of its own, to be killed.
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
		c.opts = append(c.opts, clustered(fmt.Sprint("n", i), t.TempDir(), ports[2*i], ports[2*i+1], routes))
	}
	for i := range c.servers {
		c.servers[i] = enginetest.Must(natsserver.Run(c.opts[i]))(t)
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			natsserver.Stop(s)
		}
		c.killed.kill()
	})
	c.killed = startProcess(t, c.opts[2])
	enginetest.Until(t, func() bool { // until the servers have met, three replicas are refused
		e, err := jetstream.Open(t.Context(), c.config(0))
		return err == nil && e.Close() == nil
	})
	return c
}

// clustered are the options of a server of a cluster.
func clustered(name, dir string, port, routePort int, routes []*url.URL) *server.Options {
	opts := natsserver.Options(dir)
	opts.ServerName, opts.Port, opts.Routes = name, port, routes
	opts.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: routePort}
	return opts
}

// config names server i first, so that the engine prefers it.
func (c *cluster) config(i int) jetstream.Config {
	var urls []string
	for j := range c.opts {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", c.opts[(i+j)%3].Port))
	}
	return jetstream.Config{URL: strings.Join(urls, ","), Shards: 3, Logger: enginetest.Logger(c.t)}
}

// replace stops server i, calls meanwhile, and starts it again.
func (c *cluster) replace(i int, meanwhile func()) {
	if i < len(c.servers) {
		natsserver.Stop(c.servers[i])
		meanwhile()
		c.servers[i] = enginetest.Must(natsserver.Run(c.opts[i]))(c.t)
		return
	}
	c.killed.kill()
	meanwhile()
	c.killed = startProcess(c.t, c.opts[i])
}

// whole reports whether all replicas of all shards are current.
func (c *cluster) whole(js natsjs.JetStream) bool {
	for shard := range 3 {
		s, err := js.Stream(c.t.Context(), fmt.Sprint("ARBE-", shard))
		if err != nil {
			return false
		}
		at := s.CachedInfo().Cluster
		if at.Leader == "" || len(at.Replicas) != 2 ||
			slices.ContainsFunc(at.Replicas, func(p *natsjs.PeerInfo) bool { return !p.Current || p.Offline }) {
			return false
		}
	}
	return true
}

// lead makes server i the leader of a shard.
func (c *cluster) lead(js natsjs.JetStream, shard, i int) {
	enginetest.Until(c.t, func() bool {
		if s, err := js.Stream(c.t.Context(), fmt.Sprint("ARBE-", shard)); err == nil &&
			s.CachedInfo().Cluster.Leader == fmt.Sprint("n", i) {
			return true
		}
		body := fmt.Sprintf(`{"placement":{"preferred":"n%d"}}`, i)
		_, err := js.Conn().
			Request(fmt.Sprint("$JS.API.STREAM.LEADER.STEPDOWN.ARBE-", shard), []byte(body), 2*time.Second)
		return err != nil && c.t.Context().Err() != nil // else the next look finds it
	})
}

// process is a server that runs in a process of its own.
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
		opts.ServerName, strconv.Itoa(opts.Port), opts.StoreDir, strconv.Itoa(opts.Cluster.Port),
		strings.Join(routes, ","),
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

// kill ends the server without a shutdown.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // returns that it was killed
	_ = p.stdin.Close()
}

// TestServer is the server that startProcess starts. It ends when its parent does.
func TestServer(t *testing.T) {
	of := strings.Split(os.Getenv(processEnv), "|")
	if len(of) != 5 {
		return // runs only as the helper process of TestCluster
	}
	port, clusterPort := enginetest.Must(strconv.Atoi(of[1]))(t), enginetest.Must(strconv.Atoi(of[3]))(t)
	var routes []*url.URL
	for r := range strings.SplitSeq(of[4], ",") {
		routes = append(routes, enginetest.Must(url.Parse(r))(t))
	}
	s := enginetest.Must(natsserver.Run(clustered(of[0], of[2], port, clusterPort, routes)))(t)
	defer natsserver.Stop(s)
	fmt.Print("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is closed
}
