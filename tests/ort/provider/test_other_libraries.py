"""Libraries that make sessions themselves take the provider by its name, each as its page says."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.environments import interpreter_with

ROOT = Path(__file__).parents[3]
PACKAGES = [
    "torch>=2.6",
    "sentence-transformers[onnx]==5.7.0",
    "optimum-onnx==0.1.0",
    "fastembed==0.9.1",
    "transformers==4.57.6",
    "rembg==2.0.86",
    "gliner==0.2.29",
    "lightgbm==4.7.0",
    "skl2onnx==1.20.0",
    "onnxmltools==1.16.0",
]

MAKE = """
import sys, torch
from pathlib import Path
from transformers import BertConfig, BertModel, BertTokenizerFast

folder = Path(sys.argv[1])
(folder / "onnx").mkdir(parents=True)
torch.manual_seed(0)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(500))]
(folder / "vocab.txt").write_text("\\n".join(words))
BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
config = BertConfig(len(words), 384, 2, 12, 1536, max_position_embeddings=128)
model = BertModel(config, add_pooling_layer=False).eval()
for module in model.encoder.modules():
    if isinstance(module, torch.nn.Linear):
        size = module.weight.data.abs()
        module.weight.data *= size >= size.flatten().kthvalue(int(0.9 * size.numel())).values
model.save_pretrained(folder)

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        return self.model(**dict(zip(names, inputs))).last_hidden_state

names = ["input_ids", "attention_mask", "token_type_ids"]
ids, axes = torch.ones(2, 8, dtype=torch.long), {0: "batch", 1: "sequence"}
torch.onnx.export(
    Encoder(), (ids, ids, 0 * ids), folder / "onnx" / "model.onnx", input_names=names, dynamo=False,
    output_names=["last_hidden_state"], dynamic_axes={name: axes for name in [*names, "last_hidden_state"]},
)
"""

USE = """
import sys, time, numpy as np, onnxruntime, redpebble

redpebble.register()
folder, options, ours = sys.argv[1], onnxruntime.SessionOptions(), "RedpebbleExecutionProvider"
options.intra_op_num_threads = 1
texts = [" ".join(f"w{(37 * i + 11 * j) % 500}" for j in range(5 + 12 * i)) for i in range(9)]
sessions = []
made = onnxruntime.InferenceSession.__init__

def remembered(self, *arguments, **named):
    made(self, *arguments, **named)
    sessions.append(self.get_providers()[0])

onnxruntime.InferenceSession.__init__ = remembered

def taken():
    return redpebble.counters()["networks_compiled"] + redpebble.counters()["networks_from_cache"]

def compare(encoder, tolerance=1e-4, networks=1):
    plain, fast = encoder("CPUExecutionProvider"), encoder(ours)
    if networks:
        assert (sessions[0], sessions[-1]) == ("CPUExecutionProvider", ours), sessions
    assert min(taken(), 1) == networks
    expected, got = plain(), fast()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=tolerance)
    times = [[], []]
    for _ in range(5):
        for encode, spent in zip((plain, fast), times):
            start = time.perf_counter()
            encode()
            spent.append(time.perf_counter() - start)
    print(f"{np.median(times[0]) / np.median(times[1]):.2f}x")
"""

SENTENCE_TRANSFORMERS = """
from sentence_transformers import SentenceTransformer

def encoder(provider):
    settings = {"provider": provider, "session_options": options, "file_name": "model.onnx", "subfolder": "onnx"}
    model = SentenceTransformer(folder, backend="onnx", model_kwargs=settings)
    return lambda: model.encode(texts, batch_size=4)

compare(encoder)
"""

OPTIMUM = """
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer

tokens = AutoTokenizer.from_pretrained(folder)(texts, return_tensors="np", padding=True)

def encoder(provider):
    model = ORTModelForFeatureExtraction.from_pretrained(
        folder, file_name="model.onnx", subfolder="onnx", provider=provider, session_options=options
    )
    return lambda: model(**tokens).last_hidden_state

compare(encoder)
"""

PIPELINE = """
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained(folder)

def encoder(provider):
    model = ORTModelForFeatureExtraction.from_pretrained(
        folder, file_name="model.onnx", subfolder="onnx", provider=provider, session_options=options
    )
    extract = pipeline("feature-extraction", model=model, tokenizer=tokenizer)
    return lambda: np.concatenate([one[0] for one in extract(texts)])

