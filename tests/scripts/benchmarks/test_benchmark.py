"""What is measured is what the tables say; how fast it is, no test can know."""

import json
import math
import os
import random
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer.scripts.benchmarks import (
    benchmark,
    data,
    decode,
    end_to_end,
    growth,
    memory,
    peers,
    train,
)
from vanilla_transformer.training.arguments import CorpusArguments
from vanilla_transformer.training.batching import TokenBatchSampler


LEARNERS = ["vanilla_transformer", "MarianMT", "torch.nn.Transformer"]


@pytest.fixture
def text(tmp_path):
    draw = random.Random(0)
    for language in ("en", "de"):
        lines = [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(2, 9))) for _ in range(80)]
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "train")


@pytest.fixture
def in_this_process(monkeypatch):
    """A fresh process takes seconds to start. One test starts some, which is enough to know that they do."""
    for module in (data, end_to_end, memory):
        monkeypatch.setattr(module, "in_fresh_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(train, "process", lambda *preparation: nullcontext(InThisProcess(*preparation)))


class InThisProcess:
    """Prepares itself anew each time, since all of them share this process."""

    def __init__(self, prepare, *arguments):
        self.prepare = partial(prepare, *arguments)

    def submit(self, function) -> Future:
        self.prepare()
        future = Future()
        future.set_result(function())
        return future


def rows(printed: str, *names: str) -> dict[str, list[str]]:
    lines = {name: next(line for line in printed.splitlines() if line.startswith(f"{name}  ")) for name in names}
    return {name: line.removeprefix(name).split() for name, line in lines.items()}


# --- measuring ---


def test_help_and_an_unknown_name(capsys):
    benchmark.main(["--help"])
    assert "vanilla-benchmark {data,train,end_to_end,growth,memory,decode}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no benchmark 'speed': choose one of data, train"):
        benchmark.main(["speed"])


def test_systems_take_turns():
    called = []
    systems = {name: lambda name=name: called.append(name) or len(called) for name in ("ours", "theirs")}
    assert benchmark.take_turns(systems, rounds=3) == {"ours": [1, 3, 5], "theirs": [2, 4, 6]}
    assert called == ["ours", "theirs"] * 3


def test_a_ratio_is_the_median_of_the_rounds_and_its_spread_their_ends():
    seconds = {"ours": [1.0, 2.0, 1.0], "theirs": [2.0, 3.0, 5.0]}
    found = benchmark.compared(seconds, "theirs")
    assert found["ours"] == {"to MarianMT": 2.0, "spread": [1.5, 5.0]}
    assert found["theirs"] == {"to MarianMT": 1.0, "spread": [1.0, 1.0]}


def test_a_gpu_is_measured_by_its_own_clock(monkeypatch):
    """There is none here: what stands in for it shows when the clock is read."""
    order = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            order.append("record")

        def elapsed_time(self, end):
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    gpu = SimpleNamespace(type="cuda")
    assert benchmark.seconds_of(lambda: order.append("work"), gpu) == 1.5
    assert order == ["synchronize", "record", "work", "record", "synchronize"]
    assert benchmark.peak_memory(gpu) == 123
    assert benchmark.not_on_gpu(gpu) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["growth", "--rounds", "0"], "--rounds 0 must be at least 1"),
        (["growth", "--threads", "0"], "--threads 0 must be at least 1"),
        (["growth", "--lengths", "0"], r"--lengths \[0\]: give numbers of 1 or more"),
        (["growth", "--lengths", "4096"], "A sentence of 4096 tokens does not fit in a batch of 2048"),
        (["growth", "--at_length", "600"], "A sentence of 600 tokens does not fit in a batch of 512"),
        (["growth", "--at_length", "0"], "--at_length 0 must be at least 1"),
        (["memory", "--length", "0"], "--length 0 must lie between 1 and --max_tokens 4096"),
        (["memory", "--length", "64", "--max_tokens", "10"], "--length 64 must lie between 1 and --max_tokens 10"),
        (["train", "--dataset", "demo", "--batches", "0"], "--batches 0 must be at least 1"),
        (["end_to_end", "--dataset", "demo", "--pairs", "-5"], "--pairs -5 must not be negative"),
        (["growth", "--preset", "huge"], "huge"),
        (["memory", "--device", "abacus"], "'abacus' is unknown to torch"),
        (["end_to_end", "--dataset", "demo", "--device", "cuda:1"], "CUDA_VISIBLE_DEVICES=1 before the command"),
        (["decode", "--preset", "tiny"], "Give --input"),
        (["decode", "--input", "text"], "Give either --model or --preset"),
        (["decode", "--input", "text", "--model", "m", "--preset", "tiny"], "Give either --model or --preset"),
        (["decode", "--input", "a", "--preset", "tiny", "--references", "b"], "random weights have no BLEU"),
        (["decode", "--input", "text", "--preset", "tiny", "--sentences", "0"], "--sentences 0 must be at least 1"),
        (["data", "--dataset", "demo", "--streaming"], "a stream can't be put in other orders"),
    ],
)
def test_what_can_not_be_measured_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)


