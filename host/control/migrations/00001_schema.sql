-- +goose Up

-- Sixteen letters of base32 from the random bits of a version 4 UUID: bytes 6 to 9 have its version and variant.
-- +goose StatementBegin
create function public.generate_short_id() returns text language sql volatile as $$
	with random as materialized (select uuid_send(gen_random_uuid()) as u),
	bits as (
		select ('x' || encode(substring(u from 1 for 6) || substring(u from 11 for 4), 'hex'))::bit(80) as b from random
	)
	select string_agg(
		substr('abcdefghijklmnopqrstuvwxyz234567', 1 + substring(b from 5 * i + 1 for 5)::int, 1), '' order by i)
	from bits, generate_series(0, 15) as i
$$;
-- +goose StatementEnd

create table public.houses (
	id text constraint houses_pkey primary key default public.generate_short_id(),
	name text not null,
	default_environment_id text, -- null: a thread without an environment can't have a sandbox
	created_at timestamptz not null default now()
);

-- Humans and bots, of no house. A human's id is that of its login, as auth.users of Supabase has it.
create table public.agents (
	id uuid constraint agents_pkey primary key default gen_random_uuid(),
	kind text not null constraint agents_kind check (kind in ('human', 'bot')),
	runtime text, -- codex, claude-code or pi; of bots only
	name text,
	created_at timestamptz not null default now(),
	archived_at timestamptz,
	constraint agents_runtime check ((kind = 'bot') = (runtime is not null))
);

create table public.members (
	house_id text not null constraint members_house references public.houses (id) on delete cascade,
	agent_id uuid not null constraint members_agent references public.agents (id) on delete cascade,
	role text not null constraint members_role check (role in ('owner', 'member')),
	joined_at timestamptz not null default now(),
	archived_at timestamptz, -- left the house, and still named by a thread that it drives
	constraint members_pkey primary key (house_id, agent_id)
);

create table public.environments (
	id text constraint environments_pkey primary key default public.generate_short_id(),
	house_id text not null constraint environments_house references public.houses (id) on delete cascade,
	name text not null,
	runtime text not null default 'daytona', -- the provider of its sandboxes: an open set
	config jsonb not null default '{}' constraint environments_config check (jsonb_typeof(config) = 'object'),
	-- [{name, required}]: the house's secrets to inject, by name; one of them need not exist yet.
	secret_bindings jsonb not null default '[]'
		constraint environments_bindings check (jsonb_typeof(secret_bindings) = 'array'),
	created_at timestamptz not null default now(),
	archived_at timestamptz,
	constraint environments_house_id_id_key unique (house_id, id)
);

alter table public.houses add constraint houses_default_environment
	foreign key (id, default_environment_id) references public.environments (house_id, id)
	on delete set null (default_environment_id);

create table public.secrets (
	id text constraint secrets_pkey primary key default public.generate_short_id(),
	house_id text not null constraint secrets_house references public.houses (id) on delete cascade,
	name text not null constraint secrets_name check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,199}$'),
	created_at timestamptz not null default now(),
	constraint secrets_house_id_name_key unique (house_id, name),
	constraint secrets_house_id_id_key unique (house_id, id)
);

-- Sealed values, apart from what members read.
create table public.secret_values (
	house_id text not null,
	secret_id text not null,
	ciphertext bytea not null
		constraint secret_values_size check (octet_length(ciphertext) between 1 and 1048576),
	key_id text not null, -- the key that sealed it
	updated_at timestamptz not null default now(),
	constraint secret_values_pkey primary key (house_id, secret_id),
	constraint secret_values_secret foreign key (house_id, secret_id)
		references public.secrets (house_id, id) on delete cascade
);

create table public.sandboxes (
	id text constraint sandboxes_pkey primary key default public.generate_short_id(),
	house_id text not null constraint sandboxes_house references public.houses (id) on delete cascade,
	environment_id text not null,
	provider text not null, -- an open set
	provider_ref text, -- the machine's id there
	ephemeral boolean not null default false, -- made for one run: deleted when none runs in it
	status text not null default 'pending'
		constraint sandboxes_status check (status in ('pending', 'live', 'dead')),
	pending_until timestamptz not null default now() + interval '15 minutes', -- then a pending one is dead
	created_at timestamptz not null default now(),
	destroyed_at timestamptz, -- the machine is gone. A dead one without it has a machine to delete
	constraint sandboxes_house_id_id_key unique (house_id, id),
	constraint sandboxes_environment foreign key (house_id, environment_id)
		references public.environments (house_id, id)
);