compare(encoder)
"""

FASTEMBED = """
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

TextEmbedding.add_custom_model(
    model="own/encoder", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="own/encoder"), dim=384,
    model_file="onnx/model.onnx",
)

def encoder(provider):
    model = TextEmbedding("own/encoder", specific_model_path=folder, providers=[provider], threads=1)
    return lambda: np.array(list(model.embed(texts, batch_size=4)))

compare(encoder)
"""


REMBG = """
import os, torch
from pathlib import Path

os.environ |= {"REMBG_HOME": folder, "OMP_NUM_THREADS": "1"}
path = Path(folder) / "own.onnx"
if not path.exists():
    torch.manual_seed(0)
    sizes = [(3, 32, 2), (32, 64, 2), (64, 64, 1), (64, 1, 1)]
    layers = [torch.nn.Conv2d(inputs, outputs, 3, stride, 1) for inputs, outputs, stride in sizes]
    for layer in layers[1:-1]:
        size = layer.weight.data.abs()
        layer.weight.data *= size >= size.flatten().kthvalue(int(0.9 * size.numel())).values
    last = [torch.nn.Upsample(scale_factor=4, mode="bilinear"), torch.nn.Sigmoid()]
    steps = [step for layer in layers[:-1] for step in (layer, torch.nn.ReLU())]
    network = torch.nn.Sequential(*steps, layers[-1], *last).eval()
    torch.onnx.export(network, torch.zeros(1, 3, 320, 320), path, dynamo=False)

from PIL import Image
from rembg import new_session, remove

image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 300, 3), np.uint8))

"""

REMBG_BY_NAME = """
def encoder(provider):
    session = new_session("u2net_custom", providers=[provider], model_path=str(path))
    return lambda: np.array(remove(image, session=session)).astype(np.float32) / 255

compare(encoder, 1.1 / 255)  # a step of a byte
"""

REMBG_UNNAMED = """
session = new_session("u2net_custom", model_path=str(path))
assert session.inner_session.get_providers()[0] == ours
assert np.array(remove(image, session=session)).shape == (200, 300, 4)
assert taken() == 1
"""

GLINER = """
import torch
from pathlib import Path
from gliner import GLiNER
from gliner.config import UniEncoderSpanConfig
from gliner.model import UniEncoderSpanGLiNER
from transformers import AutoTokenizer, BertConfig

place = Path(folder) / "gliner"
if not place.exists():
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["[FLERT]", "<<ENT>>", "<<SEP>>"], special_tokens=True)
    encoder = BertConfig(len(tokenizer), 384, 2, 12, 1536, max_position_embeddings=128).to_dict()
    config = UniEncoderSpanConfig(
        model_name="bert", encoder_config=encoder, hidden_size=384, class_token_index=len(tokenizer) - 2,
        vocab_size=len(tokenizer),
    )
    model = UniEncoderSpanGLiNER(config, tokenizer=tokenizer, backbone_from_pretrained=False).eval()
    for module in model.model.modules():
        if isinstance(module, torch.nn.Linear) and min(module.weight.shape) >= 256:
            size = module.weight.data.abs()
            module.weight.data *= size >= size.flatten().kthvalue(int(0.9 * size.numel())).values
    model.save_pretrained(place)
    model.export_to_onnx(place, quantize=False)

def encoder(provider):
    model = GLiNER.from_pretrained(
        str(place), runtime="onnxruntime", runtime_options={"providers": [provider], "session_options": options}
    )

    def scores():
        words = " ".join(f"w{(37 * i) % 500}" for i in range(60))
        found = model.predict_entities(words, ["w7", "w8"], threshold=0.0, flat_ner=False, multi_label=True)
        found.sort(key=lambda one: (one["start"], one["end"], one["label"]))
        return np.array([one["score"] for one in found])

    return scores

compare(encoder)
"""

SKLEARN = """
from skl2onnx import to_onnx
from sklearn.neural_network import MLPClassifier

rng = np.random.default_rng(0)
x = rng.random((256, 256), dtype=np.float32)
classifier = MLPClassifier((512, 512), max_iter=2).fit(x, x[:, 0] > 0.5)
for weight in classifier.coefs_:
    weight[abs(weight) < np.quantile(abs(weight), 0.9)] = 0