# --- showing ---


TABLE = benchmark.Table(
    "a title",
    {"tokens/s": "{:,.0f}", **benchmark.RATIO},
    {"ours": {"tokens/s": 1234.5, "to MarianMT": 2.0, "spread": [1.5, 2.5]}, "theirs": {"to MarianMT": 1.0}},
    drawn=["to MarianMT"],
    reference="theirs",
    notes=["A note."],
)


def test_a_table_has_every_figure_and_a_dash_where_there_is_none():
    lines = [line.split() for line in str(TABLE).splitlines()]
    assert lines == [
        ["a", "title"],
        ["tokens/s", "to", "MarianMT", "spread"],
        ["ours", "1,234", "2.00", "1.50-2.50"],
        ["theirs", "-", "1.00", "-"],
        ["A", "note."],
    ]


def test_figures_are_kept_whole_and_never_over_others_unasked(tmp_path, capsys):
    folder = tmp_path / "kept"
    options = benchmark.OutputArguments(str(folder))
    benchmark.report(options, iter([TABLE]))
    assert f"everything in {folder}" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == {"results.json", "picture.png"}
    (kept,) = json.loads((folder / "results.json").read_text())["tables"]
    assert kept["rows"] == TABLE.rows
    assert kept["notes"] == ["A note."]

    def measured_all_the_same():
        raise AssertionError("an hour is lost")
        yield

    with pytest.raises(ValueError, match="is already there"):
        benchmark.report(options, measured_all_the_same())
    overwriting = benchmark.OutputArguments(str(folder), overwrite=True)
    with pytest.raises(AssertionError):
        benchmark.report(overwriting, measured_all_the_same())
    assert json.loads((folder / "results.json").read_text())["tables"] == [kept]  # the old one, whole
    benchmark.report(overwriting, iter([TABLE, TABLE]))
    assert len(json.loads((folder / "results.json").read_text())["tables"]) == 2
    assert not [path for path in tmp_path.iterdir() if path != folder]

    (folder / "model.safetensors").touch()
    with pytest.raises(ValueError, match=r"holds model\.safetensors, no part of an older result"):
        benchmark.report(overwriting, iter([TABLE]))


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: figures.append(figure))
    return figures


