# pyright: reportArgumentType=false
"""The zoo's sentence encoders: which texts are trained on, how a trained encoder is stored, what masks keep."""

import numpy as np
import pytest

from redpebble.models.sentences.corpus import is_sentence, key, sentences_of
from redpebble.models.sentences.sources import manual_sections


def test_a_paragraph_falls_into_sentences() -> None:
    """Abbreviations end none."""
    text = "Tools, e.g. A and B, are old. They still work! Ask Dr. Who."
    assert sentences_of(text) == ["Tools, e.g. A and B, are old.", "They still work!", "Ask Dr. Who."]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("The parser reads one line at a time.", True),
        ("Too short a text.", False),
        ("Das ist ein Satz und er ist deutsch.", False),
        ("0x12 0x34 0x56 0x78 0x9a 0xbc 0xde", False),
    ],
)
def test_only_english_prose_is_a_sentence(text: str, *, good: bool) -> None:
    """Five words or more, of letters."""
    assert is_sentence(text) == good


def test_texts_that_differ_in_marks_alone_have_one_key() -> None:
    """So that no held-out text is trained on in another spelling."""
    assert key("To act upon.") == key("to act, upon")


def test_a_manual_page_gives_its_sections() -> None:
    """Without macros, fonts and examples."""
    page = (
        ".TH X 1\n.SH NAME\nx \\- does \\fIone\\fR thing\n.SH DESCRIPTION\nIt\n.B does\nso.\n.nf\nx -v\n.fi\n.PP\nEnd."
    )
    sections = dict(manual_sections(page))
    assert sections["NAME"] == "x - does one thing"
    assert sections["DESCRIPTION"].split() == ["It", "does", "so.", "End."]


def tiny_base(width: int = 24) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    base: dict[str, np.ndarray] = {"words": rng.standard_normal((50, width)), "rows": np.arange(50)}
    square = ("self.query", "self.key", "self.value", "output.dense")
    for name, rows in (("position", 16), ("token_type", 2)):
        base[f"embeddings.{name}_embeddings.weight"] = rng.standard_normal((rows, width))
    norms = ["embeddings.LayerNorm"]
    linears: dict[str, tuple[int, int]] = {}
    for layer in range(3):
        prefix = f"encoder.layer.{layer}."
        linears |= {f"{prefix}attention.{name}": (width, width) for name in square}
        linears |= {f"{prefix}intermediate.dense": (96, width), f"{prefix}output.dense": (width, 96)}
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    for name, shape in linears.items():
        base |= {f"{name}.weight": 0.2 * rng.standard_normal(shape), f"{name}.bias": np.zeros(shape[0])}
    for name in norms:
        base |= {f"{name}.weight": np.ones(width), f"{name}.bias": np.zeros(width)}
    return base


@pytest.mark.parametrize(("precision", "nearest"), [(8, 0.99), (16, 0.99999)])
def test_what_is_stored_embeds_as_what_was_trained(precision: int, nearest: float) -> None:
    """A third of the weights in each row, stored, read again."""
    torch = pytest.importorskip("torch")
    from redpebble.models.sentences.encoder import Encoder, pooled
    from redpebble.models.sentences.stored import pack, sparsity, unpack

    base = tiny_base()
    encoder = Encoder(base, (0, 2)).eval()
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 50, (64, 9)))
    with torch.no_grad():
        for linear in encoder.linears():
            kept = linear.weight.abs().topk(linear.in_features // 3, dim=1).indices
            linear.weight.copy_(torch.zeros_like(linear.weight).scatter_(1, kept, linear.weight.gather(1, kept)))
        again = unpack(pack(encoder, precision=precision), base).eval()
        cosine = (pooled(encoder(ids)[-1]) * pooled(again(ids)[-1])).sum(1)
    assert sparsity(again) >= 2 / 3 - 1e-9
    assert cosine.min() > nearest
