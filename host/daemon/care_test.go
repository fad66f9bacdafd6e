package daemon_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/test/output"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// TestServeWithEverything runs a server with TLS, a limit on requests, the access log and the measurements.
func TestServeWithEverything(t *testing.T) {
	dir := t.TempDir()
	roots := certify(t, filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	var log, access output.Buffer
	cfg := daemon.Config{
		Addr: "127.0.0.1:0", Data: daemon.Data(filepath.Join(dir, "data")), Secrets: [][]byte{secret},
		LongPoll: time.Minute, Limits: daemon.Limits{Rate: server.Rate{PerSecond: 0.01, Burst: 3}},
		Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Debug: "127.0.0.1:0",
		Access: &access, Version: "v1", Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	asked := make(chan error, 1)
	cfg.Parts = func(s daemon.Serving) daemon.Parts {
		return daemon.Parts{Beside: func(ctx context.Context) error {
			_, err := (&client.Client{Base: thread.BaseURL(s.URL), Thread: "t1", HTTP: s.HTTP}).Health(ctx)
			asked <- err
			return nil
		}}
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- daemon.Serve(ctx, cfg, func(url string) { ready <- url }) }()
	var url string
	select {
	case url = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Errorf("the server asks itself: %v", err)
	}
	cl := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
	}
	token := writer(t, "t1")
	do := func(method, path, body string) (int, string, *http.Response) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := cl.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp
	}
	const p = "/api/stream/arbe-thread-t1"
	const entry = `{"id":"a","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"nothing-to-log"}}`
	if status, body, resp := do("POST", p, entry); status != 200 || resp.ProtoMajor != 2 {
		t.Errorf("%d over HTTP/%d: %s", status, resp.ProtoMajor, body)
	}
	for i, want := range []int{200, 200, 429} {
		if status, body, resp := do("GET", p+"?offset=0&token="+token, ""); status != want ||
			want == 429 && (resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"code":"rate"`)) {
			t.Errorf("read %d: %d %s", i, status, body)
		}
	}
	_, metrics, _ := do("GET", "/metrics", "")
	for _, line := range []string{
		`arbe_append_entries_total 1`, `arbe_engine_up 1`, `arbe_refused_total{reason="rate"} 1`, `arbe_http_requests_total{code="200",method="POST",route="append"} 1`,
		`arbe_build_info{goversion="`,
	} {
		if !strings.Contains(metrics, "\n"+line) {
			t.Errorf("the measurements lack %s", line)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if got := access.String(); strings.Count(got, `"path":"`+p+`"`) != 4 || !strings.Contains(got, `"status":429`) {
		t.Errorf("the access log is\n%s", got)
	}
	if strings.Contains(metrics, "\narbe_tls_certificate_expiry_timestamp_seconds 0\n") {
		t.Error("the measurements lack the certificate's end")
	}
	for _, text := range []string{access.String(), log.String(), metrics} {
		if strings.Contains(text, "eyJ") || strings.Contains(text, "nothing-to-log") ||
			strings.Contains(text, string(secret)) {
			t.Errorf("a secret or an entry's text is in\n%s", text)
		}
	}
}

// certify writes the certificate of httptest, which is for 127.0.0.1, and its key. It returns the pool to verify it by.
func certify(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	key, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: srv.Certificate().Raw},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return roots
}
