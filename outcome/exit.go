package outcome

import (
	"fmt"
	"strconv"
	"strings"
)

// Exit is how a process ended. The zero value says that it is not known.
// At most one of Code and Signal counts: Signal where it is not 0, else Code.
type Exit struct {
	Known  bool
	Code   int // the status that the process gave, 0 to 255
	Signal int // the number of the signal that it died of, 0 for none
}

// ExitCode is the end of a process that returned code by itself.
func ExitCode(code int) Exit { return Exit{Known: true, Code: code} }

// Signalled is the end of a process that died of signal number sig.
func Signalled(sig int) Exit { return Exit{Known: true, Signal: sig} }

// Numbers of the signals that the verdict knows by name, as on Linux.
const (
	sigHUP  = 1
	sigINT  = 2
	sigKILL = 9
	sigTERM = 15
)

// asked reports whether the process ended because it was asked to: TERM, INT or HUP, or the exit status
// that a program gives when it has handled one of them (128+n).
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

// clean reports whether the process ended by itself and with 0.
func (e Exit) clean() bool { return e.Known && e.Signal == 0 && e.Code == 0 }

// killed reports whether the process was killed (KILL, or the status 137 that a shell makes of it).
func (e Exit) killed() bool {
	return e.Known && (e.Signal == sigKILL || e.Signal == 0 && e.Code == 128+sigKILL)
}

// Status is the status with which a program that stands for this process ends: the code, or 128+n for signal n; 1 where it is not known.
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

// Parts is the end as entries and verdicts have it: a code, or the name of a signal, or neither.
func (e Exit) Parts() (code *int, signal *string) {
	switch {
	case !e.Known:
		return nil, nil
	case e.Signal != 0:
		name := SignalName(e.Signal)
		return nil, &name
	default:
		return &e.Code, nil
	}
}

// String says it for people: "exit status 3", "SIGKILL", "unknown".
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
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2",
	13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG",
	24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// SignalName is the name of signal number n, "SIGTERM" for 15; a number without a name is "SIG" and the number.
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
