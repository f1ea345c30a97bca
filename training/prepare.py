"""Prepare the text of a recipe without training: download, clean, learn the vocabulary, tokenise.

    vanilla prepare wmt14_en_de_base
    vanilla prepare wmt14_en_de_base --num_proc 32

This needs no GPU. `vanilla train` with the same recipe and options then starts within seconds or a minute: it finds
the vocabulary in the run's folder and the text in the cache of `datasets` (HF_DATASETS_CACHE). Machines that train
together must share both folders; otherwise, prepare on each of them. What is already prepared is not done again, so
the command can be repeated after a crash.
"""

import sys
import time
from pathlib import Path

from transformers import set_seed

from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.run_arguments import with_languages
from vanilla_transformer.training.arguments.training_arguments import DescribedTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.data.prepared_text import prepare_text
from vanilla_transformer.training.run_folder.run_directory import exclusive, require_fresh


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [ModelArguments, CorpusArguments, VocabularyArguments, DescribedTrainingArguments]
        model_arguments, corpus_arguments, vocabulary_arguments, args = parse_arguments(types, __doc__, argv)
        if corpus_arguments.streaming:
            raise ValueError("streaming reads the text while training: there is nothing to prepare.")
        folder = Path(args.output_dir)
        start = time.perf_counter()
        with exclusive(folder):
            require_fresh(folder, resume=None)
            corpus_arguments = with_languages(corpus_arguments, model_arguments)
            set_seed(args.seed)
            data = prepare_text(model_arguments, corpus_arguments, vocabulary_arguments, args)
        tokens = len(data.tokenizers[0])
        print(f"{data.corpus.report}\n{tokens:,} tokens in the vocabulary")
        print(f"Prepared in {time.perf_counter() - start:.0f} s: vanilla train starts from here.")


if __name__ == "__main__":
    main(sys.argv[1:])
