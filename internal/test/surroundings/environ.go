package surroundings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kept are the variables that the tests have from their user: how Go works on this machine, how the network is reached,
// and what make hands to tests, which CONTRIBUTING.md lists.
var kept = []string{
	"PATH", "PWD", "TMPDIR", "USER", "LOGNAME",
	"GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOENV", "GOFLAGS", "GOTOOLCHAIN", "GOTMPDIR", "GOPROXY", "GONOPROXY",
	"GOPRIVATE", "GOINSECURE", "GOSUMDB", "GONOSUMDB", "GOVCS", "GOAUTH", "GORACE", "GODEBUG", "GOTRACEBACK",
	"GOMAXPROCS", "GOCOVERDIR", "CGO_ENABLED", "CC",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"NODE_EXTRA_CA_CERTS", "UPDATE_SCRIPTS", "BEFORE", "GROWTH",
}

// Knobs are the variables of this project's own that tests read: those that CONTRIBUTING.md lists.
var Knobs = []string{
	"ARBE_CACHE", "ARBE_PG_BIN", "ARBE_SHOTS", "ARBE_CHROMIUM", "ARBE_BIN", "ARBE_FAULTS", "ARBE_SERVER_KILLS",
	"ARBE_NATS_FAULTS", "ARBE_NATS_PARTITIONS", "ARBE_SOAK", "ARBE_SOAK_SEED", "ARBE_CHAOS", "ARBE_CHAOS_SEED",
	"ARBE_LIVE_CHAOS", "ARBE_LIVE_CHAOS_SEED", "ARBE_LIVE_CHAOS_HARNESS", "ARBE_BOTS", "ARBE_BOTS_SEED",
	"ARBE_DISK_ERRORS", "ARBE_DISK_ERRORS_SEED",
	"ARBE_SIEGE", "ARBE_CONFORMANCE", "ARBE_READERS", "ARBE_RESUME_MB", "ARBE_UPLOAD_SECONDS", "ARBE_BEFORE",
	"ARBE_SKEW_REF",
}

// environ returns the environment of the tests, but for HOME and TMPDIR. Where Go and make keep what they have
// downloaded and built follows from the user's home folder, and is set here.
func environ(user []string) []string {
	all := []string{"LC_ALL=C.UTF-8", "TZ=UTC", "GORACE=atexit_sleep_ms=0"}
	env := os.Getenv("GOENV")
	if config, err := os.UserConfigDir(); env == "" && err == nil {
		env = filepath.Join(config, "go", "env")
		all = append(all, "GOENV="+env)
	}
	written, _ := os.ReadFile(env) // by go env -w; mostly there is none
	set := func(name, dir string, err error, base string) {
		if os.Getenv(name) == "" && err == nil && !strings.Contains("\n"+string(written), "\n"+name+"=") {
			all = append(all, name+"="+filepath.Join(dir, base))
		}
	}
	home, err := os.UserHomeDir()
	set("GOPATH", home, err, "go")
	cache, err := os.UserCacheDir()
	set("GOCACHE", cache, err, "go-build")
	set("ARBE_CACHE", cache, err, "arbe-runner")
	for _, kv := range user {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && (slices.Contains(kept, name) || slices.Contains(Knobs, name)) {
			all = append(all, kv)
		}
	}
	return all
}
