package e2e_test

// A part of a matrix: whether the cell in a row and a column of so many columns belongs to it. make test plays quick,
// few or first, make test-full the others (TestFull…).
type part func(row, column, columns int) bool

// quick has one cell of each row at most, and the columns in turn. With more columns than there are it leaves rows out.
func quick(row, column, columns int) bool { return column == row%columns }

// rest has the cells that quick leaves out.
func rest(row, column, columns int) bool { return !quick(row, column, columns) }

// few has one cell of every third row, and the columns in turn.
func few(row, column, columns int) bool { return row%3 == 0 && column == row/3%columns }

// notFew has the cells that few leaves out.
func notFew(row, column, columns int) bool { return !few(row, column, columns) }

// first has the first cell of the first row alone.
func first(row, column, _ int) bool { return row == 0 && column == 0 }

// notFirst has the cells that first leaves out.
func notFirst(row, column, columns int) bool { return !first(row, column, columns) }
