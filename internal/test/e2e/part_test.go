package e2e_test

// A part of a matrix: whether the cell in a row and a column of so many columns belongs to it. make test plays some
// cells, make test-full the others (TestFull…).
type part func(row, column, columns int) bool

// every has one cell of each nth row, from the first one on, and the columns in turn.
func every(n int) part { return everyFrom(0, n) }

// everyFrom has one cell of each nth row, from a row on, and the columns in turn.
func everyFrom(from, n int) part {
	return func(row, column, columns int) bool {
		return row >= from && (row-from)%n == 0 && column == (row-from)/n%columns
	}
}

// first has the first cell of the first row alone.
func first(row, column, _ int) bool { return row == 0 && column == 0 }

// but has the cells that p leaves out.
func but(p part) part {
	return func(row, column, columns int) bool { return !p(row, column, columns) }
}
