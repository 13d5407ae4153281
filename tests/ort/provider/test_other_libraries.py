"""Libraries that make sessions themselves take the provider by its name, each as its page says."""

import subprocess
from pathlib import Path

import pytest

from tests.support.environments import interpreter_with

ROOT = Path(__file__).parents[3]
PACKAGES = ["torch>=2.6", "sentence-transformers[onnx]==5.7.0", "optimum-onnx==0.1.0", "fastembed==0.9.1"]

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

def compare(encoder):
    plain, fast = encoder("CPUExecutionProvider"), encoder(ours)
    assert (sessions[0], sessions[-1]) == ("CPUExecutionProvider", ours), sessions
    expected, got = plain(), fast()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
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


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The interpreter of an environment with the libraries and redpebble, and the folder of a sparse encoder."""
    folder = tmp_path_factory.mktemp("libraries")
    python = interpreter_with(folder, ROOT, *PACKAGES)
    subprocess.run([python, "-c", MAKE, folder / "encoder"], cwd=folder, check=True)
    return python, folder / "encoder"


@pytest.mark.slow
@pytest.mark.parametrize("script", [SENTENCE_TRANSFORMERS, OPTIMUM, FASTEMBED])
def test_a_library_runs_our_code_by_the_name_of_the_provider(libraries: tuple[Path, Path], script: str) -> None:
    python, encoder = libraries
    subprocess.run([python, "-c", USE + script, encoder], cwd=encoder, check=True)
