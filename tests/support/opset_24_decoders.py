"""Decoders in the operators of opset 24: Attention, RMSNormalization, RotaryEmbedding, TensorScatter for a cache."""

from typing import Final

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray
from onnx import numpy_helper

from redpebble.models.pruned_weights import magnitude_mask

WIDTH, HEADS, SHARED, FEATURES, HIDDEN, VOCABULARY = 64, 4, 2, 16, 160, 256
LAYERS: Final = 2
LONGEST: Final = 128

ANGLES: Final = """
        cosines = Gather (cosine_table, positions)
        sines = Gather (sine_table, positions)
"""


def layer_text(number: int, *, cached: bool, tables: bool) -> str:
    """Return the nodes of a layer on `x{number}`: behind a past, or with a cache into which new keys are scattered."""
    n = number
    heads = f"q_num_heads = {HEADS}, kv_num_heads = {SHARED}"
    angles = "cosine_table, sine_table, positions" if tables else "cosines, sines"
    rotated = "\n".join(
        f"r{letter}{n} = RotaryEmbedding <num_heads = {count}> ({letter}{n}, {angles})"
        for letter, count in (("q", HEADS), ("k", SHARED))
    )
    if cached:
        # heads lie apart in a cache of fixed length; new keys go to the places that each text has reached
        apart = "\n".join(
            f"h{one}{n} = Reshape ({row}, shape_{one}) t{one}{n} = Transpose <perm = [0, 2, 1, 3]> (h{one}{n})"
            for one, row in (("q", f"rq{n}"), ("k", f"rk{n}"), ("v", f"v{n}"))
        )
        attention = f"""{apart}
        new_key_{n} = TensorScatter <axis = 2> (key_{n}, tk{n}, written)
        new_value_{n} = TensorScatter <axis = 2> (value_{n}, tv{n}, written)
        b{n} = Attention (tq{n}, new_key_{n}, new_value_{n}, mask)
        c{n} = Transpose <perm = [0, 2, 1, 3]> (b{n})
        a{n} = Reshape (c{n}, shape_rows)"""
    else:
        attention = f"""a{n}, new_key_{n}, new_value_{n} =
            Attention <is_causal = 1, {heads}> (rq{n}, rk{n}, v{n}, , key_{n}, value_{n})"""
    return f"""
        n{n} = RMSNormalization <epsilon = 0.00001> (x{n}, norm)
        q{n} = MatMul (n{n}, wq{n}) k{n} = MatMul (n{n}, wk{n}) v{n} = MatMul (n{n}, wv{n})
        {rotated}
        {attention}
        o{n} = MatMul (a{n}, wo{n})
        s{n} = Add (x{n}, o{n})
        m{n} = RMSNormalization <epsilon = 0.00001> (s{n}, norm)
        g{n} = MatMul (m{n}, wg{n}) u{n} = MatMul (m{n}, wu{n})
        w{n} = Swish (g{n})
        z{n} = Mul (w{n}, u{n})
        d{n} = MatMul (z{n}, wd{n})
        x{n + 1} = Add (s{n}, d{n})
    """


def decoder(*, cached: bool, tables: bool, seed: int = 0) -> onnx.ModelProto:
    """Return a decoder whose layers have 90 % zeros.

    With `cached`, keys and values lie in tensors of `LONGEST` places; else they are those of the past. With `tables`,
    RotaryEmbedding takes cosines by positions, else those of the tokens.
    """
    length = "L" if cached else "p"
    states = [f"float[b,{SHARED},{length},{FEATURES}] {kind}_{n}" for n in range(LAYERS) for kind in ("key", "value")]
    after = [one.replace(" key_", " new_key_").replace(" value_", " new_value_") for one in states]
    after = after if cached else [one.replace(",p,", ",t,") for one in after]
    inputs = ["int64[b,s] ids", "int64[b,s] positions", *states]
    inputs += ["int64[b] written", "float[b,1,s,L] mask"] if cached else []
    body = "".join(layer_text(n, cached=cached, tables=tables) for n in range(LAYERS))
    proto = onnx.parser.parse_model(f"""
        <ir_version: 12, opset_import: ["" : 24]>
        decoder ({", ".join(inputs)}) => (float[b,s,{VOCABULARY}] logits, {", ".join(after)}) {{
        x0 = Gather (embedding, ids) {"" if tables else ANGLES} {body}
        last = RMSNormalization <epsilon = 0.00001> (x{LAYERS}, norm)
        logits = MatMul (last, head)
        }}
    """)
    rng = np.random.default_rng(seed)
    angles = np.arange(LONGEST)[:, np.newaxis] * 1e4 ** (-np.arange(FEATURES // 2) * 2 / FEATURES)
    constants = {
        "embedding": rng.standard_normal((VOCABULARY, WIDTH), dtype=np.float32),
        "norm": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        "cosine_table": np.cos(angles).astype(np.float32),
        "sine_table": np.sin(angles).astype(np.float32),
        "shape_q": np.array([0, 0, HEADS, FEATURES]),
        "shape_k": np.array([0, 0, SHARED, FEATURES]),
        "shape_v": np.array([0, 0, SHARED, FEATURES]),
        "shape_rows": np.array([0, 0, HEADS * FEATURES]),
    }
    sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, SHARED * FEATURES), "v": (WIDTH, SHARED * FEATURES), "o": (WIDTH, WIDTH)}
    sizes |= {"g": (WIDTH, HIDDEN), "u": (WIDTH, HIDDEN), "d": (HIDDEN, WIDTH)}
    shapes = {f"w{letter}{n}": shape for n in range(LAYERS) for letter, shape in sizes.items()}
    for name, shape in {**shapes, "head": (WIDTH, VOCABULARY)}.items():
        weight = rng.standard_normal(shape, dtype=np.float32) * np.float32(3 * shape[0] ** -0.5)
        constants[name] = weight * magnitude_mask(weight, 0.9)
    read = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in constants.items() if name in read
    )
    onnx.checker.check_model(proto)  # pyright: ignore[reportUnknownMemberType]
    return proto


def feeds_of(batch: int, length: int, past: int, *, cached: bool) -> dict[str, NDArray[np.generic]]:
    """Return tokens behind a past, which lies at the beginning of a cache."""
    rng = np.random.default_rng((batch, length, past))
    positions = np.arange(past, past + length)
    feeds: dict[str, NDArray[np.generic]] = {
        "ids": rng.integers(0, VOCABULARY, (batch, length)),
        "positions": np.tile(positions, (batch, 1)),
    }
    shape = (batch, SHARED, LONGEST if cached else past, FEATURES)
    for n in range(LAYERS):
        feeds |= {f"{kind}_{n}": rng.standard_normal(shape, dtype=np.float32) for kind in ("key", "value")}
    if cached:
        is_read = np.arange(LONGEST) <= positions[:, np.newaxis]
        mask = np.where(is_read, np.float32(0), np.float32(-np.inf))
        feeds |= {"written": np.full(batch, past), "mask": np.tile(mask, (batch, 1, 1, 1))}
    return feeds
