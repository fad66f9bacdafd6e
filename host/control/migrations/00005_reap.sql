-- +goose Up

alter table public.sandboxes
	-- Since when runs and commands may use its machine; null: they never could.
	add column live_at timestamptz,
	-- When it died because its machine was gone or faulty. Such a machine may turn up again, with work in it.
	add column condemned_at timestamptz,
	-- The threads that named it when it died. They get its successor, and an entry before its machine is deleted.
	add column last_threads text[] not null default '{}',
	-- Since when a host could not use its machine, and why: a reconciler looks at it next.
	add column doubted_at timestamptz,
	add column doubt text;

update public.sandboxes set live_at = created_at where status <> 'pending';

create index sandboxes_doubted_at_idx on public.sandboxes (doubted_at) where doubted_at is not null;
create index sandbox_holds_expires_at_idx on public.sandbox_holds (expires_at) where expires_at is not null;
