"""A results file says by which code it was recorded; pages that quote it say so too; what is stale is seen."""

import importlib
import json
import pathlib
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

PACKAGE = {
    "__init__.py": '__version__ = "1"\n_MODULES = ("plot",)\n_NAMES = {"fits.deep": ("fit",)}\n',
    "fits/__init__.py": "",
    "fits/deep.py": "from vertebra.fits.below import STEPS\nfrom vertebra.plot import draw\n\nfit = lambda: STEPS\n",
    "fits/below.py": '"""Steps."""\n\n# Chosen once.\nSTEPS = 3\n\n\ndef words():\n    """Says it."""\n',
    "fits/other.py": "OTHER = 1\n",
    "plot/__init__.py": "def draw():\n    return None\n",
}
STUDY = "import vertebra as vb\nfrom helper import N\n\nprint(vb.fit(), N)\n"


@pytest.fixture(scope="module", autouse=True)
def _experiments():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield
    sys.path.remove(str(ROOT / "experiments"))


@pytest.fixture
def stamps():
    return importlib.import_module("stamps")


@pytest.fixture
def house(tmp_path, stamps, monkeypatch):
    """A small project: a package, a study with its results, a page that quotes them."""
    for name, text in PACKAGE.items():
        (tmp_path / "src/vertebra" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src/vertebra" / name).write_text(text)
    for folder in ("experiments/results", "benchmarks/results", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "experiments/study.py").write_text(STUDY)
    (tmp_path / "experiments/helper.py").write_text("N = 2\n")
    results = tmp_path / "experiments/results/study.csv"
    results.write_text("a,b\n1,2\n")
    (tmp_path / "README.md").write_text("A is 1 (`experiments/study.py`).\n")
    digest = importlib.import_module("code_of").digest_of(tmp_path / "experiments/study.py", tmp_path / "src/vertebra")
    now = stamps.of_now(results, str(tmp_path / "experiments/study.py"), digest, 1.0)
    stamps.write(results, now._replace(study="experiments/study.py", commit="abc1234", is_clean=True))
    return tmp_path


def change(path, before, after):
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_every_results_file_has_a_stamp_that_knows_its_rows(stamps):
    """Recorded by a run that stamps it, or `python experiments/stamps.py --adopt`."""
    assert len(stamps.results()) > 30
    assert [path.name for path in stamps.results() if stamps.read(path) is None] == []
    assert [p.name for p in stamps.results() if stamps.read(p).contents != stamps.contents_of(p)] == []


def test_every_page_says_at_which_commit_its_figures_were_recorded(stamps):
    assert stamps.unlabelled() == []
    quote = importlib.import_module("quote")
    for page in stamps.pages():
        text = (ROOT / page).read_text()
        assert quote.sources(text) <= stamps.names_labelled(text), page


def test_words_do_not_make_figures_stale(house, stamps):
    results, deep, below = (
        house / place
        for place in ("experiments/results/study.csv", "src/vertebra/fits/deep.py", "src/vertebra/fits/below.py")
    )
    assert stamps.trouble(results, house) == ""
    change(below, "# Chosen once.", "# Chosen again,\n# with more words.\n")
    change(below, '"""Steps."""', '"""How many steps."""')
    change(below, '"""Says it."""', '"""Says it,\n\n    in words.\n    """')
    change(deep, "lambda: STEPS", "lambda: STEPS  # of them")
    change(house / "src/vertebra/__init__.py", '"1"', '"2"')  # nor does a release
    change(house / "src/vertebra/plot/__init__.py", "None", "1")  # nor how things are drawn
    change(house / "src/vertebra/fits/other.py", "1", "2")  # nor what the study does not import
    assert stamps.trouble(results, house) == ""


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("src/vertebra/fits/below.py", "STEPS = 3", "STEPS = 4"),
        ("src/vertebra/fits/deep.py", "lambda: STEPS", "lambda: STEPS + 1"),
        ("experiments/study.py", "vb.fit()", "vb.fit"),
        ("experiments/helper.py", "2", "3"),
    ],
)
def test_figures_of_an_older_state_of_the_code_are_stale(house, stamps, place, before, after):
    change(house / place, before, after)
    assert stamps.trouble(house / "experiments/results/study.csv", house) == "the code has changed since"


