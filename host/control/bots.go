package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/settings"
)

// CreateBot makes a bot. The host alone may.
func (s Scope) CreateBot(ctx context.Context, n rows.NewBot) (a rows.Agent, err error) {
	config, err := json.Marshal(n.Config)
	if err == nil {
		_, err = settings.Bot(config)
	}
	if err != nil {
		return a, err
	}
	err = s.tx(ctx, "create bot", func(tx pgx.Tx) error {
		a, err = one[rows.Agent](ctx, tx, "bot", `insert into agents (kind, runtime, name, owner_house_id, config)
			values ('bot', nullif($1, ''), nullif($2, ''), nullif($3, ''), $4) returning `+agentColumns,
			n.Runtime, n.Name, n.House, config)
		if err != nil || n.House == "" {
			return err
		}
		return exec(ctx, tx, "member", `insert into members (house_id, agent_id, role) values ($1, $2, $3)`,
			n.House, a.ID, rows.RoleMember)
	})
	return a, err
}

// MakeBot makes a bot of a house, as a bot of it, which n.Config and n.Tools describe. It has its maker's runtime, and
// reacts where it is named. With n.ID it may be repeated. The owners of the house allow it, or it is rows.ErrForbidden;
// so is the 21st one, a tool that its maker has not, and a name that another member has.
func (s Scope) MakeBot(ctx context.Context, n rows.NewBot) (a rows.Agent, err error) {
	config, err := json.Marshal(n.Config)
	if err == nil {
		_, err = settings.Bot(config)
	}
	if err != nil {
		return a, err
	}
	member, err := json.Marshal(rows.MemberConfig{Tools: n.Tools})
	if err == nil {
		_, err = settings.Member(member)
	}
	if err != nil {
		return a, err
	}
	err = s.tx(ctx, "make a bot", func(tx pgx.Tx) error {
		err := exec(ctx, tx, "bot", `select create_bot($1, $2, $3, $4, $5)`, n.House, n.ID, n.Name, config, member)
		if err != nil {
			return err
		}
		a, err = one[rows.Agent](ctx, tx, "bot", `select `+agentColumns+` from agents where id = $1`, n.ID)
		return err
	})
	return a, err
}

// ChangeAgent changes an agent. An agent may change its name, and owners of the house that owns a bot its settings. The
// host may change all of it; the house it alone.
func (s Scope) ChangeAgent(ctx context.Context, id string, c rows.AgentChange) error {
	change, err := botChange(c)
	if err != nil {
		return err
	}
	return s.tx(ctx, "change agent "+id, func(tx pgx.Tx) error {
		if c.Name != nil {
			if err := exec(ctx, tx, "agent", `update agents set name = nullif($2, '') where id = $1`, id, c.Name); err != nil {
				return err
			}
		}
		if c.House != nil {
			err := exec(ctx, tx, "bot", `update agents set owner_house_id = nullif($2, '') where id = $1`, id, c.House)
			if err != nil {
				return err
			}
		}
		switch {
		case change == nil:
			return nil
		case s.role == "":
			return exec(ctx, tx, "bot", `update agents set config = jsonb_strip_nulls(config || $2)
				where id = $1 and kind = 'bot'`, id, change)
		}
		return exec(ctx, tx, "bot", `select where configure_bot($1, $2)`, id, change)
	})
}

