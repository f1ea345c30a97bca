"""Measure this package beside the alternatives, in one run.

Speed of training on identical token batches, beside MarianMT and torch.nn.Transformer:

    vanilla benchmark train --train_files data/train --preset tiny

Training end to end, beside the library's Seq2SeqTrainer with MarianMT and batches of a fixed size:

    vanilla benchmark end_to_end --train_files data/train --preset tiny

Translation from text to text with the weights of a trained model (with --preset: random weights and a fixed length),
beside MarianMT and, if they are installed, CTranslate2 and ONNX Runtime:

    vanilla benchmark decode --model runs/demo/model --input data/test.en --references data/test.de
    vanilla benchmark decode --preset base --input data/test.en

Several models on the same text, for example a student beside its teacher:

    vanilla benchmark models --models model_cards/multi30k-en-de-tiny runs/student/model --input data/test.en \\
        --references data/test.de

A non-autoregressive model (mask_predict) beside an autoregressive one, line by line and in batches:

    vanilla benchmark mask_predict --model runs/mine/model --baseline model_cards/multi30k-en-de-tiny \\
        --input data/test.en --references data/test.de

The server under load, with its latency, beside the same model offline:

    vanilla benchmark serve --model runs/demo/model --input data/test.en --clients 32

The first second: fresh processes until their first answer, and their memory, beside ten lines of Python:

    vanilla benchmark start --rounds 5

What an update and a search cost on a GPU, counted on any machine:

    vanilla benchmark device --preset base --vocab_size 37000

Systems alternate within each round. A speed is the median over rounds. A ratio is the median of the ratios within a
round, and its spread is their range. Everything runs on one thread unless --threads is given. A GPU is used if there
is one (--device, --dtype bfloat16, --compile); otherwise the tables say so. With --output_dir the results are kept as
results.json and a picture.
"""

import sys

from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.scripts.benchmarks import (
    cold_start,
    decode,
    device,
    end_to_end,
    mask_predict,
    models,
    serving_speed,
    training_speed,
)


BENCHMARKS = {
    "train": training_speed.main,
    "end_to_end": end_to_end.main,
    "decode": decode.main,
    "models": models.main,
    "mask_predict": mask_predict.main,
    "serve": serving_speed.main,
    "device": device.main,
    "start": cold_start.main,
}


def main(argv: list[str] | None = None) -> None:
    name, *options = (sys.argv[1:] if argv is None else argv) or ["--help"]
    with errors_as_sentences():
        if name in BENCHMARKS:
            BENCHMARKS[name](options)
        elif name in ("-h", "--help"):
            print(f"usage: vanilla benchmark {{{','.join(BENCHMARKS)}}} [options]\n\n{__doc__}")
            print("vanilla benchmark NAME --help lists the options.")
        else:
            raise ValueError(f"There is no benchmark {name!r}: choose one of {', '.join(BENCHMARKS)}.")


if __name__ == "__main__":
    main()