def test_bars_show_ratios_and_their_spread(tmp_path, drawn):
    benchmark.draw_bars([TABLE], tmp_path / "picture.png")
    (axis,) = drawn[0].axes
    assert [bar.get_width() for bar in axis.patches] == [2.0, 1.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["ours", "theirs"]
    assert [text.get_text() for text in axis.texts] == ["2.00", "1.00"]
    (whisker,) = (container[2][0].get_segments()[0] for container in axis.containers if len(container) == 3)
    assert [end[0] for end in whisker] == [1.5, 2.5]


# --- the benchmarks ---


def test_the_data_benchmark_prints_every_order_and_ours_is_best(tmp_path, capsys, in_this_process):
    draw = random.Random(0)
    lengths = [draw.randint(2, 30) for _ in range(2000)]
    for language in ("en", "de"):
        lines = "".join("word " * max(1, length + draw.randint(-4, 4)) + "\n" for length in lengths)
        (tmp_path / f"train.{language}").write_text(lines)
    corpus = ["data", "--train_files", str(tmp_path / "train"), "--vocab_size", "270"]
    benchmark.main([*corpus, "--max_tokens", "512", "--pairs", "200", "--lengths", "3000"])
    printed = capsys.readouterr().out
    found = rows(printed, "random", "by source length", "by the longer side", "token batches (ours)")
    shares = {order: float(row[0].removesuffix("%")) for order, row in found.items()}
    assert min(shares, key=shares.get) == "token batches (ours)"
    assert "200 synthetic pairs read, tokenised and batched" in printed
    assert "GiB" in printed
    assert "batching 3,000 lengths" in printed
    with pytest.raises(SystemExit, match="--max_tokens 8: the longest pair has"):
        benchmark.main([*corpus, "--max_tokens", "512", "8"])


@pytest.mark.parametrize("order", ["bucketed", "random"])
def test_training_is_measured_beside_its_peers(text, capsys, order, in_this_process, monkeypatch):
    kept = []
    monkeypatch.setattr("vanilla_transformer.training.malloc.keep_freed_memory", lambda: kept.append(True))
    sizes = ["--vocab_size", "270", "--max_tokens", "100", "--batches", "1", "--rounds", "1", "--order", order]
    benchmark.main(["train", "--train_files", text, *sizes, "--device", "cpu"])
    printed = capsys.readouterr().out
    found = rows(printed, *train.SYSTEMS)
    assert len(kept) == 2 * 2  # two systems, to warm up and in the one round
    assert found["MarianMT"][1:3] == ["1.00", "1.00-1.00"]
    assert all(float(row[0].replace(",", "")) > 0 for row in found.values())
    assert "Not measured on a GPU." in printed


def test_a_process_is_prepared_once_and_then_works(tmp_path):
    with benchmark.process(os.chdir, tmp_path) as worker:
        assert [worker.submit(os.getcwd).result() for _ in range(2)] == [str(tmp_path)] * 2
    assert os.getcwd() != str(tmp_path)


def test_tokens_are_counted_without_padding(text):
    options = train.TrainBenchmarkArguments(vocab_size=270, max_tokens=100, batches=3)
    for batch in train.training_batches(CorpusArguments(train_files=[text]), options):
        sides = batch["input_ids"].flatten().tolist(), batch["labels"].flatten().tolist()
        plain = sum(token != padding for side, padding in zip(sides, (0, -100), strict=True) for token in side)
        assert train.real_tokens(batch) == plain < 200


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_learners_start_from_the_same_loss(text, dtype):
    """They are the same network: dropout aside, MarianMT with the same weights has the same loss."""
    options = train.TrainBenchmarkArguments(vocab_size=270, max_tokens=100, batches=1)
    (batch,) = train.training_batches(CorpusArguments(train_files=[text]), options)
    config = peers.configuration("tiny", 270, dropout=0.0)
    losses = {}
    for name in peers.MODELS:
        torch.manual_seed(0)
        losses[name] = peers.make_learner(name, config, dtype=dtype)(batch).item()
    # The two definitions of smoothing differ by a hair.
    assert losses["MarianMT"] == pytest.approx(losses["vanilla_transformer"], rel=0.01)
    assert losses["torch.nn.Transformer"] == pytest.approx(losses["vanilla_transformer"], rel=0.3)


def test_the_products_of_an_update_are_those_that_torch_counts():
    """Of MarianMT, which is the same network and whose every product the counter knows, and without padding."""
    config = peers.configuration("tiny", 270, dropout=0.0)
    batch = peers.random_batch(60, 6, 270, torch.device("cpu"))
    model, loss = peers.marian_model(config)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        loss(batch).backward()
    assert peers.products_of(config, batch) == counter.get_total_flops()


def test_memory_is_measured_in_fresh_processes(capsys, monkeypatch):
    """Which know nothing of what this one holds: getrusage would count it as theirs."""
    held = b"x" * 2**30
    monkeypatch.delitem(peers.MODELS, "torch.nn.Transformer")
    benchmark.main(["memory", "--preset", "tiny", "--vocab_size", "30000", "--max_tokens", "1024", "--device", "cpu"])
    found = rows(capsys.readouterr().out, "vanilla_transformer", "MarianMT")
    assert float(found["vanilla_transformer"][-1]) < float(found["MarianMT"][-1]) == 1.0
    config = peers.configuration("tiny", 30000)
    model, _ = peers.our_model(config)
    with_moments = 4 * 4 * model.num_parameters() / 2**20  # weights, gradients and two moments, four bytes each
    assert with_moments < float(found["vanilla_transformer"][0]) < len(held) / 2**20 < benchmark.peak_memory() / 2**20


def test_growth_is_measured_at_every_point(tmp_path, capsys, drawn):
    grid = ["--max_tokens", "32", "64", "--lengths", "4", "8", "--layers", "1", "2", "3"]
    others = ["--at_tokens", "32", "--at_length", "4", "--rounds", "1", "--vocab_size", "50", "--device", "cpu"]
    benchmark.main(["growth", *grid, *others, "--output_dir", str(tmp_path / "growth")])
    printed = capsys.readouterr().out
    for axis, numbers in (
        ("tokens in the batch", ["32", "64"]),
        ("tokens in a sentence", ["4", "8"]),
        ("layers of each stack", ["1", "2", "3"]),
    ):
        lines = printed.partition(f"{axis}:")[2].splitlines()[2 : 2 + len(numbers)]
        assert [line.split()[0] for line in lines] == numbers
        assert all(float(figure) > 0 for line in lines for figure in line.split()[1:4])
    panels = drawn[0].axes
    assert [panel.get_xlabel() for panel in panels] == [
        "tokens in the batch",
        "tokens in a sentence",
        "layers of each stack",
    ]
    assert [list(panel.lines[0].get_xdata()) for panel in panels] == [[32, 64], [4, 8], [1, 2, 3]]
    tables = json.loads((tmp_path / "growth" / "results.json").read_text())["tables"]
    ours = [row["vanilla_transformer"] for row in tables[2]["rows"].values()]
    assert list(panels[2].lines[0].get_ydata()) == ours


def test_growth_changes_one_thing_at_a_time(monkeypatch):
    seen = []
    monkeypatch.setattr(
        growth, "cost", lambda tokens, length, fields, *rest: seen.append((tokens, length, fields)) or {}
    )
    options = growth.GrowthBenchmarkArguments(max_tokens=[256], lengths=[16], layers=[3], device="cpu")
    list(growth.measure(options))
    layers = {"encoder_layers": 3, "decoder_layers": 3}
    assert seen == [(256, 32, {}), (2048, 16, {}), (2048, 32, layers)]


# --- end to end ---


def test_both_trainers_see_every_pair_once(text, tmp_path, capsys, in_this_process, monkeypatch):
    """Tokens, updates and the fixed batch size against plain counts."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    options = ["--vocab_size", "270", "--max_tokens", "100", "--rounds", "1", "--device", "cpu"]
    benchmark.main(["end_to_end", "--train_files", text, *options])
    printed = capsys.readouterr().out

    _, tokens = data.learn_and_tokenise(CorpusArguments(train_files=[text]), 270)
    source, target = ([len(ids) for ids in tokens[column]] for column in ("input_ids", "labels"))
    longest = max(source + target)
    found = rows(printed, end_to_end.OURS, end_to_end.THEIRS)
    batches = len(TokenBatchSampler(source, target, max_tokens=100))
    assert found[end_to_end.OURS][3] == str(batches)
    assert found[end_to_end.THEIRS][1:4] == ["1.00", "1.00-1.00", str(math.ceil(80 / (100 // longest)))]
    assert f"{sum(source) + sum(target):,} tokens of both sides" in printed
    assert f"MarianMT: {100 // longest} pairs" in printed
    assert f"padded to the longest of all, {longest} tokens, reach" in printed
    with pytest.raises(SystemExit, match=f"--max_tokens 5: the longest pair has {longest} tokens"):
        benchmark.main(["end_to_end", "--train_files", text, "--vocab_size", "270", "--max_tokens", "5"])


def test_a_fixed_batch_keeps_the_limit_of_tokens_with_the_longest_pair_in_it(text, tmp_path):
    options = end_to_end.EndToEndBenchmarkArguments(vocab_size=270, max_tokens=100, pairs=30)
    prepared = end_to_end.prepare(CorpusArguments(train_files=[text]), options, str(tmp_path / "prepared"))
    assert prepared.pairs == 30
    assert prepared.batch_size * prepared.longest <= 100 < (prepared.batch_size + 1) * prepared.longest


# --- decoding ---


def test_all_systems_with_the_same_weights_write_the_same(text):
    """In float32 and greedily; beams of MarianMT's `generate` are judged by another length penalty."""
    arguments = {"input": [f"{text}.en"], "preset": "tiny", "vocab_size": 270, "length": 6, "sentences": 9}
    options = decode.DecodeBenchmarkArguments(**arguments, batch_size=4)
    lines, references = decode.read_text(options)
    assert len(lines) == 9
    assert not references
    decoders = decode.make_decoders(options, lines, torch.device("cpu"))
    with torch.no_grad():
        for parameter in decoders.model.parameters():
            parameter.mul_(2.0)  # so that texts have different translations
    translations = {name: way() for name, way in decoders.ways(beams=1).items() if "int8" not in name}
    assert set(translations) >= {
        "MarianMT generate",
        "MarianMT, beam_search",
        "this model, stock generate",
        "this model, beam_search",
        "Translator",
        "Translator, CTranslate2",
    }
    expected = translations["MarianMT generate"]
    assert len(set(expected)) > 1
    assert all(found == expected for found in translations.values())
    assert decoders.tokens_in(expected) == 9 * 6


def test_decoding_is_measured_from_text_to_text(text, model_folder, capsys):
    sizes = ["--input", f"{text}.en", "--sentences", "5", "--rounds", "1", "--device", "cpu"]
    model = ["decode", "--model", str(model_folder), "--references", f"{text}.de", "--num_beams", "2"]
    benchmark.main([*model, *sizes])
    printed = capsys.readouterr().out
    systems = ["MarianMT generate", "this model, beam_search", "Translator", "Translator int8"]
    found = rows(printed, *systems, "Translator, CTranslate2", "Translator, CTranslate2 int8")
    assert found["MarianMT generate"][2:4] == ["1.00", "1.00-1.00"]
    assert all(float(row[-1]) >= 0 for row in found.values())  # BLEU
    assert "BLEU: nrefs:1" in printed
    assert str(model_folder) in printed
    with pytest.raises(SystemExit, match="There are 80 lines of input but 240 references"):
        benchmark.main([*model, *sizes, "--references", *[f"{text}.de"] * 3])


def test_an_engine_that_is_not_there_is_said_to_be_missing(text, capsys, monkeypatch):
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    sizes = ["--input", f"{text}.en", "--sentences", "2", "--rounds", "1", "--num_beams", "1", "--length", "2"]
    benchmark.main(["decode", "--preset", "tiny", "--vocab_size", "270", "--device", "cpu", *sizes])
    printed = capsys.readouterr().out
    assert "CTranslate2 was not measured: not installed (ctranslate2)." in printed
    assert "ONNX Runtime was not measured: not installed (onnx, onnxscript, onnxruntime)." in printed
    assert "Translator, CTranslate2" not in printed


def test_text_without_a_line_is_refused(tmp_path):
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(SystemExit, match="has no text: give a sentence a line"):
        benchmark.main(["decode", "--preset", "tiny", "--input", str(tmp_path / "empty")])
