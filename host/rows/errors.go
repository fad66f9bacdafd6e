package rows

import "errors"

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
	ErrLost      = errors.New("another host has the task")
)

// Errors of rows that can't be read. After the first three a call may be repeated.
var (
	ErrAway     = errors.New("the database is away")
	ErrBusy     = errors.New("the database is busy")
	ErrTimeout  = errors.New("the database took too long")
	ErrOtherLog = errors.New("the database is of another log; arbe db adopt moves it to this one")
)

// IsAway reports whether the rows may be read later.
func IsAway(err error) bool {
	return errors.Is(err, ErrAway) || errors.Is(err, ErrBusy) || errors.Is(err, ErrTimeout)
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
