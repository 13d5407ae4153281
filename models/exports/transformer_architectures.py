"""Small networks of transformers beside those that are measured: how many ways of writing attention there are."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

WIDTH: Final = 192
HEADS: Final = 4
VOCABULARY: Final = 500


class Small(NamedTuple):
    """A class of transformers without its ending "Model", and what its configuration has beside the usual sizes."""

    kind: str
    config: Mapping[str, Any] = MappingProxyType({})
    usual: bool = True
    """Whether widths and depth have the names that most configurations give them."""

    @property
    def config_name(self) -> str:
        """The class of the configuration."""
        return f"{self.kind}Config"

    def options(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the configuration, `usual` ones among them."""
        return {**(usual if self.usual else {}), **self.config}


USUAL_TEXT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
    }
)

USUAL_IMAGES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "image_size": 64,
        "patch_size": 8,
    }
)

SPECIAL: Final = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHARED_KEYS: Final = {"num_key_value_heads": 2}
OLD_NAMES: Final = {"vocab_size": VOCABULARY, "n_layer": 2, "n_head": HEADS}

TEXT: Final[Mapping[str, Small]] = MappingProxyType(
    {
        "albert": Small("Albert", {"embedding_size": 64}),
        "bloom": Small("Bloom", {**OLD_NAMES, "hidden_size": WIDTH}, usual=False),
        "deberta": Small("DebertaV2", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
        "electra": Small("Electra", {"embedding_size": 96}),
        "falcon": Small("Falcon"),
        "gemma": Small("Gemma2", {**SHARED_KEYS, "head_dim": WIDTH // HEADS}),
        "gptj": Small("GPTJ", {**OLD_NAMES, "n_embd": WIDTH, "rotary_dim": 16}, usual=False),
        "llama": Small("Llama", SHARED_KEYS),
        "modernbert": Small("ModernBert", {**SPECIAL, "cls_token_id": 1, "sep_token_id": 2}),
        "mpnet": Small("MPNet"),
        "neox": Small("GPTNeoX"),
        "opt": Small("OPT", {"ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH}),
        "phi": Small("Phi3", {**SHARED_KEYS, **SPECIAL}),
        "qwen": Small("Qwen3", {**SHARED_KEYS, "head_dim": WIDTH // HEADS}),
    }
)
"""Name -> a network that reads ids and a mask."""

IMAGES: Final[Mapping[str, Small]] = MappingProxyType(
    {
        "beit": Small("Beit", {"use_relative_position_bias": True}),
        "dinov2": Small(
            "Dinov2",
            {
                "image_size": 64,
                "patch_size": 8,
                "hidden_size": WIDTH,
                "num_hidden_layers": 2,
                "num_attention_heads": HEADS,
            },
            usual=False,
        ),
        "segformer": Small(
            "Segformer",
            {
                "num_encoder_blocks": 2,
                "depths": [1, 1],
                "sr_ratios": [4, 2],
                "hidden_sizes": [64, 128],
                "patch_sizes": [7, 3],
                "strides": [4, 2],
                "num_attention_heads": [1, 2],
                "mlp_ratios": [4, 4],
            },
            usual=False,
        ),
        "siglip": Small("SiglipVision"),
        "swin": Small(
            "Swin",
            {
                "image_size": 64,
                "patch_size": 4,
                "embed_dim": 96,
                "depths": [2, 2],
                "num_heads": [3, 6],
                "window_size": 4,
            },
            usual=False,
        ),
    }
)
"""Name -> a network that reads images of 64 x 64."""
