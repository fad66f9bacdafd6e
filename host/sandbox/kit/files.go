package kit

import (
	"path/filepath"

	"github.com/google/uuid"
)

// TempName returns a name beside file for a temporary file that will be renamed to it.
func TempName(file string) string {
	dir, base := filepath.Split(file)
	return dir + ".arbe-" + uuid.NewString()[:8] + "-" + base[:min(len(base), 100)]
}
