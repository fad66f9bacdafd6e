-- +goose Up

-- The bot that has made a bot; null: people did. The maker may be deleted.
alter table public.agents add column made_by uuid;

-- Makes a bot of a house, as a bot of the house: where the owners allow it, for at most 20 of a house that are in use,
-- under a name that no other member has, with its maker's runtime and no tool that its maker has not. setup has the
-- house's settings of its tools; whether a bot has a tool that is not there is the program's to decide, for both alike.
-- Called again with the same id it changes nothing.
-- +goose StatementBegin
create function public.create_bot(house text, bot uuid, called text, settings jsonb, setup jsonb) returns void
	language plpgsql security definer set search_path = '' as $$
declare
	maker public.agents;
	has jsonb;
	gets jsonb := coalesce(setup -> 'tools', '{}');
begin
	-- The lock of the house is a statement of its own: what follows sees each bot that was made before.
	perform from public.houses h where h.id = house and house in (select public.member_houses()) for update;
	select a.* into maker from public.agents a
		where a.id = public.current_agent() and a.kind = 'bot' and house in (select public.member_houses());
	select coalesce(m.config -> 'tools', '{}') into has from public.members m
		where m.house_id = house and m.agent_id = maker.id;
	if maker.id is null or has is null then
		raise exception 'a bot of the house alone makes bots' using errcode = '42501';
	end if;
	if exists (select from public.agents a where a.id = bot and a.made_by = maker.id and a.owner_house_id = house) then
		return;
	end if;
	if not exists (select from public.houses h where h.id = house
			and h.config #> '{dispatch,createAgents}' = 'true' and has -> 'create_agent' = 'true') then
		raise exception 'the owners of the house have not allowed that bots make bots' using errcode = '42501';
	end if;
	if (select count(*) from public.agents a join public.members m on m.agent_id = a.id and m.house_id = house
			where a.made_by is not null and a.owner_house_id = house
				and a.archived_at is null and m.archived_at is null) >= 20 then
		raise exception 'the house has 20 bots that bots have made: archive one' using errcode = '42501';
	end if;
	if exists (select from public.agents a join public.members m on m.agent_id = a.id and m.house_id = house
			where lower(a.name) = lower(called)) then
		raise exception 'the name: a member of the house has it' using errcode = '42501';
	end if;
	if octet_length(settings ->> 'instructions') > 8192 then
		raise exception 'the instructions: more than 8 KiB' using errcode = '42501';
	end if;
	-- What its maker has only where it is set has to be set, and what is set not to be stays so.
	if exists (select from jsonb_each(gets) g
			where g.value = 'true' and (g.key = 'create_agent' or has -> g.key is distinct from 'true'))
		or exists (select from jsonb_each(has) h where h.value = 'false' and gets -> h.key is distinct from 'false') then
		raise exception 'its tools: its maker has not all of them' using errcode = '42501';
	end if;
	insert into public.agents (id, kind, runtime, name, owner_house_id, config, made_by)
		values (bot, 'bot', maker.runtime, called, house, settings, maker.id);
	insert into public.members (house_id, agent_id, role, config)
		values (house, bot, 'member', jsonb_build_object('triggerMode', 'mention', 'tools', gets));
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
			execute format('revoke all on function public.create_bot(text, uuid, text, jsonb, jsonb) from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

grant execute on function public.create_bot(text, uuid, text, jsonb, jsonb) to arbe_app;
