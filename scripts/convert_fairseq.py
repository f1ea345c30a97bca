"""Convert a fairseq checkpoint to a model of this package.

For `transformer` architectures with a joined dictionary, for example the WMT models of "Scaling Neural Machine
Translation" (Ott et al. 2018). Their folder has the three files:

    vanilla convert fairseq --checkpoint model.pt --dict dict.en.txt --bpe_codes bpecodes --output_dir models/en-de
    echo "It is raining." | vanilla translate --model models/en-de

The tokenizer is transformers' FSMTTokenizer, which AutoTokenizer loads: Moses normalisation and tokenisation by
sacremoses, then the subwords of the BPE codes (subword-nmt or fastBPE). The checkpoint is read without running any
code of it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_fairseq import (
    SPECIAL_TOKENS,
    model_from_fairseq,
    options_of,
    read_checkpoint,
    read_dictionary,
)
from vanilla_transformer.hub.languages import Languages, record_languages
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import whole_folder


CONTINUED = "@@"  # subword-nmt's mark at the end of a subword that does not end its word
WORD_END = "</w>"  # FSMTTokenizer's mark at the end of a subword that does


@dataclass
class ConvertArguments:
    """Which checkpoint to convert, and where to write the result."""

    checkpoint: str = key("model.pt", "The checkpoint of fairseq.")
    dict: str = key("dict.en.txt", "The joined dictionary: dict.LANG.txt of either language.")
    bpe_codes: str = key("bpecodes", "The BPE codes, as subword-nmt or fastBPE wrote them.")
    source_lang: str | None = key(None, "Source language for Moses, for example en; by default the checkpoint's.")
    target_lang: str | None = key(None, "Target language for Moses, for example de; by default the checkpoint's.")
    output_dir: str = key("converted", "Folder for the converted model, as `from_pretrained` reads it.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ConvertArguments], __doc__, argv)
        convert(options)


def convert(options: ConvertArguments) -> None:
    """Writes the converted model and its tokenizers."""
    checkpoint, vocabulary = read_checkpoint(options.checkpoint), read_dictionary(options.dict)
    merges = read_merges(options.bpe_codes)
    source_lang, target_lang = languages(options, options_of(checkpoint))
    with whole_folder(options.output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        model = model_from_fairseq(checkpoint, len(vocabulary))
        record_languages(model.config, Languages(source_lang, target_lang))
        model.save_pretrained(folder)
        write_tokenizer(folder, vocabulary, merges, [source_lang, target_lang])
        # FSMTTokenizer reads text with the first of its languages, so the target needs one of its own.
        write_tokenizer(folder / TARGET, vocabulary, merges, [target_lang, target_lang])
    print(
        f"{options.checkpoint} in {options.output_dir}: {model.num_parameters():,} parameters, "
        f"{len(vocabulary):,} tokens, {source_lang} to {target_lang}"
    )


def languages(options: ConvertArguments, stored: dict[str, Any]) -> tuple[str, str]:
    """The languages given as options, else those in the checkpoint."""
    source_lang = options.source_lang or stored.get("source_lang")
    target_lang = options.target_lang or stored.get("target_lang")
    if source_lang is None or target_lang is None:
        raise ValueError(f"{options.checkpoint} does not name its languages: give --source_lang and --target_lang.")
    return source_lang, target_lang


# --- tokenizer ---


def read_merges(path: str) -> list[tuple[str, str]]:
    """Reads BPE codes: two subwords on each line, and in fastBPE's files their count."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    version = lines[0] if lines and lines[0].startswith("#version:") else None
    if version and version.split()[-1] != "0.2":
        raise ValueError(f"{path} has {version!r}: only codes of version 0.2 can be read. Learn them again.")
    merges = []
    for number, line in enumerate(lines, start=1):
        if number == 1 and version:
            continue
        words = line.split(" ")
        if len(words) not in (2, 3) or not all(words):
            raise ValueError(f"{path}, line {number}: {line!r} is not a pair of subwords: give the BPE codes.")
        merges.append((words[0], words[1]))
    return merges


def subword(token: str) -> str:
    """Returns the name of a fairseq token in FSMTTokenizer's vocabulary, which marks the ends of words."""
    if token in SPECIAL_TOKENS:
        return token
    return token.removesuffix(CONTINUED) if token.endswith(CONTINUED) else token + WORD_END


def write_tokenizer(folder: Path, vocabulary: dict[str, int], merges: list[tuple[str, str]], langs: list[str]) -> None:
    """Writes the files of an FSMTTokenizer.

    Args:
        folder: The folder, which is made if it does not exist.
        vocabulary: fairseq's tokens and their ids.
        merges: Pairs of subwords, the most frequent first.
        langs: Language of the text that is read, and of the text that is written.
    """
    folder.mkdir(exist_ok=True)
    names = {subword(token): token_id for token, token_id in vocabulary.items()}
    for name in ("vocab-src.json", "vocab-tgt.json"):
        (folder / name).write_text(json.dumps(names, ensure_ascii=False, indent=2), encoding="utf-8")
    (folder / "merges.txt").write_text("".join(f"{first} {second}\n" for first, second in merges), encoding="utf-8")
    config = {"tokenizer_class": "FSMTTokenizer", "langs": langs, "do_lower_case": False, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
