"""`vertebra fit --plan`: what a fit of the table at hand would take."""

from vertebra.cli.tablefile import Format, Refused, is_large, read_table
from vertebra.cli.terminal import console, print_json, say_lines


def say_plan(
    table: str, form: Format, n_beside: int, memory: float | None, workers: int | None, *, as_json: bool
) -> None:
    """Says what a fit would take; of its columns so many are no inputs. Files of Parquet are not read for it."""
    if workers is not None and workers < 1:
        raise Refused(f"--workers must be at least 1, got {workers}.")
    from vertebra.machine.threads import cores
    from vertebra.models import capacity

    is_streamed = memory is not None or is_large(table)
    if is_streamed:
        from vertebra.tables.parquet import MEMORY, Parquet

        rows, columns = (files := Parquet(table)).n_rows, len(files.columns)
        memory = MEMORY if memory is None else memory
    else:
        rows, columns = read_table(table, form).shape
    found = capacity.plan(rows, max(columns - n_beside, 1), workers=workers or cores(), memory=memory)
    if as_json:
        own = {name: value for name, value in found._asdict().items() if name not in ("memory", "memory_of_worker")}
        sizes = {"bytes": found.memory, "bytes_of_worker": found.memory_of_worker}
        print_json({"table": table} | own | {"seconds": found.seconds(cores())} | sizes)
        return
    say_lines(console(), capacity.described(found, cores()))
