package scripts

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/internal/test/wire"
)

// Agents of a test's houses.
const (
	ann = "0a000000-0000-4000-8000-000000000001" // owns h1
	cid = "0c000000-0000-4000-8000-000000000002" // a member of h1
	bob = "0b000000-0000-4000-8000-000000000003" // owns h2
	eve = "0e000000-0000-4000-8000-000000000004" // of no house
	bot = "0d000000-0000-4000-8000-000000000005" // of h1
	alf = "0f000000-0000-4000-8000-000000000006" // a bot of h2
)

// houseRows are the rows of a test's houses.
const houseRows = `
	insert into agents (id, kind, runtime) values ('` + ann + `', 'human', null), ('` + cid + `', 'human', null),
		('` + bob + `', 'human', null), ('` + eve + `', 'human', null), ('` + bot + `', 'bot', 'pi'), ('` + alf + `', 'bot', 'pi');
	insert into houses (id, name) values ('h1', 'one'), ('h2', 'two');
	insert into members (house_id, agent_id, role) values ('h1', '` + ann + `', 'owner'), ('h1', '` + cid + `', 'member'),
		('h1', '` + bot + `', 'member'), ('h2', '` + bob + `', 'owner'), ('h2', '` + alf + `', 'member');
	insert into environments (id, house_id, name) values ('e1', 'h1', 'base'), ('e2', 'h2', 'theirs');
	insert into threads (id, house_id, stream_id, environment_id) values ('t1', 'h1', 't1', 'e1'), ('t2', 'h2', 't2', null);
	insert into threads (id, house_id, stream_id) values ('g1', 'h1', 'g1'), ('g2', 'h1', 'g2')`

// houseServer is an arbe serve on a database with two houses.
type houseServer struct {
	t      *testing.T
	env    []string
	pg     *postgres.Server
	db     string
	url    string
	said   screen // stderr, with the access log
	tokens map[string]string
	cmd    *exec.Cmd
}

func startHouses(t *testing.T) *houseServer {
	t.Helper()
	programs, err := postgres.Find()
	if err != nil {
		t.Fatal(err)
	}
	pg, err := postgres.Start(programs)
	if err != nil {
		t.Fatal(err)
	}
	s := &houseServer{t: t, pg: pg, tokens: map[string]string{"nobody": ""}}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := pg.Template(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if s.db, err = pg.New(t.Context(), "houses"); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "ARBE_DATA="+t.TempDir(), "ARBE_STREAM_URL=", "ARBE_STREAM_TOKEN=",
		"ARBE_DATABASE="+s.db, "ARBE_SECRET_KEYS=")
	s.do("db", "migrate")
	if err := query(s.db, houseRows); err != nil {
		t.Fatal(err)
	}
	s.serve()
	t.Cleanup(s.end)
	for name, agent := range map[string]string{"ann": ann, "cid": cid, "bob": bob, "eve": eve} {
		s.tokens[name] = strings.TrimSpace(s.do("token", "mint", "--scope", "member", "--agent", agent))
	}
	s.tokens["t1"] = strings.TrimSpace(s.do("token", "mint", "--thread", "t1"))
	s.tokens["list"] = strings.TrimSpace(s.do("token", "mint", "--scope", "threads"))
	return s
}

// do runs arbe and returns what it prints.
func (s *houseServer) do(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), arbe, args...)
	cmd.Env = s.env
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, &said)
	}
	return out.String()
}

// serve starts the server, with further flags.
func (s *houseServer) serve(flags ...string) {
	s.t.Helper()
	s.cmd = exec.Command(arbe, append([]string{
		"serve", "--addr", "127.0.0.1:0", "--access-log", "-", "--orphan-after", "1h",
	}, flags...)...)
	s.cmd.Env, s.cmd.Stderr = s.env, &s.said
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	data := ""
	for _, v := range s.env {
		if d, is := strings.CutPrefix(v, "ARBE_DATA="); is {
			data = d
		}
	}
	s.until("the server's address", func() bool {
		b, err := os.ReadFile(filepath.Join(data, "address"))
		s.url = strings.TrimSpace(string(b))
		return err == nil && s.url != ""
	})
}

// end ends the server.
func (s *houseServer) end() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGINT) // it may have ended
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended: %v\n%s", err, &s.said)
	}
	s.cmd = nil
}

func (s *houseServer) until(what string, f func() bool) {
	s.t.Helper()
	for began := time.Now(); !f(); time.Sleep(10 * time.Millisecond) { // between two looks
		if time.Since(began) > 5*time.Minute {
			s.t.Fatalf("waited in vain: %s\n%s", what, &s.said)
		}
	}
}

// ask sends a request as somebody, and holds the answer against docs/openapi.yaml.
func (s *houseServer) ask(who, method, path, body string, header ...string) (status int, answer string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token, known := s.tokens[who]; !known {
		s.t.Fatalf("no token of %s", who)
	} else if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := wire.CheckExchange(wire.Exchange{
		Method: method, Target: path, Body: body, Status: resp.StatusCode, Header: resp.Header, Answer: string(b),
	}); err != nil {
		s.t.Errorf("not as docs/openapi.yaml has it: %v", err)
	}
	for _, of := range []string{
		"SQLSTATE", "create thread:", "change thread ", "delegate from thread ", "list threads:",
	} {
		if strings.Contains(string(b), of) {
			s.t.Errorf("%s %s as %s: the answer has %q of the database: %s", method, path, who, of, b)
		}
	}
	return resp.StatusCode, string(b)
}

// want is ask for a status and, where it is not "", a text of the answer (a regular expression).
func (s *houseServer) want(status int, text, who, method, path, body string, header ...string) string {
	s.t.Helper()
	got, answer := s.ask(who, method, path, body, header...)
	if got != status || !regexp.MustCompile(text).MatchString(answer) {
		s.t.Errorf("%s %s %.200s as %s: %d %s, want %d %s", method, path, body, who, got, answer, status, text)
	}
	return answer
}

// idOf returns the id of an answer.
func (s *houseServer) idOf(answer string) string {
	s.t.Helper()
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &v); err != nil || v.ID == "" {
		s.t.Fatalf("no id: %v in %s", err, answer)
	}
	return v.ID
}
