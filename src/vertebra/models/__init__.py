"""A fit as one record: a table is read, searched, fitted, judged; the record predicts and explains."""
