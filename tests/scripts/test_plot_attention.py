"""What is drawn is what the model computes, and no text can break the page."""

import json
import re
from functools import partial
from html.parser import HTMLParser

import pytest
import torch
from matplotlib import image
from matplotlib.figure import Figure
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, T5Config, T5ForConditionalGeneration

from tests.small_models import small_marian
from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    Translator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.models.positions import AddedPositions
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.models.variants import POSITIONS, load
from vanilla_transformer.scripts import plot_attention
from vanilla_transformer.training.reports import plots


SOURCE, TARGET = "The cat sleeps.", "Ein Hund läuft im Garten."
NASTY = """<b>&"'</script><!-- $x^2$ $\\frac$ @data@ @title@ <img src=x onerror=alert(1)>"""
PICTURES = ["cross_attention.png", "decoder_self_attention.png", "encoder_self_attention.png"]
KINDS = {
    "encoder self-attention": "encoder_attentions",
    "decoder self-attention": "decoder_attentions",
    "cross attention": "cross_attentions",
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([SOURCE, TARGET], vocab_size=300, min_frequency=1, show_progress=False)


def vanilla(**fields):
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "decoder_attention_heads": 2}
    return VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", **{**sizes, **fields})
    )


def marian():
    sizes = {"vocab_size": 300, "encoder_layers": 1, "decoder_attention_heads": 2, "max_position_embeddings": 40}
    return small_marian(**sizes, decoder_start_token_id=0)


def t5():
    ids = {"vocab_size": 300, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**ids, d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=2))


@pytest.fixture
def save(tokenizer, tmp_path):
    def save_model(model) -> str:
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / "model")
        return str(tmp_path / "model")

    return save_model


class Page(HTMLParser):
    """The elements of a page and the text in each kind of them, as a browser would read it."""

    def __init__(self, html: str):
        super().__init__()
        self.elements, self.texts, self.attributes, self.inside = [], {}, [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.attributes += attributes
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.setdefault(self.inside[-1] if self.inside else "", []).append(data)

    @property
    def data(self) -> dict:
        return json.loads(self.texts["script"][0])


def page_of(folder) -> Page:
    return Page((folder / "attention.html").read_text(encoding="utf-8"))


def draw(output, *arguments: str):
    plot_attention.main([*arguments, "--output_dir", str(output)])
    return output


# --- attention ---


PATTERNS = [
    partial(vanilla, attention_pattern="window", attention_window=4),
    partial(vanilla, attention_pattern="longformer", attention_window=4),
    partial(vanilla, attention_pattern="lsh", lsh_bucket_length=4),
]


def rnn_search(**fields):
    sizes = {"embedding_size": 8, "hidden_size": 8, "attention_size": 8, "readout_size": 8}
    return RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=300, **sizes, **fields)).eval()


def test_a_recurrent_model_has_attention_to_the_source_only(save, tokenizer, tmp_path):
    model = rnn_search()
    torch.nn.init.normal_(model.decoder.context.weight)
    output = draw(tmp_path / "out", "--model", save(model), "--text", SOURCE, "--translation", TARGET)
    assert sorted(path.name for path in output.iterdir()) == ["attention.html", "cross_attention.png"]
    (maps,) = page_of(output).data["heads"]
    assert maps["kind"] == "cross attention"
    batch = tokenizer([SOURCE], text_target=[TARGET], return_tensors="pt")
    (expected,) = model(**batch, output_attentions=True).cross_attentions
    assert_close(torch.tensor(maps["weights"]), expected, rtol=0, atol=1e-4)


def test_a_model_without_attention_is_refused(save, tmp_path):
    folder = save(rnn_search(attention="none"))
    with pytest.raises(SystemExit, match="does not attend to the source"):
        draw(tmp_path / "out", "--model", folder, "--text", SOURCE)


@pytest.mark.parametrize("make", [vanilla, marian, t5, *PATTERNS])
def test_the_page_holds_the_weights_and_tokens_of_the_model(save, tokenizer, tmp_path, make):
    folder = save(make())
    page = page_of(draw(tmp_path / "out", "--model", folder, "--text", SOURCE, "--translation", TARGET))

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager")
    batch = tokenizer([SOURCE], text_target=[TARGET], return_tensors="pt")
    expected = model(**batch, output_attentions=True)
    source, written = (
        [tokenizer.decode([token]).strip() or tokenizer.convert_ids_to_tokens(token) for token in ids.tolist()]
        for ids in (batch["input_ids"][0], batch["labels"][0])
    )
    start = tokenizer.convert_ids_to_tokens(model.config.decoder_start_token_id)
    sides = {
        "encoder self-attention": (source, source),
        "decoder self-attention": (written, [start, *written[:-1]]),
        "cross attention": (written, source),
    }
    assert [each["kind"] for each in page.data["heads"]] == list(KINDS)
    for each in page.data["heads"]:
        assert (each["rows"], each["columns"]) == sides[each["kind"]]
        weights = torch.tensor(each["weights"])
        assert_close(weights, torch.cat(getattr(expected, KINDS[each["kind"]])).detach(), rtol=0, atol=1e-4)
    (decoder,) = (
        torch.tensor(each["weights"]) for each in page.data["heads"] if each["kind"] == "decoder self-attention"
    )
    assert not decoder.triu(1).any()


