package control_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/rows"
)

// newVault returns a vault with a keyset of its own.
func newVault(t *testing.T, db *control.DB) (control.Vault, seal.File) {
	t.Helper()
	f := seal.File{Path: filepath.Join(t.TempDir(), "keys")}
	check(t, f.Create(t.Context()))
	return control.Vault{DB: db, Sealer: must(seal.New(t.Context(), f))(t)}, f
}

// A secret is read by its name, of its own house alone.
func TestVaultSecret(t *testing.T) {
	db, _ := open(t, control.Config{})
	v, _ := newVault(t, db)
	h, other := newHouse(t, db), newHouse(t, db)
	ctx := t.Context()
	must(v.Put(ctx, db.As(h.owner), h.id, "API_KEY", []byte("mine")))(t)
	must(v.Put(ctx, db.As(other.owner), other.id, "OTHER", []byte("theirs")))(t)
	if got := must(v.Secret(ctx, h.id, "API_KEY"))(t); got.Reveal() != "mine" {
		t.Error("another value")
	}
	for _, name := range []string{"OTHER", "NONE"} {
		_, err := v.Secret(ctx, h.id, name)
		is(t, err, rows.ErrAbsent)
	}
}

// TestVault puts secrets and reads those that an environment injects. The database has no value of them, and a row of
// one secret is of no use as another one's.
func TestVault(t *testing.T) {
	db, url := open(t, control.Config{})
	v, _ := newVault(t, db)
	h, other := newHouse(t, db), newHouse(t, db)
	ctx, owner := t.Context(), db.As(h.owner)
	const value = "sk-live-8a7b6c5d4e3f"
	must(v.Put(ctx, owner, h.id, "API_KEY", []byte(value)))(t)
	env := func(house string, bindings ...rows.Binding) string {
		return must(db.Host().CreateEnvironment(ctx, house, rows.Recipe{
			Name: uuid.NewString(), Bindings: bindings,
		}))(t).ID
	}
	both := env(h.id, rows.Binding{Name: "API_KEY", Required: true}, rows.Binding{Name: "OTHER"})
	all, err := v.Variables(ctx, both)
	check(t, err)
	if len(all) != 1 || all[0].Name != "API_KEY" || all[0].Value.Reveal() != value {
		t.Errorf("got %v", all)
	}
	must(v.Put(ctx, owner, h.id, "API_KEY", []byte("another")))(t)
	if all := must(v.Variables(ctx, both))(t); all[0].Value.Reveal() != "another" {
		t.Error("the value was not replaced")
	}
	must(v.Put(ctx, owner, h.id, "API_KEY", []byte(value)))(t)

	// What is missing is named, all of it.
	lacks := env(h.id, rows.Binding{Name: "B", Required: true}, rows.Binding{Name: "API_KEY", Required: true},
		rows.Binding{Name: "A", Required: true}, rows.Binding{Name: "C"})
	_, missing := v.Variables(ctx, lacks)
	if !errors.Is(missing, rows.ErrMissing) || !strings.HasSuffix(missing.Error(), "missing: B, A") {
		t.Errorf("got %v", missing)
	}
	_, err = v.Variables(ctx, "none")
	is(t, err, rows.ErrAbsent)

	// Values that are no environment variable's, and members, who may not write.
	_, err = v.Put(ctx, owner, h.id, "EMPTY", nil)
	is(t, err, seal.ErrEmpty)
	_, large := v.Put(ctx, owner, h.id, "LARGE", []byte(strings.Repeat(value, 4000)))
	is(t, large, seal.ErrTooLarge)
	_, nul := v.Put(ctx, owner, h.id, "NUL", []byte(value+"\x00"))
	is(t, nul, rows.ErrInvalid)
	_, forbidden := v.Put(ctx, db.As(h.member), h.id, "API_KEY", []byte(value))
	is(t, forbidden, rows.ErrForbidden)
	if left := must(owner.Secrets(ctx, h.id))(t); len(left) != 1 {
		t.Errorf("a value that was refused left a secret: %v", left)
	}

	// A row that is copied to another secret does not open: another name, another house.
	copied := env(h.id, rows.Binding{Name: "COPY", Required: true})
	must(v.Put(ctx, owner, h.id, "COPY", []byte("x")))(t)
	must(v.Put(ctx, db.As(other.owner), other.id, "API_KEY", []byte("x")))(t)
	foreign := env(other.id, rows.Binding{Name: "API_KEY", Required: true})
	c := connect(t, url)
	_, err = c.Exec(ctx, `update secret_values to_ set ciphertext = from_.ciphertext
		from secret_values from_ join secrets s on s.id = from_.secret_id
		where s.house_id = $1 and s.name = 'API_KEY' and to_.secret_id in (
			select id from secrets where house_id = $1 and name = 'COPY' or house_id = $2)`, h.id, other.id)
	check(t, err)
	var errs []error
	for _, id := range []string{copied, foreign} {
		all, err := v.Variables(ctx, id)
		is(t, err, seal.ErrForeign)
		if all != nil {
			t.Errorf("got %v", all)
		}
		errs = append(errs, err)
	}
	// Neither a row nor an error has a value.
	var rows string
	check(t, c.QueryRow(ctx, `select coalesce(string_agg(v::text || convert_from(
		decode(replace(encode(v.ciphertext, 'hex'), '00', ''), 'hex'), 'LATIN1'), ' '), '')
		from secret_values v where house_id = $1`, h.id).Scan(&rows))
	text := fmt.Sprint(rows, missing, large, nul, forbidden, errs, all)
	if rows == "" || strings.Contains(text, value) || strings.Contains(text, fmt.Sprintf("%x", value)) {
		t.Errorf("a row or an error has the value: %.2000s", text)
	}
}

