import json
import shutil
from pathlib import Path

import pytest

from tests.vanilla_transformer.serving.conftest import BUNDLED
from vanilla_transformer import Translator
from vanilla_transformer.scripts import calibrate


CAPTIONS = Path(__file__).parents[1] / "data" / "captions"


def test_a_model_is_calibrated_in_its_folder(tmp_path, capsys):
    model = shutil.copytree(BUNDLED, tmp_path / "model")
    before = json.loads((model / "generation_config.json").read_text())
    (tmp_path / "other.en").write_text("The bank lowered its interest rates.\nParliament adopted the motion.\n")
    words = ["--model", str(model), "--files", str(CAPTIONS), "--other_text", str(tmp_path / "other.en")]
    calibrate.main(words)
    rows = dict(line.rsplit(None, 1) for line in capsys.readouterr().out.splitlines())
    assert float(rows["ECE of words after"]) < 0.2
    assert float(rows["AUC after"]) > 0.9
    after = json.loads((model / "generation_config.json").read_text())
    calibration = after.pop("calibration")
    before.pop("calibration", None)
    assert after == before
    (best,) = next(Translator.from_pretrained(model).translate(["A dog runs."], confidence=True))
    assert best.is_calibrated
    assert min(calibration["confidences"]) <= best.confidence <= max(calibration["confidences"])


def test_what_is_not_a_folder_is_refused(tmp_path):
    for model, sentence in (
        ("everyday", "a name for several models"),
        (str(tmp_path), "give the folder of one model"),
    ):
        with pytest.raises(SystemExit, match=sentence):
            calibrate.main(["--model", model, "--files", str(CAPTIONS)])
