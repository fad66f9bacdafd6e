-- +goose Up

-- What the answers of bots cost, by the day (UTC): of each bot in a house, and of all bots of a house (bot_id null).
-- Amounts are millionths of a US dollar.
create table public.spend (
	house_id text not null constraint spend_house references public.houses (id) on delete cascade,
	bot_id uuid constraint spend_bot references public.agents (id) on delete cascade,
	day date not null,
	reserved bigint not null default 0 constraint spend_reserved check (reserved >= 0), -- not settled
	spent bigint not null default 0 constraint spend_spent check (spent >= 0),
	answers int not null default 0, -- that began
	constraint spend_key unique nulls not distinct (house_id, day, bot_id)
);
create index spend_bot_id_idx on public.spend (bot_id);

alter table public.spend enable row level security;

-- Hosts write it.
create policy spend_read on public.spend for select to arbe_app
	using (house_id = any (array(select public.owned_houses())));

-- +goose StatementBegin
do $$
declare
	r text;
begin
	foreach r in array array['public', 'anon', 'authenticated'] loop
		if r = 'public' or exists (select from pg_roles where rolname = r) then
			execute format('revoke all on table public.spend from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

grant select on public.spend to arbe_app;