// TestReseal rotates the keys while values are put and read by two processes: each value can be read at any time. In
// the end the newest key has sealed all.
func TestReseal(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	v, f := newVault(t, db)
	second := control.Vault{DB: db, Sealer: must(seal.New(t.Context(), f))(t)}
	h := newHouse(t, db)
	owner := db.As(h.owner)
	var bindings []rows.Binding
	for i := range 20 {
		name := fmt.Sprint("S", i)
		bindings = append(bindings, rows.Binding{Name: name, Required: true})
		must(v.Put(t.Context(), owner, h.id, name, []byte("value "+name)))(t)
	}
	env := must(db.Host().CreateEnvironment(t.Context(), h.id, rows.Recipe{Name: "all", Bindings: bindings}))(t).ID
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n, v := range []control.Vault{v, second} {
		all.Go(func() {
			for i := n; ctx.Err() == nil; i += 3 {
				name := fmt.Sprint("S", i%20)
				if _, err := v.Put(t.Context(), owner, h.id, name, []byte("value "+name)); err != nil {
					t.Errorf("put: %v", err)
					return
				}
			}
		})
		all.Go(func() {
			for ctx.Err() == nil {
				read, err := v.Variables(t.Context(), env)
				if err != nil || len(read) != 20 {
					t.Errorf("read: %d, %v", len(read), err)
					return
				}
				for _, one := range read {
					if one.Value.Reveal() != "value "+one.Name {
						t.Errorf("%s has another value", one.Name)
					}
				}
			}
		})
	}
	for range 10 {
		check(t, f.Rotate(ctx))
		check(t, second.Sealer.Read(ctx)) // else its puts keep the older key
		must(v.Reseal(ctx))(t)
	}
	cancel()
	all.Wait()
	must(v.Reseal(t.Context()))(t)
	keys := must(f.Keys(t.Context()))(t)
	newest := keys[len(keys)-1]
	left := must(db.Host().SealedByOthers(t.Context(), fmt.Sprint(newest.ID), 100))(t)
	if len(left) > 0 || !newest.Primary {
		t.Errorf("%d values of older keys", len(left))
	}
	if read := must(second.Variables(t.Context(), env))(t); len(read) != 20 {
		t.Errorf("%d values", len(read))
	}
	if n := must(v.Reseal(t.Context()))(t); n != 0 {
		t.Errorf("%d values were sealed again", n)
	}
}

// TestDoors reads which houses an agent is in, and which house a thread is of.
func TestDoors(t *testing.T) {
	db, _ := open(t, control.Config{})
	h, other, st := newHouse(t, db), newHouse(t, db), control.StoreOf(db)
	ctx := t.Context()
	_, err := db.Host().AddMember(ctx, other.id, h.member, rows.RoleMember)
	check(t, err)
	houses := func(agent string) int { return len(must(st.Houses(ctx, agent))(t)) }
	for agent, want := range map[string]int{
		h.owner: 1, h.member: 2, other.owner: 1, uuid.NewString(): 0,
	} {
		if n := houses(agent); n != want {
			t.Errorf("%d houses, want %d", n, want)
		}
	}
	if _, err := st.Houses(ctx, "ann"); !errors.Is(err, rows.ErrInvalid) {
		t.Error(err)
	}
	check(t, db.Host().ArchiveMember(ctx, other.id, h.member))
	if got := must(st.Houses(ctx, h.member))(t); len(got) != 1 || got[0] != h.id {
		t.Errorf("after leaving: %v", got)
	}
	check(t, db.Host().ArchiveAgent(ctx, h.member))
	if n := houses(h.member); n != 0 {
		t.Errorf("an archived agent has %d houses", n)
	}
	one := must(db.Host().CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	two := must(db.Host().CreateThread(ctx, rows.NewThread{House: other.id}))(t).ID
	got := must(st.HousesOf(ctx, []string{one, two, "none", ""}))(t)
	if len(got) != 2 || got[one] != h.id || got[two] != other.id {
		t.Errorf("got %v", got)
	}
	if got := must(st.HousesOf(ctx, nil))(t); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
