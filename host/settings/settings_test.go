package settings_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/settings"
)

// kinds are the settings: what reads each, and the type that it becomes.
var kinds = map[string]struct {
	read func([]byte) (any, error)
	of   any
}{
	"bot":    {reader(settings.Bot), rows.BotConfig{}},
	"member": {reader(settings.Member), rows.MemberConfig{}},
	"house":  {reader(settings.House), rows.HouseConfig{}},
	"thread": {reader(settings.Thread), rows.ThreadConfig{}},
}

func reader[T any](read func([]byte) (T, error)) func([]byte) (any, error) {
	return func(data []byte) (any, error) { return read(data) }
}

const published = "../../docs/dispatch.schema.json"

// valid returns what the published schema has against settings of a kind.
func valid(t *testing.T, kind, doc string) error {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(published + "#/$defs/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(v)
}

const piet = "16cb34d2-d3b7-4021-acf4-8686908fa5fe"

const limits = `{"rounds":0,"calls":1000,"wallMs":86400000,"outputTokens":1,"tokens":1000000000,"cost":0.000001}`

// whole are settings with each key.
var whole = map[string]string{
	"bot": `{"model":"anthropic/claude-sonnet-4-5","instructions":"Be brief.\n\"Really.\""}`,
	"member": `{"triggerMode":"ambient","ambientDelayMs":3600000,"cooldownMs":0,` +
		`"tools":{"post_to_thread":true,"run_command":false},"caps":` + limits + `,"budget":2.5}`,
	"house": `{"dispatch":{"gateModel":"openrouter/meta/llama-3:free","models":{"anthropic":{"secret":"A_KEY",` +
		`"prices":{"claude-x":{"input":3,"output":15,"cacheRead":0.3,"cacheWrite":3.75},"meta/l:free":` +
		`{"input":0,"output":0}}}},"caps":` + limits + `,"budget":1000000,"createAgents":true},"runs":0,"boxHours":24}`,
	"thread": `{"dispatch":{"off":true,"perAgent":{"` + piet +
		`":{"triggerMode":"always","ambientDelayMs":0,"cooldownMs":86400000}}}}`,
}

// What has each key is read, valid by the schema, and written as it was. So are empty settings.
func TestWhole(t *testing.T) {
	for kind, doc := range whole {
		v, err := kinds[kind].read([]byte(doc))
		if err != nil {
			t.Errorf("%s: %v", doc, err)
		}
		if err := valid(t, kind, doc); err != nil {
			t.Errorf("the schema: %v", err)
		}
		if b, err := json.Marshal(v); err != nil || string(b) != doc {
			t.Errorf("%s: %v, want\n%s", b, err, doc)
		}
		if v, err := kinds[kind].read([]byte("{}")); err != nil || !reflect.DeepEqual(v, kinds[kind].of) {
			t.Errorf("empty settings of a %s: %+v, %v", kind, v, err)
		}
		if err := valid(t, kind, "{}"); err != nil {
			t.Errorf("the schema, of empty ones: %v", err)
		}
	}
}

// The schema has the keys of the rows' types, and no others.
func TestKeys(t *testing.T) {
	for kind, k := range kinds {
		schema, err := jsonschema.NewCompiler().Compile(published + "#/$defs/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(keysOf(reflect.TypeOf(k.of), ""), described(schema, "")); d != "" {
			t.Errorf("%s: the type has -, the schema +\n%s", kind, d)
		}
	}
}

// keysOf returns the paths of a type's keys in JSON; * stands for any.
func keysOf(t reflect.Type, at string) (all []string) {
	switch t.Kind() {
	case reflect.Map:
		return keysOf(t.Elem(), at+".*")
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				all = append(all, keysOf(f.Type, at+"."+name)...)
			}
		}
		slices.Sort(all)
		return all
	}
	return []string{at}
}

// described returns the paths of a schema's keys.
func described(s *jsonschema.Schema, at string) (all []string) {
	for s.Ref != nil {
		s = s.Ref
	}
	if inner, is := s.AdditionalProperties.(*jsonschema.Schema); is {
		return described(inner, at+".*")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, described(s.Properties[name], at+"."+name)...)
	}
	if all == nil {
		all = []string{at}
	}
	slices.Sort(all)
	return all
}

