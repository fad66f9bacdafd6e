package control

import (
	"context"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/rows"
)

// Vault is the secrets of a database with the keys that seal them. The database gets sealed values alone.
type Vault struct {
	DB     *DB
	Sealer *seal.Sealer
}

// Variable is a secret that an environment injects: an environment variable.
type Variable struct {
	Name  string
	Value seal.Value
}

// Put seals a value and stores it as the secret of this name, in a scope that may write it. It returns seal.ErrEmpty,
// seal.ErrTooLarge, and rows.ErrInvalid for a value with a NUL, which no environment variable can have.
func (v Vault) Put(ctx context.Context, s Scope, house, name string, value []byte) (rows.Secret, error) {
	if strings.ContainsRune(string(value), 0) {
		return rows.Secret{}, rows.Refuse(rows.ErrInvalid, "put secret "+name+": the value").Because("it has a NUL")
	}
	return s.PutSecret(ctx, house, name, func(id string) (Sealed, error) {
		sealed, err := v.Sealer.Seal(seal.Place{House: house, ID: id, Name: name}, value)
		return Sealed{KeyID: seal.KeyOf(sealed), Ciphertext: sealed}, err
	})
}

// Variables returns the secrets that an environment injects, in its order. A secret that the house does not have is
// left out. It returns rows.ErrMissing, with the names, where required ones are missing.
func (v Vault) Variables(ctx context.Context, environment string) ([]Variable, error) {
	bound, err := v.DB.Host().BoundSecrets(ctx, environment)
	if err != nil {
		return nil, err
	}
	var all []Variable
	var missing []string
	for _, b := range bound {
		switch {
		case b.Value != nil:
			value, err := v.Sealer.Open(ctx, placeOf(*b.Value), b.Value.Ciphertext)
			if err != nil {
				return nil, fmt.Errorf("environment %s: %w", environment, err)
			}
			all = append(all, Variable{b.Name, value})
		case b.Required:
			missing = append(missing, b.Name)
		}
	}
	if missing != nil {
		return nil, rows.Refuse(rows.ErrMissing, "environment "+environment).Because(strings.Join(missing, ", "))
	}
	return all, nil
}

// Secret returns the value of a house's secret. It returns rows.ErrAbsent.
func (v Vault) Secret(ctx context.Context, house, name string) (seal.Value, error) {
	sealed, err := v.DB.Host().SealedSecret(ctx, house, name)
	if err != nil {
		return seal.Value{}, err
	}
	return v.Sealer.Open(ctx, placeOf(sealed), sealed.Ciphertext)
}

func placeOf(v Value) seal.Place { return seal.Place{House: v.House, ID: v.ID, Name: v.Name} }

// resealAtOnce is how many values Reseal reads at once.
const resealAtOnce = 100

// Reseal seals each value with the primary key that another key has sealed, one by one, and returns their number. It
// may run while values are put and read, and be repeated where it ended with an error. It reads the keyset first, and
// lasts as long as another process puts values with an older key.
func (v Vault) Reseal(ctx context.Context) (n int, err error) {
	if err := v.Sealer.Read(ctx); err != nil {
		return 0, err
	}
	for {
		old, err := v.DB.Host().SealedByOthers(ctx, v.Sealer.Primary(), resealAtOnce)
		if err != nil || len(old) == 0 {
			return n, err
		}
		for _, value := range old {
			sealed, err := v.Sealer.Reseal(ctx, placeOf(value), value.Ciphertext)
			if err != nil {
				return n, err
			}
			done, err := v.DB.Host().Reseal(ctx, value, Sealed{KeyID: seal.KeyOf(sealed), Ciphertext: sealed})
			if err != nil {
				return n, err
			}
			if done {
				n++
			}
		}
	}
}
