"""A fit as one record: a table is read, searched, fitted and judged; the record predicts, explains and evaluates."""
