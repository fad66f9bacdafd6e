package cmdline

import "golang.org/x/sys/windows"

// terminalSize reports whether a file is a console, and how many columns and rows it has.
func terminalSize(fd uintptr) (columns, rows int, is bool) {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(fd), &info); err != nil {
		return 0, 0, false
	}
	return int(info.Window.Right-info.Window.Left) + 1, int(info.Window.Bottom-info.Window.Top) + 1, true
}
