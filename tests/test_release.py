"""A release: one version, the same requirements everywhere, and a wheel that answers where it is alone."""

import os
import pathlib
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import venv

import pytest

import vertebra as vb

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# Under another name where conda-forge has one.
CONDA = {"matplotlib": "matplotlib-base"}


def yaml_of(path):
    yaml = pytest.importorskip("yaml", reason="pip install 'vertebra[docs]'")
    return yaml.safe_load((ROOT / path).read_text())


def test_there_is_one_version():
    assert f"\nversion: {vb.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'version: "{vb.__version__}"' in (ROOT / "recipe/recipe.yaml").read_text()
    assert re.search(rf"^## {re.escape(vb.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "### Upgrading from 0.1" in (ROOT / "CHANGELOG.md").read_text()


def test_there_are_at_most_fourteen_direct_requirements_and_each_is_imported():
    names = [re.split(r"[><=]", each)[0] for each in PROJECT["project"]["dependencies"]]
    assert len(names) <= 14
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    modules = {"scikit-learn": "sklearn"}
    assert [n for n in names if not re.search(rf"(?m)^\s*(import|from) {modules.get(n, n)}\b", code)] == []


def test_the_recipe_asks_for_what_the_project_asks_for():
    text = (ROOT / "recipe/recipe.yaml").read_text()
    wanted = [re.sub(r"(>=)", r" \1", each) for each in PROJECT["project"]["dependencies"]]
    wanted = [" ".join([CONDA.get(each.split()[0], each.split()[0]), *each.split()[1:]]) for each in wanted]
    run = text.split("  run:\n")[1].split("\n\n")[0]
    assert re.findall(r"    - (.*)", run) == ["python >=${{ python_min }}", *wanted]
    assert f'python_min: "{PROJECT["project"]["requires-python"].removeprefix(">=")}"' in text


def test_workflows_run_every_python_on_every_system_and_what_make_has():
    matrix = yaml_of(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"os": ["ubuntu-latest", "macos-latest", "windows-latest"], "python": PYTHONS}
    stated = [c.rpartition(" ")[2] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert stated == PYTHONS
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        jobs = yaml_of(path.relative_to(ROOT))["jobs"]
        for job in jobs.values():
            assert "timeout-minutes" in job, path
            for step in job["steps"]:
                assert set(re.findall(r"(?m)^make ([\w-]+)", step.get("run", ""))) <= targets
                for test in re.findall(r"tests/\w+\.py", step.get("run", "")):
                    assert (ROOT / test).is_file(), test
    publish = yaml_of(".github/workflows/publish.yml")["jobs"]
    assert publish["publish"]["permissions"] == {"id-token": "write"}  # and no token kept
    assert publish["publish"]["needs"] == "build"
    assert any("stamps.py --strict" in step.get("run", "") for step in publish["build"]["steps"])


def test_what_is_cited_is_this_and_the_paper():
    cited = yaml_of("CITATION.cff")
    (paper,) = cited["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Zhou", "Xiong", "Singh"]
    assert (cited["license"], paper["year"]) == (PROJECT["project"]["license"], 2018)
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml_of(path.relative_to(ROOT))
        assert path.name == "config.yml" or {"name", "description", "body"} <= set(form)


def has_an_index():
    """Whether packages can be installed here: from the index that pip would take."""
    try:
        urllib.request.urlopen(os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/") + "hatchling/", timeout=20)
    except (urllib.error.URLError, OSError):
        return False
    return True


@pytest.mark.slow
def test_a_wheel_from_the_sdist_answers_in_an_empty_environment(tmp_path):
    if not has_an_index():
        pytest.skip("there is no index to install from")
    (tmp_path / "made").mkdir()

    def told(*command, **options):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, **options)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    bin_ = "Scripts" if os.name == "nt" else "bin"
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
    for name in ("builds", "empty"):
        venv.create(tmp_path / name, with_pip=True)
    pip = ("-m", "pip", "install", "--quiet")
    told(tmp_path / "builds" / bin_ / "python", *pip, "build", env=clean)
    told(tmp_path / "builds" / bin_ / "python", "-m", "build", "--outdir", tmp_path / "made", ROOT, env=clean)
    (wheel,) = (tmp_path / "made").glob("*.whl")
    (sdist,) = (tmp_path / "made").glob("*.tar.gz")
    assert vb.__version__ in wheel.name
    assert vb.__version__ in sdist.name
    assert wheel.stat().st_size < 2e6
    assert sdist.stat().st_size < 2e6
    told(tmp_path / "empty" / bin_ / "python", *pip, f"{wheel}[report]", env=clean)
    assert told(tmp_path / "empty" / bin_ / "vertebra", "--version", env=clean) == f"vertebra {vb.__version__}\n"
    assert "bmi" in told(tmp_path / "empty" / bin_ / "vertebra", "demo", env=clean, cwd=tmp_path)
    assert {"model.vertebra", "report.html"} <= {path.name for path in (tmp_path / "demo-output").iterdir()}
    assert sys.prefix not in told(
        tmp_path / "empty" / bin_ / "python", "-c", "import vertebra; print(vertebra.__file__)"
    )
