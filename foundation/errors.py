"""The errors that redpebble raises itself; each message is one line that names the expected values.

    RedpebbleError                   what all of these are                           redpebble.RedpebbleError
    ├── ModelError                   the model: node, operator and value are named   redpebble.ModelError
    │   ├── InvalidModelError        it contradicts itself or the ONNX standard      redpebble.InvalidModelError
    │   └── UnsupportedModelError    it is valid, and not covered here               redpebble.UnsupportedModelError
    │       ├── CodesError           codes that no layer reads; their reader says why    redpebble.frontend.errors
    │       ├── UnknownSizesError    an image whose sizes calls choose                   redpebble.frontend.errors
    │       ├── NothingToGainError   `optimize` leaves it as it is                   redpebble.frontend.errors
    │       └── TooManyNodesError    what translates each one refuses it             redpebble.frontend.errors
    ├── OracleError                  onnxruntime refuses a model or its feeds        redpebble.verification.oracle
    ├── ArtefactError                a file of native code is of no use here         redpebble.runtime.store.artefact
    ├── UntrustedFileError           others can write to it; a PermissionError       redpebble.foundation.private_files
    ├── ElfError                     an object file cannot be linked; a ValueError   redpebble.ort.elf.object_file
    ├── OrtError                     onnxruntime refused a call of its C interface   redpebble.ort.custom_ops.node
    ├── NotOneNodeError              nodes cannot become one for the provider        redpebble.ort.provider.graph_parts
    ├── PartError                    parts, or the ranks that run them, do not fit   redpebble.distributed.errors
    ├── PeerError                    a library to compare with cannot be measured    redpebble.tools.benching.errors
    ├── NotCoveredError              an engine does not run all of a model           redpebble.tools.benching.errors
    ├── NotAChainError               a model is more than a chain of layers          redpebble.tools.benching.errors
    └── RefusalError                 a request that is refused               redpebble.tools.explain.serving.server

Beside them: `ValueError` and `OSError` for what a caller passed, xDSL's `VerifyException` for IR that contradicts
itself and `PassFailedException` for a pass that cannot do what its options ask. `NotCovered`, by which a converter of
`frontend/operators` leaves a node as it is, never reaches a caller.
"""


class RedpebbleError(Exception):
    """The parent of every error of redpebble's own."""
