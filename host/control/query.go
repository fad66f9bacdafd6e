package control

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// exec runs a statement that has to change a row, and returns rows.ErrAbsent where it changes none.
func exec(ctx context.Context, tx pgx.Tx, thing, sql string, args ...any) error {
	tag, err := tx.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		return rows.Refuse(rows.ErrAbsent, thing)
	}
	return err
}

// one returns the row of a query, and rows.ErrAbsent if there is no row.
func one[T any](ctx context.Context, tx pgx.Tx, thing, sql string, args ...any) (v T, err error) {
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return v, err
	}
	v, err = pgx.CollectExactlyOneRow(found, pgx.RowToStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return v, rows.Refuse(rows.ErrAbsent, thing)
	}
	return v, err
}

// many returns the rows of a query.
func many[T any](ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]T, error) {
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByName[T])
}

// column returns the values of a query's only column.
func column[T any](ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]T, error) {
	found, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[T])
}

// transactor runs transactions: a Scope, or Boxes. What follows is one transaction each.
type transactor interface {
	tx(ctx context.Context, what string, f func(pgx.Tx) error) error
}

// fetch is one in a transaction of its own, which what names.
func fetch[T any](ctx context.Context, s transactor, what, thing, sql string, args ...any) (v T, err error) {
	err = s.tx(ctx, what, func(tx pgx.Tx) error {
		v, err = one[T](ctx, tx, thing, sql, args...)
		return err
	})
	return v, err
}

// list is many in a transaction of its own, which what names.
func list[T any](ctx context.Context, s transactor, what, sql string, args ...any) (all []T, err error) {
	err = s.tx(ctx, what, func(tx pgx.Tx) error {
		all, err = many[T](ctx, tx, sql, args...)
		return err
	})
	return all, err
}

// values is column in a transaction of its own, which what names.
func values[T any](ctx context.Context, s transactor, what, sql string, args ...any) (all []T, err error) {
	err = s.tx(ctx, what, func(tx pgx.Tx) error {
		all, err = column[T](ctx, tx, sql, args...)
		return err
	})
	return all, err
}

// change runs a statement in a transaction of its own, which what names. done reports whether it has changed a row.
func change(ctx context.Context, s transactor, what, sql string, args ...any) (done bool, err error) {
	err = s.tx(ctx, what, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args...)
		done = tag.RowsAffected() > 0
		return err
	})
	return done && err == nil, err
}
