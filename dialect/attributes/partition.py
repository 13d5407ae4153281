"""The attribute that says which part of a distributed network owns each output of a layer."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import i32
from xdsl.utils.exceptions import VerifyException

from ..record import Record
from ..tensors import integers

Owners = NDArray[np.int32]


class PartitionAttr(
    Record,
    text="{part_count} parts, owners = {owners}, volume = {volume}, messages = {messages}, "
    "most_connections = {most_connections}",
):
    """The part that computes each output of a layer, and what that costs for a batch of one.

    `volume` are the values that parts send to others before the layer, `messages` the pairs of parts that have some to
    send, `most_connections` those of the fullest part.

    ```mlir
    #pebble.partition<2 parts, owners = dense<[0, 0, 1, 1]> : tensor<4xi32>, volume = 3, messages = 2,
      most_connections = 8>
    ```
    """

    name = "pebble.partition"

    part_count: int
    owners: Annotated[Owners, integers(i32)]
    volume: int
    messages: int
    most_connections: int

    def verify(self) -> None:
        if self.part_count < 1:
            raise VerifyException(f"expected 1 or more parts, got {self.part_count}")
        outside = self.owners[(self.owners < 0) | (self.owners >= self.part_count)]
        if len(outside):
            raise VerifyException(f"expected owners 0 to {self.part_count - 1}, got {outside[0]}")
        for word in ("volume", "messages", "most_connections"):
            if getattr(self, word) < 0:
                raise VerifyException(f"expected {word} of 0 or more, got {getattr(self, word)}")
