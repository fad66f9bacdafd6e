-- +goose Up

-- Threads of a dead sandbox that another one has replaced, whose logs may not have that yet. Such a row goes once the
-- log has it.
create table public.sandbox_notices (
	house_id text not null,
	sandbox_id text not null, -- the new one
	thread_id text not null,
	from_id text not null, -- the dead one; no reference
	at timestamptz not null default now(),
	constraint sandbox_notices_pkey primary key (sandbox_id, thread_id),
	constraint sandbox_notices_thread foreign key (house_id, thread_id)
		references public.threads (house_id, id) on delete cascade
);

create index sandbox_notices_thread_id_idx on public.sandbox_notices (thread_id);

-- They are the host's: no request reads or writes them.
alter table public.sandbox_notices enable row level security;

create policy sandbox_notices_read on public.sandbox_notices for select to arbe_app
	using (house_id = any (array(select public.member_houses())));

-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.sandbox_notices from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd
