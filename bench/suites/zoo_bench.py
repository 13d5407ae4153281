"""The benchmark over the zoo: every model against onnxruntime in one process.

`python -m redpebble.bench.suites.zoo_bench [REPORT.json]` prints a table a model, and writes all rows as JSON on
request.
"""

import json
import sys
import tempfile
from pathlib import Path

from ...models.zoo import build, save
from ...tools.benching.benchmark import bench_table
from ...tools.benching.model_bench import BenchPlan, BenchRow, bench_model, bench_report, load_model
from ...tools.benching.results import NATIVE
from ...tools.console.console import console

SPECS = (
    "digits",
    "ffnn(depth=4, width=1024, density=0.1)",
    "ffnn(depth=4, width=1024, density=0.5)",
    "bert_ffn(density=0.1)",
    "bert_layer(density=0.1)",
    "resmlp(depth=4, width=512)",
)
PLAN = BenchPlan(batches=(1, 8, 32, 128, 512), threads=(1, 2), engines=(NATIVE,))


def main(report: Path | None) -> None:
    """Measure every model of `SPECS`; write the rows to `report`."""
    rows: list[BenchRow] = []
    for spec in SPECS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{spec.replace(' ', '')}.onnx"
            save(build(spec), path)
            measured = list(bench_model(load_model(path, PLAN), PLAN))
        console.rule(spec)
        console.print(bench_table(measured), highlight=False, markup=False, soft_wrap=True)
        rows += measured
    if report is not None:
        report.write_text(json.dumps(bench_report(rows), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