def test_a_page_that_quotes_without_a_label_is_a_fault_and_a_stale_one_fails_before_a_release(house, stamps, capsys):
    (fault,) = stamps.unlabelled(house)
    assert fault == "README.md quotes experiments/study without saying of which commit"
    page = house / "README.md"
    page.write_text(page.read_text() + "\n<!-- recorded: experiments/study -->\n")
    (fault,) = stamps.unlabelled(house)
    assert "says another commit than the stamps" in fault
    page.write_text(stamps.labelled(page.read_text(), house))
    assert f"Recorded with version {stamps.version()}, at commit `abc1234`: `study`. <!--" in page.read_text()
    assert stamps.unlabelled(house) == []

    assert stamps.main(["--strict"], house) == 0
    change(house / "src/vertebra/fits/below.py", "STEPS = 3", "STEPS = 4")
    assert stamps.unlabelled(house) == []  # a label stays true: no day's work stops on it
    assert stamps.main(["--strict"], house) == 1
    assert "1 of 1 results files are stale, 1 of them quoted." in capsys.readouterr().out
    assert stamps.main([], house) == 0


def test_rows_that_nobody_stamped_and_rows_of_two_states_are_stale(house, stamps):
    results = house / "experiments/results/study.csv"
    results.write_text("a,b\n1,2\n3,4\n")
    assert stamps.trouble(results, house).startswith("rows that the stamp does not know")
    study = str(house / "experiments/study.py")
    with stamps.recording(results, study, is_new=True):
        results.write_text("a,b\n5,6\n")
    first = stamps.read(results)
    assert (len(first.code), first.contents) == (64, stamps.contents_of(results))
    with stamps.recording(results, study):  # goes on with the same code
        results.write_text("a,b\n5,6\n7,8\n")
    assert stamps.read(results).code == first.code
    assert stamps.read(results).seconds >= first.seconds
    change(house / "experiments/study.py", "vb.fit()", "vb.fit")
    with pytest.raises(KeyboardInterrupt), stamps.recording(results, study):  # cut off, and of two states of the code
        raise KeyboardInterrupt
    assert stamps.read(results).code == ""
    assert stamps.trouble(results, house).startswith("recorded by code that is not known")
    results.with_suffix(".json").unlink()
    assert stamps.trouble(results, house) == "no stamp"


def test_what_is_handed_on_may_be_asked_for_anything(house):
    code_of = importlib.import_module("code_of")
    package, study = house / "src/vertebra", house / "experiments/study.py"
    names = lambda: {path.name for path in code_of.files_of(study, package)}  # noqa: E731
    assert "other.py" not in names()
    study.write_text("import vertebra as vb\n\nprint(getattr(vb, 'fit'))\n")
    assert "other.py" in names()
    study.write_text('CODE = """\n    import vertebra as vb\n    vb.fit()\n"""\n')  # what another process runs
    assert {"deep.py", "below.py"} <= names()


def test_the_studies_of_this_house_exercise_what_they_import():
    code_of = importlib.import_module("code_of")
    found = {path.relative_to(code_of.ROOT).as_posix() for path in code_of.files_of(ROOT / "experiments/synthetic.py")}
    assert {"experiments/synthetic.py", "experiments/peers.py", "experiments/nid.py"} <= found
    assert {"src/vertebra/terms/search.py", "src/vertebra/models/additive.py", "src/vertebra/metrics.py"} <= found
    assert not any("/plot/" in path or "/cli/" in path or "runner" in path for path in found)


def test_a_benchmark_stamps_what_it_records_and_sees_rows_of_before(tmp_path, monkeypatch, stamps):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    record = importlib.import_module("record")
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    # what is run is a study, and not the worker of a test
    monkeypatch.setattr(sys.modules["__main__"], "__file__", record.__file__, raising=False)
    record.record("one", [{"a": 1.0, "b": 2}])
    first = json.loads((tmp_path / "one.json").read_text())
    assert len(first["code"]) == 64
    record._found.clear()  # as in another process
    record.record("one", [{"a": 1.5, "b": 2}])  # all of it anew
    assert stamps.read(tmp_path / "one.csv").code == first["code"]
    shutil.copy(tmp_path / "one.json", tmp_path / "kept.json")
    stamps.write(tmp_path / "one.csv", stamps.read(tmp_path / "one.csv")._replace(code="of before"))
    record._found.clear()
    record.record("one", [{"a": "1.5", "b": "2"}, {"a": 2.5, "b": 3}])  # goes on with what was there
    assert stamps.read(tmp_path / "one.csv").code == ""
