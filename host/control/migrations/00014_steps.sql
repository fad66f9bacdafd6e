-- +goose Up

-- Which programs can use a schema that has a step: those that know the step needs, and all before it. A step that only
-- adds needs what the step before it needs; one that programs without it can't live with needs itself. Programs that
-- know less than 14 refuse each newer schema by themselves.
create table public.schema_steps (
	step bigint constraint schema_steps_pkey primary key,
	needs bigint not null constraint schema_steps_needs check (needs <= step)
);

alter table public.schema_steps enable row level security;

-- Ends the transaction of a program that knows too little. All programs from this step on call it: it stays as it is.
-- +goose StatementBegin
create function public.require_schema(known bigint) returns void language plpgsql set search_path = '' as $$
declare
	step bigint;
	needs bigint;
begin
	select max(s.step), max(s.needs) into step, needs from public.schema_steps s;
	if needs > known then
		raise exception 'its schema is %, for programs that know step %, and this one knows %', step, needs, known
			using errcode = 'ARBE2';
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
			execute format('revoke all on table public.schema_steps from %s', r);
			execute format('revoke all on function public.require_schema(bigint) from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

-- Databases that were made before this policy was part of step 4.
-- +goose StatementBegin
do $$
begin
	if not exists (select from pg_policy where polname = 'sandbox_notices_read'
			and polrelid = 'public.sandbox_notices'::regclass) then
		create policy sandbox_notices_read on public.sandbox_notices for select to arbe_app
			using (house_id = any (array(select public.member_houses())));
	end if;
end;
$$;
-- +goose StatementEnd

insert into public.schema_steps (step, needs) values (14, 14);
