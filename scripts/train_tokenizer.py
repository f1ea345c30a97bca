"""Learn a subword vocabulary from parallel text.

From your own files (data/train.en + data/train.de), a joint vocabulary of both languages:

    vanilla-train-tokenizer --train_files data/train --source_lang en --target_lang de \\
        --vocab_size 10000 --output_dir runs/tokenizer

From the built-in demo corpus, with nothing to download:

    vanilla-train-tokenizer --dataset demo --vocab_size 1000 --output_dir runs/demo_tokenizer

The result is loaded by `AutoTokenizer.from_pretrained`, without this package. Options can also stand in a recipe:
`vanilla-train-tokenizer recipe.yaml --vocab_size 8000`.
"""

from collections.abc import Iterator
from itertools import islice

from vanilla_transformer.training.arguments import (
    CorpusArguments,
    TokenizerArguments,
    errors_as_sentences,
    parse_arguments,
)


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([CorpusArguments, TokenizerArguments], __doc__, argv)
        train(corpus, options)


def train(corpus_arguments: CorpusArguments, options: TokenizerArguments) -> None:
    from vanilla_transformer.training.data import load_corpus
    from vanilla_transformer.training.output import whole_folder

    with whole_folder(options.output_dir, overwrite=options.overwrite) as folder:
        corpus = load_corpus(corpus_arguments, splits=("train",))
        if options.separate:
            sizes = [learn(texts(corpus["train"], ["source"], options.max_pairs), options, folder)]
            sizes += [learn(texts(corpus["train"], ["target"], options.max_pairs), options, folder / "target")]
        else:
            sizes = [learn(texts(corpus["train"], ["source", "target"], options.max_pairs), options, folder)]
    print(corpus.report)
    for size in sizes:
        note = "" if size == options.vocab_size else f" (the text has no more than that of the {options.vocab_size:,})"
        print(f"vocabulary    {size:>12,}{note}")
    print(f"written to {options.output_dir}")


def learn(sentences: Iterator[str], options: TokenizerArguments, folder) -> int:
    """Learns one vocabulary, saves it and returns its size."""
    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer

    tokenizer = train_tokenizer(
        sentences,
        vocab_size=options.vocab_size,
        algorithm=options.algorithm,
        normalization=options.normalization,
        lowercase=options.lowercase,
        min_frequency=options.min_frequency,
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def texts(dataset, columns: list[str], max_pairs: int | None) -> Iterator[str]:
    """The sentences of some columns, a thousand pairs in memory at a time."""
    for batch in islice(dataset.iter(batch_size=1000), None if max_pairs is None else -(-max_pairs // 1000)):
        for column in columns:
            yield from batch[column]


if __name__ == "__main__":
    main()
