package control

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Roles of members. Owners write members and secrets; bots are members only.
const (
	RoleOwner  = "owner"
	RoleMember = "member"
)

// Member is an agent's membership of a house.
type Member struct {
	House      string
	Agent      uuid.UUID
	Role       string
	JoinedAt   time.Time
	ArchivedAt *time.Time // nil: a member; else it has left, and is still named by threads that it drives
}

const memberColumns = `house_id as house, agent_id as agent, role, joined_at, archived_at`

// Members returns a house's members, in the order of their joining.
func (s Scope) Members(ctx context.Context, house string) (all []Member, err error) {
	err = s.tx(ctx, "list members of house "+house, func(tx pgx.Tx) error {
		all, err = many[Member](ctx, tx,
			`select `+memberColumns+` from members where house_id = $1 order by joined_at, agent_id`, house)
		return err
	})
	return all, err
}

// AddMember makes an agent a member of a house, or a member again. Only owners may. An owner is a human.
func (s Scope) AddMember(ctx context.Context, house string, agent uuid.UUID, role string) (m Member, err error) {
	err = s.tx(ctx, "add member to house "+house, func(tx pgx.Tx) error {
		if m, err = back(ctx, tx, house, agent, role); err != nil || m.House != "" {
			return err
		}
		m, err = one[Member](ctx, tx, "member", `insert into members (house_id, agent_id, role) values ($1, $2, $3)
			returning `+memberColumns, house, agent, role)
		if err != nil {
			return err
		}
		return human(ctx, tx, agent, role) // once it is in the house, and so in this scope
	})
	return m, err
}

// back makes an archived member one again; the zero Member where the house has no such one.
func back(ctx context.Context, tx pgx.Tx, house string, agent uuid.UUID, role string) (Member, error) {
	all, err := many[Member](ctx, tx, `update members set role = $3, archived_at = null
		where house_id = $1 and agent_id = $2 and archived_at is not null returning `+memberColumns, house, agent, role)
	if err != nil || len(all) == 0 {
		return Member{}, err
	}
	return all[0], human(ctx, tx, agent, role)
}

// human returns ErrInvalid where a bot would be an owner.
func human(ctx context.Context, tx pgx.Tx, agent uuid.UUID, role string) error {
	if role != RoleOwner {
		return nil
	}
	kind, err := column[string](ctx, tx, `select kind from agents where id = $1`, agent)
	if err == nil && len(kind) == 1 && kind[0] == KindBot {
		return fmt.Errorf("the role of a bot: %w: bots are members", ErrInvalid)
	}
	return err
}

// SetRole changes a member's role. Only owners may. It returns ErrLastOwner where the house would have none.
func (s Scope) SetRole(ctx context.Context, house string, agent uuid.UUID, role string) error {
	return s.tx(ctx, "set the role of a member of house "+house, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx, house); err != nil {
			return err
		}
		if role != RoleOwner {
			if err := keeps(ctx, tx, house, agent); err != nil {
				return err
			}
		}
		if err := human(ctx, tx, agent, role); err != nil {
			return err
		}
		return exec(ctx, tx, "member", `update members set role = $3
			where house_id = $1 and agent_id = $2 and archived_at is null`, house, agent, role)
	})
}

// ArchiveMember ends a membership and keeps it for the threads that name it. Only owners may.
func (s Scope) ArchiveMember(ctx context.Context, house string, agent uuid.UUID) error {
	return s.leave(ctx, "archive a member of house ", house, `update members
		set archived_at = coalesce(archived_at, now()) where house_id = $1 and agent_id = $2`, agent)
}

// RemoveMember ends a membership. Only owners may. It returns ErrInUse for a bot that drives a thread of the house, and
// ErrLastOwner.
func (s Scope) RemoveMember(ctx context.Context, house string, agent uuid.UUID) error {
	return s.leave(ctx, "remove a member of house ", house,
		`delete from members where house_id = $1 and agent_id = $2`, agent)
}

// leave ends a membership by a statement. The house keeps an owner.
func (s Scope) leave(ctx context.Context, what, house, sql string, agent uuid.UUID) error {
	return s.tx(ctx, what+house, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx, house); err != nil {
			return err
		}
		// First: once an agent's own membership has ended, it sees no other.
		if err := keeps(ctx, tx, house, agent); err != nil {
			return err
		}
		return inUse(exec(ctx, tx, "member", sql, house, agent), "archive the member instead")
	})
}

// lock makes changes of a house's owners wait for each other. Only owners may.
func (s Scope) lock(ctx context.Context, tx pgx.Tx, house string) error {
	return exec(ctx, tx, "house", `select from houses where id = $1 for no key update`, house)
}

// keeps returns ErrLastOwner where a house has no other owner than an agent, and that is one.
func keeps(ctx context.Context, tx pgx.Tx, house string, agent uuid.UUID) error {
	owners, err := column[uuid.UUID](ctx, tx, `select agent_id from members
		where house_id = $1 and role = 'owner' and archived_at is null`, house)
	if err == nil && len(owners) == 1 && owners[0] == agent {
		return fmt.Errorf("the member: %w: make another member an owner, or delete the house", ErrLastOwner)
	}
	return err
}
