package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	of "arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// What houses spend is for tokens of the list of all threads: others get the other measurements.
func TestMetricsOfHouses(t *testing.T) {
	m := metrics.New("test", nil, "")
	s := &testServer{t: t, dir: t.TempDir(), with: func(h *server.Server) { h.Metrics = m }}
	s.open()
	t.Cleanup(s.close)
	ctx, cancel := context.WithCancel(t.Context())
	check := m.OfMoney(func(context.Context) ([]of.Spent, error) {
		cancel()
		return []of.Spent{{House: "h1", Spent: 1}}, nil
	})
	if err := check(ctx); err != nil {
		t.Fatal(err)
	}
	list := token.Grant{Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}}
	house, scopeless := list, list
	house.House, scopeless.Scope = "h1", []string{token.ScopeRead}
	all := mint(t, list)
	for name, tt := range map[string]struct {
		token string
		want  bool
	}{
		"of the list":                   {all, true},
		"of the list of a house":        {mint(t, house), false},
		"of the list, of another scope": {mint(t, scopeless), false},
		"of a thread":                   {writer(t, "t1"), false},
		"of a thread's reader": {
			mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeThreads}}), false,
		},
		"of another secret": {all[:len(all)-4] + "AAAA", false},
		"none":              {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.do(http.MethodGet, "/metrics", tt.token, "")
			has := strings.Contains(got.body, `arbe_house_spent_dollars{house="h1"} 1e-06`)
			if got.status != http.StatusOK || has != tt.want || !strings.Contains(got.body, "arbe_build_info") {
				t.Errorf("%d, has the house's: %v", got.status, has)
			}
		})
	}
}
