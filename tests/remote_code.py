"""A model folder that carries code, as a stranger could publish it."""

import json
from pathlib import Path


def spread(folder: Path, marker: Path) -> None:
    """Turns a model's folder into one that needs its own code, which creates the file `marker` when it runs."""
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "strange.Config", "AutoModelForSeq2SeqLM": "strange.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "strange", "auto_map": classes}))
    tokenizer = {"tokenizer_class": "Strange", "auto_map": {"AutoTokenizer": ["strange.Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "strange.py").write_text(f"""
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
open({str(marker)!r}, "w").close()
class Config(PreTrainedConfig):
    model_type = "strange"
class Model(PreTrainedModel):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
""")
