from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools import __version__
from tests.conftest import ROOT, clean_environment

NAME: Final = f"agentmove_tools-{__version__}"
DATA: Final = f"{NAME}.data"
INFO: Final = f"{NAME}.dist-info"

PACKAGE: Final = {
    str(path.relative_to(ROOT))
    for pattern in ("*.py", "py.typed")
    for path in (ROOT / "agentmove_tools").rglob(pattern)
}
SCRIPTS: Final = {path.name for path in (ROOT / "bin").iterdir()}
PAGES: Final = {str(path.relative_to(ROOT)) for path in (ROOT / "man").glob("man[157]/*.[157]")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both with the tools that are installed, and without the network."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel"]
    subprocess.run([*command, "--outdir", out, ROOT], check=True, capture_output=True)
    return out


def test_the_wheel_holds_the_package_the_tools_and_the_pages(built: Path) -> None:
    """Each module, each script of ``bin/`` and each man page is in, and nothing else."""
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        files = wheel.namelist()
    assert sorted(files) == sorted(
        [
            *PACKAGE,
            *(f"{DATA}/scripts/{name}" for name in SCRIPTS),
            *(f"{DATA}/data/share/{page}" for page in PAGES),
            *(f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")),
        ]
    )


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    """No test, no cache and nothing that lies about in the checkout is in it."""
    with tarfile.open(built / f"{NAME}.tar.gz") as sdist:
        files = [member.name.removeprefix(f"{NAME}/") for member in sdist if member.isfile()]
    papers = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"]
    made = [".gitignore", "PKG-INFO", "pyproject.toml"]
    scripts = [f"bin/{name}" for name in SCRIPTS]
    assert sorted(files) == sorted([*PACKAGE, *scripts, *PAGES, *papers, *made])


def test_what_is_installed_runs(built: Path, tmp_path: Path) -> None:
    """A tool from the wheel runs under the interpreter that it was installed with."""
    wheel = built / f"{NAME}-py3-none-any.whl"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--disable-pip-version-check", "--ignore-installed", "--root-user-action", "ignore"]
    subprocess.run([*pip, "--prefix", tmp_path, wheel], check=True, capture_output=True)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    for name in SCRIPTS:
        script = tmp_path / "bin" / name
        assert script.read_bytes().splitlines()[0] == f"#!{sys.executable}".encode()
        done = subprocess.run(
            [script, "--version"],
            env=clean_environment({"PYTHONPATH": str(site)}),
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode() == f"{name} {__version__}\n"
    assert {page.name for page in tmp_path.glob("share/man/man*/*")} == {
        Path(page).name for page in PAGES
    }


def test_every_script_can_be_run_and_calls_its_own_tool() -> None:
    """It has the run bit, and starts the tool that it is named after."""
    for name in SCRIPTS:
        script = ROOT / "bin" / name
        assert script.stat().st_mode & 0o111 == 0o111
        assert f'start("{name}")' in script.read_text()
