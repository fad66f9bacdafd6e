-- +goose Up

-- The tasks of a house that have a place: see runs.go.
create index threads_placed_idx on public.threads (house_id)
	where task is not null and (launch_host is not null or status = 'running');
