package rows

import (
	"errors"
	"fmt"
)

// Kinds of refusals: the rows are read, and do not allow what is asked.
var (
	ErrAbsent    = errors.New("no such row in this scope")
	ErrTaken     = errors.New("taken")
	ErrReference = errors.New("not in this house")
	ErrInUse     = errors.New("in use")
	ErrInvalid   = errors.New("not valid")
	ErrForbidden = errors.New("not allowed")
	ErrArchived  = errors.New("archived")
	ErrLastOwner = errors.New("the house's last owner")
	ErrRunning   = errors.New("a run has the thread")
	ErrDeadBox   = errors.New("the thread's sandbox is dead")
	ErrMissing   = errors.New("a required secret is missing")
	ErrNoKeys    = errors.New("this server has no keys for secrets: start it with --secret-keys")
	ErrNoRecipe  = errors.New("neither the thread nor its house has an environment")
	ErrNoBot     = errors.New("the house has no bot of this harness")
	ErrNoSandbox = errors.New("the parent has no sandbox")
	ErrLocal     = errors.New("local boxes are not for tasks of members here")
	ErrClosed    = errors.New("the thread is closed: open it again to delegate from it")
	ErrBudget    = errors.New("a budget is used up")
	ErrLost      = errors.New("another host has the task")
)

// Errors of rows that can't be read. After the first three a call may be repeated.
var (
	ErrAway     = errors.New("the database is away")
	ErrBusy     = errors.New("the database is busy")
	ErrTimeout  = errors.New("the database took too long")
	ErrOtherLog = errors.New("the database is of another log; arbe db adopt moves it to this one")
	ErrOlder    = errors.New("the database has to be migrated: run arbe db migrate")
	ErrNewer    = errors.New("a newer arbe has migrated the database: upgrade this one")
)

// SchemaError is ErrOlder or ErrNewer with the steps of the schema that differ.
type SchemaError struct {
	Kind  error
	Steps string // "its schema is 12 of 14, and lacks 00013_a.sql, 00014_b.sql"
}

// Error implements error.
func (e *SchemaError) Error() string { return fmt.Sprintf("%v (%s)", e.Kind, e.Steps) }

// Unwrap returns the kind.
func (e *SchemaError) Unwrap() error { return e.Kind }

// IsAway reports whether the rows may be read later.
func IsAway(err error) bool {
	return errors.Is(err, ErrAway) || errors.Is(err, ErrBusy) || errors.Is(err, ErrTimeout)
}

// IsUnserved reports whether rows can't be read now, and can be later in the same process: the database is away, or its
// operator has to migrate or adopt it.
func IsUnserved(err error) bool {
	return IsAway(err) || errors.Is(err, ErrOtherLog) || errors.Is(err, ErrOlder) || errors.Is(err, ErrNewer)
}

// Present returns nil for ErrAbsent, else err.
func Present(err error) error {
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	return err
}

// Refusal is an error of one of the kinds, with a text for the caller: it has no value of a row, and nothing of the
// database.
type Refusal struct {
	Kind error
	Text string
}

// Refuse returns a refusal about something: "the thread's id: taken".
func Refuse(kind error, about string) *Refusal { return &Refusal{kind, about + ": " + kind.Error()} }

// Because returns the refusal with its reason: "the driving agent: not valid: it is no bot".
func (r *Refusal) Because(why string) *Refusal { return &Refusal{r.Kind, r.Text + ": " + why} }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }
