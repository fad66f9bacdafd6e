package control

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// Sealed is a secret's value as it is stored: bytes that only the key named KeyID opens.
type Sealed struct {
	KeyID      string
	Ciphertext []byte
}

// Value is the sealed value of a secret.
type Value struct {
	ID         string
	House      string
	Name       string
	KeyID      string
	Ciphertext []byte
}

const (
	secretColumns = `id, house_id as house, name, created_at`
	valueColumns  = `s.id, s.house_id as house, s.name, v.key_id, v.ciphertext`
)

// PutSecret makes a secret or replaces its value. Only owners may. seal seals the value for the secret's id; it may be
// called several times.
func (s Scope) PutSecret(
	ctx context.Context, house, name string, seal func(id string) (Sealed, error),
) (v rows.Secret, err error) {
	err = s.tx(ctx, "put secret "+name, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into secrets (house_id, name) values ($1, $2)
			on conflict (house_id, name) do nothing`, house, name)
		if err != nil {
			return err
		}
		v, err = one[rows.Secret](ctx, tx, "secret",
			`select `+secretColumns+` from secrets where house_id = $1 and name = $2`, house, name)
		if err != nil {
			return err
		}
		sealed, err := seal(v.ID)
		if err != nil {
			return err
		}
		return exec(ctx, tx, "secret", `
			insert into secret_values (house_id, secret_id, ciphertext, key_id) values ($1, $2, $3, $4)
			on conflict (house_id, secret_id) do update
			set ciphertext = $3, key_id = $4, updated_at = now()`, // excluded would have to be readable
			house, v.ID, sealed.Ciphertext, sealed.KeyID)
	})
	return v, err
}

// Secrets returns a house's secrets, by name, at most mostListed.
func (s Scope) Secrets(ctx context.Context, house string) ([]rows.Secret, error) {
	return list[rows.Secret](ctx, s, "list secrets of house "+house,
		`select `+secretColumns+` from secrets where house_id = $1 order by name limit $2`, house, mostListed)
}

// DeleteSecret deletes a secret. Environments that name it keep their bindings. Only owners may.
func (s Scope) DeleteSecret(ctx context.Context, house, name string) error {
	return s.tx(ctx, "delete secret "+name, func(tx pgx.Tx) error {
		err := exec(ctx, tx, "secret", `delete from secrets where house_id = $1 and name = $2`, house, name)
		if !errors.Is(err, rows.ErrAbsent) {
			return err
		}
		// Row level security hides from a deletion what only owners may delete.
		seen, seeErr := column[bool](ctx, tx, `select true from secrets where house_id = $1 and name = $2`, house, name)
		if seeErr == nil && len(seen) > 0 {
			return rows.Refuse(rows.ErrForbidden, "secret")
		}
		return errors.Join(err, seeErr)
	})
}

// Bound is a secret that an environment injects.
type Bound struct {
	rows.Binding
	Value *Value // nil where the house has no such secret
}

// BoundSecrets returns the sealed values that an environment injects, in its order. The host alone may.
func (s Scope) BoundSecrets(ctx context.Context, environment string) (all []Bound, err error) {
	err = s.tx(ctx, "read secrets of environment "+environment, func(tx pgx.Tx) error {
		e, err := one[rows.Environment](ctx, tx, "environment", environmentByID, environment)
		if err != nil {
			return err
		}
		names := []string{}
		for _, b := range e.Bindings {
			names = append(names, b.Name)
		}
		values, err := many[Value](ctx, tx, `select `+valueColumns+` from secrets s
			join secret_values v on v.house_id = s.house_id and v.secret_id = s.id
			where s.house_id = $1 and s.name = any ($2)`, e.House, names)
		if err != nil {
			return err
		}
		byName := map[string]*Value{}
		for i := range values {
			byName[values[i].Name] = &values[i]
		}
		all = nil
		for _, b := range e.Bindings {
			all = append(all, Bound{b, byName[b.Name]})
		}
		return nil
	})
	return all, err
}

// SealedSecret returns the sealed value of a house's secret. The host alone may.
func (s Scope) SealedSecret(ctx context.Context, house, name string) (Value, error) {
	return fetch[Value](ctx, s, "read secret "+name, "secret "+name, `select `+valueColumns+` from secrets s
		join secret_values v on v.house_id = s.house_id and v.secret_id = s.id
		where s.house_id = $1 and s.name = $2`, house, name)
}

// SealedByOthers returns at most limit values that another key than keyID has sealed. The host alone may.
func (s Scope) SealedByOthers(ctx context.Context, keyID string, limit int) ([]Value, error) {
	return list[Value](ctx, s, "list sealed values", `select `+valueColumns+` from secrets s
		join secret_values v on v.house_id = s.house_id and v.secret_id = s.id
		where v.key_id <> $1 order by s.id limit $2`, keyID, limit)
}

// Reseal replaces a sealed value by the same value sealed by another key. It returns false where the value was replaced
// or deleted since. The host alone may.
func (s Scope) Reseal(ctx context.Context, was Value, now Sealed) (done bool, err error) {
	return change(ctx, s, "reseal secret "+was.ID, `update secret_values set ciphertext = $4, key_id = $5
		where house_id = $1 and secret_id = $2 and ciphertext = $3`,
		was.House, was.ID, was.Ciphertext, now.Ciphertext, now.KeyID)
}
