package cmdline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"
)

// The formats of a program's own log.
const (
	LogText   = "text"   // for people: a mark, what happened, why
	LogLogfmt = "logfmt" // key=value
	LogJSON   = "json"
)

// LogFormat returns the flag for the format of a Log.
func LogFormat() cli.Flag {
	return &cli.StringFlag{
		Name: "log-format",
		Usage: "write the log as `FORMAT`: text (for people), logfmt or json (default: text on a terminal, else " +
			"logfmt)",
	}
}

// CheckLogFormat returns a usage error for a --log-format that does not exist.
func CheckLogFormat(c *cli.Context) error {
	switch f := c.String("log-format"); f {
	case "", LogText, LogLogfmt, LogJSON:
		return nil
	default:
		return Usage("--log-format %q: want text, logfmt or json", f)
	}
}

// Log configures a program's own log.
type Log struct {
	Format   string // one of the Log constants; "": LogText on a terminal, else LogLogfmt
	Terminal bool   // the log's reader is a person at a terminal
	Verbose  bool   // log debug messages, too

	// Events are the messages that LogText shows in a form of their own.
	Events map[string]Event
}

// Event returns the line for people of a record. value returns the record's attribute with the key, as text; "" if it
// has none.
type Event func(value func(key string) string) Line

// Line is a log line for people. The zero value is no line.
type Line struct {
	Mark  string   // "" for that of the record's level
	Style string   // argument of the terminal's SGR sequence for Mark and Text; "" for that of the record's level
	Text  string   // what happened
	More  []string // further lines
}

// New returns the log that writes to w.
func (l Log) New(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if l.Verbose {
		o.Level = slog.LevelDebug
	}
	switch {
	case l.Format == LogJSON:
		return slog.New(slog.NewJSONHandler(w, o))
	case l.Format == LogText, l.Format == "" && l.Terminal:
		return slog.New(&textHandler{
			w: w, mu: new(sync.Mutex), level: o.Level, color: l.Terminal && Colored(), events: l.Events,
		})
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Logger returns a log without events of its own.
func Logger(w io.Writer, verbose bool) *slog.Logger {
	_, terminal := Terminal(w)
	return Log{Terminal: terminal, Verbose: verbose}.New(w)
}

// Colored reports whether a terminal of this environment may get colours.
func Colored() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Arguments of the terminal's SGR sequence.
const (
	StyleDim    = "2"
	StyleRed    = "31"
	StyleGreen  = "32"
	StyleYellow = "33"
	styleCyan   = "36"
)

// textHandler writes records for people: a mark by the level, the message, the error, and the other attributes in
// parentheses. It shows the attributes of With in events only: who reads a terminal knows them.
type textHandler struct {
	w      io.Writer
	mu     *sync.Mutex // of w
	level  slog.Leveler
	color  bool
	events map[string]Event
	with   []slog.Attr
}

// Enabled implements slog.Handler.
func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs implements slog.Handler.
func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.with = append(h.with[:len(h.with):len(h.with)], attrs...)
	return &more
}

// WithGroup implements slog.Handler. The programs use no groups: their attributes stay as they are.
func (h *textHandler) WithGroup(string) slog.Handler { return h }

// Handle implements slog.Handler. Each record is one call of Write.
func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	line := h.line(r)
	if line.Text == "" {
		return nil
	}
	mark, style := marks(r.Level)
	if line.Mark != "" {
		mark = line.Mark
	}
	if line.Style != "" {
		style = line.Style
	}
	text := Paint(h.color, style, mark+" "+clean(line.Text)) + "\n"
	for _, more := range line.More {
		text += Paint(h.color, StyleDim, "  "+clean(more)) + "\n"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, text)
	return err
}

// line returns the line of a record.
func (h *textHandler) line(r slog.Record) Line {
	event, known := h.events[r.Message]
	if !known {
		event, known = sharedEvents[r.Message]
	}
	if known {
		return event(func(key string) (text string) {
			take := func(a slog.Attr) bool {
				if a.Key == key {
					text = a.Value.String()
				}
				return true
			}
			for _, a := range h.with {
				take(a)
			}
			r.Attrs(take)
			return text
		})
	}
	text, why := r.Message, ""
	var rest []string
	r.Attrs(func(a slog.Attr) bool {
		switch value := a.Value.String(); {
		case a.Key == "error":
			why = ": " + value
		case value != "":
			rest = append(rest, strings.ReplaceAll(a.Key, "_", " ")+" "+value)
		}
		return true
	})
	if text += why; rest != nil {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return Line{Text: text}
}

// sharedEvents are the events of packages that both programs use.
var sharedEvents = map[string]Event{
	"no answer from the thread server; retrying": func(value func(string) string) Line {
		return Line{Text: fmt.Sprintf("no answer from %s; retrying: %s", value("url"), value("error"))}
	},
	"the thread server answers again": func(value func(string) string) Line {
		return Line{Text: fmt.Sprintf("the thread server answers again, after %s", value("after"))}
	},
}

// marks returns the mark and the style of a level.
func marks(level slog.Level) (mark, style string) {
	switch {
	case level >= slog.LevelError:
		return "✘", StyleRed
	case level >= slog.LevelWarn:
		return "!", StyleYellow
	case level >= slog.LevelInfo:
		return "▸", StyleDim
	}
	return "·", StyleDim
}

// Paint returns text in a style, an argument of the terminal's SGR sequence; as it is without color or a style.
func Paint(color bool, style, text string) string {
	if !color || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// clean returns text as one line without what a terminal obeys.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || r == unicode.ReplacementChar:
			return '·'
		}
		return r
	}, s)
}

// Mark returns the mark of a run's or a thread's state, the same one in every list, log and view of a terminal, and its
// style, an argument of the terminal's SGR sequence. A state is a Status constant of package thread, an Outcome of
// package outcome, or waiting, silent or dead. It returns "?" for another one.
func Mark(state string) (mark, style string) {
	switch state {
	case "idle":
		return "·", StyleDim
	case "running":
		return "●", styleCyan
	case "waiting":
		return "○", styleCyan
	case "silent":
		return "●", StyleYellow
	case "dead":
		return "!", StyleRed
	case "completed":
		return "✔", StyleGreen
	case "failed", "orphaned":
		return "✘", StyleRed
	case "cancelled":
		return "-", StyleYellow
	}
	return "?", StyleDim
}

// Age returns how long ago a time was, in at most 4 characters.
func Age(t, now time.Time) string {
	d := max(0, now.Sub(t))
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 1000*day:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dy", d/(365*day))
}