// botChange returns the change of a bot's settings as JSON, null for what is removed; nil for no change of them.
func botChange(c rows.AgentChange) ([]byte, error) {
	var checked rows.BotConfig
	change := map[string]any{}
	for _, f := range []struct {
		key    string
		to, is *string
	}{{"model", &checked.Model, c.Model}, {"instructions", &checked.Instructions, c.Instructions}} {
		if f.is == nil {
			continue
		}
		if *f.to, change[f.key] = *f.is, *f.is; *f.is == "" {
			change[f.key] = nil
		}
	}
	if len(change) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(checked)
	if err == nil {
		_, err = settings.Bot(data)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(change)
}

// configRow is the config of a row.
type configRow struct{ Config json.RawMessage }

// BotConfig returns a bot's model and instructions.
func (s Scope) BotConfig(ctx context.Context, id string) (rows.BotConfig, error) {
	row, err := fetch[configRow](ctx, s, "read agent "+id, "agent", `select config from agents where id = $1`, id)
	if err != nil {
		return rows.BotConfig{}, err
	}
	return settings.Bot(row.Config)
}

// ChangeMember changes a house's settings for one of its bots. Only owners may.
func (s Scope) ChangeMember(ctx context.Context, house, agent string, c rows.MemberChange) error {
	change := rows.MemberConfig{}
	if c.Mode != nil {
		change.TriggerMode = *c.Mode
	}
	change.AmbientDelayMs, change.CooldownMs, change.Tools = millis(c.AmbientDelay), millis(c.Cooldown), c.Tools
	change.Caps, change.Budget = c.Caps, c.Budget
	data, err := json.Marshal(change)
	if err == nil {
		_, err = settings.Member(data)
	}
	if err != nil {
		return err
	}
	return s.tx(ctx, "change a member of house "+house, func(tx pgx.Tx) error {
		if err := isBot(ctx, tx, house, agent, "the member"); err != nil {
			return err
		}
		return exec(ctx, tx, "member", `update members set
			config = config || $3 || case when $3 ? 'tools' then
				jsonb_build_object('tools', coalesce(config->'tools', '{}') || ($3->'tools')) else '{}' end
				|| case when $3 ? 'caps' then
				jsonb_build_object('caps', coalesce(config->'caps', '{}') || ($3->'caps')) else '{}' end
			where house_id = $1 and agent_id = $2`, house, agent, data)
	})
}

func millis(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	return new(d.Milliseconds())
}

// ChangeHouse changes the settings of a house. Only owners may.
func (s Scope) ChangeHouse(ctx context.Context, id string, c rows.HouseChange) error {
	return s.tx(ctx, "change house "+id, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx, id); err != nil {
			return err
		}
		was, err := one[configRow](ctx, tx, "house", `select config from houses where id = $1`, id)
		if err != nil {
			return err
		}
		config, err := settings.House(was.Config)
		if err != nil {
			return err
		}
		d := &config.Dispatch
		if c.GateModel != nil {
			d.GateModel = *c.GateModel
		}
		if c.Agents != nil {
			d.CreateAgents = *c.Agents
		}
		changeModels(d, c)
		if d.Caps = c.Caps.Or(d.Caps); c.Budget != nil {
			d.Budget = c.Budget
		}
		if c.Runs != nil {
			if config.Runs = c.Runs; *c.Runs == rows.NoLimit {
				config.Runs = nil
			}
		}
		if c.BoxHours != nil {
			if config.BoxHours = c.BoxHours; *c.BoxHours == 0 {
				config.BoxHours = nil
			}
		}
		data, err := json.Marshal(config)
		if err == nil {
			_, err = settings.House(data)
		}
		if err != nil {
			return err
		}
		return exec(ctx, tx, "house", `update houses set config = $2, dispatch_since =
			case when $3::boolean is null then dispatch_since when $3 then coalesce(dispatch_since, now()) end
			where id = $1`, id, data, c.Dispatch)
	})
}

// changeModels changes a house's access to models, and their prices.
func changeModels(d *rows.HouseDispatch, c rows.HouseChange) {
	change := func(provider string, f func(*rows.ModelAccess)) {
		m := d.Models[provider]
		if f(&m); d.Models == nil {
			d.Models = map[string]rows.ModelAccess{}
		}
		if d.Models[provider] = m; m.Secret == "" && len(m.Prices) == 0 {
			delete(d.Models, provider)
		}
	}
	for provider, secret := range c.Keys {
		change(provider, func(m *rows.ModelAccess) { m.Secret = secret })
	}
	for name, p := range c.Prices {
		provider, name, _ := strings.Cut(name, "/")
		change(provider, func(m *rows.ModelAccess) {
			if p.Input == nil {
				delete(m.Prices, name)
				return
			}
			if m.Prices == nil {
				m.Prices = map[string]rows.Price{}
			}
			m.Prices[name] = p
		})
	}
}

// HouseConfig returns the settings of a house.
func (s Scope) HouseConfig(ctx context.Context, id string) (rows.HouseConfig, error) {
	row, err := fetch[configRow](ctx, s, "read house "+id, "house", `select config from houses where id = $1`, id)
	if err != nil {
		return rows.HouseConfig{}, err
	}
	return settings.House(row.Config)
}
