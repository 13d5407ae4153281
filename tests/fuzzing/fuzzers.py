"""All fuzzers. A new one is a file with its record, and a line here."""

import numpy as np

import redpebble
from tests.fuzzing import (
    damaged_models,
    damaged_parts,
    free_sizes,
    networks_in_use,
    random_choices,
    random_decoders,
    random_few_bits,
    random_layers,
    random_masks,
    random_models,
    random_recurrences,
    random_training,
    sessions,
    wrong_nodes,
)

FUZZERS = (
    random_models.MODELS,
    random_masks.LAYERS,
    random_masks.NETWORKS,
    random_layers.IMAGES,
    random_layers.QUANTIZED,
    random_layers.QUANTIZED_IMAGES,
    random_layers.AGGREGATIONS,
    random_recurrences.RECURRENCES,
    random_few_bits.FEW_BITS,
    random_choices.CHOICES,
    random_decoders.DECODERS,
    random_training.TRAINING,
    damaged_models.MODELS,
    networks_in_use.CACHES,
    networks_in_use.CALLING,
    networks_in_use.TUNING,
    damaged_parts.PARTS,
    free_sizes.FREE_SIZES,
    wrong_nodes.WRONG_NODES,
    sessions.NODES,
    sessions.PROVIDER,
    sessions.CONTEXTS,
)


def warm_up() -> None:
    """Load what every case needs, so that their processes begin with it; no threads are started."""
    arrays = [np.eye(40, dtype=np.float32), np.ones(40, dtype=np.float32)]
    redpebble.compile(random_masks.perceptron(arrays), cache=False).run(None, {"x": arrays[0]})
