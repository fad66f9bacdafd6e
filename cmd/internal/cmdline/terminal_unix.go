//go:build unix

package cmdline

import "golang.org/x/sys/unix"

// terminalSize reports whether a file is a terminal, and how many columns and rows it has.
func terminalSize(fd uintptr) (columns, rows int, is bool) {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
