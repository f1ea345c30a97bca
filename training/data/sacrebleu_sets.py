"""Test sets by sacreBLEU's names: `sacrebleu:wmt14/en-de`. sacreBLEU downloads them once and keeps them in
~/.sacrebleu, or where the variable SACREBLEU says."""

from pathlib import Path

from sacrebleu.dataset import DATASETS

from vanilla_transformer.hub.saved_files import reason_of
from vanilla_transformer.models.spelling import suggestion


PREFIX = "sacrebleu:"


def files_of_set(word: str, source_lang: str, target_lang: str) -> list[Path]:
    """Returns the files of a test set: the source, then its references.

    Args:
        word: The prefix, the test set, a slash, the languages.
        source_lang: Source language, which must be that of the set.
        target_lang: Target language, which must be that of the set.
    """
    name, _, languages = word.removeprefix(PREFIX).rpartition("/")
    if name not in DATASETS:
        raise ValueError(
            f"{word}: sacreBLEU has no test set {name!r}{suggestion(name, DATASETS)}. Write sacrebleu:SET/en-de, with "
            "a set of sacrebleu --list."
        )
    test_set = DATASETS[name]
    if languages not in test_set.langpairs or languages != f"{source_lang}-{target_lang}":
        raise ValueError(
            f"{word} is not from {source_lang} into {target_lang}: {name} has {', '.join(sorted(test_set.langpairs))}."
        )
    try:
        paths = [test_set.get_source_file(languages), *test_set.get_reference_files(languages)]
    except (Exception, SystemExit) as error:  # sacreBLEU ends the program if a certificate can't be checked
        raise ValueError(
            f"{word} can't be downloaded ({reason_of(error)}): run sacrebleu --download {name} --language-pair "
            f"{languages} where there is a network, and copy ~/.sacrebleu here."
        ) from error
    return list(map(Path, paths))
