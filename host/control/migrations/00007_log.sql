-- +goose Up

-- The log that the rows are of, by the id of its installation: at most one. What a row has of runs is a cache of that
-- log, and another one would make all of it idle.
create table public.bound_log (
	one boolean constraint bound_log_pkey primary key default true constraint bound_log_one check (one),
	log text not null constraint bound_log_id check (octet_length(log) between 1 and 100),
	bound_at timestamptz not null default now()
);

alter table public.bound_log enable row level security;

-- Ends the transaction of a host of another log. Rows are not moved to another log meanwhile: that takes the lock alone.
-- +goose StatementBegin
create function public.require_log(log text) returns void language plpgsql set search_path = '' as $$
declare
	bound text;
begin
	perform pg_catalog.pg_advisory_xact_lock_shared(107143904952323);
	select b.log into bound from public.bound_log b;
	if bound <> require_log.log then
		raise exception 'its rows are of the log %, and not of %', bound, require_log.log using errcode = 'ARBE1';
	end if;
end;
$$;
-- +goose StatementEnd

-- Both are the host's.
-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.bound_log from %s', r);
			execute format('revoke all on function public.require_log(text) from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd
