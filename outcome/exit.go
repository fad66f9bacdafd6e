package outcome

import (
	"fmt"
	"strconv"
	"strings"
)

// Exit is the end of a process. The zero value means unknown. Signal counts if it is not 0, else Code.
type Exit struct {
	Known  bool
	Code   int // the exit status, 0 to 255
	Signal int // the number of the signal that killed the process, 0 for none
}

// ExitCode returns the Exit of a process that exited with code.
func ExitCode(code int) Exit { return Exit{Known: true, Code: code} }

// Signalled returns the Exit of a process that signal number sig killed.
func Signalled(sig int) Exit { return Exit{Known: true, Signal: sig} }

// Linux's numbers of the signals that decide a verdict.
const (
	sigHUP  = 1
	sigINT  = 2
	sigKILL = 9
	sigTERM = 15
)

// asked reports whether the process ended because it was asked to: by TERM, INT or HUP, or with the exit status of a
// program that has handled one of them (128+n).
func (e Exit) asked() bool {
	if !e.Known {
		return false
	}
	n := e.Signal
	if n == 0 {
		n = e.Code - 128
	}
	return n == sigTERM || n == sigINT || n == sigHUP
}

// clean reports whether the process exited with 0.
func (e Exit) clean() bool { return e.Known && e.Signal == 0 && e.Code == 0 }

// killed reports whether the process was killed: by KILL, or with a shell's status for that, 137.
func (e Exit) killed() bool {
	return e.Known && (e.Signal == sigKILL || e.Signal == 0 && e.Code == 128+sigKILL)
}

// Status returns the exit status for a program that reports this Exit as its own: the code, 128+n for signal n, 1 if
// unknown.
func (e Exit) Status() int {
	switch {
	case !e.Known:
		return 1
	case e.Signal != 0:
		return 128 + e.Signal
	default:
		return e.Code
	}
}

// Parts returns the code or the signal's name, as entries and verdicts carry them; neither if unknown.
func (e Exit) Parts() (code *int, signal *string) {
	switch {
	case !e.Known:
		return nil, nil
	case e.Signal != 0:
		return nil, new(SignalName(e.Signal))
	default:
		return &e.Code, nil
	}
}

// String returns the Exit for people: "exit status 3", "SIGKILL", "unknown".
func (e Exit) String() string {
	switch {
	case !e.Known:
		return "unknown"
	case e.Signal != 0:
		return SignalName(e.Signal)
	default:
		return fmt.Sprintf("exit status %d", e.Code)
	}
}

// signalNames are the Linux signals by number, the same on amd64 and arm64.
var signalNames = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
	11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP",
	20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH",
	29: "IO", 30: "PWR", 31: "SYS",
}

// SignalName returns the name of signal number n: "SIGTERM" for 15, and "SIG" and the number where it has no name.
func SignalName(n int) string {
	if n > 0 && n < len(signalNames) {
		return "SIG" + signalNames[n]
	}
	return "SIG" + strconv.Itoa(n)
}

// ParseSignal is the inverse of SignalName. It also takes the name without SIG, in any case, and the bare number.
func ParseSignal(name string) (int, error) {
	s := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return n, nil
	}
	for n, known := range signalNames {
		if known == s && s != "" {
			return n, nil
		}
	}
	return 0, fmt.Errorf("unknown signal %q", name)
}
