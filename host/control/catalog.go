package control

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// catalogQuery describes the tables and functions of a database, one line a thing: its object, a tab, and the rest.
//
//go:embed catalog.sql
var catalogQuery string

// catalogOfSteps has the lines of catalogQuery for a database that was made by this program's steps alone. TestCatalog
// holds it, and writes it anew with -update.
//
//go:embed catalog.txt
var catalogOfSteps string

// readCatalog describes a database. The connection has an empty search_path afterwards.
func readCatalog(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	if _, err := conn.Exec(ctx, "set search_path = ''"); err != nil {
		return nil, err
	}
	found, err := conn.Query(ctx, catalogQuery)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[string])
}

// compareCatalog returns what a database lacks of what the steps make, and what the objects of the steps have beyond.
// Other tables and functions of the database are not looked at, nor are further indexes that refuse no row.
func compareCatalog(want, has []string) (lacks, extra []string) {
	ours := map[string]bool{}
	for _, line := range want {
		ours[objectOf(line)] = true
		if !slices.Contains(has, line) {
			lacks = append(lacks, line)
		}
	}
	for _, line := range has {
		plain := strings.Contains(line, "\tindex: CREATE INDEX ")
		if ours[objectOf(line)] && !plain && !slices.Contains(want, line) {
			extra = append(extra, line)
		}
	}
	return lacks, extra
}

// objectOf returns the table or function that a line of a catalog is about.
func objectOf(line string) string {
	object, _, _ := strings.Cut(line, "\t")
	return object
}