create table public.threads (
	id text constraint threads_pkey primary key default public.generate_short_id()
		constraint threads_id check (id ~ '^[A-Za-z0-9_-]{1,128}$'),
	house_id text not null constraint threads_house references public.houses (id) on delete cascade,
	stream_id text not null constraint threads_stream_id_key unique,
	name text,
	pinned_at timestamptz,
	parent_thread_id text,
	parent_agent_id uuid constraint threads_parent_agent references public.agents (id) on delete cascade,
	environment_id text,
	sandbox_id text,
	agent_id uuid, -- the bot that drives it; null: a chat
	tags text[] not null default '{}',
	config jsonb not null default '{}' constraint threads_config check (jsonb_typeof(config) = 'object'),
	status text not null default 'open' constraint threads_status check (
		(agent_id is null and status in ('open', 'closed')) or
		(agent_id is not null and status in ('idle', 'running', 'completed', 'failed', 'cancelled'))
	),
	-- The run that has the thread, until the log knows it.
	claimed_run text,
	claimed_at timestamptz,
	created_at timestamptz not null default now(),
	updated_at timestamptz not null default now(),
	constraint threads_house_id_id_key unique (house_id, id),
	constraint threads_one_parent check (num_nonnulls(parent_thread_id, parent_agent_id) <= 1),
	constraint threads_claim check (
		(claimed_run is null) = (claimed_at is null) and (claimed_run is null or status = 'running')
	),
	constraint threads_driver foreign key (house_id, agent_id) references public.members (house_id, agent_id),
	constraint threads_environment foreign key (house_id, environment_id)
		references public.environments (house_id, id),
	constraint threads_sandbox foreign key (house_id, sandbox_id)
		references public.sandboxes (house_id, id) on delete set null (sandbox_id),
	constraint threads_parent foreign key (house_id, parent_thread_id)
		references public.threads (house_id, id) on delete cascade
);

-- How far each thread's log is folded, and the result. It may be truncated: it is made again from the log.
create table public.thread_cache (
	thread_id text constraint thread_cache_pkey primary key
		constraint thread_cache_thread references public.threads (id) on delete cascade,
	upto text collate "C" not null, -- the offset behind the last entry of the fold; '' for none
	version int not null, -- of the fold's form
	status text not null, -- that the fold has
	fold json not null, -- not jsonb, which refuses some texts
	last_beat_at timestamptz
);

create index threads_parent_thread_id_idx on public.threads (parent_thread_id);
create index threads_parent_agent_id_idx on public.threads (parent_agent_id) where parent_agent_id is not null;
create index threads_sandbox_id_idx on public.threads (sandbox_id);
create index threads_pinned_idx on public.threads (house_id) where pinned_at is not null;
create index threads_list_idx on public.threads (house_id, created_at desc, id desc);
create index threads_claim_idx on public.threads (claimed_at) where claimed_run is not null;
create index threads_tags_idx on public.threads using gin (tags);
create index members_agent_id_idx on public.members (agent_id);
create index environments_secret_bindings_idx on public.environments using gin (secret_bindings);
create index sandboxes_open_idx on public.sandboxes (status) where status <> 'dead' or destroyed_at is null;

-- +goose StatementBegin
create function public.set_updated_at() returns trigger language plpgsql as $$
begin
	new.updated_at := now();
	return new;
end;
$$;
-- +goose StatementEnd

create trigger threads_set_updated_at before update on public.threads
	for each row execute function public.set_updated_at();

-- The transaction's agent; null where it has none. After a transaction that had one the setting is '', not null.
-- +goose StatementBegin
create function public.current_agent() returns uuid language sql stable set search_path = '' as $$
	select nullif(pg_catalog.current_setting('app.agent_id', true), '')::pg_catalog.uuid
$$;
-- +goose StatementEnd

-- Functions of the owner, which policies do not hold: a policy on members that read members would recurse.
-- +goose StatementBegin
create function public.member_houses() returns setof text language sql stable security definer set search_path = '' as $$
	select m.house_id from public.members m join public.agents a on a.id = m.agent_id
	where m.agent_id = public.current_agent() and m.archived_at is null and a.archived_at is null
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function public.owned_houses() returns setof text language sql stable security definer set search_path = '' as $$
	select m.house_id from public.members m join public.agents a on a.id = m.agent_id
	where m.agent_id = public.current_agent() and m.role = 'owner' and m.archived_at is null and a.archived_at is null
$$;
-- +goose StatementEnd

-- Those who are or were in a house of the agent's.
-- +goose StatementBegin
create function public.house_agents() returns setof uuid language sql stable security definer set search_path = '' as $$
	select m.agent_id from public.members m where m.house_id in (select public.member_houses())
$$;
-- +goose StatementEnd

