package control

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// TagThread adds tags to a thread and takes others from it. The order of those that stay is kept. ChangeThread replaces
// all tags.
func (s Scope) TagThread(ctx context.Context, id string, add, remove []string) (t Thread, err error) {
	if add == nil {
		add = []string{}
	}
	if remove == nil {
		remove = []string{}
	}
	err = s.tx(ctx, "tag thread "+id, func(tx pgx.Tx) error {
		t, err = one[Thread](ctx, tx, "thread", `
			update threads set tags = array(
				select tag from unnest(tags || $2::text[]) with ordinality as all_tags (tag, n)
				where tag <> all ($3::text[]) group by tag order by min(n)
			)
			where id = $1 returning `+threadColumns, id, add, remove)
		return err
	})
	return t, err
}
