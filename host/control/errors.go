package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"arbe.0sk.ar/runner/host/rows"
)

// Errors of a database that is not this program's.
var (
	ErrOwner = errors.New("another user owns the tables")
	ErrRole  = errors.New("a role is missing")
)

// places are the fields that the constraints check, by the constraints' names in the migrations.
var places = map[string]string{
	"agents_pkey":                "the agent's id",
	"agents_kind":                "the agent's kind",
	"agents_runtime":             "the agent's runtime: bots have one, humans have none",
	"agents_config":              "the bot's settings: a JSON object of at most 64 KiB",
	"agents_owner":               "the house",
	"agents_owned":               "the owning house: bots have one, humans have none",
	"members_pkey":               "the membership",
	"members_house":              "the house",
	"members_agent":              "the agent",
	"members_role":               "the role",
	"members_archive_time":       "the time of leaving",
	"members_config":             "the member's settings: a JSON object of at most 64 KiB",
	"houses_config":              "the house's settings: a JSON object of at most 64 KiB",
	"houses_dispatch_time":       "the time since when bots answer",
	"houses_default_environment": "the default environment",
	"environments_house":         "the house",
	"environments_config":        "the environment's config: a JSON object",
	"environments_archive_time":  "the time of archiving",
	"environments_bindings":      "the environment's secret bindings: a JSON array",
	"secrets_house":              "the house",
	"secrets_house_id_name_key":  "the secret's name",
	"secrets_name":               "the secret's name: that of an environment variable",
	"secret_values_secret":       "the secret",
	"secret_values_time":         "the time of sealing",
	"secret_values_size":         "the size of the sealed value",
	"sandboxes_house":            "the house",
	"sandboxes_environment":      "the environment",
	"sandboxes_times":            "a time of the sandbox",
	"sandboxes_status":           "the sandbox's status",
	"sandbox_holds_sandbox":      "the sandbox",
	"sandbox_holds_holder":       "the holder",
	"threads_house":              "the house",
	"threads_pkey":               "the thread's id",
	"threads_id":                 "the thread's id",
	"threads_stream_id_key":      "the stream",
	"threads_stream":             "the stream: that of the thread",
	"threads_claim_time":         "the time of the claim: not in the future",
	"threads_pin_time":           "the time of the pin",
	"threads_parent":             "the parent thread",
	"threads_parent_agent":       "the parent agent",
	"threads_one_parent":         "the parent: a thread or an agent",
	"threads_environment":        "the environment",
	"threads_sandbox":            "the sandbox",
	"threads_driver":             "the driving agent: a member of the house",
	"threads_status":             "the thread's status",
	"threads_claim":              "the claim: of a driven thread",
	"threads_config":             "the thread's config: a JSON object",
	"threads_task":               "the task: a JSON object, of a driven thread",
	"thread_cache_thread":        "the thread",
	"dispatch_cache_thread":      "the thread",
	"spend_house":                "the house",
	"spend_bot":                  "the bot",
	"spend_reserved":             "the reserved money",
	"spend_spent":                "the spent money",
}

// kinds are the kinds of refusals by SQLSTATE. Others are of the database, and not of a row.
var kinds = map[string]error{
	"23505": rows.ErrTaken, "23503": rows.ErrReference, "23001": rows.ErrInUse, "42501": rows.ErrForbidden,
	"23502": rows.ErrInvalid, "23514": rows.ErrInvalid, "22P02": rows.ErrInvalid, "22001": rows.ErrInvalid,
	"22021": rows.ErrInvalid, "22P05": rows.ErrInvalid, "22003": rows.ErrInvalid, "22007": rows.ErrInvalid,
	"22008": rows.ErrInvalid,
}

// states are the errors of a database that can't be used now, by SQLSTATE. Those that begin with 08 are rows.ErrAway.
var states = map[string]error{
	"40001": rows.ErrBusy, "40P01": rows.ErrBusy, "55P03": rows.ErrBusy, "53300": rows.ErrBusy,
	"57014": rows.ErrTimeout, codeOtherLog: rows.ErrOtherLog,
	"57P01": rows.ErrAway, "57P02": rows.ErrAway, "57P03": rows.ErrAway, "57P05": rows.ErrAway, "25P03": rows.ErrAway,
}

// explained makes an error of the database one of package rows: a refusal about the place that a constraint holds, or
// an error of a database that can't be used now. Values of the row, which the server's details have, stay out, and so
// do the server's codes.
func explained(err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return away(err)
	}
	if kind := kinds[pe.Code]; kind != nil {
		about := places[pe.ConstraintName]
		switch {
		case about != "":
		case strings.HasPrefix(pe.Code, "22"):
			about = "a value" // which the message quotes
		default:
			about = pe.Message
		}
		return rows.Refuse(kind, about)
	}
	if pe.Code == codeNewer {
		return &rows.SchemaError{Kind: rows.ErrNewer, Steps: pe.Message}
	}
	kind := states[pe.Code]
	if strings.HasPrefix(pe.Code, "08") {
		kind = rows.ErrAway
	}
	if kind != nil {
		return fmt.Errorf("%w (%s)", kind, pe.Message)
	}
	if connect := (*pgconn.ConnectError)(nil); errors.As(err, &connect) && connect.Config != nil {
		c := connect.Config
		return fmt.Errorf("connect to the database as %s at %s: %s", c.User, c.Host, pe.Message)
	}
	return errors.New("the database answers: " + pe.Message)
}

// away gives an error of the connection its sentinel.
func away(err error) error {
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled), untrusted(err):
		return err
	case errors.As(err, &connect): // by a limit on time, too
		return fmt.Errorf("%w: %w", rows.ErrAway, err)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	}
	broke := func(by error) bool { return errors.Is(err, by) }
	if pgconn.SafeToRetry(err) || slices.ContainsFunc(broken, broke) {
		return fmt.Errorf("%w: %w", rows.ErrAway, err)
	}
	return err
}

// untrusted reports whether the server's certificate was refused, which waiting does not mend.
func untrusted(err error) bool {
	var verify *tls.CertificateVerificationError // of sslmode=verify-full
	var authority x509.UnknownAuthorityError     // and verify-ca
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &invalid)
}

// broken are the errors of a connection that ended while it was in use.
var broken = []error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE,
}

// isBroken reports whether a connection that was open has ended, in contrast to one that can't be made.
func isBroken(err error) bool {
	var connect *pgconn.ConnectError
	return err != nil && !errors.As(err, &connect) && errors.Is(explained(err), rows.ErrAway)
}

// inUse makes the reference that a deletion would break rows.ErrInUse, with what to do in its place.
func inUse(err error, instead string) error {
	if pe := (*pgconn.PgError)(nil); errors.As(err, &pe) && (pe.Code == "23503" || pe.Code == "23001") {
		text := fmt.Sprintf("%v (%s names it): %s", rows.ErrInUse, pe.TableName, instead)
		return &rows.Refusal{Kind: rows.ErrInUse, Text: text}
	}
	return err
}

// conflicts reports whether a transaction may succeed when it is repeated.
func conflicts(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "40001" || pe.Code == "40P01")
}

// hasParameter reports whether an address sets a parameter.
func hasParameter(address, name string) bool {
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		return u.Query().Has(name)
	}
	return strings.Contains(address, name+"=")
}

// withoutURL drops what pgx quotes of an address, which may have a password.
func withoutURL(err error) error {
	var pe *pgconn.ParseConfigError
	if errors.As(err, &pe) {
		if cause := pe.Unwrap(); cause != nil {
			return cause
		}
	}
	return errors.New("not an address of a Postgres database")
}