def test_the_models_own_translation_is_drawn_unless_one_is_given(save, tmp_path):
    folder = save(vanilla())
    output = draw(tmp_path / "out", "--model", folder, "--text", SOURCE)
    assert sorted(path.name for path in output.iterdir()) == ["attention.html", *PICTURES]
    translation = Translator.from_pretrained(folder, device="cpu")(SOURCE)
    assert page_of(output).texts["h1"] == [f"{SOURCE} → {translation}"]


def test_text_stays_text(save, tmp_path):
    folder = save(vanilla())
    plain = page_of(draw(tmp_path / "plain", "--model", folder, "--text", SOURCE, "--translation", TARGET))
    nasty = page_of(draw(tmp_path / "nasty", "--model", folder, "--text", NASTY, "--translation", NASTY))
    assert nasty.elements == plain.elements
    assert nasty.attributes == plain.attributes
    assert nasty.texts["h1"] == nasty.texts["title"] == [f"{NASTY} → {NASTY}"]
    assert nasty.texts["script"][1:] == plain.texts["script"][1:]
    assert (nasty.data["sentence"], nasty.data["translation"]) == (NASTY, NASTY)
    joined = "".join(nasty.data["heads"][0]["rows"])
    assert joined.replace("Ġ", "") == NASTY.replace(" ", "") + "</s>"


def test_the_page_needs_nothing_from_elsewhere(save, tmp_path):
    page = page_of(draw(tmp_path / "out", "--model", save(vanilla()), "--text", SOURCE, "--translation", TARGET))
    assert not {"link", "img", "iframe"} & set(page.elements)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert not re.search(
        r"https?:(?!//www.w3.org/2000/svg)|@import|url\(|fetch\(|innerHTML",
        "".join(page.texts["script"] + page.texts["style"]),
    )


@pytest.fixture
def figures(monkeypatch):
    """The figures that were saved, by the names of their files."""
    saved = {}
    savefig = Figure.savefig

    def remember(figure, path, **options):
        saved[path.name] = figure
        savefig(figure, path, **options)

    monkeypatch.setattr(Figure, "savefig", remember)
    return saved


def drawn(axis) -> torch.Tensor:
    """The numbers of a heat map."""
    return torch.tensor(axis.images[0].get_array().data)


