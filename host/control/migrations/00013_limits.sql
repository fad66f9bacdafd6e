-- +goose Up

-- The threads whose next run waits because their house runs as many as it may: see runs.go. A host that wants to launch
-- the run asks again and again; who has not asked for a while does not wait any more.
create table public.waiting_runs (
	thread_id text constraint waiting_runs_pkey primary key
		constraint waiting_runs_thread references public.threads (id) on delete cascade,
	since timestamptz not null default now(),
	until timestamptz not null
);

alter table public.waiting_runs enable row level security;

-- It is the host's.
-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.waiting_runs from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

-- The threads of a house that have a place, with a task or without.
create index threads_places_idx on public.threads (house_id) where launch_host is not null or status = 'running';
drop index public.threads_placed_idx;

-- How many requests to models a budget has refused, by the day.
alter table public.spend add column refused int not null default 0;
