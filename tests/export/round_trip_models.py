"""Models in ONNX's textual form that go in and come out again, with weights drawn for them."""

import re
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray


@dataclass(frozen=True)
class Example:
    """A model as text; weights are `name: sizes`, inputs are read from the graph."""

    name: str
    text: str
    weights: str = ""
    sizes: str = ""
    """Sizes of the symbolic dimensions, 3 where not given: `T=5`."""

    def proto(self, *, density: float = 0.4) -> onnx.ModelProto:
        """Return the model; about `density` of a weight's values are not zero."""
        model = onnx.parser.parse_model(self.text)
        random = np.random.default_rng(7)
        for name, text in re.findall(r"(\w+): ([\d,]*)", self.weights):
            shape = tuple(int(size) for size in text.split(",") if size)
            array = random.standard_normal(shape) * (random.random(shape) < density if len(shape) > 1 else 1)
            if name.startswith("variance"):
                array = np.abs(array) + 0.5
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
        return model

    def feeds(self) -> dict[str, NDArray[np.generic]]:
        """Return an input for every graph input that no initializer fills."""
        model, random = self.proto(), np.random.default_rng(3)
        known = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", self.sizes)}
        filled = {entry.name for entry in model.graph.initializer}
        feeds: dict[str, NDArray[np.generic]] = {}
        for entry in model.graph.input:
            dims = entry.type.tensor_type.shape.dim
            shape = [dim.dim_value or known.get(dim.dim_param, 3) for dim in dims]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
            if entry.name not in filled:
                feeds[entry.name] = np.asarray(random.standard_normal(shape) * 2).astype(dtype)
        return feeds


def head(opset: int, more: str = "", version: int = 8) -> str:
    """Return the first line of a model."""
    return f'<ir_version: {version}, opset_import: ["" : {opset}{more}]>'


