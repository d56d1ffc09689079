from __future__ import annotations

from pathlib import Path

import pytest

from commsim.errors import PictureError
from commsim.report import picture


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"--plot: .*p\.jpg: expected a name ending in \.html"):
        picture.check_picture(tmp_path / "p.jpg")
    with pytest.raises(PictureError, match="got no ending"):
        picture.check_picture(tmp_path / "p")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="does not exist; make it first"):
        picture.check_picture(tmp_path / "no" / "p.png")


def test_without_the_extra_one_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    with pytest.raises(PictureError) as error:
        picture.check_picture(tmp_path / "p.png")
    assert "pip install 'commsim[plot]'" in str(error.value)
    assert "\n" not in str(error.value)