// wrong are settings that are refused, with the reason.
var wrong = []struct{ kind, doc, want string }{
	{"bot", `[]`, `want an object`},
	{"bot", `null`, `want an object`},
	{"bot", `{"Model":"a/b"}`, `Model: unknown key: want instructions, model`},
	{"bot", `{"model":null}`, `model: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`},
	{"bot", `{"model":""}`, `model: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`},
	{"bot", `{"model":"claude"}`, `model: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`},
	{"bot", `{"model":"https://evil/x"}`, `model: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`},
	{"bot", `{"model":"a/b\nc"}`, `model: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`},
	{"bot", `{"instructions":["a"]}`, `instructions: want a string`},
	{"bot", `{"instructions":"a\u0000"}`, `instructions: want no NUL`},
	{
		"member", `{"mode":"always"}`,
		`mode: unknown key: want ambientDelayMs, budget, caps, cooldownMs, tools, triggerMode`,
	},
	{"member", `{"triggerMode":"ever"}`, `triggerMode: want mention, ambient, always or off`},
	{"member", `{"triggerMode":true}`, `triggerMode: want mention, ambient, always or off`},
	{"member", `{"ambientDelayMs":-1}`, `ambientDelayMs: want a whole number from 0 to 3600000`},
	{"member", `{"ambientDelayMs":3600001}`, `ambientDelayMs: want a whole number from 0 to 3600000`},
	{"member", `{"ambientDelayMs":1.5}`, `ambientDelayMs: want a whole number from 0 to 3600000`},
	{"member", `{"ambientDelayMs":"1"}`, `ambientDelayMs: want a whole number from 0 to 3600000`},
	{"member", `{"ambientDelayMs":null}`, `ambientDelayMs: want a whole number from 0 to 3600000`},
	{"member", `{"cooldownMs":86400001}`, `cooldownMs: want a whole number from 0 to 86400000`},
	{"member", `{"cooldownMs":1e30}`, `cooldownMs: want a whole number from 0 to 86400000`},
	{"house", `{"budget":50}`, `budget: unknown key: want boxHours, dispatch, runs`},
	{"house", `{"boxHours":0}`, `boxHours: want a whole number from 1 to 100000`},
	{"house", `{"runs":-1}`, `runs: want a whole number from 0 to 1000000`},
	{"house", `{"runs":"10"}`, `runs: want a whole number from 0 to 1000000`},
	{"house", `{"runs":null}`, `runs: want a whole number from 0 to 1000000`},
	{"member", `{"budget":-1}`, `budget: want US dollars from 0 to 1000000`},
	{"member", `{"budget":"1"}`, `budget: want US dollars from 0 to 1000000`},
	{"member", `{"budget":1e309}`, `budget: want US dollars from 0 to 1000000`},
	{
		"member", `{"caps":{"turns":1}}`,
		`caps.turns: unknown key: want calls, cost, outputTokens, rounds, tokens, wallMs`,
	},
	{"member", `{"caps":{"rounds":1001}}`, `caps.rounds: want a whole number from 0 to 1000`},
	{"member", `{"caps":{"outputTokens":0}}`, `caps.outputTokens: want a whole number from 1 to 1000000`},
	{"house", `{"dispatch":{"budget":1000001}}`, `dispatch.budget: want US dollars from 0 to 1000000`},
	{"house", `{"dispatch":{"caps":{"cost":1001}}}`, `dispatch.caps.cost: want US dollars from 0 to 1000`},
	{
		"house", `{"dispatch":{"models":{"a":{"prices":{"m n":{"input":1,"output":1}}}}}}`,
		`dispatch.models.a.prices.m n: want the provider's name of a model, such as claude-sonnet-4-5`,
	},
	{
		"house", `{"dispatch":{"models":{"a":{"prices":{"m":{"input":1}}}}}}`,
		`dispatch.models.a.prices.m: want input and output`,
	},
	{
		"house", `{"dispatch":{"models":{"a":{"prices":{"m":{"input":-1,"output":1}}}}}}`,
		`dispatch.models.a.prices.m.input: want US dollars from 0 to 1000`,
	},
	{"house", `{"dispatch":null}`, `dispatch: want an object`},
	{"house", `{"dispatch":{"gate":"a/b"}}`, `dispatch.gate: unknown key: want budget, caps, createAgents, gateModel, models`},
	{
		"house", `{"dispatch":{"gateModel":"haiku"}}`,
		`dispatch.gateModel: want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5`,
	},
	{"house", `{"dispatch":{"models":[]}}`, `dispatch.models: want an object`},
	{
		"house", `{"dispatch":{"models":{"A B":{}}}}`,
		`dispatch.models.A B: want the name of a provider: small letters, digits and -`,
	},
	{
		"house", `{"dispatch":{"models":{"anthropic":{"url":"http://evil"}}}}`,
		`dispatch.models.anthropic.url: unknown key: want prices, secret`,
	},
	{
		"house", `{"dispatch":{"models":{"anthropic":{"secret":"sk-ant-1"}}}}`,
		`dispatch.models.anthropic.secret: want the name of a secret: letters, digits and _, no digit first`,
	},
	{"thread", `"x"`, `want an object`},
	{"thread", `{"dispatch":{"of":true}}`, `dispatch.of: unknown key: want off, perAgent`},
	{"thread", `{"dispatch":{"off":1}}`, `dispatch.off: want true or false`},
	{
		"thread", `{"dispatch":{"perAgent":{"Piet":{}}}}`,
		`dispatch.perAgent.Piet: want the id of an agent, a UUID in small letters`,
	},
	{"member", `{"tools":{"post to":true}}`, "tools.post to: want the name of a tool: small letters, digits and _"},
	{"member", `{"tools":{"run_command":1}}`, "tools.run_command: want true or false"},
	{
		"thread", `{"dispatch":{"perAgent":{"` + strings.ToUpper(piet) + `":{}}}}`,
		`dispatch.perAgent.` + strings.ToUpper(piet) + `: want the id of an agent, a UUID in small letters`,
	},
	{
		"thread", `{"dispatch":{"perAgent":{"` + piet + `":{"triggerMode":"never"}}}}`,
		`dispatch.perAgent.` + piet + `.triggerMode: want mention, ambient, always or off`,
	},
}