PLAIN = (
    *(
        Example(
            f"gemm mlp, opset {opset}",
            head(opset)
            + """ mlp (float[batch,16] x) => (float[batch,4] y) <float[batch,32] a, float[batch,32] b> {
                [fc1] a = Gemm<transB = 1>(x, W1, B1)
                [relu1] b = Relu(a)
                [fc2] c = Gemm<transB = 1>(b, W2, B2)
                [act2] d = Tanh(c)
                [fc3] y = Gemm<transB = 1>(d, W3, B3)
            }""",
            "W1: 32,16 B1: 32 W2: 24,32 B2: 24 W3: 4,24 B3: 4",
        )
        for opset in (7, 9, 11, 13, 17, 21)
    ),
    Example(
        "matmul and add on three axes",
        head(13)
        + """ g (float[batch,T,16] x) => (float[batch,T,4] y) {
            [m1] a = MatMul(x, W1)  [a1] b = Add(a, B1)  [r1] c = Relu(b)
            [m2] d = MatMul(c, W2)  [a2] y = Add(d, B2)
        }""",
        "W1: 16,32 B1: 32 W2: 32,4 B2: 4",
    ),
    Example(
        "scikit-learn's form of a network",
        head(9) + " g (float[N,8] x) => (float[N,3] y) { a = MatMul(x, W) b = Add(a, B) c = Relu(b) "
        "d = MatMul(c, V) e = Add(d, C) y = Softmax<axis = 1>(e) }",
        "W: 8,16 B: 1,16 V: 16,3 C: 1,3",
    ),
    Example(
        "gemm in every form",
        head(13) + " g (float[N,8] x, float[8,N] t) => (float[N,5] y, float[N,5] z) "
        "{ y = Gemm<alpha = 0.5, beta = 2.0>(x, W, B) z = Gemm<transA = 1>(t, V) }",
        "W: 8,5 B: 1,5 V: 8,5",
    ),
    Example(
        "a weight that two layers share",
        head(17)
        + " g (float[N,8] x) => (float[N,8] y) { a = Gemm<transB = 1>(x, W, B) b = Softplus(a) y = MatMul(b, W) }",
        "W: 8,8 B: 8",
    ),
    Example(
        "batch norm and activations",
        head(12)
        + """ g (float[N,8] x) => (float[N,6] y) {
            a = Gemm(x, W, B) b = BatchNormalization<epsilon = 0.001>(a, scale, shift, mean, variance)
            c = LeakyRelu<alpha = 0.2>(b) d = Clip(c, low, high) e = Elu(d) y = HardSigmoid(e)
        }""",
        "W: 8,6 B: 6 scale: 6 shift: 6 mean: 6 variance: 6 low: high: ",
    ),
    Example(
        "several inputs and outputs with a skip connection",
        head(13)
        + """ g (float[N,8] x, float[N,8] z) => (float[N,8] first, float[N,16] second) {
            a = MatMul(x, W) b = Add(a, z) first = Relu(b) second = Concat<axis = 1>(first, z)
        }""",
        "W: 8,8",
    ),
    Example(
        "movement",
        head(13)
        + """ g (float[N,2,6] x) => (float[N,3] y, float[N,1,9] w, float[12,N] t)
            <int64[1] axis = {1}, int64[2] cut = {3, 9}> {
            f = Flatten(x) y, rest = Split<axis = 1>(f, cut) w = Unsqueeze(rest, axis) t = Transpose<perm = [1, 0]>(f)
        }""",
    ),
    Example(
        "movement, before axes were inputs",
        head(9)
        + """ g (float[N,2,6] x) => (float[N,3] y, float[N,1,9] w, float[N,2,3,2] r)
            <int64[4] shape = {0, 2, 3, 2}> {
            f = Flatten(x) y, rest = Split<axis = 1, split = [3, 9]>(f)
            w = Unsqueeze<axes = [1]>(rest) r = Reshape(x, shape)
        }""",
    ),
    Example(
        "a decomposed layer norm and gelu",
        head(13)
        + """ g (float[N,T,8] x) => (float[N,T,8] y)
            <float two = {2.0}, float eps = {0.00001}, float root = {1.4142135},
             float one = {1.0}, float half = {0.5}> {
            m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) p = Pow(d, two) v = ReduceMean<axes = [-1]>(p)
            e = Add(v, eps) s = Sqrt(e) n = Div(d, s) k = Mul(n, scale) l = Add(k, shift)
            a = Div(l, root) b = Erf(a) c = Add(b, one) f = Mul(l, c) y = Mul(f, half)
        }""",
        "scale: 8 shift: 8",
    ),
    Example(
        "layer norm, gelu and mish as operators",
        head(21, version=10)
        + " g (float[N,8] x) => (float[N,8] y) { a = LayerNormalization<axis = -1>(x, scale, shift) b = Gelu(a) "
        "c = Mish(b) d = MatMul(c, W) y = Add(d, B) }",
        "scale: 8 shift: 8 W: 8,8 B: 8",
    ),
    Example(
        "weights as inputs, as before ir version 4",
        head(8, version=3)
        + " g (float[N,8] x, float[8,4] W, float[4] B) => (float[N,4] y) { a = Gemm(x, W, B) y = Sigmoid(a) }",
        "W: 8,4 B: 4",
    ),
    Example(
        "a weight that the caller may override",
        head(13) + " g (float[N,8] x, float[4] B) => (float[N,4] y) { a = MatMul(x, W) b = Add(a, B) y = Relu(b) }",
        "W: 8,4 B: 4",
    ),
)
"""What the dialect covers: goes through without a node more."""

