"""Learn a subword vocabulary from parallel text.

From your own files (data/train.en + data/train.de), a joint vocabulary of both languages:

    vanilla tokenizer --train_files data/train --source_lang en --target_lang de \\
        --vocab_size 10000 --output_dir runs/tokenizer

From the demo corpus, without a download:

    vanilla tokenizer --dataset demo --vocab_size 1000 --output_dir runs/demo_tokenizer

`AutoTokenizer.from_pretrained` loads the result without this package. The options can also come from a recipe:
`vanilla tokenizer recipe.yaml --vocab_size 8000`.
"""

from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import whole_folder
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import TokenizerArguments
from vanilla_transformer.training.data.parallel_corpus import load_corpus
from vanilla_transformer.training.data.vocabulary import learn_vocabularies


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([CorpusArguments, TokenizerArguments], __doc__, argv)
        train(corpus, options)


def train(corpus_arguments: CorpusArguments, options: TokenizerArguments) -> None:
    """Learns the vocabularies, writes the tokenizers and prints their sizes."""
    made_of = ("tokenizer.json", "tokenizer_config.json", TARGET)
    with whole_folder(options.output_dir, made_of=made_of, overwrite=options.overwrite) as folder:
        corpus = load_corpus(corpus_arguments, splits=("train",))
        sizes = learn_vocabularies(corpus["train"], options, folder)
    print(corpus.report)
    for size in sizes:
        note = "" if size == options.vocab_size else f" (fewer than {options.vocab_size:,}: the text has no more)"
        print(f"vocabulary    {size:>12,}{note}")
    print(f"written to {options.output_dir}")


if __name__ == "__main__":
    main()
