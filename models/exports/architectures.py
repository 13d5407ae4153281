"""The architectures that are exported, each in two sizes: a module, what it gets, and which of its axes are free."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .detector import YoloV5s
from .published_networks import PUBLISHED, Published
from .sequence_networks import (
    FrameClassifier,
    LetterTagger,
    LineRecognizer,
    SampleEncoder,
    StackedEncoder,
    states_encoder,
)
from .signal_networks import ImageDecoder, PitchNetwork, SeizureDetector, VoiceDetector, WaveUNet, WordTagger
from .torch_networks import (
    DecoderStep,
    Dlrm,
    FirstOutput,
    FtTransformer,
    Mixer,
    Recurrent,
    TabNet,
    Torch,
)

# Small networks of transformers beside those that are measured: how many ways of writing attention there are.

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


torch: Any = import_module("torch")
transformers: Any = import_module("transformers")

Axes = Mapping[int, str]


@dataclass(frozen=True)
class Architecture:
    """A module with example inputs, their names, and names for the axes that are free."""

    module: Torch
    examples: tuple[Torch, ...]
    inputs: tuple[str, ...]
    axes: Mapping[str, Axes]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class EncoderSize:
    """Sizes of a transformer."""

    width: int
    heads: int
    layers: int

    @property
    def hidden(self) -> int:
        """The width of the feed-forward layers."""
        return 4 * self.width


SMALL: Final = EncoderSize(128, 4, 2)
MINI: Final = EncoderSize(384, 12, 6)
BASE: Final = EncoderSize(768, 12, 4)
TINY_IMAGES: Final = EncoderSize(192, 3, 12)
TRACED_TOKENS: Final = "tokens"
"""The axis of tokens where a trace holds that of the example, ten."""

TOKEN_AXES: Final = {0: "batch", 1: "sequence"}
BART_LAYERS: Final = {"layers": 2, "ffn_dim": 2 * WIDTH, "attention_heads": HEADS}


def _text_encoder(network: Torch, names: tuple[str, ...]) -> Architecture:
    examples = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names)
    return Architecture(
        FirstOutput(network, names), examples, names, dict.fromkeys(names, TOKEN_AXES), ("last_hidden_state",)
    )


def _bert(size: EncoderSize) -> Architecture:
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.hidden,
    )
    network = transformers.BertModel(config, add_pooling_layer=False)
    return _text_encoder(network, ("input_ids", "attention_mask", "token_type_ids"))


def _distilbert(size: EncoderSize) -> Architecture:
    config = transformers.DistilBertConfig(
        vocab_size=1000, dim=size.width, n_layers=size.layers, n_heads=size.heads, hidden_dim=size.hidden
    )
    return _text_encoder(transformers.DistilBertModel(config), ("input_ids", "attention_mask"))


def _t5(size: EncoderSize) -> Architecture:
    config = transformers.T5Config(
        vocab_size=1000,
        d_model=size.width,
        d_kv=size.width // size.heads,
        d_ff=size.hidden,
        num_layers=size.layers,
        num_heads=size.heads,
        feed_forward_proj="gated-gelu",
    )
    return _text_encoder(transformers.T5EncoderModel(config), ("input_ids", "attention_mask"))


def _images(network: Torch, name: str, channels: int, side: int) -> Architecture:
    module = FirstOutput(network, (name,))
    return Architecture(
        module, (torch.randn(2, channels, side, side),), (name,), {name: {0: "batch"}}, ("last_hidden_state",)
    )


def _vit(size: EncoderSize, side: int, patch: int) -> Architecture:
    config = transformers.DeiTConfig(
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.hidden,
        image_size=side,
        patch_size=patch,
    )
    return _images(transformers.DeiTModel(config, add_pooling_layer=False), "pixel_values", 3, side)


def _convnext(width: int, depths: tuple[int, ...], side: int) -> Architecture:
    config = transformers.ConvNextConfig(
        hidden_sizes=[width << index for index in range(len(depths))], depths=list(depths), num_stages=len(depths)
    )
    return _images(transformers.ConvNextModel(config), "pixel_values", 3, side)


def _resnet(layer: str, depths: tuple[int, ...], widths: tuple[int, ...], side: int) -> Architecture:
    config = transformers.ResNetConfig(
        embedding_size=min(64, widths[0]), hidden_sizes=list(widths), depths=list(depths), layer_type=layer
    )
    return _images(transformers.ResNetForImageClassification(config), "pixel_values", 3, side)


def _mobilenet(version: int, side: int) -> Architecture:
    if version == 1:
        network = transformers.MobileNetV1ForImageClassification(transformers.MobileNetV1Config(tf_padding=False))
    else:
        network = transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config(tf_padding=False))
    return _images(network, "pixel_values", 3, side)


def _efficientnet(side: int) -> Architecture:
    config = transformers.EfficientNetConfig(
        image_size=side, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280
    )
    return _images(transformers.EfficientNetForImageClassification(config), "pixel_values", 3, side)


def _yolo(side: int) -> Architecture:
    names = ("small", "medium", "large")
    return Architecture(YoloV5s(), (torch.randn(2, 3, side, side),), ("images",), {"images": {0: "batch"}}, names)


def _whisper(size: EncoderSize, frames: int) -> Architecture:
    config = transformers.WhisperConfig(
        num_mel_bins=80,
        d_model=size.width,
        encoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        encoder_ffn_dim=size.hidden,
        max_source_positions=frames // 2,
        decoder_layers=1,
        decoder_attention_heads=size.heads,
        vocab_size=100,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    module = FirstOutput(transformers.WhisperModel(config).get_encoder(), ("input_features",))
    example = torch.randn(2, 80, frames)
    return Architecture(
        module, (example,), ("input_features",), {"input_features": {0: "batch"}}, ("last_hidden_state",)
    )


def _gpt2(size: EncoderSize, vocabulary: int) -> Architecture:
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=size.width, n_layer=size.layers, n_head=size.heads, n_positions=1024
    )
    return decoder_step(transformers.GPT2LMHeadModel(config), size.layers, (size.heads, size.width // size.heads))


def _llama_step() -> Architecture:
    small = TEXT["llama"]
    config = transformers.LlamaConfig(**small.options(USUAL_TEXT))
    config._attn_implementation = "eager"
    past = (config.num_key_value_heads, WIDTH // HEADS)
    return decoder_step(transformers.LlamaForCausalLM(config), config.num_hidden_layers, past)


def decoder_step(network: Torch, layers: int, past: tuple[int, int]) -> Architecture:
    """Return a step behind a past of so many heads of so many features in each layer."""
    (heads, features), names = past, tuple(f"{kind}_{index}" for index in range(layers) for kind in ("key", "value"))
    parts = [torch.randn(2, heads, 5, features) for _ in names]
    examples = (torch.ones((2, 3), dtype=torch.int64), torch.ones((2, 8), dtype=torch.int64), parts)
    axes = {"input_ids": TOKEN_AXES, "attention_mask": {0: "batch", 1: "total"}}
    axes |= {f"past_{name}": {0: "batch", 2: "past"} for name in names}
    return Architecture(
        DecoderStep(network), examples, tuple(axes), axes, ("logits", *(f"present_{name}" for name in names))
    )


def _rows(module: Torch, features: int) -> Architecture:
    return Architecture(module, (torch.randn(3, features),), ("x",), {"x": {0: "batch"}}, ("y",))


def _mixer(width: int, depth: int, side: int) -> Architecture:
    return Architecture(
        Mixer(side, 16, width, depth), (torch.randn(2, 3, side, side),), ("x",), {"x": {0: "batch"}}, ("y",)
    )


def _dlrm(tables: int, width: int, hidden: int) -> Architecture:
    module = Dlrm(13, tables, width, hidden)
    examples = (torch.randn(3, 13), torch.zeros((3, tables), dtype=torch.int64))
    axes = {"x": {0: "batch"}, "categories": {0: "batch"}}
    return Architecture(module, examples, tuple(axes), axes, ("y",))


def _stacked(size: EncoderSize) -> Architecture:
    # a traced file takes texts of one length alone, that of the example
    axes, example = {0: "batch", 1: TRACED_TOKENS}, torch.ones((2, 10), dtype=torch.int64)
    module = StackedEncoder(1000, size.width, size.heads, size.layers)
    return Architecture(module, (example, example), ("ids", "mask"), {"ids": axes, "mask": axes}, ("states",))


def _states(size: EncoderSize) -> Architecture:
    module, example = states_encoder(size.width, size.heads, size.layers), torch.randn(10, 2, size.width)
    return Architecture(module, (example,), ("x",), {"x": {0: TRACED_TOKENS, 1: "batch"}}, ("states",))


def _lstm(width: int) -> Architecture:
    return Architecture(Recurrent(40, width), (torch.randn(2, 6, 40),), ("x",), {"x": TOKEN_AXES}, ("y",))


def _of_one_length(module: Torch, *shape: int) -> Architecture:
    return Architecture(module, (torch.randn(2, *shape),), ("x",), {"x": {0: "batch"}}, ("y",))


def _of_any_length(module: Torch, example: Torch, length_axis: int) -> Architecture:
    return Architecture(module, (example,), ("x",), {"x": {0: "batch", length_axis: "length"}}, ("y",))


def _voice(width: int) -> Architecture:
    states = torch.zeros(1, 2, width)
    axes = {"x": {0: "batch"}, "h": {1: "batch"}, "c": {1: "batch"}}
    return Architecture(
        VoiceDetector(width), (torch.randn(2, 512), states, states.clone()), ("x", "h", "c"), axes, ("y", "hn", "cn")
    )


def _text(small: Small) -> Architecture:
    config = getattr(transformers, small.config_name)(**small.options(USUAL_TEXT))
    config.use_cache = False
    config._attn_implementation = "eager"
    return _text_encoder(getattr(transformers, f"{small.kind}Model")(config), ("input_ids", "attention_mask"))


def _seen(small: Small) -> Architecture:
    config = getattr(transformers, small.config_name)(**small.options(USUAL_IMAGES))
    return _images(getattr(transformers, f"{small.kind}Model")(config), "pixel_values", 3, 64)


def _published(one: Published) -> Architecture:
    images = torch.randn(2, 3, one.side, one.side)
    return Architecture(one.module(), (images,), ("pixel_values",), {"pixel_values": {0: "batch"}}, ("scores",))


def _bart() -> Architecture:
    layers = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in BART_LAYERS.items()}
    config = transformers.BartConfig(vocab_size=VOCABULARY, d_model=WIDTH, use_cache=False, **layers)
    config._attn_implementation = "eager"
    names = ("input_ids", "decoder_input_ids")
    examples = (torch.full((2, 8), 3), torch.full((2, 5), 3))
    axes = {names[0]: TOKEN_AXES, names[1]: {0: "batch", 1: "length"}}
    module = FirstOutput(transformers.BartModel(config), names)
    return Architecture(module, examples, names, axes, ("last_hidden_state",))


ARCHITECTURES: Final[Mapping[str, Callable[[], Architecture]]] = MappingProxyType(
    {
        "bert": lambda: _bert(SMALL),
        "convnext": lambda: _convnext(64, (1, 1), 32),
        "deit": lambda: _vit(SMALL, 48, 16),
        "distilbert": lambda: _distilbert(SMALL),
        "dlrm": lambda: _dlrm(4, 32, 128),
        "ft_transformer": lambda: _rows(FtTransformer(10, 96, 4, 2), 10),
        "gpt2": lambda: _gpt2(SMALL, 1000),
        "lstm": lambda: _lstm(64),
        "stacked": lambda: _stacked(SMALL),
        "states": lambda: _states(SMALL),
        "letters": lambda: _of_any_length(LetterTagger(50, 96, 6), torch.zeros((2, 16), dtype=torch.int64), 1),
        "samples": lambda: _of_any_length(SampleEncoder(96, 6), torch.randn(2, 1600), 1),
        "frames": lambda: _of_any_length(FrameClassifier(40, 48, 6), torch.randn(2, 24, 40), 1),
        "lines": lambda: _of_any_length(LineRecognizer(48, 30), torch.randn(2, 3, 32, 96), 3),
        "waves": lambda: _of_one_length(WaveUNet(32, 3), 1, 512),
        "words": lambda: _of_any_length(WordTagger(60, 128, 6), torch.zeros((2, 16), dtype=torch.int64), 1),
        "latents": lambda: _of_one_length(ImageDecoder(32, 32, 6), 32),
        "eeg": lambda: _of_any_length(SeizureDetector(20, 32, 32, 2), torch.randn(2, 20, 32, 16), 3),
        "voice": lambda: _voice(128),
        "pitch": lambda: _of_one_length(PitchNetwork(16, 40), 1024),
        "mixer": lambda: _mixer(128, 2, 64),
        "resnet": lambda: _resnet("bottleneck", (1, 1), (64, 128), 64),
        "t5": lambda: _t5(SMALL),
        "tabnet": lambda: _rows(TabNet(40, 64, 3), 40),
        "whisper": lambda: _whisper(SMALL, 60),
        "bert_base": lambda: _bert(BASE),
        "convnext_tiny": lambda: _convnext(96, (3, 3, 9, 3), 224),
        "deit_tiny": lambda: _vit(TINY_IMAGES, 224, 16),
        "distilbert_base": lambda: _distilbert(BASE),
        "dlrm_base": lambda: _dlrm(26, 64, 512),
        "efficientnet_b0": lambda: _efficientnet(224),
        "ft_transformer_base": lambda: _rows(FtTransformer(39, 192, 8, 3), 39),
        "gpt2_base": lambda: _gpt2(EncoderSize(768, 12, 12), 50257),
        "lstm_base": lambda: _lstm(512),
        "minilm_size": lambda: _bert(MINI),
        "mobilenet_v1": lambda: _mobilenet(1, 224),
        "mobilenet_v2": lambda: _mobilenet(2, 224),
        "resnet_18": lambda: _resnet("basic", (2, 2, 2, 2), (64, 128, 256, 512), 224),
        "resnet_50": lambda: _resnet("bottleneck", (3, 4, 6, 3), (256, 512, 1024, 2048), 224),
        "mixer_small": lambda: _mixer(512, 8, 224),
        "t5_small": lambda: _t5(EncoderSize(512, 8, 6)),
        "tabnet_base": lambda: _rows(TabNet(128, 128, 5), 128),
        "yolov5s_320": lambda: _yolo(320),
        "yolov5s_640": lambda: _yolo(640),
        "whisper_tiny": lambda: _whisper(EncoderSize(384, 6, 4), 3000),
        "bart": _bart,
        "llama_step": _llama_step,
        **{name: partial(_text, small) for name, small in TEXT.items()},
        **{name: partial(_seen, small) for name, small in IMAGES.items()},
        **{name: partial(_published, one) for name, one in PUBLISHED.items()},
    }
)
"""Name -> architecture, small ones first; weights are torch's of the moment, so seed it before."""
