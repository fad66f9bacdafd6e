-- +goose Up

-- A request neither declares a sandbox dead nor deletes its row: hosts delete the machine of either, with the work in
-- it. A row lock takes the right to change one column; this one decides nothing.
revoke update (status), delete on public.sandboxes from arbe_app;
grant update (created_at) on public.sandboxes to arbe_app;

-- Declares a sandbox dead, which ends its holds. The threads that name it are kept. false: there is no such row.
-- +goose StatementBegin
create function public.condemn_sandbox(sandbox text) returns boolean
	language plpgsql security definer set search_path = '' as $$
begin
	update public.sandboxes set status = 'dead', doubted_at = null, doubt = null,
		last_threads = case when status = 'dead' then last_threads
			else array(select t.id from public.threads t where t.sandbox_id = sandbox order by t.id) end
		where id = sandbox;
	if not found then
		return false;
	end if;
	delete from public.sandbox_holds where sandbox_id = sandbox;
	return true;
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
			execute format('revoke all on function public.condemn_sandbox(text) from %s', r);
		end if;
	end loop;
end;
$$;
-- +goose StatementEnd

-- What a request may write by SQL alone, and what programs read: a time that no program can hold fails each list that
-- has its row, those of all houses among them; a claim in the future never ends; a stream is the thread's own.
alter table public.threads
	add constraint threads_stream check (stream_id = id),
	add constraint threads_claim_time check (claimed_at >= '1970-01-01 00:00+00' and claimed_at <= updated_at),
	add constraint threads_pin_time check (pinned_at >= '1970-01-01 00:00+00' and pinned_at < '3000-01-01 00:00+00');
alter table public.sandboxes
	add constraint sandboxes_times check (
		pending_until >= '1970-01-01 00:00+00' and pending_until < '3000-01-01 00:00+00'
			and created_at >= '1970-01-01 00:00+00' and created_at < '3000-01-01 00:00+00'
	);
alter table public.environments add constraint environments_archive_time check (
	archived_at >= '1970-01-01 00:00+00' and archived_at < '3000-01-01 00:00+00'
);
alter table public.members add constraint members_archive_time check (
	archived_at >= '1970-01-01 00:00+00' and archived_at < '3000-01-01 00:00+00'
);
alter table public.secret_values add constraint secret_values_time check (
	updated_at >= '1970-01-01 00:00+00' and updated_at < '3000-01-01 00:00+00'
);
