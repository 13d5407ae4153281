"""Engines that run a model on many workers, each with the recipe of its page."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ort.provider_models import MLP, model, plain_session
from tests.support.environments import interpreter_with

ROOT = Path(__file__).parents[2]

START = """
import os, sys, time
import numpy as np, redpebble

path, x, folder = sys.argv[1], np.load("x.npy"), os.getcwd()

class Counting(redpebble.Predictor):
    def __call__(self, *batch):
        y = redpebble.Predictor.__call__(self, *batch)
        with open(f"{folder}/compiled.{os.getpid()}", "w") as file:
            file.write(str(int(redpebble.counters()["networks_compiled"])))
        return y

def main():
    np.save("y.npy", run())
"""

RAY = """
def run():
    import ray

    # one more than the workers: what renames and reads needs a place, too
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    data = ray.data.from_numpy(x).rename_columns(["x"])
    outputs = data.map_batches(Counting, fn_constructor_args=(path,), batch_size=256, concurrency=2)
    return np.stack([row["y"] for row in outputs.take_all()])
"""

DASK = """
def run():
    import dask.array

    rows = dask.array.from_array(x, chunks=(256, -1))
    outputs = rows.map_blocks(Counting(path), dtype=np.float32, chunks=(rows.chunks[0], (50,)))
    return outputs.compute(scheduler="processes", num_workers=2)
"""

SPARK = """
def run():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import SparkSession
    from pyspark.sql.types import ArrayType, FloatType

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    predict = Counting(path)
    apply = predict_batch_udf(
        lambda: predict, return_type=ArrayType(FloatType()), batch_size=256, input_tensor_shapes=[[x.shape[1]]]
    )
    frame = spark.createDataFrame([(row.tolist(),) for row in x], ["x"])
    return np.array([row[0] for row in frame.select(apply("x")).collect()], np.float32)
"""

BEAM = """
def run():
    import apache_beam
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference

    class Sparse(ModelHandler):
        def load_model(self):
            return Counting(path)

        def run_inference(self, batch, model, inference_args=None):
            return [PredictionResult(*pair) for pair in zip(batch, model(np.stack(batch)))]

    with apache_beam.Pipeline() as pipeline:
        results = pipeline | apache_beam.Create(list(enumerate(x))) | apache_beam.Map(lambda pair: pair[1])
        results = results | RunInference(Sparse()) | apache_beam.combiners.ToList()
        results | apache_beam.Map(write)
    examples, outputs = np.load("examples.npy"), np.load("outputs.npy")
    order = {row.tobytes(): index for index, row in enumerate(examples)}
    return outputs[[order[row.tobytes()] for row in x]]

def write(results):
    np.save("examples.npy", [one.example for one in results])
    np.save("outputs.npy", [one.inference for one in results])
"""

END = """
if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the engines and redpebble."""
    return interpreter_with(tmp_path_factory.mktemp("engines"), f"{ROOT}[workers]")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [RAY, DASK, SPARK, BEAM], ids=["ray", "dask", "spark", "beam"])
def test_an_engine_runs_a_predictor_on_its_workers(python: Path, tmp_path: Path, recipe: str) -> None:
    proto = model(MLP)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    x = np.random.default_rng(0).standard_normal((1000, 97)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "program.py").write_text(START + recipe + END)
    environment = os.environ | {"REDPEBBLE_CACHE": str(tmp_path / "cache")}
    words = [python, "program.py", str(tmp_path / "m.onnx")]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=600)
    (expected,) = plain_session(proto).run(None, {"x": x})[:1]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-3, atol=1e-4)
    compiled = [int(path.read_text()) for path in tmp_path.glob("compiled.*")]
    # none where the engine has tried the model before, to see what it yields, as Dask does
    assert compiled
    assert sum(compiled) <= 1, f"expected at most one worker that compiles, got {compiled}"
