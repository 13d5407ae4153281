"""Rows a second of a sparse network in engines that run it on workers, beside onnxruntime in the same workers.

Each engine runs some rows, and three times as many: the difference is what rows cost without the start of workers and
the opening of sessions. Engines come with the extra `workers`.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnxruntime
import typer
from numpy.typing import NDArray
from typing_extensions import override

from redpebble import Predictor
from redpebble.models import zoo

from .results.page_tables import PageTable, Write

FEATURES: Final = 1024
NETWORK: Final = f"ffnn(depth=16, width={FEATURES}, density=0.1)"
BATCH: Final = 256

WORKERS: Final = PageTable(
    "engines of workers",
    ("engine, rows", "rows cost: redpebble", "onnxruntime", "whole run: redpebble", "onnxruntime"),
    Path("docs/workers.md"),
)
"""Rows a second."""

Rows = NDArray[np.float32]
Run = Callable[[Predictor, Rows], int]
"""Runs a model over rows, and returns how many results there were."""


class Plain(Predictor):
    """onnxruntime's own session in the place of ours."""

    @override
    def _opened(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        return onnxruntime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])


def on_ray() -> Run:
    """Return what runs rows by `map_batches`, with two actors, and a place beside them for what reads rows."""
    ray: Any = import_module("ray")
    data: Any = import_module("ray.data")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    data.DataContext.get_current().enable_progress_bars = False

    def run(predict: Predictor, x: Rows) -> int:
        blocks = data.from_numpy([x[start : start + 4096] for start in range(0, len(x), 4096)])
        outputs = blocks.rename_columns(["x"]).map_batches(
            type(predict), fn_constructor_args=(predict.model,), batch_size=BATCH, concurrency=2
        )
        return sum(len(batch["y"]) for batch in outputs.iter_batches(batch_size=None))

    return run


def on_dask() -> Run:
    """Return what runs rows by `map_blocks`, in threads."""
    array: Any = import_module("dask.array")

    def run(predict: Predictor, x: Rows) -> int:
        rows = array.from_array(x, chunks=(BATCH, -1))
        outputs = rows.map_blocks(predict, dtype=np.float32, chunks=(rows.chunks[0], (FEATURES,)))
        return len(outputs.compute(scheduler="threads", num_workers=2))

    return run


def on_spark() -> Run:
    """Return what runs rows of a Parquet file by `predict_batch_udf`, into no sink."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    udf: Any = import_module("pyspark.ml.functions").predict_batch_udf
    types: Any = import_module("pyspark.sql.types")
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    builder = import_module("pyspark.sql").SparkSession.builder.master("local[2]")
    spark = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "4g").getOrCreate()

    def run(predict: Predictor, x: Rows) -> int:
        apply = udf(
            lambda: predict,
            return_type=types.ArrayType(types.FloatType()),
            batch_size=BATCH,
            input_tensor_shapes=[[FEATURES]],
        )
        path = str(Path(predict.model).with_name(f"{len(x)}.parquet"))
        if not Path(path).exists():
            values = arrow.FixedSizeListArray.from_arrays(arrow.array(x.reshape(-1)), FEATURES)
            parquet.write_table(
                arrow.table({"x": values.cast(arrow.list_(arrow.float32()))}), path, row_group_size=8192
            )
        frame = spark.read.parquet(path).repartition(2)
        frame.select(apply("x").alias("y")).write.format("noop").mode("overwrite").save()
        return len(x)

    return run


def on_beam() -> Run:
    """Return what runs rows by `RunInference`, in the threads of the direct runner."""
    beam: Any = import_module("apache_beam")
    inference: Any = import_module("apache_beam.ml.inference.base")
    options: Any = import_module("apache_beam.options.pipeline_options")
    counts: list[int] = []

    class Handler(inference.ModelHandler):
        predict: Predictor

        def batch_elements_kwargs(self) -> dict[str, int]:
            return {"min_batch_size": BATCH, "max_batch_size": BATCH}

        def load_model(self) -> Predictor:
            return self.predict

        def run_inference(self, batch: list[Rows], model: Predictor, inference_args: object = None) -> list[Any]:
            del inference_args
            return [inference.PredictionResult(*pair) for pair in zip(batch, model(np.stack(batch)), strict=True)]

    def run(predict: Predictor, x: Rows) -> int:
        handler = Handler()
        handler.predict = predict
        chosen = options.PipelineOptions([], runner="DirectRunner", direct_num_workers=1)
        with beam.Pipeline(options=chosen) as pipeline:
            results = pipeline | beam.Create(list(x)) | inference.RunInference(handler)
            _ = results | beam.combiners.Count.Globally() | beam.Map(counts.append)
        return len(x)

    return run


ENGINES: Final[dict[str, Callable[[], Run]]] = {"ray": on_ray, "dask": on_dask, "spark": on_spark, "beam": on_beam}


def seconds(run: Run, predict: Predictor, x: Rows) -> float:
    """Return how long a run takes.

    Raises:
        ValueError: results are missing.
    """
    begun = time.perf_counter()
    found = run(predict, x)
    if found != len(x):
        raise ValueError(f"expected {len(x)} results, got {found}")
    return time.perf_counter() - begun


def measure(engine: str, rows: int, rounds: int) -> tuple[float, ...]:
    """Return rows a second, of ours and of onnxruntime's: what rows cost, and in a run three times as long."""
    x = np.random.default_rng(0).standard_normal((3 * rows, FEATURES), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        zoo.save(zoo.build(NETWORK), Path(path))
        kinds = [Predictor(path), Plain(path)]
        run = ENGINES[engine]()
        for predict in kinds:
            run(predict, x[:BATCH])  # compiles, and starts the engine
        spent = np.array(
            [[[seconds(run, kind, x[:count]) for kind in kinds] for count in (rows, 3 * rows)] for _ in range(rounds)]
        ).min(axis=0)
    (ours, plain), (ours_long, plain_long) = spent
    steady = (2 * rows / (long - short) for long, short in ((ours_long, ours), (plain_long, plain)))
    return *steady, *(3 * rows / one for one in (ours_long, plain_long))


def main(
    engines: Annotated[list[str], typer.Argument(help=", ".join(ENGINES))],
    rows: Annotated[int, typer.Option(help="Rows of the short run.")] = 32768,
    rounds: Annotated[int, typer.Option(help="Runs of each, of which the shortest count.")] = 2,
    *,
    write: Write = False,
) -> None:
    """Print a line for each engine."""
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown:
        raise typer.BadParameter(f"engine: expected one of {', '.join(ENGINES)}, got {unknown[0]!r}")
    with WORKERS.rows(write=write) as add:
        for engine in engines:
            add(f"{engine}, {3 * rows:,}", *(f"{rate:,.0f}" for rate in measure(engine, rows, rounds)))


if __name__ == "__main__":
    typer.run(main)
