package harness_test

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
)

// Without HOME the agents use their account's home, and so do we.
func TestHomeOfTheAccount(t *testing.T) {
	account, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		t.Skipf("this account is not in the list of accounts: %v", err)
	}
	at := time.Now()
	for _, vars := range []map[string]string{{}, {"HOME": ""}} {
		for name, below := range map[string]string{"codex": ".codex/sessions", "claude-code": ".claude/projects"} {
			file := spec(t, name).SessionFile(boxWith(vars), "id-1", at)
			if rel, err := filepath.Rel(filepath.Join(account.HomeDir, below), file); err != nil ||
				!filepath.IsLocal(rel) {
				t.Errorf("%s: %s is not below %s/%s", name, file, account.HomeDir, below)
			}
		}
	}
	if got := harness.Home(func(string) string { return "/h" }); got != "/h" {
		t.Errorf("with HOME it is %s", got)
	}
}