FOREIGN = (
    Example(
        "a convolution in the middle",
        head(13)
        + """ g (float[N,8] x) => (float[N,4] y) <int64[4] image = {0, 1, 4, 4}> {
            [fc1] a = Gemm<transB = 1>(x, W, B) [relu] r = Relu(a) [image] b = Reshape(r, image)
            [conv] c = Conv<pads = [1, 1, 1, 1]>(b, K) [pool] p = GlobalMaxPool(c) f = Flatten(p) [fc2] y = MatMul(f, V)
        }""",
        "W: 16,8 B: 16 K: 3,1,3,3 V: 3,4",
    ),
    Example(
        "branches that capture values, and weights that both sides use",
        head(17)
        + """ g (float[N,8] x, bool flag) => (float[N,8] y, float[N,8] h) {
            h0 = MatMul(x, W) h = Relu(h0)
            c = If(flag) <
                then_branch = yes () => (float[N,8] t) { s = MatMul(h, W) t = Add(s, B) },
                else_branch = no () => (float[N,8] e) { e = Mul(x, x) }
            >
            d = Add(c, B) y = Relu(d)
        }""",
        "W: 8,8 B: 8",
    ),
    Example(
        "a loop whose body captures a value",
        head(17)
        + """ g (float[N,8] x) => (float[N,8] y) <int64 count = {3}, bool go = {1}> {
            h = MatMul(x, W)
            y = Loop(count, go, x) <
                body = step (int64 i, bool c, float[N,8] v) => (bool c_out, float[N,8] v_out) {
                    c_out = Identity(c) v_out = Add(v, h)
                }
            >
        }""",
        "W: 8,8",
    ),
    Example(
        "operators of ai.onnx.ml around a network",
        head(13, ', "ai.onnx.ml" : 3')
        + """ g (float[N,4] x) => (float[N,3] y, float[N,2] b) <int64[2] pick = {2, 0}> {
            s = ai.onnx.ml.Scaler<offset = [1.0, 2.0, 3.0, 4.0], scale = [0.5, 0.5, 0.5, 0.5]>(x)
            h = MatMul(s, W) r = Relu(h) z = MatMul(r, V)
            y = ai.onnx.ml.Normalizer<norm = "L2">(z)
            b = ai.onnx.ml.ArrayFeatureExtractor(y, pick)
        }""",
        "W: 4,8 V: 8,3",
    ),
    Example(
        "model-local functions",
        head(18, ', "local" : 1')
        + """ g (float[N,4] x) => (float[N,4] y) { h = MatMul(x, W) f = local.Twice<times = 3.0>(h) y = Relu(f) }
        <domain: "local", opset_import: ["" : 18]>
        Twice <times> (a) => (b) { t = Constant<value_float: float = @times>() b = Mul(a, t) }""",
        "W: 4,4",
    ),
    Example(
        "integers, shapes and optional outputs",
        head(13)
        + """ g (float[N,T,8] x, int64[N,T] ids) => (float[N,T,8] y, int64[N,T] kept)
            <int64[1] k = {2}, int64[1] last = {8}, int64[1] zero = {0}, int64[1] one = {1}> {
            e = Gather(table, ids) s = Add(x, e)
            sh = Shape(x) two = Slice(sh, zero, k) full = Concat<axis = 0>(two, last)
            m = MatMul(s, W) y = Reshape(m, full)
            top, kept0 = TopK<axis = 1>(ids, one) kept = Mul(ids, ids)
        }""",
        "table: 5,8 W: 8,8",
    ),
    Example(
        "outputs that are inputs, constants and duplicates",
        head(13) + " g (float[N,4] x) => (float[N,4] x, float[N,4] a, float[N,4] b, float[3] c) "
        "{ a = Relu(x) b = Identity(a) c = Identity(B) }",
        "B: 3",
    ),
    Example(
        "batch norm of images and dropout",
        head(11)
        + """ g (float[N,3,4,4] x) => (float[N,2] y) {
            a = BatchNormalization(x, scale, shift, mean, variance) b = Conv(a, K) c = Relu(b)
            d = Flatten(c) e = Dropout(d) y = Gemm(e, W, B)
        }""",
        "scale: 3 shift: 3 mean: 3 variance: 3 K: 4,3,2,2 W: 36,2 B: 2",
    ),
)
"""Models that hold something the dialect does not know."""