def test_the_pictures_show_every_head_with_its_tokens(save, tmp_path, figures):
    output = draw(tmp_path / "out", "--model", save(vanilla()), "--text", SOURCE, "--translation", NASTY)
    for each, name in zip(page_of(output).data["heads"], reversed(PICTURES), strict=True):
        assert image.imread(output / name).std() > 0
        weights = torch.tensor(each["weights"])
        panels = [axis for axis in figures[name].axes if axis.get_title()]
        assert len(panels) == weights.shape[0] * weights.shape[1]
        assert_close(torch.stack([drawn(panel) for panel in panels]), weights.flatten(0, 1), rtol=0, atol=1e-4)
        # Beyond 32 tokens not all have their names.
        rows, columns = (tokens[:: -(-len(tokens) // 32)] for tokens in (each["rows"], each["columns"]))
        assert [label.get_text() for label in panels[0].get_yticklabels()] == rows
        assert [label.get_text() for label in panels[-1].get_xticklabels()] == columns


# --- positions and learning rate ---


ADDED = [name for name, encoding in POSITIONS.items() if issubclass(load(encoding), AddedPositions)]


@pytest.mark.parametrize("encoding", ADDED)
def test_positions_of_a_model(save, tmp_path, figures, encoding):
    model = vanilla(position_encoding=encoding, max_position_embeddings=40)
    draw(tmp_path / "out", "--model", save(model), "--positions", "--length", "30")
    expected = model.model.encoder.embed_positions(torch.arange(30)).detach()
    assert_close(drawn(figures["positions.png"].axes[0]).double(), expected.double())


@pytest.mark.parametrize("encoding", sorted(POSITIONS.keys() - set(ADDED)))
def test_positions_that_are_not_added_to_embeddings_are_not_drawn(save, tmp_path, encoding):
    with pytest.raises(SystemExit, match="adds no positional encodings to embeddings: leave out --positions"):
        draw(tmp_path / "out", "--model", save(vanilla(position_encoding=encoding)), "--positions")


def test_positions_of_another_model_of_the_library(save, tmp_path, figures):
    model = marian()
    draw(tmp_path / "out", "--model", save(model), "--positions", "--length", "40")
    assert_close(
        drawn(figures["positions.png"].axes[0]), model.model.encoder.embed_positions(torch.Size([1, 40])).detach()
    )


def test_positions_of_a_preset_are_the_papers(tmp_path, figures):
    output = draw(tmp_path / "out", "--positions")
    assert [path.name for path in output.iterdir()] == ["positions.png"]
    vectors = drawn(figures["positions.png"].axes[0])
    assert vectors.shape == (100, 512)
    angle = torch.tensor(7 / 10000 ** (20 / 512), dtype=torch.float64)
    assert_close(vectors[7, 20:22], torch.stack([angle.sin(), angle.cos()]))


def test_learning_rates_are_the_papers(tmp_path, figures):
    draw(tmp_path / "out", "--learning_rate", "--curves", "512:4000", "256:30", "--steps", "5000")
    lines = figures["learning_rate.png"].axes[0].lines
    for line, (d_model, warmup) in zip(lines, [(512, 4000), (256, 30)], strict=True):
        steps, rates = line.get_data()
        assert {1, warmup} <= set(steps)
        assert max(steps) <= 5000
        assert list(rates) == pytest.approx([d_model**-0.5 * min(s**-0.5, s * warmup**-1.5) for s in steps])


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to draw: give --model and --text, or --positions, or --learning_rate."),
        (["--model", "m"], "Nothing to draw"),
        (["--model", "m", "--learning_rate"], "--model m has no effect without --text or --positions: add one"),
        (["--text", "a"], "--text 'a': give the model that reads it with --model."),
        (["--model", "m", "--text", " "], "--text ' ' is empty: give a sentence."),
        (["--model", "m", "--text", "a", "--translation", ""], "--translation '' is empty"),
        (["--learning_rate", "--translation", "b"], "--translation 'b': give its source with --text"),
        (["--positions", "--model", "m", "--preset", "base"], "Both --model m and --preset base are given"),
        (["--positions", "--length", "0"], "--length 0 must be at least 1."),
        (["--positions", "--preset", "bse"], "There is no preset 'bse'"),
        (
            ["--positions", "--preset", "E-learned"],
            "--preset E-learned has learned positions, which need training",
        ),
        (["--learning_rate", "--steps", "-1"], "--steps -1 must be at least 1."),
        (
            ["--learning_rate", "--curves", "512"],
            "--curves '512' must be d_model:warm-up steps, for example 512:4000.",
        ),
        (["--learning_rate", "--curves", "512:0"], "--curves '512:0' must be"),
        (["--learning_rate", "--curves", "a:b"], "--curves 'a:b' must be"),
        (["--model", "no/where", "--text", "a"], "no/where can't be loaded"),
        (["--model", "no/where/at/all", "--text", "a"], "give a folder with a model and its tokenizer, or a name"),
    ],
)
def test_a_mistake_ends_in_one_sentence(tmp_path, arguments, message):
    with pytest.raises(SystemExit) as error:
        draw(tmp_path / "out", *arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (vanilla, ["--text", "dog " * 100], r"--text has \d{3} tokens, too many for a picture: give at most 128"),
        (vanilla, ["--text", "a", "--translation", "dog " * 100], r"The translation has \d{3} tokens, too many"),
        (
            marian,
            ["--text", "a", "--translation", "dog " * 30],
            r"Translation 1 has \d+ tokens; the model writes 40",
        ),
        (marian, ["--positions", "--length", "41"], "--length 41: the model has 40 positions"),
        (
            lambda: vanilla(position_encoding="learned", max_position_embeddings=40),
            ["--positions", "--length", "41"],
            "--length 41: the model has 40 positions",
        ),
        (t5, ["--positions"], "T5ForConditionalGeneration adds no positional encodings to embeddings"),
    ],
)
def test_what_the_model_can_not_do_is_said(save, tmp_path, make, arguments, message):
    with pytest.raises(SystemExit, match=message):
        draw(tmp_path / "out", "--model", save(make()), *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_nothing_is_overwritten_unasked(tmp_path):
    command = [tmp_path / "out", "--learning_rate"]
    before = (draw(*command) / "learning_rate.png").read_bytes()
    with pytest.raises(SystemExit, match=r"already there.*--overwrite"):
        draw(*command, "--steps", "10")
    assert (tmp_path / "out" / "learning_rate.png").read_bytes() == before
    draw(*command, "--steps", "10", "--overwrite")
    assert (tmp_path / "out" / "learning_rate.png").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(SystemExit, match=r"holds out, no part of an older result"):
        draw(tmp_path, "--learning_rate", "--overwrite")


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"matplotlib is missing, .*: pip install matplotlib"):
        draw(tmp_path / "out", "--learning_rate")
    assert not list(tmp_path.iterdir())
