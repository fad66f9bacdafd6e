-- +goose Up

-- Who makes a pending sandbox's machine: a holder of it. Only that holder reports the machine.
alter table public.sandboxes add column maker text;
create index sandboxes_provider_ref_idx on public.sandboxes (provider, provider_ref) where provider_ref is not null;

-- Who needs a sandbox's machine. A sandbox dies only when nobody does; a dead one has no holds.
create table public.sandbox_holds (
	house_id text not null,
	sandbox_id text not null,
	holder text not null constraint sandbox_holds_holder check (octet_length(holder) between 1 and 1000),
	thread_id text not null default '', -- of the run; no reference: its row may be deleted first
	run_id text not null default '', -- that holds it, or that the holder works for
	at timestamptz not null default clock_timestamp(),
	expires_at timestamptz, -- null: when the log has the run's end
	constraint sandbox_holds_pkey primary key (house_id, sandbox_id, holder),
	constraint sandbox_holds_sandbox foreign key (house_id, sandbox_id)
		references public.sandboxes (house_id, id) on delete cascade
);

create index sandbox_holds_thread_id_idx on public.sandbox_holds (thread_id);

alter table public.sandbox_holds enable row level security;

create policy sandbox_holds_read on public.sandbox_holds for select to arbe_app
	using (house_id = any (array(select public.member_houses())));

-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.sandbox_holds from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

-- Only the host holds a sandbox, and reports a machine: a request could name another house's machine.
grant select on public.sandbox_holds to arbe_app;
revoke insert (provider_ref, status), update (provider_ref, destroyed_at) on public.sandboxes from arbe_app;
