"""Stubs of the part of onnxruntime's quantizer that tests use."""

from collections.abc import Mapping
from enum import Enum
from os import PathLike

import numpy as np
from numpy.typing import NDArray

class QuantType(Enum):
    QInt8 = ...
    QUInt8 = ...

class QuantFormat(Enum):
    QDQ = ...
    QOperator = ...

class CalibrationDataReader:
    def get_next(self) -> Mapping[str, NDArray[np.generic]] | None: ...

def quantize_static(
    model_input: str | PathLike[str],
    model_output: str | PathLike[str],
    calibration_data_reader: CalibrationDataReader,
    quant_format: QuantFormat = ...,
    *,
    per_channel: bool = ...,
    activation_type: QuantType = ...,
    weight_type: QuantType = ...,
    op_types_to_quantize: list[str] | None = ...,
    nodes_to_exclude: list[str] | None = ...,
    extra_options: dict[str, bool] | None = ...,
) -> None: ...
def quantize_dynamic(
    model_input: str | PathLike[str],
    model_output: str | PathLike[str],
    *,
    op_types_to_quantize: list[str] | None = ...,
    per_channel: bool = ...,
    weight_type: QuantType = ...,
) -> None: ...