alter table public.arbe_schema enable row level security;
alter table public.houses enable row level security;
alter table public.agents enable row level security;
alter table public.members enable row level security;
alter table public.environments enable row level security;
alter table public.secrets enable row level security;
alter table public.secret_values enable row level security;
alter table public.sandboxes enable row level security;
alter table public.threads enable row level security;
alter table public.thread_cache enable row level security;

-- The subqueries do not depend on the row: each runs once for a statement.
create policy houses_read on public.houses for select to arbe_app
	using (id = any (array(select public.member_houses())));
create policy houses_change on public.houses for update to arbe_app
	using (id = any (array(select public.owned_houses()))) with check (id = any (array(select public.owned_houses())));
create policy houses_delete on public.houses for delete to arbe_app
	using (id = any (array(select public.owned_houses())));

create policy agents_read on public.agents for select to arbe_app
	using (id = public.current_agent() or id = any (array(select public.house_agents())));
create policy agents_change on public.agents for update to arbe_app
	using (id = public.current_agent()) with check (id = public.current_agent());

create policy members_read on public.members for select to arbe_app
	using (house_id = any (array(select public.member_houses())));
create policy members_add on public.members for insert to arbe_app
	with check (house_id = any (array(select public.owned_houses())));
create policy members_change on public.members for update to arbe_app
	using (house_id = any (array(select public.owned_houses())))
	with check (house_id = any (array(select public.owned_houses())));
create policy members_delete on public.members for delete to arbe_app
	using (house_id = any (array(select public.owned_houses())));

create policy environments_house on public.environments to arbe_app
	using (house_id = any (array(select public.member_houses())))
	with check (house_id = any (array(select public.member_houses())));

create policy secrets_read on public.secrets for select to arbe_app
	using (house_id = any (array(select public.member_houses())));
create policy secrets_add on public.secrets for insert to arbe_app
	with check (house_id = any (array(select public.owned_houses())));
create policy secrets_delete on public.secrets for delete to arbe_app
	using (house_id = any (array(select public.owned_houses())));

create policy secret_values_owners on public.secret_values to arbe_app
	using (house_id = any (array(select public.owned_houses())))
	with check (house_id = any (array(select public.owned_houses())));

create policy sandboxes_house on public.sandboxes to arbe_app
	using (house_id = any (array(select public.member_houses())))
	with check (house_id = any (array(select public.member_houses())));

create policy threads_house on public.threads to arbe_app
	using (house_id = any (array(select public.member_houses())))
	with check (house_id = any (array(select public.member_houses())));

-- A hosted Postgres may grant new tables and functions to roles of its own HTTP interface: they get none of these.
-- +goose StatementBegin
do $$
declare
	r text;
	t text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			foreach t in array array['arbe_schema', 'houses', 'agents', 'members', 'environments', 'secrets',
				'secret_values', 'sandboxes', 'threads', 'thread_cache'] loop
				execute format('revoke all on table public.%I from %s', t, r);
			end loop;
			foreach t in array array['generate_short_id', 'set_updated_at', 'current_agent', 'member_houses',
				'owned_houses', 'house_agents'] loop
				execute format('revoke all on function public.%I() from %s', t, r);
			end loop;
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

-- Columns that are not granted for update never change in a request: ids, houses, what a key or a seal binds.
grant usage on schema public to arbe_app;
grant execute on function public.generate_short_id(), public.current_agent(), public.member_houses(),
	public.owned_houses(), public.house_agents() to arbe_app;
grant select, delete, update (name, default_environment_id) on public.houses to arbe_app;
grant select, update (name) on public.agents to arbe_app;
grant select, delete, insert (house_id, agent_id, role), update (role, archived_at) on public.members to arbe_app;
grant select, delete, insert (house_id, name, runtime, config, secret_bindings),
	update (name, runtime, config, secret_bindings, archived_at) on public.environments to arbe_app;
grant select, delete, insert (house_id, name) on public.secrets to arbe_app;
grant select (house_id, secret_id, key_id, updated_at), delete,
	insert (house_id, secret_id, ciphertext, key_id, updated_at),
	update (ciphertext, key_id, updated_at) on public.secret_values to arbe_app;
grant select, delete, insert (house_id, environment_id, provider, provider_ref, ephemeral, status, pending_until),
	update (provider_ref, status, destroyed_at) on public.sandboxes to arbe_app;
grant select, delete,
	insert (id, house_id, stream_id, name, pinned_at, parent_thread_id, parent_agent_id, environment_id, sandbox_id,
		agent_id, tags, config, status),
	update (name, pinned_at, environment_id, sandbox_id, tags, config, status, claimed_run, claimed_at)
	on public.threads to arbe_app;
