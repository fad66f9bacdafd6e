-- +goose Up

-- A bot's model and instructions, and the house whose owners set them; null: the operator alone does.
alter table public.agents
	add column config jsonb not null default '{}' constraint agents_config check (
		jsonb_typeof(config) = 'object' and octet_length(config::text) <= 65536 and (kind = 'bot' or config = '{}')
	),
	add column owner_house_id text constraint agents_owner references public.houses (id) on delete set null
		constraint agents_owned check (kind = 'bot' or owner_house_id is null);
create index agents_owner_house_id_idx on public.agents (owner_house_id) where owner_house_id is not null;

-- When a bot reacts in a house.
alter table public.members add column config jsonb not null default '{}' constraint members_config check (
	jsonb_typeof(config) = 'object' and octet_length(config::text) <= 65536
);

-- How the bots of a house answer, and which chats: those since a time. null: none. No chat of before this column is.
alter table public.houses
	add column config jsonb not null default '{}' constraint houses_config check (
		jsonb_typeof(config) = 'object' and octet_length(config::text) <= 65536
	),
	add column dispatch_since timestamptz default now() constraint houses_dispatch_time check (
		dispatch_since >= '1970-01-01 00:00+00' and dispatch_since < '3000-01-01 00:00+00'
	);

-- Changes the config of a bot, as an owner of the house that owns it. No grant on the column would do: by agents_change
-- a bot could change its own. A key of the change whose value is null is removed. false: there is no such bot.
-- +goose StatementBegin
create function public.configure_bot(bot uuid, change jsonb) returns boolean
	language plpgsql security definer set search_path = '' as $$
begin
	update public.agents set config = jsonb_strip_nulls(config || change)
		where id = bot and kind = 'bot' and id <> public.current_agent()
			and owner_house_id in (select public.owned_houses());
	return found;
end;
$$;
-- +goose StatementEnd

-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on function public.configure_bot(uuid, jsonb) from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

grant execute on function public.configure_bot(uuid, jsonb) to arbe_app;
grant update (config) on public.members to arbe_app;
grant update (config, dispatch_since) on public.houses to arbe_app;
