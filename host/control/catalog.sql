-- Describes what the steps of the schema make, and the rights on it of the roles of requests: one line for each column,
-- constraint, index, policy, trigger and function, below its table or by its signature. It is read with an empty
-- search_path, so that all names are whole.
with t as (
	select c.oid, c.relname::text as name, c.relrowsecurity, c.relforcerowsecurity, c.relowner, c.relacl
	from pg_class c
	where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'arbe_schema'
),
f as (
	select p.*, p.oid::regprocedure::text as name from pg_proc p
	where p.pronamespace = 'public'::regnamespace and p.prokind = 'f'
),
grants as (
	select 'table ' || t.name as object, '' as place, g.grantee, g.privilege_type as power
	from t, aclexplode(coalesce(t.relacl, acldefault('r', t.relowner))) g
	union all
	select 'table ' || t.name, format(' (%s)', a.attname), g.grantee, g.privilege_type
	from t join pg_attribute a on a.attrelid = t.oid, aclexplode(a.attacl) g
	where a.attnum > 0 and not a.attisdropped
	union all
	select 'function ' || f.name, '', g.grantee, g.privilege_type
	from f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) g
),
lines as (
	select 'table ' || name as object, 'table: row level security ' || case when relrowsecurity then 'on' else 'off' end
		|| case when relforcerowsecurity then ', forced' else '' end as line
	from t
	union all
	select 'table ' || t.name, format('column: %s %s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
		case when a.attnotnull then ' not null' else '' end,
		coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
		|| case when l.collname is null or l.collname = 'default' then '' else ' collate ' || l.collname end)
	from t join pg_attribute a on a.attrelid = t.oid
		left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
		left join pg_collation l on l.oid = a.attcollation
	where a.attnum > 0 and not a.attisdropped
	union all
	select 'table ' || t.name, format('constraint: %s %s', c.conname, pg_get_constraintdef(c.oid))
		|| case when c.convalidated then '' else ' not valid' end
	from t join pg_constraint c on c.conrelid = t.oid where c.contype in ('c', 'f', 'p', 'u', 'x')
	union all
	select 'table ' || t.name, 'index: ' || pg_get_indexdef(i.indexrelid)
		|| case when i.indisvalid then '' else ' not valid' end
	from t join pg_index i on i.indrelid = t.oid
	union all
	select 'table ' || t.name, format('policy: %s %s for %s to %s%s%s', p.polname,
		case when p.polpermissive then 'permissive' else 'restrictive' end,
		case p.polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete'
			else 'all' end,
		(select string_agg(case when r = 0 then 'public' else pg_get_userbyid(r)::text end, ', ' order by r)
			from unnest(p.polroles) r),
		coalesce(' using ' || pg_get_expr(p.polqual, p.polrelid), ''),
		coalesce(' with check ' || pg_get_expr(p.polwithcheck, p.polrelid), ''))
	from t join pg_policy p on p.polrelid = t.oid
	union all
	select 'table ' || t.name, 'trigger: ' || pg_get_triggerdef(g.oid)
		|| case when g.tgenabled = 'O' then '' else ' disabled' end
	from t join pg_trigger g on g.tgrelid = t.oid where not g.tgisinternal
	union all
	select 'function ' || f.name, format('function: returns %s, %s, %s%s%s, body %s',
		pg_get_function_result(f.oid), l.lanname,
		case f.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
		case when f.prosecdef then ', security definer' else '' end,
		coalesce(', set ' || array_to_string(f.proconfig, ', '), ''), 
		left(encode(sha256(convert_to(f.prosrc, 'UTF8')), 'hex'), 16))
	from f join pg_language l on l.oid = f.prolang
	union all
	select g.object, format('grant: %s%s to %s', lower(g.power), g.place, coalesce(r.rolname, 'public'))
	from grants g left join pg_roles r on r.oid = g.grantee
	where g.grantee = 0 or r.rolname in ('arbe_app', 'anon', 'authenticated')
)
select object || e'\t' || line from lines order by object collate "C", line collate "C"