model = to_onnx(classifier, x[:1], options={"zipmap": False}).SerializeToString()

def encoder(provider):
    session = onnxruntime.InferenceSession(model, options, providers=[provider])
    return lambda: session.run(None, {"X": x})[1]

compare(encoder)
"""

LIGHTGBM = """
import lightgbm
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

rng = np.random.default_rng(0)
x = rng.random((256, 20), dtype=np.float32)
classifier = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(x, (x[:, 0] + x[:, 1] > 1).astype(int))
proto = convert_lightgbm(
    classifier, initial_types=[("x", FloatTensorType([None, 20]))], zipmap=False, target_opset=15
)
model = proto.SerializeToString()

def encoder(provider):
    session = onnxruntime.InferenceSession(model, options, providers=[provider])
    return lambda: session.run(None, {"x": x})[1]

compare(encoder, networks=0)
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The interpreter of an environment with the libraries and redpebble, and the folder of a sparse encoder."""
    folder = tmp_path_factory.mktemp("libraries")
    python = interpreter_with(folder, ROOT, *PACKAGES)
    subprocess.run([python, "-c", MAKE, folder / "encoder"], cwd=folder, check=True)
    return python, folder / "encoder"


RECIPES = {
    "sentence-transformers": SENTENCE_TRANSFORMERS,
    "optimum": OPTIMUM,
    "pipeline": PIPELINE,
    "fastembed": FASTEMBED,
    "rembg": REMBG + REMBG_BY_NAME,
    "gliner": GLINER,
    "sklearn": SKLEARN,
    "lightgbm": LIGHTGBM,
}


@pytest.mark.slow
@pytest.mark.parametrize("library", RECIPES)
def test_a_library_runs_our_code_by_the_name_of_the_provider(libraries: tuple[Path, Path], library: str) -> None:
    """Trees of LightGBM are onnxruntime's: their session has the name of the provider, and no network of ours."""
    python, encoder = libraries
    subprocess.run([python, "-c", USE + RECIPES[library], encoder], cwd=encoder, check=True)


SETUPS = {
    "In other libraries": "",
    "sentence-transformers": "",
    "optimum": "",
    "fastembed": "",
    "rembg": REMBG.replace("own.onnx", "onnx/MODEL.onnx"),
    "GLiNER": GLINER.partition("def encoder")[0] + "folder = str(place)",
    "scikit-learn and LightGBM": SKLEARN.partition("def encoder")[0].replace(".SerializeToString()", ""),
}
"""What blocks of docs/libraries.md find, by the titles of their sections."""

UNNAMED = "Libraries that hide the choice"


@pytest.mark.slow
@pytest.mark.parametrize("section", SETUPS)
def test_the_code_of_the_page_runs(libraries: tuple[Path, Path], section: str) -> None:
    """Where it stands, behind the block that registers the provider, beside a model.onnx."""
    python, encoder = libraries
    blocks = code_of_the_page()
    code = "".join(blocks[title] for title in dict.fromkeys(["In other libraries", section]))
    program = f"""{USE.partition("def compare")[0]}
{SETUPS[section]}
exec({code!r}.replace("FOLDER", folder))
assert sessions[-1] == ours, sessions
assert taken()
"""
    subprocess.run([python, "-c", program, encoder], cwd=encoder / "onnx", check=True)


def code_of_the_page() -> dict[str, str]:
    """The code that runs, by the titles of the sections of docs/libraries.md."""
    page = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
    fence = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    sections = (section.partition("\n") for section in re.split(r"^#+ ", page, flags=re.MULTILINE)[1:])
    return {title: "".join(fence.findall(text)) for title, _, text in sections}


def test_each_block_of_the_page_is_run() -> None:
    assert {title for title, code in code_of_the_page().items() if code} == {*SETUPS, UNNAMED}


@pytest.mark.slow
def test_a_program_that_leaves_the_choice_to_its_library_runs_our_code(libraries: tuple[Path, Path]) -> None:
    python, encoder = libraries
    (encoder / "program.py").write_text(USE + REMBG + REMBG_UNNAMED)
    subprocess.run([python, "-m", "redpebble.onnxruntime", "program.py", encoder], cwd=encoder, check=True)
    code = code_of_the_page()[UNNAMED]
    subprocess.run([python, "-c", USE + code + REMBG + REMBG_UNNAMED, encoder], cwd=encoder, check=True)
