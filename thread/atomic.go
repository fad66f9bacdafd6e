package thread

import "context"

// AppendAtomic posts entries like Append, and all of them or none at any server: at one that takes single entries only
// it fails.
func (c *Client) AppendAtomic(ctx context.Context, entries []Entry) (Ack, error) {
	return c.do(ctx, appendPolicy, arrayOf(entries))
}