// What is refused names its key, and is refused by the schema, too.
func TestWrong(t *testing.T) {
	for _, tt := range wrong {
		_, err := kinds[tt.kind].read([]byte(tt.doc))
		if !errors.Is(err, rows.ErrInvalid) || err.Error() != "config: not valid: "+tt.want {
			t.Errorf("%s\ngot  %v\nwant %s", tt.doc, err, tt.want)
		}
		if valid(t, tt.kind, tt.doc) == nil {
			t.Errorf("the schema takes %s", tt.doc)
		}
	}
}

// Settings are bounded. A thread's other members are the caller's, and the row's own bound holds them.
func TestSizes(t *testing.T) {
	large := `{"instructions":"` + strings.Repeat("a", settings.MaxSize) + `"}`
	if _, err := settings.Bot([]byte(large)); err == nil || err.Error() != "config: not valid: larger than 64 KiB" {
		t.Errorf("got %v", err)
	}
	if c, err := settings.Thread([]byte(large)); err != nil || c.Dispatch.Off {
		t.Errorf("got %+v, %v", c, err)
	}
	many := map[string]rows.ModelAccess{}
	for i := range 1001 {
		many["p"+strings.Repeat("x", i%40)+string(rune('a'+i/40))] = rows.ModelAccess{}
	}
	doc, err := json.Marshal(rows.HouseConfig{Dispatch: rows.HouseDispatch{Models: many}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "config: not valid: dispatch.models: want at most 1000"
	if _, err := settings.House(doc); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if valid(t, "house", string(doc)) == nil {
		t.Error("the schema takes 1001 providers")
	}
}

// No document makes a reader panic, and what is taken is written as settings that are read as the same.
func FuzzSettings(f *testing.F) {
	for _, doc := range whole {
		f.Add([]byte(doc))
	}
	for _, tt := range wrong {
		f.Add([]byte(tt.doc))
	}
	f.Add([]byte(`{"dispatch":{"perAgent":{}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		for kind, k := range kinds {
			v, err := k.read(doc)
			if err != nil {
				continue
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > settings.MaxSize {
				continue // written, some characters are longer
			}
			again, err := k.read(b)
			if rewritten, _ := json.Marshal(again); err != nil || string(rewritten) != string(b) {
				t.Errorf("%s of %s: %v\n%s\nwant\n%s", kind, doc, err, rewritten, b)
			}
		}
	})
}
