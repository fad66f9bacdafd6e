-- +goose Up

-- Up to which offset of a thread's log nothing is open for its bots: no chat without a decision, and no reaction. It
-- may be truncated: hosts that dispatch then read each thread again.
create table public.dispatch_cache (
	thread_id text constraint dispatch_cache_pkey primary key
		constraint dispatch_cache_thread references public.threads (id) on delete cascade,
	upto text collate "C" not null, -- the offset behind the last entry that was read
	version int not null -- of the rules by which something is open
);

alter table public.dispatch_cache enable row level security;

-- It is the host's.
-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.dispatch_cache from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd
