-- +goose Up

-- A driven thread may be made with a task, which a provisioner launches.
alter table public.threads
	add column task jsonb constraint threads_task check (
		task is null or jsonb_typeof(task) = 'object' and agent_id is not null
	),
	add column launch_after timestamptz, -- when a provisioner may take the task; null: there is none to launch
	add column launch_host text, -- the provisioner that has the task, until launch_after
	add column launch_attempts int not null default 0,
	-- The task comes from the host's operator, not from a member of the house. No request can set it.
	add column launch_trusted boolean not null default false;

create index threads_launch_idx on public.threads (launch_after, id) where launch_after is not null;

-- A task can be taken from its row's insert on. Requests can't set the column themselves.
-- +goose StatementBegin
create function public.set_launch_after() returns trigger language plpgsql set search_path = '' as $$
begin
	if new.task is not null then
		new.launch_after := pg_catalog.now();
	end if;
	return new;
end;
$$;
-- +goose StatementEnd

create trigger threads_set_launch_after before insert on public.threads
	for each row execute function public.set_launch_after();

-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on function public.set_launch_after() from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

grant insert (task) on public.threads to arbe_app;
